"""The operations that each kernel of NCCL carries: by its own description, by the records of the
host, or by the execution trace of the same rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from echelon.model.quantities import excerpt
from echelon_importers.pytorch.arguments import described, record_id
from echelon_importers.pytorch.batches import Batch, HostRecords
from echelon_importers.pytorch.execution import ExecutionTrace, HostNode
from echelon_importers.pytorch.members import with_member
from echelon_importers.pytorch.profile import Event, Profile
from echelon_importers.pytorch.records import Place, Recorded, kernel_kind
from echelon_importers.pytorch.streams import ALWAYS, Need
from echelon_importers.workload import ReadCounts

_SUMS = {"all-reduce", "reduce-scatter", "reduce"}
"""Operations whose results are mostly awaited at the end of an iteration, as gradients are."""
_CARRIES_ON = "kernels of NCCL that carry on the one before"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation, and where it is recorded."""

    place: Place
    recorded: Recorded


class KernelOperations:
    """The operations of the kernels of NCCL in the trace of a rank."""

    def __init__(
        self,
        profile: Profile,
        execution: ExecutionTrace | None,
        tally: ReadCounts,
    ) -> None:
        self._profile = profile
        self._tally = tally
        self._records = HostRecords(profile)
        self._begun: set[object] = set()
        """The records of which a kernel has been read, as the profiler numbers them."""
        unlaunched = self._records.unlaunched()
        if unlaunched:
            tally.notes.append(
                f"{profile.source.name} records {unlaunched} operations that no kernel of NCCL in"
                " it carries; the job does not have them."
            )
        self._matched: Mapping[int, HostNode] = {}
        if execution is not None:
            self._matched = _matched(profile, execution, self._records)

    def need(self, event: Event, operations: Sequence[Operation]) -> Need:
        """Return who needs the end of a kernel that carries some operations."""
        names = {operation.recorded.operation for operation in operations}
        if names == {"send"}:
            return Need(always=False)
        # Without its launch, nothing says what was launched after a wait for it.
        if not names or not names <= _SUMS or event.launch is None:
            return ALWAYS
        return Need(always=False, asked_us=self._records.asked_us(event))

    def of_kernel(self, event: Event) -> Sequence[Operation]:
        """Return the operations of a kernel of NCCL; none if it carries on what is begun.

        Raises `DocumentError` if no file says them.
        """
        place = self._profile.place(event.number)
        recorded = described(place, event.arguments)
        if recorded is not None and self._is_begun(event):
            return ()
        if recorded is not None:
            member = self._records.member(event)
            return [Operation(place, with_member(recorded, member))]

        batch = self._records.batches.get(event.number)
        if batch is not None:
            return self._recorded(event, batch)

        node = self._matched.get(event.number)
        if node is None:
            reason = f"{excerpt(event.name[:40])} does not say its bytes"
            remedy = (
                "profile with CPU activities, from before the first step; or give the execution"
                " trace of this rank, too"
            )
            raise place.fault(reason, remedy, "missing-key")
        assert isinstance(node.does, Recorded)
        _check_kind(place, event, node.does)
        return [Operation(place, node.does)]

    def _is_begun(self, event: Event) -> bool:
        """Return whether a kernel belongs to a record of which there was one already.

        NCCL may launch several for one operation, such as an all-to-all
        (https://github.com/pytorch/kineto/issues/1380), and each has the bytes of all.
        """
        record = record_id(event.arguments)
        if record is None:
            return False
        is_begun = record in self._begun
        self._begun.add(record)
        if is_begun:
            self._tally.derived[_CARRIES_ON] += 1
        return is_begun

    def _recorded(self, event: Event, batch: Batch) -> Sequence[Operation]:
        """Return the operations that the host recorded for a kernel."""
        operations = []
        for call in batch:
            place = self._profile.place(call.number)
            recorded = described(place, call.arguments)
            if recorded is not None:
                operations.append(Operation(place, recorded))
        if not batch:
            self._tally.derived[_CARRIES_ON] += 1
        elif len(batch) > 1:
            self._tally.derived["batches of operations in one kernel of NCCL"] += 1
        return operations


def _matched(
    profile: Profile,
    execution: ExecutionTrace,
    records: HostRecords,
) -> Mapping[int, HostNode]:
    """Return the node of each kernel of NCCL, by the kernel's number.

    The k-th kernel is the k-th operation of more than one rank.
    """
    kernels = [event for event in profile.events if event.is_nccl]
    # The profile itself is nearer to the kernels than their order in the other trace.
    if all(records.is_recorded(event) for event in kernels):
        return {}
    nodes = []
    for node in execution.nodes:
        if isinstance(node.does, Recorded) and node.does.group_size != 1:
            nodes.append(node)
    if len(nodes) != len(kernels):
        reason = (
            f"has {len(nodes)} collectives, but {profile.source.name} has {len(kernels)} kernels of"
            " NCCL (give two traces of the same steps; for batches of sends, profile with CPU"
            " activities)"
        )
        raise execution.source.refusal(reason, code="wrong-length")
    pairs = zip(kernels, nodes, strict=True)
    return {event.number: node for event, node in pairs}


def _check_kind(place: Place, event: Event, recorded: Recorded) -> None:
    kind = kernel_kind(event.name)
    if kind not in (None, recorded.operation):
        reason = f"{excerpt(event.name[:40])} is {recorded.operation} in the execution trace"
        raise place.fault(reason, "give two traces of the same steps")
