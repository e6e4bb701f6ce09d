"""The programs that both switches run, each with the stimuli that must be kept from it.

BMv2's release build leaves the following undefined, so that a difference there says nothing:

* an index at or beyond the end of a register, counter or meter array (`primitives.cpp` checks it in
  debug builds only);
* fields that nothing assigned since their header became valid: BMv2 reuses packet state and shows
  an older packet's bits, P4 says that the value is undefined;
* a variable length of 2**31 bits or more (taken for a negative one), a hash reduced by 2**64 or
  more (by 0);
* a failed `assert` (ends the process), a packet resubmitted or recirculated for ever (is forwarded
  for ever).

And these differ by nature: the time stamps and queue depths a program sees, meters once they are
configured, `random`.

Our own programs avoid all of that. Programs written for other tests ask for some of it by a field
of the packet; such a program's `steer` replaces the offending packets by harmless ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from finsy.proto import p4i
from google.protobuf import text_format  # type: ignore[import-untyped]

from softswitch import ir
from softswitch.load import load_ir

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BORROWED = ROOT / "tests" / "softswitch" / "programs"

Steer = Callable[[bytes], bytes]


def _as_it_is(data: bytes) -> bytes:
    return data


@dataclass(frozen=True)
class Subject:
    """A program under test: its compiled form, and `steer`, which maps a packet to one that may be
    compared.

    `unwritten` names tables that get no entries, because what they do depends on the time.
    """

    name: str
    json: bytes = field(repr=False)
    p4info: p4i.P4Info = field(repr=False)
    steer: Steer = _as_it_is
    unwritten: frozenset[str] = frozenset()

    @property
    def program(self) -> ir.ProgramIR:
        return _ir(self.json, self.name)

    @property
    def loops(self) -> bool:
        """Whether egress sends packets back to a queue (clones) or to ingress (recirculated ones).

        BMv2's ingress and its four egress workers are threads: where such a packet comes among
        others is chance.
        """
        looping = ("recirculate", "clone_egress_pkt_to_egress")
        return any(
            call.op in looping for action in self.program.actions.values() for call in action.body
        )

    @property
    def races(self) -> bool:
        """Whether a packet's fate may depend on how close behind another it comes; BMv2 then gets
        one at a time.

        So it is where the program loops, and where egress uses registers.
        """
        return self.loops or any(
            call.op in ("register_read", "register_write")
            for action in _actions(self.program, self.program.egress)
            for call in action.body
        )


def _actions(program: ir.ProgramIR, pipeline: ir.PipelineSpec) -> list[ir.Action]:
    numbers: set[int] = set()
    for node in pipeline.nodes.values():
        if isinstance(node, ir.TableSpec):
            numbers.update(node.actions)
        elif isinstance(node, ir.DirectCall):
            numbers.add(node.action)
    return [program.actions[number] for number in numbers]


@cache
def _ir(source: bytes, name: str) -> ir.ProgramIR:
    return load_ir(source, name)


def _whole(length: int) -> Steer:
    """Return a steer for programs that read a header without checking its validity: its `length`
    bytes are always there.
    """
    return lambda data: data.ljust(length, b"\0")


def _stateful(data: bytes) -> bytes:
    """Return a packet for `stateful.p4` with indices below 10 and 4 and short loops.

    It asks for no random number (8) and no signed register (16, see `deviations`).
    """
    data = data.ljust(17, b"\0")
    ask = data[0] % 16
    if ask == 8:
        ask = 2
    index = int.from_bytes(data[1:5], "big")
    index %= {3: 4, 4: 4, 9: 40}.get(ask, 10 if ask < 3 else 1 << 32)
    return bytes([ask]) + index.to_bytes(4, "big") + data[5:]


def _replication(data: bytes) -> bytes:
    """Return a packet for `replication.p4` without a failing assertion (12) or endless resubmission
    (13).
    """
    data = data.ljust(13, b"\0")
    ask = data[0] % 18
    return bytes([1 if ask in (12, 13) else ask]) + data[1:]


_TIMED = frozenset(
    {"EchelonIngress.virtual_queue.virtual_queue", "EchelonIngress.by_deadline.period"}
)
"""Tables of our program: its virtual queue drains with time, and packets of relative rankings carry
an age. (`make ptf` compares those on both switches.) What else it makes of the time (slack, gaps)
is compared with random numbers of 32 bits, microseconds: the two switches' clocks are too close for
that to come out differently."""

_BORROWED: dict[str, Steer] = {
    "arithmetic": _whole(22),
    "checksums": _whole(20),
    "matching": _whole(10),
    "replication": _replication,
    "stateful": _stateful,
}


def names() -> list[str]:
    """Return the names of all programs, in order."""
    return sorted(
        [
            *_BORROWED,
            "echelon",
            "everything",
            *(path.stem for path in (HERE / "programs").glob("*.p4")),
        ]
    )


@cache
def subject(name: str) -> Subject:
    """Return the program of that name. Raises KeyError if there is none."""
    if name in _BORROWED:
        return _load(
            name,
            BORROWED / f"{name}.json",
            HERE / "programs" / f"{name}.p4info.txtpb",
            _BORROWED[name],
        )
    if name == "everything":
        beside = ROOT / "tests" / "softswitch" / "p4runtime"
        return _load(
            name, beside / "everything.json", beside / "everything.p4info.txtpb", _whole(14)
        )
    if name == "echelon":
        built = ROOT / "p4src" / "build" / "v1model"
        return replace(
            _load(name, built / "echelon.json", built / "echelon.p4info.txtpb", _as_it_is),
            unwritten=_TIMED,
        )
    if name not in names():
        raise KeyError(f"there is no program {name!r} here; programs: {', '.join(names())}")
    own = HERE / "programs" / name
    return _load(name, own.with_suffix(".json"), own.with_suffix(".p4info.txtpb"), _as_it_is)


def _load(name: str, json: Path, p4info: Path, steer: Steer) -> Subject:
    described = text_format.Parse(p4info.read_text(), p4i.P4Info())
    # BMv2's P4Runtime server refuses a P4Info with a value set, or with a digest of anything but
    # unsigned numbers.
    described.ClearField("value_sets")
    described.ClearField("digests")
    return Subject(name, json.read_bytes(), described, steer)
