"""The open SDE's own client against softswitch: `bfrt_grpc`, unmodified, in its own environment.

The environment variable ECHELON_BFRT_CLIENT names a folder with a package `bfrt_grpc`
(open-p4studio's `client.py` and `info_parse.py`, and the modules that grpcio-tools makes of its
`bfruntime.proto`) and with `venv/bin/python`, which has grpcio, protobuf, googleapis-common-protos
and six. research/notebook/tofino.md says how to make it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from plugins.tofino_model.tests.bfruntime.conftest import Served
from softswitch.tm import QueueConfig
from tests.needs import needs

FOLDER = os.environ.get("ECHELON_BFRT_CLIENT")

pytestmark = needs("an open SDE")

SCRIPT = """
import json, sys
import bfrt_grpc.client as gc

address = sys.argv[1]
client = gc.ClientInterface(address, client_id=0, device_id=0)
info = client.bfrt_info_get("small")
client.bind_pipeline_config("small")
every, one = gc.Target(device_id=0, pipe_id=0xFFFF), gc.Target(device_id=0, pipe_id=0)
seen = {}

def dicts(pairs):
    return [[data.to_dict(), None if k is None else k.to_dict()] for data, k in pairs]

forward = info.table_get("Ingress.forward")
keys = [forward.make_key([gc.KeyTuple("hdr.ethernet.dst_addr", mac)]) for mac in (2, 3)]
send = forward.make_data([gc.DataTuple("port", 5), gc.DataTuple("qid", 3)], "Ingress.send")
forward.entry_add(every, keys, [send, send])
forward.entry_mod(every, keys[:1], [forward.make_data([gc.DataTuple("qid", 9)], "Ingress.send")])
seen["forward"] = dicts(forward.entry_get(every))
seen["usage"] = next(forward.usage_get(every))
try:
    forward.entry_add(every, keys, [send, send])
except gc.BfruntimeReadWriteRpcException as error:
    seen["again"] = [[place, part.canonical_code] for place, part in error.sub_errors_get()]

route = info.table_get("route")
route.entry_add(every, [route.make_key([gc.KeyTuple("hdr.ipv4.dst_addr", 0x0A000000, prefix_len=8)])],
                [route.make_data([], "NoAction")])
seen["route"] = dicts(route.entry_get(every))

urgency = info.table_get("urgency")
urgency.entry_add(
    every,
    [urgency.make_key([gc.KeyTuple("meta.profile", 3, 0xF), gc.KeyTuple("meta.slack", low=4, high=99),
                       gc.KeyTuple("$MATCH_PRIORITY", 7)])],
    [urgency.make_data([gc.DataTuple("queue", 5)], "Ingress.set_queue")])
seen["urgency"] = dicts(urgency.entry_get(every))
urgency.default_entry_set(every, urgency.make_data([], "Ingress.drop"))
seen["default"] = dicts(urgency.default_entry_get(every))

position = info.table_get("position")
cell = position.make_key([gc.KeyTuple("$REGISTER_INDEX", 3)])
position.entry_mod(every, [cell], [position.make_data([gc.DataTuple("Ingress.position.f1", 77)])])
position.operations_execute(every, "Sync")
seen["register"] = dicts(position.entry_get(every, [cell]))

port = info.table_get("tf1.tm.port.cfg")
of_port = next(port.entry_get(every, [port.make_key([gc.KeyTuple("dev_port", 5)])]))[0].to_dict()
scheduler = info.table_get("tf1.tm.queue.sched_cfg")
for qid, level in enumerate(("0", "3", "7")):
    queue = scheduler.make_key([gc.KeyTuple("pg_id", of_port["pg_id"]),
                                gc.KeyTuple("pg_queue", of_port["egress_qid_queues"][qid])])
    scheduler.entry_mod(one, [queue], [scheduler.make_data([
        gc.DataTuple("min_priority", str_val=level), gc.DataTuple("max_priority", str_val=level),
        gc.DataTuple("dwrr_weight", 100 + qid), gc.DataTuple("scheduling_enable", bool_val=True)])])
seen["queue"] = dicts(scheduler.entry_get(one, [queue]))
shaping = info.table_get("tf1.tm.port.sched_shaping")
dev = lambda table: table.make_key([gc.KeyTuple("dev_port", 5)])
shaping.entry_mod(every, [dev(shaping)], [shaping.make_data([
    gc.DataTuple("unit", str_val="BPS"), gc.DataTuple("provisioning", str_val="UPPER"),
    gc.DataTuple("max_rate", 20000), gc.DataTuple("max_burst_size", 9216)])])
enable = info.table_get("tf1.tm.port.sched_cfg")
enable.entry_mod(every, [dev(enable)], [enable.make_data([gc.DataTuple("max_rate_enable", bool_val=True)])])
group = info.table_get("tf1.tm.port.group")
pg = group.make_key([gc.KeyTuple("pg_id", 0)])
group.entry_mod(one, [pg], [group.make_data([gc.DataTuple("port_queue_count", int_arr_val=[2, 4, 16, 10])], "seq")])
seen["group"] = dicts(group.entry_get(one, [pg]))
seen["ports"] = dicts(info.table_get("$PORT").entry_get(every))
seen["counter"] = dicts(info.table_get("tf1.tm.counter.queue").entry_get(one, [
    info.table_get("tf1.tm.counter.queue").make_key([gc.KeyTuple("pg_id", 1), gc.KeyTuple("pg_queue", 8)])]))
forward.entry_del(every, keys[:1])
seen["left"] = len(list(forward.entry_get(every)))
forward.entry_del(every)
seen["cleared"] = len(list(forward.entry_get(every)))
print(json.dumps(seen))
sys.stdout.flush()
client.tear_down_stream()
"""


def test_the_open_sdes_client_reads_and_writes_tables_and_the_traffic_manager(
    served: Served,
) -> None:
    assert FOLDER is not None
    done = subprocess.run(
        [Path(FOLDER) / "venv/bin/python", "-c", SCRIPT, served.server.address],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=FOLDER,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    sent = {"port": 5, "action_name": "Ingress.send", "is_default_entry": False}
    assert [data for data, _ in seen["forward"]] == [
        {**sent, "qid": qid, "$COUNTER_SPEC_BYTES": 0, "$COUNTER_SPEC_PKTS": 0} for qid in (9, 3)
    ]
    assert [key["hdr.ethernet.dst_addr"]["value"] for _, key in seen["forward"]] == [2, 3]
    assert (seen["usage"], seen["left"], seen["cleared"]) == (2, 1, 0)
    assert seen["again"] == [[0, 6], [1, 6]]
    assert seen["route"][0][1] == {"hdr.ipv4.dst_addr": {"value": 0x0A000000, "prefix_len": 8}}
    assert seen["urgency"][0][1] == {
        "meta.profile": {"value": 3, "mask": 15},
        "meta.slack": {"low": 4, "high": 99},
        "$MATCH_PRIORITY": {"value": 7},
    }
    assert seen["default"][0][0] == {"action_name": "Ingress.drop", "is_default_entry": True}
    assert seen["register"][0][0]["Ingress.position.f1"] == [77]
    assert (
        seen["queue"][0][0].items()
        >= {
            "min_priority": "7",
            "max_priority": "7",
            "dwrr_weight": 102,
        }.items()
    )
    assert seen["group"][0][0]["port_queue_count"] == [2, 4, 16, 10]
    assert [key["$DEV_PORT"]["value"] for _, key in seen["ports"]] == list(range(1, 9))
    assert seen["counter"][0][0]["drop_count_packets"] == 0
    # What it wrote is what the ports of the switch do.
    assert [served.ports[5].config(queue) for queue in range(3)] == [
        QueueConfig(level=level, guaranteed_level=level, weight=100 + queue)
        for queue, level in enumerate((0, 3, 7))
    ]
    assert served.ports[5].rate_bps == 20_000_000
    assert [served.ports[port].queues for port in (1, 2, 3)] == [4, 16, 10]
