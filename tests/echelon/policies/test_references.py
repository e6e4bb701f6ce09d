"""The reference times that deadlines count from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from random import Random
from statistics import fmean

from hypothesis import given
from hypothesis import strategies as st

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.analysis import with_profile_error
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.allocation import ActiveFlow
from echelon.planning.execution import AloneRecord, duration_s
from echelon.planning.fluid import alone_iteration_s, run_alone, simulate
from echelon.planning.paths import FlowPaths, Paths
from echelon.planning.policies import make_policy
from echelon.planning.policies.references import Due, Dues, References
from echelon.planning.rankings.deadline import Deadline
from echelon_lab.scenarios.scenario import load_scenario

SCENARIOS = Path(__file__).parents[3] / "topologies" / "scenarios"
ONE = Fraction(1)
UP = (("h1", "s1"), ("s1", "h2"))


def two_hops(name: str = "job") -> Job:
    """Return two micro-batches through three stages; every compute unit takes 1 s, every flow 2 s
    on the star.

    Alone the flows of the first hop start at 1 and 2 s and end at 3 and 5 s, those of the second
    start at 4 and 6 s.
    """
    computes = [ComputeUnit("c1.1", "h1", ONE), ComputeUnit("c1.2", "h1", ONE, ("c1.1",))]
    computes += [
        ComputeUnit(f"c2.{m}", "h2", ONE, (f"a{m}",) + (("c2.1",) if m == 2 else ()))
        for m in (1, 2)
    ]
    computes += [
        ComputeUnit(f"c3.{m}", "h3", ONE, (f"b{m}",) + (("c3.1",) if m == 2 else ()))
        for m in (1, 2)
    ]
    flows = [Flow(f"a{m}", "h1", "h2", 2000, (f"c1.{m}",)) for m in (1, 2)]
    flows += [Flow(f"b{m}", "h2", "h3", 2000, (f"c2.{m}",)) for m in (1, 2)]
    offsets = (Fraction(0), ONE)
    # Listed against the order in which they start.
    echelonflows = (
        EchelonFlow("B", ("b1", "b2"), offsets),
        EchelonFlow("A", ("a1", "a2"), offsets),
    )
    return Job(name, tuple(computes), tuple(flows), echelonflows)


def planned(job: Job, fabric: Fabric) -> dict[str, Due]:
    out = {}
    for flow in make_policy("echelon").plan([job], fabric).flows:
        assert isinstance(flow.ranking, Deadline)
        out[flow.flow] = Due(flow.ranking.echelonflow, flow.ranking.offset_s)
    return out


def test_all_hops_count_from_the_first(star: Callable[..., Fabric]) -> None:
    """The second hop, alone, begins 3 s after the first.

    Its flows then start 2 s apart, but are due 1 s apart, as arranged.
    """
    assert planned(two_hops(), star(3)) == {
        "a1": Due("A", Fraction(0)),
        "a2": Due("A", Fraction(1)),
        "b1": Due("A", Fraction(3)),
        "b2": Due("A", Fraction(4)),
    }


def test_a_wrong_profile_moves_later_hops(star: Callable[..., Fabric]) -> None:
    """The profile has 1.2 s for each second: between the hops are one such unit and 2 s of sending,
    which needs no profile.
    """
    believed = with_profile_error(two_hops(), Fraction(1, 5))
    assert planned(believed, star(3)) == {
        "a1": Due("A", Fraction(0)),
        "a2": Due("A", Fraction(6, 5)),
        "b1": Due("A", Fraction(16, 5)),
        "b2": Due("A", Fraction(22, 5)),
    }


def test_a_single_echelonflow_counts_from_its_own_beginning(star: Callable[..., Fabric]) -> None:
    """The second flow is due 2 s after the first by its arrangement, though it starts only 5 s
    after it.
    """
    computes = (ComputeUnit("c1", "h1", ONE), ComputeUnit("c2", "h1", Fraction(5), ("c1",)))
    flows = (Flow("f1", "h1", "h2", 1000, ("c1",)), Flow("f2", "h1", "h2", 1000, ("c2",)))
    job = Job("job", computes, flows, (EchelonFlow("H", ("f1", "f2"), (Fraction(0), Fraction(2))),))
    assert planned(job, star(2)) == {"f1": Due("H", Fraction(0)), "f2": Due("H", Fraction(2))}


def test_flows_that_start_together_keep_their_arrangement(star: Callable[..., Fabric]) -> None:
    """The flows are sent ahead of their consumer, so they are due when it needs them."""
    names = ("f1", "f2", "f3")
    flows = tuple(Flow(name, "h1", "h2", 1000, ("c",)) for name in names)
    held = EchelonFlow("H", names, (Fraction(0), Fraction(2), Fraction(7)))
    job = Job("job", (ComputeUnit("c", "h1", ONE),), flows, (held,))
    assert planned(job, star(2)) == {
        "f1": Due("H", Fraction(0)),
        "f2": Due("H", Fraction(2)),
        "f3": Due("H", Fraction(7)),
    }


def test_the_order_inside_an_echelonflow_is_the_arrangement(star: Callable[..., Fabric]) -> None:
    """The flow needed first starts last: it must not be due after the other, and it goes first once
    it is there.
    """
    computes = (ComputeUnit("slow", "h1", Fraction(4)), ComputeUnit("fast", "h1", ONE))
    flows = (
        Flow("needed", "h1", "h2", 1000, ("slow",)),
        Flow("later", "h1", "h2", 9000, ("fast",)),
    )
    job = Job("job", computes, flows, (EchelonFlow("H", ("needed", "later"), (Fraction(0), ONE)),))
    due = planned(job, star(2))
    assert due["needed"].offset_s <= due["later"].offset_s
    record = (
        simulate([job], star(2), make_policy("echelon"), 1, ideal=True).jobs["job"].iterations[0]
    )
    assert (record.flows["needed"].finish, record.flows["later"].finish) == (5, 11)


def dues_of(
    references: References,
    job: Job,
    alone: AloneRecord,
    paths: Paths,
    fabric: Fabric,
) -> Mapping[str, Dues]:
    return references.plan({"j": job}, {"j": alone}, {"j": paths}, fabric.capacity_Bps)


def ready(star: Callable[..., Fabric]) -> References:
    """Return references that know two flows: H's, and one that is due 3 s later."""
    computes = (ComputeUnit("c", "h1", ONE), ComputeUnit("d", "h1", Fraction(4)))
    flows = (Flow("f0", "h1", "h2", 1000, ("c",)), Flow("f1", "h1", "h2", 1000, ("d",)))
    held = (EchelonFlow("H", ("f0",), (Fraction(0),)), EchelonFlow("I", ("f1",), (Fraction(0),)))
    job = Job("j", computes, flows, held)
    reference, fabric = References(), star(2)
    paths = FlowPaths().update([job], fabric)["j"]
    # The second flow ends the iteration at 5 s; the first may end at the same time.
    assert dues_of(reference, job, run_alone(job, fabric), paths, fabric) == {
        "j": {
            "f0": Due("H", Fraction(0), latest_s=Fraction(4)),
            "f1": Due("H", Fraction(3), latest_s=Fraction(4)),
        }
    }
    return reference


@given(st.integers(0, 10**6))
def test_the_latest_finish_leaves_time_for_the_longest_path_behind(seed: int) -> None:
    """Paths are enumerated here, one by one."""
    random = Random(seed)
    steps: list[ComputeUnit | Flow] = [ComputeUnit("c0", "h1", ONE)]
    for number in range(1, random.randint(3, 9)):
        after = tuple({random.choice(steps).name for _ in range(2)})
        if random.random() < 0.5:
            steps.append(ComputeUnit(f"c{number}", "h1", Fraction(random.randint(1, 9)), after))
        else:
            steps.append(Flow(f"f{number}", "h1", "h2", 1000 * random.randint(1, 9), after))
    steps.append(Flow("last", "h1", "h2", 1000, (steps[-1].name,)))
    own_s = {
        s.name: s.duration_s if isinstance(s, ComputeUnit) else Fraction(s.size_bytes, 1000)
        for s in steps
    }

    def longest_s(name: str) -> Fraction:
        return max(
            (own_s[s.name] + longest_s(s.name) for s in steps if name in s.after),
            default=Fraction(0),
        )

    flows = tuple(s for s in steps if isinstance(s, Flow))
    held = EchelonFlow.coflow("H", [flow.name for flow in flows])
    job = Job("j", tuple(s for s in steps if isinstance(s, ComputeUnit)), flows, (held,))
    fabric = two_hosts()
    alone = run_alone(job, fabric)
    paths = FlowPaths().update([job], fabric)["j"]
    due = dues_of(References(), job, alone, paths, fabric)["j"]
    for flow in flows:
        assert due[flow.name].latest_s == duration_s(alone) - alone.references["H"] - longest_s(
            flow.name
        )


def two_hosts() -> Fabric:
    """Return two hosts at a switch, with links of 1000 bytes a second."""
    hosts = {
        name: Host(name, f"10.0.0.{n}", f"02:00:00:00:00:0{n}")
        for n, name in enumerate(("h1", "h2"), start=1)
    }
    cables = [
        CableLink(LinkEnd(host, 0), LinkEnd("s1", n), 8000, Fraction(0))
        for n, host in enumerate(hosts)
    ]
    return Fabric("two", hosts, {"s1": Switch("s1", 1)}, tuple(cables))


def test_lost_time_is_not_forgotten(
    star: Callable[..., Fabric], active: Callable[..., ActiveFlow]
) -> None:
    reference = ready(star)
    assert reference.deadlines_s([active(0, UP, start_s=Fraction(10))]) == [10]
    late = [active(1, UP, start_s=Fraction(20), deadline_s=Fraction(20))]
    assert reference.deadlines_s(late) == [13]


def test_without_the_first_flow_its_start_is_inferred(
    star: Callable[..., Fabric], active: Callable[..., ActiveFlow]
) -> None:
    """The reference is inferred as by a switch that never sees the first flow; an iteration's
    beginning stays once it is known.
    """
    reference = ready(star)
    assert reference.deadlines_s([active(1, UP, start_s=Fraction(20))]) == [20]
    assert reference.deadlines_s([active(0, UP, start_s=Fraction(30))]) == [17]


def test_each_iteration_begins_anew(
    star: Callable[..., Fabric], active: Callable[..., ActiveFlow]
) -> None:
    reference = ready(star)
    first = active(0, UP, start_s=Fraction(10))
    second = active(0, UP, start_s=Fraction(100), iteration=2)
    assert reference.deadlines_s([first]) == [10]
    assert reference.deadlines_s([second]) == [100]
    assert reference.deadlines_s([active(1, UP, start_s=Fraction(105), iteration=2)]) == [103]


def test_a_new_plan_forgets_the_run_before(star: Callable[..., Fabric]) -> None:
    policy = make_policy("echelon")
    runs = [simulate([two_hops()], star(3), policy, 3, ideal=True).jobs for _ in range(2)]
    assert runs[0] == runs[1]


def test_a_pipeline_is_not_starved_by_jobs_of_one_large_flow() -> None:
    """The mean and the worst job of the leaf-spine scenario are better than under fair sharing."""
    scenario = load_scenario(SCENARIOS / "shared_link.yaml")

    def slowdowns(policy: str) -> list[float]:
        result = simulate(
            scenario.jobs, scenario.fabric, make_policy(policy), scenario.iterations, ideal=True
        )
        return [
            fmean(map(float, result.iteration_times_s(job.name)))
            / float(alone_iteration_s(job, scenario.fabric))
            for job in scenario.jobs
        ]

    fair, ours = slowdowns("fair"), slowdowns("echelon")
    assert max(ours) < max(fair)
    assert fmean(ours) < fmean(fair)
