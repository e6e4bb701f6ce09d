"""Messages to systemd, which supervises the service.

Each function that notifies returns whether a supervisor was there. None of them raises.
"""

from __future__ import annotations

import os
import socket
import time


def notify_ready(status: str = "") -> bool:
    """Report that the service does its work from now on."""
    return _notify("READY=1", status)


def notify_reloading() -> bool:
    """Report that the configuration is being read again; `notify_ready` reports the end."""
    now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    return _send(["RELOADING=1", f"MONOTONIC_USEC={now_us}"])


def notify_stopping(status: str = "") -> bool:
    """Report that the service is about to end."""
    return _notify("STOPPING=1", status)


def notify_alive() -> bool:
    """Report that the service is alive.

    Call it at least every `watchdog_s` seconds, or systemd restarts the service.
    """
    return _notify("WATCHDOG=1")


def watchdog_s() -> float | None:
    """Return half the time after which systemd restarts a silent service; None: it never does."""
    own_pid = str(os.getpid())
    if os.environ.get("WATCHDOG_PID", own_pid) != own_pid:
        return None
    try:
        return int(os.environ["WATCHDOG_USEC"]) / 2_000_000 or None
    except (KeyError, ValueError):
        return None


def _notify(state: str, status: str = "") -> bool:
    lines = [state]
    if status:
        # A line break would begin another message.
        text = " ".join(status.split())
        lines.append(f"STATUS={text}")
    return _send(lines)


def _send(lines: list[str]) -> bool:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    message = "\n".join(lines).encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            # Never wait for a supervisor that does not read.
            out.setblocking(False)
            out.sendto(message, address)
    except OSError:
        return False
    return True
