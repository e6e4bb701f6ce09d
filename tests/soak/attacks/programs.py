"""Attacks by programs: a stranger pushes pipelines that crash, fill the memory or keep compilers
busy, and sends packets through those that the switch takes.
"""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
from finsy.proto import gnmi, p4i, p4r

from tests.soak.attacks.target import Peer, Target, Telling
from tests.soak.hostile.plain import field, number, program

JSON = dict[str, Any]

PACKETS = 2000
_PACKET = bytes(range(64))
_ELECTIONS = itertools.count(1 << 120, 1 << 80)
"""Election ids above those of any controller.

Terms of controllers are microseconds since 1970 in the high word. A controller that was outranked
claims the next term.
"""
_LEAVE_S = 3.0
"""The time between programs, in which the controller takes the switch back."""

_TABLE_IDS, _ACTION_IDS = 0x02000001, 0x01000001


def push_programs(target: Target, tell: Telling) -> None:
    """Push one program after the other, each as another role and as the highest primary."""
    for name, document in _programs():
        with Peer(target) as peer:
            config = _config(document)
            if not _push(peer, tell, name, config):
                time.sleep(_LEAVE_S)
                continue
            if name == _WIDE_HEADERS:
                tell.call("a port of 1,000 bit/s", partial(_slow_down, peer))
            tell.call(f"packets through {name}", partial(_send, target))
        time.sleep(_LEAVE_S)


def keep_compilers(target: Target, tell: Telling) -> None:
    """Push six programs in turn, each of which keeps a compiler busy for minutes."""
    with Peer(target) as peer:
        for turn in range(6):
            document = _tables(3000)
            document["actions"][0]["primitives"][0]["parameters"][1] = number(turn + 1)
            _push(peer, tell, f"3,000 tables, number {turn + 1}", _config(document))
    while True:
        time.sleep(_LEAVE_S)


def _push(
    peer: Peer,
    tell: Telling,
    name: str,
    config: p4r.ForwardingPipelineConfig,
) -> bool:
    """Push a program as another role; where that may not, as the default role."""
    for role in ("stranger", ""):
        election_id = next(_ELECTIONS)
        answers = peer.claim(election_id, role)
        with suppress(grpc.RpcError):
            next(answers)
        what = f"push {name}" + (" as another role" if role else "")
        if tell.call(what, partial(peer.push, config, election_id, role)):
            return True
    return False


def _send(target: Target) -> str:
    """Send packets into the port; return how many it took."""
    sent = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setblocking(False)
        while sent < PACKETS:
            try:
                out.sendto(_PACKET, str(target.port))
            except BlockingIOError:
                # The switch is behind: it gets time for those before.
                time.sleep(0.01)
            except OSError as error:
                return f"{sent} sent, then {error.strerror}"
            sent += 1
    return f"{sent} sent"


def _slow_down(peer: Peer) -> None:
    """Let port 1 send 1,000 bit/s, so that packets wait."""
    request = gnmi.SetRequest()
    update = request.update.add()
    names = ("interfaces", "interface", "config", "softswitch:port-rate")
    update.path.elem.extend(gnmi.PathElem(name=name) for name in names)
    update.path.elem[1].key["name"] = "1"
    update.val.uint_val = 1000
    peer.call("/gnmi.gNMI/Set", request.SerializeToString())


# -- the programs ----------------------------------------------------------------------------------

_WIDE_HEADERS = "2,000 fields of 65,536 bits"


def _programs() -> Iterator[tuple[str, JSON]]:
    makers: tuple[tuple[str, Callable[[], JSON]], ...] = (
        ("60 shifts", partial(_shifts, 60)),
        ("150 shifts", partial(_shifts, 150)),
        ("1,500 keys of 65,536 bits", partial(_keys, 1500)),
        ("look 512 bytes back", partial(_look_back, 512)),
        ("look 4,096 bytes back", partial(_look_back, 4096)),
        ("look 8,192 bytes back", partial(_look_back, 8192)),
        ("register of 2^24 cells of 65,536 bits", partial(_registers, 1, 65536)),
        ("64 registers of 2^24 cells of 64 bits", partial(_registers, 64, 64)),
        ("200 counters of 2^24 cells", partial(_counters, 200)),
        (_WIDE_HEADERS, partial(_wide_headers, 2000)),
        ("8,000 tables", partial(_tables, 8000)),
    )
    for name, make in makers:
        yield name, make()


def _small(
    scalars: list[list[Any]],
    more: list[list[Any]] | None = None,
    extracts: bool = True,
) -> JSON:
    """Return a program that parses a header `h`, sends each packet to port 1 and deparses it."""
    fields = [["a", 8, False], ["b", 64, False], *(more or [])]
    document = program({"h": fields}, scalars)
    if extracts:
        operation = {"op": "extract", "parameters": [{"type": "regular", "value": "h"}]}
        _operations(document).append(operation)
    document["deparsers"][0]["order"] = ["h"]
    return document


def _operations(document: JSON) -> list[JSON]:
    state: JSON = document["parsers"][0]["parse_states"][0]
    operations: list[JSON] = state["parser_ops"]
    return operations


def _assign(target: JSON, value: JSON) -> JSON:
    return {"op": "assign", "parameters": [target, value]}


def _operation(operator: str, left: JSON, right: JSON) -> JSON:
    return {"type": "expression", "value": {"op": operator, "left": left, "right": right}}


def _shifts(depth: int) -> JSON:
    """Shift a field to the left again and again, each time by 65,535 bits."""
    document = _small([["x", 64, False]])
    value = field("h", "b")
    for _ in range(depth):
        value = _operation("<<", value, number(65535))
    value = _operation(">>", value, field("h", "a"))
    document["actions"][0]["primitives"] += [
        _assign(field("scalars", "x"), value),
        _assign(field("h", "b"), field("scalars", "x")),
    ]
    return document


def _keys(count: int) -> JSON:
    document = _small([[f"y{index}", 65536, False] for index in range(count)])
    table = document["pipelines"][0]["tables"][0]
    for index in range(count):
        target = ["scalars", f"y{index}"]
        table["key"].append(
            {"match_type": "exact", "name": f"k{index}", "target": target, "mask": None}
        )
    return document


def _look_back(distance: int) -> JSON:
    """Send what lies before the packet: an offset that is negative in 64 bits."""
    document = _small([["x", 65536, False]], [["rest", 65536, False]], extracts=False)
    look = {"type": "lookahead", "value": [8 * ((1 << 64) - distance), 8 * distance]}
    _operations(document).append({"op": "set", "parameters": [field("scalars", "x"), look]})
    document["actions"][0]["primitives"] += [
        {"op": "add_header", "parameters": [{"type": "header", "value": "h"}]},
        _assign(field("h", "rest"), field("scalars", "x")),
    ]
    return document


def _registers(count: int, width: int) -> JSON:
    document = _small([["x", 64, False]])
    document["register_arrays"] = [
        {"name": f"r{index}", "id": index, "size": 1 << 24, "bitwidth": width}
        for index in range(count)
    ]
    return document


def _counters(count: int) -> JSON:
    document = _small([["x", 64, False]])
    document["counter_arrays"] = [
        {"name": f"c{index}", "id": index, "size": 1 << 24, "is_direct": False}
        for index in range(count)
    ]
    return document


def _wide_headers(count: int) -> JSON:
    fields = [[f"f{index}", 65536, False] for index in range(count)]
    return _small([["x", 64, False]], fields, extracts=False)


def _tables(count: int) -> JSON:
    """Return a chain of tables whose actions multiply, each with code of its own."""
    document = _small([["x", 64, False]])
    actions = document["actions"] = []
    tables = []
    first = document["pipelines"][0]["tables"][0]
    send = _assign(field("standard_metadata", "egress_spec"), number(1))
    for index in range(count):
        primitives = [send]
        for step in range(4):
            sum_ = _operation("+", field("h", "b"), number(step + 1))
            product = _operation("*", field("scalars", "x"), sum_)
            primitives.append(_assign(field("scalars", "x"), product))
        name = f"a{index}"
        actions.append({"name": name, "id": index, "runtime_data": [], "primitives": primitives})
        following = f"t{index + 1}" if index + 1 < count else None
        entry = dict(first["default_entry"], action_id=index)
        tables.append(
            dict(first, name=f"t{index}", id=index, action_ids=[index], actions=[name],
                 base_default_next=following, next_tables={name: following}, default_entry=entry)
        )  # fmt: skip
    document["pipelines"][0].update(tables=tables, init_table="t0")
    document["pipelines"][1].update(tables=[], init_table=None)
    return document


def _config(document: JSON) -> p4r.ForwardingPipelineConfig:
    """Return a program with the P4Info of its tables and actions."""
    info = p4i.P4Info()
    info.pkg_info.arch = "v1model"
    for place, action in enumerate(document["actions"]):
        _name(info.actions.add().preamble, _ACTION_IDS + place, action["name"])
    for pipeline in document["pipelines"]:
        for spec in pipeline["tables"]:
            table = info.tables.add()
            _name(table.preamble, _TABLE_IDS + len(info.tables) - 1, spec["name"])
            table.size = 1024
            for key in spec["key"]:
                match = table.match_fields.add(name=key["name"], bitwidth=65536)
                match.id = len(table.match_fields)
                match.match_type = p4i.MatchField.EXACT
            for action in spec["action_ids"]:
                table.action_refs.add().id = _ACTION_IDS + action
    data = json.dumps(document).encode()
    return p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=data)


def _name(preamble: p4i.Preamble, identity: int, name: str) -> None:
    preamble.id = identity
    preamble.name = preamble.alias = name
