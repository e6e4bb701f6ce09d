"""The resolution of names in a test.

A name is the full name of an object, an alias of the P4Info, or the end of a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path


def resolve(
    kind: str,
    wanted: str,
    names: Iterable[str],
    aliases: Mapping[str, str],
) -> str:
    """Return the one of ``names`` that ``wanted`` means.

    An end that consists of whole parts of a name comes first.

    Raises ValueError with one line if there is none, or more than one.
    """
    candidates = list(names)
    for exact in (wanted, aliases.get(wanted)):
        if exact in candidates:
            return exact
    for end in (f".{wanted}", wanted):
        matches = [name for name in candidates if name.endswith(end)]
        if len(matches) > 1:
            raise ValueError(
                f"{kind} '{wanted}' may be any of {', '.join(matches)}: write more of the name"
            )
        if matches:
            return matches[0]
    raise ValueError(f"there is no {kind} '{wanted}'; there are: {', '.join(candidates) or 'none'}")


def resolve_field(
    table: str,
    wanted: str,
    names: tuple[str, ...],
) -> int:
    """Return the position of the match field ``wanted``.

    ``h$0.f`` is ``h[0].f``, and ``h.valid`` is ``h.isValid()``.

    A Tofino assembly spells an element of a stack ``h$0`` itself.

    Raises ValueError with one line if there is none, or more than one.
    """
    head, dollar, rest = wanted.partition("$")
    tail = rest.lstrip("0123456789")
    digits = rest.removesuffix(tail)
    name = wanted
    if dollar and digits:
        name = f"{head}[{digits}]{tail}"
    forms = [wanted, name, f"{name}$", f"{name}.$valid$"]
    if name == "valid" or name.endswith(".valid"):
        header = name.removesuffix("valid")
        forms += [f"{header}$valid$", f"{header}isValid()"]
    ends = tuple(f".{form}" for form in forms)
    exact = [i for i, field in enumerate(names) if field in forms]
    partial = [i for i, field in enumerate(names) if field.endswith(ends)]
    for matches in (exact, partial):
        if len(matches) > 1:
            listed = ", ".join(names[i] for i in matches)
            raise ValueError(f"table '{table}': field '{wanted}' may be any of {listed}")
        if matches:
            return matches[0]
    raise ValueError(
        f"table '{table}': has no field '{wanted}'; its fields: {', '.join(names) or 'none'}"
    )


def read_aliases(path: Path) -> dict[str, str]:
    """Return the full names by alias of a P4Info in protobuf text format.

    Raises OSError, or ValueError with one line if it cannot be read.
    """
    from finsy.proto import p4i
    from google.protobuf import text_format  # type: ignore[import-untyped]

    info = p4i.P4Info()
    try:
        text_format.Parse(path.read_text("utf-8"), info)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not a P4Info in protobuf text format: {reason}") from None
    objects = (
        info.tables,
        info.actions,
        info.counters,
        info.direct_counters,
        info.registers,
        info.meters,
    )
    aliases: dict[str, str] = {}
    for group in objects:
        for named in group:
            aliases[named.preamble.alias] = named.preamble.name
    return aliases
