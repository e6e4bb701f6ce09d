"""Commands of other packages: found by entry point, shown without being imported, imported when
they are called.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from echelon.cli.doors import GROUP, Command, Door
from echelon.model.extras import PLUG_INS

ROOT = Path(__file__).parents[3]
ABSENT = "absent_package.commands:run"


def packaged(directory: Path, entries: str, module: str = "") -> dict[str, str]:
    """Return the environment with a package of such entry points."""
    (directory / "stub-1.dist-info").mkdir()
    (directory / "stub-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: stub\nVersion: 1\n"
    )
    (directory / "stub-1.dist-info" / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}\n")
    (directory / "stub.py").write_text(module)
    return {
        "PYTHONPATH": f"{ROOT / 'controller'}:{directory}",
        "COLUMNS": "100",
        "TERM": "dumb",
        "PATH": "",
    }


def echelon(environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "echelon", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", PLUG_INS[GROUP])
def test_our_own_line_of_help_is_the_first_of_the_command(name: str) -> None:
    [entry] = entry_points(group=GROUP, name=name)
    command = entry.load()
    assert isinstance(command, Command)
    assert Door(name, command).help.split("\n")[0] == command.about


def test_a_command_is_imported_when_it_is_called(tmp_path: Path) -> None:
    module = f"""
from echelon.cli.doors import Command
there = Command("Mine", "Say hello.", "stub:say")
absent = Command("Mine", "Never imported.", "{ABSENT}")
def say(name: str) -> None:
    \"\"\"Say hello.\"\"\"
    print("hello", name)
"""
    environment = packaged(tmp_path, "greet = stub:there\nlater = stub:absent", module)
    status, out, err = echelon(environment, "--help")
    assert (status, err) == (0, "")
    assert "Mine" in out
    assert "Never imported." in out
    assert echelon(environment, "greet", "you") == (0, "hello you\n", "")
    assert "missing argument 'name'" in echelon(environment, "greet")[2]


def test_a_command_may_be_added_to_a_group(tmp_path: Path) -> None:
    module = """
from echelon.cli.doors import COMMANDS, Command
there = Command(COMMANDS, "Say hello.", "stub:say")
def say() -> None:
    print("hello")
"""
    environment = packaged(tmp_path, "job.greet = stub:there\njob.list = stub:there", module)
    assert echelon(environment, "job", "greet") == (0, "hello\n", "")
    assert "greet" in echelon(environment, "job", "--help")[1]
    assert "greet" not in echelon(environment, "--help")[1]
    assert "latest iteration" in echelon(environment, "job", "--help")[1], (
        "the core's own command stays"
    )


def test_a_broken_package_leaves_the_other_commands_whole(tmp_path: Path) -> None:
    environment = packaged(tmp_path, f"broken = {ABSENT}\nrun = stub:run", "def run(): ...")
    status, out, _ = echelon(environment, "--help")
    assert status == 0
    assert "cannot be loaded" in out
    assert "Run a scenario" in out, "no package takes the name of a command of the core"


@pytest.mark.parametrize(
    ("words", "name", "extra"),
    [
        (["run", "s.yaml", "-o", "out"], "run", "lab"),
        (["traffic", "send"], "traffic", "lab"),
        (["evaluate", "-o", "out"], "evaluate", "lab"),
        (["job", "new", "vgg-16"], "job new", "lab"),
    ],
)
def test_what_is_not_installed_says_where_it_comes_from(
    words: list[str], name: str, extra: str, tmp_path: Path
) -> None:
    hidden = (
        "import importlib.metadata as m; m.entry_points = lambda **_: []; from echelon.cli import"
        " main; main()"
    )
    command = [sys.executable, "-c", hidden, *words]
    done = subprocess.run(
        command, env=packaged(tmp_path, ""), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"'{name}'" in done.stderr
    assert f"pip install 'echelon-p4[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1
