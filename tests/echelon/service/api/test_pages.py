"""The page of the API: complete, without anything from elsewhere, and safe whatever the document
says.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import httpx

from echelon.controller.service.api.pages import page
from tests.echelon.service.api.conftest import Api


class Parsed(HTMLParser):
    """The elements, the attributes that load something, and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]
        self.ids |= {value or "" for name, value in attrs if name == "id"}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_every_operation_and_schema(api: Api) -> None:
    document = httpx.get(
        f"{api.url}/openapi.json", headers={"Authorization": f"Bearer {api.reader}"}
    ).json()
    answer = httpx.get(f"{api.url}/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    parsed = Parsed(answer.text)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert f"{method.upper()} {path}" in parsed.text
            assert operation.get("description", "") in parsed.text
            for parameter in operation.get("parameters", ()):
                assert f"{parameter['name']} ({parameter['in']})" in parsed.text
    assert set(document["components"]["schemas"]) == parsed.ids
    assert all(link == "openapi.json" or link[1:] in parsed.ids for link in parsed.links)


def test_the_page_loads_and_runs_nothing(api: Api) -> None:
    answer = httpx.get(f"{api.url}/docs")
    parsed = Parsed(answer.text)
    assert not parsed.elements & {"script", "link", "img", "iframe", "object", "form"}
    assert not {
        name for name in parsed.attributes if name.startswith("on") or name in ("src", "style")
    }
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
    style = re.search(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy["style-src"] == f"'sha256-{digest}'"


def test_no_token_is_needed_and_the_document_needs_one(api: Api) -> None:
    assert httpx.get(f"{api.url}/docs").status_code == 200
    assert httpx.get(f"{api.url}/openapi.json").status_code == 401
    assert httpx.post(f"{api.url}/docs").status_code == 405


def test_texts_are_not_markup() -> None:
    bad = "<script>alert('x')</script>"
    schema = {
        "type": "object",
        "description": bad,
        "properties": {bad: {"type": bad, "description": bad}},
    }
    document: dict[str, Any] = {
        "info": {"title": bad, "version": bad, "description": bad},
        "paths": {
            f"/{bad}": {
                "get": {
                    "description": bad,
                    "tags": [bad],
                    "parameters": [
                        {"name": bad, "in": "query", "schema": {"enum": [bad]}, "description": bad}
                    ],
                    "requestBody": {
                        "content": {
                            bad: {"schema": {"$ref": f"#/{bad}"}, "examples": {bad: {"value": bad}}}
                        }
                    },
                    "responses": {
                        "200": {"description": bad, "content": {bad: {"schema": schema}}}
                    },
                }
            }
        },
        "components": {"schemas": {bad: schema}},
    }
    html = page(json.loads(json.dumps(document)))
    assert "script" not in Parsed(html).elements
    assert html.count("<script") == 0
