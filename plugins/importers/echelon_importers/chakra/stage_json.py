"""Traces in the JSON of STAGE (astra-sim/stage, `chakra/backends/json_backend.py`)."""

from __future__ import annotations

from echelon.model.quantities import excerpt
from echelon_importers.chakra.attributes import Value
from echelon_importers.chakra.json_fields import JsonFields
from echelon_importers.chakra.wire import KINDS, WireNode

_ATTRIBUTES = (
    "comm_size",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "comm_group",
    "num_ops",
    "tensor_size",
)
_KINDS = {
    "mem_load_node": "MEM_LOAD",
    "mem_store_node": "MEM_STORE",
    "comp_node": "COMP",
    "comm_send_node": "COMM_SEND",
    "comm_recv_node": "COMM_RECV",
    "coll_comm_node": "COMM_COLL",
}
_COLLECTIVES = {
    "ALL_REDUCE": 0,
    "ALL_GATHER": 2,
    "ALL_TO_ALL": 6,
    "REDUCE_SCATTER": 7,
}
"""Numbers of the second generation."""


class StageNode(JsonFields):
    """A node in STAGE's JSON."""

    def node(self) -> WireNode:
        """Return the node as Chakra has it. Raises `DocumentError`."""
        stated = self.values.get("node_type")
        kind = _KINDS.get(str(stated))
        if kind is None:
            raise self.fault(f"{excerpt(stated)} is not a kind of node", "check the schema")
        attributes: dict[str, Value | None] = {}
        for key in _ATTRIBUTES:
            if key in self.values:
                attributes[key] = self.integer(key)
        collective = self.values.get("comm_type")
        if collective is not None:
            number = _COLLECTIVES.get(str(collective))
            if number is None:
                reason = f"comm_type {excerpt(collective)} is not supported"
                raise self.fault(reason, "leave the node out")
            attributes["comm_type"] = number
        return WireNode(
            self.integer("id"),
            KINDS.index(kind),
            self.integers("ctrl_deps"),
            self.integers("data_deps"),
            0,
            attributes,
            2,
        )
