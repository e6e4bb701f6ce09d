"""The description of the fixed tables of a Tofino 1 that softswitch has: its ports, traffic manager
and multicast.

Names, ids, types, choices and sizes are those of the open SDE (open-p4studio, `bf_rt_tm_tf1.json`
and `bf_rt_port_tf1.json`), which clients know. Those of multicast have the open SDE's names and
types, and ids of ours: clients take ids from this description. Tables that have no meaning here are
left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from echelon_tofino_model.bfruntime.schema import Schema, parse

__all__ = ["GROUP", "NODE", "PORT", "fixed_schema"]

PORT = "$PORT"
"""The table of ports."""
NODE, GROUP = "$pre.node", "$pre.mgid"
"""The tables of multicast: nodes, each with ports and the instance of their copies; and groups of
nodes.
"""

_TM = 0xFF050000
_PRE = 0xFF040000
_PRIORITIES = ("LOW", *map(str, range(8)), "HIGH")
_BURST_ABSORPTION = ("1.5%", "3%", "6%", "11%", "20%", "33%", "50%", "66%", "80%", "DISABLE")
_POOLS = tuple(f"EG_APP_POOL_{pool}" for pool in range(4))
_PORT_KEY = ("dev_port", "uint32")
_GROUP_KEY = ("pg_id", "uint8")
_QUEUE_KEY = (_GROUP_KEY, ("pg_queue", "uint8"))


def _field(
    number: int,
    name: str,
    type_: str,
    *,
    read_only: bool = False,
    repeated: bool = False,
    mandatory: bool = False,
    choices: Sequence[str] = (),
    default: Any = None,
) -> dict[str, Any]:
    described: dict[str, Any] = {"type": type_}
    if choices:
        described["choices"] = list(choices)
    if default is not None:
        described["default_value"] = default
    inner = {"id": number, "name": name, "repeated": repeated, "annotations": [], "type": described}
    return {"mandatory": mandatory, "read_only": read_only, "singleton": inner}


def _named(prefix: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}_{name}" for name in names)


def _table(
    name: str,
    number: int,
    type_: str,
    size: int,
    key: Sequence[tuple[str, str]],
    data: Sequence[Mapping[str, Any]],
    actions: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    attributes: Sequence[str] = (),
) -> dict[str, Any]:
    table: dict[str, Any] = {
        "name": name,
        "id": number,
        "table_type": type_,
        "size": size,
        "annotations": [],
        "depends_on": [],
        "key": [
            {
                "id": place,
                "name": field,
                "repeated": False,
                "annotations": [],
                "mandatory": True,
                "match_type": "Exact",
                "type": {"type": field_type},
            }
            for place, (field, field_type) in enumerate(key, start=1)
        ],
        "data": list(data),
        "supported_operations": [],
        "attributes": list(attributes),
    }
    if actions:
        table["action_specs"] = [
            {"id": place, "name": action, "annotations": [], "data": list(fields)}
            for place, (action, fields) in enumerate(actions.items(), start=1)
        ]
    return table


def _port_group() -> dict[str, Any]:
    counts = _field(2, "port_queue_count", "uint8", repeated=True)
    maps = []
    for port in range(4):
        maps += [
            _field(3 + 2 * port, f"ingress_qid_map_{port}", "uint8", repeated=True),
            _field(
                4 + 2 * port, f"egress_qid_queues_{port}", "uint8", repeated=True, read_only=True
            ),
        ]
    actions = {
        "map": [counts, *maps],
        "seq": [counts],
        "even": [counts],
        "crop": [_field(2, "port_queue_count", "uint8", repeated=True, mandatory=True)],
    }
    ports = [_field(1, "pg_dev_ports", "uint32", repeated=True, read_only=True)]
    return _table("tf1.tm.port.group", _TM + 0x12, "TmPortGroup", 72, [_GROUP_KEY], ports, actions)


def _multicast() -> list[dict[str, Any]]:
    node = "$MULTICAST_NODE_ID"
    return [
        _table(
            NODE,
            _PRE + 1,
            "PreNode",
            1 << 16,
            [(node, "uint32")],
            [
                _field(2, "$MULTICAST_RID", "uint16"),
                _field(3, "$MULTICAST_LAG_ID", "uint32", repeated=True),
                _field(4, "$DEV_PORT", "uint32", repeated=True),
            ],
        ),
        _table(
            GROUP,
            _PRE + 2,
            "PreMgid",
            1 << 16,
            [("$MGID", "uint16")],
            [
                _field(2, node, "uint32", repeated=True),
                _field(3, "$MULTICAST_NODE_L1_XID_VALID", "bool", repeated=True),
                _field(4, "$MULTICAST_NODE_L1_XID", "uint32", repeated=True),
            ],
        ),
    ]


def _tables() -> list[dict[str, Any]]:
    unit = _field(1, "unit", "string", choices=("PPS", "BPS"), default="BPS")
    provisioning = _field(
        2, "provisioning", "string", choices=("UPPER", "LOWER", "MIN_ERROR"), default="UPPER"
    )
    shared = [
        _field(4, "pool_id", "string", choices=_POOLS, default=_POOLS[0]),
        _field(5, "pool_max_cells", "uint32", default=13),
        _field(6, "dynamic_baf", "string", choices=_BURST_ABSORPTION, default="80%"),
    ]
    return [
        *_multicast(),
        _table(
            "tf1.tm.port.cfg",
            _TM + 0x10,
            "TmPortCfg",
            288,
            [_PORT_KEY],
            [
                _field(1, "pg_id", "uint8", read_only=True),
                _field(2, "pg_port_nr", "uint8", read_only=True),
                _field(3, "port_queues_count", "uint8", read_only=True),
                _field(4, "ingress_qid_map", "uint8", read_only=True, repeated=True),
                _field(5, "egress_qid_queues", "uint8", read_only=True, repeated=True),
                _field(6, "copy_to_cpu", "bool", read_only=True),
                _field(7, "mirror_drop_destination", "bool", read_only=True),
                _field(8, "mirror_drop_pg_queue", "uint8", read_only=True),
                _field(9, "pkt_extraction_credits", "uint32", read_only=True),
            ],
        ),
        _port_group(),
        _table(
            "tf1.tm.port.sched_cfg",
            _TM + 0x16,
            "TmPortSchedCfg",
            288,
            [_PORT_KEY],
            [
                _field(1, "max_rate_enable", "bool", default=False),
                _field(2, "scheduling_speed", "string", choices=_SPEEDS, default="BF_SPEED_100G"),
            ],
        ),
        _table(
            "tf1.tm.port.sched_shaping",
            _TM + 0x17,
            "TmPortSchedShaping",
            288,
            [_PORT_KEY],
            [
                unit,
                provisioning,
                _field(3, "max_rate", "uint32", default=100_000_000),
                _field(4, "max_burst_size", "uint32", default=9216),
            ],
        ),
        _table(
            "tf1.tm.queue.map",
            _TM + 0x22,
            "TmQueueMap",
            2304,
            _QUEUE_KEY,
            [
                _field(1, "dev_port", "uint32", read_only=True),
                _field(2, "queue_nr", "uint8", read_only=True),
                _field(3, "ingress_qid_max", "uint8", read_only=True),
                _field(4, "ingress_qid_count", "uint8", read_only=True),
                _field(5, "ingress_qid_list", "uint8", read_only=True, repeated=True),
            ],
        ),
        _table(
            "tf1.tm.queue.buffer",
            _TM + 0x24,
            "TmQueueBuffer",
            2304,
            _QUEUE_KEY,
            [
                _field(1, "guaranteed_cells", "uint32", default=20),
                _field(2, "hysteresis_cells", "uint32", default=32),
                _field(3, "tail_drop_enable", "bool", default=True),
            ],
            {"shared_pool": shared, "buffer_only": []},
        ),
        _table(
            "tf1.tm.queue.sched_cfg",
            _TM + 0x25,
            "TmQueueSchedCfg",
            2304,
            _QUEUE_KEY,
            [
                _field(2, "min_rate_enable", "bool", default=False),
                _field(1, "min_priority", "string", choices=_PRIORITIES, default="LOW"),
                _field(5, "max_rate_enable", "bool", default=False),
                _field(4, "max_priority", "string", choices=_PRIORITIES, default="LOW"),
                _field(3, "dwrr_weight", "uint16", default=1023),
                _field(6, "scheduling_enable", "bool", default=True),
            ],
        ),
        _table(
            "tf1.tm.queue.sched_shaping",
            _TM + 0x26,
            "TmQueueSchedShaping",
            2304,
            _QUEUE_KEY,
            [
                unit,
                provisioning,
                _field(3, "min_rate", "uint32", default=0),
                _field(4, "min_burst_size", "uint32", default=16384),
                _field(5, "max_rate", "uint32", default=100_000_000),
                _field(6, "max_burst_size", "uint32", default=16384),
            ],
        ),
        _table(
            "tf1.tm.counter.queue",
            _TM + 0x43,
            "TmCounterQueue",
            576,
            _QUEUE_KEY,
            [
                _field(1, "drop_count_packets", "uint64"),
                _field(2, "usage_cells", "uint64", read_only=True),
                _field(3, "watermark_cells", "uint64"),
            ],
        ),
        _table(
            PORT,
            0xFF010001,
            "PortConfigure",
            256,
            [("$DEV_PORT", "uint32")],
            [
                _field(1, "$SPEED", "string", choices=(*_SPEEDS, "BF_SPEED_200G", "BF_SPEED_400G")),
                _field(
                    2,
                    "$FEC",
                    "string",
                    choices=_named("BF_FEC_TYP", "NONE", "FIRECODE", "REED_SOLOMON", "FC", "RS"),
                ),
                _field(3, "$N_LANES", "uint32", default=1),
                _field(4, "$PORT_ENABLE", "bool", default=False),
                _field(
                    5,
                    "$AUTO_NEGOTIATION",
                    "string",
                    choices=_named("PM_AN", "DEFAULT", "FORCE_ENABLE", "FORCE_DISABLE"),
                ),
                _field(
                    6,
                    "$LOOPBACK_MODE",
                    "string",
                    choices=_named(
                        "BF_LPBK",
                        "NONE",
                        "MAC_NEAR",
                        "MAC_FAR",
                        "PCS_NEAR",
                        "SERDES_NEAR",
                        "SERDES_FAR",
                    ),
                ),
                _field(7, "$TX_MTU", "uint32", default=10240),
                _field(8, "$RX_MTU", "uint32", default=10240),
                _field(9, "$TX_PFC_EN_MAP", "uint32", default=0),
                _field(10, "$RX_PFC_EN_MAP", "uint32", default=0),
                _field(11, "$TX_PAUSE_FRAME_EN", "bool", default=False),
                _field(12, "$RX_PAUSE_FRAME_EN", "bool", default=False),
                _field(13, "$CUT_THROUGH_EN", "bool", default=False),
                _field(
                    14,
                    "$PORT_DIR",
                    "string",
                    choices=_named("PM_PORT_DIR", "DEFAULT", "TX_ONLY", "RX_ONLY"),
                ),
                _field(
                    15,
                    "$MEDIA_TYPE",
                    "string",
                    read_only=True,
                    choices=_named("BF_MEDIA_TYPE", "COPPER", "OPTICAL", "UNKNOWN"),
                ),
                _field(16, "$SDS_TX_ATTN", "uint32", default=0),
                *(
                    _field(17 + place, f"$SDS_TX_{tap}", "int32", default="0")
                    for place, tap in enumerate(("PRE", "PRE2", "POST", "POST2"))
                ),
                _field(21, "$IS_VALID", "bool", read_only=True),
                _field(22, "$IS_INTERNAL", "bool", read_only=True),
                _field(23, "$CONN_ID", "uint32", read_only=True),
                _field(24, "$CHNL_ID", "uint32", read_only=True),
                _field(25, "$PORT_UP", "bool", read_only=True),
                _field(26, "$PORT_NAME", "string", read_only=True),
                _field(27, "$RX_PRSR_PRI_THRESH", "uint32"),
                _field(28, "$TIMESTAMP_1588_DELTA_TX", "uint16"),
                _field(29, "$TIMESTAMP_1588_DELTA_RX", "uint16"),
                _field(30, "$TIMESTAMP_1588_VALID", "bool", read_only=True),
                _field(31, "$TIMESTAMP_1588_VALUE", "uint64", read_only=True),
                _field(32, "$TIMESTAMP_1588_ID", "uint32", read_only=True),
                _field(33, "$PLL_OVRCLK", "float", default=0),
            ],
            attributes=["port_status_notif_cb"],
        ),
    ]


_SPEEDS = _named(
    "BF_SPEED", "NONE", "1G", "10G", "25G", "40G", "40G_NB", "40G_NON_BREAKABLE", "50G", "100G"
)


@cache
def fixed_schema() -> Schema:
    """Return the description of the fixed tables."""
    text = json.dumps(
        {"schema_version": "1.0.0", "tables": _tables(), "learn_filters": []}
    ).encode()
    return parse(text, "fixed tables")
