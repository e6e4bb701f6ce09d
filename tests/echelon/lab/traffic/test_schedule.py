"""Files of schedules and of outcomes: what is written is read; mistakes come with their line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError
from echelon.model.errors import Code, CodedError
from echelon_lab.traffic.outcome import HEADER, FlowOutcome, read_outcomes, write_outcomes
from echelon_lab.traffic.schedule import (
    PacedFlow,
    Schedule,
    ScheduledFlow,
    burst_share,
    burst_us,
    loads_bps,
    merged,
    pair_loads,
    read_schedule,
    write_schedule,
)
from tests.drawing import examples
from tests.faults import coded

COLUMNS = "start_us,src,dst,bytes\n"
PACED_COLUMNS = "start_us,src,dst,bytes,rate_bps,connection\n"

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,5}", fullmatch=True)


@st.composite
def flows(draw: st.DrawFn) -> ScheduledFlow:
    src = draw(names)
    dst = draw(names.filter(lambda name: name != src))
    start_us, size_bytes = draw(st.integers(0, 10**12)), draw(st.integers(1, 10**15))
    if draw(st.booleans()):
        return ScheduledFlow(start_us, src, dst, size_bytes)
    return PacedFlow(
        start_us, src, dst, size_bytes, draw(st.integers(1, 10**13)), draw(st.integers(0, 9))
    )


about = st.dictionaries(
    st.from_regex(r"[a-z_]{1,9}", fullmatch=True).filter(lambda key: key != "duration_us"),
    st.text("abc :#,=", min_size=1, max_size=9).map(lambda text: " ".join(text.split())),
    max_size=3,
)


@settings(max_examples=examples(40))
@given(st.lists(flows(), max_size=12), st.integers(0, 10**12), about)
def test_what_is_written_is_read(
    drawn: list[ScheduledFlow], duration_us: int, about: dict[str, str]
) -> None:
    schedule = Schedule(tuple(sorted(drawn, key=lambda flow: flow.start_us)), duration_us, about)
    with TemporaryDirectory() as directory:
        path = Path(directory, "schedule.csv")
        write_schedule(schedule, path)
        assert read_schedule(path) == schedule
        assert [entry.name for entry in Path(directory).iterdir()] == ["schedule.csv"]


def test_a_file_written_by_hand_may_be_short_and_unsorted(tmp_path: Path) -> None:
    file = tmp_path / "hand.csv"
    file.write_text("start_us,src,dst,bytes\n20,a,b,5\n\n10,b,a,7\n")
    assert read_schedule(file) == Schedule(
        (ScheduledFlow(10, "b", "a", 7), ScheduledFlow(20, "a", "b", 5)), 21
    )


@pytest.mark.parametrize(
    ("text", "code", "path", "names"),
    [
        ("", "missing-key", "", ["start_us,src,dst,bytes"]),
        ("# model: x\n", "missing-key", "", ["start_us,src,dst,bytes"]),
        ("1,a,b,5\n", "invalid-value", "line 1", ["'1,a,b,5'", "start_us,src,dst,bytes"]),
        (f"# duration_us: soon\n{COLUMNS}", "not-a-number", "duration_us", ["'soon'"]),
        (f"{COLUMNS}1,a,b,5\n1,a,b\n", "wrong-length", "line 3", ["3", "4"]),
        (f"{COLUMNS}1,a,b,5.5\n", "not-a-number", "line 2", ["'5.5'"]),
        (f"{COLUMNS}x,a,b,5\n", "not-a-number", "line 2", ["'x'"]),
        (f"{COLUMNS}1,a,b,{'9' * 5000}\n", "not-a-number", "line 2", ["999"]),
        (f"{COLUMNS}-1,a,b,5\n", "out-of-range", "line 2", ["start_us -1"]),
        (f"{COLUMNS}1,a,b,0\n", "out-of-range", "line 2", ["bytes 0"]),
        (f"{COLUMNS}1,a,a,5\n", "duplicate", "line 2", ["'a'"]),
        (f"{COLUMNS}1,,a,5\n", "not-a-name", "line 2", []),
        (f'{COLUMNS}1,"a,b,5\n', "bad-syntax", "line 2", []),
        (f"{PACED_COLUMNS}1,a,b,5,0,0\n", "out-of-range", "line 2", ["rate_bps 0"]),
        (f"{PACED_COLUMNS}1,a,b,5,9,x\n", "not-a-number", "line 2", ["'x'"]),
    ],
)
def test_a_mistake_is_told_with_its_line(
    tmp_path: Path, text: str, code: Code, path: str, names: list[str]
) -> None:
    file = tmp_path / "schedule.csv"
    file.write_text(text)
    with pytest.raises(DocumentError, check=coded(code, *names, file=str(file), path=path)):
        read_schedule(file)


def test_files_that_cannot_be_are_told(tmp_path: Path) -> None:
    def faulty(code: Code, file: Path) -> Callable[[CodedError], bool]:
        return coded(code, file=str(file), path="")

    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "later").write_bytes(COLUMNS.encode() + b"1,a,b,5\n" * 9999 + b"\xff,a,b,5\n")
    wrong: tuple[tuple[Code, str], ...] = (
        ("unreadable-file", "absent.csv"),
        ("unreadable-file", ""),
        ("not-utf8", "binary"),
        ("not-utf8", "later"),
    )
    for code, name in wrong:
        file = tmp_path / name
        with pytest.raises(DocumentError, check=faulty(code, file)):
            read_schedule(file)
    absent = tmp_path / "no" / "such" / "directory.csv"
    with pytest.raises(DocumentError, check=faulty("unreadable-file", absent)):
        write_schedule(Schedule((), 0), absent)
    with pytest.raises(DocumentError, check=faulty("unreadable-file", tmp_path)):
        write_outcomes((), tmp_path)


def test_a_pipe_or_a_link_is_written_into_not_replaced(tmp_path: Path) -> None:
    schedule = Schedule((ScheduledFlow(10, "b", "a", 7),), 21)
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_schedule(schedule, pipe)
        assert os.read(reader, 4096) == b"# duration_us: 21\nstart_us,src,dst,bytes\n10,b,a,7\n"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    file.touch()
    link.symlink_to(file)
    write_schedule(schedule, link)
    assert link.is_symlink()
    assert read_schedule(file) == schedule


def test_schedules_can_be_put_together() -> None:
    one = Schedule((ScheduledFlow(5, "a", "b", 1), ScheduledFlow(9, "a", "b", 2)), 10)
    two = Schedule((ScheduledFlow(7, "c", "b", 4),), 20)
    both = merged([one, two])
    assert [flow.size_bytes for flow in both.flows] == [1, 4, 2]
    assert (both.duration_us, both.total_bytes) == (20, 7)
    assert both.offered_bps == pytest.approx(7 * 8 / 20e-6)


def test_statistics_of_a_schedule_counted_by_hand() -> None:
    listed = [(0, "a", "b", 30), (99, "a", "b", 10), (100, "a", "c", 40), (1050, "b", "c", 20)]
    schedule = Schedule(tuple(ScheduledFlow(*flow) for flow in listed), 2000, {"burst_us": "100"})
    loads = pair_loads(schedule)
    assert [(load.pair, load.flows, load.total_bytes) for load in loads] == [
        (("a", "b"), 2, 40),
        (("a", "c"), 1, 40),
        (("b", "c"), 1, 20),
    ]
    assert loads[0].offered_bps == pytest.approx(40 * 8 / 2e-3)
    assert burst_us(schedule) == 100
    assert burst_share(schedule, 100) == pytest.approx(0.6)
    assert loads_bps(schedule.flows, 0, 2000, 2) == [80 * 8e3, 20 * 8e3]


outcomes = st.builds(
    FlowOutcome,
    flows(),
    st.integers(0, 10**9).map(lambda ns: ns / 1e9),
    st.none() | st.integers(0, 10**12).map(lambda ns: ns / 1e9),
    st.none() | st.tuples(st.floats(0, 1e6), st.integers(0, 10**15)),
    st.none() | st.sampled_from(["Connection refused", 'a "strange", one']),
)


@settings(max_examples=examples(40))
@given(st.lists(outcomes, max_size=6))
def test_outcomes_are_read_as_they_were_written(written: list[FlowOutcome]) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory, "outcomes.csv")
        write_outcomes(written, path)
        assert read_outcomes(path) == tuple(written)


@pytest.mark.parametrize(
    ("text", "code", "path", "name"),
    [
        (b"", "invalid-value", "line 1", ",".join(HEADER)),
        (b"start_us,src\n", "invalid-value", "line 1", ",".join(HEADER)),
        (",".join(HEADER).encode() + b"\n1,a,b\n", "invalid-value", "line 2", "'1,a,b'"),
        (",".join(HEADER).encode() + b'\n1,"a,b\n', "bad-syntax", "", ""),
        (b"\xff\n", "not-utf8", "", ""),
    ],
)
def test_a_mistake_in_outcomes_is_told_with_its_line(
    tmp_path: Path, text: bytes, code: Code, path: str, name: str
) -> None:
    file = tmp_path / "outcomes.csv"
    file.write_bytes(text)
    with pytest.raises(DocumentError, check=coded(code, name, file=str(file), path=path)):
        read_outcomes(file)
