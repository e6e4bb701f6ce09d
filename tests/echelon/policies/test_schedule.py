"""Rates and ranks turned into queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.planning.allocation import ActiveFlow, Link
from echelon.planning.plan import CONTROL_QUEUE, LEVELS, QueuePlan
from echelon.planning.policies.levels import JOB_QUEUES
from echelon.planning.policies.schedule import HIGHEST_WEIGHT, to_levels, to_schedule
from tests.drawing import examples

PORTS: list[Link] = [("s1", f"h{k}") for k in range(4)]


def fractions(*values: int) -> list[Fraction]:
    return [Fraction(value) for value in values]


def test_each_flow_has_a_queue_weighted_by_its_rate(active: Callable[..., ActiveFlow]) -> None:
    flows = [active(k, (PORTS[0],)) for k in range(3)]
    queues, ports = to_schedule(flows, fractions(100, 200, 300))
    assert len(set(queues.values())) == 3
    schedule = ports[PORTS[0]]
    assert len(schedule) == LEVELS
    assert [schedule[queues["j", f"f{k}"]].weight for k in range(3)] == [341, 682, 1023]
    assert {schedule[queue].level for queue in queues.values()} == {1}
    assert schedule[0].level == 0


def test_six_flows_fit_and_none_is_best_effort_or_control(
    active: Callable[..., ActiveFlow],
) -> None:
    queues, _ = to_schedule([active(k, (PORTS[0],)) for k in range(6)], fractions(*[1] * 6))
    assert sorted(queues.values()) == [1, 2, 3, 4, 5, 6]
    crowded, _ = to_schedule([active(k, (PORTS[0],)) for k in range(7)], fractions(*[1] * 7))
    assert len(set(crowded.values())) == 1


def test_waiting_flows_have_queues_of_their_own_beside_best_effort(
    active: Callable[..., ActiveFlow],
) -> None:
    flows = [
        active(0, (PORTS[0],)),
        active(1, (PORTS[0],), job="waiting"),
        active(2, (PORTS[0],), job="", echelonflow=None),
        active(3, (PORTS[0], PORTS[1]), job="waiting"),
    ]
    queues, ports = to_schedule(flows, fractions(5, 0, 7, 0))
    assert queues["", "f2"] == 0
    assert (
        len(
            {queues["j", "f0"], queues["waiting", "f1"], queues["waiting", "f3"]}
            - {0, CONTROL_QUEUE}
        )
        == 3
    )
    assert ports[PORTS[0]][queues["waiting", "f1"]] == ports[PORTS[0]][0] == QueuePlan(level=0)
    for port in PORTS[:2]:
        assert ports[port][queues["waiting", "f3"]] == QueuePlan(level=0)
    assert ports[PORTS[0]][queues["j", "f0"]].level == 1


def test_what_finished_flows_left_behind_is_still_served(active: Callable[..., ActiveFlow]) -> None:
    """A queue without flows is neither below nor above those that have flows."""
    _, ports = to_schedule([active(0, (PORTS[0],)), active(1, (PORTS[0],))], fractions(1, 0))
    assert [queue.level for queue in ports[PORTS[0]]] == [0, 1, 0, 1, 1, 1, 1, 2]


def test_a_flow_that_waits_goes_on_in_its_queue(active: Callable[..., ActiveFlow]) -> None:
    """The queue moves down and up, so a flow never leaves behind what it has in the queue."""
    flows = [active(k, (PORTS[0],)) for k in range(2)]
    sending, before = to_schedule(flows, fractions(1, 1))
    waiting, meanwhile = to_schedule(flows, fractions(0, 1), sending)
    again, after = to_schedule(flows, fractions(1, 1), waiting)
    assert sending == waiting == again
    levels = [
        schedule[PORTS[0]][sending["j", "f0"]].level for schedule in (before, meanwhile, after)
    ]
    assert levels == [1, 0, 1]


def test_where_too_many_meet_coflows_share(active: Callable[..., ActiveFlow]) -> None:
    """Eight flows of two coflows at one port have two queues.

    A flow at another port keeps its own.
    """
    flows = [active(k, (PORTS[0],), job=f"j{k % 2}") for k in range(8)] + [
        active(8, (PORTS[1],), job="other")
    ]
    queues, ports = to_schedule(flows, fractions(*[1] * 4, *[2] * 4, 9))
    first = {queues[f"j{k % 2}", f"f{k}"] for k in range(0, 8, 2)}
    second = {queues[f"j{k % 2}", f"f{k}"] for k in range(1, 8, 2)}
    assert len(first) == len(second) == 1
    assert first != second
    assert {ports[PORTS[0]][queue].weight for queue in first | second} == {HIGHEST_WEIGHT}
    assert ports[PORTS[1]][queues["other", "f8"]].weight == HIGHEST_WEIGHT


def test_more_coflows_than_queues_share_those_of_the_fewest_flows(
    active: Callable[..., ActiveFlow],
) -> None:
    """The number of flows counts, not their rates: two flows of j0, which send nothing, are more
    than one that sends a lot.
    """
    jobs = ["j0", "j0", "j1", "j2", "j3", "j4", "j5", "j6", "j7"]
    flows = [active(k, (PORTS[0],), job=job) for k, job in enumerate(jobs)]
    queues, ports = to_schedule(flows, fractions(0, 0, 9, 8, 7, 6, 5, 4, 2))
    of = {job: queues[job, f"f{k}"] for k, job in enumerate(jobs)}
    assert len({of[f"j{k}"] for k in range(6)}) == len(JOB_QUEUES)
    assert of["j0"] not in (of["j6"], of["j7"])
    assert of["j6"] != of["j7"]
    shared = {of["j1"]: 9, of["j2"]: 8, of["j3"]: 7, of["j4"]: 6, of["j5"]: 5}
    shared[of["j6"]] += 4
    shared[of["j7"]] += 2
    most = max(shared.values())
    assert {q: ports[PORTS[0]][q].weight for q in shared} == {
        q: round(Fraction(HIGHEST_WEIGHT * rate, most)) for q, rate in shared.items()
    }


def test_a_flow_keeps_its_queue(active: Callable[..., ActiveFlow]) -> None:
    """The flow keeps it also against one that started earlier but had no queue yet."""
    flows = [active(k, (PORTS[0],)) for k in range(3)]
    queues, _ = to_schedule(flows, fractions(1, 1, 1), {("j", "f1"): 5, ("j", "f2"): 1})
    assert (queues["j", "f1"], queues["j", "f2"]) == (5, 1)
    assert queues["j", "f0"] not in (1, 5)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 11), st.lists(st.integers(0, 3), min_size=12, max_size=12)),
        max_size=25,
    )
)
def test_as_long_as_all_have_a_queue_no_running_flow_changes_it(
    active: Callable[..., ActiveFlow], steps: list[tuple[int, list[int]]]
) -> None:
    """Twelve flows start and finish at one port, at most six at a time, each at first where its
    plan had put it.
    """
    remembered = {("j", f"f{k}"): 1 + k % 6 for k in range(12)}
    running: dict[int, ActiveFlow] = {}
    for sequence, (number, rates) in enumerate(steps):
        before = {("j", f"f{k}"): remembered["j", f"f{k}"] for k in running}
        if number in running:
            del running[number]
            del before["j", f"f{number}"]
        elif len(running) < len(JOB_QUEUES):
            running[number] = replace(active(sequence, (PORTS[0],)), flow=f"f{number}")
        queues, _ = to_schedule(
            list(running.values()), fractions(*(rates[k] for k in running)), remembered
        )
        assert len(set(queues.values())) == len(running)
        assert {key: queues[key] for key in before} == before
        remembered |= queues


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(PORTS), min_size=1, max_size=2, unique=True),
            st.sampled_from([None, "H", "I"]),
            st.integers(0, 4),
            st.integers(0, 4),
        ),
        max_size=16,
    )
)
def test_any_allocation_becomes_a_schedule(
    active: Callable[..., ActiveFlow], shapes: list[tuple[list[Link], str | None, int, int]]
) -> None:
    flows = [
        active(k, tuple(links), echelonflow=held) for k, (links, held, _, _) in enumerate(shapes)
    ]
    rates = fractions(*(rate for _, _, rate, _ in shapes))
    queues, ports = to_schedule(flows, rates)
    assert all(queues[f.job, f.flow] in (JOB_QUEUES if f.echelonflow else [0]) for f in flows)
    assert set(ports) == {link for flow in flows for link in flow.links}
    for link, schedule in ports.items():
        assert len(schedule) == LEVELS
        assert (schedule[0], schedule[CONTROL_QUEUE]) == (QueuePlan(level=0), QueuePlan(level=2))
        load: dict[int, Fraction] = defaultdict(Fraction)
        for flow, rate in zip(flows, rates, strict=True):
            if link in flow.links and flow.echelonflow:
                load[queues[flow.job, flow.flow]] += rate
        most = max(load.values(), default=Fraction(1))
        for queue in JOB_QUEUES:
            assert 1 <= schedule[queue].weight <= HIGHEST_WEIGHT
            # Only what waits by the policy's will is below.
            assert schedule[queue].level == int(queue not in load or load[queue] > 0)
            if load.get(queue):
                assert abs(
                    schedule[queue].weight - HIGHEST_WEIGHT * load[queue] / most
                ) <= Fraction(1, 2)
    other = fractions(*(rate for _, _, _, rate in shapes))
    assert to_schedule(flows, other, queues)[0] == to_schedule(flows, other)[0] == queues


def test_ranks_are_levels(active: Callable[..., ActiveFlow]) -> None:
    """The most urgent of three coflows is at the top of each port where it is, with one queue for
    its flows.
    """
    flows = [
        active(0, (PORTS[0],), job="last"),
        active(1, (PORTS[0],), job="first"),
        active(2, (PORTS[1],), job="first"),
        active(3, (PORTS[0], PORTS[1]), job="second"),
        active(4, (PORTS[0],), job="", echelonflow=None),
    ]
    queues, ports = to_levels(flows, [2, 0, 0, 1, 3])
    assert queues["first", "f1"] == queues["first", "f2"]
    assert queues["", "f4"] == 0
    levels = [
        ports[PORTS[0]][queues[job, flow]].level
        for job, flow in (("first", "f1"), ("second", "f3"))
    ]
    assert levels == [
        ports[PORTS[1]][queues[job, flow]].level
        for job, flow in (("first", "f2"), ("second", "f3"))
    ]
    assert [*levels, ports[PORTS[0]][queues["last", "f0"]].level] == [6, 5, 4]
    assert [ports[PORTS[0]][queue].level for queue in (0, CONTROL_QUEUE)] == [0, 7]


def test_the_least_urgent_share_the_lowest_level(active: Callable[..., ActiveFlow]) -> None:
    flows = [active(k, (PORTS[0],), job=f"j{k}") for k in range(9)]
    queues, ports = to_levels(flows, [8, 7, 6, 5, 4, 3, 2, 1, 0])
    levels = [ports[PORTS[0]][queues[f"j{k}", f"f{k}"]].level for k in range(9)]
    assert levels == [1, 1, 1, 1, 2, 3, 4, 5, 6]


def test_a_change_of_order_changes_levels_and_not_queues(active: Callable[..., ActiveFlow]) -> None:
    flows = [active(k, (PORTS[0],), job=f"j{k}") for k in range(3)]
    before, _ = to_levels(flows, [0, 1, 2])
    after, ports = to_levels(flows, [2, 0, 1], before)
    assert before == after
    assert [ports[PORTS[0]][after[f"j{k}", f"f{k}"]].level for k in range(3)] == [4, 6, 5]
    # A newcomer takes a queue that nobody has, whatever its rank.
    newcomer, ports = to_levels([*flows, active(3, (PORTS[0],), job="j3")], [3, 1, 2, 0], after)
    assert {key: newcomer[key] for key in after} == after
    assert ports[PORTS[0]][newcomer["j3", "f3"]].level == 6
