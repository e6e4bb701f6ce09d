"""`echelon traffic`: generate, show and sizes, as commands."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon_lab.traffic.schedule import read_schedule
from tests.faults import mentions

ROOT = Path(__file__).parents[4]
FABRIC = ROOT / "topologies" / "dumbbell_2.yaml"
SMALL = [
    "--load",
    "20Mbit/s",
    "--duration",
    "300 ms",
    "--src",
    "a",
    "--dst",
    "b",
    "--size-scale",
    "0.01",
]


def good(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["traffic", *map(str, arguments)])
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def bad(*arguments: str | Path, status: int = 2) -> str:
    result = CliRunner().invoke(app, ["traffic", *map(str, arguments)], prog_name="echelon")
    assert result.exit_code == status, result.output
    [line] = result.stderr.splitlines()
    return line


def test_a_schedule_is_drawn_shown_and_the_same_for_its_seed(tmp_path: Path) -> None:
    one, two, other = (tmp_path / f"{name}.csv" for name in ("one", "two", "other"))
    said = good("generate", "burst", *SMALL, "--seed", "5", "-o", one)
    assert "240 flows" not in said
    assert f"{one}: 300 flows in 300 ms, offered load" in said
    good("generate", "burst", *SMALL, "--seed", "5", "-o", two)
    good("generate", "burst", *SMALL, "--seed", "6", "-o", other)
    assert one.read_bytes() == two.read_bytes() != other.read_bytes()
    shown = good("show", one)
    schedule = read_schedule(one)
    assert f"flows         {len(schedule.flows)}" in shown
    assert "in bursts     " in shown
    assert "seed          5" in shown
    assert shown.splitlines()[-1].split()[:3] == ["a", "b", "300"]


@pytest.mark.parametrize("model", ["consistent", "burst", "long"])
def test_a_picture_is_drawn_of_each_model(model: str, tmp_path: Path) -> None:
    file, picture = tmp_path / "schedule.csv", tmp_path / "picture.png"
    options = SMALL if model != "long" else SMALL[:-2]
    good("generate", model, *options, "-o", file)
    assert str(picture) in good("show", file, "--png", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_distributions_are_listed_and_shown() -> None:
    listed = good("sizes")
    assert listed.splitlines()[0].split() == [
        "NAME",
        "MEAN",
        "(POINTS)",
        "MEAN",
        "(LINEAR)",
        "MEDIAN",
        "LARGEST",
    ]
    assert listed.splitlines()[-1].split() == [
        "web_search",
        "2.435",
        "MB",
        "1.711",
        "MB",
        "80",
        "kB",
        "30",
        "MB",
    ]
    shown = good("sizes", "cache")
    assert "SIGCOMM 2015" in shown
    assert "48666180      1" in shown


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (
            ["generate", "burst", *SMALL[2:], "--load", "20", "-o", "x.csv"],
            ["--load: '20'", "bit/s"],
        ),
        (
            ["generate", "burst", *SMALL, "--burst", "1", "-o", "x.csv"],
            ["--burst: '1'", "10 ms"],
        ),
        (
            ["generate", "burst", *SMALL, "--gaps", "even", "-o", "x.csv"],
            ["echelon traffic generate burst", "gaps 'even'", "exponential, poisson"],
        ),
        (
            ["generate", "consistent", *SMALL, "--sizes", "wbsearch", "-o", "x.csv"],
            ["wbsearch", "'web_search'"],
        ),
        (
            ["generate", "consistent", *SMALL, "--reading", "cubic", "-o", "x.csv"],
            ["--reading: 'cubic'", "points, linear"],
        ),
        (
            ["generate", "consistent", *SMALL, "--size-scale", "1/0", "-o", "x.csv"],
            ["--size-scale: '1/0'"],
        ),
        (
            ["generate", "consistent", *SMALL, "--size-scale", "-1", "-o", "x.csv"],
            ["--size-scale: -1"],
        ),
        (
            ["generate", "consistent", *SMALL, "--duration", "0", "-o", "x.csv"],
            ["--duration: '0'"],
        ),
        (
            ["generate", "consistent", *SMALL, "-o", "/nonexistent/x.csv"],
            ["/nonexistent/x.csv", os.strerror(errno.ENOENT)],
        ),
        (
            ["generate", "long", *SMALL[:-4], "--dst", "a", "-o", "x.csv"],
            ["echelon traffic generate long", "pair", "source", "destination"],
        ),
        (
            ["generate", "long", *SMALL[:-4], "--dst", "b,c", "-o", "x.csv"],
            ["echelon traffic generate long", "'b,c'"],
        ),
        (
            ["generate", "long", *SMALL[:-4], "--dst", "b\nc", "-o", "x.csv"],
            ["echelon traffic generate long", r"'b\nc'"],
        ),
        (
            ["generate", "consistent", *SMALL, "--size-scale", "1e999999999", "-o", "x.csv"],
            ["--size-scale: '1e999999999'"],
        ),
        (
            ["generate", "consistent", *SMALL, "--size-scale", "1e20", "-o", "x.csv"],
            ["--size-scale", "1000000000000000 bytes"],
        ),
        (["generate", "consistent", *SMALL, "--seed", "-1", "-o", "x.csv"], ["'--seed'", "0"]),
        (
            ["generate", "consistent", *SMALL[2:], "--load", "10000 Gbit/s", "-o", "x.csv"],
            ["echelon traffic generate consistent", "flows", "10000000"],
        ),
        (
            ["generate", "burst", *SMALL[2:], "--load", "10000 Gbit/s", "-o", "x.csv"],
            ["echelon traffic generate burst", "flows", "10000000"],
        ),
        (
            [
                "generate",
                "long",
                *SMALL[2:-2],
                "--load",
                "9 Gbit/s",
                "--piece",
                "1 us",
                "--parallel",
                "60",
                "-o",
                "x.csv",
            ],
            ["echelon traffic generate long", "18000000 flows", "10000000"],
        ),
        (
            ["generate", "steady", *SMALL, "-o", "x.csv"],
            ["echelon traffic generate", "'steady'", "consistent, burst, long"],
        ),
        (
            ["generate", "long", *SMALL, "-o", "x.csv"],
            ["--size-scale", "'long'", "--parallel"],
        ),
        (["show", "/nonexistent.csv"], ["/nonexistent.csv", os.strerror(errno.ENOENT)]),
        (["sizes", "nothing"], ["nothing", "web_search"]),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert mentions(bad(*arguments), *names)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_shown_or_drawn_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "schedule.csv"
    file.write_text(f"# burst_us: {'7' * 5000}\nstart_us,src,dst,bytes\n0,a,b,10\n")
    assert "in bursts" not in good("show", file)
    picture = tmp_path / "picture.docs"
    assert mentions(bad("show", file, "--png", picture), f"--out: {picture}", "'docs'", "png")
    for points in ("10 1e400\n20 1\n", "10 0.5\n20 1e999999999\n", f"10 0.5\n{10**20} 1\n"):
        file.write_text(points)
        assert str(file) in bad("sizes", file)
