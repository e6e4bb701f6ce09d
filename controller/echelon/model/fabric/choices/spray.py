"""`spray`: each packet of a flow takes another of its shortest paths (Dixit et al., INFOCOM '13).
Nothing here can.

It would reorder packets, the more the queues of equal paths differ. The shim's receivers count
bytes and would stand it. But a switch ranks a packet by how much of its flow is left, so that each
would see a part of a flow and take it for a late one; and TCP takes what comes late for lost.
"""

from __future__ import annotations


class Spray:
    """The refusal."""

    def __init__(self) -> None:
        raise ValueError(
            "no target can send packets of one flow over several paths: a switch has one entry for"
            " each flow, its groups spread by addresses and ports, and the fluid engine has one"
            " path for each flow"
        )
