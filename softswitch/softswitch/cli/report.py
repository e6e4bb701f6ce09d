"""The line that the switch prints when it is ready, and the table that it prints at its end."""

from __future__ import annotations

import io
from collections.abc import Mapping

from softswitch import Switch
from softswitch.cli.options import SwitchOptions
from softswitch.native.dataplane import NativeDataPlane
from softswitch.native.polling import DataPlane

__all__ = ["ready_line", "summary"]


def ready_line(
    options: SwitchOptions,
    addresses: Mapping[str, str],
    up: Mapping[int, bool],
) -> str:
    """Return one line that names the device, its ports, and each server with its address.

    P4Runtime comes first.
    """
    ports = []
    for interface in options.interfaces:
        notes = []
        rate_bps = options.rates_bps.get(interface.port)
        if rate_bps is not None:
            notes.append(_rate(rate_bps))
        if not up[interface.port]:
            notes.append("down")
        port = f"{interface.port} {interface.name}"
        ports.append(f"{port} ({', '.join(notes)})" if notes else port)
    secure = ", TLS" if options.tls is not None else ""
    listed = f"ports {', '.join(ports)}" if ports else "no ports"
    first, *rest = (f"{name} at {address}" for name, address in addresses.items())
    served = "".join(f", {other}" for other in rest)
    return f"softswitch: device {options.device_id}, {first}{secure}{served}, {listed}"


def summary(
    options: SwitchOptions,
    data_plane: DataPlane | NativeDataPlane,
    switch: Switch | None,
) -> str:
    """Return a table of the packets received, sent and dropped, by port and by reason."""
    from rich.console import Console
    from rich.table import Table

    account = data_plane.account
    names = {interface.port: interface.name for interface in options.interfaces}
    table = Table(title="packets", title_justify="left")
    for heading in ("port", "interface", "in", "out", "dropped", "queued", "lost before"):
        table.add_column(heading, justify="left" if heading == "interface" else "right")
    lost = data_plane.lost
    for number, port in sorted(account.ports.items()):
        counts = (
            port.packets_in,
            port.packets_out,
            port.dropped,
            port.queued,
            lost.get(number, 0),
        )
        interface = names.get(number, "controllers")
        table.add_row(str(number), interface, *map(str, counts))
    table.add_section()
    total = (
        account.packets_in,
        account.packets_out,
        sum(account.dropped.values()),
        account.queued,
        sum(lost.values()),
    )
    table.add_row("", "all", *map(str, total))
    text = io.StringIO()
    Console(file=text, width=100, color_system=None).print(table)
    lines = [text.getvalue().rstrip()]
    if account.replicated:
        lines.append(f"replicated: {account.replicated}")
    reasons = dict(account.dropped)
    if reasons:
        lines.append(f"dropped: {_listed(reasons)}")
    inside = {} if switch is None else switch.stats.dropped
    if inside:
        lines.append(f"dropped by the program: {_listed(inside)}")
    return "\n".join(lines)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in counts.items())


def _rate(rate_bps: int) -> str:
    for unit, factor in (("Gbit/s", 10**9), ("Mbit/s", 10**6), ("kbit/s", 10**3)):
        if rate_bps >= factor:
            return f"{rate_bps / factor:g} {unit}"
    return f"{rate_bps} bit/s"
