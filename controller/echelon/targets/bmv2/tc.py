"""Runs `tc`, in the network namespace of a switch."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence

_TIMEOUT_S = 10.0
_NAMED = "/run/netns/"
_FAILED = re.compile(r"^Command failed -:(\d+)$", re.MULTILINE)


class TcError(Exception):
    """`tc` cannot be run, or refuses something; one line, with what to do where that is known."""


class Tc:
    """`namespace` is the name of a network namespace, or a path to one as /proc/PID/ns/net; None: the caller's."""

    def __init__(self, namespace: str | None = None) -> None:
        path = namespace if namespace is None or namespace.startswith("/") else _NAMED + namespace
        self._prefix = [] if path is None else ["nsenter", f"--net={path}"]
        self._namespace = namespace

    def run(self, lines: Sequence[str]) -> str:
        """Carries out `lines` in one process up to the first that fails. Answers, with details. Raises `TcError`."""
        command = [*self._prefix, "tc", "-details", "-batch", "-"]
        try:
            done = subprocess.run(
                command,
                input="\n".join([*lines, ""]),
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_S,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError:
            package = "util-linux" if self._prefix else "iproute2"
            raise TcError(f"there is no command {command[0]} here; install {package}") from None
        except subprocess.TimeoutExpired:
            raise TcError(f"tc has not answered within {_TIMEOUT_S:g} s") from None
        if done.returncode:
            raise TcError(self._explain(done.stderr, lines))
        return done.stdout

    def _explain(self, stderr: str, lines: Sequence[str]) -> str:
        where = "" if self._namespace is None else f" in namespace {self._namespace}"
        if "Operation not permitted" in stderr or "Permission denied" in stderr:
            needed = "CAP_NET_ADMIN" + (" and CAP_SYS_ADMIN" if self._prefix else "")
            return f"not permitted{where}; run as root, or with {needed}"
        if "Cannot find device" in stderr:
            return f"there is no such interface{where}; check `interfaces` and `namespace`"
        if stderr.startswith("nsenter: cannot open"):
            return f"there is no network namespace {self._namespace}; is the switch running?"
        if "kind is unknown" in stderr:
            return "the kernel lacks HTB, u32 or pfifo; load the modules sch_htb, cls_u32 and sch_fifo"
        reason = " ".join(_FAILED.sub("", stderr).split()) or "no reason given"
        failed = _FAILED.search(stderr)
        return f"tc {lines[int(failed[1]) - 1]}: {reason}" if failed else f"tc: {reason}"
