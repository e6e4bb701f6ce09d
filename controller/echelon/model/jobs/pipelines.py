"""Pipeline parallelism: the schedules of micro-batches, and the graphs that follow."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from echelon.model.jobs.analysis import earliest_start_s
from echelon.model.jobs.combinators import Block, collective, compute, flow, parallel, series
from echelon.model.jobs.graph import EchelonFlow, IterationGraph, Job

StageTimes = Sequence[Fraction]
"""The seconds of each stage."""
StageSizes = Sequence[int]
"""The bytes that cross each boundary between stages."""


class Pass(NamedTuple):
    """One compute unit of a schedule. Stages and micro-batches count from 1.

    Every stage is one worker. A schedule is the order in which each stage does its passes, forward
    or backward, one for each micro-batch. Everything else is the same for all schedules: a forward
    pass needs the activation that the stage before sends when it has done the same micro-batch; a
    backward pass needs the gradient that the stage after it sends.

    Names count stages and micro-batches from 1: compute units `forward-s1-m2`, `backward-s1-m2`;
    flows `activation-s1-m2` (stage 1 to 2) and `gradient-s2-m2` (stage 2 to 1).
    """

    direction: Literal["forward", "backward", "weights"]
    """`weights` is the part of a backward pass that computes the gradients of weights, which no
    other stage needs. Only zero-bubble schedules take it on its own."""
    stage: int
    micro_batch: int

    @property
    def unit(self) -> str:
        """Return the name of the compute unit."""
        return f"{self.direction}-s{self.stage}-m{self.micro_batch}"

    @property
    def consumer(self) -> Pass:
        """Return the pass of the neighbouring stage that needs this result.

        There may be no such stage.
        """
        step = 1 if self.direction == "forward" else -1
        return Pass(self.direction, self.stage + step, self.micro_batch)


@dataclass(frozen=True, slots=True)
class Crossing:
    """The transfers across one stage boundary in one direction in an iteration: one EchelonFlow."""

    name: str
    """``activation-s1``: from stage 1 to 2; ``gradient-s2``: from stage 2 to 1."""
    passes: tuple[Pass, ...]
    """The passes that produce the flows, in the order in which the sender does them."""

    def flow(self, produced_by: Pass) -> str:
        """Return the name of the flow that a pass produces."""
        return f"{self.name}-m{produced_by.micro_batch}"

    def echelonflow(self, offsets_s: Iterable[Fraction]) -> EchelonFlow:
        """Return the EchelonFlow with these ideal finish times, seconds after that of the first."""
        flows = tuple(self.flow(each) for each in self.passes)
        return EchelonFlow(self.name, flows, tuple(offsets_s))


def pipeline(
    passes: Sequence[Pass],
    workers: Sequence[str],
    forward_s: StageTimes,
    activation_bytes: StageSizes,
    backward_s: StageTimes = (),
    gradient_bytes: StageSizes = (),
) -> tuple[Block, list[Crossing]]:
    """Return one iteration in which each stage does its passes in the order of `passes`.

    The other arguments are those of `gpipe`. Crossings are listed from the first boundary
    to the last and back.
    """
    lasts_s = {"forward": forward_s, "backward": backward_s}
    sizes_bytes = {"forward": activation_bytes, "backward": gradient_bytes}
    crossings = _crossings(passes, len(workers))
    units: dict[Pass, Block] = {}
    for each in passes:
        worker = workers[each.stage - 1]
        duration_s = lasts_s[each.direction][each.stage - 1]
        units[each] = compute(each.unit, worker, duration_s, each.direction, each.micro_batch)
    sent: dict[Pass, Block] = {}
    for crossing in crossings:
        for each in crossing.passes:
            src = workers[each.stage - 1]
            dst = workers[each.consumer.stage - 1]
            boundary = min(each.stage, each.consumer.stage) - 1
            size_bytes = sizes_bytes[each.direction][boundary]
            sent[each] = flow(crossing.flow(each), src, dst, size_bytes, each.micro_batch)
    return connected(units, sent, lambda each: each.stage), crossings


def connected(
    units: Mapping[Pass, Block],
    sent: Mapping[Pass, Block],
    lane_of: Callable[[Pass], Hashable],
    followers: Mapping[Pass, Sequence[Block]] | None = None,
) -> Block:
    """Return passes and what they send, connected by order and by dependencies.

    The passes of a lane (`lane_of`) follow each other as listed, each with its `followers` behind
    it. A micro-batch passes through the stages in each direction; `sent` holds what a pass sends to
    the next, if anything.
    """
    lanes: dict[Hashable, list[Block]] = {}
    for each, unit in units.items():
        lane = lanes.setdefault(lane_of(each), [])
        lane.append(unit)
        if followers is not None:
            lane += followers.get(each, ())
    # The way of each micro-batch through the stages, in each direction.
    paths: dict[tuple[str, int], list[Block]] = {}
    for each in sorted(units, key=_stages_passed):
        path = paths.setdefault((each.direction, each.micro_batch), [])
        path.append(units[each])
        if each in sent:
            path.append(sent[each])
    rows = [series(*row) for row in lanes.values()]
    rows += [series(*row) for row in paths.values()]
    return parallel(*units.values(), *sent.values(), *rows)


def _stages_passed(each: Pass) -> int:
    if each.direction == "forward":
        return each.stage
    return -each.stage


def _crossings(passes: Sequence[Pass], stages: int) -> list[Crossing]:
    names = [f"activation-s{stage}" for stage in range(1, stages)]
    names += [f"gradient-s{stage}" for stage in range(stages, 1, -1)]
    produced: dict[str, list[Pass]] = {name: [] for name in names}
    for each in passes:
        if 1 <= each.consumer.stage <= stages:
            kind = "activation" if each.direction == "forward" else "gradient"
            produced[f"{kind}-s{each.stage}"].append(each)
    return [Crossing(name, tuple(crossing)) for name, crossing in produced.items() if crossing]


def gpipe_passes(stages: int, micro_batches: int) -> list[Pass]:
    """Return all passes of an iteration, those of each stage in the order in which it does them.

    **Schedule.** Every stage does the forward passes of all micro-batches in order, then the
    backward passes of all of them in reverse order (GPipe, Huang et al., NeurIPS '19, Fig. 2c).

    **Arrangement.** The activations that cross one stage boundary in one iteration form an
    EchelonFlow, and so do the gradients that cross it the other way (EchelonFlow, Pan et al.,
    HotNets '22, section 3). Equation 6 of that paper says ``d_0 = r`` and ``d_j = d_{j-1} + T``,
    where T is the *consumer's* time for a micro-batch (technical report, S8): what arrives before
    the consumer has finished the previous micro-batch need not hurry.
    """
    order = range(1, micro_batches + 1)
    passes: list[Pass] = []
    for stage in range(1, stages + 1):
        passes += [Pass("forward", stage, micro_batch) for micro_batch in order]
    for stage in range(stages, 0, -1):
        passes += [Pass("backward", stage, micro_batch) for micro_batch in reversed(order)]
    return passes


def gpipe(
    workers: Sequence[str],
    micro_batches: int,
    forward_s: StageTimes,
    activation_bytes: StageSizes,
    backward_s: StageTimes | None = None,
    gradient_bytes: StageSizes | None = None,
) -> IterationGraph:
    """Return one iteration of a GPipe pipeline; `Pass` says how its steps are named.

    `workers[s]` runs stage s, which takes `forward_s[s]` seconds forward and `backward_s[s]`
    seconds backward for each micro-batch. `activation_bytes[s]` and `gradient_bytes[s]` cross the
    boundary between stages s and s+1 for each micro-batch. Without `backward_s` the iteration is
    the forward pass alone. `gradient_bytes` defaults to `activation_bytes`.
    """
    passes = gpipe_passes(len(workers), micro_batches)
    if backward_s is None:
        passes = [each for each in passes if each.direction == "forward"]
    gradients = activation_bytes if gradient_bytes is None else gradient_bytes
    block, crossings = pipeline(
        passes, workers, forward_s, activation_bytes, backward_s or (), gradients
    )
    consumer_s = {"forward": forward_s, "backward": backward_s or ()}
    echelonflows = []
    for crossing in crossings:
        # Equation 6: a consumer's time between one flow and the next.
        offsets_s = []
        for index, each in enumerate(crossing.passes):
            stages_s = consumer_s[each.direction]
            offsets_s.append(index * stages_s[each.consumer.stage - 1])
        echelonflows.append(crossing.echelonflow(offsets_s))
    return block.graph(*echelonflows)


def one_f_one_b_passes(
    stage: int,
    stages: int,
    micro_batches: int,
) -> Iterator[Pass]:
    """Yield the passes of `stage` (1..stages) in the order in which it does them.

    **Schedule** (PipeDream-Flush: Narayanan et al., Memory-Efficient Pipeline-Parallel DNN
    Training, ICML '21; Megatron-LM, Narayanan et al., SC '21, section 2.2.1; the alternation is
    PipeDream's, SOSP '19, section 3.2). Of p stages, stage s (from 1) starts with p - s forward
    passes, then alternates one forward with one backward, and ends with the p - s backward passes
    that are left. Both directions take the micro-batches in order, and the iteration ends when the
    pipeline is empty. It takes as long as GPipe: if stages are equal, bubbles take (p - 1) / (m + p
    - 1) of the time. But a stage keeps the activations of at most p - s + 1 micro-batches instead
    of all m.

    **Arrangement.** What crosses a stage boundary in one direction is an EchelonFlow, as with
    GPipe. Ideal finish times assume an infinitely fast network (EchelonFlow, Pan et al., HotNets
    '22, section 3). A flow is needed when the consumer starts to compute on it, so the distances
    are those between the *starts of the consuming units in the schedule itself*, run with flows
    that take no time. If all stages are equal, with forward time F and backward time B, the forward
    flows into stage s have distances of

    * F while the consumer fills the pipeline, p - s times;
    * F + B, and once more B for each of the p - s stages after it, where the warm-up ends: the
      consumer waits for the first backward, which comes back from the last stage;
    * F + B from there on.

    The backward flows have distances of F + B throughout. That is the pace of the last stage; the
    other stages keep it by waiting where they have no forward passes left. GPipe's equation 6
    counts only the consumer's own work between one flow and the next. It would leave out this
    waiting, and call flows late that nobody waits for. If stages are unequal, the slowest one sets
    the pace of all.

    An iteration is late by no more than the latest of its flows: if every flow finishes within t of
    the time at which it is needed, every unit starts within t of its time in the schedule, by
    induction along it.
    """
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
    forward_s: StageTimes,
    activation_bytes: StageSizes,
    backward_s: StageTimes,
    gradient_bytes: StageSizes | None = None,
) -> IterationGraph:
    """Return one iteration of a 1F1B pipeline; the arguments are those of `gpipe`."""
    stages = len(workers)
    passes: list[Pass] = []
    for stage in range(1, stages + 1):
        passes += one_f_one_b_passes(stage, stages, micro_batches)
    gradients = activation_bytes if gradient_bytes is None else gradient_bytes
    block, crossings = pipeline(passes, workers, forward_s, activation_bytes, backward_s, gradients)
    job = Job("1f1b", *block.graph())
    start_s = earliest_start_s(job, lambda _: Fraction(0))
    echelonflows = []
    for crossing in crossings:
        starts_s = [start_s[each.consumer.unit] for each in crossing.passes]
        echelonflows.append(crossing.echelonflow(start - starts_s[0] for start in starts_s))
    return block.graph(*echelonflows)


@dataclass(frozen=True, slots=True)
class ReplicatedStage:
    """A stage of the model, and the ranks that replicate it.

    Source: Narayanan et al., PipeDream: Generalized Pipeline Parallelism for DNN Training, SOSP
    '19, sections 3.2 and 3.3. Mini-batches enter the pipeline. A stage applies the gradients of
    each as soon as it has them, so the pipeline is not emptied between mini-batches. The backward
    pass of a mini-batch uses the weights of its forward pass, which the worker has stashed: one
    version for each mini-batch that it has in flight. No pass therefore waits for the update of
    another mini-batch.

    The workers of a stage take mini-batches in turn, each its own in both directions. A worker of
    stage s starts with as many forward passes as keep the stages behind it busy, which is the
    number of workers of stage s and all behind it over that of stage s, rounded up; then it
    alternates one backward with one forward pass. After each round, in which every worker of a
    stage has done one backward pass, a replicated stage all-reduces its gradients. Its workers go
    on when they are summed.
    """

    ranks: Sequence[str]
    forward_s: Fraction
    """The seconds of a mini-batch on one rank."""
    backward_s: Fraction
    activation_bytes: int = 0
    """The bytes that a mini-batch sends to the next stage; 0 for the last stage."""
    gradient_bytes: int = 0
    """The bytes that it sends back to this stage."""
    parameter_bytes: int = 0
    """The bytes that replicas all-reduce after each round."""


def versions(stages: Sequence[int], stage: int) -> int:
    """Return how many mini-batches a worker of a stage has in flight.

    Each has its version of the weights.

    `stages` has the number of workers of each stage; `stage` counts from 1.
    """
    return -(-sum(stages[stage - 1 :]) // stages[stage - 1])


def schedule(stages: Sequence[int], mini_batches: int) -> Iterator[Pass]:
    """Yield the passes of all mini-batches, those of each worker in its order."""
    for stage, workers in enumerate(stages, start=1):
        ahead = versions(stages, stage)
        for first in range(1, min(workers, mini_batches) + 1):
            worker_batches = range(first, mini_batches + 1, workers)
            for mini_batch in worker_batches[:ahead]:
                yield Pass("forward", stage, mini_batch)
            for index, mini_batch in enumerate(worker_batches):
                yield Pass("backward", stage, mini_batch)
                if index + ahead < len(worker_batches):
                    yield Pass("forward", stage, worker_batches[index + ahead])


def one_f_one_b_rr(
    stages: Sequence[ReplicatedStage],
    mini_batches: int,
    algorithm: str | None = None,
) -> Block:
    """Return the passes of `mini_batches` through a pipeline that is empty before and after them.

    `Pass` says how passes and flows are named. ``sum-s1-k2`` is the all-reduce of the second
    round of the first stage, by `algorithm` (`echelon.model.jobs.collectives.OPERATIONS`).
    """
    passes = list(schedule([len(stage.ranks) for stage in stages], mini_batches))

    def rank_of(stage: int, mini_batch: int) -> str:
        ranks = stages[stage - 1].ranks
        return ranks[(mini_batch - 1) % len(ranks)]

    def unit(each: Pass) -> Block:
        stage = stages[each.stage - 1]
        lasts_s = stage.forward_s if each.direction == "forward" else stage.backward_s
        rank = rank_of(each.stage, each.micro_batch)
        return compute(each.unit, rank, lasts_s, each.direction, each.micro_batch)

    def sent(each: Pass) -> Block:
        between = stages[min(each.stage, each.consumer.stage) - 1]
        if each.direction == "forward":
            kind = "activation"
            size_bytes = between.activation_bytes
        else:
            kind = "gradient"
            size_bytes = between.gradient_bytes
        src = rank_of(each.stage, each.micro_batch)
        dst = rank_of(each.consumer.stage, each.micro_batch)
        name = f"{kind}-s{each.stage}-m{each.micro_batch}"
        return flow(name, src, dst, size_bytes, each.micro_batch)

    def lane(each: Pass) -> tuple[int, str]:
        return each.stage, rank_of(each.stage, each.micro_batch)

    units = {each: unit(each) for each in passes}
    senders = [each for each in passes if 1 <= each.consumer.stage <= len(stages)]
    transfers = {each: sent(each) for each in senders}
    sums = _sums(stages, mini_batches, algorithm)
    return connected(units, transfers, lane, sums)


def _sums(
    stages: Sequence[ReplicatedStage],
    mini_batches: int,
    algorithm: str | None,
) -> dict[Pass, list[Block]]:
    """Return the all-reduces that follow backward passes.

    In the last round, some workers may have no mini-batch.
    """
    sums: dict[Pass, list[Block]] = {}
    for number, stage in enumerate(stages, start=1):
        workers = len(stage.ranks)
        if workers == 1 or not stage.parameter_bytes:
            continue
        rounds = -(-mini_batches // workers)
        for round_number in range(1, rounds + 1):
            name = f"sum-s{number}-k{round_number}"
            summed = collective(name, "all-reduce", stage.ranks, stage.parameter_bytes, algorithm)
            for first in range(1, min(workers, mini_batches) + 1):
                last = range(first, mini_batches + 1, workers)[:round_number][-1]
                sums.setdefault(Pass("backward", number, last), []).append(summed)
    return sums


def interleaved_passes(
    worker: int,
    workers: int,
    micro_batches: int,
    chunks: int,
) -> Iterator[Pass]:
    """Yield the passes of `worker` (from 0) in the order in which it does them.

    `micro_batches` is a multiple of `workers`.

    Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
    Megatron-LM, SC '21, section 2.2.2. Of p workers with v chunks each, worker w (from 0) has the
    stages w, w + p, w + 2p... Micro-batches go in groups of p: a worker does its first chunk for p
    micro-batches, then its second for the same, and so on; backward in reverse order of chunks. It
    starts with 2(p - w - 1) + (v - 1)p forward passes, then alternates one forward with one
    backward. Bubbles take (p - 1) / v times a forward and a backward pass of all chunks, but v
    times as much is sent.
    """
    passes = micro_batches * chunks
    later_workers = workers - worker - 1
    warm_up = min(passes, 2 * later_workers + (chunks - 1) * workers)
    for number in range(passes + warm_up):
        if number < passes:
            yield _pass("forward", number, worker, workers, chunks)
        if number >= warm_up:
            yield _pass("backward", number - warm_up, worker, workers, chunks)


def _pass(
    direction: Literal["forward", "backward"],
    number: int,
    worker: int,
    workers: int,
    chunks: int,
) -> Pass:
    """Return a worker's pass of this number, from 0, of all that it does in one direction."""
    group, inside = divmod(number, workers * chunks)
    chunk, place = divmod(inside, workers)
    if direction == "backward":
        chunk = chunks - 1 - chunk
    return Pass(direction, chunk * workers + worker + 1, group * workers + place + 1)


def zero_bubble_passes(
    stage: int,
    stages: int,
    micro_batches: int,
) -> Iterator[Pass]:
    """Yield the passes of `stage` (1..stages) in the order in which it does them.

    Source: Qi et al., Zero Bubble Pipeline Parallelism, ICLR '24, section 2.1. A backward pass is
    two: the gradient of the input (here `backward`), which the stage before waits for, and the
    gradient of the weights (`weights`), which nobody waits for. Stage s (from 1) of p starts with p
    - s forward passes and then alternates forward and backward as in 1F1B. It puts off the weights
    of the first s - 1 micro-batches, does those of one micro-batch after each later backward pass,
    and the rest at the end. A stage keeps no more activations than with 1F1B. Where F, B and W are
    the times of the three passes, bubbles take (p - 1)(F + B - W), where 1F1B's take (p - 1)(F + B
    + W).
    """
    put_off = min(stage - 1, micro_batches)
    for each in one_f_one_b_passes(stage, stages, micro_batches):
        yield each
        if each.direction == "backward" and each.micro_batch > put_off:
            yield Pass("weights", stage, each.micro_batch - put_off)
    for micro_batch in range(micro_batches - put_off + 1, micro_batches + 1):
        yield Pass("weights", stage, micro_batch)


Passes = Callable[[int, int, int], Iterable[Pass]]


@dataclass(frozen=True, slots=True)
class PipelineSchedule:
    """An order of passes for workers that have one or more chunks of the model each."""

    passes: Passes
    """Returns all passes of an iteration for so many workers, micro-batches and chunks, those of
    each worker in the order in which it does them. Worker w, from 0, has the stages w + 1, w + 1 +
    workers..."""
    chunked: bool = False
    """Whether workers have several chunks.

    The number of micro-batches is then a multiple of that of workers.
    """
    splits_backward: bool = False
    """Whether the gradients of weights are passes of their own."""


def _each_stage(schedule: Passes) -> Passes:
    def passes(
        stages: int,
        micro_batches: int,
        _: int,
    ) -> Iterator[Pass]:
        for stage in range(1, stages + 1):
            yield from schedule(stage, stages, micro_batches)

    return passes


def _all_gpipe(
    stages: int,
    micro_batches: int,
    _: int,
) -> list[Pass]:
    return gpipe_passes(stages, micro_batches)


def _all_interleaved(
    workers: int,
    micro_batches: int,
    chunks: int,
) -> Iterator[Pass]:
    for worker in range(workers):
        yield from interleaved_passes(worker, workers, micro_batches, chunks)


SCHEDULES: Mapping[str, PipelineSchedule] = {
    "gpipe": PipelineSchedule(_all_gpipe),
    "1f1b": PipelineSchedule(_each_stage(one_f_one_b_passes)),
    "interleaved": PipelineSchedule(_all_interleaved, chunked=True),
    "zero-bubble": PipelineSchedule(_each_stage(zero_bubble_passes), splits_backward=True),
}
