"""The page of the files that people write, from the models that check them."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from docs.generate.text import code, summary, table
from echelon.model.quantities import duration_text, rate_text, size_text

INTRODUCTION = """# Files

Every key of the files that people write, from the models that check them. `echelon check FILE` checks a file of any of
these kinds. Quantities have units: `10 Mbit/s`, `2.5 MB`, `20 ms`.
"""
KINDS = {
    "Job file": ("echelon.model.jobs.spec:JobSpec", "jobs.md"),
    "Fabric file": ("echelon.model.fabric.load:FabricSpec", "reference/scenarios.md#fabric"),
    "Scenario file": (
        "echelon_lab.scenarios.scenario:ScenarioSpec",
        "reference/scenarios.md#scenario",
    ),
    "Sweep file": ("echelon_lab.sweeps.spec:SweepSpec", "study.md#sweeps"),
    "Configuration of the service": (
        "echelon.controller.service.config_file:ServiceSpec",
        "reference/service.md#configuration",
    ),
    "Tokens file": ("echelon.controller.service.api.tokens:TokensSpec", "service.md#security"),
}
"""The title of each kind of file, its model, and the page that explains it."""


QUANTITIES: Mapping[str, Callable[[Any], str]] = {
    "10 ms": duration_text,
    "2.5 MB": size_text,
    "10 Mbit/s": rate_text,
    "1250 B": size_text,
}
"""The writers of quantities, by the example that the schema of a quantity has."""


def page() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for title, (place, explained) in KINDS.items():
        parts += [f"## {title}\n", f"[Explained here](../{explained}).\n"]
        for number, model in enumerate(models(named(place))):
            parts += _model(model, top=number == 0)
    return "\n".join(parts)


def models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return a model and all those in its fields, each once, without other kinds of file."""
    others = {named(place) for place, _ in KINDS.values()} - {model}
    found: list[type[BaseModel]] = []

    def add(one: type[BaseModel]) -> None:
        if one in found or one in others:
            return
        found.append(one)
        for field in one.model_fields.values():
            for inner in _inner(field.annotation):
                add(inner)

    add(model)
    return found


def keys(model: type[BaseModel], *, anchors: bool = True) -> list[tuple[str, str, str, str]]:
    """Return key, type, default and meaning of each field of a model.

    With `anchors`, types link to the tables of sections on the same page.
    """
    described = _docstrings(model)
    with warnings.catch_warnings():
        # Defaults are taken from the model: the schema has no words for some of them.
        warnings.simplefilter("ignore")
        schema = model.model_json_schema().get("properties", {})
    return [
        (
            code(name),
            _type(schema[name], anchors=anchors),
            _default(field, schema[name]),
            _meaning(field, described.get(name, "")),
        )
        for name, field in model.model_fields.items()
    ]


def _model(model: type[BaseModel], *, top: bool) -> Iterator[str]:
    if not top:
        yield f"### {model.__name__}\n"
    if model.__doc__ and model.__doc__ != BaseModel.__doc__:
        yield f"{inspect.cleandoc(model.__doc__)}\n"
    yield table(("key", "value", "default", "meaning"), keys(model))


@cache
def named(place: str) -> type[BaseModel]:
    module, _, name = place.partition(":")
    found: type[BaseModel] = getattr(import_module(module), name)
    return found


def _inner(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for argument in get_args(annotation):
        yield from _inner(argument)


def _type(schema: Mapping[str, Any], *, anchors: bool) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"section [{name}](#{_anchor(name)})" if anchors else "section"
    if "enum" in schema or "const" in schema:
        return ", ".join(code(str(one)) for one in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        alternatives = [
            one for one in schema["anyOf"] if one not in ({"type": "null"}, {"const": 0})
        ]
        return " or ".join(dict.fromkeys(_type(one, anchors=anchors) for one in alternatives))
    kind = schema.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    if kind == "array":
        return f"list of {_type(schema.get('items', {}), anchors=anchors)}"
    if kind == "object":
        return "mapping"
    words = {
        "string": "text",
        "integer": "integer",
        "number": "number",
        "boolean": "`true` or `false`",
    }
    example = f", e.g. {code(str(schema['examples'][0]))}" if schema.get("examples") else ""
    return f"{words.get(kind, kind)}{_range(schema)}{example}"


def _anchor(name: str) -> str:
    """Return the anchor of the table of a model."""
    of_kinds = {named(place).__name__: title for title, (place, _) in KINDS.items()}
    return of_kinds.get(name, name).lower().replace(" ", "-")


def _range(schema: Mapping[str, Any]) -> str:
    limits = {
        "minimum": "at least",
        "exclusiveMinimum": "more than",
        "maximum": "at most",
        "exclusiveMaximum": "less than",
    }
    return "".join(f", {words} {schema[key]:,}" for key, words in limits.items() if key in schema)


def _default(field: FieldInfo, schema: Mapping[str, Any]) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=False)
    if (
        value is None
        or value is PydanticUndefined
        or isinstance(value, BaseModel)
        or value in ((), {}, "")
    ):
        return ""
    if isinstance(value, tuple):
        return ", ".join(code(str(one)) for one in value)
    for one in schema.get("anyOf", [schema]):
        for example in one.get("examples", ()):
            if example in QUANTITIES:
                return code(QUANTITIES[example](value))
    if isinstance(value, SecretStr):
        return code(value.get_secret_value())
    return code(str(value).lower() if isinstance(value, bool) else str(value))


def _meaning(field: FieldInfo, docstring: str) -> str:
    described = (field.description or "").strip()
    sentence = f"{described[:1].upper()}{described[1:]}." if described else ""
    if sentence or docstring:
        return " ".join(part for part in (sentence, docstring) if part)
    return " ".join(summary(model.__doc__) for model in _inner(field.annotation))


@cache
def _docstrings(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the docstrings below the fields of a class and of those that it derives from."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if not issubclass(one, BaseModel) or one is BaseModel:
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
        except (OSError, TypeError):
            continue
        (of_class,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        for node, after in itertools.pairwise(of_class.body):
            match node, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str(text))
                ):
                    found[name] = summary(text)
    return found
