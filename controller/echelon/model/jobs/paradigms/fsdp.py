"""Fully sharded data parallelism: every rank keeps a part of the model's state.

Sources: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models,
SC '20, sections 5 and 7; Zhao et al., PyTorch FSDP: Experiences on Scaling Fully Sharded Data
Parallel, VLDB '23, sections 3 and 4.

* **ZeRO-3** (FSDP) shards the parameters. Ranks all-gather those of a layer before its forward and
  again before its backward pass, and reduce-scatter its gradients behind the backward pass.
* **ZeRO-2** shards the gradients. Ranks reduce-scatter those of a layer behind its backward pass.
  When each has updated its part of the parameters, they all-gather all layers.
* **Replicas** (HSDP; Zhao et al., section 3.2.2) are groups of ranks that shard the state among
  themselves. Behind each reduce-scatter, ranks of all replicas with the same shard all-reduce its
  gradients.
* **ZeRO-1** shards the optimiser's state only. The collectives are those of ZeRO-2, but gradients
  are reduce-scattered when the whole backward pass is done.

All-gathers are one stream, reduce-scatters another and all-reduces of replicas a third: each waits
for the one before. With `prefetch: k`, an all-gather starts when the pass k + 1 places before its
own has been done (its own comes right after that with k = 0).

**Arrangement** (derived). The 2n all-gathers of ZeRO-3 are one EchelonFlow with the passes' times
between them (EchelonFlow, Pan et al., HotNets '22, eq. 7). Without prefetching each waits for the
pass that consumes the one before, and is a coflow of its own. All reduce-scatters are a coflow: the
iteration waits for the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from echelon.model.documents import Duration, Durations, Sizes, UpTo10000, problem
from echelon.model.jobs.algorithms import ALL_REDUCES, AllReduceName
from echelon.model.jobs.collectives import chunk_bytes
from echelon.model.jobs.combinators import (
    Block,
    Step,
    collective,
    compute,
    parallel,
    replicate,
    series,
)
from echelon.model.jobs.paradigm import Examples, example
from echelon.model.jobs.paradigms.tensor import check_collective
from echelon.model.jobs.ranked import RankedParadigm, value_of


class Fsdp(RankedParadigm):
    """Sharded data parallelism; all ranks are one group, or one for each replica.

    A list has one value for each layer, or group of layers that is gathered as one. A single value
    is for all.
    """

    examples: ClassVar[Examples] = {
        "fsdp": example(
            "fsdp",
            "llama",
            4,
            layers=4,
            forward="10 ms",
            backward="20 ms",
            parameters="40 MB",
        ),
    }
    compute_times = frozenset({"forward", "backward", "optimizer"})

    zero: Literal[1, 2, 3] = 3
    """The state that is sharded: 1, the optimiser's; 2, gradients too; 3, parameters too."""
    layers: UpTo10000 = Field(description="how many layers, e.g. 32")
    forward: Durations = Field(description="the forward time of a layer on each rank, e.g. 10 ms")
    backward: Durations = Field(description="the backward time of a layer on each rank, e.g. 20 ms")
    parameters: Sizes = Field(description="the bytes of a layer's parameters, e.g. 400 MB")
    gradients: Sizes | None = None
    """The bytes of a layer's gradients. None: as `parameters`."""
    micro_batches: UpTo10000 = 1
    """The number of micro-batches before the optimiser.

    Each is gathered and scattered anew (with `zero: 1`, scattered once).
    """
    replicas: UpTo10000 = 1
    """The number of groups of consecutive ranks that each shard the whole state (HSDP)."""
    prefetch: Annotated[int, Field(strict=True, ge=0, le=10_000)] | None = None
    """The number of layers to gather ahead; only with `zero: 3`, where the default is 1."""
    optimizer: Duration = Fraction(0)
    """The seconds for which a rank updates its part of the parameters."""
    collective: AllReduceName = "ring"
    """The algorithm of both halves."""

    def check_ranks(self, ranks: int) -> None:
        for key in ("forward", "backward", "parameters", "gradients"):
            self.check_length(key, self.layers, f"for {self.layers} layers")
        if self.prefetch is not None and self.zero != 3:
            reason = f"does not go with 'zero: {self.zero}', which gathers no layers ahead"
            raise problem(reason, "prefetch")
        if ranks % self.replicas:
            reason = f"is {self.replicas}, which does not divide the {ranks} ranks (give a divisor)"
            raise problem(reason, "replicas")
        check_collective(self.collective, ranks // self.replicas, True)
        check_collective(self.collective, self.replicas, False)

    def rank_steps(self, ranks: int) -> int:
        passes = self.layers * self.micro_batches
        group = ranks // self.replicas
        step_count = ALL_REDUCES[self.collective].step_count
        shared = step_count(group, 3 * passes * self.replicas)
        shared += step_count(self.replicas, passes * group)
        return (2 * passes + 1) * ranks + shared

    def steps(self, ranks: Sequence[str]) -> tuple[Step, ...]:
        numbers = range(1, self.layers + 1)
        works: list[Block] = []
        backward: list[Block] = []
        gathers: list[Block] = []
        scatters: list[Block] = []
        sums: list[Block] = []
        for batch in range(1, self.micro_batches + 1):
            for layer in numbers:
                works.append(self._work(ranks, "forward", layer, batch))
                gathers.append(self._gather(ranks, "gather-forward", layer, batch))
            # The gradients of micro-batches add up where they are not sharded.
            is_scattered = self.zero > 1 or batch == self.micro_batches
            for layer in reversed(numbers):
                work = self._work(ranks, "backward", layer, batch)
                works.append(work)
                backward.append(work)
                gathers.append(self._gather(ranks, "gather-backward", layer, batch))
                if is_scattered:
                    scatters.append(self._scatter(ranks, layer, batch))
                    sums.append(self._sum(ranks, layer, batch))
        update = self._update(ranks)
        if self.zero == 3:
            prefetch = 1 if self.prefetch is None else self.prefetch
            return parallel(
                series(*works),
                series(*gathers),
                *map(series, gathers, works),
                *map(series, works, gathers[1 + prefetch :]),
                *map(series, backward, scatters, sums),
                series(*scatters, update),
                series(*sums, update),
            ).nodes()

        # Parameters are gathered once, behind the optimiser.
        gathers = [self._gather(ranks, "gather", layer) for layer in numbers]
        if self.zero == 1:
            summed = parallel(series(*scatters), series(*sums), *map(series, scatters, sums))
            return series(*works, summed, update, *gathers).nodes()
        behind_passes = map(series, backward, scatters, sums)
        stream = series(*scatters, update, *gathers)
        return parallel(series(*works), *behind_passes, stream, series(*sums, update)).nodes()

    def _update(self, ranks: Sequence[str]) -> Block:
        def update(number: int, rank: str) -> Block:
            return compute(f"optimizer-w{number}", rank, self.optimizer, "optimizer")

        return replicate(ranks, update)

    def _gather(
        self,
        ranks: Sequence[str],
        name: str,
        layer: int,
        batch: int = 0,
    ) -> Block:
        return self._shared(name, "all-gather", ranks, self.parameters, layer, batch)

    def _scatter(
        self,
        ranks: Sequence[str],
        layer: int,
        batch: int,
    ) -> Block:
        sizes = self.gradients or self.parameters
        return self._shared("scatter", "reduce-scatter", ranks, sizes, layer, batch)

    def _groups(self, ranks: Sequence[str]) -> list[Sequence[str]]:
        """Return the ranks of each replica."""
        size = len(ranks) // self.replicas
        return [ranks[first : first + size] for first in range(0, len(ranks), size)]

    def _sum(
        self,
        ranks: Sequence[str],
        layer: int,
        batch: int,
    ) -> Block:
        """Return the all-reduces of a layer's gradients, each of a shard in all replicas."""
        if self.replicas == 1:
            return parallel()
        groups = self._groups(ranks)
        size_bytes = value_of(self.gradients or self.parameters, layer - 1)
        blocks = []
        for place, same_shard in enumerate(zip(*groups, strict=True)):
            name = f"sum-l{layer}{self._suffix(batch)}-t{place + 1}"
            shard_bytes = chunk_bytes(size_bytes, len(groups[0]), place)
            blocks.append(collective(name, "all-reduce", same_shard, shard_bytes, self.collective))
        return parallel(*blocks)

    def _suffix(self, batch: int) -> str:
        if self.micro_batches > 1 and batch:
            return f"-m{batch}"
        return ""

    def _work(
        self,
        ranks: Sequence[str],
        direction: str,
        layer: int,
        batch: int,
    ) -> Block:
        durations_s = self.forward if direction == "forward" else self.backward
        duration_s = value_of(durations_s, layer - 1)
        name = f"{direction}-l{layer}{self._suffix(batch)}"
        micro_batch = batch if self.micro_batches > 1 else None

        def work(number: int, rank: str) -> Block:
            return compute(f"{name}-w{number}", rank, duration_s, direction, micro_batch)

        return replicate(ranks, work)

    def _shared(
        self,
        name: str,
        operation: str,
        ranks: Sequence[str],
        sizes: int | tuple[int, ...],
        layer: int,
        batch: int = 0,
    ) -> Block:
        full = f"{name}-l{layer}{self._suffix(batch)}"
        size_bytes = value_of(sizes, layer - 1)
        if self.replicas == 1:
            return collective(full, operation, ranks, size_bytes, self.collective)
        groups = self._groups(ranks)
        if len(groups[0]) == 1:
            # The state is whole in each rank, or inside each worker.
            return parallel()
        blocks = []
        for number, group in enumerate(groups, start=1):
            group_name = f"{full}-g{number}"
            blocks.append(collective(group_name, operation, group, size_bytes, self.collective))
        return parallel(*blocks)
