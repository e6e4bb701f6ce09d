"""topologies/: fabric files are what `echelon fabric` writes, and read back as what they were
written from.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import LineCollection

from echelon.model.documents import parse_document
from echelon.model.fabric.builders import dragonfly, leaf_spine, line
from echelon.model.fabric.load import (
    FabricSpec,
    HostSpec,
    SwitchSpec,
    build_fabric,
    fabric_text,
    load_fabric,
    load_fabric_spec,
)
from echelon_lab.plots.fabric import draw_fabric
from echelon_lab.plots.style import Style
from tests.faults import mentions

TOPOLOGIES = Path(__file__).parents[2] / "topologies"

COMMANDS: dict[str, Sequence[str]] = {
    "one_tor.yaml": ("one-tor",),
    "one_tor_10.yaml": ("one-tor", "--servers", "10", "--rate", "1 Gbit/s"),
    "thesis_a.yaml": ("thesis-a",),
    "thesis_b.yaml": ("thesis-b",),
    "dumbbell_2.yaml": ("dumbbell", "--pairs", "2"),
    "dumbbell_4.yaml": ("dumbbell", "--pairs", "4"),
    "dumbbell_6.yaml": ("dumbbell", "--pairs", "6"),
    "line_2.yaml": ("line", "--switches", "2"),
    "line_3.yaml": ("line", "--switches", "3"),
    "line_4.yaml": ("line", "--switches", "4"),
    "leaf_spine_4_2.yaml": (
        "leaf-spine",
        "--leaves",
        "4",
        "--spines",
        "2",
        "--oversubscription",
        "2",
    ),
    "fat_tree_4.yaml": ("fat-tree",),
    "rail_optimised_4_4.yaml": (
        "rail-optimised",
        "--servers",
        "4",
        "--rails",
        "4",
        "--spines",
        "2",
    ),
}
BY_HAND = {"dumbbell_3_50.yaml", "leaf_spine.yaml"}


def fabric_command(*arguments: str) -> tuple[int, str, str]:
    """Return the status, output and errors of `echelon fabric`, in this process."""
    from typer.testing import CliRunner

    from echelon.cli import app

    done = CliRunner().invoke(app, ["fabric", *arguments], prog_name="echelon")
    return done.exit_code, done.stdout, done.stderr


def test_every_fabric_file_is_accounted_for() -> None:
    assert {path.name for path in TOPOLOGIES.glob("*.yaml")} == COMMANDS.keys() | BY_HAND


@pytest.mark.parametrize("name", COMMANDS)
def test_a_committed_file_is_what_the_command_writes(name: str, tmp_path: Path) -> None:
    assert fabric_command(*COMMANDS[name], "-o", str(tmp_path / name)) == (0, "", "")
    assert (tmp_path / name).read_text() == (TOPOLOGIES / name).read_text()
    load_fabric(tmp_path / name)


@pytest.mark.parametrize(
    ("arguments", "place", "names"),
    [
        (("leaf-spine", "--leaves", "0"), "leaves: ", [0, 1]),
        (("leaf-spine", "--oversubscription", "much"), "--oversubscription: ", ["'much'"]),
        (("leaf-spine", "--oversubscription", "1/0"), "--oversubscription: ", ["'1/0'"]),
        (("dumbbell", "--nic-rate", "fast"), "--nic-rate: ", ["'fast'"]),
        (("line", "--delay", "1"), "--delay: ", ["'1'", "10 ms"]),
        (
            ("line", "--leaves", "2"),
            "--leaves: ",
            ["fabric line", "--switches, --rate, --nic-rate"],
        ),
        (("leafspine",), "echelon fabric: ", ["'leafspine'", "'leaf-spine'"]),
        (
            ("one-tor", "-o", "/no/such/directory/file"),
            "--out: /no/such/directory/file: ",
            [os.strerror(errno.ENOENT)],
        ),
    ],
)
def test_bad_input_is_one_line(
    arguments: Sequence[str], place: str, names: Sequence[object]
) -> None:
    status, output, errors = fabric_command(*arguments)
    assert (status, output) == (2, "")
    assert errors.startswith(place)
    assert mentions(errors, *names)
    assert errors.count("\n") == 1


def test_the_command_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "echelon", "fabric", "dumbbell", "--pairs", "2"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, (TOPOLOGIES / "dumbbell_2.yaml").read_text())


@given(
    st.integers(2, 12),
    st.lists(st.integers(1, 10**13), min_size=2, max_size=2),
    st.integers(0, 10**10),
    st.booleans(),
)
@settings(deadline=None, max_examples=20)
def test_what_is_written_is_read_again(
    switches: int, rates: list[int], delay_ns: int, fixed: bool
) -> None:
    spec = line(switches, rates[0], rates[1], Fraction(delay_ns, 10**9))
    if fixed:
        spec = spec.model_copy(
            update={
                "hosts": {
                    h: HostSpec(ipv4=f"192.168.7.{n + 1}", mac=f"12:34:56:00:00:{n:02x}")
                    for n, h in enumerate(spec.hosts)
                },
                "switches": {s: SwitchSpec(device_id=100 + n) for n, s in enumerate(spec.switches)},
                "links": tuple(
                    link.model_copy(update={"ports": {link.between[-1]: 50 + n}})
                    for n, link in enumerate(spec.links)
                ),
            }
        )
    import yaml

    again = parse_document(FabricSpec, yaml.safe_load(fabric_text(spec, "A line.")), "line")
    assert build_fabric(again) == build_fabric(spec)


def test_the_comment_is_folded() -> None:
    text = fabric_text(load_fabric_spec(TOPOLOGIES / "line_2.yaml"), "word " * 100)
    assert max(map(len, text.splitlines())) <= 120
    assert text.startswith("# word word")


SHAPES = (
    "one-tor",
    "dumbbell",
    "line",
    "leaf-spine",
    "fat-tree",
    "clos",
    "dragonfly",
    "torus",
    "rail",
    "multi-rail",
)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_has_as_many_hosts_as_are_asked_for(shape: str, tmp_path: Path) -> None:
    status, text, errors = fabric_command(
        shape, "--hosts", "16", "--draw", str(tmp_path / "fabric.png")
    )
    assert (status, errors) == (0, "")
    (tmp_path / "fabric.yaml").write_text(text)
    assert len(load_fabric(tmp_path / "fabric.yaml").hosts) == 16
    assert (tmp_path / "fabric.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("fat-tree", "--hosts", "20"),
            "--hosts: a fat tree has 2, 16, 54, 128, 250, 432, 686, 1024... hosts",
        ),
        (
            ("leaf-spine", "--hosts", "17"),
            "--hosts: 17 is not a multiple of 4 (give 20, or change --hosts-per-leaf)",
        ),
        (
            ("torus", "--hosts", "16", "--sides", "4x4"),
            "--hosts: does not go with --sides (give one of them)",
        ),
        (("thesis-a", "--hosts", "16"), "--hosts: fabric thesis-a has four hosts (leave it out)"),
        (("torus", "--sides", "4x"), "--sides: '4x' are not sides (write 4x4, or 4x4x2)"),
        (("leaf-spine", "--draw", "fabric.jpg"), "--out: fabric.jpg: the format 'jpg' is unknown"),
    ],
)
def test_hosts_that_a_shape_cannot_have(arguments: tuple[str, ...], said: str) -> None:
    status, _, errors = fabric_command(*arguments)
    assert status == 2
    assert errors.startswith(said)
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("leaf-spine --hosts 4", "# 2 leaves with 2 hosts each and 2 spines;"),
        ("leaf-spine --hosts 2 --spines 1", "# 2 leaves with 1 host each and 1 spine;"),
        (
            "leaf-spine --hosts 4 --hosts-per-leaf 4 --spines 1",
            "# 1 leaf with 4 hosts each and 1 spine;",
        ),
        ("clos --hosts 8", "# 2 pods of 2 leaves, with 2 hosts each,"),
        (
            "dragonfly --hosts 8",
            "# A dragonfly (Kim et al., ISCA '08): 2 groups of 4 switches, 1 host at each.",
        ),
        ("rail --hosts 4", "# 2 servers with 2 NICs each, at 2 rails,"),
    ],
)
def test_few_hosts_are_still_at_two_places(arguments: str, said: str) -> None:
    status, text, _ = fabric_command(*arguments.split())
    assert status == 0
    assert text.startswith(said)


def test_a_picture_has_every_link_once_and_a_colour_for_each_rate() -> None:
    fabric = build_fabric(dragonfly())
    [axis] = draw_fabric(fabric, Style()).axes
    assert sum(
        len(of.get_segments()) for of in axis.collections if isinstance(of, LineCollection)
    ) == len(fabric.cables)
    leaves = build_fabric(leaf_spine(4, 2, oversubscription=4))
    drawn = [
        of
        for of in draw_fabric(leaves, Style()).axes[0].collections
        if isinstance(of, LineCollection)
    ]
    assert (
        len({tuple(of.get_colors()[0]) for of in drawn})
        == len({cable.rate_bps for cable in leaves.cables})
        == 2
    )
