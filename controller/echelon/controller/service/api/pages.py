"""The page `/docs`: the OpenAPI document for people, as one HTML file without scripts.

It says nothing of this service's state, so it needs no token: a browser could not send one.
Plug-ins add other such pages by entry points of the group `echelon.pages`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib.metadata import entry_points
from typing import Any, Protocol

from fastapi import APIRouter, Request, Response

PATH = "/docs"

Part = Mapping[str, Any]
"""A part of the OpenAPI document."""
Row = tuple[str, str, str]
"""A row of a table: a name, a type as HTML, and a description."""


class Pages(Protocol):
    """Pages of a plug-in."""

    @staticmethod
    def router() -> APIRouter:
        """Return their endpoints."""

    @staticmethod
    def paths() -> frozenset[str]:
        """Return the paths that need no token.

        They say nothing which only clients may know.
        """


@cache
def other_pages() -> Sequence[Pages]:
    """Return the pages of all plug-ins."""
    return [entry.load() for entry in sorted(entry_points(group="echelon.pages"))]


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h1,h2{line-height:1.2}h2{margin-top:2.5rem;border-bottom:1px solid #ccc}
code,pre{font:14px/1.4 ui-monospace,monospace}pre{background:#f4f4f4;padding:.7rem;overflow:auto}
details{border:1px solid #ccc;border-radius:4px;margin:.4rem 0;padding:.4rem .7rem}summary{cursor:pointer}
summary b{display:inline-block;min-width:5rem}table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0;border-top:1px solid #eee}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}pre{background:#262626}}
"""
_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
)
"""The browser loads nothing, and runs nothing, but this style."""
_HEADERS = {"Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer"}

pages = APIRouter()


@pages.get(PATH, include_in_schema=False)
async def show_docs(request: Request) -> Response:
    """Return the documentation of the API as a page."""
    return Response(
        page(request.app.openapi()),
        media_type="text/html",
        headers=_HEADERS,
    )


def page(document: Part) -> str:
    """Return an OpenAPI document as HTML."""
    info = document["info"]
    title = f"{info['title']} {info['version']}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width"><style>'
        f"{_STYLE}</style><h1>{escape(title)}</h1><p>{escape(info.get('description', ''))}</p>"
        '<p>For programs: <a href="openapi.json">openapi.json</a></p>'
        f"{''.join(_operations(document))}<h2>Schemas</h2>{''.join(_schemas(document))}</html>\n"
    )


def _operations(document: Part) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = operation.get("tags", ["other"])[0]
            html = _operation(method.upper(), path, operation)
            by_tag.setdefault(tag, []).append(html)
    for tag, operations in by_tag.items():
        yield f"<h2>{escape(tag)}</h2>{''.join(operations)}"


def _operation(
    method: str,
    path: str,
    operation: Part,
) -> str:
    parameters = map(_parameter_row, operation.get("parameters", ()))
    responses = sorted(operation["responses"].items())
    answers = [_answer_row(status, answer) for status, answer in responses]
    parts = [
        f"<summary><b>{method}</b> <code>{escape(path)}</code></summary>",
        _description(operation),
        _table("Parameters", list(parameters)),
        *_body(operation),
        _table("Answers", answers),
    ]
    return f"<details>{''.join(parts)}</details>"


def _description(part: Part) -> str:
    return f"<p>{escape(part.get('description', ''))}</p>"


def _parameter_row(parameter: Part) -> Row:
    name = f"{parameter['name']} ({parameter['in']})"
    description = parameter.get("description", "")
    if parameter.get("required"):
        description = f"required. {description}".strip()
    return name, _type(parameter["schema"]), description


def _body(operation: Part) -> Iterator[str]:
    body = operation.get("requestBody", {})
    contents = body.get("content", {})
    for media, content in contents.items():
        yield f"<p>Body: {escape(media)}, {_content_type(content)}</p>"
        examples = content.get("examples", {})
        for name, example in examples.items():
            text = json.dumps(
                example["value"],
                indent=2,
                ensure_ascii=False,
            )
            yield f"<p>{escape(name)}</p><pre>{escape(text)}</pre>"


def _answer_row(status: str, answer: Part) -> Row:
    contents = answer.get("content", {})
    kinds = map(_content_type, contents.values())
    return status, ", ".join(kinds), answer.get("description", "")


def _content_type(content: Part) -> str:
    return _type(content.get("schema", {}))


def _schemas(document: Part) -> Iterator[str]:
    components = document.get("components", {})
    schemas = components.get("schemas", {})
    for name, schema in sorted(schemas.items()):
        needed = schema.get("required", ())
        properties = schema.get("properties", {})
        rows = []
        for key, value in properties.items():
            label = key if key in needed else f"{key} (optional)"
            description = value.get("description", "")
            rows.append((label, _type(value), description))
        head = f"<summary><code>{escape(name)}</code></summary>{_description(schema)}"
        kind = "" if rows else f"<p>{_type(schema)}</p>"
        yield f'<details id="{escape(name)}">{head}{kind}{_table("", rows)}</details>'


def _type(schema: Part) -> str:
    """Return the kind of a value as HTML, with links to schemas."""
    if "$ref" in schema:
        _, _, name = schema["$ref"].rpartition("/")
        return f'<a href="#{escape(name)}">{escape(name)}</a>'
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(map(_type, schema[key]))
    if "enum" in schema:
        return escape(" or ".join(map(str, schema["enum"])))
    if "const" in schema:
        return escape(str(schema["const"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "any")))


def _table(title: str, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    lines = []
    for name, kind, description in rows:
        lines.append(f"<tr><td><code>{escape(name)}</code><td>{kind}<td>{escape(description)}")
    caption = f"<p>{title}</p>" if title else ""
    return f"{caption}<table>{''.join(lines)}</table>"
