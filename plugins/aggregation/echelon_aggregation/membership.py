"""The file in which a process finds its group (docs/aggregation.md#with-pytorch)."""

from __future__ import annotations

import os
from ipaddress import IPv4Address
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from echelon.model.documents import Section, parse_document, problem, read_document
from echelon.model.errors import RunError
from echelon_aggregation.frames import Endpoint
from echelon_aggregation.group import Group
from echelon_aggregation.wire import MAX_WORKERS, PORT
from echelon_lab.endhosts.shim import SHIM_PORT

VARIABLE = "ECHELON_AGGREGATION"
_TAKEN_PORTS = {
    PORT: "the fallback's port",
    SHIM_PORT: "the port of senders that write the shim",
}
Number = Annotated[int, Field(ge=0, le=0xFFFF)]
Mac = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$")]


class Member(Section):
    """A worker's place in the network."""

    wire: str = Field(description="the interface, or unix:PATH")
    ip: IPv4Address = Field(description="the IPv4 address of the host")
    mac: Mac = Field(description="the MAC address of the host")
    port: Number = Field(description="the UDP port that the worker sends from")

    def endpoint(self, port: int) -> Endpoint:
        """Return the endpoint of a process on the worker's host."""
        return Endpoint(str(self.ip), self.mac, port)


class Membership(Section):
    """A group of workers and its tree."""

    workers: tuple[Member, ...] = Field(
        min_length=1,
        max_length=MAX_WORKERS,
        description="the workers, by rank",
    )
    tree: Annotated[int, Field(ge=1, le=0xFFFF)] = Field(description="the number of the tree")
    session: Number = Field(description="the number of this run of the group")
    window: Annotated[int, Field(ge=1, le=1 << 16)] = 64
    values: Annotated[int, Field(ge=1, le=256)] = 32
    memory: Literal["own", "first", "deadline"] = "own"
    job: Number = 0
    flow: Number = 0
    answers: Number = 0
    """The flow of what the fallback sends to worker 0; that to others is counted down from it.

    0: `flow`.
    """
    fallback: Annotated[int, Field(ge=0)] = 0
    spread: bool = True
    """Switches of the tree spread results of the fallback."""
    least_timeout_s: Annotated[float, Field(gt=0, le=1)] = 0.01
    silence_s: Annotated[float, Field(gt=0)] = 5.0
    """The time without a word of another worker, or without any result, after which the group ends.
    """

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.window & (self.window - 1):
            raise problem("is not a power of two (write 64, for example)", "window")
        if self.fallback >= len(self.workers):
            raise problem(f"there is no worker {self.fallback}", "fallback", code="out-of-range")
        for number, member in enumerate(self.workers):
            user = _TAKEN_PORTS.get(member.port)
            if user is not None:
                raise problem(f"{member.port} is {user}", "workers", number, "port")
        return self

    @property
    def group(self) -> Group:
        """Return the group as its cores know it."""
        return Group(
            len(self.workers),
            self.tree,
            self.session,
            self.window,
            self.values,
            self.memory != "own",
            self.least_timeout_s,
            by_tree=self.spread,
        )

    def endpoint(self, rank: int) -> Endpoint:
        """Return where worker `rank` is."""
        worker = self.workers[rank]
        return worker.endpoint(worker.port)

    @property
    def fallback_endpoint(self) -> Endpoint:
        """Return where the fallback is."""
        return self.workers[self.fallback].endpoint(PORT)


def read_membership(path: str | None = None) -> Membership:
    """Return the group in a file, by default the one that ECHELON_AGGREGATION names.

    Raises `RunError` without one, `DocumentError` for a file with a mistake.
    """
    path = path or os.environ.get(VARIABLE)
    if not path:
        raise RunError(f"{VARIABLE} is not set (name the file of the group: docs/aggregation.md)")
    return parse_document(Membership, read_document(path), path)
