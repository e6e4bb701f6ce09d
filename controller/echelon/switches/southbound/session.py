"""Sessions with switches: what a switch should hold, what it holds, and the difference.

`IntentSession` knows intents; how entries travel is the business of its subclasses. `SwitchSession`
is the one for P4Runtime: it opens the stream, bids for the role of primary, pushes the program, and
sends entries in bulk. Of finsy it uses the schema, the encoding of digests, and the gNMI client:
finsy's own session outbids whoever is there, gives every call ten seconds, and decodes every entry.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Protocol, Self, cast

from finsy import GNMIClient, GRPCStatusCode, P4DigestEntry, P4DigestList, P4MulticastGroupEntry
from finsy.gnmiclient import GNMIClientError
from finsy.p4entity import decode_entity
from finsy.proto import U128, p4r
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from echelon.switches.lowering.intent import (
    FIRST_GROUP,
    DigestSetting,
    Intent,
    MulticastGroup,
    Part,
    QueueSetting,
    TableEntry,
)
from echelon.switches.southbound.channel import (
    UPDATE_TIMEOUT_S,
    CallError,
    Connect,
    MessageStream,
    P4RuntimeChannel,
)
from echelon.switches.southbound.codec import OWNER, EntryText, codec_of, encode_digest, schema_of
from echelon.switches.southbound.deadlines import deadline, patience, within
from echelon.switches.southbound.encoding import (
    EncodedEntry,
    UpdateKind,
    read_request,
    table_entries,
    value_text,
    write_header,
    write_request,
)
from echelon.switches.southbound.errors import (
    NotPrimaryError,
    ProgramRefusedError,
    SouthboundError,
)
from echelon.switches.southbound.outcomes import (
    NOWHERE,
    Applied,
    Comparison,
    RefusedEntry,
    RefusedSettings,
)
from echelon.switches.southbound.queue_writer import QueueWriter, changed_queues
from echelon.switches.southbound.queues import (
    PortWatcher,
    QueueCount,
    QueueCounter,
    QueueDriver,
    WriterWatcher,
)
from echelon.switches.southbound.reconcile import (
    Chunk,
    Difference,
    InvalidEntry,
    Turn,
    WantedEntries,
    difference,
    turned,
)
from echelon.switches.southbound.writer import (
    FOREIGN,
    HeldEntry,
    LookUp,
    Refusal,
    Send,
    Writing,
    carry_out,
)

if TYPE_CHECKING:
    from types import TracebackType

    from finsy import GRPCCredentialsTLS

    from echelon.model.p4program import P4Program

_log = logging.getLogger(__name__)


# -- what sessions share ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DigestReport:
    """A list of digests."""

    fields: tuple[Mapping[str, int], ...]
    """The fields of each digest, by name."""
    received: object
    """The list as it came through the channel, by which it is acknowledged."""


class EntryCodec(Protocol):
    """A translation of an intent's entries to a channel's bytes."""

    @property
    def stages(self) -> Mapping[str, int]:
        """The stage of each table; see `EncodedEntry.stage`."""
        ...

    def spread(self, entry: TableEntry) -> Sequence[TableEntry]:
        """Return the entries that the channel needs for one of an intent, ready to be encoded."""
        ...

    def encode(self, entry: TableEntry) -> EncodedEntry:
        """Return the bytes of `entry`. Raise ValueError that names table and field."""
        ...

    def describe(self, entry: EncodedEntry) -> EntryText:
        """Describe an entry for people."""
        ...


@dataclass(slots=True)
class Tables:
    """The entries of a switch, except those that belong to its program."""

    ours: dict[bytes, EncodedEntry] = field(default_factory=dict)
    foreign: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class _Seconds:
    """The durations of the phases of a change, in seconds."""

    encoding: float = 0.0
    read: float = 0.0
    rpc: float = 0.0


def _nothing() -> None:
    """Do nothing."""


async def _encoded(turn: Turn) -> None:
    """Encode all new parts piece by piece, so that other switches get the event loop in between."""
    for _ in turn.new:
        await asyncio.sleep(0)


def _timed(chunks: Iterator[Chunk], seconds: _Seconds) -> Iterator[Chunk]:
    """Yield the same items, counting the time that it takes to make them."""
    while True:
        started = time.perf_counter()
        chunk = next(chunks, None)
        seconds.encoding += time.perf_counter() - started
        if chunk is None:
            return
        yield chunk


class IntentSession(ABC):
    """A session with one switch, which brings the switch to its intent.

    It is an async context manager, which is connected inside its block. Calls that read or write
    must not overlap; `digests`, `acknowledge`, `wait_lost` and `ping` may run beside them.

    Args:
        name: the switch's name, for messages.
        codec: translates entries.
        queues: the driver of the switch's queues (`echelon.switches.targets.Target.queue_driver`).
            Without one, an intent that configures queues is refused.
    """

    def __init__(
        self,
        name: str,
        codec: EntryCodec,
        queues: QueueDriver | None,
    ) -> None:
        self.name = name
        self._codec = codec
        self._queue_driver = queues
        self._queues_open = False
        self._wanted = self._new_wanted()
        self._held: dict[bytes, EncodedEntry] | None = None
        """Our entries on the switch, by key; None while unknown."""
        self._foreign: set[bytes] = set()
        self.differences: Counter[str] = Counter()
        """The number of repairs of the last `reconcile` by kind, without settings.

        What was refused before is left out, as it was never on the switch.
        """
        self._standing: dict[bytes, RefusedEntry] = {}
        """The entries that the switch refused to write or to delete, by key."""
        self._refused_settings = RefusedSettings(name)
        self._queues: dict[tuple[int, int], QueueSetting] = {}
        self._digests: dict[str, DigestSetting] = {}
        self._groups: dict[int, MulticastGroup] = {}

    async def marked(self) -> int:
        """Return how many entries with our mark the switch holds; 0 if that is not known.

        Call it before the session is opened.
        """
        return 0

    # -- the channel -------------------------------------------------------------------------------

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Open the session.

        Raise `SouthboundError` for a switch that cannot be reached or refuses the program, and
        `NotPrimaryError` for one that obeys another controller.
        """

    @abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    @abstractmethod
    async def wait_lost(self) -> SouthboundError:
        """Wait until the session is over, and return why.

        That is `NotPrimaryError` if another controller took over.
        """

    @abstractmethod
    async def ping(self, timeout_s: float) -> None:
        """Send one cheap RPC. Raise `SouthboundError` if the switch does not answer in time."""

    @abstractmethod
    async def bytes_seen(self, entries: Iterable[TableEntry]) -> dict[TableEntry, int]:
        """Return the direct byte counters of `entries`; 0 for what the switch does not hold."""

    @abstractmethod
    def digests(self, name: str) -> AsyncIterator[DigestReport]:
        """Yield digest lists as the switch sends them, oldest first.

        Raise `SouthboundError` when the session ends.
        """

    @abstractmethod
    async def acknowledge(self, report: DigestReport) -> None:
        """Acknowledge a list of digests. Raise `SouthboundError`."""

    @abstractmethod
    def _errors(self, action: str) -> AbstractContextManager[None]:
        """Turn whatever goes wrong between us and the switch into a `SouthboundError`."""

    @abstractmethod
    def _check_up(self) -> None:
        """Raise `SouthboundError` if the session is over."""

    @abstractmethod
    async def _read_all(self, expected: Mapping[bytes, EncodedEntry]) -> Tables:
        """Return every entry of every table except constant and default ones.

        Entries that are as `expected` cost least.
        """

    @abstractmethod
    async def _write(self, send: Send) -> None:
        """Write a batch. Raise `CallError`."""

    @abstractmethod
    async def _look_up(self, lookup: LookUp) -> Mapping[bytes, HeldEntry]:
        """Return what the switch holds under those keys."""

    @abstractmethod
    async def _read_digests(self, settings: Sequence[DigestSetting]) -> dict[str, DigestSetting]:
        """Return the settings of those digests that are in force."""

    @abstractmethod
    async def _write_digests(self, settings: Sequence[DigestSetting]) -> int:
        """Put settings into force; return how many changed."""

    @abstractmethod
    async def _read_groups(self) -> dict[int, MulticastGroup]:
        """Return our multicast groups, by number."""

    @abstractmethod
    async def _write_group(self, kind: UpdateKind, group: MulticastGroup) -> None:
        """Insert, modify or delete a multicast group."""

    @abstractmethod
    async def _open_queues(self, driver: QueueDriver) -> None:
        """Prepare the driver of the queues for this session, over the channel that it uses."""

    # -- intents -----------------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """The number of our table entries on the switch, as far as is known.

        It counts those of the last `reconcile` and what was written since.
        """
        return len(self._held or ())

    async def reconcile(
        self,
        intent: Intent,
        on_read: Callable[[], None] = _nothing,
    ) -> Applied:
        """Read what the switch holds, and write the difference. Raise `SouthboundError`.

        `on_read` is called in between.
        """
        with self._changing():
            started = time.perf_counter()
            await _encoded(self._wanted.turn_to(intent.parts))
            seconds = _Seconds(encoding=time.perf_counter() - started)
            self._check_up()
            is_replaced = await self._restore_program()
            tables = await self._read_all(self._wanted.by_key)
            self._refused_settings = RefusedSettings(self.name)
            settings = await self._read_settings(intent, self._refused_settings)
            self._queues, self._digests, self._groups = settings
            seconds.read = time.perf_counter() - started - seconds.encoding

            self._foreign = tables.foreign
            change = difference(tables.ours, self._wanted.by_key, tables.foreign)
            self.differences = self._numbers(change)
            if is_replaced:
                self.differences["programs replaced"] = 1
            self._standing = {}
            blocked = [Refusal(UpdateKind.INSERT, entry, FOREIGN) for entry in change.blocked]
            self._note_refused(blocked)
            writing = Writing(change.chunks(), tables.ours, deletes=bool(change.deletes))
            on_read()
            return await self._apply(intent, writing, tables.ours, seconds)

    def _numbers(self, change: Difference) -> Counter[str]:
        """Return how many entries of each table differ, but for those that are refused."""
        # Stages tell the tables of a hundred thousand entries without decoding any.
        tables = {stage: table for table, stage in self._codec.stages.items()}
        numbers = Counter[str]()
        for kind, entries in (
            ("missing in", change.inserts),
            ("changed in", change.modifies),
            ("added to", change.deletes),
        ):
            repaired = [entry.stage for entry in entries if entry.key not in self._standing]
            for stage, number in Counter(repaired).items():
                numbers[f"{kind} {tables[stage]}"] = number
        return numbers

    async def _restore_program(self) -> bool:
        """Push the program if somebody has replaced it, and return whether that is so."""
        return False

    async def foreign_writer(self) -> str | None:
        """Return who else wrote to the switch last. None: nobody, or its driver does not tell."""
        driver = self._queue_driver
        if not isinstance(driver, WriterWatcher):
            return None
        with self._errors("asking who writes"):
            await self._prepare(driver)
            return await driver.foreign_writer()

    async def _read_settings(self, intent: Intent, refused: RefusedSettings) -> _Settings:
        """Read the queues, digests and groups that an intent has something to say about."""
        queues: dict[tuple[int, int], QueueSetting] = {}
        digests: dict[str, DigestSetting] = {}
        groups: dict[int, MulticastGroup] = {}
        if intent.queues:
            with refused.noting(_QUEUES, queues=intent.queues):
                queues = await self._read_queues()
        with refused.noting(_DIGESTS):
            digests = await self._read_digests(intent.digests)
        if intent.groups is not None:
            with refused.noting(_GROUPS, _ports_of(intent.groups)):
                groups = await self._read_groups()
        # A session that is over has refused nothing.
        self._check_up()
        return queues, digests, groups

    async def update(self, intent: Intent) -> Applied:
        """Write what differs from the last `reconcile` or `update`, without reading.

        The cost is that of the parts that are not the same object as before. If nothing is known of
        what the switch holds (at first, and after an error), this is `reconcile`. Raise
        `SouthboundError`.
        """
        if self._held is None:
            return await self.reconcile(intent)
        held = self._held
        with self._changing():
            started = time.perf_counter()
            turn = self._wanted.turn_to(intent.parts)
            for key in turn.former:
                self._standing.pop(key, None)
            # A deletion may make room for an entry that was refused before.
            retried = list(self._standing) if turn.former else []
            seconds = _Seconds(encoding=time.perf_counter() - started)

            chunks = turned(turn, self._wanted.by_key, held, retried)
            writing = Writing(_timed(chunks, seconds), held, deletes=bool(turn.former))
            return await self._apply(intent, writing, held, seconds)

    async def compare(self, intent: Intent) -> Comparison:
        """Read what the switch holds; write nothing, and remember nothing of it.

        Raise `SouthboundError`.
        """
        wanted = self._new_wanted()
        await _encoded(wanted.turn_to(intent.parts))
        tables = await self._read_all(wanted.by_key)
        refused = RefusedSettings(self.name, raises=True)
        queues, digests, groups = await self._read_settings(intent, refused)

        change = difference(tables.ours, wanted.by_key, tables.foreign)
        missing = (*change.inserts, *change.modifies, *change.blocked)
        owners = wanted.owners({entry.key for entry in missing})

        def texts(entries: Iterable[EncodedEntry]) -> tuple[EntryText, ...]:
            described = []
            for entry in entries:
                text = self._codec.describe(entry)
                owner = owners.get(entry.key, "")
                described.append(replace(text, owner=owner))
            return tuple(described)

        return Comparison(
            texts(change.inserts),
            texts(change.modifies),
            texts(change.deletes),
            texts(change.blocked),
            len(tables.foreign),
            tuple(changed_queues(queues, intent.queues)),
            tuple(_changed_digests(digests, intent.digests)),
            _changed_groups(groups, intent),
        )

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Forget what the switch holds, and what of the intent is encoded, if the block raises."""
        self._held = None
        try:
            yield
        except BaseException:
            self._wanted = self._new_wanted()
            raise

    def _new_wanted(self) -> WantedEntries:
        return WantedEntries(self._codec.encode, self._codec.stages, self._codec.spread)

    async def _apply(
        self,
        intent: Intent,
        writing: Writing,
        held: dict[bytes, EncodedEntry],
        seconds: _Seconds,
    ) -> Applied:
        started = time.perf_counter()
        # Queues before entries: a packet must not enter a queue that is not yet what its class
        # expects.
        queues = await self._write_queues(intent.queues)
        digests = 0
        refused = self._refused_settings
        if _DIGESTS not in refused:
            with refused.noting(f"digests {', '.join(digest.name for digest in intent.digests)}"):
                digests = await self._write_digests(intent.digests)
        # A group exists before an entry names it, and goes when none does any more.
        groups = _changed_groups(self._groups, intent) if _GROUPS not in refused else ()
        group_count = 0
        for group in groups:
            if group.copies:
                group_count += await self._turn_group(group)
        with self._errors("writing tables"):
            await carry_out(writing, self._write, self._look_up)
        for group in groups:
            if not group.copies:
                group_count += await self._turn_group(group)
        self._check_up()
        seconds.rpc += time.perf_counter() - started

        for key in list(self._standing):
            if self._is_right(key, held):
                del self._standing[key]
        self._note_refused(writing.refused)
        self._held = held
        wanted_groups = {group.number for group in intent.groups or ()}
        has_left_groups = self._groups.keys() <= wanted_groups and _GROUPS not in refused
        return Applied(
            writing.done[UpdateKind.INSERT],
            writing.done[UpdateKind.MODIFY],
            writing.done[UpdateKind.DELETE],
            (
                *refused.all,
                *map(self._invalid, self._wanted.invalid),
                *self._standing.values(),
            ),
            has_left_groups and held.keys().isdisjoint(self._standing),
            len(self._foreign),
            queues,
            digests,
            group_count,
            seconds.encoding,
            seconds.read,
            seconds.rpc,
        )

    def _is_right(self, key: bytes, held: Mapping[bytes, EncodedEntry]) -> bool:
        wanted = self._wanted.by_key.get(key)
        held_entry = held.get(key)
        if wanted is None or held_entry is None:
            return wanted is held_entry
        return wanted.value == held_entry.value

    async def _turn_group(self, group: MulticastGroup) -> bool:
        """Bring a multicast group to its copies, and return whether the switch accepts that."""
        number = group.number
        kind = UpdateKind.MODIFY if number in self._groups else UpdateKind.INSERT
        if not group.copies:
            kind = UpdateKind.DELETE
        with self._refused_settings.noting(f"multicast group {number}", _ports_of([group])):
            await self._write_group(kind, group)
            if group.copies:
                self._groups[number] = group
            else:
                del self._groups[number]
            return True
        return False

    def _note_refused(self, refusals: Collection[Refusal]) -> None:
        if not refusals:
            return
        sources = self._wanted.sources({refusal.entry.key for refusal in refusals})
        for refusal in refusals:
            key = refusal.entry.key
            self._standing[key] = self._refused(refusal, sources.get(key))

    def _refused(self, refusal: Refusal, source: tuple[Part, TableEntry] | None) -> RefusedEntry:
        text = self._codec.describe(refusal.entry)
        status = refusal.status
        no_reason = f"the switch refuses to {refusal.kind.name.lower()} it, without a reason"
        code = GRPCStatusCode(status.code).name
        reason = status.message or no_reason
        job = None
        # An entry that the intent lacks serves nobody.
        ports: frozenset[int] | None = NOWHERE
        if source is not None:
            part, entry = source
            job = part.job
            ports = entry.ports or None
        return RefusedEntry(self.name, text.table, text.key, reason, code, job, ports)

    def _invalid(self, invalid: InvalidEntry) -> RefusedEntry:
        fields = [f"{name}={value_text(value)}" for name, value in invalid.entry.match]
        table = invalid.entry.table
        reason = invalid.reason.removeprefix(f"table {table}: ")
        return RefusedEntry(
            self.name,
            table,
            ", ".join(fields),
            reason,
            "INVALID_ARGUMENT",
            invalid.job,
            invalid.entry.ports or None,
        )

    async def _read_queues(self) -> dict[tuple[int, int], QueueSetting]:
        driver = self._queue_driver
        if driver is None:
            self._check_up()
            raise SouthboundError(
                f"switch {self.name}: its session has no queue driver (give it that of its target)"
            )
        with self._errors("reading queues"):
            await self._prepare(driver)
            return dict(await driver.read())

    async def queue_counts(self) -> Mapping[tuple[int, int], QueueCount]:
        """Return what has passed each queue, by (port, queue).

        It is empty if the switch's driver does not count.
        """
        driver = self._queue_driver
        with self._errors("reading counters of queues"):
            if not isinstance(driver, QueueCounter):
                return {}
            await self._prepare(driver)
            return await driver.counted()

    async def ports_down(self) -> AsyncGenerator[frozenset[int], None] | None:
        """Return what yields the ports that are down, at first and whenever they are others.

        It may run beside other calls. None: the switch's driver does not tell.
        """
        driver = self._queue_driver
        with self._errors("watching ports"):
            if not isinstance(driver, PortWatcher):
                return None
            await self._prepare(driver)
            return driver.ports_down()

    async def _prepare(self, driver: QueueDriver) -> None:
        """Open the driver before its first call of this session."""
        if not self._queues_open:
            await self._open_queues(driver)
            self._queues_open = True

    async def _write_queues(self, settings: Sequence[QueueSetting]) -> int:
        driver = self._queue_driver
        refused = self._refused_settings
        if driver is None or _QUEUES in refused:
            return 0
        return await QueueWriter(driver, self._queues, refused, self._errors).write(settings)


_QUEUES = "queues"
_DIGESTS = "digests"
_GROUPS = "multicast groups"
"""The names of settings that cannot be read, and so are not written."""

_Settings = tuple[
    dict[tuple[int, int], QueueSetting], dict[str, DigestSetting], dict[int, MulticastGroup]
]
"""The settings of a switch: queues by (port, queue), digests by name, and groups by number."""


def _ports_of(groups: Iterable[MulticastGroup]) -> frozenset[int]:
    """Return the ports to which multicast groups copy packets."""
    copies = chain.from_iterable(group.copies for group in groups)
    return frozenset(port for port, _ in copies)


def _changed_digests(
    held: Mapping[str, DigestSetting], wanted: Iterable[DigestSetting]
) -> list[DigestSetting]:
    return [setting for setting in wanted if held.get(setting.name) != setting]


def _changed_groups(
    held: Mapping[int, MulticastGroup], intent: Intent
) -> tuple[MulticastGroup, ...]:
    """Return the groups to write, each as it should be.

    One that the switch should not have has no copies.
    """
    if intent.groups is None:
        return ()
    wanted = {group.number: group for group in intent.groups}
    changed = [group for number, group in wanted.items() if held.get(number) != group]
    changed += [MulticastGroup(number, ()) for number in held if number not in wanted]
    return tuple(changed)


class SessionFactory(Protocol):
    """A maker of sessions with switches of one kind."""

    def __call__(
        self,
        name: str,
        address: str,
        device_id: int,
        program: P4Program,
        *,
        election_id: int | None = None,
        credentials: GRPCCredentialsTLS | None = None,
        owner: bytes = OWNER,
        queues: QueueDriver | None = None,
        connect: Connect | None = None,
    ) -> IntentSession:
        """Return a session that connects to nothing yet.

        Args:
            name: the switch's name, for messages.
            address: host:port of the service that holds its tables.
            device_id: the number by which that service knows the switch.
            program: what the switch is to run; it is pushed if the switch runs another program.
            election_id: the leader's; every later leader has a higher one. None: there is only one
                controller.
            credentials: TLS credentials; None means plain text.
            owner: marks our entries, where the switch can hold a mark; entries with another mark
                are left alone.
            queues: the driver of the switch's queues.
            connect: opens the connection; None: over sockets.
        """
        ...


# -- P4Runtime -------------------------------------------------------------------------------------

_FIRST_ID = 10
"""The election id that a session bids first if it is given none."""

_TAKEOVER_S = 5.0
"""The timeout for a switch to release its previous primary."""

_ANSWER_S = 10.0
"""The timeout of calls other than Read and Write."""

_DIGEST_QUEUE = 1 << 16
"""Maximum number of lists of one digest that wait to be handled; later ones are dropped."""

_ENTRIES_AT_ONCE = 1000
"""Number of entries to read before other tasks get the event loop."""

_OVERTAKEN = (GRPCStatusCode.ABORTED, GRPCStatusCode.RESOURCE_EXHAUSTED)
"""The statuses of a Read during which others have written too much; it is to be tried again."""
_READS_AGAIN = 2

_AT_WORK_S = 5.0
"""The longest time for which a switch that does not answer counts as busy with what was written."""

_COUNTED = 1 << 12
"""Number of entries to keep the encoding of whose counters were read."""

_WITH_COUNTER = b"\x3a\x00"
"""Field 7 of TableEntry, empty: in a query it asks for the direct counter."""

# The words of softswitch, BMv2 and Stratum.
_ID_IN_USE = re.compile(r"election id .*\b(?:used|exists)\b", re.IGNORECASE)
_NO_PROGRAM = re.compile(r"no .*\bforwarding pipeline config", re.IGNORECASE)

_UNREADABLE = (DecodeError, ValueError, TypeError, AttributeError, LookupError)
"""The errors that follow from an answer that is no message, or not of the right kind."""


class _OvertakenError(SouthboundError):
    """The error for a call that ended with one of `_OVERTAKEN`."""


class SwitchSession(IntentSession):
    """A primary controller's session with one switch over P4Runtime.

    Args:
        name: the switch's name, for messages.
        address: host:port of its P4Runtime service.
        device_id: the switch's number in that service.
        program: what the switch is to run; it is pushed if the switch runs another program.
        election_id: bid once, so that the session is primary with this id or fails. None: any id
            that wins while no other controller is connected. Either way, the session is over once
            another controller has a higher id.
        credentials: TLS credentials; None means plain text.
        owner: metadata of our entries; entries with another or none are not touched.
        queues: the driver of the switch's queues (`echelon.switches.targets.Target.queue_driver`).
            Without one, an intent that configures queues is refused.
        connect: opens the connection; None: over sockets.
    """

    _channel: P4RuntimeChannel
    _stream: MessageStream

    def __init__(
        self,
        name: str,
        address: str,
        device_id: int,
        program: P4Program,
        *,
        election_id: int | None = None,
        credentials: GRPCCredentialsTLS | None = None,
        owner: bytes = OWNER,
        queues: QueueDriver | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._connect = connect
        self._address = address
        self._device_id = device_id
        self._exact_id = election_id
        self._election_id = _FIRST_ID if election_id is None else election_id
        self._primary_id = 0
        self._credentials = credentials
        p4info = program.p4info.read_text("utf-8")
        self.schema = schema_of(p4info, program.binary.read_bytes())
        self.codec = codec_of(self.schema, owner)
        self._encode = lru_cache(_COUNTED)(self.codec.encode)
        self._follower: asyncio.Task[None] | None = None
        """The task that handles what comes by the stream; None before the session is open."""
        self._reports: dict[str, asyncio.Queue[DigestReport | None]] = {}
        """The lists of each digest that someone listens to; None ends them."""
        self._updates = 0
        """The number of updates under way."""
        self._tells_program = True
        """Whether the switch tells which program it runs, as far as is known."""
        self._lost = asyncio.Event()
        self._deposed: NotPrimaryError | None = None
        super().__init__(name, self.codec, queues)

    async def __aenter__(self) -> Self:
        self._channel = P4RuntimeChannel(self._address, self._credentials, self._connect)
        self._stream = self._channel.stream()
        try:
            await self._arbitrate()
            await self._restore_program()
        except BaseException:
            await self._close()
            raise
        self._follower = asyncio.create_task(self._follow(), name=f"switch {self.name}: stream")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        self._end()
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
        await self._channel.close()

    def _end(self) -> None:
        """End what goes through the stream: nobody writes, bids, or waits for digests any more."""
        self._lost.set()
        # BMv2 makes a backup primary when its primary leaves.
        self._stream.cancel()
        for reports in self._reports.values():
            reports.put_nowait(None)

    async def marked(self) -> int:
        channel = P4RuntimeChannel(self._address, self._credentials, self._connect)
        count = 0
        try:
            request = read_request(self._device_id, [b""])
            async with aclosing(channel.read(request)) as responses:
                async for response in responses:
                    for raw in table_entries(response):
                        decoded = self.codec.decode(raw)
                        if decoded is not None:
                            _, ours = decoded
                            count += ours
        except (CallError, *_UNREADABLE) as error:
            # It runs no program, or another one; a session will say what is wrong.
            _log.debug("switch %s: cannot be read: %s", self.name, error)
        finally:
            await channel.close()
        return count

    # -- stream and program ------------------------------------------------------------------------

    async def _arbitrate(self) -> None:
        """Bid until this session is primary. Raise `SouthboundError`."""
        try:
            update = await self._bid(self._election_id)
            with suppress(TimeoutError):
                async with asyncio.timeout(within(_TAKEOVER_S)):
                    # If the bid is fixed, being a backup is final.
                    while not self._learn_primary(update) and self._exact_id is None:
                        if update.status.code == GRPCStatusCode.NOT_FOUND:
                            # Where nobody is primary, whoever bids the highest id that the switch
                            # has seen becomes it.
                            update = await self._bid(self._primary_id)
                        else:
                            update = await self._next_update()
            if not self._learn_primary(update):
                raise self._not_primary()
        except CallError as error:
            raise self._no_session(error) from None
        except _UNREADABLE as error:
            raise self._unreadable("opening a session", error) from error

    async def _bid(self, election_id: int) -> p4r.MasterArbitrationUpdate:
        """Bid for the role of primary; return the answer. Raise `CallError`."""
        self._election_id = election_id
        claim = p4r.MasterArbitrationUpdate(
            device_id=self._device_id,
            election_id=U128.encode(election_id),
        )
        try:
            request = p4r.StreamMessageRequest(arbitration=claim)
            await self._stream.send(request.SerializeToString())
            return await self._next_update()
        except CallError as error:
            if self._exact_id is not None or not _is_in_use(error):
                raise
            # A backup hears when the place is free.
            self._stream = self._channel.stream()
            return await self._bid(election_id - 1)

    async def _next_update(self) -> p4r.MasterArbitrationUpdate:
        """Return what the switch says next of who is primary. Raise `CallError`."""
        while True:
            received = await self._stream.receive()
            message = p4r.StreamMessageResponse.FromString(received)
            if message.HasField("arbitration"):
                update: p4r.MasterArbitrationUpdate = message.arbitration
                return update

    def _learn_primary(self, update: p4r.MasterArbitrationUpdate) -> bool:
        """Note who is primary; return whether it is this session."""
        self._primary_id = U128.decode(update.election_id)
        # BMv2 answers OK to a backup whose primary has left: it is still a backup, under its own
        # id.
        is_ok = update.status.code == GRPCStatusCode.OK
        return is_ok and self._primary_id == self._election_id

    def _no_session(self, error: CallError) -> SouthboundError:
        where = f"switch {self.name}: no P4Runtime session at {self._address}"
        if self._exact_id is not None and _is_in_use(error):
            return NotPrimaryError(
                f"{where}: election id {self._exact_id} is in use; the switch may not have noticed"
                " yet that an earlier session ended",
                self._exact_id,
            )
        return SouthboundError(
            f"{where}: {error}; check address, device id, TLS files and election"
        )

    def _not_primary(self) -> NotPrimaryError:
        """Return the error for the current state of arbitration."""
        primary = self._primary_id
        if self._exact_id is None:
            advice = "stop that one first"
        else:
            advice = (
                f"this one has {self._exact_id} and leaves the switch to it; after one of both is"
                f" stopped, 'echelon switch take {self.name}' takes it back"
            )
        return NotPrimaryError(
            f"switch {self.name}: another controller is primary (election id {primary}); {advice}",
            primary,
        )

    async def _restore_program(self) -> bool:
        """Push the program, which empties the tables, unless the switch runs it.

        Raise `SouthboundError`.
        """
        try:
            is_ours = await self._cookie() == self.schema.p4cookie
            if is_ours or not self._tells_program:
                return False
            request = p4r.SetForwardingPipelineConfigRequest(
                device_id=self._device_id,
                election_id=U128.encode(self._election_id),
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=self.schema.get_pipeline_config(),
            )
            await self._channel.ask(
                "SetForwardingPipelineConfig", request.SerializeToString(), _ANSWER_S
            )
            # A switch that keeps no cookie would lose its entries at every audit.
            self._tells_program = await self._cookie() is not None
            return True
        except (CallError, OSError, *_UNREADABLE) as error:
            raise ProgramRefusedError(
                f"switch {self.name} at {self._address} does not take the P4 program: {error};"
                " check that it is built for this kind of switch"
            ) from None

    async def _cookie(self) -> int | None:
        """Return what identifies the program that the switch runs; None if it runs none."""
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            response_type=p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY,
        )
        try:
            answer = await self._channel.ask(
                "GetForwardingPipelineConfig", request.SerializeToString(), _ANSWER_S
            )
        except CallError as error:
            is_refused = error.status.code == GRPCStatusCode.FAILED_PRECONDITION
            if is_refused and _NO_PROGRAM.search(str(error)):
                return None
            raise
        config = p4r.GetForwardingPipelineConfigResponse.FromString(answer).config
        return config.cookie.cookie if config.HasField("cookie") else None

    async def _follow(self) -> None:
        """Handle what comes by the stream until the session is over."""
        try:
            while self._deposed is None:
                received = await self._stream.receive()
                self._handle(p4r.StreamMessageResponse.FromString(received))
        except (CallError, *_UNREADABLE) as error:
            _log.debug("switch %s: the stream has ended: %s", self.name, error)
        finally:
            self._end()

    def _handle(self, message: p4r.StreamMessageResponse) -> None:
        match message.WhichOneof("update"):
            case "arbitration":
                if not self._learn_primary(message.arbitration):
                    self._deposed = self._not_primary()
            case "digest":
                self._report(message)
            case "error":
                _log.error("switch %s: refuses a message: %s", self.name, message.error.message)

    def _report(self, message: p4r.StreamMessageResponse) -> None:
        try:
            received = P4DigestList.decode(message, self.schema)
        except ValueError as error:
            _log.warning("switch %s: a list of digests cannot be read: %s", self.name, error)
            return
        reports = self._reports.get(received.digest_id)
        if reports is not None and reports.qsize() < _DIGEST_QUEUE:
            digests = tuple(cast(Mapping[str, int], data) for data in received)
            reports.put_nowait(DigestReport(digests, received))

    async def wait_lost(self) -> SouthboundError:
        await self._lost.wait()
        return self._why_lost()

    def _why_lost(self) -> SouthboundError:
        return self._deposed or SouthboundError(
            f"switch {self.name}: the session at {self._address} is closed or broken"
        )

    async def ping(self, timeout_s: float) -> None:
        self._check_up()
        try:
            try:
                async with patience(timeout_s):
                    await self._channel.ping()
            except TimeoutError:
                if not self._updates:
                    raise
                # It is at work on what was written, perhaps since it was asked.
                more_s = min(UPDATE_TIMEOUT_S * self._updates, _AT_WORK_S)
                timeout_s += more_s
                async with patience(more_s):
                    await self._channel.ping()
        except (CallError, TimeoutError) as error:
            reason = str(error) or "it may be stuck"
            raise SouthboundError(
                f"switch {self.name}: no answer at {self._address} within {timeout_s:g} s: {reason}"
            ) from None

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        self._check_up()
        try:
            yield
        except CallError as error:
            raise self._failed(action, error.status.code, error.status.message) from None
        except GNMIClientError as error:
            raise self._failed(action, error.code, error.message) from None
        except _UNREADABLE as error:
            raise self._unreadable(action, error) from error

    def _unreadable(self, action: str, error: Exception) -> SouthboundError:
        return SouthboundError(
            f"switch {self.name} at {self._address}: {action}: an answer cannot be read"
            f" ({type(error).__name__}: {error}); check what is behind that address"
        )

    @asynccontextmanager
    async def _calling(self, action: str) -> AsyncIterator[None]:
        with self._errors(action):
            async with deadline(_ANSWER_S, self.name, action):
                yield

    def _failed(
        self,
        action: str,
        code: int,
        reason: str,
    ) -> SouthboundError:
        if self._deposed is not None:
            return self._deposed
        if code == GRPCStatusCode.PERMISSION_DENIED:
            text = f"switch {self.name}: {action} refused: {reason}; another controller is primary"
            return NotPrimaryError(text, self._primary_id)
        kind = _OvertakenError if code in _OVERTAKEN else SouthboundError
        return kind(f"switch {self.name}: {action} refused: {reason} [{GRPCStatusCode(code).name}]")

    def _check_up(self) -> None:
        if self._follower is None or self._lost.is_set():
            raise self._why_lost()

    # -- entries -----------------------------------------------------------------------------------

    async def _read_all(self, expected: Mapping[bytes, EncodedEntry]) -> Tables:
        # The switch has refused nothing of the intent, and the session has no fault.
        for _ in range(_READS_AGAIN):
            with suppress(_OvertakenError):
                return await self._read_tables(expected)
        return await self._read_tables(expected)

    async def _read_tables(self, expected: Mapping[bytes, EncodedEntry]) -> Tables:
        tables = Tables()
        by_wire = {entry.wire: entry for entry in expected.values()}
        async for raw in self._read([b""]):
            entry = by_wire.get(raw)
            if entry is not None:
                tables.ours[entry.key] = entry
                continue
            decoded = self.codec.decode(raw)
            if decoded is None:
                continue
            entry, ours = decoded
            if ours:
                tables.ours[entry.key] = entry
            else:
                tables.foreign.add(entry.key)
        return tables

    async def _read(self, queries: Iterable[bytes]) -> AsyncIterator[bytes]:
        """Yield the serialized entries that serialized TableEntry messages select."""
        request = read_request(self._device_id, queries)
        with self._errors("reading tables"):
            async with aclosing(self._channel.read(request)) as responses:
                async for response in responses:
                    # BMv2 sends all in one response, which must not keep other switches waiting.
                    for number, raw in enumerate(table_entries(response), start=1):
                        yield raw
                        if not number % _ENTRIES_AT_ONCE:
                            await asyncio.sleep(0)

    async def _write(self, send: Send) -> None:
        self._check_up()
        kind = send.kind
        entries = send.entries
        if kind is UpdateKind.DELETE:
            raw = [entry.key for entry in entries]
        else:
            raw = [entry.wire for entry in entries]
        header = write_header(self._device_id, self._election_id)
        request = write_request(header, kind, raw)
        self._updates += len(raw)
        try:
            await self._channel.write(request, len(raw))
        finally:
            self._updates -= len(raw)

    async def _look_up(self, lookup: LookUp) -> Mapping[bytes, HeldEntry]:
        held = {}
        async for raw in self._read([entry.key for entry in lookup.entries]):
            decoded = self.codec.decode(raw)
            if decoded is not None:
                entry, ours = decoded
                held[entry.key] = HeldEntry(entry, ours)
        return held

    async def bytes_seen(self, entries: Iterable[TableEntry]) -> dict[TableEntry, int]:
        by_key = {self._encode(entry).key: entry for entry in entries}
        seen = dict.fromkeys(by_key.values(), 0)
        self._check_up()
        if not by_key:
            return seen
        async for raw in self._read([key + _WITH_COUNTER for key in by_key]):
            message = p4r.TableEntry.FromString(raw)
            key = self.codec.of_message(message).key
            entry = by_key.get(key)
            if entry is not None:
                seen[entry] = message.counter_data.byte_count
        return seen

    # -- queues and digests ------------------------------------------------------------------------

    async def _open_queues(self, driver: QueueDriver) -> None:
        gnmi = GNMIClient(self._address)
        await gnmi.open(channel=self._channel.grpc)
        async with deadline(_ANSWER_S, self.name, "opening gNMI"):
            try:
                await gnmi.capabilities()
            except GNMIClientError as error:
                if error.code != GRPCStatusCode.UNIMPLEMENTED:
                    raise
                await driver.open(None)
            else:
                await driver.open(gnmi)

    async def _read_digests(self, settings: Sequence[DigestSetting]) -> dict[str, DigestSetting]:
        held: dict[str, DigestSetting] = {}
        for setting in settings:
            query = P4DigestEntry(setting.name).encode(self.schema)
            async with self._calling("reading digests"):
                try:
                    entities = await self._read_entities(query)
                except CallError as error:
                    # PI answers so for a digest that was not configured; the specification says to
                    # answer with nothing.
                    if "not configured" not in str(error):
                        raise
                    continue
                for entity in entities:
                    entry = decode_entity(entity, self.schema)
                    held[entry.digest_id] = DigestSetting(
                        entry.digest_id,
                        entry.max_list_size,
                        entry.max_timeout_ns,
                        entry.ack_timeout_ns,
                    )
        return held

    async def _write_digests(self, settings: Sequence[DigestSetting]) -> int:
        changed = _changed_digests(self._digests, settings)
        for setting in changed:
            exists = setting.name in self._digests
            kind = UpdateKind.MODIFY if exists else UpdateKind.INSERT
            async with self._calling(f"digest {setting.name}"):
                await self._write_entity(kind, encode_digest(setting, self.schema))
            self._digests[setting.name] = setting
        return len(changed)

    async def _read_groups(self) -> dict[int, MulticastGroup]:
        groups = {}
        async with self._calling("reading multicast groups"):
            query = P4MulticastGroupEntry().encode(self.schema)
            for entity in await self._read_entities(query):
                entry = entity.packet_replication_engine_entry.multicast_group_entry
                number = entry.multicast_group_id
                if number >= FIRST_GROUP:
                    copies = [(_port_of(replica), replica.instance) for replica in entry.replicas]
                    groups[number] = MulticastGroup(number, tuple(sorted(copies)))
        return groups

    async def _write_group(self, kind: UpdateKind, group: MulticastGroup) -> None:
        entry = P4MulticastGroupEntry(group.number, replicas=group.copies)
        async with self._calling(f"multicast group {group.number}"):
            await self._write_entity(kind, entry.encode(self.schema))

    async def _read_entities(self, query: p4r.Entity) -> list[p4r.Entity]:
        """Return the entities, other than table entries, that `query` selects."""
        request = p4r.ReadRequest(
            device_id=self._device_id,
            entities=[query],
        )
        entities: list[p4r.Entity] = []
        async with aclosing(self._channel.read(request.SerializeToString())) as responses:
            async for response in responses:
                entities += p4r.ReadResponse.FromString(response).entities
        return entities

    async def _write_entity(self, kind: UpdateKind, entity: p4r.Entity) -> None:
        header = write_header(self._device_id, self._election_id)
        request = p4r.WriteRequest.FromString(header)
        request.updates.add(
            type=int(kind),
            entity=entity,
        )
        await self._channel.write(request.SerializeToString(), 1)

    async def digests(self, name: str) -> AsyncIterator[DigestReport]:
        self._check_up()
        reports = self._reports[name] = asyncio.Queue()
        try:
            while (report := await reports.get()) is not None:
                yield report
            raise self._why_lost()
        finally:
            del self._reports[name]

    async def acknowledge(self, report: DigestReport) -> None:
        received = cast(P4DigestList, report.received)
        async with self._calling("acknowledgement of digests"):
            acknowledgement = received.ack().encode_update(self.schema)
            await self._stream.send(acknowledgement.SerializeToString())


def _port_of(replica: p4r.Replica) -> int:
    """Return a replica's port: older switches give it as a number, newer ones as bytes."""
    return replica.egress_port or int.from_bytes(replica.port, "big")


def _is_in_use(error: CallError) -> bool:
    """Return whether a switch refused an election id because another stream has it."""
    if error.status.code != GRPCStatusCode.INVALID_ARGUMENT:
        return False
    return _ID_IN_USE.search(str(error)) is not None
