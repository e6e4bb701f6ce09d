"""The engine in C without its short cuts: the same sources, of which a few lines are others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest import mock

from bench.ladder.laboratory import CSource, Loaded, load
from echelon.planning.fluid import native
from echelon.planning.rankings import deadline

MAIN = "engine.c"
FINEST_GRAINS = 2**20
"""The grains of a unit of ranks (`deadline.GRAINS_OF_UNIT`) before they became coarser: two flows
that overtake each other again and again are then told apart by a part of a byte."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Other text for a passage that is in a source once."""

    file: str
    passage: str
    text: str

    def edited(self, source: CSource) -> CSource:
        """Return the source with the other text. Raises `LookupError` if it lacks the passage."""
        text = source.text
        if self.file != MAIN:
            text = source.includes[self.file]
        if text.count(self.passage) != 1:
            raise LookupError(f"{self.file} of the engine has no longer: {self.passage}")
        text = text.replace(self.passage, self.text)
        if self.file == MAIN:
            return replace(source, text=text)
        return replace(source, includes={**source.includes, self.file: text})


WHOLE_NEIGHBOURHOODS = (
    Edit(MAIN, "e->spreads = !plan->before && keeps_queues(e, &plan->of);", "e->spreads = 0;"),
)
"""Rates are computed for all flows of a neighbourhood, and not only where changes reach."""

_FINE_ACKNOWLEDGEMENTS = Edit(
    "state.h",
    "#define ACKNOWLEDGED 3e-4",
    "#define ACKNOWLEDGED 1e-6\n#define MOST_ROUNDS 30\n",
)
_JOINED_DIRECTIONS = Edit(
    MAIN,
    "            if (!port->narrow) continue;\n            if (port->has_queues) {",
    """
            Port *back = e->g.acknowledging && port->reverse >= 0 ? &e->port[port->reverse] : 0;
            for (int k = 0; back && k < back->flows; k++) find(e, back->flow[k]);
            if (!port->narrow && !(back && back->flows)) continue;
            if (port->has_queues) {""",
)
_SETTLED_NEIGHBOURHOODS = Edit(
    MAIN,
    "    for (int i = 0; i < e->begun_count && e->g.acknowledging; i++) {\n",
    """
    for (int round = 0, again = 1; round < MOST_ROUNDS && again && !e->failed; round++) {
        again = 0;
        for (int i = 0; i < e->begun_count && e->g.acknowledging; i++) {
            Nearby *nearby = e->begun[i];
            int differs = 0;
            for (int k = 0; k < nearby->flows; k++)
                for (int h = 0; h < nearby->flow[k]->hops; h++)
                    differs |= reckon(e, &e->port[nearby->flow[k]->hop[h].port]);
            if (!differs) continue;
            again = 1;
            share_among_streams(e, nearby);
            for (int k = 0; k < nearby->flows; k++) load(e, nearby->flow[k]);
        }
    }
    for (int i = 0; i < e->begun_count && e->g.acknowledging; i++) {
""",
)
_SETTLED_CHANGES = Edit(
    MAIN,
    "    int settled = e->altered_count, matters = 0;\n",
    """
    for (int round = 0, again = 1; round < MOST_ROUNDS && again && !e->failed; round++) {
        again = 0;
        for (int i = 0; i < e->g.links && e->g.acknowledging; i++) {
            double before = e->port[i].taken;
            if (!reckon(e, &e->port[i])) continue;
            again = 1;
            renew_port(e, &e->port[i], e->port[i].taken - before);
        }
        if (!again) break;
        settle(e);
        load_ports(e);
    }
    int settled = e->altered_count, matters = 0;
""",
)
JOINT_ACKNOWLEDGEMENTS = (
    _FINE_ACKNOWLEDGEMENTS,
    _JOINED_DIRECTIONS,
    _SETTLED_NEIGHBOURHOODS,
    _SETTLED_CHANGES,
)
"""What acknowledgements take and the rates of the data agree after each event, at every port."""


@contextmanager
def edited_engine(edits: Sequence[Edit]) -> Iterator[None]:
    """Let runs use the engine with these edits.

    Raises `LookupError` if it lacks what is edited, `ToolchainError` if no compiler builds it.
    """
    loaded = _edited_engine(tuple(edits))
    with mock.patch.object(native, "_library", return_value=loaded):
        yield


@cache
def _edited_engine(edits: tuple[Edit, ...]) -> Loaded | None:
    def load_edited(source: CSource, declared: str, *_: object) -> Loaded:
        for edit in edits:
            source = edit.edited(source)
        return load(source, declared)

    # The product's own function finds the sources and what they declare.
    build: Callable[[], Any] = native._library.__wrapped__  # noqa: SLF001
    with mock.patch.object(native, "load_or_not", load_edited):
        loaded: Loaded | None = build()
    return loaded


@contextmanager
def finest_grain() -> Iterator[None]:
    """Let ranks that depend on rates be as fine as they were, whatever switches can tell."""
    with mock.patch.object(deadline, "GRAINS_OF_UNIT", FINEST_GRAINS):
        yield
