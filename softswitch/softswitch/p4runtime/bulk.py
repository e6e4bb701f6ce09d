"""Insertions in bulk: updates that match a template go straight into their table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from finsy.proto import p4r
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from softswitch.p4runtime.p4info import P4InfoIndex
from softswitch.p4runtime.tables import TableStore
from softswitch.p4runtime.wire import Template, WireUpdates, learn
from softswitch.rpc.status import OK, Code, Status

__all__ = ["BulkWriter"]

_WORTH_LEARNING = 32
"""The number of updates in a request from which on templates are learnt."""

_MOST_TEMPLATES = 512
_MOST_OF_A_SIZE = 16

_MALFORMED = Status(Code.INVALID_ARGUMENT, "the update is not a valid message")

_PutAll = Callable[[Iterator[tuple[Any, ...]]], int]
"""A function that inserts decoded entries until the table refuses one.

It returns how many it inserted.
"""

_Run = tuple[Template, _PutAll, int]
"""Consecutive updates that match a template: the template, what inserts them, and their end."""


class BulkWriter:
    """A writer of updates that are still bytes; `attempt` applies an update that is a message."""

    def __init__(
        self,
        tables: TableStore,
        info: P4InfoIndex,
        attempt: Callable[[p4r.Update], Status],
    ) -> None:
        self._tables = tables
        self._info = info
        self._attempt = attempt
        self._put_alls: dict[tuple[int, bytes], _PutAll] = {}
        """The function that inserts into a table, by the table's id and the entries' metadata.

        All templates of both share it.
        """
        self._templates: dict[int, list[tuple[Template, _PutAll]]] = {}
        """The templates by size in bytes, the latest used first."""
        self._learnt = 0

    def write(self, updates: WireUpdates) -> list[Status]:
        """Apply `updates` one by one; return one status each, the same as `attempt` would."""
        data = updates.data
        starts = updates.starts
        ends = updates.ends
        count = len(starts)
        statuses: list[Status] = []
        while len(statuses) < count:
            index = len(statuses)
            run = self._find(updates, index)
            if run is not None:
                put_all = run[1]
                statuses += [OK] * put_all(self._decoded(updates, index, run))
                if len(statuses) == count:
                    break
                # Here is another table, or an update whose fault the ordinary way finds.
                after = index
                index = len(statuses)
                if index > after:
                    following = self._find(updates, index)
                    if following is not None and following[1] is not put_all:
                        continue
            try:
                update = updates[index]
            except DecodeError:
                statuses.append(_MALFORMED)
                continue
            status = self._attempt(update)
            statuses.append(status)
            if status is OK and update.type == p4r.Update.INSERT and count >= _WORTH_LEARNING:
                self._learn(data[starts[index] : ends[index]], update)
        return statuses

    def _decoded(
        self,
        updates: WireUpdates,
        index: int,
        run: _Run | None,
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the insertions from the update at `index` on that match templates of one table."""
        data = updates.data
        starts = updates.starts
        put_all = run and run[1]
        while run is not None and run[1] is put_all:
            template, _, run_end = run
            start = starts[index]
            if (yield from template.decode(data[start:run_end])):
                return
            index += (run_end - start) // (updates.ends[index] - start)
            if index < len(starts):
                run = self._find(updates, index)
            else:
                run = None

    def _find(self, updates: WireUpdates, index: int) -> _Run | None:
        """Return the template of the update at `index`, and the end of the run that matches it."""
        start = updates.starts[index]
        size = updates.ends[index] - start
        templates = self._templates.get(size)
        for place, (template, put_all) in enumerate(templates or ()):
            match = template.match(updates.data, start, updates.ends[-1])
            if match is not None:
                if templates and place:
                    # The template used last comes first and nearly always fits.
                    templates.insert(0, templates.pop(place))
                # Count whole updates only: up to Python 3.11.4 a possessive repetition may end in
                # part of one more (gh-106052).
                count = (match.end() - start) // size
                return template, put_all, start + count * size
        return None

    def _learn(self, raw: bytes, update: p4r.Update) -> None:
        entity = update.entity
        templates = self._templates.get(len(raw), [])
        full = self._learnt >= _MOST_TEMPLATES or len(templates) >= _MOST_OF_A_SIZE
        if full or entity.WhichOneof("entity") != "table_entry":
            return
        table_id = entity.table_entry.table_id
        table_key = table_id, entity.table_entry.metadata
        put_all = self._put_alls.get(table_key) or self._tables.plain_insertion(*table_key)
        if put_all is None:
            return
        self._learnt += 1
        self._put_alls[table_key] = put_all
        view = self._tables.view(table_id)
        numbers = {} if view.profile is None else view.profile.numbers
        template = learn(raw, update, view.info, self._info.actions, numbers)
        if template is not None:
            templates.append((template, put_all))
            self._templates[len(raw)] = templates
