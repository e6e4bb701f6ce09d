"""The files in deploy/: read by what will read them where that is here, and against the service
itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from prometheus_client.parser import text_string_to_metric_families

from docs.generate import metrics
from echelon.controller.service.api.tokens import new_token
from tests.echelon.service.measured import exercised, families
from tests.needs import needs, skip

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
UNITS = ("echelon.service", "echelon-switch@.service")
PATIENCE_S = 60


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana" / "echelon.json").read_text())
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


# -- expressions name what there is ----------------------------------------------------------------


def series() -> dict[str, set[str]]:
    """Return every series that a controller shows, with its labels and those that a scrape adds."""
    added = {"instance", "job"}
    found: dict[str, set[str]] = {"up": added}
    for family in families(exercised()).values():
        for sample in family.samples:
            found.setdefault(sample.name, set(added)).update(sample.labels)
    return found


KEYWORDS = {
    "and",
    "or",
    "unless",
    "by",
    "on",
    "without",
    "ignoring",
    "bool",
    "offset",
    "group_left",
    "group_right",
}


def expressions() -> list[tuple[str, str]]:
    found = [(rule["alert"], rule["expr"]) for rule in rules()]
    found += [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    found += [(one["name"], one["expr"]) for one in dashboard()["annotations"]["list"]]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(
                r"label_values\((\w+), (\w+)\)", variable["query"]["query"]
            ).groups()  # type: ignore[union-attr]
            found.append((variable["name"], f"sum by ({label}) ({metric})"))
    return found


@pytest.mark.parametrize(("where", "expression"), expressions())
def test_expressions_name_series_and_labels_that_exist(where: str, expression: str) -> None:
    known = series()
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)
    text = re.sub(r"\[[^\]]*\]", "", expression)
    selectors = re.findall(r"([a-zA-Z_]\w*)\s*\{([^}]*)\}", text)
    for name, matchers in selectors:
        for matcher in matchers.split(","):
            label = re.fullmatch(r'\s*(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"\s*', matcher)
            assert label, matcher
            assert label[1] in known[name], f"{where}: {name} has no label {label[1]}"
    text = re.sub(r"\{[^}]*\}", "", text)
    grouped = {
        label.strip()
        for labels in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", text)
        for label in labels.split(",")
    }
    text = re.sub(r"\b(?:by|on)\s*\([^)]*\)", "", text)
    names = set(re.findall(r"\b[a-zA-Z_]\w*\b(?!\s*\()", text)) - KEYWORDS
    assert names, where
    assert names <= set(known), f"{where}: no such series"
    assert grouped <= set().union(*(known[name] for name in names)), f"{where}: no such labels"


def test_a_rate_is_of_a_counter_and_a_quantile_of_buckets() -> None:
    types = {
        sample.name: family.type
        for family in families(exercised()).values()
        for sample in family.samples
    }
    for where, expression in expressions():
        for name in re.findall(r"(?:rate|increase)\((\w+)", expression):
            assert types[name] in ("counter", "histogram"), where
        assert ("_bucket" in expression) == ("histogram_quantile(" in expression), where


def test_alerts_say_what_is_the_matter() -> None:
    known = series()
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        summary = rule["annotations"]["summary"]
        assert "\n" not in summary
        for label in re.findall(r"\$labels\.(\w+)", summary):
            assert any(label in known[name] for name in known if name in rule["expr"]), rule[
                "alert"
            ]
    wanted = {"ControllerDown", "NoLeader", "Drift", "SwitchAway", "PlanFailing"}
    assert {f"Echelon{one}" for one in wanted} <= set(names)


def test_prometheus_loads_the_rules_and_scrapes_what_they_ask_for() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert all((DEPLOY / name).is_file() for name in config["rule_files"])
    (scrape,) = config["scrape_configs"]
    named = {
        job
        for _, expression in expressions()
        for job in re.findall(r'(?:up|process_\w+)\{job="([^"]*)"', expression)
    }
    assert named == {scrape["job_name"]}


@needs("promtool")
def test_prometheus_itself_agrees(tmp_path: Path) -> None:
    """Prometheus accepts configuration, rules and metrics, and every alert fires when it should,
    and only then.
    """
    token = tmp_path / "token"
    token.write_text("any")
    for source in (DEPLOY / "rules.yml", Path(__file__).with_name("rules_test.yml")):
        shutil.copy(source, tmp_path)
    config = (
        (DEPLOY / "prometheus.yml").read_text().replace("/etc/prometheus/echelon.token", str(token))
    )
    (tmp_path / "prometheus.yml").write_text(config)

    def promtool(*words: str, text: bytes = b"") -> None:
        done = subprocess.run(
            ["promtool", *words], cwd=tmp_path, input=text, capture_output=True, timeout=PATIENCE_S
        )
        assert (done.returncode, done.stderr) == (0, b""), done.stdout.decode()

    promtool("check", "config", "prometheus.yml")
    promtool("check", "metrics", text=exercised().render()[0])
    promtool("test", "rules", "rules_test.yml")
    tested = yaml.safe_load((tmp_path / "rules_test.yml").read_text())["tests"]
    fired = {
        one["alertname"] for test in tested for one in test["alert_rule_test"] if one["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in rules()}


def test_the_dashboard_fits_its_grid() -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    assert len(taken) == 24 * (max(y for _, y in taken) + 1), "there is a hole"


def test_the_dashboard_uses_the_variables_that_it_has() -> None:
    variables = {variable["name"] for variable in dashboard()["templating"]["list"]}
    used = set(
        re.findall(
            r"\$\{?(\w+)",
            " ".join(target["expr"] for panel in panels() for target in panel["targets"]),
        )
    )
    assert used - {"__rate_interval"} == variables - {"datasource"}
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels())


# -- units -----------------------------------------------------------------------------------------


def installed(directory: Path, unit: str) -> Path:
    """Return the unit with this environment in the place of /opt/echelon."""
    out = directory / unit.replace("@.", "@s1.")
    out.write_text((DEPLOY / unit).read_text().replace("/opt/echelon/bin", str(BIN)))
    return out


@needs("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_understands_the_units(unit: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(installed(tmp_path, unit))],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS)
def test_units_are_confined(unit: str) -> None:
    """systemd's own score is below 2.5 of 10, which it calls OK."""
    done = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--offline=true",
            "--no-pager",
            "--threshold=25",
            str(DEPLOY / unit),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    if "--offline" in done.stderr or "unrecognized" in done.stderr:
        reason = "systemd-analyze does not judge files (install systemd 250 or later)"
        skip("systemd-analyze", reason)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


# -- the daemon as the files start it --------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[bytes]
    url: str
    token: str
    said: socket.socket
    """The socket on which the supervisor receives the service's messages."""


def _memory_deny_write_execute() -> None:
    """Deny memory that is writable and executable, as MemoryDenyWriteExecute= of the unit does,
    where the kernel can.
    """
    pr_set_mdwe, refuse_exec_gain = 65, 1
    ctypes.CDLL(None).prctl(pr_set_mdwe, refuse_exec_gain, 0, 0, 0)


@contextmanager
def running(directory: Path) -> Iterator[Running]:
    """Run deploy/echelon.yaml with a port and a state directory that this test may use, and with
    tokens.
    """
    for name in ("echelon.yaml", "fabric.yaml"):
        shutil.copy(DEPLOY / name, directory)
    config = yaml.safe_load((directory / "echelon.yaml").read_text())
    assert config["store"] == "sqlite:///var/lib/echelon/state.db"
    config["store"] = "sqlite:state.db"
    config["api"]["listen"] = "127.0.0.1:0"
    for name in config["switches"]:
        config["switches"][name]["address"] = "127.0.0.1:1"
    (directory / "echelon.yaml").write_text(yaml.safe_dump(config))
    made = new_token("prometheus", "read-only")
    (directory / "tokens.yaml").write_text("tokens:\n" + made.entry)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as said,
        (directory / "log").open("wb") as log,
    ):
        said.bind(f"\0echelon-test-{os.getpid()}-{directory.name}")
        said.settimeout(PATIENCE_S)
        process = subprocess.Popen(
            [BIN / "echelon", "serve", "--config", directory / "echelon.yaml"],
            env={**os.environ, "NOTIFY_SOCKET": said.getsockname().decode().replace("\0", "@")},
            stdout=subprocess.DEVNULL,
            stderr=log,
            preexec_fn=_memory_deny_write_execute,
        )
        killer = threading.Timer(PATIENCE_S, process.kill)
        killer.start()
        try:
            first = said.recv(4096).decode()
            assert first.startswith("READY=1\n"), first
            url = re.search(r"http://\S+", first)
            assert url
            yield Running(process, url[0].rstrip("/"), made.token, said)
        finally:
            killer.cancel()
            process.kill()
            process.wait()


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile, continued lines joined, comments left out."""
    lines = [
        line
        for line in (DEPLOY / "Containerfile").read_text().splitlines()
        if not line.startswith("#")
    ]
    text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [
        (line.split(None, 1)[0], line.split(None, 1)[1])
        for line in text.splitlines()
        if line.strip()
    ]


def test_the_service_as_its_files_run_it(tmp_path: Path) -> None:
    """The service is ready when it says so, healthy by the container's own check, scraped as
    Prometheus would, and ends in order.
    """
    (health,) = [text for name, text in instructions() if name == "HEALTHCHECK"]
    command = json.loads(health[health.index("CMD") + len("CMD") :])

    def healthy(url: str) -> bool:
        done = subprocess.run(
            [sys.executable, *command[1:]],
            env={**os.environ, "ECHELON_HEALTH_URL": f"{url}/healthz"},
            capture_output=True,
            timeout=PATIENCE_S,
        )
        return done.returncode == 0

    with running(tmp_path) as service:
        assert healthy(service.url)
        with pytest.raises(HTTPError) as caught:
            urlopen(f"{service.url}/metrics", timeout=PATIENCE_S)
        assert caught.value.code == 401
        scrape = Request(
            f"{service.url}/metrics", headers={"Authorization": f"Bearer {service.token}"}
        )
        with urlopen(scrape, timeout=PATIENCE_S) as answer:
            found = {one.name for one in text_string_to_metric_families(answer.read().decode())}
        assert set(families(exercised())) == found
        service.process.send_signal(signal.SIGTERM)
        heard = [service.said.recv(4096)]
        while heard[-1] != b"STOPPING=1":
            heard.append(service.said.recv(4096))
        assert service.process.wait(PATIENCE_S) == 0
        assert not healthy(service.url)
    records = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {"time", "level", "event"} <= set.intersection(*(set(record) for record in records))
    assert service.token not in (tmp_path / "log").read_text()


# -- examples and image ----------------------------------------------------------------------------


def test_examples_are_good() -> None:
    files = [str(DEPLOY / name) for name in ("echelon.yaml", "tokens.yaml", "fabric.yaml")]
    done = subprocess.run(
        [BIN / "echelon", "check", *files], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_units_and_image_start_what_there_is() -> None:
    """The commands and options that the files name are those of the commands."""
    (entry,) = [json.loads(text) for name, text in instructions() if name == "ENTRYPOINT"]
    (arguments,) = [json.loads(text) for name, text in instructions() if name == "CMD"]
    unit = (DEPLOY / "echelon.service").read_text()
    (started,) = re.findall(r"^ExecStart=/opt/echelon/bin/(.*)$", unit, re.MULTILINE)
    assert started.split() == [*entry, *arguments]
    done = subprocess.run(
        [BIN / entry[0], arguments[0], "--help"], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert "--config" in done.stdout
    switch = (DEPLOY / UNITS[1]).read_text()
    (started,) = re.findall(r"^ExecStart=/opt/echelon/bin/(.*)$", switch, re.MULTILINE)
    done = subprocess.run(
        [BIN / "softswitch", "--help"], capture_output=True, text=True, timeout=PATIENCE_S
    )
    for option in re.findall(r"--[a-z0-9-]{2,}", started):
        assert option in done.stdout


def test_the_image_copies_what_is_there_and_is_not_ignored() -> None:
    kept = [
        line[1:]
        for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
        if line[0] == "!"
    ]
    copied = [
        word
        for name, text in instructions()
        if name == "COPY" and "--from" not in text
        for word in text.split()[:-1]
    ]
    assert sorted(copied) == sorted(kept)
    assert all((ROOT / name).exists() for name in copied)
    stages = [text for name, text in instructions() if name == "FROM"]
    assert stages == ["${BASE} AS build", "${BASE}"]
    (base,) = [text.split("=", 1)[1] for name, text in instructions() if name == "ARG"]
    version = re.fullmatch(r"python:(\d+)\.(\d+)\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    assert version
    assert (int(version[1]), int(version[2])) >= (3, 11)
    assert [text for name, text in instructions() if name == "USER"] == ["10001:10001"]


def declared(folder: Path, *extras: str) -> Iterator[Requirement]:
    """Yield what a distribution and extras of it depend on, by its pyproject.toml."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    for extra in extras:
        yield from map(Requirement, project["optional-dependencies"][extra])
    yield from map(Requirement, project["dependencies"])


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-build.txt"])
def test_each_line_of_a_lock_has_a_version_and_hashes(file: str) -> None:
    text = (DEPLOY / file).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-(?!-hash=)", text, re.MULTILINE), (
        "an option, such as a registry's address"
    )
    for line in re.sub(r"\\\n", "", text).splitlines():
        if not line.startswith("#"):
            stated, *hashes = line.split(" --hash=sha256:")
            (one,) = Requirement(stated.strip()).specifier
            assert one.operator == "=="
            assert hashes, line
            assert all(re.fullmatch("[0-9a-f]{64}", digest.strip()) for digest in hashes)


def test_the_locks_have_what_is_declared() -> None:
    ours = {"echelon-p4", "softswitch-ctoolchain", "echelon-web", "echelon-etcd"}
    wanted = [
        *declared(ROOT, "service", "etcd"),
        *(
            one
            for name in ("ctoolchain", "plugins/web", "plugins/etcd")
            for one in declared(ROOT / name)
        ),
    ]
    of_lock = {
        "requirements.txt": wanted,
        "requirements-build.txt": [Requirement("hatchling>=1.26")],
    }
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert build == ["hatchling>=1.26"]
    for file, requirements in of_lock.items():
        lines = re.findall(r"^([^\s#][^\\\n]*)", (DEPLOY / file).read_text(), re.MULTILINE)
        locked: dict[str, set[str]] = {}
        for one in map(Requirement, lines):
            (pin,) = one.specifier
            locked.setdefault(one.name, set()).add(pin.version)
        for one in requirements:
            name = canonicalize_name(one.name)
            assert name in ours or locked[name], one
            assert all(one.specifier.contains(version) for version in locked.get(name, ())), one
        for name, versions in locked.items():
            # What is installed here in the same version requires the same.
            with suppress(PackageNotFoundError):
                if distribution(name).version in versions:
                    needed = map(Requirement, distribution(name).requires or ())
                    assert {
                        canonicalize_name(of.name) for of in needed if _is_needed(of)
                    } <= locked.keys(), name


def _is_needed(one: Requirement) -> bool:
    return one.marker is None or one.marker.evaluate({"extra": ""})


# -- the page --------------------------------------------------------------------------------------


def test_the_page_lists_every_metric_with_its_labels() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert page == metrics.written(page), "write it by python -m docs.generate.metrics"
    rows = re.findall(r"^\| `(echelon_\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert len(documented) == len(rows)
    shown = {
        name + ("_total" if family.type == "counter" else ""): (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for name, family in families(exercised()).items()
        if name.startswith("echelon_")
    }
    assert set(documented) == set(shown)
    for name, (kind, labels) in shown.items():
        assert documented[name][0] == kind, name
        assert labels <= documented[name][1], name


def test_the_page_lists_every_alert() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert re.findall(r"^\| `(Echelon\w+)` \|", page, re.MULTILINE) == [
        rule["alert"] for rule in rules()
    ]
