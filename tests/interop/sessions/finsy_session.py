"""A session of finsy with a switch that has no program yet: everything a controller does, once.

    python finsy_session.py ADDRESS P4INFO JSON PORT1 PORT2

Prints what it saw as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import finsy as fy
from wire import TIMEOUT_S, Wire, ethernet


async def main() -> None:
    address, p4info, program, path1, path2 = sys.argv[1:]
    port1, port2 = Wire(path1), Wire(path2)
    saw: dict[str, object] = {}
    options = fy.SwitchOptions(p4info=Path(p4info), p4blob=Path(program))
    async with fy.Switch("sw1", address, options) as switch:
        saw["primary"] = switch.is_primary
        await switch.write(entries())
        found = [entry async for entry in switch.read(fy.P4TableEntry("exact_table"))]
        saw["entries"] = sorted(entry.match["dst"] for entry in found)
        saw["symmetric"] = found == [forward(dst, port) for dst, port in FORWARDS]
        one_shots = [entry async for entry in switch.read(fy.P4TableEntry("selector_table"))]
        saw["one_shot"] = [weight for entry in one_shots for weight, _ in entry.action.action_set]
        try:
            await switch.insert([forward(10, 2), forward(99, 2)])
        except fy.P4ClientError as error:
            saw["duplicate"] = [
                str(error.code.name),
                [str(part.canonical_code.name) for part in error.details.values()],
            ]

        port1.send(ethernet(0xA))
        saw["forwarded"] = (await asyncio.to_thread(port2.receive)).hex()
        key = forward(10, 2)
        counted = [
            entry
            async for entry in switch.read(
                fy.P4DirectCounterEntry("exact_counter", table_entry=key)
            )
        ]
        saw["counted"] = [entry.data.packet_count for entry in counted]
        cells = [cell async for cell in switch.read(fy.P4RegisterEntry("last_type", index=1))]
        saw["register"] = [int(cell.data) for cell in cells]

        await switch.write([+fy.P4DigestEntry("station_t", max_list_size=1, ack_timeout_ns=10**9)])
        digests = switch.read_digests("station_t")
        coming = asyncio.ensure_future(anext(digests))
        await asyncio.sleep(0)
        port1.send(ethernet(0xA, src=0x0200000000AA))
        learnt = await asyncio.wait_for(coming, TIMEOUT_S)
        saw["digest"] = [dict(value) for value in learnt]
        await switch.write([learnt.ack()])

        packets = switch.read_packets()
        arriving = asyncio.ensure_future(anext(packets))
        await asyncio.sleep(0)
        port1.send(ethernet(0xC))
        packet = await asyncio.wait_for(arriving, TIMEOUT_S)
        saw["packet_in"] = [packet.payload.hex(), dict(packet.metadata)]
        await switch.write([fy.P4PacketOut(ethernet(0xD), egress_port=2, unused=0)])
        for _ in range(3):  # the frames that were forwarded before come first
            saw["packet_out"] = (await asyncio.to_thread(port2.receive)).hex()
            if saw["packet_out"] == ethernet(0xD).hex():
                break
        await switch.delete_all()
        saw["left"] = len([entry async for entry in switch.read(fy.P4TableEntry("exact_table"))])
    print(json.dumps(saw))


FORWARDS = [(10, 2), (11, 3), (12, 510)]


def forward(dst: int, port: int) -> fy.P4TableEntry:
    return fy.P4TableEntry(
        "exact_table",
        match=fy.Match(dst=dst, ingress_port=1),
        action=fy.Action("forward", port=port, mark=7),
    )


def entries() -> list[object]:
    return [
        *(+forward(dst, port) for dst, port in FORWARDS),
        +fy.P4TableEntry(
            "lpm_table", match=fy.Match(src="00:00:0a:00:00:00/24"), action=fy.Action("NoAction")
        ),
        +fy.P4TableEntry(
            "ternary_table",
            match=fy.Match(source=0x0200000000AA),
            priority=5,
            action=fy.Action("learn"),
        ),
        +fy.P4TableEntry(
            "selector_table",
            match=fy.Match(dst=20),
            action=fy.IndirectAction([2 * fy.Action("NoAction"), 1 * fy.Action("flood", group=1)]),
        ),
        +fy.P4MulticastGroupEntry(5, replicas=[3, 4]),
    ]


asyncio.run(main())
