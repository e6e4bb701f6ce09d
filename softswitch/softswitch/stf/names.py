"""The resolution of names in a test: the full name of an object, an alias of the P4Info, or the end
of a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path


def resolve(kind: str, wanted: str, names: Iterable[str], aliases: Mapping[str, str]) -> str:
    """Return the one of ``names`` that ``wanted`` means. An end that consists of whole parts of a
    name comes first.

    Raises ValueError with one line if there is none, or more than one.
    """
    known = list(names)
    for exact in (wanted, aliases.get(wanted)):
        if exact in known:
            return exact
    for end in (f".{wanted}", wanted):
        found = [name for name in known if name.endswith(end)]
        if len(found) > 1:
            raise ValueError(
                f"{kind} '{wanted}' may be any of {', '.join(found)}: write more of the name"
            )
        if found:
            return found[0]
    raise ValueError(f"there is no {kind} '{wanted}'; there are: {', '.join(known) or 'none'}")


def resolve_field(table: str, wanted: str, names: tuple[str, ...]) -> int:
    """Return the position of the match field ``wanted``; ``h$0.f`` is ``h[0].f`` and ``h.valid`` is
    ``h.isValid()``.

    A Tofino assembly spells an element of a stack ``h$0`` itself.

    Raises ValueError with one line if there is none, or more than one.
    """
    head, dollar, rest = wanted.partition("$")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    if dollar and digits:
        name = f"{head}[{digits}]{rest[len(digits) :]}"
    else:
        name = wanted
    forms = [wanted, name, f"{name}$", f"{name}.$valid$"]
    if name == "valid" or name.endswith(".valid"):
        forms += [f"{name.removesuffix('valid')}$valid$", f"{name.removesuffix('valid')}isValid()"]
    for found in (
        [i for i, known in enumerate(names) if known in forms],
        [i for i, known in enumerate(names) if known.endswith(tuple(f".{form}" for form in forms))],
    ):
        if len(found) > 1:
            raise ValueError(
                f"table '{table}': field '{wanted}' may be any of"
                f" {', '.join(names[i] for i in found)}"
            )
        if found:
            return found[0]
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
    return {o.preamble.alias: o.preamble.name for group in objects for o in group}
