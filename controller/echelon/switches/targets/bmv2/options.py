"""The options of a BMv2: its interfaces, and where its Thrift server listens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from echelon.model.documents import problem
from echelon.model.quantities import excerpt
from echelon.switches.targets.options import V1modelOptions

HEADER_BYTES = 14
"""The Ethernet header, which HTB counts beside what an interface's MTU counts."""
DEEPEST = 10_000
"""Maximum number of packets that a queue holds."""
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")
_NAMESPACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|/[A-Za-z0-9_./-]+")
_ADDRESS = re.compile(r"(?P<host>[^\s:]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_PORT_NUMBER = re.compile(r"[1-9][0-9]{0,2}")
_LAST_PORT = 511
"""The largest number in BMv2's nine bits of a port."""
_PORT = "{port}"
"""The placeholder of the number of a port in a pattern of interface names."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Host and TCP port of a server."""

    host: str
    port: int

    @classmethod
    def parse(cls, value: object) -> ServerAddress:
        """Read ``host:port``. Raise `PydanticCustomError`."""
        match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
        if match is None or not 0 < int(match["port"]) < 1 << 16:
            raise problem(
                f"{excerpt(value)} is not an address (write it as in 127.0.0.1:9090)",
                code="not-an-address",
            )
        return cls(match["host"].strip("[]"), int(match["port"]))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def _namespace(value: str | None) -> str | None:
    if value is not None and not _NAMESPACE.fullmatch(value):
        raise problem(
            f"{excerpt(value)} is not a network namespace (give its name, or a path such as"
            " /proc/1234/ns/net)"
        )
    return value


def _interfaces(value: object) -> str | dict[int, str]:
    if isinstance(value, str):
        name = value.replace(_PORT, "1")
        if value.count(_PORT) != 1 or not _INTERFACE.fullmatch(name):
            raise problem(
                f"{excerpt(value)} is not a pattern of interface names (write it as in"
                f" s1-eth{_PORT})"
            )
        return value
    if not isinstance(value, dict):
        raise problem(
            f"{excerpt(value)} is neither a pattern nor a mapping (write it as in s1-eth{_PORT})",
            code="not-a-mapping",
        )
    names: dict[int, str] = {}
    for port, name in value.items():
        is_number = isinstance(port, str) and _PORT_NUMBER.fullmatch(port)
        if not is_number or int(port) > _LAST_PORT:
            raise problem(
                f"{excerpt(port)} is not a port number (give 1 to 511, in quotes)", str(port)
            )
        if not isinstance(name, str) or not _INTERFACE.fullmatch(name):
            raise problem(
                f"{excerpt(name)} is not the name of an interface (write it as in s1-eth1)",
                port,
                code="not-a-name",
            )
        if name in names.values():
            raise problem(
                f"interface {excerpt(name)} has a port already (give each port its own)",
                port,
                code="duplicate",
            )
        names[int(port)] = name
    return names


class Bmv2Options(V1modelOptions):
    """The options of a `simple_switch_grpc` whose egress ports are shaped by HTB trees.

    The trees are on the interfaces behind it.
    """

    interfaces: Annotated[
        str | dict[int, str],
        PlainValidator(_interfaces),
        WithJsonSchema({"type": ["string", "object"], "examples": ["s1-eth{port}"]}),
        Field(
            description=(
                "the interface of each port: a pattern such as s1-eth{port},"
                " or a mapping, {'1': s1-eth1}"
            )
        ),
    ]
    namespace: Annotated[
        str | None,
        AfterValidator(_namespace),
        Field(
            description=(
                "the network namespace of the interfaces: a name or a path; default: the"
                " controller's own"
            )
        ),
    ] = None
    thrift: Annotated[
        ServerAddress | None,
        PlainValidator(ServerAddress.parse),
        WithJsonSchema({"type": "string", "examples": ["127.0.0.1:9090"]}),
        Field(
            description=(
                "where the switch's Thrift server listens; default: its own queues are left alone"
            )
        ),
    ] = None
    depth: Annotated[
        int,
        Field(
            strict=True,
            ge=1,
            le=DEEPEST,
            description="packets that each queue of a port holds",
        ),
    ] = 11
    send_buffer: Annotated[
        int | None,
        Field(
            strict=True,
            ge=1,
            description="bytes that a socket of the switch holds; default: net.core.wmem_default",
        ),
    ] = None
    mtu: Annotated[
        int,
        Field(
            strict=True,
            ge=68,
            le=65_521,
            description="the MTU of the interfaces in bytes",
        ),
    ] = 1500

    @field_validator("interfaces")
    @classmethod
    def _names_every_port(
        cls, value: str | dict[int, str], info: ValidationInfo
    ) -> str | dict[int, str]:
        if isinstance(value, str):
            return value
        ports = (info.context or {}).get("ports", ())
        missing = sorted(port for port in ports if port not in value)
        if missing:
            raise problem(
                f"no interface for port {missing[0]} of the fabric (add '{missing[0]}': ...)",
                code="missing-key",
            )
        return value

    def interface(self, port: int) -> str:
        """Return the name of the interface behind a port. Raise KeyError."""
        if isinstance(self.interfaces, str):
            return self.interfaces.replace(_PORT, str(port))
        return self.interfaces[port]
