"""The local variables of a packet's headers and metadata, and how they are read from and written to bytes.

A header is a sequence of byte runs. The layout holds a run in one of four ways: as the integers of its fields if the
program touches one of them, as one integer if only checksums read it, as the packet's bytes if the header has to be
rebuilt, and otherwise not at all. Fields that are read but never written are held beside the integer that contains
them, which checksums and the deparser use. A field that is only ever written, as a MAC address often is, is held as the
bytes to be sent if no word has its size. A header that never changes is sent as the bytes that were received.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from softswitch import ir
from softswitch.errors import ProgramError

from .source import Names
from .usage import Usage, byte_runs

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_DECISIVE = ("egress_spec", "mcast_grp", "priority")
"""The fields that the switch itself reads to decide where a packet goes."""


class Held(Enum):
    """The way in which a byte run is held."""

    NOT = "not"
    RAW = "raw"
    WHOLE = "whole"
    FIELDS = "fields"
    SPLIT = "split"
    BYTES = "bytes"
    VARBIT = "varbit"


@dataclass(frozen=True, slots=True)
class FieldRun:
    """Consecutive fields that begin and end at byte boundaries; ``size`` is in bytes."""

    fields: tuple[ir.Field, ...]
    size: int
    held: Held


@dataclass(slots=True)
class HeaderVars:
    """The variables of one header: its validity, the offset of its bytes if it never changes, the values of its
    runs."""

    header: ir.Header
    runs: tuple[FieldRun, ...]
    dirty: bool
    valid: str
    offset: str
    names: list[tuple[str, ...]]
    by_field: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return the length of the fixed part in bytes."""
        return self.header.type.width // 8

    @property
    def varbit(self) -> str | None:
        return next((n[0] for run, n in zip(self.runs, self.names, strict=True) if run.held is Held.VARBIT), None)

    def variables(self) -> list[str]:
        """Return the variables of all fields in order, for a layout that holds each field."""
        return [
            name
            for run, names in zip(self.runs, self.names, strict=True)
            for name in (names[1:] if run.held is Held.SPLIT else names)
        ]

    def values(self) -> list[tuple[str, str]]:
        """Return (variable, value of an invalid header) for everything but validity and offset."""
        found = []
        for run, names in zip(self.runs, self.names, strict=True):
            if run.held in (Held.RAW, Held.BYTES):
                found.append((names[0], f"_zero{run.size}"))
            elif run.held is Held.VARBIT:
                found.append((names[0], 'b""'))
            else:
                found += [(name, "0") for name in names]
        return found


class Layout:
    """The variables of every header and metadata field of a program."""

    def __init__(self, program: ir.ProgramIR, usage: Usage, names: Names) -> None:
        self.program = program
        self.usage = usage
        self.headers: dict[str, HeaderVars] = {}
        self.metadata: dict[tuple[str, str], str] = {}
        self.next_index: dict[str, str] = {}
        self.zeros: set[int] = set()
        self.bounds: dict[tuple[str, str], tuple[int, int]] = {}
        """The bounds of metadata fields that are narrower than the field's width."""
        self.sums: dict[str, str] = {}
        """The variable, by calculation, in which ingress leaves the sum of its unwritten fields for egress."""
        decisive = {(r.header, r.field) for name, r in program.intrinsics.items() if name in _DECISIVE}
        for members in usage.members().values():
            kept = self._plan(members)
            for name in members:
                header = program.headers[name]
                if header.metadata:
                    for f in header.type.fields:
                        if (name, f.name) in usage.read or (name, f.name) in decisive or f.varbit:
                            self.metadata[name, f.name] = names.new(*_spoken(name, f.name))
                elif kept is not None:
                    self.headers[name] = self._variables(header, *kept, names)
        for name in (*program.stacks, *program.union_stacks):
            self.next_index[name] = names.new(name, "next")

    def _plan(self, members: list[str]) -> tuple[tuple[FieldRun, ...], bool] | None:
        usage = self.usage
        headers = [self.program.headers[name] for name in members]
        if all(h.metadata for h in headers):
            return None
        if len({h.type.fields for h in headers}) != 1:
            names = ", ".join(f"'{h.name}'" for h in headers)
            raise ProgramError(f"headers {names}", "are assigned or compared to each other but have different fields")
        # Nothing behind a variable-length field has a fixed offset, so such a header is always rebuilt.
        dirty = any(name in usage.dirty for name in members) or any(f.varbit for f in headers[0].type.fields)
        runs = []
        for fields in byte_runs(headers[0].type):
            if fields[0].varbit:
                runs.append(FieldRun(fields, 0, Held.VARBIT))
                continue
            size = sum(f.width for f in fields) // 8
            read = any((n, f.name) in usage.read for n in members for f in fields)
            written = any((n, f.name) in usage.written for n in members for f in fields)
            spans = any((n, tuple(f.name for f in fields)) in usage.spans for n in members)
            if read and not written and len(fields) > 1 and (dirty or spans):
                held = Held.SPLIT
            elif written and not read and len(fields) == 1 and not fields[0].signed and size not in _CODES:
                held = Held.BYTES
            elif read or written:
                held = Held.FIELDS
            elif spans:
                held = Held.WHOLE
            else:
                held = Held.RAW if dirty else Held.NOT
            if runs and held is runs[-1].held and held in (Held.RAW, Held.NOT):
                runs[-1] = FieldRun(runs[-1].fields + fields, runs[-1].size + size, held)
            else:
                runs.append(FieldRun(fields, size, held))
        self.zeros.update(run.size for run in runs if run.held in (Held.RAW, Held.BYTES))
        return tuple(runs), dirty

    @staticmethod
    def _variables(header: ir.Header, runs: tuple[FieldRun, ...], dirty: bool, names: Names) -> HeaderVars:
        per_run: list[tuple[str, ...]] = []
        by_field: dict[str, str] = {}
        for i, run in enumerate(runs):
            if run.held is Held.NOT:
                per_run.append(())
            elif run.held in (Held.RAW, Held.WHOLE):
                per_run.append((names.new(header.name, f"bytes{i}"),))
            else:
                own = tuple(names.new(header.name, f.name) for f in run.fields)
                by_field |= {f.name: n for f, n in zip(run.fields, own, strict=True)}
                per_run.append((names.new(header.name, f"bytes{i}"), *own) if run.held is Held.SPLIT else own)
        valid, offset = names.new(header.name, "valid"), names.new(header.name, "offset")
        return HeaderVars(header, runs, dirty, valid, offset, per_run, by_field)

    def variable(self, header: str, field_name: str) -> str | None:
        """Return the variable of a field, None for metadata that the program never reads."""
        if self.program.headers[header].metadata:
            return self.metadata.get((header, field_name))
        return self.headers[header].by_field[field_name]

    def held(self, header: str, field_name: str) -> FieldRun:
        """Return the run that contains a header's field."""
        return next(r for r in self.headers[header].runs if any(f.name == field_name for f in r.fields))

    def whole(self, header: str, fields: tuple[str, ...]) -> str | None:
        """Return the variable that holds exactly ``fields`` as one number, None if they are held separately."""
        held = self.headers[header]
        for run, names in zip(held.runs, held.names, strict=True):
            if run.held in (Held.WHOLE, Held.SPLIT) and tuple(f.name for f in run.fields) == fields:
                return names[0]
        return None


def _spoken(header: str, field_name: str) -> tuple[str, ...]:
    """Return the parts of a metadata field's name that come from the program. p4c keeps all locals in one instance."""
    return (field_name,) if header.partition("_")[0] == "scalars" else (header, field_name)


def struct_format(runs: tuple[FieldRun, ...]) -> str:
    """Return the ``struct`` format of the runs. A run held as integers is split into words of 8, 4, 2 and 1 bytes."""
    return ">" + "".join(
        f"{run.size}x"
        if run.held is Held.NOT
        else f"{run.size}s"
        if run.held in (Held.RAW, Held.BYTES)
        else "".join(_CODES[w] for w in words(run))
        for run in runs
    )


def words(run: FieldRun) -> list[int]:
    """Return the sizes in bytes of the words that a run is read as, most significant first."""
    sizes: list[int] = []
    left = run.size
    while left:
        size = next(s for s in (8, 4, 2, 1) if s <= left)
        sizes.append(size)
        left -= size
    return sizes


def unpack_lines(held: HeaderVars, runs: tuple[FieldRun, ...], names: list[tuple[str, ...]], call: str) -> list[str]:
    """Return statements that assign the variables of ``runs`` from ``call``, which returns the words of their
    format."""
    targets: list[str] = []
    after: list[str] = []
    for run, own in zip(runs, names, strict=True):
        if run.held is Held.NOT:
            continue
        if run.held in (Held.RAW, Held.BYTES):
            targets.append(own[0])
            continue
        sizes = words(run)
        split = run.held is Held.SPLIT
        direct = len(sizes) == 1 and (split or (len(own) == 1 and not run.fields[0].signed))
        temps = [own[0]] if direct else [f"_w{len(targets) + i}" for i in range(len(sizes))]
        targets += temps
        if direct and not split:
            continue
        value, shift = "", run.size * 8
        for temp, size in zip(temps, sizes, strict=True):
            shift -= size * 8
            value += (" | " if value else "") + (f"{temp} << {shift}" if shift else temp)
        if len(own) == 1:
            after.append(f"{own[0]} = {_signed(value, run.fields[0].width, run.fields[0].signed)}")
            continue
        if len(temps) > 1:
            whole = own[0] if split else "_w"
            after.append(f"{whole} = {value}")
            value = whole
        low = run.size * 8
        for position, (f, name) in enumerate(zip(run.fields, own[1:] if split else own, strict=True)):
            low -= f.width
            part = f"{value} >> {low}" if low else value
            if position:
                part = f"({part}) & {(1 << f.width) - 1:#x}" if low else f"{part} & {(1 << f.width) - 1:#x}"
            after.append(f"{name} = {_signed(part, f.width, f.signed)}")
    if not targets:
        return []
    return [f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {call}", *after]


def _signed(value: str, width: int, signed: bool) -> str:
    if not signed:
        return value
    half = 1 << (width - 1)
    return f"(({value}) ^ {half:#x}) - {half:#x}"


def pack_arguments(runs: tuple[FieldRun, ...], names: list[tuple[str, ...]]) -> list[str]:
    """Return the words to be packed for ``runs``."""
    args: list[str] = []
    for run, own in zip(runs, names, strict=True):
        if run.held in (Held.RAW, Held.BYTES):
            args.append(own[0])
            continue
        parts: list[str] = []
        low = run.size * 8
        if run.held in (Held.WHOLE, Held.SPLIT):
            value = own[0]
        else:
            for f, name in zip(run.fields, own, strict=True):
                low -= f.width
                plain = f"({name} & {(1 << f.width) - 1:#x})" if f.signed else name
                parts.append(f"{plain} << {low}" if low else plain)
            value = " | ".join(parts)
        sizes = words(run)
        if len(sizes) == 1:
            args.append(value)
            continue
        shift = run.size * 8
        wrapped = value if value.isidentifier() else f"({value})"
        for i, size in enumerate(sizes):
            shift -= size * 8
            word = f"{wrapped} >> {shift}" if shift else wrapped
            if i:
                word = f"({word}) & {(1 << (size * 8)) - 1:#x}" if shift else f"{word} & {(1 << (size * 8)) - 1:#x}"
            args.append(word)
    return args
