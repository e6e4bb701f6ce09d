"""A reactive policy acts on what switches tell of flows; reported distances reach switches."""

from __future__ import annotations

import pytest
from reference.frames import ipv4, shim

from echelon.controller.client import Client
from tests.echelon.service.conftest import Service
from tests.echelon.service.lab import Lab, ring, settle, until

pytestmark = pytest.mark.xdist_group("daemon")

LAST = 4
ADDRESSES = {"h1": 0x0A000001, "h2": 0x0A000002}


def test_varys_reacts_to_flows(line: Service) -> None:
    """A queue's weight differs from the idle ones between the second flow's start and end."""
    lab = line.lab
    with lab.client(line.daemon) as client, lab.host("h1") as h1, lab.host("h2") as h2:
        client.set_policy("varys")
        client.register_job(ring("a", ["h1", "h2"], gradient="2 kB", compute="1 ms"))
        settle(client)
        job = client.job("a")
        idle = weights(client)
        flow = job.flows[0]
        host = {"h1": h1, "h2": h2}[flow.src]
        for flags, remaining, differs in ((0, 100_000, True), (LAST, 0, False)):
            packet = shim(job.number, flow.number, 1, remaining, flags=flags, payload=bytes(1000))
            host.send(
                ipv4(
                    ADDRESSES[flow.src], ADDRESSES[flow.dst], 17, packet[:6] + b"\0\0" + packet[8:]
                )
            )
            until(
                lambda differs=differs: (weights(client) != idle) == differs,
                "the switch's queues did not follow",
            )  # type: ignore[misc]


def weights(client: Client) -> list[tuple[int, int, int]]:
    return [(queue.port, queue.queue, queue.weight) for queue in client.intent("s1").queues]


def test_reported_distances_change_the_offsets(line: Service) -> None:
    with line.lab.client(line.daemon) as client:
        spec = {
            "job": "p", "parallelism": "pipeline", "workers": ["h1", "h2"],
            "pipeline": {"micro_batches": 3, "forward": "10 ms", "activation": "1 MB"},
        }  # fmt: skip
        client.register_job(spec)
        settle(client)
        (one,) = client.job("p").echelonflows
        assert one.offsets_s == pytest.approx((0, 0.01, 0.02))
        client.report_distances("p", one.name, ["0 s", "15 ms", "30 ms"])
        settle(client)
        assert client.job("p").echelonflows[0].offsets_s == pytest.approx((0, 0.015, 0.03))
        assert offsets(line.lab) == {0, 15_000, 30_000}


def offsets(lab: Lab) -> set[int]:
    """Return the offsets in microseconds, as the switch has them."""
    from finsy import P4Schema

    from echelon.model.p4program import program

    schema = P4Schema(program().p4info)
    out = set()
    for entry in lab.switches["s1"].entries():
        if schema.tables[entry.table_id].alias == "flow":
            action = schema.actions[entry.action.action.action_id]
            out |= {
                int.from_bytes(param.value, "big")
                for param in entry.action.action.params
                if action.params[param.param_id].name == "offset_us"
            }
    return out
