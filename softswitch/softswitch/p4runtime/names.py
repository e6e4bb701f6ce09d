"""The numbers of strings: values of a type that is translated to `sdn_string`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from softswitch.p4runtime.bytestring import decode, encode
from softswitch.p4runtime.p4info import P4InfoError
from softswitch.rpc.status import Code, RefusedError

__all__ = ["Names"]

_MAPPINGS = "@p4runtime_translation_mappings"
_MAPPING = re.compile(r'\{\s*"([^"]*)"\s*,\s*(\d+)\s*\}')
_DECIMAL = re.compile(rb"0|[1-9][0-9]{0,1299}")

_MOST_BITS = 4_096
"""The widest number of a string: it is also written in digits, 1,234 at most."""


class Names:
    """The strings of one type that a controller has used, and what they stand for.

    The annotation `@p4runtime_translation_mappings` gives numbers to some. A decimal number is
    itself, as the name of a port. Any other string gets the lowest free number of the upper half,
    so that it is no port's number by accident.

    Args:
        name: of the type, for messages.
        width: of its numbers in the program, in bits.
        annotations: of the type.

    Raises:
        P4InfoError: the type is too wide, or a number of the annotation does not fit it.
    """

    def __init__(
        self,
        name: str,
        width: int,
        annotations: Iterable[str],
    ) -> None:
        if width > _MOST_BITS:
            raise P4InfoError(
                f"type {name}: {width} bits are too many for sdn_string, give it {_MOST_BITS} at"
                " most"
            )
        self.name = name
        self.width = width
        self._numbers: dict[bytes, int] = {}
        self._texts: dict[int, bytes] = {}
        self._following = 1 << (width - 1)
        for annotation in annotations:
            if annotation.startswith(_MAPPINGS):
                self._map(annotation)

    def number(self, text: bytes) -> bytes:
        """Return the number of a string, as a byte string.

        Raises:
            RefusedError: INVALID_ARGUMENT if a decimal number belongs to another string, and
                RESOURCE_EXHAUSTED if there are no more numbers.
        """
        number = self._numbers.get(text)
        if number is None:
            number = self._new_number(text)
            self._add(text, number)
        return encode(number)

    def text(self, data: bytes) -> bytes:
        """Return the string of a number: that of the controller, or its digits."""
        number = decode(data, self.width)
        text = self._texts.get(number)
        if text is None:
            digits = str(number)
            return digits.encode()
        return text

    def _map(self, annotation: str) -> None:
        for text, digits in _MAPPING.findall(annotation):
            is_long = len(digits) > len(str(1 << _MOST_BITS))
            if is_long or int(digits) >> self.width:
                raise P4InfoError(
                    f"type {self.name}: {_MAPPINGS} gives '{text}' a number that does not fit"
                    f" {self.width} bits"
                )
            self._add(text.encode(), int(digits))

    def _new_number(self, text: bytes) -> int:
        limit = 1 << self.width
        if _DECIMAL.fullmatch(text):
            number = int(text)
            if number < limit:
                return self._decimal(number)
        while self._following in self._texts:
            self._following += 1
        if self._following < limit:
            return self._following
        reason = f"there are no more numbers of {self.width} bits for strings"
        raise self._refused(Code.RESOURCE_EXHAUSTED, reason)

    def _decimal(self, number: int) -> int:
        owner = self._texts.get(number)
        if owner is None:
            return number
        other = owner.decode(errors="replace")
        reason = f"'{other}' has the number {number} (give it another name)"
        raise self._refused(Code.INVALID_ARGUMENT, reason)

    def _refused(self, code: Code, reason: str) -> RefusedError:
        return RefusedError(code, f"type {self.name}: {reason}")

    def _add(self, text: bytes, number: int) -> None:
        self._numbers[text] = number
        self._texts[number] = text
