"""The page of what entry points register: policies, rankings, paradigms, importers and targets."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel

from docs.generate.schemas import keys
from docs.generate.text import summary, table

INTRODUCTION = """# Policies, rankings, targets and formats

What the entry points of Echelon register. [Extending](../extending.md) shows how a package of your own adds to each
list.
"""
OURS = ("echelon.", "echelon_importers.", "echelon_tofino.")
"""The beginnings of our own modules, the plug-ins' among them."""
NO_RANKINGS = {"base", "in_switches"}
"""The modules of `echelon.planning.rankings` that hold interfaces."""


def page() -> str:
    """Return the page."""
    return "\n".join(
        [
            INTRODUCTION,
            *_section("Policies", "echelon.policies", "Parameters"),
            *_rankings(),
            *_section("Paradigms", "echelon.paradigms", None),
            *_section("Importers", "echelon.importers", "options"),
            *_section("Topologies", "echelon.topologies", "Options"),
            *_section("Targets", "echelon.targets", "options"),
        ]
    )


def rankings() -> list[str]:
    """Return the names of the rankings, which are those of their modules."""
    import echelon.planning.rankings

    names = (module.name for module in pkgutil.iter_modules(echelon.planning.rankings.__path__))
    return sorted(name for name in names if name not in NO_RANKINGS)


def _section(title: str, group: str, options: str | None) -> Iterator[str]:
    yield f"## {title}\n"
    singular = re.sub("ies$", "y", title.lower()).removesuffix("s")
    for entry in sorted(entry_points(group=group)):
        if not entry.value.startswith(OURS):
            continue
        found: Any = entry.load()
        yield f"### {singular}: {entry.name}\n"
        yield f"{summary(sys.modules[found.__module__].__doc__)}\n"
        yield f"Module `{found.__module__}`.\n"
        model = getattr(found, options, None) if options else None
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield table(("key", "value", "default", "meaning"), keys(model, anchors=False))


def _rankings() -> Iterator[str]:
    yield "## Rankings\n"
    for name in rankings():
        module = import_module(f"echelon.planning.rankings.{name}")
        yield f"### ranking: {name}\n\n{summary(module.__doc__)}\n"
        yield f"Module `{module.__name__}`, P4 action `{name}` of table `flow`.\n"
