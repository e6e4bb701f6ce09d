"""What MkDocs calls while it builds the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.generate import commands, links, p4, plugins, python, rest, schemas

ROOT = Path(__file__).parents[2]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages, those beside `docs/`, and the sources to which pages link."""
    for place, text in _pages():
        files.append(File.generated(config, place, content=text))
    found: dict[str, str] = {}
    written = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for src_uri, text in written.items():
        for target in links.targets(text, _place(src_uri)):
            if links.is_source(target) and links.on_site(target) not in found:
                found |= links.source_pages(ROOT, target)
    for place, text in found.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links that lead to pages of the site."""
    src_uri = page.file.src_uri
    if src_uri.startswith(f"{links.SOURCES}/"):
        return markdown
    if src_uri.startswith(_LOOKED_UP):
        page.meta["search"] = {"boost": 0.5}
    place = _place(src_uri)
    return links.rewritten(markdown, place, PurePosixPath(src_uri))


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Refuse a page that would load a script, a style or a picture from another host."""
    if found := _REMOTE.search(output):
        raise PluginError(
            f"{page.file.src_uri}: loads {found[1]} (pages load nothing from other hosts)"
        )
    return output


_LOOKED_UP = ("reference/", "notebook/", "results.md", "changelog.md")
"""The pages of which the search lists a section behind those that explain."""
_REMOTE = re.compile(r'<(?:script|img|iframe)[^>]* src="((?:https?:)?//[^"]*)"')


def _pages() -> Iterator[tuple[str, str]]:
    for name, place in links.ROOT_PAGES.items():
        yield place, (ROOT / name).read_text(encoding="utf-8")
    for path in sorted((ROOT / links.NOTEBOOK).glob("*.md")):
        yield links.on_site(f"{links.NOTEBOOK}/{path.name}"), path.read_text(encoding="utf-8")
    yield "reference/commands.md", commands.page()
    yield "reference/files.md", schemas.page()
    yield "reference/rest.md", rest.page()
    yield "reference/python.md", python.page()
    yield "reference/p4.md", p4.page(ROOT / "p4src" / "build")
    yield "reference/plugins.md", plugins.page()


def _place(src_uri: str) -> PurePosixPath:
    """Return the path in the repository of a page of the site."""
    beside = {place: name for name, place in links.ROOT_PAGES.items()}
    if src_uri.startswith("notebook/"):
        return PurePosixPath("research", src_uri)
    return PurePosixPath(beside.get(src_uri, f"{links.DOCS}/{src_uri}"))
