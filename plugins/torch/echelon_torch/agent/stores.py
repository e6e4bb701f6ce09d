"""The ports of the stores of a job's processes, from what launchers tell these processes.

A store (TCPStore) and a rendezvous of torchrun listen at a port that every rank has to know before
it has a connection: launchers write it into the environment of ranks, and users into the command
line of the launcher. Who opens a connection to such a port asks a store; collectives listen at
ports of the kernel's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_VARIABLES = ("MASTER_PORT", "PET_MASTER_PORT", "PET_RDZV_ENDPOINT")
"""The variables by which torchrun tells its ranks, and is told itself."""
_OPTIONS = ("--master-port", "--rdzv-endpoint")
_RENDEZVOUS_PORT = 29400
"""The port of a torchrun endpoint that names none."""


def store_ports(processes: Iterable[int], proc: Path = Path("/proc")) -> frozenset[int]:
    """Return the ports of stores that these processes know, where this process may see them."""
    ports: set[int] = set()
    for process in processes:
        directory = proc / str(process)
        with suppress(OSError):
            words = _read(directory / "cmdline")
            ports.update(_ports_in_command(words))
        with suppress(OSError):
            variables = _read(directory / "environ")
            ports.update(_ports_in_environment(variables))
    return frozenset(ports)


def _read(path: Path) -> Sequence[str]:
    text = path.read_bytes().decode(errors="replace")
    return text.split("\0")


def _ports_in_environment(variables: Iterable[str]) -> Iterator[int]:
    for variable in variables:
        name, _, value = variable.partition("=")
        if name in _VARIABLES:
            yield from _port(value, is_endpoint=name.endswith("ENDPOINT"))


def _ports_in_command(words: Sequence[str]) -> Iterator[int]:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        # Options of torchrun have hyphens or underscores.
        option, has_value, value = word.replace("_", "-").partition("=")
        if option not in _OPTIONS:
            continue
        if not has_value:
            value = following
        yield from _port(value, is_endpoint=option.endswith("endpoint"))


def _port(value: str, *, is_endpoint: bool) -> Iterator[int]:
    host, colon, digits = value.rpartition(":")
    if is_endpoint and not colon and value and not value.isdecimal():
        yield _RENDEZVOUS_PORT
        return
    if host and not is_endpoint:
        return
    if digits.isdecimal() and 0 < int(digits) < 1 << 16:
        yield int(digits)
