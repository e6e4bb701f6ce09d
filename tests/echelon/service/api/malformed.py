"""Job bodies that are wrong, each in a known way: valid ones with a seeded change that no valid one
can have.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]
Damage = Callable[[random.Random, Spec], "bytes | Spec | None"]
"""The damaged body, or its mapping; None: that damage cannot be done to this one."""

PIPELINE: Spec = {
    "job": "p",
    "parallelism": "pipeline",
    "workers": ["h1", "h2", "h3"],
    "start": "0 s",
    "weight": 1,
    "pipeline": {
        "micro_batches": 3,
        "forward": "1 s",
        "backward": ["1 s", "2 s", "3 s"],
        "activation": "2.5 MB",
        "gradient": ["1 MB", "2 MB"],
    },
}
DATA: Spec = {
    "job": "d",
    "parallelism": "data",
    "workers": ["h1", "h2"],
    "data": {"compute": "500 ms", "gradient": "5 MB"},
}


@dataclass(frozen=True)
class Malformed:
    how: str
    body: bytes
    with_fabric: bool
    """Whether only someone who knows the fabric and the limits can find the fault."""


def malformed(seed: int, count: int) -> Sequence[Malformed]:
    """Return `count` bodies, no two the same."""
    rng = random.Random(seed)
    made: dict[bytes, Malformed] = {}
    while len(made) < count:
        name, damage = rng.choice(DAMAGES)
        damaged = damage(rng, copy.deepcopy(rng.choice((PIPELINE, DATA))))
        if damaged is not None:
            body = damaged if isinstance(damaged, bytes) else dump(rng, damaged)
            made.setdefault(body, Malformed(name, body, damage in (stranger, too_many_flows)))
    return list(made.values())


def dump(rng: random.Random, value: object) -> bytes:
    """Return a value as JSON in one of several common styles."""
    indent = rng.choice((None, None, 1, 2))
    return json.dumps(value, indent=indent, ensure_ascii=rng.random() < 0.5).encode()


def sections(spec: Spec) -> list[Spec]:
    return [spec, *(value for value in spec.values() if isinstance(value, dict))]


def places(spec: Spec) -> list[tuple[Any, Any]]:
    """Return every value at a key or in a list, as its container and its place there."""
    found: list[tuple[Any, Any]] = []
    for section in sections(spec):
        for key, value in section.items():
            if not isinstance(value, dict):
                found.append((section, key))
            if isinstance(value, list):
                found.extend((value, index) for index in range(len(value)))
    return found


# -- no JSON ---------------------------------------------------------------------------------------


def truncated(rng: random.Random, spec: Spec) -> bytes:
    text = dump(rng, spec)
    return text[: rng.randrange(len(text))]


def structure_lost(rng: random.Random, spec: Spec) -> bytes:
    text = dump(rng, spec)
    at = rng.choice([i for i, byte in enumerate(text) if byte in b"{}[]:"])
    return text[:at] + text[at + 1 :]


def garbage(rng: random.Random, spec: Spec) -> bytes:
    text = dump(rng, spec)
    at = rng.choice([i for i, byte in enumerate(text) if byte in b"{}[]:,"])
    return (
        text[:at]
        + rng.choice([b"=", b";", b"{", b"]", b"'", b"\\", b"#", b"\x00", b"<job>"])
        + text[at:]
    )


def followed(rng: random.Random, spec: Spec) -> bytes:
    return dump(rng, spec) + rng.choice(
        [b"}", b" {}", b",", b"\nnull", b"x", b'"', dump(rng, spec)]
    )


def not_utf8(rng: random.Random, spec: Spec) -> bytes:
    text = dump(rng, spec)
    at = rng.randrange(len(text))
    return text[:at] + bytes([rng.randrange(0x80, 0xC0)]) + text[at:]


def half_a_character(rng: random.Random, spec: Spec) -> bytes:
    holder, key = rng.choice(places(spec))
    holder[key] = f"x{chr(rng.randrange(0xD800, 0xE000))}"
    return json.dumps(spec).encode()


def no_number(rng: random.Random, spec: Spec) -> bytes:
    # Not a name: YAML takes these words for text.
    holder, key = rng.choice(quantities(spec))
    holder[key] = rng.choice([float("nan"), float("inf"), float("-inf")])
    return json.dumps(spec).encode()


def huge_number(rng: random.Random, spec: Spec) -> bytes:
    holder, key = rng.choice(places(spec))
    holder[key] = "@"
    number = rng.choice(
        ["9" * rng.randrange(500, 3000), f"1e{rng.randrange(400, 9999)}", "-" + "1" * 2000]
    )
    return json.dumps(spec).encode().replace(b'"@"', number.encode())


def given_twice(rng: random.Random, spec: Spec) -> bytes:
    text = json.dumps(spec)
    key = rng.choice(
        [key for section in sections(spec) for key in section if text.count(f'"{key}": ') == 1]
    )
    return text.replace(f'"{key}": ', f'"{key}": null, "{key}": ').encode()


def too_deep(rng: random.Random, spec: Spec) -> bytes:
    depth = rng.randrange(65, 3000)
    holder, key = rng.choice(places(spec))
    holder[key] = "@"
    opened, closed = rng.choice([("[", "]"), ('{"a":', "}")])
    return json.dumps(spec).replace('"@"', opened * depth + "0" + closed * depth).encode()


def no_mapping(rng: random.Random, spec: Spec) -> bytes:
    return dump(
        rng,
        rng.choice([[spec], spec["job"], rng.randrange(10**6), rng.random(), None, True, [], ""]),
    )


# -- no job ----------------------------------------------------------------------------------------


def key_missing(rng: random.Random, spec: Spec) -> Spec:
    paradigm = spec[spec["parallelism"]]
    required = [
        (spec, "job"),
        (spec, "parallelism"),
        (spec, "workers"),
        (spec, spec["parallelism"]),
    ]
    required += [
        (paradigm, key)
        for key in ("micro_batches", "forward", "activation", "compute")
        if key in paradigm
    ]
    holder, key = rng.choice(required)
    del holder[key]
    return spec


def key_unknown(rng: random.Random, spec: Spec) -> Spec:
    section = rng.choice(sections(spec))
    letters = "abcdefghijklmnopqrstuvwxyz _-.\n\x1b\u00e9"
    section["".join(rng.choices(letters, k=rng.randrange(1, 40))) + "~"] = rng.choice(
        [1, "x", None, [], {}]
    )
    return spec


def key_misspelt(rng: random.Random, spec: Spec) -> Spec:
    section = rng.choice(sections(spec))
    key = rng.choice(list(section))
    at = rng.randrange(len(key))
    section[key[:at] + rng.choice("xyzXYZ0 ") + key[at:]] = section.pop(key)
    return spec


def wrong_type(rng: random.Random, spec: Spec) -> Spec:
    holder, key = rng.choice(places(spec))
    holder[key] = rng.choice(
        [True, False, {}, {"a": 1}, [[]], [None], {"a": [1, {"b": 2}]}, 1.5e300, -1]
    )
    return spec


def quantities(spec: Spec) -> list[tuple[Any, Any]]:
    return [
        (holder, key)
        for holder, key in places(spec)
        if isinstance(holder[key], str) and " " in holder[key]
    ]


def unit_missing(rng: random.Random, spec: Spec) -> Spec:
    holder, key = rng.choice(quantities(spec))
    holder[key] = rng.choice(
        [str(rng.randrange(1, 10**9)), rng.randrange(1, 10**9), rng.random() + 0.1]
    )
    return spec


def unit_wrong(rng: random.Random, spec: Spec) -> Spec:
    holder, key = rng.choice(quantities(spec))
    number, unit = rng.randrange(1, 1000), holder[key].split()[1]
    wrong = [
        "S",
        "sec",
        "mS",
        "Mb",
        "mb",
        "bytes",
        "GBit",
        "%",
        "m",
        "K",
        "s s",
        "\u00b5",
        "MB" if "s" in unit else "ms",
    ]
    holder[key] = f"{number} {rng.choice(wrong)}"
    return spec


def number_wrong(rng: random.Random, spec: Spec) -> Spec:
    holder, key = rng.choice(quantities(spec))
    unit = holder[key].split()[1]
    numbers = [
        "-1",
        "1,5",
        "1.",
        ".5",
        "1e",
        "0x10",
        "\u0661",
        "1_000",
        "one",
        "",
        "1e99",
        "--1",
        "1 2",
        "9" * 70,
        "inf",
    ]
    holder[key] = f"{rng.choice(numbers)} {unit}"
    return spec


def out_of_range(rng: random.Random, spec: Spec) -> Spec:
    if "pipeline" in spec and rng.random() < 0.5:
        spec["pipeline"]["micro_batches"] = rng.choice(
            [0, -1, 1001, 10**12, 2.5, "3", rng.randrange(1001, 10**9)]
        )
    else:
        spec["weight"] = rng.choice(
            [0, -1, -rng.random(), 10**9 + 1, 1e300, "1", rng.randrange(10**9 + 1, 10**15)]
        )
    return spec


def list_wrong(rng: random.Random, spec: Spec) -> Spec | None:
    if "pipeline" not in spec:
        return None
    key, unit, right = rng.choice(
        [("forward", "s", 3), ("backward", "s", 3), ("activation", "MB", 2), ("gradient", "MB", 2)]
    )
    length = rng.choice([count for count in range(12) if count != right])
    spec["pipeline"][key] = [f"{rng.randrange(1, 100)} {unit}" for _ in range(length)]
    return spec


def workers_wrong(rng: random.Random, spec: Spec) -> Spec:
    workers = spec["workers"]
    spec["workers"] = rng.choice(
        [
            [],
            workers[:1],
            [*workers, rng.choice(workers)],
            "h1, h2",
            None,
            [*workers, rng.randrange(100)],
            [
                *workers,
                rng.choice(["h 1", "1h", "", "h1;", "\u00e9", "h" * 33, "../h1", "h1\n", "<b>"]),
            ],
            dict.fromkeys(workers, 1),
        ]
    )
    return spec


def name_wrong(rng: random.Random, spec: Spec) -> Spec:
    spec["job"] = rng.choice(
        [
            "",
            " ",
            "a b",
            "1a",
            "a/b",
            "x" * rng.randrange(33, 5000),
            "a\u0000",
            "\u202ejob",
            None,
            7,
            ["a"],
        ]
    )
    return spec


def other_parallelism(rng: random.Random, spec: Spec) -> Spec:
    others = [
        "tensor",
        "Data",
        "",
        "pipeline " if spec["parallelism"] == "pipeline" else "data ",
        None,
        1,
    ]
    others.append("data" if spec["parallelism"] == "pipeline" else "pipeline")
    spec["parallelism"] = rng.choice(others)
    return spec


def gradient_alone(rng: random.Random, spec: Spec) -> Spec | None:
    if "pipeline" not in spec:
        return None
    del spec["pipeline"]["backward"]
    spec["weight"] = rng.randrange(1, 10**6)
    return spec


# -- no job of this fabric -------------------------------------------------------------------------


def stranger(rng: random.Random, spec: Spec) -> Spec:
    spec["workers"][rng.randrange(len(spec["workers"]))] = (
        f"{rng.choice('ghij')}{rng.randrange(5, 10**6)}"
    )
    return spec


def too_many_flows(rng: random.Random, spec: Spec) -> Spec | None:
    if "pipeline" not in spec:
        return None
    # 3 stages, forward and backward: 4 flows a micro-batch, so 3600 at least.
    spec["pipeline"]["micro_batches"] = rng.randrange(900, 1001)
    spec["weight"] = rng.randrange(1, 10**6)
    return spec


DAMAGES: list[tuple[str, Damage]] = [
    (damage.__name__, damage)
    for damage in (
        truncated,
        structure_lost,
        garbage,
        followed,
        not_utf8,
        half_a_character,
        no_number,
        huge_number,
        given_twice,
        too_deep,
        no_mapping,
        key_missing,
        key_unknown,
        key_misspelt,
        wrong_type,
        unit_missing,
        unit_wrong,
        number_wrong,
        out_of_range,
        list_wrong,
        workers_wrong,
        name_wrong,
        other_parallelism,
        gradient_alone,
        stranger,
        too_many_flows,
    )
]
FLOW_LIMIT = 3000
"""The limit that `too_many_flows` exceeds."""
