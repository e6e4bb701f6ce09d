"""The audit trail: who asked for which change, kept in the store together with the change.

A record becomes durable in the commit of its change, so there is neither a change without a record
nor a record of a change that failed.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from echelon.controller.machine.change import ChangeRequest
from echelon.controller.machine.events import Request
from echelon.controller.machine.jobs import NO_QUOTA, Quota
from echelon.controller.machine.records import Changes, Document, Key
from echelon.controller.service import logs
from echelon.model.quantities import excerpt, one_line

log = logs.get(__name__)

KEPT = 1000
"""Number of records that the store keeps."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The request that asks for a change."""

    request: str
    """The id, which the answer and the log have, too."""
    client: str | None
    """The name of the token; None: no tokens are configured."""
    address: str | None
    """The address of the client; None: a Unix socket."""
    quota: Quota = NO_QUOTA


ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)
"""The request that the current task answers."""


@dataclass(frozen=True, slots=True)
class Record:
    """One change."""

    at: float
    """Seconds since the epoch."""
    action: str
    object: str
    request: str
    client: str | None
    address: str | None


_RECORD = TypeAdapter(Record)


class Trail:
    """The audit records in a store.

    Requests are identified by the leader's numbers.
    """

    def __init__(
        self, documents: Mapping[str, Document], clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._records: deque[Record] = deque(maxlen=KEPT)
        for _, document in sorted(documents.items()):
            self._records.extend(_read(document))
        places = [int(key) for key in documents if key.isdecimal()]
        last = max(places, default=0)
        self._places = itertools.count(last + 1)
        self._asked: dict[int, tuple[Origin, ChangeRequest]] = {}
        self._saving: dict[int, Record] = {}
        self._noted: dict[int, Record] = {}
        """The records that no saved change has, by place, until they are saved."""

    @property
    def records(self) -> Sequence[Record]:
        """The records of changes that are saved, and of what was noted, oldest first."""
        return *self._records, *self._noted.values()

    def remember(self, number: int, request: Request) -> None:
        """Remember who asks for `request`, if it is a change."""
        origin = ORIGIN.get()
        if origin is not None and isinstance(request, ChangeRequest):
            self._asked[number] = origin, request

    def fields(self, number: int | None) -> dict[str, Any]:
        """Return the fields of log records about a request; empty: nobody asked for it."""
        if number is None or number not in self._asked:
            return {}
        origin, _ = self._asked[number]
        return {"request": origin.request, "client": origin.client}

    def recorded(self, number: int | None, changes: Changes) -> Changes:
        """Return the changes of a request with their record; None: with those that were noted."""
        if number is None:
            return _with(self._noted, changes)
        if number not in self._asked:
            return changes
        origin, request = self._asked[number]
        description = request.trail_entry()
        if description is None:
            return changes
        action, subject = description
        record = _record(self._clock(), action, subject, origin)
        self._saving[number] = record
        place = next(self._places)
        return _with({place: record}, changes)

    def note(
        self,
        action: str,
        subject: str,
        origin: Origin | None = None,
    ) -> None:
        """Record what no saved change tells of, in the next commit of a plan or of records.

        Without an `origin` the controller does it by itself.
        """
        now = self._clock()
        if origin is None:
            origin = Origin(f"{now:.6f}", None, None)
        place = next(self._places)
        self._noted[place] = _record(now, action, subject, origin)
        if len(self._noted) > KEPT:
            del self._noted[min(self._noted)]

    def saved(self, number: int | None, stored: Changes) -> None:
        """Take up the records of changes that are on disk.

        None is the number of the changes of a plan, and of records alone.
        """
        for place in list(self._noted):
            if _key(place) in stored.puts:
                record = self._noted.pop(place)
                self._records.append(record)
        if number is not None and number in self._saving:
            record = self._saving.pop(number)
            self._records.append(record)

    def forget(self, number: int) -> None:
        """Forget a request that was answered."""
        self._asked.pop(number, None)
        self._saving.pop(number, None)


def _record(
    time_s: float,
    action: str,
    subject: str,
    origin: Origin,
) -> Record:
    return Record(time_s, action, subject, origin.request, origin.client, origin.address)


def _read(document: Document) -> Iterator[Record]:
    """Yield the record in a document, unless it is damaged."""
    try:
        yield _RECORD.validate_python(document)
    except ValidationError as error:
        log.warning(
            "a damaged record of the trail is set aside",
            record=excerpt(document),
            problem=one_line(str(error)),
        )


def _with(records: Mapping[int, Record], changes: Changes) -> Changes:
    """Return changes with records, which take the place of those that are too old."""
    if not records:
        return changes
    puts = dict(changes.puts)
    deletes = list(changes.deletes)
    for place, record in records.items():
        puts[_key(place)] = asdict(record)
        if place > KEPT:
            deletes.append(_key(place - KEPT))
    return Changes(puts, deletes)


def _key(place: int) -> Key:
    return "events", f"{place:012d}"
