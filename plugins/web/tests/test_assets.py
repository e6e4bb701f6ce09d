"""The files of the page: what is vendored is what it says, nothing comes from elsewhere, and nobody
needs a token.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from echelon_web import assets
from tests.echelon.service.api.conftest import Api, api, running  # noqa: F401 - fixtures

VENDOR = "vendor/"
VERSIONS = json.loads(assets.asset(f"{VENDOR}versions.json").content)
OWN = [name for name in assets.names() if not name.startswith(VENDOR)]


class Loaded(HTMLParser):
    """The files that a page loads, and what stands in it that its policy forbids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.files: list[str] = []
        self.inline: list[str] = []
        self._tag = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        given = dict(attrs)
        self.files += [
            value
            for name, value in attrs
            if value and (name == "src" or (name == "href" and tag == "link"))
        ]
        self.inline += [
            f"{tag} {name}" for name in given if name.startswith("on") or name == "style"
        ]

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag in ("script", "style") and data.strip():
            self.inline.append(self._tag)


def test_vendored_libraries_are_those_of_the_note() -> None:
    scripts = {
        name.removeprefix(VENDOR)
        for name in assets.names()
        if name.startswith(VENDOR) and name.endswith(".js")
    }
    assert scripts == set(VERSIONS)
    for file, note in VERSIONS.items():
        content = assets.asset(VENDOR + file).content
        assert hashlib.sha256(content).hexdigest() == note["sha256"], file
        licence = assets.asset(f"{VENDOR}{note['package']}.LICENSE.txt").content.decode()
        assert {"Apache-2.0": "Apache License", "MIT": "Permission is hereby granted"}[
            note["licence"]
        ] in licence


def test_the_library_for_tests_is_vendored_with_its_licence() -> None:
    here = Path(__file__).parent / "vendor"
    note = json.loads((here / "versions.json").read_text())["axe.min.js"]
    assert hashlib.sha256((here / "axe.min.js").read_bytes()).hexdigest() == note["sha256"]
    assert "Mozilla Public License" in (here / "axe.LICENSE.txt").read_text()


def test_the_page_loads_only_files_that_are_there_and_holds_no_code() -> None:
    page = Loaded(assets.page("service").content.decode())
    assert page.inline == []
    assert page.files
    assert {file.removeprefix("web/") for file in page.files} <= set(assets.names())


@pytest.mark.parametrize("name", [name for name in OWN if name.endswith(".js")])
def test_modules_import_only_what_is_there(name: str) -> None:
    text = assets.asset(name).content.decode()
    folder = name.rpartition("/")[0]
    for imported in re.findall(r'from "([^"]+)"', text):
        assert imported.startswith("./")
        assert f"{folder}/{imported[2:]}" in assets.names()
    for loaded in re.findall(r'"web/([^"]+)"', text):
        assert loaded in assets.names()
    assert "innerHTML" not in text, "texts are never markup"
    assert "https://" not in text
    assert "http://" not in text.replace('"http://www.w3.org/2000/svg"', ""), (
        "that is a name, which nothing loads"
    )
    assert "localStorage" not in text, "the token stays in its tab"


def test_no_file_has_long_lines() -> None:
    for name in OWN:
        if name.endswith((".css", ".html")):
            assert all(
                len(line) <= 120 for line in assets.asset(name).content.decode().splitlines()
            ), name


def test_the_files_need_no_token_and_come_with_the_policy(api: Api) -> None:  # noqa: F811
    with httpx.Client(base_url=api.url, trust_env=False) as http:
        for path in sorted(assets.paths()):
            answer = http.get(path)
            assert answer.status_code == 200, path
            policy = dict(
                part.strip().split(" ", 1)
                for part in answer.headers["content-security-policy"].split(";")
            )
            assert policy.pop("img-src") == "'self' data:"
            for name in ("script-src", "style-src", "connect-src"):
                assert policy.pop(name) == "'self'"
            assert set(policy.values()) == {"'none'"}
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert http.get("/web/nothing.js").status_code == 401
        assert http.get("/web/../../assets.py").status_code == 401
        assert http.post("/").status_code == 405
        # A file that the browser has is not sent again.
        known = http.get("/web/vendor/echarts.min.js")
        again = http.get(
            "/web/vendor/echarts.min.js", headers={"If-None-Match": known.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")


def test_files_are_compressed_for_those_who_take_it(api: Api) -> None:  # noqa: F811
    plain = assets.asset("vendor/echarts.min.js").content
    with httpx.Client(base_url=api.url, trust_env=False) as http:
        url = "/web/vendor/echarts.min.js"
        assert http.get(url, headers={"Accept-Encoding": "identity"}).content == plain
        with http.stream("GET", url, headers={"Accept-Encoding": "gzip"}) as answer:
            raw = b"".join(answer.iter_raw())
    assert len(raw) < len(plain) / 2
    assert gzip.decompress(raw) == plain
