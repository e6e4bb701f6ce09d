"""What a P4Runtime server has to do, one check each, and the switch that it is asked of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from finsy.proto import p4i, p4r
from google.protobuf import text_format  # type: ignore[import-untyped]

from tests.conformance.session import QUIET_S, AnswerError, Session, code_of
from tests.conformance.switches import started
from tests.softswitch.p4runtime.conftest import Everything

OK = 0
UNKNOWN = 2
INVALID = 3
NOT_FOUND = 5
EXISTS = 6
DENIED = 7
EXHAUSTED = 8
PRECONDITION = 9
ABORTED = 10
OUT_OF_RANGE = 11
UNIMPLEMENTED = 12

NEXT_HOPS = Path(__file__).parent / "programs" / "next_hops"


class Program(Everything):
    """A program with its P4Info; `everything.p4` unless a file says otherwise."""

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()
        if path is not None:
            text = path.with_suffix(".p4info.txtpb").read_text()
            self.p4info = text_format.Parse(text, p4i.P4Info())
            self.json = path.with_suffix(".json").read_bytes()
            self.ids = {}
            for description, entities in self.p4info.ListFields():
                if description.name not in ("pkg_info", "type_info"):
                    for entity in entities:
                        self.ids[entity.preamble.alias] = entity.preamble.id

    def untranslated(self) -> None:
        """Let the controller see ports as the program does, by 9 bits."""
        for part in self.parts_of_type("port_id_t"):
            part.ClearField("type_name")
            part.bitwidth = 9
        self.p4info.type_info.new_types.clear()

    def parts_of_type(self, name: str) -> list[Any]:
        """Return the match fields, parameters and metadata of a type."""
        typed: list[Any] = []
        for table in self.p4info.tables:
            typed += table.match_fields
        for action in self.p4info.actions:
            typed += action.params
        for header in self.p4info.controller_packet_metadata:
            typed += header.metadata
        return [part for part in typed if part.type_name.name == name]

    def deletion(self, entity: Any) -> Any:
        return p4r.Update(type=p4r.Update.DELETE, entity=entity)

    def without(self, *kinds: str) -> None:
        """Leave kinds of entities out of the P4Info, which BMv2 refuses as a whole otherwise."""
        for kind in kinds:
            self.p4info.ClearField(kind)  # type: ignore[arg-type]


@cache
def program(switch: str, name: str) -> Program:
    """Return a program as a switch takes it."""
    if name == "everything":
        loaded = Program()
    else:
        loaded = Program(NEXT_HOPS)
    if name == "router":
        loaded.untranslated()
    if switch == "bmv2" and name == "everything":
        loaded.without("value_sets", "digests")
    return loaded


@dataclass
class Trial:
    """A requirement's switch: with a primary, and a program that has just been set."""

    name: str
    address: str
    program: Program
    session: Session
    opened: list[Session] = field(default_factory=list)

    # -- what checks say ---------------------------------------------------------------------------

    def do(self, kind: str, *texts: str) -> None:
        """Write updates that the switch has to accept."""
        updates = [self.program.update(kind, text) for text in texts]
        codes = self.session.codes(updates)
        if any(codes):
            raise AnswerError(f"{kind}: {codes}")

    def refused(self, kind: str, text: str, *codes: int) -> None:
        """Write an update that the switch has to refuse with one of the codes."""
        self.refused_update(self.program.update(kind, text), *codes)

    def refused_update(self, update: Any, *codes: int) -> None:
        (code,) = self.session.codes([update])
        if code not in codes:
            raise AnswerError(f"{p4r.Update.Type.Name(update.type)}: status {code}, not {codes}")

    def read(self, *texts: str) -> list[Any]:
        return self.session.read(*(self.program.entity(text) for text in texts))

    def same(self, *texts: str) -> None:
        """Read entities that have to come back as they were written."""
        for text in texts:
            written = self.program.entity(text)
            read = self.session.read(written)
            if [_ordered(entity) for entity in read] != [_ordered(written)]:
                answer = " ".join(str(read).split())
                raise AnswerError(f"read {answer[:150]}")

    def holds(self, fact: object, words: str) -> None:
        if not fact:
            raise AnswerError(words)

    def ends(self, call: Callable[[], Any], *codes: int) -> None:
        """Make a call that has to end with one of the codes."""
        code = code_of(call)
        if code not in codes:
            raise AnswerError(f"status {code}, not {codes}")

    def open(self, above: int, role: str = "", config: Any = None) -> Session:
        """Open one more stream, with an election id so much above (or below) that of the first."""
        election_id = (self.session.election_id or 0) + above
        session = Session(self.address, election_id, role, config)
        self.opened.append(session)
        return session

    def bare(self) -> Session:
        """Return a session without a stream."""
        session = Session(self.address, None)
        self.opened.append(session)
        return session

    def using(self, name: str) -> Trial:
        """Return the trial with another program set."""
        other = program(self.name, name)
        self.session.pipeline("VERIFY_AND_COMMIT", other.config())
        return replace(self, program=other)

    def program_named(self, name: str) -> Program:
        return program(self.name, name)

    def using_flood(self) -> Trial:
        """Return the trial with the router, whose neighbours refer to multicast groups."""
        other = Program(NEXT_HOPS)
        other.untranslated()
        for table in other.p4info.tables:
            if table.preamble.alias == "neighbor_table":
                reference = "@refers_to(builtin::multicast_group_table, multicast_group_id)"
                table.match_fields[0].annotations[:] = [reference]
        self.session.pipeline("VERIFY_AND_COMMIT", other.config())
        return replace(self, program=other)

    def using_strings(self) -> Trial:
        """Return the trial with the router, whose ports are then strings of the controller."""
        other = Program(NEXT_HOPS)
        port = other.p4info.type_info.new_types["port_id_t"].translated_type
        port.sdn_string.SetInParent()
        for part in other.parts_of_type("port_id_t"):
            part.bitwidth = 0
        self.session.pipeline("VERIFY_AND_COMMIT", other.config())
        return replace(self, program=other)

    @contextmanager
    def empty(self) -> Iterator[Trial]:
        """Yield a trial of a switch that never had a program."""
        with started(self.name) as address:
            trial = replace(self, address=address, session=Session(address), opened=[])
            try:
                yield trial
            finally:
                trial.close()

    def packet(self, payload: bytes, *metadata: bytes) -> None:
        """Send a packet-out."""
        message = p4r.StreamMessageRequest()
        message.packet.payload = payload
        for number, value in enumerate(metadata, 1):
            message.packet.metadata.add(metadata_id=number, value=value)
        self.session.send(message)

    def is_quiet_of(self, kind: str) -> bool:
        """Return whether no message of a kind comes for a while."""
        while True:
            message = self.session.next(QUIET_S)
            if message is None:
                return True
            if message.WhichOneof("update") == kind:
                return False

    def packet_in(self) -> Any:
        """Return the next packet-in."""
        message = self.session.receive("packet")
        if not hasattr(message, "packet"):
            raise AnswerError(f"the stream ended: {message}")
        return message.packet

    def close(self) -> None:
        for session in (*self.opened, self.session):
            session.close()


def _ordered(entity: Any) -> Any:
    """Return an entity whose replicas are in order: P4Runtime has none."""
    copy = p4r.Entity()
    copy.CopyFrom(entity)
    replication = copy.packet_replication_engine_entry
    kind = (
        replication.WhichOneof("type") if copy.HasField("packet_replication_engine_entry") else None
    )
    if kind:
        replicas = getattr(replication, kind).replicas
        replicas.sort(key=lambda replica: (replica.egress_port, replica.instance))
    return copy


Check = Callable[[Trial], None]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement: its number in 4ward's list, the part of the specification, and a check."""

    number: str
    part: str
    words: str
    check: Check
    extension: bool = False
    """Whether it goes beyond the specification."""
    extra: bool = False
    """Whether 4ward counts it as refused or out of scope."""


REQUIREMENTS: list[Requirement] = []
_ELECTIONS = count(1000, 100)


def requires(
    number: str,
    part: str,
    words: str,
    *,
    extension: bool = False,
    extra: bool = False,
) -> Callable[[Check], Check]:
    """Return a decorator that adds a check to the list."""

    def add(check: Check) -> Check:
        REQUIREMENTS.append(Requirement(number, part, words, check, extension, extra))
        return check

    return add


def verdict(requirement: Requirement, name: str, address: str) -> str | None:
    """Return what a switch answered that a requirement does not allow; None: it is met."""
    import grpc  # type: ignore[import-untyped]

    # A stream that has just been closed may still be known: each primary is a higher one.
    trial = Trial(name, address, program(name, "everything"), Session(address, next(_ELECTIONS)))
    try:
        if not trial.session.is_primary:
            return "the session is not the primary"
        trial.session.pipeline("VERIFY_AND_COMMIT", trial.program.config())
        requirement.check(trial)
    except AnswerError as answer:
        return str(answer)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    finally:
        trial.close()
    return None


def asked(name: str, requirements: list[Requirement]) -> Iterator[tuple[Requirement, str | None]]:
    """Yield each requirement with what a switch answers that it does not allow; None: it is met.

    BMv2 is started anew for each: after a pipeline that it cannot load, it takes no other.
    """
    if name == "bmv2":
        for requirement in requirements:
            with started(name) as address:
                yield requirement, verdict(requirement, name, address)
        return
    with started(name) as address:
        for requirement in requirements:
            yield requirement, verdict(requirement, name, address)
