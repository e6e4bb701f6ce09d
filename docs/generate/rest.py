"""The page of the REST API, from the document that the service itself answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from docs.generate.text import code, table

INTRODUCTION = """# REST API

The operations of the service, from its OpenAPI document (`GET /openapi.json`). [The service](service.md#api) shows
requests and answers; [errors](../errors.md) lists the codes of errors.
"""


def page() -> str:
    """Return the page."""
    document = openapi()
    parts = [INTRODUCTION]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts += [f"## {method.upper()} {path}\n", *_operation(operation)]
    parts.append("## Schemas\n")
    for name, schema in document["components"]["schemas"].items():
        parts += [f"### {name}\n", *_schema(schema)]
    return "\n".join(parts)


def openapi() -> Mapping[str, Any]:
    """Return the document, as a service with tokens answers it."""
    from echelon.controller.service.api.app import create_app
    from echelon.controller.service.api.settings import ApiSettings
    from echelon.controller.service.controller import ControllerService

    # The document depends on no state of a service.
    app = create_app(
        cast("ControllerService", None), ApiSettings(), metrics=lambda: (b"", "text/plain")
    )
    return cast("Mapping[str, Any]", app.openapi())


def _operation(operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"{operation.get('description') or operation.get('summary', '')}\n"
    yield table(
        ("parameter", "in", "type", "meaning"),
        [
            (code(one["name"]), one["in"], _type(one["schema"]), one.get("description", ""))
            for one in operation.get("parameters", ())
        ],
    )
    for content in operation.get("requestBody", {}).get("content", {}).values():
        yield f"Body: {_type(content.get('schema', {}))}.\n"
        for example in content.get("examples", {}).values():
            yield f"```json\n{json.dumps(example['value'], indent=2)}\n```\n"
    yield table(
        ("status", "answer", "meaning"),
        [
            (
                status,
                ", ".join(
                    _type(one.get("schema", {})) for one in answer.get("content", {}).values()
                ),
                answer.get("description", ""),
            )
            for status, answer in operation.get("responses", {}).items()
        ],
    )


def _schema(schema: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("description"):
        yield f"{schema['description']}\n"
    if "enum" in schema:
        yield ", ".join(code(str(one)) for one in schema["enum"]) + "\n"
    yield table(
        ("field", "type", "meaning"),
        [
            (code(name), _type(one), one.get("description", ""))
            for name, one in schema.get("properties", {}).items()
        ],
    )


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key, word in (("anyOf", " or "), ("oneOf", " or "), ("allOf", " and ")):
        if key in schema:
            return word.join(dict.fromkeys(_type(one) for one in schema[key]))
    if "enum" in schema:
        return " or ".join(code(str(one)) for one in schema["enum"])
    if "const" in schema:
        return code(str(schema["const"]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"mapping to {_type(schema['additionalProperties'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
