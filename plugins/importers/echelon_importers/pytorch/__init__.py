"""Traces of PyTorch: of the profiler (Kineto, ``{"traceEvents": [...]}``), and execution traces
(``{"nodes": [...]}``).

A rank has one file of either kind, or both. What each says:

* Kineto has the kernels of the GPU with their times (`gpu_order`, `streams`). PyTorch since 2.2
  writes operation, bytes and ranks into the events of NCCL's kernels. Kernels that carry a batch,
  such as those of a pipeline, lack them; the host's records have them (`batches`). For older traces
  the execution trace of the same rank is needed, whose k-th operation is the k-th kernel of NCCL
  (`operations`).
* An execution trace has the operations with their tensors, in the order of the host
  (`host_order`).

The k-th `send` from one rank to another in a process group goes with the k-th `recv`. As NCCL's, it
starts when both ranks are ready, and both wait for its end. The bytes of a collective are those of
a rank's input tensors; an all-gather has that times the number of ranks in the end. A gather and a
scatter are all-to-alls in which one rank alone receives or sends.

Files without `distributedInfo` are those of the rank in their names, or are in the order of ranks.
With the files of one rank, all ranks run the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from fractions import Fraction
from typing import ClassVar

from echelon.model.documents import DocumentError
from echelon_importers import importer
from echelon_importers.importer import Importer, Source, Span
from echelon_importers.pytorch.files import RankFiles, read_ranks
from echelon_importers.pytorch.gpu_order import GpuOrder, chosen_events, span_s
from echelon_importers.pytorch.host_order import by_host
from echelon_importers.pytorch.members import Members, SharedGroups
from echelon_importers.pytorch.operations import KernelOperations
from echelon_importers.pytorch.replay import with_times
from echelon_importers.pytorch.uneven import even
from echelon_importers.trace_parts import TraceNode, Transfers
from echelon_importers.traces import assemble
from echelon_importers.workload import ReadCounts, Workload


class PyTorchOptions(importer.ImportOptions):
    """The part of a trace to take."""

    iterations: Span | None = None
    """The steps of the profiler to take, counted from 1.

    None: the first, or everything if there are no steps.
    """
    transfers: Transfers | None = None
    """What sends wait for. None: for their receivers, as with NCCL; if ranks would then wait for
    each other in a circle, for nothing."""


class PyTorch(Importer[PyTorchOptions]):
    """Traces of PyTorch's profiler (Kineto) and execution traces, in JSON."""

    Options: ClassVar[type[importer.ImportOptions]] = PyTorchOptions

    def read(self, sources: Sequence[Source]) -> Workload:
        tally = ReadCounts()
        ranks = read_ranks(sources, tally)
        count = len(ranks)
        if count == 1:
            count = self._same(ranks[0], tally)
        self.agreed_ranks(ranks[0].source, count, "those of the files")
        is_one_file = len(ranks) < count
        shared = SharedGroups(count, tally, is_one_file)
        traces = []
        spans_s = [Fraction(0)]
        for rank in ranks:
            traces.append(list(self._trace(rank, shared, spans_s)))
        if is_one_file:
            traces = traces * count
            ranks = ranks * count
        traces = even(traces, tally)
        files = [rank.source for rank in ranks]
        workload = self._assembled(files, traces, tally)
        return with_times(workload, max(spans_s))

    def _same(self, rank: RankFiles, tally: ReadCounts) -> int:
        """Return the number of ranks that run the only trace."""
        if rank.world == 1:
            reason = "is of a job of one rank, which needs no network (profile one of several)"
            raise rank.source.refusal(reason, code="wrong-length")
        if rank.world:
            count = self.agreed_ranks(rank.source, rank.world, "its world_size")
        else:
            count = self.given_ranks(rank.source)
        tally.derived["ranks that run the same trace"] = count
        return count

    def _trace(
        self,
        rank: RankFiles,
        shared: SharedGroups,
        spans_s: list[Fraction],
    ) -> Iterator[TraceNode]:
        members = Members(rank.number, rank.groups, shared)
        profile = rank.profile
        tally = shared.tally
        if profile is None:
            assert rank.execution is not None
            return by_host(rank.execution, members, tally)
        events = chosen_events(profile, self.options.iterations, tally)
        spans_s.append(span_s(events))
        operations = KernelOperations(profile, rank.execution, tally)
        tally.read["waits between streams"] += len(profile.waits)
        order = GpuOrder(members, operations, profile.waits, tally)
        return order.nodes(events)

    def _assembled(
        self,
        files: Sequence[Source],
        traces: Sequence[Sequence[TraceNode]],
        tally: ReadCounts,
    ) -> Workload:
        chosen = self.options.transfers
        if chosen is not None:
            return assemble(files, traces, tally, chosen)
        try:
            return assemble(files, traces, deepcopy(tally), "rendezvous")
        except DocumentError as error:
            if error.code != "cycle":
                raise
        # NCCL buffers small messages, so that their senders do not wait.
        tally.notes.append(
            "Sends start when their senders are ready: if they waited for their receivers, as large"
            " ones do with NCCL, ranks would wait for each other in a circle."
        )
        return assemble(files, traces, tally, "eager")
