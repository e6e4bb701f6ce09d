"""1F1B: as soon as the pipeline is full, every stage alternates one forward pass with one backward pass.

**Schedule** (PipeDream-Flush: Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML '21; Megatron-LM,
Narayanan et al., SC '21, section 2.2.1; the alternation is PipeDream's, SOSP '19, section 3.2). Of p stages, stage s
(from 1) starts with p - s forward passes, then alternates one forward with one backward, and ends with the p - s
backward passes that are left. Both directions take the micro-batches in order, and the iteration ends when the pipeline
is empty. It takes as long as GPipe: if stages are equal, bubbles take (p - 1) / (m + p - 1) of the time. But a stage
keeps the activations of at most p - s + 1 micro-batches instead of all m.

**Arrangement.** What crosses a stage boundary in one direction is an EchelonFlow, as with GPipe. Ideal finish times
assume an infinitely fast network (EchelonFlow, Pan et al., HotNets '22, section 3). A flow is needed when the consumer
starts to compute on it, so the distances are those between the *starts of the consuming units in the schedule itself*,
run with flows that take no time. If all stages are equal, with forward time F and backward time B, the forward flows
into stage s have distances of

* F while the consumer fills the pipeline, p - s times;
* F + B, and once more B for each of the p - s stages after it, where the warm-up ends: the consumer waits for the first
  backward, which comes back from the last stage;
* F + B from there on.

The backward flows have distances of F + B throughout. That is the pace of the last stage; the other stages keep it by
waiting where they have no forward passes left. GPipe's equation 6 counts only the consumer's own work between one flow
and the next. It would leave out this waiting, and call flows late that nobody waits for. If stages are unequal, the
slowest one sets the pace of all.

An iteration is late by no more than the latest of its flows: if every flow finishes within t of the time at which it is
needed, every unit starts within t of its time in the schedule, by induction along it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from echelon.jobs.analysis import earliest_start_s
from echelon.jobs.graph import IterationGraph, Job
from echelon.jobs.pipelines.schedule import Pass, pipeline


def schedule(stage: int, stages: int, micro_batches: int) -> Iterator[Pass]:
    """Yield the passes of `stage` (1..stages) in the order in which it does them."""
    warm_up = min(stages - stage, micro_batches)
    for m in range(1, warm_up + 1):
        yield Pass("forward", stage, m)
    for m in range(1, micro_batches + 1):
        if warm_up + m <= micro_batches:
            yield Pass("forward", stage, warm_up + m)
        yield Pass("backward", stage, m)


def one_f_one_b(
    workers: Sequence[str],
    micro_batches: int,
    forward_s: Sequence[Fraction],
    activation_bytes: Sequence[int],
    backward_s: Sequence[Fraction],
    gradient_bytes: Sequence[int] | None = None,
) -> IterationGraph:
    """Return one iteration of a 1F1B pipeline; the arguments are those of `echelon.jobs.pipelines.gpipe.gpipe`."""
    stages = len(workers)
    passes = [each for s in range(1, stages + 1) for each in schedule(s, stages, micro_batches)]
    gradients = activation_bytes if gradient_bytes is None else gradient_bytes
    block, crossings = pipeline(passes, workers, forward_s, activation_bytes, backward_s, gradients)
    start_s = earliest_start_s(Job("1f1b", *block.graph()), lambda _: Fraction(0))
    return block.graph(
        *(
            crossing.echelonflow(
                start_s[each.consumer.unit] - start_s[crossing.passes[0].consumer.unit] for each in crossing.passes
            )
            for crossing in crossings
        )
    )
