"""1F1B pipeline parallelism: as soon as the pipeline is full, every stage alternates one forward with one backward.

Schedule (PipeDream-Flush: Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML '21; Megatron-LM,
Narayanan et al., SC '21, section 2.2.1; the alternation is PipeDream's, SOSP '19, section 3.2): of p stages, stage s
(from 1) begins with p - s forwards, alternates then one forward with one backward, and ends with the p - s backwards
that are left. Both passes take the micro-batches in order, and the iteration ends when the pipeline is empty. It takes
as long as GPipe, with bubbles of (p - 1) / (m + p - 1) of the time if stages are equal, but a stage keeps the
activations of at most p - s + 1 micro-batches instead of all m.

**Arrangement.** What crosses a stage boundary in one direction is an EchelonFlow, as with GPipe. On an infinitely fast
network, which is what ideal finish times mean (EchelonFlow, Pan et al., HotNets '22, section 3), a flow is needed when
the consumer begins to compute on it, so distances are those between the *starts of the consuming units in the schedule
itself*, run with flows that take no time. With equal stages, of forward time F and backward time B, the forward flows
into stage s have distances of

* F while the consumer fills the pipeline, p - s times;
* F + B, and once more B for each of the p - s stages after it, where the warm-up ends: the consumer waits for the first
  backward, which comes back from the last stage;
* F + B from there on,

and the backward flows F + B throughout: it is the pace of the last stage, which the others keep, waiting where they
have no forwards left. GPipe's eq. (6), the consumer's own work between one flow and the next, would leave out that
waiting and so call flows late that nobody waits for. With unequal stages the slowest sets the pace of all.

An iteration is late by no more than the latest of its flows: if every flow finishes within t of the time at which it is
needed, every unit starts within t of its time in the schedule, by induction along it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from echelon.jobs.analysis import earliest_start_s
from echelon.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.jobs.iteration import IterationGraph


class Pass(NamedTuple):
    """One unit of a stage's schedule."""

    direction: str
    """forward or backward."""
    micro_batch: int
    """Counted from 1."""


def schedule(stage: int, stages: int, micro_batches: int) -> Iterator[Pass]:
    """What `stage` (1..stages) does in an iteration, in order."""
    warm_up = min(stages - stage, micro_batches)
    for m in range(1, warm_up + 1):
        yield Pass("forward", m)
    for m in range(1, micro_batches + 1):
        if warm_up + m <= micro_batches:
            yield Pass("forward", warm_up + m)
        yield Pass("backward", m)


def one_f_one_b(
    workers: Sequence[str],
    micro_batches: int,
    forward_s: Sequence[Fraction],
    activation_bytes: Sequence[int],
    backward_s: Sequence[Fraction],
    gradient_bytes: Sequence[int] | None = None,
) -> IterationGraph:
    """One iteration of a 1F1B pipeline. Arguments and names are those of `echelon.jobs.pipeline.gpipe`."""
    stages = len(workers)
    lasts_s = {"forward": forward_s, "backward": backward_s}
    computes: list[ComputeUnit] = []
    for stage, worker in enumerate(workers, start=1):
        before: tuple[str, ...] = ()
        for direction, m in schedule(stage, stages, micro_batches):
            name = f"{direction}-s{stage}-m{m}"
            needs = (*before, *_received(direction, stage, stages, m))
            computes.append(ComputeUnit(name, worker, lasts_s[direction][stage - 1], needs))
            before = (name,)

    order = range(1, micro_batches + 1)
    forth = {
        f"activation-s{s}": [
            Flow(f"activation-s{s}-m{m}", workers[s - 1], workers[s], activation_bytes[s - 1], (f"forward-s{s}-m{m}",))
            for m in order
        ]
        for s in range(1, stages)
    }
    sizes = activation_bytes if gradient_bytes is None else gradient_bytes
    back = {
        f"gradient-s{s}": [
            Flow(f"gradient-s{s}-m{m}", workers[s - 1], workers[s - 2], sizes[s - 2], (f"backward-s{s}-m{m}",))
            for m in order
        ]
        for s in range(stages, 1, -1)
    }
    crossings = {**forth, **back}
    flows = tuple(flow for crossing in crossings.values() for flow in crossing)
    needed_s = _needed_s(computes, flows)
    echelonflows = tuple(
        EchelonFlow(
            name,
            tuple(flow.name for flow in crossing),
            tuple(needed_s[flow.name] - needed_s[crossing[0].name] for flow in crossing),
        )
        for name, crossing in crossings.items()
    )
    return IterationGraph(tuple(computes), flows, echelonflows)


def _received(direction: str, stage: int, stages: int, micro_batch: int) -> tuple[str, ...]:
    """What a pass needs from its neighbour."""
    if direction == "forward":
        return (f"activation-s{stage - 1}-m{micro_batch}",) if stage > 1 else ()
    return (f"gradient-s{stage + 1}-m{micro_batch}",) if stage < stages else ()


def _needed_s(computes: Sequence[ComputeUnit], flows: Sequence[Flow]) -> dict[str, Fraction]:
    """When the consumer of each flow starts to compute on it, seconds from the iteration's beginning, if flows take no
    time."""
    start_s = earliest_start_s(Job("1f1b", tuple(computes), tuple(flows), ()), lambda _: Fraction(0))
    names = {flow.name for flow in flows}
    return {need: start_s[unit.name] for unit in computes for need in unit.after if need in names}
