"""The wheels in an empty environment: the README's commands work in an empty directory; what needs
an extra says which.

The tests run one after the other: first with the base dependencies alone, then with the extras that
the README names.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon.cli.doors import GROUP
from echelon.model.extras import EXTRAS, PLUG_INS
from tests.docs.pages import ROOT
from tests.docs.test_commands import commands
from tests.echelon.cli.test_conventions import WITHOUT, example_of, leaves
from tests.examples.installed import Installed, environment
from tests.needs import NO_INDEX, skip

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("wheel")]

README = ROOT / "README.md"
PATIENCE_S = 300
UNREACHABLE = re.compile(
    r"Could not find a version|No matching distribution|Temporary failure|Max retries|Network is"
    r" unrea"
)

SKIPPED = {r"^make ": "a clone, whose Makefile makes the environment"}
"""The patterns of the README's commands that are not run here, and what each needs."""
OURS = {
    "SCENARIO.yaml": "mine/scenario.yaml",
    "FILE.yaml ...": "mine/scenario.yaml mine/fabric.yaml mine/vision.yaml",
}
"""The stand-ins for the reader's files: those that the first command writes."""

NEEDS = {
    "view": ("view DIR", "web"),
    "plot": ("plot DIR --kind bars -o pictures", "plot"),
    "show": ("show mine/vision.yaml -o job.png", "plot"),
    "traffic show": ("traffic show flows.csv -o flows.png", "plot"),
}
"""A use of a command that needs an extra, and the extra."""
FILES = {
    "coflows.txt": "4 1\n1 0 1 1 1 2:10\n",
    "sweep.yaml": "sweep: s\nscenario: mine/scenario.yaml\n",
    "two.yaml": (
        "fabric: two\nhosts: [a, b]\nswitches: [s1]\nlinks:\n"
        + "".join(f"  - {{between: [{host}, s1], rate: 1 Gbit/s, delay: 1 us}}\n" for host in "ab")
    ),
    "service.yaml": (
        "service: s\nfabric: two.yaml\nstore: 'sqlite:s.db'\nswitches: {s1: {address:"
        " '127.0.0.1:9'}}\n"
    ),
}


def pip_install(home: Path, wheels: Path, *what: str) -> None:
    """Install from `wheels` and the index that pip is configured with; skip if there is none that
    it can reach.
    """
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(home / "bin" / "python"),
        "--disable-pip-version-check",
    ]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-compile", "--find-links", wheels, *what],
        cwd=home,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    if done.returncode and UNREACHABLE.search(done.stderr):
        skip("a package index", NO_INDEX)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    folders = [
        ROOT,
        ROOT / "ctoolchain",
        ROOT / "lab",
        ROOT / "softswitch",
        *(path.parent for path in ROOT.glob("plugins/*/pyproject.toml")),
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "-w", directory, *folders], check=True
    )
    assert len(list(directory.iterdir())) == len(folders)
    [made] = directory.glob("echelon_p4-*.whl")
    return made


@pytest.fixture(scope="module")
def base(wheel: Path) -> Installed:
    """Return an environment with nothing but the core, the laboratory and what they depend on."""
    home = wheel.parent / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    pip_install(home, wheel.parent, f"{wheel}[lab]")
    return Installed(home)


def test_the_switch_is_installed_alone(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    pip_install(tmp_path, wheel.parent, "softswitch-p4")
    alone = Installed(tmp_path)
    done = subprocess.run(
        alone.command(
            "softswitch",
            "stf",
            *(
                ROOT / "tests/softswitch/stf/programs" / f"counters.{end}"
                for end in ("json", "stf")
            ),
        ),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        alone.run(
            "python", "-c", "import importlib.util as u; print(u.find_spec('echelon'))"
        ).stdout.strip()
        == "None"
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory in which the commands run, empty at first."""
    return tmp_path_factory.mktemp("place")


def run(installed: Installed, place: Path, command: str) -> subprocess.CompletedProcess[str]:
    name, *arguments = shlex.split(command)
    return subprocess.run(
        installed.command(name, *arguments),
        cwd=place,
        env=environment(ECHELON_URL=f"unix:{place}/nobody"),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def readme_commands() -> Iterator[str]:
    """Yield the commands of the README that need no clone, with our files for the reader's."""
    for command in commands(README):
        if not any(re.search(pattern, command) for pattern in SKIPPED):
            for word, ours in OURS.items():
                command = command.replace(word, ours)
            yield command


def readme_extras() -> set[str]:
    """Return the extras that the README tells to install."""
    [extras] = re.findall(
        r"pip install 'echelon-p4\[([a-z,]+)\]'", README.read_text(encoding="utf-8")
    )
    return set(extras.split(","))


def names_the_extra(done: subprocess.CompletedProcess[str], extra: str) -> bool:
    return (
        done.returncode == 2
        and done.stdout == ""
        and re.fullmatch(said(extra), done.stderr) is not None
    )


def said(extra: str) -> str:
    """Return the pattern of the line that names the extra of a package, or of a plug-in."""
    install = rf"\(run: pip install 'echelon-p4\[{extra}\]'\)"
    if extra in PLUG_INS[GROUP].values():
        return (
            rf"echelon: '\w+' is in the plug-in echelon-{extra} {install} \(see echelon --help\)\n"
        )
    return rf"\S.* is not installed {install}\n"


def runs_on(command: str) -> bool:
    return command.startswith("echelon view ")


def test_nothing_but_the_base_dependencies_is_there(base: Installed) -> None:
    names = sorted({*EXTRAS} - {"echelon_lab", "softswitch"})
    script = (
        "import importlib.util as u, echelon; print(echelon.__file__, *filter(u.find_spec,"
        f" {names!r}))"
    )
    file, *extras = base.run("python", "-c", script).stdout.split()
    assert Path(file).is_relative_to(base.home)
    assert extras == []


def test_the_commands_of_the_readme_work_or_say_which_extra_they_need(
    base: Installed, place: Path
) -> None:
    found = list(readme_commands())
    assert len(found) >= 4
    for command in found:
        done = run(base, place, command)
        if runs_on(command):
            assert names_the_extra(done, "web"), done.stderr
        else:
            assert done.returncode == 0, done.stderr
    assert (place / "DIR" / "report.md").is_file()


def test_what_is_shipped_is_in_the_wheel(base: Installed, place: Path) -> None:
    ours = json.loads(CliRunner().invoke(app, ["examples", "--json"]).stdout)
    theirs = json.loads(run(base, place, "echelon examples --json").stdout)
    assert theirs == ours
    copied = place / "copied"
    assert run(base, place, "echelon examples -o copied").returncode == 0
    for listed in ours:
        assert (copied / listed["file"]).read_bytes() == (ROOT / listed["file"]).read_bytes()
    assert any("mn --custom" in listed["about"] for listed in ours)
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "p4src").rglob("*.p4")}
    assert sources
    assert sources <= {listed["file"] for listed in ours}


def every_command(
    base: Installed, place: Path, arguments: Sequence[Sequence[str]]
) -> list[tuple[int, str, str]]:
    """Run lists of arguments of `echelon` in the environment, which imports the CLI once."""
    done = subprocess.run(
        [base.home / "bin" / "python", ROOT / "tests/echelon/cli/every_command.py", "open"],
        cwd=place,
        env={**environment(), "ECHELON_URL": f"unix:{place}/nobody"},
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return [(status, out, err) for status, out, err in json.loads(done.stdout)]


def test_every_command_that_needs_an_extra_says_which(base: Installed, place: Path) -> None:
    for name, text in FILES.items():
        (place / name).write_text(text, encoding="utf-8")
    generate = (
        "echelon traffic generate long --load 1Mbit/s --duration 1s --src a --dst b -o flows.csv"
    )
    assert run(base, place, generate).returncode == 0
    uses = {}
    for name in leaves():
        if name in NEEDS:
            command, extra = NEEDS[name]
            uses[name] = shlex.split(command), extra
    assert set(NEEDS) <= set(uses)
    ended = every_command(base, place, [arguments for arguments, _ in uses.values()])
    for (name, (_, extra)), (status, out, err) in zip(uses.items(), ended, strict=True):
        assert (status, out) == (2, ""), (name, err)
        assert re.fullmatch(said(extra), err), (name, err)
    others = {
        name: WITHOUT[name].split() if name in WITHOUT else example_of(name)[len(name.split()) :]
        for name in leaves()
        if name not in uses
    }
    for name, (_, _, err) in zip(
        others,
        every_command(base, place, [[*name.split(), *rest] for name, rest in others.items()]),
        strict=True,
    ):
        assert "Traceback" not in err, (name, err)


def test_with_the_extras_of_the_readme_they_work(base: Installed, wheel: Path, place: Path) -> None:
    extras = readme_extras()
    pip_install(base.home, wheel.parent, f"{wheel}[{','.join(sorted(extras))}]")
    served = [command for command in readme_commands() if runs_on(command)]
    assert served
    for command in served:
        page_is_served(base, place, command)
    for use, extra in (NEEDS[name] for name in ("plot", "show", "traffic show")):
        assert extra in extras
        done = run(base, place, f"echelon {use}")
        assert done.returncode == 0, done.stderr


def page_is_served(base: Installed, place: Path, command: str) -> None:
    name, *arguments = shlex.split(command)
    with subprocess.Popen(
        base.command(name, *arguments),
        cwd=place,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        with urlopen(url, timeout=PATIENCE_S) as answer:
            assert b"<html" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) in (0, 130)
