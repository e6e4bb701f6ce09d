"""The page `/docs`: the OpenAPI document for people, as one HTML file without scripts and without
other files.

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


class Pages(Protocol):
    """Pages of a plug-in."""

    @staticmethod
    def router() -> APIRouter:
        """Return their endpoints."""

    @staticmethod
    def paths() -> frozenset[str]:
        """Return the paths that need no token, because they say nothing which only clients may
        know.
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
    return Response(page(request.app.openapi()), media_type="text/html", headers=_HEADERS)


def page(document: Mapping[str, Any]) -> str:
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


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            shown = _operation(method.upper(), path, operation)
            by_tag.setdefault(operation.get("tags", ["other"])[0], []).append(shown)
    for tag, shown_all in by_tag.items():
        yield f"<h2>{escape(tag)}</h2>{''.join(shown_all)}"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parts = [f"<p>{escape(operation.get('description', ''))}</p>"]
    parameters = [
        (
            f"{one['name']} ({one['in']})",
            _type(one["schema"]),
            " ".join(
                ["required." if one.get("required") else "", one.get("description", "")]
            ).strip(),
        )
        for one in operation.get("parameters", ())
    ]
    parts.append(_table("Parameters", parameters))
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body: {escape(media)}, {_type(content.get('schema', {}))}</p>")
        for name, example in content.get("examples", {}).items():
            text = json.dumps(example["value"], indent=2, ensure_ascii=False)
            parts.append(f"<p>{escape(name)}</p><pre>{escape(text)}</pre>")
    answers = [
        (
            status,
            ", ".join(
                _type(content.get("schema", {})) for content in answer.get("content", {}).values()
            ),
            answer.get("description", ""),
        )
        for status, answer in sorted(operation["responses"].items())
    ]
    parts.append(_table("Answers", answers))
    summary = f"<summary><b>{method}</b> <code>{escape(path)}</code></summary>"
    return f"<details>{summary}{''.join(parts)}</details>"


def _schemas(document: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in sorted(document.get("components", {}).get("schemas", {}).items()):
        needed = schema.get("required", ())
        rows = [
            (key + ("" if key in needed else " (optional)"), _type(of), of.get("description", ""))
            for key, of in schema.get("properties", {}).items()
        ]
        head = f"<summary><code>{escape(name)}</code></summary><p>{escape(schema.get('description', ''))}</p>"
        kind = "" if rows else f"<p>{_type(schema)}</p>"
        yield f'<details id="{escape(name)}">{head}{kind}{_table("", rows)}</details>'


def _type(schema: Mapping[str, Any]) -> str:
    """Return the kind of a value as HTML, with links to schemas."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(_type(one) for one in schema[key])
    if "enum" in schema or "const" in schema:
        return escape(" or ".join(map(str, schema.get("enum", [schema.get("const")]))))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "any")))


def _table(title: str, rows: list[tuple[str, str, str]]) -> str:
    """Return rows of a name, a type as HTML, and a description."""
    if not rows:
        return ""
    cells = (
        f"<tr><td><code>{escape(n)}</code><td>{kind}<td>{escape(said)}" for n, kind, said in rows
    )
    return f"{f'<p>{title}</p>' if title else ''}<table>{''.join(cells)}</table>"
