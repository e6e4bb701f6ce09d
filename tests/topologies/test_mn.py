"""The files in topologies/ with Debian's `mn`, as users run it, in a sandbox with a /tmp of its
own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.pages import blocks
from tests.faults import mentions
from tests.needs import needs

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0
CALLER = (
    "import sys; from echelon_lab.hosts.sandbox import run_inside;"
    " sys.exit(run_inside(sys.argv[1:], ['/tmp']))"
)

pytestmark = needs("mn", "a checkout outside /tmp")


def mn(*arguments: str, after: str = "true") -> subprocess.CompletedProcess[str]:
    """Run `mn` in Debian's Python; then `after`, a shell command in the same namespaces."""
    script = f'mn "$@"; status=$?; {after}; exit $status'
    return subprocess.run(
        [sys.executable, "-c", CALLER, "sh", "-c", script, "mn", *arguments],
        cwd=ROOT,
        env={**os.environ, "ECHELON_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def topologies() -> list[str]:
    return sorted(
        path.stem for path in (ROOT / "topologies").glob("*.py") if path.stem != "on_mininet"
    )


def test_pingall_with_everything_by_default() -> None:
    """Nothing is left: no interface, no process but this shell and its queries, no file in /tmp."""
    census = (
        "echo left: $(ip -brief link | cut -d' ' -f1) $(ls -A /tmp) $(ls /proc | grep -c '^[0-9]')"
    )
    done = mn(
        "--custom",
        "topologies/one_tor.py",
        "--topo",
        "one_tor,3",
        "--test",
        "pingall",
        after=census,
    )
    assert done.returncode == 0
    assert "*** Results: 0% dropped (6/6 received)" in done.stdout + done.stderr
    left = next(line for line in done.stdout.splitlines() if line.startswith("left: "))
    # Processes: the first, the shell, its subshell for each of the substitutions, ls and grep.
    assert left in {f"left: lo {count}" for count in range(4, 7)}


# Up to twenty switches at once: the others want the processors to themselves.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.long if name in ("leaf_spine", "thesis_a") else pytest.mark.quiet,
        )
        for name in topologies()
    ],
)
def test_every_topology(name: str) -> None:
    size = {
        "leaf_spine": "leaf_spine,2,2,2,2",
        "rail_optimised": "rail_optimised,2,2",
        "dumbbell": "dumbbell,2",
    }
    done = mn(
        "--custom", f"topologies/{name}.py", "--topo", size.get(name, name), "--test", "pingall"
    )
    assert "*** Results: 0% dropped" in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.bmv2
@needs("bmv2")
def test_bmv2() -> None:
    options = ("--switch", "bmv2", "--controller", "echelon,policy=fifo", "--test", "pingall")
    done = mn("--custom", "topologies/leaf_spine.py", "--topo", "leaf_spine,2,2,2", *options)
    assert "*** Results: 0% dropped (12/12 received)" in done.stdout + done.stderr


@pytest.mark.long
def test_mininets_own_topologies() -> None:
    """Mininet's own topologies have hosts with other addresses, and links without a rate."""
    options = ("--switch", "softswitch", "--controller", "echelon", "--mac", "--test", "pingall")
    done = mn("--custom", "topologies/leaf_spine.py", "--topo", "linear,3", *options)
    assert "*** Results: 0% dropped (6/6 received)" in done.stdout + done.stderr


def test_a_mistake_is_one_line() -> None:
    """No exception escapes, about which `mn` would end processes by their names."""
    done = mn("--custom", "topologies/leaf_spine.py", "--topo", "leaf_spine,2,2,2,0")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert mentions(line, "--topo leaf_spine: oversubscription", 0)


@pytest.mark.long
def test_a_controller_that_ends_ends_the_command() -> None:
    options = ("--controller", "echelon,policy=best", "--test", "pingall")
    left = "echo left: $(ip -brief link | cut -d' ' -f1) $(ls -A /tmp)"
    done = mn(
        "--custom", "topologies/leaf_spine.py", "--topo", "leaf_spine,2,1,1", *options, after=left
    )
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert mentions(said, "policy 'best'")
    assert "killall" not in said
    assert done.stdout.splitlines()[-1] == "left: lo"


@pytest.mark.long
@pytest.mark.parametrize(
    "target",
    ["softswitch", pytest.param("bmv2", marks=[pytest.mark.bmv2, needs("bmv2")])],
)
def test_the_session_for_a_class_prints_what_the_teachers_page_says(target: str) -> None:
    """The commands are typed in the order of the page.

    Each line that the page shows is printed by its command.
    """
    page = ROOT / "docs" / "tutorial" / "teacher.md"
    shown = [block for block in blocks(page) if block.title]
    typed = ["tasks", *(str(block.title) for block in shown), "exit"]
    command = f"mn --custom topologies/teaching.py --topo teaching --switch {target}"
    other = re.findall(
        r"^\| `entries leaf1`[^|]*\| (\d+) \| (\d+) \|$", page.read_text(), re.MULTILINE
    )
    assert len(other) == 2
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", CALLER, "sh", "-c", command],
        cwd=ROOT,
        env={**os.environ, "ECHELON_PYTHON": sys.executable},
        input="\n".join(typed) + "\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    print(f"{target}: {time.monotonic() - began:.0f} s")
    assert done.returncode == 0, done.stdout
    _, tasks, *answers, _ = done.stdout.split("mininet> ")
    assert all(tasks.count(f"{number}. ") == 1 for number in range(1, 6))
    for block, answer in zip(shown, answers, strict=True):
        assert "Unknown command" not in answer, answer
        for line in block.text.splitlines():
            for here, there in other if target == "bmv2" and line.startswith("entries ") else ():
                line = re.sub(rf"\b{here} ", f"{there} ", line)
            assert re.search(pattern(line), answer, re.MULTILINE), (
                f"{block.title}: {line}\n{answer}"
            )
    uplinks = re.findall(
        r"^\w+ +(?:allreduce-k1-w1|activation-s1-m1) +h\d > leaf1 > (\w+)", answers[3], re.MULTILINE
    )
    assert len(uplinks) == 3
    assert len(set(uplinks)) <= 2, "two jobs share an uplink"


def pattern(line: str) -> str:
    """Return the pattern of a line of the page, in which `...` is anything and widths of columns
    differ.
    """
    words = [".*".join(map(re.escape, word.split("..."))) for word in line.split()]
    return "^ *" + " +".join(words).replace(" +.*", "(?: +.*)?") + " *$"
