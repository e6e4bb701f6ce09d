"""Numbers of jobs that come and go, against a model that knows only what was promised."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from echelon.switches.lowering.numbering import (
    ExhaustedError,
    JobNumbers,
    Numbering,
    NumberKind,
    Pool,
)
from tests.drawing import examples
from tests.faults import coded, naming

SWITCHES = ("s1", "s2")
JOBS = ("a", "b", "c", "d")
LIMITS = {
    NumberKind.FLOW: 12,
    NumberKind.PAIR: 4,
    NumberKind.ECHELONFLOW: 6,
    NumberKind.PROFILE: 3,
    NumberKind.CONNECTION: 6,
    NumberKind.JOB: 3,
}
PROFILES = (((0, 9, 1),), ((0, 4, 1), (5, 9, 2)), ((0, 9, 7),))

Part = tuple[NumberKind, object]
Wanted = Mapping[str, frozenset[Part]]
"""The numbers that a job asks for at each switch."""

parts = st.one_of(
    st.tuples(st.just(NumberKind.FLOW), st.sampled_from(["f1", "f2", "f3", "f4", "f5"])),
    st.tuples(
        st.just(NumberKind.PAIR), st.sampled_from([("h1", "h2", hop) for hop in ("s2", "s3")])
    ),
    st.tuples(st.just(NumberKind.ECHELONFLOW), st.sampled_from(["h1", "h2"])),
    st.tuples(st.just(NumberKind.PROFILE), st.sampled_from(PROFILES)),
    st.tuples(
        st.just(NumberKind.CONNECTION),
        st.sampled_from([("tcp", "10.0.0.1", "10.0.0.2", 1, p) for p in (1, 2, 3)]),
    ),
    st.tuples(st.just(NumberKind.JOB), st.just("")),
)
wanted = st.dictionaries(st.sampled_from(SWITCHES), st.frozensets(parts, min_size=1, max_size=7))


def ask(numbers: JobNumbers, part: Part) -> int:
    kind, key = part
    ways = {
        NumberKind.FLOW: numbers.flow,
        NumberKind.PAIR: numbers.pair,
        NumberKind.ECHELONFLOW: numbers.echelonflow,
        NumberKind.PROFILE: numbers.profile,
        NumberKind.CONNECTION: numbers.connection,
    }
    return ways[kind](key) if kind in ways else numbers.register()  # type: ignore[operator]


class Jobs(RuleBasedStateMachine):
    """`live`: what each job has now; `kept`: what was given up, by version, and not yet
    acknowledged.
    """

    @initialize()
    def begin(self) -> None:
        self.numbering = Numbering(dict.fromkeys(SWITCHES, LIMITS))
        self.version = 0
        self.live: dict[tuple[str, str], dict[Part, int]] = {}
        self.kept: dict[tuple[str, str], dict[Part, tuple[int, int]]] = {}
        self.stored: dict[str, str] = {}

    def change(self, job: str, want: Wanted) -> None:
        """Make one attempt in which `job` asks for `want`."""
        before = {job: self.numbering.export(job) for job in JOBS}
        self.version += 1
        got: dict[tuple[str, str], dict[Part, int]] = {}
        try:
            with self.numbering.attempt(self.version) as attempt:
                for switch in SWITCHES:
                    numbers = attempt.numbers(switch, job)
                    for part in sorted(want.get(switch, ()), key=repr):
                        got.setdefault((switch, job), {})[part] = ask(numbers, part)
        except ExhaustedError as error:
            self.check_full(str(error), job, want)
            unchanged = {job: self.numbering.export(job) for job in JOBS} == before
            assert unchanged
            return
        for switch in SWITCHES:
            key = (switch, job)
            had, has = self.live.pop(key, {}), got.get(key, {})
            kept = self.kept.setdefault(key, {})
            for part, number in has.items():
                if part in had:
                    assert number == had[part], "a number moved"
                if part in kept:
                    assert number == kept.pop(part)[0], (
                        "what was kept back for it was not given again"
                    )
            kept |= {
                part: (number, self.version) for part, number in had.items() if part not in has
            }
            if has:
                self.live[key] = has

    def check_full(self, message: str, job: str, want: Wanted) -> None:
        """Check that it is refused only if the present and the new parts together need more numbers
        than there are.
        """
        switch, kind = re.match(
            rf"job {job}: switch (\w+): more than \d+ ([\w ]+?)( \(|;)", message
        ).group(1, 2)  # type: ignore[union-attr]
        own = {**self.live.get((switch, job), {}), **self.kept.get((switch, job), {})}
        new = [part for part in want[switch] if part[0] == kind and part not in own]
        assert len(self.taken(switch, NumberKind(kind))) + len(new) > LIMITS[NumberKind(kind)]

    def taken(self, switch: str, kind: NumberKind) -> set[int]:
        of_live = {
            n
            for (s, _), held in self.live.items()
            for (k, _), n in held.items()
            if (s, k) == (switch, kind)
        }
        return of_live | {
            n
            for (s, _), kept in self.kept.items()
            for (k, _), (n, _) in kept.items()
            if (s, k) == (switch, kind)
        }

    @rule(job=st.sampled_from(JOBS), want=wanted)
    def come_or_change(self, job: str, want: Wanted) -> None:
        self.change(job, want)

    @rule(job=st.sampled_from(JOBS))
    def go(self, job: str) -> None:
        self.change(job, {})

    @rule(job=st.sampled_from(JOBS), want=wanted)
    def fail(self, job: str, want: Wanted) -> None:
        before = {job: self.numbering.export(job) for job in JOBS}
        with (
            suppress(RuntimeError, ExhaustedError),
            self.numbering.attempt(self.version + 1) as attempt,
        ):
            for switch, of_switch in want.items():
                numbers = attempt.numbers(switch, job)
                for part in sorted(of_switch, key=repr):
                    ask(numbers, part)
            raise RuntimeError
        assert {job: self.numbering.export(job) for job in JOBS} == before

    @rule(switch=st.sampled_from(SWITCHES), back=st.integers(0, 3))
    def settle(self, switch: str, back: int) -> None:
        version = self.version - back
        holding = {job for _, job in self.live} | {
            job for (_, job), kept in self.kept.items() if kept
        }
        for (at, _), kept in self.kept.items():
            if at == switch:
                for part in [part for part, (_, since) in kept.items() if since <= version]:
                    del kept[part]
        left = {job for _, job in self.live} | {job for (_, job), kept in self.kept.items() if kept}
        assert self.numbering.settle(switch, version) == holding - left

    @rule()
    def store_what_changed(self) -> None:
        for job in self.numbering.take_changed():
            document = self.numbering.export(job)
            if document:
                self.stored[job] = json.dumps(document)
            else:
                self.stored.pop(job, None)
        assert self.stored == {
            job: json.dumps(self.numbering.export(job)) for job in self.numbering.jobs
        }

    @precondition(lambda self: self.version > 0)
    @rule()
    def restart(self) -> None:
        """Let another controller read what was stored; its versions begin anew."""
        self.store_what_changed()
        again = Numbering(dict.fromkeys(SWITCHES, LIMITS))
        again.restore({job: json.loads(text) for job, text in self.stored.items()})
        assert {job: again.export(job) for job in again.jobs} == {
            j: json.loads(t) for j, t in self.stored.items()
        }
        assert again.take_changed() == frozenset()
        self.numbering = again
        self.version = 1
        with again.attempt(self.version) as attempt:
            for (switch, job), held in self.live.items():
                numbers = attempt.numbers(switch, job)
                assert {part: ask(numbers, part) for part in held} == held
        self.kept = {
            key: {part: (number, 0) for part, (number, _) in kept.items()}
            for key, kept in self.kept.items()
        }

    @invariant()
    def no_number_is_of_two(self) -> None:
        for switch in SWITCHES:
            owners: dict[tuple[NumberKind, int], object] = {}
            held = [
                (job, part, n)
                for (s, job), has in self.live.items()
                if s == switch
                for part, n in has.items()
            ]
            held += [
                (j, p, n)
                for (s, j), kept in self.kept.items()
                if s == switch
                for p, (n, _) in kept.items()
            ]
            for job, part, number in held:
                kind, key = part
                owner = key if kind is NumberKind.PROFILE else (job, key)
                assert owners.setdefault((kind, number), owner) == owner
                assert 0 <= number < LIMITS[kind]

    @invariant()
    def what_holds_numbers_is_known(self) -> None:
        holding = {job for _, job in self.live} | {
            job for (_, job), kept in self.kept.items() if kept
        }
        assert self.numbering.jobs == holding


TestJobs = Jobs.TestCase
TestJobs.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


def flows_of(
    numbering: Numbering, version: int, job: str, names: list[str], switch: str = "s1"
) -> list[int]:
    with numbering.attempt(version) as attempt:
        numbers = attempt.numbers(switch, job)
        return [numbers.flow(name) for name in names]


def test_a_number_comes_back_as_late_as_possible() -> None:
    numbering = Numbering({"s1": LIMITS})
    assert flows_of(numbering, 1, "a", ["x", "y", "z"]) == [0, 1, 2]
    assert flows_of(numbering, 2, "b", ["x"]) == [3]
    assert flows_of(numbering, 3, "a", ["z"]) == [2]
    numbering.settle("s1", 3)
    assert flows_of(numbering, 4, "c", [f"f{k}" for k in range(8)]) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert flows_of(numbering, 5, "b", []) == []
    numbering.settle("s1", 5)
    assert flows_of(numbering, 6, "d", ["x", "y", "z"]) == [0, 1, 3]


def test_a_number_is_not_handed_on_before_the_switch_has_acknowledged() -> None:
    numbering = Numbering({"s1": LIMITS})
    flows_of(numbering, 1, "a", [f"f{i}" for i in range(12)])
    flows_of(numbering, 2, "a", ["f0"])
    flows_of(numbering, 3, "a", [])
    assert numbering.settle("s1", 1) == frozenset()
    with pytest.raises(ExhaustedError):
        flows_of(numbering, 4, "b", ["x"])
    assert numbering.settle("s1", 2) == frozenset()
    assert flows_of(numbering, 4, "b", ["x"]) == [1]
    assert numbering.settle("s1", 3) == {"a"}


def test_a_full_switch_says_what_is_being_removed() -> None:
    numbering = Numbering({"s1": LIMITS})
    flows_of(numbering, 1, "a", [f"f{i}" for i in range(12)])
    with pytest.raises(
        ExhaustedError, check=coded("numbers-exhausted", "job b", "switch s1", "12 flows")
    ):
        flows_of(numbering, 2, "b", ["x"])
    flows_of(numbering, 2, "a", ["f0"])
    with pytest.raises(
        ExhaustedError, check=coded("numbers-exhausted", "job b", "switch s1", "12 flows", "11")
    ):
        flows_of(numbering, 3, "b", ["x"])
    numbering.settle("s1", 2)
    assert flows_of(numbering, 3, "b", ["x"]) == [1]


def test_numbers_at_a_switch_that_is_no_more_are_forgotten() -> None:
    before = Numbering({"s1": LIMITS, "s2": LIMITS})
    flows_of(before, 1, "a", ["x"], "s1")
    flows_of(before, 2, "a", ["x"], "s2")
    flows_of(before, 3, "b", ["x"], "s2")
    after = Numbering({"s1": LIMITS})
    after.restore({job: before.export(job) for job in before.jobs})
    assert after.jobs == {"a"}
    assert after.take_changed() == {"a", "b"}


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ({"FLOW": {"keys": ["x"], "at": {"s1": [[0, 99, 1]]}}}, ["99", "12"]),
        ({"FLOW": {"keys": ["x"], "at": {"s1": [[1, 0, 1]]}}}, []),
        ({"FLOW": {"keys": ["x", "y"], "at": {"s1": [[0, 1, 1], [1, 1, 1]]}}}, ["1"]),
        ({"FLOW": {"keys": ["x", "x"], "at": {"s1": [[0, 0, 2]]}}}, ["'x'", "s1"]),
        ({"COLOUR": {"keys": ["x"], "at": {"s1": [[0, 0, 1]]}}}, ["'COLOUR'"]),
        ({"FLOW": {"keys": [None], "at": {"s1": [[0, 0, 1]]}}}, ["None"]),
        ({"FLOW": 3}, []),
        ({"FLOW": {"keys": ["x"], "at": {"s1": [["0", 0, 1]]}}}, []),
        ({"FLOW": {"keys": ["x"], "at": {"s1": [[0, -1, 1]]}}}, ["-1", "12"]),
    ],
)
def test_a_spoilt_document_is_refused_with_the_name_of_the_job(
    document: dict[str, object], names: list[str]
) -> None:
    with pytest.raises(ValueError, check=naming("job a", *names)):
        Numbering({"s1": LIMITS}).restore({"a": document})


def test_two_jobs_cannot_be_stored_with_one_number() -> None:
    one = {"FLOW": {"keys": ["x"], "at": {"s1": [[0, 0, 1]]}}}
    with pytest.raises(ValueError, check=naming("job b", "number 0")):
        Numbering({"s1": LIMITS}).restore({"a": one, "b": one})


def test_a_pool_has_the_numbers_below_its_limit() -> None:
    pool = Pool(3)
    pool.claim(0)
    pool.claim(2)
    assert pool.take() == 1
    for number in (-1, 3):
        with pytest.raises(ValueError, check=naming(f"number {number}", 3)):
            pool.claim(number)
    with pytest.raises(ExhaustedError):
        pool.take()


def test_a_pool_gives_what_was_free_for_longest() -> None:
    pool = Pool(6, first=1)
    assert pool.take() == 1
    pool.claim(4)
    assert pool.take() == 5
    pool.free(1)
    assert [pool.take() for _ in range(3)] == [2, 3, 1]
    with pytest.raises(ExhaustedError):
        pool.take()
    with pytest.raises(ValueError, check=naming("number 5", 6)):
        pool.claim(5)
    assert len(pool) == 5
    pool.free(4)
    pool.free(2)
    assert pool.take() == 4
    pool.undo(4)
    assert [pool.take(), pool.take()] == [4, 2]


def test_what_was_undone_was_never_taken() -> None:
    numbering = Numbering({"s1": LIMITS})
    for _ in range(3):
        with suppress(RuntimeError), numbering.attempt(1) as attempt:
            assert [attempt.numbers("s1", "a").flow(name) for name in "xyz"] == [0, 1, 2]
            raise RuntimeError
    assert flows_of(numbering, 1, "b", ["x"]) == [0]
