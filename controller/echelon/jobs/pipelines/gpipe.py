"""GPipe: all forward passes, then all backward passes.

**Schedule.** Every stage does the forward passes of all micro-batches in order, then the backward passes of all of them
in reverse order (GPipe, Huang et al., NeurIPS '19, Fig. 2c).

**Arrangement.** The activations that cross one stage boundary in one iteration form an EchelonFlow, and so do the
gradients that cross it the other way (EchelonFlow, Pan et al., HotNets '22, section 3). Equation 6 of that paper says
``d_0 = r`` and ``d_j = d_{j-1} + T``, where T is the *consumer's* time for a micro-batch (technical report, S8): what
arrives before the consumer has finished the previous micro-batch need not hurry.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import chain

from echelon.jobs.graph import IterationGraph
from echelon.jobs.pipelines.schedule import Pass, pipeline


def schedule(stages: int, micro_batches: int) -> list[Pass]:
    """Return all passes of an iteration, those of each stage in the order in which it does them."""
    order = range(1, micro_batches + 1)
    forward = (Pass("forward", s, m) for s in range(1, stages + 1) for m in order)
    backward = (Pass("backward", s, m) for s in range(stages, 0, -1) for m in reversed(order))
    return [*chain(forward, backward)]


def gpipe(
    workers: Sequence[str],
    micro_batches: int,
    forward_s: Sequence[Fraction],
    activation_bytes: Sequence[int],
    backward_s: Sequence[Fraction] | None = None,
    gradient_bytes: Sequence[int] | None = None,
) -> IterationGraph:
    """Return one iteration of a GPipe pipeline; `echelon.jobs.pipelines.schedule` says how its steps are named.

    `workers[s]` runs stage s, which takes `forward_s[s]` seconds forward and `backward_s[s]` seconds backward for each
    micro-batch. `activation_bytes[s]` and `gradient_bytes[s]` cross the boundary between stages s and s+1 for each
    micro-batch. Without `backward_s` the iteration is the forward pass alone. `gradient_bytes` defaults to
    `activation_bytes`.
    """
    passes = schedule(len(workers), micro_batches)
    if backward_s is None:
        passes = [each for each in passes if each.direction == "forward"]
    gradients = activation_bytes if gradient_bytes is None else gradient_bytes
    block, crossings = pipeline(passes, workers, forward_s, activation_bytes, backward_s or (), gradients)
    consumer_s = {"forward": forward_s, "backward": backward_s or ()}
    return block.graph(
        *(
            crossing.echelonflow(
                place * consumer_s[each.direction][each.consumer.stage - 1]
                for place, each in enumerate(crossing.passes)
            )
            for crossing in crossings
        )
    )
