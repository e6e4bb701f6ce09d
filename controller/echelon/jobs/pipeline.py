"""GPipe pipeline parallelism: one worker per stage, micro-batches through all stages, then back through all of them.

Schedule: every stage runs the forward pass of all micro-batches in order, then the backward pass of all of them in
reverse order (GPipe, Huang et al., NeurIPS '19, Fig. 2c). The activations that cross one stage boundary in one
iteration form an EchelonFlow, and so do the gradients that cross it the other way (EchelonFlow, Pan et al.,
HotNets '22, section 3 and eq. 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, repeat

from echelon.jobs.graph import ComputeUnit, EchelonFlow, Flow
from echelon.jobs.iteration import IterationGraph


def gpipe(
    workers: Sequence[str],
    micro_batches: int,
    forward_s: Sequence[Fraction],
    activation_bytes: Sequence[int],
    backward_s: Sequence[Fraction] | None = None,
    gradient_bytes: Sequence[int] | None = None,
) -> IterationGraph:
    """One iteration of a GPipe pipeline.

    `workers[s]` runs stage s, in `forward_s[s]` seconds forward and `backward_s[s]` seconds backward per micro-batch.
    `activation_bytes[s]` and `gradient_bytes[s]` cross the boundary between stages s and s+1 per micro-batch. Without
    `backward_s` the iteration is the forward pass alone; `gradient_bytes` defaults to `activation_bytes`.

    Names count stages and micro-batches from 1: computes `forward-s1-m2`, `backward-s1-m2`; flows and EchelonFlows
    `activation-s1-m2` of `activation-s1` (stage 1 to 2), `gradient-s2-m2` of `gradient-s2` (stage 2 to 1).
    """
    stages = len(workers)
    computes: list[ComputeUnit] = []
    flows: list[Flow] = []
    echelonflows: list[EchelonFlow] = []
    order = range(1, micro_batches + 1)

    for stage, worker in enumerate(workers, start=1):
        for m in order:
            needs = [f"forward-s{stage}-m{m - 1}"] * (m > 1) + [f"activation-s{stage - 1}-m{m}"] * (stage > 1)
            computes.append(ComputeUnit(f"forward-s{stage}-m{m}", worker, forward_s[stage - 1], tuple(needs)))
    for stage in range(1, stages):
        crossing = tuple(
            Flow(
                f"activation-s{stage}-m{m}",
                workers[stage - 1],
                workers[stage],
                activation_bytes[stage - 1],
                (f"forward-s{stage}-m{m}",),
            )
            for m in order
        )
        flows += crossing
        echelonflows.append(_staggered(f"activation-s{stage}", crossing, consumer_s=forward_s[stage]))
    if backward_s is None:
        return IterationGraph(tuple(computes), tuple(flows), tuple(echelonflows))

    sizes = activation_bytes if gradient_bytes is None else gradient_bytes
    for stage in range(stages, 0, -1):
        before = f"forward-s{stage}-m{micro_batches}"
        for m in reversed(order):
            needs = [before] + [f"gradient-s{stage + 1}-m{m}"] * (stage < stages)
            before = f"backward-s{stage}-m{m}"
            computes.append(ComputeUnit(before, workers[stage - 1], backward_s[stage - 1], tuple(needs)))
    for stage in range(stages, 1, -1):
        crossing = tuple(
            Flow(
                f"gradient-s{stage}-m{m}",
                workers[stage - 1],
                workers[stage - 2],
                sizes[stage - 2],
                (f"backward-s{stage}-m{m}",),
            )
            for m in reversed(order)
        )
        flows += crossing
        echelonflows.append(_staggered(f"gradient-s{stage}", crossing, consumer_s=backward_s[stage - 2]))
    return IterationGraph(tuple(computes), tuple(flows), tuple(echelonflows))


def _staggered(name: str, flows: Sequence[Flow], consumer_s: Fraction) -> EchelonFlow:
    """HotNets '22 eq. (6): d_0 = r, d_j = d_{j-1} + T, where T is the *consumer's* time for a micro-batch (its
    technical report, S8): what comes before the consumer is done with the last one need not hurry."""
    offsets = accumulate(repeat(consumer_s, len(flows) - 1), initial=Fraction(0))
    return EchelonFlow(name, tuple(flow.name for flow in flows), tuple(offsets))
