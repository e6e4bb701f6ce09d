"""The documentation site: its reference is complete, its tables are where it says, its lines are
short.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath

import pytest
import yaml

import echelon
from docs.generate import commands, links, p4, plugins, python, rest, schemas
from docs.generate.results import PLACE
from docs.generate.text import tables
from echelon.planning import rankings
from tests.docs.pages import DOCS, PAGES, RECORDS, ROOT

MAX_COLUMNS = 120
MADE_BY_A_PROGRAM = re.compile(
    r"<!-- make p4-report: begin -->.*?<!-- make p4-report: end -->", re.DOTALL
)
NOT_MEASURED = {
    "docs/install.md": ["| to | needs"],
    "docs/reference/conformance.md": ["| number | part"],
    "docs/reference/jobs.md": ["| `--gpu` |"],
    "docs/study.md": ["| experiment | setting"],
}
"""Tables with numbers that nobody has measured here, by the beginnings of their heads."""
NUMBER = re.compile(r"\d+\.\d+|\d{1,3},\d{3}|[+-]?\d+ %")


def test_every_command_is_in_the_reference() -> None:
    page = commands.page()
    found = [" ".join(path) for path, _ in commands.commands()]
    assert len(found) > 40
    assert [name for name in found if not re.search(rf"^##+ {name}$", page, re.MULTILINE)] == []
    for path, command in commands.commands():
        section = re.split(rf"^##+ {' '.join(path)}$", page, maxsplit=1, flags=re.MULTILINE)[
            1
        ].split("\n##")[0]
        options = [
            name
            for one in command.params
            if not one.hidden
            for name in (*one.opts, *one.secondary_opts)
        ]
        missing = [
            name
            for name in options
            if name.startswith("--") and name != "--help" and name not in section
        ]
        assert missing == [], path


def test_every_path_of_the_api_is_in_the_reference() -> None:
    page = rest.page()
    operations = [
        (method.upper(), path)
        for path, methods in rest.openapi()["paths"].items()
        for method in methods
    ]
    assert ("GET", "/metrics") in operations
    assert len(operations) > 15
    assert [one for one in operations if f"## {one[0]} {one[1]}\n" not in page] == []


@pytest.mark.parametrize("architecture", p4.PROGRAMS)
def test_every_table_of_a_program_is_in_the_reference(architecture: str) -> None:
    text = (ROOT / "p4src" / "build" / architecture / "echelon.p4info.txtpb").read_text()
    # Read without a library: the alias is the last line of the preamble of each table.
    aliases = re.findall(
        r'^tables \{\n  preamble \{.*?^    alias: "(\w+)"', text, re.DOTALL | re.MULTILINE
    )
    page = p4.page(ROOT / "p4src" / "build")
    assert len(aliases) >= (3 if architecture == "dscp" else 12)
    assert [alias for alias in aliases if f"### {architecture}: {alias}\n" not in page] == []


def test_every_name_of_the_python_api_is_in_the_reference() -> None:
    shown = re.findall(r"^::: echelon\.(\w+)$", python.page(), re.MULTILINE)
    assert shown == echelon.__all__


def test_every_key_of_every_file_is_explained() -> None:
    page = schemas.page()
    for place, _ in schemas.KINDS.values():
        model = schemas.named(place)
        for each in schemas.models(model):
            for key, _, _, meaning in schemas.keys(each):
                assert meaning, f"{each.__name__}.{key} has no docstring"
                assert f"| {key} |" in page


@pytest.mark.parametrize("group", ["policies", "paradigms", "importers", "topologies", "targets"])
def test_every_entry_point_of_echelon_is_in_the_reference(group: str) -> None:
    page = plugins.page()
    names = [
        entry.name
        for entry in entry_points(group=f"echelon.{group}")
        if entry.value.startswith(plugins.OURS)
    ]
    assert names
    assert [name for name in names if f": {name}\n" not in page] == []


def test_every_ranking_is_in_the_reference() -> None:
    control = (ROOT / "p4src" / "v1model" / "include" / "control" / "flow.p4").read_text()
    actions = re.findall(r'@name\("\.(\w+)"\)\s+action', control)
    assert set(plugins.rankings()) == set(actions)
    assert rankings.__doc__


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_fit_120_columns(page: Path) -> None:
    text = MADE_BY_A_PROGRAM.sub("", page.read_text(encoding="utf-8"))
    assert [line for line in text.splitlines() if len(line) > MAX_COLUMNS] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    """The pages are read there, too. Anchors are checked by `make docs`."""
    place = PurePosixPath(page.relative_to(ROOT))
    missing = [
        one
        for one in links.targets(page.read_text(encoding="utf-8"), place)
        if not (ROOT / one).exists()
    ]
    assert missing == []


def test_every_page_is_in_the_navigation() -> None:
    """`make docs` warns of these, and warnings are errors; this says it earlier."""
    listed = re.findall(r"[\w/-]+\.md", yaml.dump(yaml.safe_load(_without_tags())["nav"]))
    assert {str(page.relative_to(ROOT / "docs")) for page in DOCS} <= set(listed)


def test_measured_tables_are_made_by_a_program_or_in_the_notebook() -> None:
    """Every table of a page that has numbers with decimals, thousands or per cent in three cells or
    more.
    """
    for page in DOCS:
        place = str(page.relative_to(ROOT))
        text = MADE_BY_A_PROGRAM.sub("", PLACE.sub("", page.read_text(encoding="utf-8")))
        for table in tables(text):
            cells = [cell for line in table.splitlines()[2:] for cell in line.split("|")]
            if sum(bool(NUMBER.search(cell)) for cell in cells) < 3:
                continue
            heads = NOT_MEASURED.get(place, ())
            assert any(table.startswith(head) for head in heads), f"{place}: {table[:80]}"


@pytest.mark.parametrize("page", RECORDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_table_of_the_notebook_has_its_record(page: Path) -> None:
    """Each measured table has a line with date, commit and machine between the one before and
    itself.
    """
    text = page.read_text(encoding="utf-8")
    for table in tables(text):
        before, _, text = text.partition(table)
        cells = [cell for line in table.splitlines()[2:] for cell in line.split("|")]
        if sum(bool(NUMBER.search(cell)) for cell in cells) >= 3:
            assert "*Date: " in before, f"{page.name}: {table.splitlines()[0]}"


def test_versions_agree() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    others = [
        *(ROOT / name / "pyproject.toml" for name in ("ctoolchain", "lab", "softswitch")),
        *ROOT.glob("plugins/*/pyproject.toml"),
    ]
    assert len(others) == 12
    assert {tomllib.loads(file.read_text())["project"]["version"] for file in others} == {version}
    pinned = re.findall(
        r"(?:echelon|softswitch)-[a-z0-9-]+(?:\[[a-z]+\])?==([\d.]+)",
        "".join(file.read_text() for file in (ROOT / "pyproject.toml", *others)),
    )
    assert set(pinned) == {version}
    (newest, *_) = re.findall(
        r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert newest == version


def test_the_site_loads_nothing_from_elsewhere() -> None:
    settings = yaml.safe_load(_without_tags())
    assert settings["theme"]["font"] is False
    assert not {"extra_css", "extra_javascript"} & set(settings)


def _without_tags() -> str:
    return re.sub(r"!!python\S+", "", (ROOT / "mkdocs.yml").read_text())
