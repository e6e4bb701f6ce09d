"""docs/extending.md and the README of the example: what they name exists."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from echelon.cli import app
from echelon.model.jobs.paradigm import Paradigm
from echelon.planning.policies.judges import Judge
from echelon.switches.targets import Target
from echelon_example_plugins.least_loaded import LeastLoaded
from echelon_example_plugins.mixture_of_experts import MixtureOfExperts
from tests.examples.installed import PLUGINS, ROOT

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
README = (PLUGINS / "README.md").read_text(encoding="utf-8")


GROUPS = {
    f"echelon.{name}"
    for name in (
        "algorithms",
        "commands",
        "files",
        "foreign",
        "importers",
        "judges",
        "pages",
        "paradigms",
        "paths",
        "pictures",
        "plots",
        "policies",
        "programs",
        "stores",
        "switch_configs",
        "targets",
        "topologies",
        "tree_hosts",
        "trees",
        "virtual_switches",
        "workers",
    )
}
"""Groups of entry points that no package has the name of."""


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"`(echelon(?:_lab)?(?:\.\w+)+)`", PAGE)) - GROUPS)
)
def test_a_module_or_class_that_the_page_names_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        assert hasattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize(
    ("kind", "base"),
    [("A policy", LeastLoaded), ("A paradigm", Paradigm), ("A target", Target), ("A judge", Judge)],
)
def test_the_methods_that_a_section_shows_are_those_of_the_interface(kind: str, base: type) -> None:
    section = PAGE.split(f"## {kind}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    shown = re.findall(r"def (\w+)\((.*?)\)", code)
    assert shown
    for method, parameters in shown:
        names = [name.strip().partition(":")[0] for name in parameters.split(", ")]
        assert names == list(inspect.signature(getattr(base, method)).parameters)


@pytest.mark.parametrize("page", [PAGE, README])
def test_links_lead_somewhere(page: str) -> None:
    home = ROOT / "docs" if page is PAGE else PLUGINS
    links = re.findall(r"\]\(([^)#]+)\)", page)
    assert links
    assert all((home / link).exists() for link in links)


def test_the_section_that_the_readme_shows_is_that_of_the_lab() -> None:
    (shown,) = (
        yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    )
    lab = yaml.safe_load((PLUGINS / "lab" / "moe.yaml").read_text())
    assert shown["mixture_of_experts"] == lab["mixture_of_experts"]
    assert set(shown["mixture_of_experts"]) == set(MixtureOfExperts.model_fields)


def test_commands_and_files_that_the_readme_shows_exist() -> None:
    commands = re.findall(r"^echelon (\w+)(.*)$", README, re.MULTILINE)
    assert {name for name, _ in commands} <= set(get_command(app).commands)  # type: ignore[attr-defined]
    paths = [word for _, rest in commands for word in rest.split() if word.startswith("examples/")]
    assert paths
    assert all(Path(ROOT / path).exists() for path in paths)
