"""The comparison of what a test expects to leave a switch with what left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .commands import Digits, Expect, ExpectDigest


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that was not met, or a packet that no expectation asks for.

    ``str`` is one line.
    """

    file: str
    line: int
    reason: str
    packet: int | None = None
    """The line of the ``packet`` that led to the output.

    Without unexpected output it is the last one before the expectation.
    """

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


Fault = tuple[int, str, int | None]
"""(line, reason, line of the packet if one left)."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A packet that left, and the line of the ``packet`` that led to it."""

    line: int
    digits: str


@dataclass(frozen=True, slots=True)
class _Learned:
    """A digest, and the line of the ``packet`` that led to it."""

    line: int
    values: tuple[int, ...]


class Expectations:
    """Packets by port and digests by name, each compared in order once the test is over.

    If a test expects no packet at all, it tests something else. As in p4c, only the ports through
    which packets came in are then checked.
    """

    def __init__(self) -> None:
        self._ports_in: set[int] = set()
        self._packets: dict[int, list[Expect]] = {}
        self._sent: dict[int, list[_Sent]] = {}
        self._digests: dict[str, list[ExpectDigest]] = {}
        self._learned: dict[str, list[_Learned]] = {}

    def received(self, port: int) -> None:
        """Note that a packet came in."""
        self._ports_in.add(port)

    def packet(self, wanted: Expect) -> None:
        self._packets.setdefault(wanted.port, []).append(wanted)

    def sent(
        self,
        line: int,
        port: int,
        data: bytes,
    ) -> None:
        packet = _Sent(line, data.hex().upper())
        self._sent.setdefault(port, []).append(packet)

    def digest(self, name: str, wanted: ExpectDigest) -> None:
        """Note a digest; ``name`` is its full name."""
        self._digests.setdefault(name, []).append(wanted)

    def learned(
        self,
        line: int,
        name: str,
        values: tuple[int, ...],
    ) -> None:
        self._learned.setdefault(name, []).append(_Learned(line, values))

    def faults(self) -> list[Fault]:
        """Return what was expected and did not happen, and what happened unexpectedly."""
        faults: list[Fault] = []
        if self._packets:
            ports = self._packets.keys() | self._sent.keys()
        else:
            ports = self._ports_in
        for port in sorted(ports):
            sent = self._sent.get(port, [])
            faults += _packet_faults(port, self._packets.get(port, []), sent)
        if self._digests:
            names = self._digests.keys() | self._learned.keys()
            for name in sorted(names):
                expected = self._digests.get(name, [])
                faults += _digest_faults(name, expected, self._learned.get(name, []))
        return faults


def _packet_faults(
    port: int,
    expected: Sequence[Expect],
    sent: Sequence[_Sent],
) -> list[Fault]:
    faults: list[Fault] = []
    for wanted, actual in zip(expected, sent, strict=False):
        difference = _difference(wanted, actual.digits)
        if difference is not None:
            faults.append((wanted.line, f"port {port}: {difference}", actual.line))
    for wanted in expected[len(sent) :]:
        faults.append((wanted.line, f"port {port}: expected a packet, none left", None))
    for actual in sent[len(expected) :]:
        reason = f"port {port}: a packet left that nothing expects: {actual.digits}"
        faults.append((actual.line, reason, actual.line))
    return faults


def _difference(wanted: Expect, actual: str) -> str | None:
    """Return how a packet differs from the expected one, None if it does not."""
    digits = wanted.digits
    is_short = len(actual) < len(digits)
    if is_short or (wanted.exact and len(actual) != len(digits)):
        least = "" if wanted.exact else "at least "
        return f"expected {least}{len(digits)} hexadecimal digits, got {len(actual)}: {actual}"
    for place, (want, have) in enumerate(zip(digits, actual, strict=False)):
        if want not in ("*", have):
            return f"expected {digits}, got {actual}: they differ from byte {place // 2} on"
    return None


def _digest_faults(
    name: str,
    expected: Sequence[ExpectDigest],
    learned: Sequence[_Learned],
) -> list[Fault]:
    faults: list[Fault] = []
    for wanted, actual in zip(expected, learned, strict=False):
        for place, (want, have) in enumerate(zip(wanted.values, actual.values, strict=True)):
            if not _matches(want, have):
                reason = f"digest {name}: field {place} is {have:#x}, which is not what is expected"
                faults.append((wanted.line, reason, actual.line))
                break
    for wanted in expected[len(learned) :]:
        faults.append((wanted.line, f"digest {name}: expected a digest, none came", None))
    for actual in learned[len(expected) :]:
        values = " ".join(f"{value:#x}" for value in actual.values)
        reason = f"digest {name}: one came that nothing expects: {values}"
        faults.append((actual.line, reason, actual.line))
    return faults


def _matches(wanted: Digits, value: int) -> bool:
    """Return whether a value matches.

    Where the pattern has a ``*``, only the digits that are written count.
    """
    if not wanted.wild:
        return value == wanted.value
    assert wanted.mask is not None
    return value & wanted.mask == wanted.value
