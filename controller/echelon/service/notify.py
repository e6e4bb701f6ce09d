"""Messages to systemd, see sd_notify(3). A service of Type=notify reports itself when it is ready.

Each function returns whether a supervisor was told. None of them raises.
"""

from __future__ import annotations

import os
import socket
import time


def ready(status: str = "") -> bool:
    """Report that the service does its work from now on."""
    return _notify("READY=1", status)


def reloading() -> bool:
    """Report that the configuration is being read again; `ready` reports the end."""
    return _notify("RELOADING=1", clock=True)


def stopping(status: str = "") -> bool:
    """Report that the service is about to end."""
    return _notify("STOPPING=1", status)


def status(text: str) -> bool:
    """Set the line that `systemctl status` shows."""
    return _notify(status=text)


def alive() -> bool:
    """Report that the service is alive. Call it at least every `watchdog_s` seconds, or systemd restarts the
    service."""
    return _notify("WATCHDOG=1")


def watchdog_s() -> float | None:
    """Return half the time, in seconds, after which systemd restarts a silent service; None if it does not watch."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        return int(os.environ["WATCHDOG_USEC"]) / 2_000_000 or None
    except (KeyError, ValueError):
        return None


def _notify(state: str = "", status: str = "", *, clock: bool = False) -> bool:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    lines = [line for line in (state, f"STATUS={' '.join(status.split())}" if status else "") if line]
    if clock:
        lines.append(f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            # Never wait for a supervisor that does not read.
            out.setblocking(False)
            out.sendto("\n".join(lines).encode(), address)
    except OSError:
        return False
    return True
