"""A switch's entry that names the binary of a chip: what is loaded, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from echelon.model.documents import DocumentError, parse_document
from echelon.switches.targets import TARGETS, Site
from echelon_tofino.target.options import TofinoOptions
from plugins.tofino.tests.target.conftest import PORTS, Rig
from tests.faults import coded


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
    "name",
    [
        # It is there, so it is refused as no absolute path.
        "tofino.bin",
        "/nowhere/tofino.bin",
    ],
)
def test_a_binary_that_is_not_there_is_refused_in_one_line(
    binary: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(binary.parent)
    with pytest.raises(DocumentError, check=coded("invalid-value", name, path="binary")) as caught:
        options(binary=name)
    assert "\n" not in str(caught.value)


def test_a_binary_needs_its_context(binary: Path) -> None:
    context = binary.with_name("context.json")
    context.unlink()
    with pytest.raises(DocumentError, check=coded("invalid-value", str(context), path="binary")):
        options(binary=str(binary))
