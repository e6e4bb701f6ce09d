"""Entries written in bulk as bytes: C does to packets what the interpreter does after the same
messages.
"""

from __future__ import annotations

import random
from pathlib import Path

from finsy.proto import p4r

from ctoolchain import compilers
from softswitch import Switch
from softswitch.native.choice import Choice
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.wire import WireRequest
from tests.needs import needs
from tests.reference.table_updates import load_p4info, updates

PROGRAMS = Path(__file__).parents[3] / "bench" / "programs"
ELECTION_ID = p4r.Uint128(low=1)
ENTRIES = 300
TABLES = ("exact", "lpm", "ternary", "one_shot")


def _device(engine: str) -> Device:
    device = Device(engines=Choice(engine, compilers()[-1:]))
    config = p4r.ForwardingPipelineConfig(
        p4info=load_p4info(PROGRAMS / "tables.p4info.txtpb"),
        p4_device_config=(PROGRAMS / "tables.json").read_bytes(),
    )
    device.install(config)
    claim = p4r.MasterArbitrationUpdate(device_id=1, election_id=ELECTION_ID)
    device.open_stream(lambda _: None, lambda _: None).receive(
        p4r.StreamMessageRequest(arbitration=claim)
    )
    return device


def _packet(rng: random.Random) -> bytes:
    """Return a packet that entries of some tables are for, or none."""
    mac, source, destination = (rng.randrange(2 * ENTRIES) for _ in range(3))
    if rng.random() < 0.5:
        destination <<= 4  # as prefixes are
    head = (
        mac.to_bytes(6, "big")
        + bytes(6)
        + b"\x08\x00"
        + bytes(9)
        + bytes([rng.randrange(3)])
        + bytes(2)
    )
    return head + source.to_bytes(4, "big") + destination.to_bytes(4, "big")


def _ports(switch: Switch | None, packets: list[bytes]) -> list[list[tuple[int, bytes]]]:
    assert switch is not None
    return [switch.process(0, packet, 0) for packet in packets]


@needs("a C compiler")
def test_packets_find_what_was_written_in_bulk() -> None:
    rng = random.Random(1)
    python, native = _device("python"), _device("native")
    written = [
        list(updates(load_p4info(PROGRAMS / "tables.p4info.txtpb"), table, ENTRIES))
        for table in TABLES
    ]
    mixed = [update for four in zip(*written, strict=True) for update in four]
    deleted = rng.sample(mixed, len(mixed) // 2)
    changed = [update for update in mixed if update not in deleted][::3]
    steps = [
        # One table after another, then the first ones again, which exist; then all tables in turn.
        [*(update for each in written for update in each), *written[0][:50], *written[3][:50]],
        [p4r.Update(type=p4r.Update.DELETE, entity=update.entity) for update in deleted],
        [p4r.Update(type=p4r.Update.MODIFY, entity=update.entity) for update in changed],
        rng.sample(mixed, len(mixed)),
    ]
    for step in steps:
        request = p4r.WriteRequest(device_id=1, election_id=ELECTION_ID, updates=step)
        assert native.write(WireRequest.parse(request.SerializeToString())) == python.write(request)
        packets = [_packet(rng) for _ in range(2000)]
        found = _ports(native.switch, packets)
        assert found == _ports(python.switch, packets)
        assert len({port for sent in found for port, _ in sent}) > 100
