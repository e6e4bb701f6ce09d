"""A policy that is asked again and again: what one job's coming or going changes, and what it does
not.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.graph import ComputeUnit, Job
from echelon.model.jobs.paradigms.data import all_reduce
from echelon.model.jobs.pipelines import gpipe
from echelon.model.kept import Kept, Roster, replaced, succeed
from echelon.planning.plan import FlowPlan
from echelon.planning.policies import PlanError, make_policy, policy_names
from echelon.planning.policies.base import Policy
from echelon.planning.policies.echelon.policy import _Connected
from echelon.planning.policies.orders import EarliestDeadline, JobFacts
from echelon.planning.policies.spread import _beginnings
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.fixed import Fixed
from tests.drawing import examples
from tests.faults import coded

LEAVES, SPINES = ("l1", "l2"), ("p1", "p2")
HOSTS = {f"h{i}": LEAVES[(i - 1) // 4] for i in range(1, 9)}
SETF = partial(make_policy, "echelon", order="setf")
"""The policy that cuts the levels into one band for each job: a job that comes may move the others'
bands.
"""
COMPARING = {"cassini", "crux", "srpt", "unfair"}
"""The policies that compare jobs with each other: a job that comes or goes may change what the
others have.
"""
UNMOVED = [
    *(partial(make_policy, name) for name in policy_names() if name not in COMPARING),
    partial(make_policy, "cassini", enforce="hosts"),
    partial(make_policy, "echelon", order="normalised"),
]
IN_ORDER = [
    partial(make_policy, "crux"),
    partial(make_policy, "crux", paths="given"),
    partial(make_policy, "unfair"),
    partial(make_policy, "unfair", by="weights"),
]
"""A job is below those that it meets, so a link that is drained may change its queue."""
KEEPING_QUEUES = [
    *UNMOVED,
    partial(make_policy, "cassini", enforce="both"),
    partial(make_policy, "echelon", order="deadline"),
    partial(make_policy, "mltcp", share="weights"),
    partial(make_policy, "srpt"),
    SETF,
]
ALL = [*KEEPING_QUEUES, *IN_ORDER]


def leaf_spine() -> Fabric:
    ends = [(host, 0, leaf, port) for port, (host, leaf) in enumerate(HOSTS.items(), start=1)]
    ends += [
        (leaf, 20 + j, spine, i)
        for i, leaf in enumerate(LEAVES, start=1)
        for j, spine in enumerate(SPINES)
    ]
    return Fabric(
        "leaf-spine",
        {h: Host(h, f"10.0.0.{i}", f"02:00:00:00:00:0{i}") for i, h in enumerate(HOSTS, start=1)},
        {name: Switch(name, i) for i, name in enumerate((*LEAVES, *SPINES), start=1)},
        tuple(CableLink(LinkEnd(a, p), LinkEnd(b, q), 8_000, Fraction(0)) for a, p, b, q in ends),
    )


FABRIC = leaf_spine()


def ring(name: str, workers: list[str], gradient_bytes: int = 1000) -> Job:
    return Job(name, *all_reduce(workers, Fraction(1), gradient_bytes))


def pipeline(name: str, workers: list[str], forward_s: Fraction = Fraction(1)) -> Job:
    stages = len(workers)
    graph = gpipe(workers, 3, [forward_s] * stages, [500] * (stages - 1), [2 * forward_s] * stages)
    return Job(name, *graph)


workers = st.lists(st.sampled_from(sorted(HOSTS)), min_size=2, max_size=4, unique=True)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Job]]:
    """Draw sets of jobs, each with one more or one less than the one before, or one changed."""
    present: dict[str, Job] = {}
    out = []
    for _ in range(draw(st.integers(2, 6))):
        name = draw(st.sampled_from("abcdef"))
        if name in present and draw(st.booleans()):
            del present[name]
        else:
            make = draw(st.sampled_from([ring, pipeline]))
            present[name] = make(name, draw(workers))
        out.append(list(present.values()))
    return out


@settings(max_examples=examples(60), deadline=None)
@given(histories(), st.sampled_from(ALL))
def test_a_plan_does_not_say_less_for_having_been_made_before(
    history: list[list[Job]], make: Callable[[], Policy]
) -> None:
    """The flows are those of the jobs, in their order, on shortest paths, ranked as by a policy
    without a past, except for what balances jobs against each other."""
    policy = make()
    for jobs in history:
        plan = policy.plan(jobs, FABRIC)
        fresh = make().plan(jobs, FABRIC)
        assert [(f.job, f.flow) for f in plan.flows] == [
            (job.name, f.name) for job in jobs for f in job.flows
        ]
        assert dict(plan.by_job) == {
            job.name: tuple(f for f in plan.flows if f.job == job.name) for job in jobs
        }
        assert replace(plan, flows=(), shifts_s={}) == replace(fresh, flows=(), shifts_s={})
        for now, then in zip(plan.flows, fresh.flows, strict=True):
            assert len(now.path) == len(then.path)
            assert (now.path[0], now.path[-1]) == (then.path[0], then.path[-1])
            if isinstance(then.ranking, Deadline):
                assert isinstance(now.ranking, Deadline)
                assert now.ranking.offset_s == then.ranking.offset_s
                assert now.ranking.echelonflow == then.ranking.echelonflow


@pytest.mark.parametrize("name", policy_names())
def test_a_policy_that_nobody_needs_is_gone_at_once(name: str) -> None:
    """It is in no cycle: it holds very many objects, and dry runs copy it.

    So does what it holds of its jobs.
    """
    policy = make_policy(name)
    policy.plan([ring("a", ["h1", "h5"]), ring("b", ["h1", "h6"])], FABRIC)
    gc.disable()
    try:
        twin = deepcopy(policy)
        twin.plan([job := ring("a", ["h2", "h5"])], FABRIC)
        gone = [weakref.ref(twin), weakref.ref(job)]
        del twin, job
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()


@settings(max_examples=examples(60), deadline=None)
@given(histories(), st.sampled_from(UNMOVED))
def test_other_jobs_keep_their_plans_as_objects(
    history: list[list[Job]], make: Callable[[], Policy]
) -> None:
    policy = make()
    before: Mapping[str, tuple[FlowPlan, ...]] = {}
    known: dict[str, Job] = {}
    for jobs in history:
        plan = policy.plan(jobs, FABRIC)
        for job in jobs:
            if known.get(job.name) is job:
                assert plan.by_job[job.name] is before[job.name]
        before, known = plan.by_job, {job.name: job for job in jobs}


@settings(max_examples=examples(60), deadline=None)
@given(histories(), st.sampled_from([*ALL, partial(make_policy, "echelon")]), st.data())
def test_a_list_of_jobs_that_knows_what_changed_is_planned_as_any_other(
    history: list[list[Job]], make: Callable[[], Policy], data: st.DataObject
) -> None:
    """Jobs go and come back, some sets are planned by another policy, or by a copy of this one."""
    by_list, by_roster = make(), make()
    known: Mapping[str, Job] = {}
    for jobs in history:
        present = {job.name: job for job in jobs}
        changed = {name: present[name] for name in replaced(present, known)}
        known = succeed(known, changed, present)
        roster = Roster.of_named(known)
        assert [*roster] == jobs
        match data.draw(st.sampled_from(["plan", "miss", "copy"])):
            case "miss":
                make().plan(roster, FABRIC)
                continue
            case "copy":
                assert deepcopy(by_roster).plan(roster, FABRIC) == deepcopy(by_list).plan(
                    jobs, FABRIC
                )
        plan, planned = by_list.plan(jobs, FABRIC), by_roster.plan(roster, FABRIC)
        assert planned == plan
        assert planned.by_job == plan.by_job
        assert [*planned.by_job] == [*plan.by_job]


@pytest.mark.parametrize("make", KEEPING_QUEUES)
def test_only_what_crosses_a_drained_link_moves(make: Callable[[], Policy]) -> None:
    jobs = [ring(f"j{k}", [f"h{k}", f"h{k + 4}"]) for k in (1, 2, 3, 4)] + [
        ring("within", ["h1", "h2"])
    ]
    policy = make()
    before = policy.plan(jobs, FABRIC)
    drained = FABRIC.without([("l1", "p1")])
    after = policy.plan(jobs, drained)
    crossed = [f.path for f in before.flows if "p1" in f.path]
    assert len(crossed) == sum("p2" in f.path for f in before.flows) == 8
    for was, now in zip(before.flows, after.flows, strict=True):
        assert now.ranking == was.ranking
        assert now.path == tuple("p2" if node == "p1" else node for node in was.path)
    again = policy.plan(jobs, FABRIC.without([]))
    assert [f.path for f in again.flows] == [f.path for f in after.flows], (
        "the links of yesterday are as good"
    )


@pytest.mark.parametrize("make", ALL)
def test_a_refused_plan_leaves_no_trace(make: Callable[[], Policy]) -> None:
    jobs = [ring("a", ["h1", "h5"]), pipeline("b", ["h2", "h6"])]
    policy = make()
    before = policy.plan(jobs, FABRIC)
    with pytest.raises(PlanError, check=coded("unknown-node", "h99", job="c")):
        policy.plan([*jobs, ring("c", ["h1", "h99"])], FABRIC)
    after = policy.plan(jobs, FABRIC)
    assert after == before
    assert all(after.by_job[name] is before.by_job[name] for name in "ab")


def test_a_job_that_takes_no_time_is_named() -> None:
    idle = Job("idle", (ComputeUnit("c", "h1", Fraction(0)),), (), ())
    with pytest.raises(PlanError, check=coded("plan-impossible", job="idle")):
        make_policy("echelon").plan([ring("a", ["h1", "h5"]), idle], FABRIC)


def test_fair_begins_jobs_that_come_one_by_one_at_different_queues() -> None:
    policy = make_policy("fair")
    jobs: list[Job] = []
    first = {}
    for k in range(7):
        jobs.append(ring(f"j{k}", ["h1", "h5"]))
        ranking = policy.plan(jobs, FABRIC).by_job[f"j{k}"][0].ranking
        assert isinstance(ranking, Fixed)
        first[f"j{k}"] = ranking.queue
    assert sorted(first.values()) == list(range(7))
    assert abs(first["j0"] - first["j1"]) == 3


@given(
    st.lists(st.sets(st.sampled_from("abcdefghij"), min_size=1), min_size=1, max_size=8),
    st.integers(2, 8),
)
def test_beginnings_are_spread_and_kept(history: list[set[str]], size: int) -> None:
    known: dict[str, int] = {}
    for present in history:
        jobs = sorted(present)
        now = _beginnings(known, jobs, size)
        assert list(now) == jobs
        assert all(0 <= index < size for index in now.values())
        assert all(now[job] == known[job] for job in jobs if job in known)
        if known.keys().isdisjoint(jobs) and len(jobs) <= size:
            assert len(set(now.values())) == len(jobs)
        # A newcomer shares a beginning only where all are taken.
        fresh = [job for job in jobs if job not in known]
        shared = [job for job in fresh if list(now.values()).count(now[job]) > 1]
        assert not shared or len(set(now.values())) == size
        known = now


def facts(alone_s: Fraction | int) -> JobFacts:
    return JobFacts(Fraction(alone_s), Fraction(1), {})


def test_shared_thresholds_change_only_when_the_typical_job_does() -> None:
    order = EarliestDeadline()
    first = order.levels({"a": facts(8)})["a"]
    assert (
        order.levels({"a": facts(8), "b": facts(12)})["a"] == first
    )  # the median is 10, a quarter more
    assert order.levels({"a": facts(8), "b": facts(13)})["a"] != first
    assert (
        order.levels({"a": facts(9), "b": facts(9)})["a"] != first
    )  # within a quarter of 10.5: as set last
    assert order.levels({"a": facts(8)})["a"] == first  # not within it: set anew
    assert order.levels({}) == {}


def test_what_is_kept_is_made_once_and_forgotten_with_its_job() -> None:
    made = []

    def make(text: str, number: int) -> list[str]:
        made.append((text, number))
        if number < 0:
            raise ValueError("negative")
        return [text] * number

    kept = Kept(make)
    first = kept.update({"a": ("x", 1), "b": ("y", 2)})
    assert first == {"a": ["x"], "b": ["y", "y"]}
    second = kept.update({"b": ("y", 2), "a": ("x", 3)})
    assert list(second) == ["b", "a"]
    assert second["b"] is first["b"]
    assert made == [("x", 1), ("y", 2), ("x", 3)]
    with pytest.raises(ValueError, match="negative"):
        kept.update({"b": ("y", 2), "c": ("z", -1)})
    assert kept.update({"a": ("x", 3)})["a"] is second["a"], "the failed one changed nothing"
    assert kept.update({"b": ("y", 2)})["b"] is not second["b"]


LINK_SETS = [
    frozenset({(link, link + "'") for link in links}) for links in ("", "a", "ab", "c", "cd")
]


@given(
    st.lists(
        st.dictionaries(st.sampled_from("jklmnopq"), st.sampled_from(LINK_SETS)),
        min_size=1,
        max_size=8,
    )
)
def test_jobs_that_share_links_are_found_by_comparing_all(
    history: list[dict[str, frozenset[tuple[str, str]]]],
) -> None:
    connected = _Connected()
    for links in history:
        groups: list[set[str]] = []
        for name, own in links.items():
            together = [group for group in groups if any(own & links[member] for member in group)]
            first = together[0] if together else set()
            if not together:
                groups.append(first)
            first.update({name}, *together)
            groups = [group for group in groups if group is first or group not in together]
        assert [set(group) for group in deepcopy(connected).update(links)] == groups
        assert [set(group) for group in connected.update(links)] == groups


def test_of_columns_only_what_changed_is_looked_at() -> None:
    made = []

    def make(job: str, size: int | None, factor: int) -> list[str]:
        made.append(job)
        return [job] * (size or 0) * factor

    kept = Kept(make)
    jobs = succeed({}, {"a": "x", "b": "y"}, ["a", "b"])
    sizes: Mapping[str, int] = {"b": 1, "elsewhere": 5}
    assert kept.update_columns(jobs, sizes, common=(1,)) == {"a": [], "b": ["y"]}
    more = succeed(jobs, {"c": "z"}, ["c", "b"])
    assert (more.changed, more.removed) == (["c"], ["a"])
    before = kept.update_columns(jobs, sizes, common=(1,))
    after = kept.update_columns(more, sizes, common=(1,))
    assert list(after) == ["c", "b"]
    assert after["b"] is before["b"]
    assert made == ["x", "y", "z"]
    assert kept.update_columns(more, {"b": 2, "c": 1}, common=(1,)) == {"c": ["z"], "b": ["y"] * 2}
    assert kept.update_columns(more, {"b": 2, "c": 1}, common=(2,))["c"] == ["z"] * 2
    # One that misses a set of jobs is not misled by what differs from that.
    jobs_again = succeed(more, {"a": "other"}, ["a", "b"])
    last = succeed(jobs_again, {"d": "w"}, ["a", "b", "d"])
    assert kept.update_columns(last, {}, common=(2,)).keys() == {"a", "b", "d"}
    assert made[-3:] == ["other", "y", "w"]
