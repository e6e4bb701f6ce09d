"""The life of a connection as a pure machine: against a model of the world, and case by case."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from echelon.switches.southbound.lifecycle import (
    Answered,
    Backoff,
    Close,
    Closed,
    Event,
    Instruction,
    IntentWanted,
    Lifecycle,
    Lost,
    Open,
    Opened,
    OpenFailed,
    Outranked,
    Ping,
    PortsMoved,
    ReportPrimary,
    Start,
    Stop,
    TermRaised,
    Tick,
    Timing,
    Write,
    WriteFailed,
    Written,
    shared_heartbeat_s,
)
from tests.drawing import examples
from tests.faults import naming

TIMING = Timing()
LONGEST_DELAY_S = max(
    TIMING.unreachable_retry_s, TIMING.failed_retry_s, TIMING.audit_s, TIMING.heartbeat_s
)


class World(RuleBasedStateMachine):
    """The state of the shell, open or under way, and the requests that a machine may make of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.machine = Lifecycle(10, TIMING, random.Random(1))
        self.term = 10
        self.started = self.stopped = False
        self.session = "closed"
        """closed, opening, open, closing."""
        self.writing: Write | None = None
        self.pinging = False
        self.newest: int | None = None
        self.highest_written = -1
        self.done: tuple[int, bool] | None = None
        """The last write of this session: its version, and whether it was carried out."""
        self.good: int | None = None
        """The version that this session has written as a whole, and nothing since."""
        self.higher: int | None = None
        """The id of another controller that was seen above our term."""
        self.reports: list[int] = []

    def feed(self, event: Event) -> None:
        for instruction in self.machine.handle(event, self.now):
            self.obey(instruction)

    def obey(self, instruction: Instruction) -> None:
        if not isinstance(instruction, Close):
            assert self.started
            assert not self.stopped
        match instruction:
            case Open(term):
                assert self.session == "closed"
                assert term == self.term, "the newest term"
                assert self.higher is None, "that would be a fight"
                self.session = "opening"
                self.done = self.good = None
            case Write(version, afresh, audit):
                assert self.session == "open"
                assert self.writing is None, "one at a time"
                assert version == self.newest
                assert version >= self.highest_written
                assert audit == (self.done == (version, True))
                assert afresh or (self.done is not None and self.done[1]), (
                    "what the switch holds is not known"
                )
                self.highest_written = version
                self.writing = instruction
            case Ping():
                assert self.session == "open"
                assert not self.pinging
                self.pinging = True
            case Close():
                assert self.session in ("opening", "open")
                self.session = "closing"
                self.writing, self.pinging, self.good = None, False, None
            case ReportPrimary(primary_id):
                assert primary_id >= self.term
                self.reports.append(primary_id)

    # -- what the owner does -----------------------------------------------------------------------

    @precondition(lambda self: not self.started)
    @rule()
    def start(self) -> None:
        self.started = True
        self.feed(Start())

    @precondition(lambda self: not self.stopped)
    @rule(chance=st.integers(0, 9))
    def stop(self, chance: int) -> None:
        if chance == 0:
            self.feed(Stop())
            self.stopped = True
            assert self.session in ("closed", "closing")

    @rule(step=st.integers(-3, 3))
    def set_intent(self, step: int) -> None:
        version = max(0, (self.newest or 0) + step)
        if self.newest is None or version > self.newest:
            self.newest = version
        self.feed(IntentWanted(version))

    @rule(term=st.integers(5, 60))
    def raise_term(self, term: int) -> None:
        self.term = max(self.term, term)
        if self.higher is not None and self.term > self.higher:
            self.higher = None
        self.feed(TermRaised(term))

    # -- what the world does -----------------------------------------------------------------------

    @rule(share=st.sampled_from([0.0, 0.5, 1.0, 3.0]))
    def time_passes(self, share: float) -> None:
        wait_s = 1.0 if self.machine.wake_at is None else max(0.0, self.machine.wake_at - self.now)
        self.now += share * wait_s
        self.feed(Tick())

    @precondition(lambda self: self.session == "opening")
    @rule(outcome=st.sampled_from(["opened", "opened", "nobody", "refused"]))
    def open_ends(self, outcome: str) -> None:
        if outcome == "opened":
            self.session = "open"
            self.feed(Opened())
        else:
            self.session = "closed"
            self.feed(OpenFailed(outcome, answered=outcome == "refused"))
            assert self.machine.problem == outcome

    @precondition(lambda self: self.session in ("opening", "open"))
    @rule(primary_id=st.integers(0, 60))
    def outranked(self, primary_id: int) -> None:
        before = list(self.reports)
        if primary_id > self.term:
            self.higher = primary_id
        if self.session == "opening":
            self.session = "closed"
        elif self.writing is not None:
            self.writing = None
        self.feed(Outranked(primary_id, "another"))
        if primary_id > self.term:
            assert self.machine.state == "backup"
            assert self.reports in (before, [*before, primary_id])
            assert primary_id in self.reports

    @precondition(lambda self: self.writing is not None)
    @rule(outcome=st.sampled_from(["whole", "whole", "in part", "failed", "lost"]))
    def write_ends(self, outcome: str) -> None:
        assert self.writing is not None
        version, self.writing = self.writing.version, None
        if outcome == "lost":
            self.feed(Lost("gone"))
            return
        self.done = (version, outcome != "failed")
        self.good = version if outcome == "whole" else None
        newest = version == self.newest
        if outcome == "failed":
            self.feed(WriteFailed("what"))
        else:
            self.feed(Written(None if outcome == "whole" else "that"))
        if newest:
            assert self.machine.state == ("ready" if outcome == "whole" else "refused")
            assert (
                self.machine.problem
                == {"whole": None, "in part": "that", "failed": "what"}[outcome]
            )

    @precondition(lambda self: self.pinging)
    @rule(answered=st.booleans())
    def ping_ends(self, answered: bool) -> None:
        self.pinging = False
        self.feed(Answered() if answered else Lost("silent"))

    @rule()
    def lost(self) -> None:
        was_open = self.session == "open"
        self.feed(Lost("broken"))
        if was_open:
            assert self.session == "closing"
            assert (self.machine.state, self.machine.problem) == ("away", "broken")

    @precondition(lambda self: self.session == "closing")
    @rule()
    def close_ends(self) -> None:
        self.session = "closed"
        self.feed(Closed())

    # -- what holds always -------------------------------------------------------------------------

    @invariant()
    def something_follows(self) -> None:
        """Check that an answer or the clock is awaited, unless the owner has to act."""
        if (
            not self.started
            or self.stopped
            or (self.higher is not None and self.session == "closed")
        ):
            assert self.machine.wake_at is None or self.session != "closed"
            return
        answers = self.session in ("opening", "closing") or self.writing is not None or self.pinging
        assert answers or self.machine.wake_at is not None
        if self.machine.wake_at is not None:
            assert self.machine.wake_at - self.now <= LONGEST_DELAY_S
        if self.session == "open" and not self.pinging:
            assert self.machine.wake_at is not None
            assert self.machine.wake_at - self.now <= TIMING.heartbeat_s

    @invariant()
    def states_mean_what_they_say(self) -> None:
        if self.stopped:
            return
        state = self.machine.state
        if state == "ready":
            assert self.session == "open"
            assert self.good is not None
            assert self.good == self.newest
        if state in ("connecting", "away"):
            assert self.session != "open"
        if state == "connecting":
            assert self.machine.session_count == 0
        if self.session == "open":
            assert state in ("writing", "ready", "refused")
        assert (state == "backup") <= (self.session != "open")

    def teardown(self) -> None:
        """Check that the switch of a friendly world comes to the newest intent soon, and that a
        stopped machine has nothing open.
        """
        if self.started and not self.stopped and self.higher is None and self.newest is not None:
            deadline = self.now + TIMING.audit_s
            for _ in range(40):
                if self.machine.state == "ready":
                    break
                if self.session == "opening":
                    self.session = "open"
                    self.feed(Opened())
                elif self.session == "closing":
                    self.close_ends()
                elif self.writing is not None:
                    self.done, self.good, self.writing = (
                        (self.writing.version, True),
                        self.writing.version,
                        None,
                    )
                    self.feed(Written(None))
                elif self.pinging:
                    self.pinging = False
                    self.feed(Answered())
                else:
                    assert self.machine.wake_at is not None
                    self.now = max(self.now, self.machine.wake_at)
                    self.feed(Tick())
            assert self.machine.state == "ready"
            assert self.now <= deadline
            assert self.highest_written == self.newest
        if not self.stopped:
            self.feed(Stop())
            self.stopped = True
        if self.session == "closing":
            self.close_ends()
        assert self.session == "closed"
        assert self.machine.wake_at is None
        self.now += 1e6
        self.feed(Tick())
        assert self.session == "closed"


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


class Highest(random.Random):
    """A source of random numbers that always gives the longest delay."""

    def uniform(self, a: float, b: float) -> float:
        return b


def machine(rng: random.Random | None = None, timing: Timing = TIMING) -> Lifecycle:
    return Lifecycle(10, timing, rng or Highest())


def ready(rng: random.Random | None = None, timing: Timing = TIMING) -> Lifecycle:
    """Return a machine at version 1, at time 0."""
    out = machine(rng, timing)
    assert out.handle(IntentWanted(1), 0) == []
    assert out.handle(Start(), 0) == [Open(10)]
    assert out.handle(Opened(), 0) == [Write(1, afresh=True, audit=False)]
    assert out.state == "writing"
    assert out.handle(Written(None), 0) == []
    assert out.state == "ready"
    return out


def retries(out: Lifecycle, now: float, count: int, answered: bool) -> list[float]:
    """Return the delays of attempts that fail, each as long as possible."""
    delays = []
    for _ in range(count):
        assert out.handle(OpenFailed("no", answered), now) == []
        assert out.wake_at is not None
        delays.append(out.wake_at - now)
        now = out.wake_at
        assert out.handle(Tick(), now) == [Open(10)]
    return delays


def test_a_switch_that_holds_an_intent_holds_the_same_intent_of_a_later_version() -> None:
    out = ready()
    audit_at = out.wake_at
    assert out.handle(IntentWanted(2, same=True), 0.5) == []
    assert (out.state, out.wanted, out.attempted, out.wake_at) == ("ready", 2, 2, audit_at)
    assert out.handle(IntentWanted(3), 0.5) == [Write(3, afresh=False, audit=False)]
    # What is being written is not held yet.
    assert out.handle(IntentWanted(4, same=True), 0.5) == []
    assert (out.state, out.attempted) == ("writing", 2)
    assert out.handle(Written("no room"), 0.5) == [Write(4, afresh=False, audit=False)]
    assert out.handle(Written("no room"), 0.5) == []
    # Nor is what the switch refuses.
    assert out.handle(IntentWanted(5, same=True), 0.5) == [Write(5, afresh=False, audit=False)]


def test_delays_double_up_to_a_cap_and_begin_anew_after_success() -> None:
    out = machine()
    out.handle(IntentWanted(1), 0)
    out.handle(Start(), 0)
    assert retries(out, 0, 7, answered=False) == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.5, 0.5, 0.5])
    assert out.state == "connecting"
    out.handle(Opened(), 100)
    # A session alone is no success: a switch that loses each at once would be asked for ever
    # faster.
    assert out.handle(Lost("gone"), 100) == [Close()]
    assert out.handle(Closed(), 100) == []
    assert out.state == "away"
    assert out.wake_at == 100.5
    assert out.handle(Tick(), 100.5) == [Open(10)]
    out.handle(Opened(), 101)
    out.handle(Written(None), 101)
    out.handle(Lost("gone"), 102)
    assert out.handle(Closed(), 102) == []
    assert out.wake_at == pytest.approx(102.05)


def test_a_switch_that_answers_but_gives_no_session_is_left_in_peace_longer() -> None:
    out = machine()
    out.handle(Start(), 0)
    assert retries(out, 0, 10, answered=True) == pytest.approx(
        [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6]
    )
    # It was switched off and on: once it is there again it is tried soon.
    assert retries(out, 0, 1, answered=False) == pytest.approx([0.05])
    assert retries(out, 0, 2, answered=True) == pytest.approx([0.05, 0.1])


@given(st.floats(0.0, 200.0), st.integers(0, 1 << 30))
def test_a_switch_that_returns_is_tried_within_a_second(outage_s: float, seed: int) -> None:
    out = ready(random.Random(seed))
    out.handle(Lost("gone"), 0)
    now = 0.0
    instructions = out.handle(Closed(), now)
    while True:
        if instructions == [Open(10)]:
            if now >= outage_s:
                break
            instructions = out.handle(OpenFailed("nobody", answered=False), now)
        else:
            assert instructions == []
            assert out.wake_at is not None
            now = max(now, out.wake_at)
            instructions = out.handle(Tick(), now)
    assert now <= outage_s + TIMING.unreachable_retry_s


@given(st.integers(0, 1 << 30), st.integers(0, 12))
def test_jitter_is_between_nothing_and_the_ceiling(seed: int, before: int) -> None:
    backoff = Backoff(0.05, 1.0, random.Random(seed))
    for _ in range(before):
        backoff.next_s()
    assert 0 <= backoff.next_s() <= min(1.0, 0.05 * 2**before)
    backoff.reset()
    assert backoff.next_s() <= 0.05


def test_jitter_differs_from_switch_to_switch() -> None:
    delays = {Backoff(1, 1, random.Random(seed)).next_s() for seed in range(100)}
    assert len(delays) == 100
    assert min(delays) < 0.1
    assert max(delays) > 0.9


def test_what_was_superseded_is_never_written() -> None:
    out = ready()
    assert out.handle(IntentWanted(2), 1) == [Write(2, afresh=False, audit=False), Ping()]
    assert out.handle(IntentWanted(3), 1) == []
    assert out.handle(IntentWanted(5), 1) == []
    assert out.handle(IntentWanted(4), 1) == []
    assert out.handle(Written(None), 1) == [Write(5, afresh=False, audit=False)]
    assert out.state == "writing"
    out.handle(Written(None), 1)
    assert out.state == "ready"


def test_audits_come_in_their_period_and_pings_between() -> None:
    for seed in range(20):
        out = ready(random.Random(seed), replace(TIMING, audit_s=5))
        pings, now = 0, 0.0
        for _ in range(3):
            last_read = now
            while True:
                assert out.wake_at is not None
                now = out.wake_at
                (instruction,) = out.handle(Tick(), now)
                if isinstance(instruction, Write):
                    break
                assert instruction == Ping()
                pings += 1
                assert out.handle(Answered(), now) == []
            assert instruction == Write(1, afresh=True, audit=True)
            assert 4 <= now - last_read <= 5
            assert out.state == "ready", "an audit is not a change"
            out.handle(Written(None), now)
        assert 9 <= pings <= 15


@pytest.mark.parametrize("switches", [1, 100, 300, 1000])
def test_a_service_of_many_switches_pings_no_more_than_one_of_a_hundred(switches: int) -> None:
    period_s = shared_heartbeat_s(switches)
    assert period_s >= TIMING.heartbeat_s
    assert switches / period_s <= 100 / TIMING.heartbeat_s


def test_changes_that_come_all_the_time_do_not_put_off_reading() -> None:
    for seed in range(20):
        out = ready(random.Random(seed), replace(TIMING, audit_s=5))
        reads_s = [0.0]
        for version in range(2, 42):
            now = 0.5 * version
            for instruction in out.handle(IntentWanted(version), now):
                if isinstance(instruction, Write):
                    reads_s += [now] if instruction.afresh else []
                    out.handle(Written(None), now)
                else:
                    out.handle(Answered(), now)
        assert len(reads_s) > 4
        for before, after in itertools.pairwise(reads_s):
            assert after - before <= 5.5


def test_a_sign_of_life_that_ended_with_its_session_is_asked_for_in_the_next() -> None:
    out = ready()
    assert out.handle(Tick(), 1) == [Ping()]
    assert out.handle(Lost("gone"), 1) == [Close()]
    assert out.handle(Closed(), 2) == [Open(10)]
    out.handle(Opened(), 2)
    assert out.wake_at == 3, "also while it is being written to"
    assert out.handle(Tick(), 3) == [Ping()]
    assert out.handle(Lost("silent"), 6) == [Close()]


def test_the_problem_of_a_failed_write_stays_until_one_succeeds() -> None:
    out = ready()
    out.handle(IntentWanted(2), 0.5)
    out.handle(WriteFailed("gNMI is silent"), 0.5)
    out.handle(IntentWanted(3), 0.6)
    assert (out.state, out.problem) == ("writing", "gNMI is silent")
    assert out.handle(WriteFailed("gNMI is silent"), 0.7) == [Close()]
    out.handle(Closed(), 0.7)
    assert out.handle(Tick(), 100) == [Open(10)]
    out.handle(Opened(), 100)
    assert (out.state, out.problem) == ("writing", "gNMI is silent")
    out.handle(Written(None), 100)
    assert (out.state, out.problem) == ("ready", None)


def test_a_refusal_is_tried_again_and_a_failure_soon() -> None:
    out = ready()
    out.handle(IntentWanted(2), 0.5)
    assert out.handle(Written("flow 7"), 0.5) == []
    assert (out.state, out.problem) == ("refused", "flow 7")
    out.handle(IntentWanted(3), 0.5)
    assert (out.state, out.problem) == ("writing", None)
    assert out.handle(WriteFailed("tables cannot be read"), 0.5) == []
    assert (out.state, out.problem) == ("refused", "tables cannot be read")
    assert out.wake_at == pytest.approx(0.55)
    assert out.handle(Tick(), 0.55) == [Write(3, afresh=True, audit=False)]
    # A second time: perhaps it is the session or the pipeline.
    assert out.handle(WriteFailed("tables cannot be read"), 0.55) == [Close()]
    assert out.handle(Closed(), 0.55) == []
    assert out.wake_at == pytest.approx(0.65)
    assert out.handle(Tick(), 0.65) == [Open(10)]
    assert out.state == "refused"
    assert out.handle(Opened(), 0.65) == [Write(3, afresh=True, audit=False)]
    assert out.handle(WriteFailed("tables cannot be read"), 0.65) == []
    assert out.wake_at == pytest.approx(0.85)
    assert out.handle(Tick(), out.wake_at) == [Write(3, afresh=True, audit=False)]
    # Success, and everything begins anew.
    assert out.handle(Written(None), 0.85) == []
    assert (out.state, out.problem) == ("ready", None)
    assert out.handle(IntentWanted(4), 0.9) == [Write(4, afresh=False, audit=False)]
    assert out.handle(WriteFailed("tables cannot be read"), 0.9) == []
    assert out.wake_at == pytest.approx(0.95)


def test_a_newer_controller_is_left_alone_until_the_term_is_above_its() -> None:
    out = ready()
    assert out.handle(Outranked(20, "another"), 1) == [ReportPrimary(20), Close()]
    assert (out.state, out.problem) == ("backup", "another")
    assert out.handle(Closed(), 1) == []
    assert out.wake_at is None
    assert out.handle(IntentWanted(2), 2) == []
    assert out.handle(Tick(), 1e6) == []
    assert out.handle(TermRaised(20), 1e6) == [], "not above"
    assert out.handle(TermRaised(21), 1e6) == [Open(21)]
    assert out.handle(Outranked(30, "a third"), 1e6) == [ReportPrimary(30)]
    assert out.state == "backup"
    assert out.handle(TermRaised(31), 1e6) == [Open(31)]
    assert out.handle(Opened(), 1e6) == [Write(2, afresh=True, audit=False)]


def test_our_own_stream_of_before_is_outwaited_or_outranked() -> None:
    out = ready()
    out.handle(Lost("cut"), 1)
    out.handle(Closed(), 1)
    assert out.handle(Tick(), 2) == [Open(10)]
    assert out.handle(Outranked(10, "in use"), 2) == [ReportPrimary(10)]
    assert out.state == "away"
    assert out.wake_at == pytest.approx(2.05)
    assert out.handle(Tick(), 3) == [Open(10)]
    assert out.handle(Outranked(10, "in use"), 3) == [], "told once"
    assert out.handle(TermRaised(11), 3) == [Open(11)]


def test_an_id_that_nothing_outranks_is_told_and_tried_again() -> None:
    out = ready()
    highest = (1 << 128) - 1
    assert out.handle(Outranked(highest, "another"), 1) == [ReportPrimary(highest), Close()]
    assert out.state == "backup"
    assert "restart the switch" in (out.problem or "")
    out.handle(Closed(), 1)
    assert out.handle(Tick(), 100) == [Open(10)]
    assert out.handle(Outranked(highest, "another"), 100) == [], "told once"
    assert out.state == "backup"
    assert out.handle(Tick(), 200) == [Open(10)]
    out.handle(Opened(), 200)
    assert out.state == "writing"


def test_a_write_refused_for_an_unknown_primary_asks_for_no_higher_term() -> None:
    out = ready()
    out.handle(IntentWanted(2), 0.1)
    assert out.handle(Outranked(0, "not the primary"), 0.1) == [Close()]
    assert out.handle(Closed(), 0.2) == [Open(10)], "to hear who it is"
    assert out.handle(Outranked(20, "another"), 0.2) == [ReportPrimary(20)]


def test_a_term_that_rises_under_an_open_session_leaves_it_open() -> None:
    out = ready()
    assert out.handle(TermRaised(11), 0.1) == []
    assert out.state == "ready"
    out.handle(Lost("gone"), 0.2)
    out.handle(Closed(), 0.2)
    assert out.handle(Tick(), 1) == [Open(11)]


def test_stop_at_any_time() -> None:
    out = machine()
    assert out.handle(Stop(), 0) == []
    assert out.handle(Start(), 0) == []
    out = ready()
    assert out.handle(Stop(), 0) == [Close()]
    assert out.handle(IntentWanted(2), 0) == []
    assert out.handle(Closed(), 0) == []
    assert out.handle(TermRaised(50), 0) == []
    assert out.wake_at is None


def test_answers_to_nothing() -> None:
    for event in (
        Opened(),
        OpenFailed("", answered=True),
        Written(None),
        WriteFailed(""),
        Answered(),
        Closed(),
    ):
        with pytest.raises(ValueError, check=naming(repr(event), "idle")):
            machine().handle(event, 0)


@pytest.mark.parametrize("name", ["first_retry_s", "audit_s", "heartbeat_s"])
def test_times_that_are_none(name: str) -> None:
    with pytest.raises(ValueError, check=naming(name)):
        replace(TIMING, **{name: 0.0})


def written(out: Lifecycle, now: float) -> None:
    """Let the machine order a write, which the switch carries out but for a part."""
    assert any(isinstance(order, Write) for order in out.handle(Tick(), now))
    out.handle(Written("queues of port 3: no"), now)


def opened() -> Lifecycle:
    out = machine()
    out.handle(Start(), 0)
    out.handle(Opened(), 0)
    out.handle(IntentWanted(1), 0)
    return out


def test_what_is_refused_is_tried_again_ever_later_without_another_session() -> None:
    out = opened()
    out.handle(Written("queues of port 3: no"), 0)
    now, pauses = 0.0, []
    for _ in range(6):
        due = out._due_at  # noqa: SLF001
        pauses.append(due - now)
        now = due
        written(out, now)
    for pause, ceiling in zip(pauses, (2, 4, 8, 16, 30, 30), strict=True):
        assert 0.8 * ceiling <= pause <= ceiling
    assert (out.state, out.session_count) == ("refused", 1)


def test_what_is_refused_is_tried_again_when_ports_move() -> None:
    out = opened()
    assert out.handle(PortsMoved(), 0) == [], "it is being written"
    out.handle(Written("queues of port 3: no"), 0)
    (order,) = out.handle(PortsMoved(), 0.5)
    assert isinstance(order, Write)
    assert order.afresh
    out.handle(Written(None), 0.5)
    assert out.handle(PortsMoved(), 0.6) == [], "nothing is refused"


def test_what_is_refused_is_tried_again_soon_when_ports_have_moved_during_a_change() -> None:
    out = opened()
    now = 0.0
    for _ in range(8):
        out.handle(Written("queues of port 3: no"), now)
        now += TIMING.audit_s
        out.handle(Tick(), now)
    out.handle(Written("queues of port 3: no"), now)
    assert out.handle(IntentWanted(2), now) == [Write(2, afresh=False, audit=False)]
    assert out.handle(PortsMoved(), now) == []
    out.handle(Written("queues of port 3: no"), now)
    now += TIMING.refused_retry_s
    assert Write(2, afresh=True, audit=True) in out.handle(Tick(), now)


def test_a_session_that_only_fails_is_replaced_ever_more_rarely() -> None:
    out = opened()
    closed = []
    now = 0.0
    for failure in range(1, 20):
        orders = out.handle(WriteFailed("no"), now)
        if Close() in orders:
            closed.append(failure)
            out.handle(Closed(), now)
            out.handle(Tick(), now + 100)
            orders = out.handle(Opened(), now + 100)
        now += 200
        out.handle(Tick(), now)
        while out._writing is None:  # noqa: SLF001
            now += 100
            out.handle(Answered() if out._pinging else Tick(), now)  # noqa: SLF001
    assert closed == [2, 4, 8, 16]
