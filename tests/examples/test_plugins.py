"""The example plugins in a fresh environment: what they add works as what Echelon brings itself."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from echelon.controller.client import Client
from echelon.switches.processes import free_port
from tests.echelon.service.lab import Daemon, Process, settle, until
from tests.examples.installed import PLUGINS, Installed, install

pytestmark = pytest.mark.xdist_group("plugins")

LAB = PLUGINS / "lab"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("plugins") / "environment")


def test_nothing_comes_from_the_source_tree(fresh: Installed) -> None:
    script = (
        "import echelon as e, softswitch as s, echelon_example_plugins as p; print(e.__file__,"
        " s.__file__, p.__file__)"
    )
    files = fresh.run("python", "-c", script).stdout.split()
    assert len(files) == 3
    assert all(Path(file).is_relative_to(fresh.home) for file in files)


def test_every_file_of_the_lab_is_good(fresh: Installed) -> None:
    done = fresh.run("echelon", "check", *sorted(LAB.iterdir()))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 4


# -- the policy and the paradigm -------------------------------------------------------------------

STORED_S = 1.2e-3
"""The way of a packet of 1,250 bytes over a link of 10 Mbit/s and two of 100 Mbit/s.

A flow between the leaves sends its last packet on these once more after its slowest link: each
switch stores a packet before it forwards it.
"""
ALONE_S = 0.426 + 8 * STORED_S + 2 * 0.1e-3
"""An iteration of moe.yaml alone.

Computing: two layers of 5 + 10 ms, three times, as the backward pass counts twice. Tokens: 8
exchanges of half of 100 kB at 10 Mbit/s, 40 ms each. Gradients: two rounds of 100 kB at 100 Mbit/s
within a leaf, whose last packet takes 0.1 ms on the second link.
"""
DP_ALONE_S = 0.1 + 2 * (0.32 + STORED_S)


@pytest.mark.parametrize(
    ("target", "policies"),
    [
        ("fluid", ["fair", "least_loaded"]),
        pytest.param("softswitch", ["least_loaded"], marks=pytest.mark.long),
    ],
)
def test_a_scenario_runs_with_the_policy_and_the_paradigm(
    fresh: Installed, target: str, policies: Sequence[str], tmp_path: Path
) -> None:
    """`dp` shares an uplink if connections are counted; if bytes are, it has one for itself, and
    shares faster links.
    """
    chosen = [word for policy in policies for word in ("--policy", policy)]
    done = fresh.run(
        "echelon", "run", LAB / "scenario.yaml", "--target", target, *chosen, "--out", tmp_path
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert list(results) == policies
    for policy, result in results.items():
        jobs = result["jobs"]
        alone_s = {name: job["alone_iteration_s"] for name, job in jobs.items()}
        assert alone_s == pytest.approx({"moe": ALONE_S, "dp": DP_ALONE_S})
        slowdown = iteration_s(jobs["dp"]) / alone_s["dp"]
        assert slowdown < 1.1 if policy == "least_loaded" else slowdown > 1.5
        assert iteration_s(jobs["moe"]) >= ALONE_S
        first = [flow for flow in jobs["moe"]["flows"] if flow["iteration"] == 1]
        assert len(first) == EXCHANGED + REDUCED


EXCHANGED = 4 * 2 * 2 * 2
"""All-to-alls of two layers in two groups; two flows each."""
REDUCED = 2 * 2 * 2
"""A ring of two replicas for each of two experts: two rounds of two flows."""


def iteration_s(job: Mapping[str, Any]) -> float:
    """Return the mean time of the first two iterations, from the finish times of flows: no
    computing follows them.
    """
    return max(float(flow["finish_s"]) for flow in job["flows"] if flow["iteration"] == 2) / 2


# -- the target ------------------------------------------------------------------------------------

FABRIC = {
    "fabric": "pairs",
    "hosts": ["h1", "h2", "h3", "h4"],
    "switches": ["s1", "s2"],
    "links": [
        {"between": ends, "rate": "10 Mbit/s"}
        for ends in (["h1", "s1"], ["h2", "s1"], ["h3", "s2"], ["h4", "s2"], ["s1", "s2"])
    ],
}


class Recorded:
    """The entries and queues that a recorder was told to hold, found by replaying its file."""

    def __init__(self, file: Path) -> None:
        self.entries: dict[tuple[str, frozenset[tuple[str, str]], int], str] = {}
        self.queues: dict[tuple[int, int], Mapping[str, Any]] = {}
        self.updates: Counter[str] = Counter()
        for change in map(json.loads, file.read_text().splitlines()):
            if "queue" in change:
                self.queues[change["queue"]["port"], change["queue"]["queue"]] = change["queue"]
            elif "table" in change:
                self._apply(change)

    def _apply(self, change: Mapping[str, Any]) -> None:
        kind = change["update"]
        key = entry_key(change["table"], change["match"], change["priority"])
        self.updates[kind] += 1
        assert (key in self.entries) == (kind != "INSERT"), change
        if kind == "DELETE":
            del self.entries[key]
        else:
            self.entries[key] = numbers(change["action"])


def entry_key(
    table: str, match: Mapping[str, str], priority: int
) -> tuple[str, frozenset[tuple[str, str]], int]:
    # finsy writes an address without the length of a prefix that covers all of it.
    values = ((name, numbers(value).removesuffix("/32")) for name, value in match.items())
    return table, frozenset(values), priority


def numbers(text: str) -> str:
    """Write all numbers as decimal ones, IPv4 and MAC addresses too."""
    ipv4 = re.compile(r"\b(\d+)\.(\d+)\.(\d+)\.(\d+)\b")
    text = ipv4.sub(lambda found: str(int.from_bytes(bytes(map(int, found.groups())), "big")), text)
    mac = re.compile(r"\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b")
    text = mac.sub(lambda found: str(int(found[0].replace(":", ""), 16)), text)
    return re.sub(r"\b(0x[0-9a-f]+|\d+)\b", lambda found: str(int(found[0], 0)), text)


@contextmanager
def service(fresh: Installed, directory: Path) -> Iterator[tuple[Client, str]]:
    """Start two recorders, which write `s1.jsonl` and `s2.jsonl`, and a controller; give a client
    and the URL.
    """
    addresses = {name: f"127.0.0.1:{free_port()}" for name in FABRIC["switches"]}
    config = {
        "service": "lab",
        "fabric": "fabric.yaml",
        "policy": "least_loaded",
        "switches": {
            name: {
                "address": address,
                "target": "recorder",
                "record": str(directory / f"{name}.jsonl"),
            }
            for name, address in addresses.items()
        },
        "api": {"listen": "127.0.0.1:0"},
        "log": {"format": "json"},
    }
    (directory / "fabric.yaml").write_text(yaml.safe_dump(FABRIC))
    (directory / "echelon.yaml").write_text(yaml.safe_dump(config))
    started: list[Process] = []
    try:
        for number, (name, address) in enumerate(addresses.items(), start=1):
            options = (
                "--device-id",
                str(number),
                "--record",
                f"{name}.jsonl",
                "--grpc-server-addr",
                address,
            )
            started.append(
                Process(name, *fresh.command("echelon-recorder", *options), cwd=directory)
            )
        for process in started:
            process.wait_line(lambda line: line.startswith("P4Runtime at"))
        daemon = Controller(fresh, directory / "echelon.yaml")
        started.append(daemon)
        daemon.wait_event("leading")
        url = daemon.wait_listening()
        with Client(url, timeout_s=60) as client:
            yield client, url
    finally:
        statuses = [process.terminate() for process in reversed(started)]
    assert statuses == [0, 0, 0]


class Controller(Daemon):
    """The process of `echelon serve` in the fresh environment."""

    def __init__(self, fresh: Installed, config: Path) -> None:
        Process.__init__(
            self,
            "controller",
            *fresh.command("echelon", "serve", "--config", config),
            cwd=config.parent,
        )


def assert_recorded_is_intended(client: Client, directory: Path) -> dict[str, Recorded]:
    """Check every switch's record against its intent, after everything has settled."""
    settle(client)
    out = {}
    for name in FABRIC["switches"]:
        intent = client.intent(name)
        wanted = {
            entry_key(one.table, one.match, one.priority): numbers(one.action)
            for one in intent.entries
        }
        assert len(wanted) == len(intent.entries)
        recorded = out[name] = Recorded(directory / f"{name}.jsonl")
        assert recorded.entries == wanted
        assert recorded.queues == {
            (queue.port, queue.queue): queue.model_dump() for queue in intent.queues
        }
        assert client.switch(name).entries == len(wanted)
    return out


def test_switches_record_what_the_controller_intends(fresh: Installed, tmp_path: Path) -> None:
    with service(fresh, tmp_path) as (client, url):
        before = assert_recorded_is_intended(client, tmp_path)
        done = fresh.run("echelon", "job", "submit", LAB / "moe.yaml", "--wait", ECHELON_URL=url)
        assert done.returncode == 0, done.stderr
        with_job = assert_recorded_is_intended(client, tmp_path)
        # Every flow between the switches is recognised by both, and the all-reduces inside by one.
        for name, recorded in with_job.items():
            known = [key for key in recorded.entries if key[0] == "shim_flow"]
            assert len(known) == EXCHANGED + REDUCED // 2, name
            assert recorded.queues
        done = fresh.run("echelon", "job", "remove", "moe", ECHELON_URL=url)
        assert done.returncode == 0, done.stderr
        until(lambda: not client.jobs(), "the job is still there")
        after = assert_recorded_is_intended(client, tmp_path)
        for name, recorded in after.items():
            assert recorded.entries == before[name].entries
            gone = recorded.updates["DELETE"] - before[name].updates["DELETE"]
            come = with_job[name].updates["INSERT"] - before[name].updates["INSERT"]
            assert gone == come > EXCHANGED


def test_the_launcher_starts_a_recorder(fresh: Installed, tmp_path: Path) -> None:
    script = """if True:
        import sys
        from pathlib import Path
        from echelon.switches.targets import TARGETS
        from echelon.switches.targets.launching import Place
        launcher = TARGETS["recorder"].launcher()
        switch = launcher.launch(Place("s1", 7, {1: "nowhere"}), Path(sys.argv[1]))
        switch.wait_ready()
        switch.check()
        print(switch.entry["target"], switch.entry["address"] == switch.address, switch.stop())
        """
    done = fresh.run("python", "-c", script, tmp_path)
    assert (done.stdout, done.stderr) == ("recorder True 0\n", "")
    assert "device 7" in (tmp_path / "s1.log").read_text()


# -- what goes wrong -------------------------------------------------------------------------------

MOE: Mapping[str, Any] = yaml.safe_load((LAB / "moe.yaml").read_text())


FAULTS: list[tuple[Mapping[str, object], str]] = [
    ({"workers": ["h1", "h2", "h3"]}, "experts"),
    ({"workers": ["h1", "h2"]}, "gradient"),
    *(
        ({"mixture_of_experts": {**MOE["mixture_of_experts"], key: value}}, key)
        for key, value in (("gradient", "1 B"), ("tokens", "1 B"), ("layers", 0))
    ),
]


def test_a_faulty_job_is_refused_in_one_line(fresh: Installed, tmp_path: Path) -> None:
    files = [tmp_path / f"job{number}.yaml" for number in range(len(FAULTS))]
    for path, (change, _) in zip(files, FAULTS, strict=True):
        path.write_text(yaml.safe_dump({**MOE, **change}))
    done = fresh.run("echelon", "check", *files)
    assert done.returncode == 2
    for path, (_, key), line in zip(files, FAULTS, done.stderr.splitlines(), strict=True):
        assert f"{path}: mixture_of_experts.{key}: " in line


def assert_one_line(done: Any, *parts: str) -> None:
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    for part in parts:
        assert part in line


def test_a_parameter_that_the_policy_does_not_take_is_refused_in_one_line(
    fresh: Installed, tmp_path: Path
) -> None:
    words = (
        "run",
        LAB / "scenario.yaml",
        "--target",
        "fluid",
        "--policy",
        "least_loaded(queues=8)",
    )
    assert_one_line(fresh.run("echelon", *words, "--out", tmp_path), "queues", "7")


def test_a_broken_plugin_is_named_in_one_line_and_harms_no_other(
    fresh: Installed, tmp_path: Path
) -> None:
    metadata = tmp_path / "broken-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    kinds = ("policies", "paradigms", "targets")
    (metadata / "entry_points.txt").write_text(
        "".join(f"[echelon.{kind}]\nbroken = broken:Broken\n" for kind in kinds)
    )
    (tmp_path / "broken.py").write_text("raise RuntimeError('it was never finished')")
    lab = shutil.copytree(LAB, tmp_path / "lab")
    good = fresh.run("echelon", "check", *lab.iterdir(), PYTHONPATH=str(tmp_path))
    assert (good.returncode, good.stderr) == (0, "")
    for name, old, new in (
        ("scenario.yaml", "policies: [fair", "policies: [broken"),
        ("echelon.yaml", "target: recorder", "target: broken"),
        ("moe.yaml", "parallelism: mixture_of_experts", "parallelism: broken"),
    ):
        text = (lab / name).read_text()
        assert old in text
        (lab / name).write_text(text.replace(old, new))
        done = fresh.run("echelon", "check", lab / name, PYTHONPATH=str(tmp_path))
        assert_one_line(done, "broken:Broken", "it was never finished", "repair or remove")
