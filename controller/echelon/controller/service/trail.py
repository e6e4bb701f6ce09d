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

from echelon.controller.machine import events
from echelon.controller.machine.errors import one_line
from echelon.controller.machine.jobs import NO_QUOTA, Quota
from echelon.controller.machine.records import Changes, Document, Key
from echelon.controller.service import logs
from echelon.model.quantities import shown

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
    """The records of a store. Requests are known by the numbers that the leader gives them."""

    def __init__(
        self, documents: Mapping[str, Document], clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._records = deque(
            (one for _, document in sorted(documents.items()) for one in _read(document)),
            maxlen=KEPT,
        )
        self._numbers = itertools.count(
            1 + max((int(key) for key in documents if key.isdecimal()), default=0)
        )
        self._asked: dict[int, tuple[Origin, events.ChangeRequest]] = {}
        self._saving: dict[int, Record] = {}
        self._noted: dict[int, Record] = {}
        """What no saved change tells of, by place, until it is saved."""

    @property
    def records(self) -> Sequence[Record]:
        """The records of changes that are saved, and of what was noted, oldest first."""
        return *self._records, *self._noted.values()

    def remember(self, number: int, request: events.Request) -> None:
        """Remember who asks for `request`, if it is a change."""
        origin = ORIGIN.get()
        if origin is not None and isinstance(request, events.ChangeRequest):
            self._asked[number] = origin, request

    def fields(self, number: int | None) -> dict[str, Any]:
        """Return the fields of log records about the request of that number; empty: it is not
        known.
        """
        asked = None if number is None else self._asked.get(number)
        if asked is None:
            return {}
        return {"request": asked[0].request, "client": asked[0].client}

    def recorded(self, number: int | None, changes: Changes) -> Changes:
        """Return the changes of a request with their record."""
        if number is None:
            return _with(self._noted, changes)
        origin, request = self._asked.get(number, (None, None))
        told = None if request is None else _told(request)
        if origin is None or told is None:
            return changes
        record = self._saving[number] = Record(
            self._clock(), *told, origin.request, origin.client, origin.address
        )
        return _with({next(self._numbers): record}, changes)

    def note(self, action: str, subject: str, origin: Origin | None = None) -> None:
        """Record what no saved change tells of, in the next commit of a plan or of records. None:
        the controller does it by itself."""
        at = self._clock()
        own = origin or Origin(f"{at:.6f}", None, None)
        self._noted[next(self._numbers)] = Record(
            at, action, subject, own.request, own.client, own.address
        )
        if len(self._noted) > KEPT:
            del self._noted[min(self._noted)]

    def saved(self, number: int | None, stored: Changes) -> None:
        """Take up the records of changes that are on disk; None: those of a plan, or of records
        alone.
        """
        for place in [one for one in self._noted if _key(one) in stored.puts]:
            self._records.append(self._noted.pop(place))
        if number is not None and (record := self._saving.pop(number, None)) is not None:
            self._records.append(record)

    def forget(self, number: int) -> None:
        """Forget a request that was answered."""
        self._asked.pop(number, None)
        self._saving.pop(number, None)


def _read(document: Document) -> Iterator[Record]:
    try:
        yield _RECORD.validate_python(document)
    except ValidationError as error:
        log.warning(
            "a damaged record of the trail is set aside",
            record=shown(document),
            problem=one_line(str(error)),
        )


def _with(records: Mapping[int, Record], changes: Changes) -> Changes:
    for place, record in records.items():
        changes = Changes(
            {**changes.puts, _key(place): asdict(record)},
            [*changes.deletes, _key(place - KEPT)] if place > KEPT else changes.deletes,
        )
    return changes


def _key(place: int) -> Key:
    return "events", f"{place:012d}"


def _told(request: events.ChangeRequest) -> tuple[str, str] | None:
    """Return the action and its object; None: the request is not recorded."""
    match request:
        case events.RegisterJob(replace=replace, spec=spec):
            return "replace job" if replace else "register job", spec.job
        case events.RemoveJob(job=job):
            return "remove job", job
        case events.ReportDistances(job=job, echelonflow=echelonflow):
            return "report distances", f"{job} {echelonflow}"
        case events.ReportConnections():
            # No person asked for it, and many such records would take the place of others.
            return None
        case events.ChoosePolicy(policy=policy):
            return "choose policy", " ".join(
                [policy.name, *(f"{key}={value}" for key, value in policy.parameters.items())]
            )
        case events.SetLink(a=a, b=b, drained=drained):
            return "drain link" if drained else "restore link", f"{a} - {b}"
        case events.MoveLinks(spec=spec):
            return "move links", spec.fabric
        case events.TurnLinks():
            return "links moved", "by hand"
