"""A switch's entry that names the binary of a chip: what is loaded, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from echelon.model.documents import DocumentError, parse_document
from echelon.switches.targets import TARGETS, Site
from echelon_tofino.target.options import TofinoOptions
from plugins.tofino.tests.target.conftest import PORTS, Rig


def options(**entry: object) -> TofinoOptions:
    return parse_document(TofinoOptions, entry, "echelon.yaml")


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    (tmp_path / "context.json").write_bytes(b'{"made": "for a chip"}')
    made = tmp_path / "tofino.bin"
    made.write_bytes(b"\x00\xffmade for a chip")
    return made


async def test_the_binary_is_loaded_once_and_found_running_afterwards(
    rig: Rig, binary: Path, make_intent: Any
) -> None:
    chosen = options(binary=str(binary))
    open_session = TARGETS["tofino"].session_factory(chosen)
    for is_running in (False, True):
        queues = TARGETS["tofino"].queue_driver(
            chosen, Site("s1", dict.fromkeys(PORTS, 10_000_000))
        )
        async with open_session("s1", rig.server.address, 1, rig.program, queues=queues) as session:
            # A program that is loaded again has no entries.
            assert bool(await session.compare(make_intent())) is not is_running
            await session.reconcile(make_intent())
    held = rig.device.program
    assert held is not None
    assert (held.binary, held.context) == (
        binary.read_bytes(),
        binary.with_name("context.json").read_bytes(),
    )


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("tofino.bin", "binary: tofino.bin is not an absolute path"),
        ("/nowhere/tofino.bin", "does not exist"),
    ],
)
def test_a_binary_that_is_not_there_is_refused_in_one_line(name: str, complaint: str) -> None:
    with pytest.raises(DocumentError, match=re.escape(complaint)) as caught:
        options(binary=name)
    assert "\n" not in str(caught.value)


def test_a_binary_needs_its_context(binary: Path) -> None:
    binary.with_name("context.json").unlink()
    with pytest.raises(DocumentError, match=r"context\.json does not exist"):
        options(binary=str(binary))
