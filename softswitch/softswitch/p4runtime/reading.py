"""One Read, which is worked on in slices.

A few bytes can ask for everything that a switch holds, many times over. So the work of a Read is
bounded, and each slice is short: between two slices the turn is given up, and Writes go first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from finsy.proto import p4r

from softswitch.p4runtime.past import CELLS, Past
from softswitch.p4runtime.pipeline import Pipeline
from softswitch.p4runtime.roles import RoleScope
from softswitch.rpc.status import OK, Code, RefusedError, Status

__all__ = ["Reading"]

_RESPONSE_BYTES = 1 << 18
"""The size in bytes at which a ReadResponse is closed.

So much is encoded in some 20 ms, and as much waits for a client that is slow. Clients accept 4 MiB.
"""

_STEPS_AT_ONCE = 256
"""The number of entities looked at in one slice. They take 3 to 5 ms."""

_STEPS_PER_PART = 16
"""The number of entities between two looks at the size of a response."""

_QUERIES_PER_READ = 4096
"""The most queries in one Read. Controllers of Echelon ask for 1000 keys at a time."""

_CELLS_PER_READ = 1 << 16
"""The most cells of counters, meters and registers that one Read returns.

A few bytes can ask for all of them.
"""

_size_bytes = p4r.Entity.ByteSize

_STEPS_PER_READ = 1 << 17
"""The most entities that one Read looks at, and twice as many as there are entries of tables.

Whoever wants everything asks once for each kind of entity: for an entry, and for its direct counter
and meter. The constant is for what is no entry of a table.
"""


class Reading:
    """The work on one Read.

    Args:
        pipeline: what is read.
        queries: the elements of the request.
        scope: what the client's role may read.

    Raises:
        RefusedError: RESOURCE_EXHAUSTED for too many queries.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        queries: Sequence[p4r.Entity],
        scope: RoleScope,
    ) -> None:
        if len(queries) > _QUERIES_PER_READ:
            raise RefusedError(
                Code.RESOURCE_EXHAUSTED,
                f"{len(queries)} queries in one Read, of which {_QUERIES_PER_READ} are allowed;"
                " send several Reads, or queries that select more",
            )
        kinds = frozenset(query.WhichOneof("entity") or "" for query in queries)
        self._pipeline = pipeline
        self._queries = queries
        self._scope = scope
        self._past = Past(kinds)
        self._entities = self._read_all()
        self._cells_left = _CELLS_PER_READ
        self._steps = 0
        self._response = p4r.ReadResponse()
        self._size_bytes = 0
        """The size of the response."""
        self.statuses: list[Status] = []
        """The outcomes of the queries that are done."""

    @property
    def ended(self) -> bool:
        """Return whether all queries are done."""
        return len(self.statuses) == len(self._queries)

    @property
    def is_full(self) -> bool:
        """Return whether the response is to be sent before more is read."""
        return self._size_bytes >= _RESPONSE_BYTES

    def work(self) -> None:
        """Work for one slice, or less if the response is full or the Read is done.

        The caller has the turn and the device's lock.

        Raises:
            RefusedError: the state at the beginning of the Read can no longer be told.
        """
        for _ in range(_STEPS_AT_ONCE // _STEPS_PER_PART):
            if self.ended or self.is_full:
                return
            if self._past.lost is not None:
                raise self._past.lost
            self._read_part()

    def take(self) -> p4r.ReadResponse:
        """Return what has been read since the last call."""
        response = self._response
        self._response = p4r.ReadResponse()
        self._size_bytes = 0
        return response

    def watch(self) -> None:
        """Keep what Writes change from now on, until `close`."""
        self._pipeline.watch(self._past)

    def close(self) -> None:
        """Let go of what was kept. The caller has the device's lock."""
        self._pipeline.unwatch(self._past)

    def _read_part(self) -> None:
        part = list(islice(self._entities, _STEPS_PER_PART))
        self._steps += len(part)
        if self._steps > _STEPS_PER_READ and not self.ended:
            self._check_steps()
        entities = [entity for entity in part if entity is not None]
        if entities:
            self._response.entities.extend(entities)
            self._size_bytes += sum(map(_size_bytes, entities))

    def _read_all(self) -> Iterator[p4r.Entity | None]:
        """Yield what all queries select, and None for each other step."""
        for query in self._queries:
            status = OK
            try:
                yield from self._selected(query)
            except RefusedError as error:
                status = error.status
            self.statuses.append(status)
            yield None

    def _selected(self, query: p4r.Entity) -> Iterator[p4r.Entity | None]:
        are_cells = query.WhichOneof("entity") in CELLS
        entities = self._pipeline.read(query, self._scope, self._past)
        return self._counted(entities) if are_cells else entities

    def _counted(self, cells: Iterator[p4r.Entity | None]) -> Iterator[p4r.Entity | None]:
        for cell in cells:
            self._count_cell()
            yield cell

    def _count_cell(self) -> None:
        self._cells_left -= 1
        if self._cells_left < 0:
            raise RefusedError(
                Code.RESOURCE_EXHAUSTED,
                f"one Read returns {_CELLS_PER_READ} cells of arrays at most; give ids and indices,"
                " in several Reads",
            )

    def _check_steps(self) -> None:
        """End all queries that are left if this Read has looked at as much as it may."""
        most = _STEPS_PER_READ + 2 * self._pipeline.tables.size
        if self._steps > most:
            spent = Status(
                Code.RESOURCE_EXHAUSTED,
                f"this Read has looked at {most} entities, the most for one ({_STEPS_PER_READ}, and"
                " twice the entries of all tables); ask once for what is wanted, by keys or ids,"
                " in several Reads",
            )
            self.statuses += [spent] * (len(self._queries) - len(self.statuses))
