"""Distributions of sizes: exact means by both readings, draws against the table, files with
mistakes.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from echelon.model.documents import DocumentError
from echelon.model.errors import Code
from echelon_lab.traffic.sizes import READINGS, SizeDistribution, builtin_sizes, load_sizes
from tests.echelon.lab.traffic.examples import share_up_to
from tests.faults import coded, naming


@pytest.mark.parametrize(("reading", "mean_mb"), [("points", "2.4349"), ("linear", "1.71125")])
def test_web_search_has_the_means_that_its_table_gives_by_hand(reading: str, mean_mb: str) -> None:
    # In MB by hand, the upper point drawn:
    # .15*.01+.05*.02+.1*.03+.1*.05+.13*.08+.07*.2+.1*1+.1*2+.1*5+.07*10+.03*30; with the middles of
    # the steps instead: .15*.005+.05*.015+.1*.025+.1*.04+.13*.065+.07*.14+.1*.6+.1*1.5+.1*3.5+...
    assert load_sizes("web_search", reading).mean_bytes == Fraction(mean_mb) * 10**6


def test_data_mining_has_the_mean_of_the_literature() -> None:
    # 7.41 MB is quoted for packets of 1448 bytes.
    mean = load_sizes("data_mining", "linear").mean_bytes
    assert mean * 1448 / 1460 == pytest.approx(7.41e6, rel=1e-3)


@pytest.mark.parametrize("name", builtin_sizes())
def test_every_table_says_where_it_is_from(name: str) -> None:
    assert "Points: " in load_sizes(name).about
    assert "SIGCOMM" in load_sizes(name).about


def distributions() -> st.SearchStrategy[SizeDistribution]:
    steps = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 100)), min_size=1, max_size=12)

    def build(steps: list[tuple[int, int]], reading: str) -> SizeDistribution:
        sizes, weights = [1], [0]
        for size, weight in steps:
            sizes.append(sizes[-1] + size)
            weights.append(weights[-1] + weight)
        weights[-1] += 1
        points = tuple(
            (size, Fraction(weight, weights[-1]))
            for size, weight in zip(sizes, weights, strict=True)
        )
        return SizeDistribution("drawn", points, reading)

    return st.builds(build, steps, st.sampled_from(sorted(READINGS)))


@given(distributions(), st.floats(0, 1, exclude_max=True))
def test_a_size_is_the_quantile_of_its_share(sizes: SizeDistribution, u: float) -> None:
    size = sizes.quantile(u)
    assert sizes.points[0][0] <= size <= sizes.points[-1][0]
    # Half a byte is what rounding may change.
    assert share_up_to(sizes, size + 0.5) >= u - 1e-9
    assert share_up_to(sizes, size - 0.5 - 1e-6) <= u + 1e-9


@given(distributions())
def test_the_mean_is_what_the_distribution_function_encloses(sizes: SizeDistribution) -> None:
    # E X is the integral of 1 - F: exact for trapezia between the points, taken just after and just
    # before them.
    known = [size for size, _ in sizes.points]
    area = float(known[0])
    for a, b in pairwise(known):
        if b > a:
            area += (b - a) * (
                1 - (share_up_to(sizes, a) + share_up_to(sizes, b - 1e-9 * (b - a))) / 2
            )
    assert float(sizes.mean_bytes) == pytest.approx(area, rel=1e-6)


@pytest.mark.parametrize("name", builtin_sizes())
def test_drawn_points_are_as_frequent_as_the_table_says(name: str) -> None:
    sizes, rng = load_sizes(name), Random(1)
    drawn = [sizes.sample(rng) for _ in range(20_000)]
    chances: dict[int, Fraction] = {}
    below = Fraction(0)
    for size, share in sizes.points:
        chances[size] = chances.get(size, Fraction(0)) + share - below
        below = share
    expected = {size: float(chance) * len(drawn) for size, chance in chances.items() if chance}
    assert set(drawn) <= set(expected)
    observed = [drawn.count(size) for size in expected]
    assert stats.chisquare(observed, list(expected.values())).pvalue > 0.01


@pytest.mark.parametrize("name", builtin_sizes())
def test_sizes_between_points_pass_kolmogorov_and_smirnov(name: str) -> None:
    sizes, rng = load_sizes(name, "linear"), Random(2)
    # Rounding to bytes and the tables' steps are spread by what they took away: then the
    # distribution is continuous.
    uniform = []
    for _ in range(5_000):
        size = sizes.sample(rng)
        low, high = share_up_to(sizes, size - 0.5), share_up_to(sizes, size + 0.5)
        uniform.append(low + (high - low) * rng.random())
    assert stats.kstest(uniform, "uniform").pvalue > 0.01


@given(distributions(), st.fractions(Fraction(1, 1000), 1000))
def test_scaling_scales_every_point(sizes: SizeDistribution, factor: Fraction) -> None:
    scaled = sizes.scaled(factor)
    assert [share for _, share in scaled.points] == [share for _, share in sizes.points]
    for (size, _), (other, _) in zip(sizes.points, scaled.points, strict=True):
        assert other >= 1
        assert abs(other - size * factor) <= max(Fraction(1, 2), 1 - size * factor)


@pytest.mark.parametrize(
    ("text", "code", "path", "names"),
    [
        ("", "empty-document", "", []),
        ("0 0\n10 x\n", "invalid-value", "line 2", ["'10 x'"]),
        ("0 0\n10\n", "invalid-value", "line 2", ["'10'"]),
        ("0 0\n10 1/0\n", "invalid-value", "line 2", ["'10 1/0'"]),
        ("0 0\n10 0.5\n", "invalid-value", "", ["0.5"]),
        ("0 0\n10 0.5\n5 1\n", "invalid-value", "", ["5 1", "10 0.5"]),
        ("0 0\n10 0.5\n15 0.4\n20 1\n", "invalid-value", "", ["15 0.4", "10 0.5"]),
        ("0 0.1\n10 1\n", "too-small", "", ["0 bytes"]),
        ("-5 0\n10 1\n", "out-of-range", "", ["0"]),
        ("0 0\n0 1\n", "too-small", "", ["0"]),
    ],
)
def test_a_mistake_in_a_table_is_told_in_one_line(
    tmp_path: Path, text: str, code: Code, path: str, names: list[str]
) -> None:
    file = tmp_path / "sizes.txt"
    file.write_text(text)
    with pytest.raises(DocumentError, check=coded(code, *names, file=str(file), path=path)):
        load_sizes(file)


def test_percentages_are_shares(tmp_path: Path) -> None:
    file = tmp_path / "percent.txt"
    file.write_text("0 0\n1000 22.5\n2000 100\n")
    sizes = load_sizes(file)
    assert sizes.points == ((0, 0), (1000, Fraction(9, 40)), (2000, 1))
    # By hand: 0.225 of 1000 bytes, 0.775 of 2000.
    assert sizes.mean_bytes == 1775


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    unknown = coded("unknown-name", "'web_search'", file="websearch", path="")
    with pytest.raises(DocumentError, check=unknown):
        load_sizes("websearch")
    with pytest.raises(ValueError, check=naming("'cubic'", "points", "linear")):
        load_sizes("cache", "cubic")
