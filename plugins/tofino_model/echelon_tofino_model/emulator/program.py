"""A loaded assembly file: parsers, stages and deparsers of both directions, ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from echelon_tofino_model.emulator.assembly import (
    Name,
    Section,
    mapping,
    read_sections,
    refusal,
    text,
)
from echelon_tofino_model.emulator.attached import AttachedCounter, AttachedMeter, AttachedRegister
from echelon_tofino_model.emulator.deparser import PhvDeparser, Report, load_deparser
from echelon_tofino_model.emulator.parser import PhvParser, load_parser
from echelon_tofino_model.emulator.phv import FieldNames
from echelon_tofino_model.emulator.profiles import Profile
from echelon_tofino_model.emulator.stages import Loaded, Mau, PortMetadata, StageLoader
from echelon_tofino_model.emulator.tables import MatchTable
from softswitch.errors import ProgramError

_DIRECTIONS = ("ingress", "egress")


@dataclass(slots=True)
class Gress:
    """One direction of the pipe."""

    parser: PhvParser
    mau: Mau
    deparser: PhvDeparser


@dataclass(slots=True)
class TofinoProgram:
    """A program and its state. Tables and memories have the names of the P4 program.

    A program belongs to one switch; load the file again for another one.
    """

    name: str
    ingress: Gress
    egress: Gress
    tables: Mapping[str, MatchTable]
    counters: Mapping[str, AttachedCounter]
    meters: Mapping[str, AttachedMeter]
    registers: Mapping[str, AttachedRegister]
    profiles: Mapping[str, Profile]
    """The action profiles, each with the groups of its selector."""
    port_metadata: PortMetadata | None

    @property
    def digests(self) -> dict[str, Report]:
        """Return the learning digests by name."""
        learning = self.ingress.deparser.reports.get("learning")
        if learning is None:
            return {}
        return {report.name: report for report in learning.by_index.values()}


def load_assembly(source: str | bytes, name: str = "program.bfa") -> TofinoProgram:
    """Load an assembly file; ``name`` is used in messages.

    Raises :class:`~softswitch.errors.ProgramError` with the line and the reason if the file is
    malformed or needs something that this switch does not execute.
    """
    try:
        if isinstance(source, bytes):
            source = source.decode()
        return _load(read_sections(source), name)
    except UnicodeDecodeError:
        raise ProgramError(name, "this is not a text file") from None
    except ProgramError as error:
        raise ProgramError(f"{name}, {error.place}", error.reason) from None


def _load(sections: tuple[Section, ...], name: str) -> TofinoProgram:
    names = {direction: FieldNames() for direction in _DIRECTIONS}
    loaded = Loaded()
    loaders = {direction: StageLoader(names[direction], loaded) for direction in _DIRECTIONS}
    parsers: dict[str, PhvParser] = {}
    deparsers: dict[str, PhvDeparser] = {}
    for section in sections:
        if section.name == "version":
            _check_target(section)
        elif section.name == "phv":
            for direction in _directions(section):
                names[direction].load(section)
    for section in sections:
        match section.name:
            case "parser":
                direction = _direction(section, 0)
                if direction in parsers:
                    raise refusal(
                        section.line, "several parsers of one direction are not supported"
                    )
                parsers[direction] = PhvParser(load_parser(section, names[direction]))
            case "deparser":
                direction = _direction(section, 0)
                deparsers[direction] = load_deparser(section, names[direction])
            case "stage":
                loaders[_direction(section, 1)].load(section)
            case (
                "version"
                | "phv"
                | "flexible_headers"
                | "primitives"
                | "context_json"
                | "dynhash"
                | "error_mode"
            ):
                # These describe the program for tools. `error_mode` says what a broken memory does
                # to a packet, and the memories here never break.
                pass
            case _:
                raise refusal(section.line, f"the section '{section.name}' is not supported")
    gresses = {}
    for direction in _DIRECTIONS:
        if direction not in parsers or direction not in deparsers:
            raise ProgramError("end of the file", f"there is no {direction} parser or deparser")
        mau = loaders[direction].finish()
        gresses[direction] = Gress(parsers[direction], mau, deparsers[direction])
    return TofinoProgram(
        name=name,
        ingress=gresses["ingress"],
        egress=gresses["egress"],
        tables=loaded.tables,
        counters=_memories(loaded, AttachedCounter),
        meters=_memories(loaded, AttachedMeter),
        registers=_memories(loaded, AttachedRegister),
        profiles=loaded.profiles,
        port_metadata=loaded.port_metadata,
    )


_Memory = TypeVar("_Memory", AttachedCounter, AttachedMeter, AttachedRegister)


def _memories(loaded: Loaded, kind: type[_Memory]) -> dict[str, _Memory]:
    """Return the memories of one kind by name."""
    memories = {}
    for name, memory in loaded.memories.items():
        if isinstance(memory, kind):
            memories[name] = memory
    return memories


def _check_target(section: Section) -> None:
    if isinstance(section.value, Name):
        return
    target = mapping(section.value).get("target")
    if target is not None and text(target) != "Tofino":
        raise refusal(target.line, f"the target '{text(target)}' is not supported, only Tofino (1)")


def _directions(section: Section) -> tuple[str, ...]:
    if not section.params:
        return _DIRECTIONS
    return (_direction(section, 0),)


def _direction(section: Section, place: int) -> str:
    if len(section.params) <= place:
        raise refusal(section.line, f"the section '{section.name}' needs its direction")
    direction = text(section.params[place])
    if direction not in _DIRECTIONS:
        raise refusal(section.line, f"the direction '{direction}' is not supported")
    return direction
