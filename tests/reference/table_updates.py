"""Updates that fill a table of any P4Info, whatever its key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from finsy.proto import p4i, p4r
from google.protobuf import text_format


def load_p4info(path: Path) -> p4i.P4Info:
    """Return the P4Info in text form at `path`."""
    return text_format.Parse(path.read_text(), p4i.P4Info())


def updates(
    p4info: p4i.P4Info,
    table: str,
    count: int,
    kind: int = p4r.Update.INSERT,
) -> Iterator[p4r.Update]:
    """Yield `count` updates of distinct entries of `table`: keys count up, actions and arguments
    vary.

    Ternary entries have one of eight masks and one of 1000 priorities; prefixes are of two lengths;
    a table with an action selector gets one-shot sets of one to four actions.

    Raises:
        ValueError: the table does not exist, has no action for its entries, or its key has too few
        values.
    """
    wanted = _table(p4info, table)
    actions = {action.preamble.id: action for action in p4info.actions}
    usable = [
        actions[ref.id] for ref in wanted.action_refs if ref.scope != p4i.ActionRef.DEFAULT_ONLY
    ]
    usable = [action for action in usable if action.params] or usable
    if not usable:
        raise ValueError(f"table {table}: it has no action for entries")
    room = sum(min(24, match.bitwidth) for match in wanted.match_fields)
    if room < 63 and count > 1 << room:
        raise ValueError(f"table {table}: its key has room for {1 << room} entries, not {count}")
    ordered = any(match.match_type in _WITH_PRIORITY for match in wanted.match_fields)
    for number in range(count):
        entry = p4r.TableEntry(table_id=wanted.preamble.id)
        left = number
        for match in wanted.match_fields:
            part = min(24, match.bitwidth)
            _match(entry.match.add(field_id=match.id), match, left & ((1 << part) - 1), number)
            left >>= part
        if ordered:
            entry.priority = 1 + number % 1000
        if wanted.implementation_id:
            for member in range(1 + number % 4):
                chosen = entry.action.action_profile_action_set.action_profile_actions.add(
                    weight=1 + member
                )
                _call(chosen.action, usable[(number + member) % len(usable)], number + member)
        else:
            _call(entry.action.action, usable[number % len(usable)], number)
        yield p4r.Update(
            type=kind,
            entity=p4r.Entity(table_entry=entry),
        )  # type: ignore[arg-type]


_WITH_PRIORITY = (p4i.MatchField.TERNARY, p4i.MatchField.RANGE, p4i.MatchField.OPTIONAL)


def _match(
    field: p4r.FieldMatch,
    match: p4i.MatchField,
    value: int,
    number: int,
) -> None:
    """Give `field` a value that only `value` gets."""
    width = match.bitwidth
    if match.match_type == p4i.MatchField.EXACT:
        field.exact.value = _bytes(value)
    elif match.match_type == p4i.MatchField.LPM:
        # The lowest 24 bits behind the first eight carry the number; every other prefix is full.
        cut = max(0, width - 24) // 2 if number % 2 else 0
        field.lpm.value = _bytes(value << (max(0, width - 24) // 2))
        field.lpm.prefix_len = width - cut
    elif match.match_type == p4i.MatchField.TERNARY:
        spare = max(0, width - 24)
        mask = ((1 << width) - 1) & ~(number % 8 << 24 if spare >= 3 else 0)
        field.ternary.value = _bytes(value)
        field.ternary.mask = _bytes(mask)
    elif match.match_type == p4i.MatchField.RANGE:
        field.range.low = field.range.high = _bytes(value)
    else:
        field.optional.value = _bytes(value)


def _call(
    call: p4r.Action,
    action: p4i.Action,
    number: int,
) -> None:
    call.action_id = action.preamble.id
    for param in action.params:
        call.params.add(
            param_id=param.id,
            value=_bytes(number & ((1 << param.bitwidth) - 1)),
        )


def _bytes(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


def _table(p4info: p4i.P4Info, name: str) -> p4i.Table:
    for table in p4info.tables:
        if name in (table.preamble.name, table.preamble.alias):
            return table
    names = ", ".join(table.preamble.name for table in p4info.tables)
    raise ValueError(f"the P4Info has no table {name!r}; it has {names}")
