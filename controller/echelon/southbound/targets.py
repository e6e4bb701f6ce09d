"""Kinds of switch. Everything that differs between them is an entry of `TARGETS`; nothing else asks for a name.

The seat of `tofino`, so far empty. It has to bring: its own P4 program (architecture `tna`, under p4src/ and built to
p4src/build/); its `Capabilities` (register sizes, levels, DWRR, shaping; ECN by queue depth); a model of what its entry
in the configuration says (where BF-RT listens); a `QueueDriver` that configures its traffic manager over BF-RT. Where
its tables are not reached by P4Runtime (Stratum), it needs a session of its own beside `SwitchSession`, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo, WithJsonSchema, field_validator

from echelon.documents import Section, problem
from echelon.lowering import capabilities
from echelon.lowering.capabilities import Capabilities
from echelon.p4program import P4Program, program
from echelon.quantities import shown
from echelon.southbound.queues import QueueDriver

O = TypeVar("O", bound=Section)  # noqa: E741


@dataclass(frozen=True, slots=True)
class Site:
    """One switch of the fabric, as far as its queues go."""

    switch: str
    port_rates_bps: Mapping[int, int]
    """Of every egress port that the fabric uses, bits per second."""


@dataclass(frozen=True, slots=True)
class Target(Generic[O]):
    name: str
    architecture: str
    """That the P4 program is compiled for."""
    capabilities: Callable[[], Capabilities]
    """Of a switch whose entry in the configuration leaves everything at its default."""
    capabilities_of: Callable[[O], Capabilities]
    """Of a switch with this entry."""
    options: type[O]
    """What a switch's entry in the configuration says besides address, target and TLS. Its validators find the
    switch's port numbers in the validation context under `ports`, where the caller has them."""
    queue_driver: Callable[[O, Site], QueueDriver | None]
    """Driver of one switch's queues, for its whole life; None: gNMI, over each session's own channel. Connects to
    nothing yet."""

    def program(self) -> P4Program:
        """Raises FileNotFoundError if it was not compiled."""
        return program(self.architecture)


# --- softswitch ----------------------------------------------------------------------------------------------------


class SoftswitchOptions(Section):
    """Nothing: tables and queues are reached at the switch's one address."""


# --- bmv2 ----------------------------------------------------------------------------------------------------------

_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")
_NAMESPACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|/[A-Za-z0-9_./-]+")
_ENDPOINT = re.compile(r"(?P<host>[^\s:]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_PORT = "{port}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def _endpoint(value: object) -> Endpoint:
    found = _ENDPOINT.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 0 < int(found["port"]) < 1 << 16:
        raise problem(f"{shown(value)} is not an address (write it as in 127.0.0.1:9090)", code="not-an-address")
    return Endpoint(found["host"].strip("[]"), int(found["port"]))


def _namespace(value: str) -> str:
    if not _NAMESPACE.fullmatch(value):
        raise problem(f"{shown(value)} is not a network namespace (give its name, or a path as /proc/1234/ns/net)")
    return value


def _interfaces(value: object) -> str | dict[int, str]:
    if isinstance(value, str):
        name = value.replace(_PORT, "1")
        if value.count(_PORT) != 1 or not _INTERFACE.fullmatch(name):
            raise problem(f"{shown(value)} is not a pattern of interface names (write it as in s1-eth{_PORT})")
        return value
    if not isinstance(value, dict):
        raise problem(
            f"{shown(value)} is neither a pattern nor a mapping (write it as in s1-eth{_PORT})", code="not-a-mapping"
        )
    names: dict[int, str] = {}
    for port, name in value.items():
        if not isinstance(port, str) or not re.fullmatch(r"[1-9][0-9]{0,2}", port) or int(port) > 511:
            raise problem(f"{shown(port)} is not a port number (give 1 to 511, in quotes)", str(port))
        if not isinstance(name, str) or not _INTERFACE.fullmatch(name):
            raise problem(
                f"{shown(name)} is not the name of an interface (write it as in s1-eth1)", port, code="not-a-name"
            )
        if name in names.values():
            raise problem(
                f"interface {shown(name)} has a port already (give each port its own)", port, code="duplicate"
            )
        names[int(port)] = name
    return names


class Bmv2Options(Section):
    """`simple_switch_grpc`: its egress ports are shaped by HTB trees on the interfaces behind them."""

    interfaces: Annotated[
        str | dict[int, str],
        PlainValidator(_interfaces),
        WithJsonSchema({"type": ["string", "object"], "examples": ["s1-eth{port}"]}),
        Field(description="the interface of each port: a pattern as s1-eth{port}, or a mapping as {'1': s1-eth1}"),
    ]
    namespace: Annotated[
        str | None,
        AfterValidator(lambda value: value if value is None else _namespace(value)),
        Field(description="the network namespace that the interfaces are in: its name, or a path; default: ours"),
    ] = None
    thrift: Annotated[
        Endpoint | None,
        PlainValidator(_endpoint),
        WithJsonSchema({"type": "string", "examples": ["127.0.0.1:9090"]}),
        Field(description="where the switch's Thrift server listens; default: its own queues are left alone"),
    ] = None
    depth: Annotated[
        int, Field(strict=True, ge=1, le=10_000, description="packets that each queue of a port holds")
    ] = 11
    mtu: Annotated[int, Field(strict=True, ge=68, le=65_521, description="of the interfaces, bytes")] = 1500

    @field_validator("interfaces")
    @classmethod
    def _names_every_port(cls, value: str | dict[int, str], info: ValidationInfo) -> str | dict[int, str]:
        ports = (info.context or {}).get("ports", ())
        missing = sorted(port for port in ports if isinstance(value, dict) and port not in value)
        if missing:
            raise problem(
                f"no interface for port {missing[0]} of the fabric (add '{missing[0]}': ...)", code="missing-key"
            )
        return value

    def interface(self, port: int) -> str:
        """Name of the interface behind a port. Raises KeyError."""
        if isinstance(self.interfaces, str):
            return self.interfaces.replace(_PORT, str(port))
        return self.interfaces[port]


def _bmv2_queues(options: Bmv2Options, site: Site) -> QueueDriver:
    from echelon.southbound.queues.bmv2 import Bmv2Queues, ShapedPort
    from echelon.southbound.queues.htb import Port

    ports = [
        ShapedPort(number, options.interface(number), Port(rate_bps, options.mtu, options.depth))
        for number, rate_bps in sorted(site.port_rates_bps.items())
    ]
    thrift = options.thrift
    return Bmv2Queues(site.switch, ports, options.namespace, None if thrift is None else (thrift.host, thrift.port))


TARGETS: Mapping[str, Target[Any]] = {
    target.name: target
    for target in (
        Target(
            name="softswitch",
            architecture="v1model",
            capabilities=capabilities.softswitch,
            capabilities_of=lambda _options: capabilities.softswitch(),
            options=SoftswitchOptions,
            queue_driver=lambda _options, _site: None,
        ),
        Target(
            name="bmv2",
            architecture="v1model",
            capabilities=capabilities.bmv2,
            capabilities_of=lambda options: capabilities.bmv2(options.depth, options.mtu),
            options=Bmv2Options,
            queue_driver=_bmv2_queues,
        ),
    )
}
"""By name, as a switch's entry in the configuration gives it."""
