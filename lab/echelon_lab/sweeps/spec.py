"""The sweep file.

```yaml
sweep: oversubscription           # name
scenario: base.yaml               # a scenario's file, relative to this one; or its contents
vary:                             # any key of the scenario, with the values that it takes
  fabric: [one.yaml, two.yaml]    # files are relative to this one
  transport.window: [4, 8, 16]
  jobs[0].data.gradient: [10 MB, 20 MB]
  jobs[*].start: [0 s, 5 ms]      # the same in every job
seeds: 10                         # seeds 0 to 9 (default: the scenario's own)
policies: [fair, echelon]         # default: the scenario's own
target: fluid                     # default; or one with switches, such as softswitch
scale: 1/1000                     # of rates and sizes (default 1)
```

Every combination is a variant; every variant runs under every policy.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from echelon.model.documents import (
    Count,
    DocumentError,
    Name,
    Section,
    parse_document,
    problem,
    read_document,
    suggestion,
)
from echelon.model.quantities import QuantityError, excerpt, number
from echelon_lab import FLUID, VIRTUAL
from echelon_lab.run import place
from echelon_lab.scenarios.scenario import Policies, PolicyChoice, ScenarioSpec, with_files

MAX_VARIANTS = 100_000
_STEP = re.compile(r"\.?([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+|\*)\]")


def _scale(value: object) -> Fraction:
    try:
        return number(value if isinstance(value, str) else repr(value))
    except QuantityError:
        raise problem(
            f"{excerpt(value)} is not a number (write 1/1000)", code="not-a-number"
        ) from None


def _contents(value: object) -> object:
    if not isinstance(value, str | Mapping):
        raise problem(
            f"{excerpt(value)} is not a scenario (name its file, or give its contents)",
            code="not-a-mapping",
        )
    return value


class SweepSpec(Section):
    """A sweep as its file describes it."""

    sweep: Annotated[Name, Field(description="the sweep's name")]
    scenario: Annotated[
        str | Mapping[str, Any],
        PlainValidator(_contents),
        WithJsonSchema({"type": ["string", "object"]}),
        Field(description="the path of a scenario's file, or its contents"),
    ]
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)
    """The values of each varied key of the scenario. Every combination is a variant."""
    seeds: Count | None = None
    """The number of seeds, from 0. Default: the scenario's own seed."""
    policies: Policies | None = None
    """Default: the scenario's own."""
    target: str = FLUID
    """fluid (no switches), or a target with switches."""
    scale: Annotated[Fraction, PlainValidator(_scale), WithJsonSchema({"type": "string"})] = (
        Fraction(1)
    )
    """Multiplies rates and sizes, e.g. 1/1000."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant of the base scenario."""

    values: Mapping[str, str]
    """The varied values by key, as text."""
    document: Mapping[str, Any]
    """The scenario's document, with the contents of the files that it names."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Variants of a scenario, and the policies to run each under."""

    name: str
    file: Path
    keys: tuple[str, ...]
    """The keys that are varied."""
    variants: tuple[Variant, ...]
    policies: tuple[PolicyChoice, ...]
    target: str
    scale: Fraction


def load_sweep(path: str | Path) -> Sweep:
    """Return the sweep in the YAML file `path`.

    Raises `DocumentError`, which names the key at fault.
    """
    file = str(path)
    spec = parse_document(SweepSpec, read_document(path), file)
    place(VIRTUAL, spec.target)
    base = _base(path, spec)
    vary = dict(spec.vary)
    if spec.seeds is not None:
        if "seed" in vary:
            raise DocumentError(
                file,
                "seeds",
                "does not go with 'vary: seed' (give one of them)",
                code="conflicting-key",
            )
        vary["seed"] = list(range(spec.seeds))
    count = 1
    for values in vary.values():
        count *= len(values)
    if count > MAX_VARIANTS:
        raise DocumentError(
            file, "vary", f"gives {count} variants (give at most {MAX_VARIANTS})", code="too-large"
        )
    variants = tuple(_variants(path, base, vary))
    first = parse_document(ScenarioSpec, variants[0].document, file)
    return Sweep(
        spec.sweep,
        Path(path),
        tuple(vary),
        variants,
        spec.policies or first.policies,
        spec.target,
        spec.scale,
    )


def _base(path: str | Path, spec: SweepSpec) -> dict[str, Any]:
    """Return the document of the base scenario, with its fabric and jobs as mappings."""
    if isinstance(spec.scenario, str):
        named = Path(path).parent / spec.scenario
        document = _read(named, read_document(named))
    else:
        document = _read(path, {"scenario": spec.sweep, **spec.scenario})
    if spec.policies is not None:
        document["policies"] = list(spec.policies)
    return document


def _read(path: str | Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return `document` with the contents of the files that it names.

    These are mappings where they are documents themselves.
    """
    data = dict(document)
    parent = Path(path).parent
    fabric = data.get("fabric")
    if isinstance(fabric, str):
        data["fabric"] = read_document(parent / fabric)
    jobs = data.get("jobs")
    if isinstance(jobs, list):
        data["jobs"] = [
            read_document(parent / job) if isinstance(job, str) else job for job in jobs
        ]
    return with_files(data, path)


def _variants(
    path: str | Path,
    base: Mapping[str, Any],
    vary: Mapping[str, list[Any]],
) -> Iterator[Variant]:
    steps = {key: _steps(path, key) for key in vary}
    for values in product(*vary.values()):
        document = copy.deepcopy(dict(base))
        for key, value in zip(vary, values, strict=True):
            _set(path, document, key, steps[key], value)
        # Only a varied fabric, job or source of traffic still has the path of a file.
        document = _read(path, document)
        texts = {}
        for key, value in zip(vary, values, strict=True):
            texts[key] = _text(value)
        settings = ", ".join(f"{key} = {text}" for key, text in texts.items())
        parse_document(ScenarioSpec, document, f"{path} ({settings})" if settings else str(path))
        yield Variant(texts, document)


def _steps(path: str | Path, key: str) -> list[str | int]:
    """Return the steps of a path such as ``jobs[0].data.gradient``.

    A step ``*`` is every item of a list.
    """
    steps: list[str | int] = []
    begin = 0
    while begin < len(key):
        match = _STEP.match(key, begin)
        if match is None or (begin == 0 and match[1] is None):
            reason = "is not the path of a key (write it as jobs[0].data.gradient)"
            raise DocumentError(str(path), f"vary.{key}", reason)
        name = match[1]
        index = match[2]
        if name:
            steps.append(name)
        elif index == "*":
            steps.append(index)
        else:
            steps.append(int(index))
        begin = match.end()
    if not steps:
        raise DocumentError(
            str(path), "vary", "has an empty key (write it as jobs[0].data.gradient)"
        )
    if len(steps) == 1 and steps[0] not in ScenarioSpec.model_fields:
        hint = suggestion(str(steps[0]), ScenarioSpec.model_fields)
        raise DocumentError(
            str(path), f"vary.{key}", f"is not a key of a scenario ({hint})", code="unknown-key"
        )
    return steps


def _set(
    path: str | Path,
    document: Any,
    key: str,
    steps: list[str | int],
    value: object,
) -> None:
    """Set the value of a key in a document of mappings and lists.

    Mappings on the way are made if they are absent.
    """
    step, *rest = steps
    if step == "*" and isinstance(document, list):
        for index in range(len(document)):
            _set(path, document, key, [index, *rest], value)
        return
    if isinstance(step, int):
        is_there = isinstance(document, list) and step < len(document)
    else:
        is_there = isinstance(document, dict) and step != "*"
    if not is_there:
        raise DocumentError(
            str(path), f"vary.{key}", f"there is no '{step}' in the scenario (correct the path)"
        )
    if not rest:
        document[step] = value
        return
    if isinstance(document, dict) and step not in document:
        document[step] = {}
    _set(path, document[step], key, rest, value)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        names = [str(value[key]) for key in ("fabric", "job", "scenario") if key in value]
        if names:
            return names[0]
        return repr(dict(value))
    return str(value)
