"""What differs between configurations: each setting, and few lines that leave none out."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_site.switch_config.differences import Difference, differences, rows
from tests.drawing import examples

values = st.sampled_from(["a", "b", "c"])
names = st.sampled_from([f"n{number}" for number in range(4)])
settings_drawn = st.dictionaries(st.tuples(names, names, names), values, max_size=30)


def nested(flat: dict[tuple[str, str, str], str]) -> Any:
    config: dict[str, dict[str, dict[str, str]]] = {}
    for (table, key, field), value in flat.items():
        config.setdefault(table, {}).setdefault(key, {})[field] = value
    return config


configs = settings_drawn.map(nested)


def settings_of(config: Any) -> dict[tuple[str, str, str], str]:
    return {
        (table, key, field): value
        for table, keys in config.items()
        for key, fields in keys.items()
        for field, value in fields.items()
    }


@settings(max_examples=examples(200), deadline=None)
@given(configs, configs)
def test_the_differences_are_what_makes_one_the_other(before: Any, after: Any) -> None:
    applied = settings_of(before)
    for change in differences("s1", before, after):
        place = change.table, change.key, change.field
        assert applied.get(place) == change.before
        if change.after is None:
            del applied[place]
        else:
            applied[place] = change.after
    assert applied == settings_of(after)


def counted(text: str) -> int:
    """Return how many names a cell has."""
    number = re.search(r"\((\d+)\)$", text)
    return int(number[1]) if number else text.count(", ") + 1


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(configs, min_size=1, max_size=6), configs)
def test_lines_have_every_difference_once(current: list[Any], wanted: Any) -> None:
    changes: list[Difference] = []
    for number, config in enumerate(current):
        changes += differences(f"s{number}", config, wanted)
    counts = Counter[tuple[str, str]]()
    for switches, _, keys, fields, before, after in rows(changes):
        counts[before, after] += counted(switches) * counted(keys) * counted(fields)
    expected = Counter((str(c.before or "-"), str(c.after or "-")) for c in changes)
    assert counts == expected


def test_equal_changes_are_one_line_with_the_first_the_last_and_their_number() -> None:
    changes = [
        Difference(f"leaf{switch}", "QUEUE", f"Ethernet{port}|{queue}", "scheduler", None, "S")
        for switch, port, queue in product(range(1, 10), range(0, 32, 4), range(8))
    ]
    assert rows(changes) == [
        (
            "leaf1 .. leaf9 (9)",
            "QUEUE",
            "Ethernet0|0 .. Ethernet28|7 (64)",
            "scheduler",
            "-",
            "S",
        )
    ]
