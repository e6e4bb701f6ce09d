"""What a test expects to leave a switch, against what left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .commands import Digits, Expect, ExpectDigest


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that was not met, or a packet that none asks for; ``str`` is one line."""

    file: str
    line: int
    reason: str
    packet: int | None = None
    """the line of the ``packet`` that it is about: that of what left, or the last one before an expectation"""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


Fault = tuple[int, str, int | None]
"""(line, reason, line of the packet if one left)"""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A packet that left, and the line of the ``packet`` that it left in consequence of."""

    line: int
    digits: str


@dataclass(frozen=True, slots=True)
class _Learned:
    """A digest, and the line of the ``packet`` that it was made for."""

    line: int
    values: tuple[int, ...]


class Expectations:
    """Packets by port and digests by name, each compared in order once the test is over.

    A test that expects no packet at all is about something else; then, as p4c has it, only the ports through which
    packets came in are looked at.
    """

    def __init__(self) -> None:
        self._ports_in: set[int] = set()
        self._packets: dict[int, list[Expect]] = {}
        self._sent: dict[int, list[_Sent]] = {}
        self._digests: dict[str, list[ExpectDigest]] = {}
        self._learned: dict[str, list[_Learned]] = {}

    def received(self, port: int) -> None:
        """A packet came in."""
        self._ports_in.add(port)

    def packet(self, wanted: Expect) -> None:
        self._packets.setdefault(wanted.port, []).append(wanted)

    def sent(self, line: int, port: int, data: bytes) -> None:
        self._sent.setdefault(port, []).append(_Sent(line, data.hex().upper()))

    def digest(self, name: str, wanted: ExpectDigest) -> None:
        """``name`` is the digest's full name."""
        self._digests.setdefault(name, []).append(wanted)

    def learned(self, line: int, name: str, values: tuple[int, ...]) -> None:
        self._learned.setdefault(name, []).append(_Learned(line, values))

    def faults(self) -> list[Fault]:
        """What was expected and did not happen, and what happened unexpected."""
        faults: list[Fault] = []
        ports = self._packets.keys() | self._sent.keys() if self._packets else self._ports_in
        for port in sorted(ports):
            faults += _packet_faults(port, self._packets.get(port, []), self._sent.get(port, []))
        if self._digests:
            for name in sorted(self._digests.keys() | self._learned.keys()):
                faults += _digest_faults(name, self._digests.get(name, []), self._learned.get(name, []))
        return faults


def _packet_faults(port: int, expected: Sequence[Expect], sent: Sequence[_Sent]) -> list[Fault]:
    faults: list[Fault] = [
        (wanted.line, f"port {port}: {reason}", found.line)
        for wanted, found in zip(expected, sent, strict=False)
        if (reason := _difference(wanted, found.digits))
    ]
    faults += [(wanted.line, f"port {port}: expected a packet, none left", None) for wanted in expected[len(sent) :]]
    faults += [
        (found.line, f"port {port}: a packet left that nothing expects: {found.digits}", found.line)
        for found in sent[len(expected) :]
    ]
    return faults


def _difference(wanted: Expect, found: str) -> str | None:
    """Why a packet is not the one expected, None if it is."""
    digits = wanted.digits
    if len(found) < len(digits) or (wanted.exact and len(found) != len(digits)):
        least = "" if wanted.exact else "at least "
        return f"expected {least}{len(digits)} hexadecimal digits, got {len(found)}: {found}"
    for place, (want, have) in enumerate(zip(digits, found, strict=False)):
        if want not in ("*", have):
            return f"expected {digits}, got {found}: they differ from byte {place // 2} on"
    return None


def _digest_faults(name: str, expected: Sequence[ExpectDigest], learned: Sequence[_Learned]) -> list[Fault]:
    faults: list[Fault] = []
    for wanted, found in zip(expected, learned, strict=False):
        for place, (want, have) in enumerate(zip(wanted.values, found.values, strict=True)):
            if not _matches(want, have):
                reason = f"digest {name}: field {place} is {have:#x}, not what is expected"
                faults.append((wanted.line, reason, found.line))
                break
    faults += [
        (wanted.line, f"digest {name}: expected a digest, none came", None) for wanted in expected[len(learned) :]
    ]
    faults += [
        (
            found.line,
            f"digest {name}: one came that nothing expects: {' '.join(f'{v:#x}' for v in found.values)}",
            found.line,
        )
        for found in learned[len(expected) :]
    ]
    return faults


def _matches(wanted: Digits, value: int) -> bool:
    """A number is meant as it is; where it has a ``*``, only the digits that are written count."""
    if not wanted.wild:
        return value == wanted.value
    assert wanted.mask is not None
    return value & wanted.mask == wanted.value
