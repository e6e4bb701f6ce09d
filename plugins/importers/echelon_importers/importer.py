"""The interface of an importer: options, and a parser from the bytes of files to a workload."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import PlainValidator

from echelon.model.documents import DocumentError, Duration, Rate, Section, problem
from echelon.model.errors import Code
from echelon.model.quantities import excerpt
from echelon_importers.workload import Workload

MOST_BYTES = 1 << 30
"""The most bytes that are unpacked from one file."""
_GZIP = b"\x1f\x8b"
"""The first bytes of a gzip file."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file: its name, for messages, and its bytes."""

    name: str
    data: bytes

    def unpacked(self) -> bytes:
        """Return the bytes, decompressed if they are gzip. Raises `DocumentError`."""
        if not self.data.startswith(_GZIP):
            return self.data
        unpacked = self.beginning(MOST_BYTES + 1)
        if len(unpacked) > MOST_BYTES:
            reason = f"unpacks to more than {MOST_BYTES >> 30} GiB (select a part)"
            raise self.refusal(reason, code="too-large")
        return unpacked

    def beginning(self, length: int) -> bytes:
        """Return the first bytes, decompressed if they are gzip. Raises `DocumentError`."""
        if not self.data.startswith(_GZIP):
            return self.data[:length]
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(self.data)) as stream:
                return stream.read(length)
        except (OSError, EOFError, zlib.error) as error:
            reason = f"is not a whole gzip file: {error} (copy it again)"
            raise self.refusal(reason, code="bad-syntax") from None

    def refusal(self, reason: str, code: Code = "invalid-value") -> DocumentError:
        """Return an error about the file as a whole."""
        return DocumentError(self.name, "", reason, code=code)

    def fault(
        self,
        line: int,
        reason: str,
        remedy: str,
    ) -> DocumentError:
        """Return an error about a line, counted from 1."""
        return DocumentError(self.name, f"line {line}", f"{reason} ({remedy})", code="bad-syntax")

    def integer(
        self,
        line: int,
        word: str,
        noun: str,
        most: int = 10**15,
    ) -> int:
        """Return the whole number that `word` is.

        Raises `DocumentError`, which names the line and what the number should be (`noun`).
        """
        is_number = word.isascii() and word.isdigit() and len(word) <= 20
        if is_number and int(word) <= most:
            return int(word)
        reason = f"{excerpt(word)} is not {noun}"
        raise self.fault(line, reason, f"write a whole number of at most {most}")

    def text(self) -> str:
        """Return the content as text. Raises `DocumentError`."""
        try:
            return self.unpacked().decode("utf-8")
        except UnicodeDecodeError as error:
            reason = f"byte {error.start} is not UTF-8 text (check the format)"
            raise self.refusal(reason, code="not-utf8") from None

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines that are not blank, with their numbers. Raises `DocumentError`."""
        lines = self.text().splitlines()
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line

    def json(self) -> Any:
        """Return the content as JSON. Raises `DocumentError`."""
        try:
            return json.loads(self.text(), parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            reason = f"{error.msg[0].lower()}{error.msg[1:]} (correct the JSON)"
            raise DocumentError(
                self.name, f"line {error.lineno}, column {error.colno}", reason, code="bad-syntax"
            ) from None
        except RecursionError:
            reason = "is nested too deeply (flatten it)"
            raise self.refusal(reason, code="nested-too-deep") from None
        except ValueError as error:
            raise self.refusal(f"{error} (correct the JSON)", code="bad-syntax") from None


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is not JSON")


class ImportOptions(Section):
    """Options of an import: values that a file lacks. A format adds its own options."""

    ranks: int | None = None
    """The number of ranks that the hosts have; None if no hosts are given."""
    ranks_per_host: int = 1
    local_bandwidth: Rate | None = None
    """Bits per second between two ranks of a host. None: such transfers take no time."""
    computing: Duration | None = None
    """The seconds that each rank computes, for a file that does not say it.

    0: import the communication alone.
    """


def _span(value: object) -> range:
    match = re.fullmatch(r"([1-9][0-9]{0,8})(?::([1-9][0-9]{0,8}))?", str(value))
    if match:
        first = int(match[1])
        last = int(match[2] or match[1])
    else:
        first = 1
        last = 0
    if first > last:
        raise problem(f"{excerpt(value)} is not a span (write 2, or 2:4, counted from 1)")
    return range(first, last + 1)


Span = Annotated[range, PlainValidator(_span)]
"""Consecutive numbers, counted from 1, as ``2`` or ``2:4``."""


O = TypeVar("O", bound=ImportOptions)  # noqa: E741


class Importer(ABC, Generic[O]):
    """A format. The docstring of the class is the format's help."""

    Options: ClassVar[type[ImportOptions]] = ImportOptions

    def __init__(self, options: O) -> None:
        self.options = options

    @abstractmethod
    def read(self, sources: Sequence[Source]) -> Workload:
        """Return the workload in files that belong together.

        Raises `DocumentError`, which names file and place.
        """

    def only(self, sources: Sequence[Source]) -> Source:
        """Return the only file. Raises `DocumentError` if there are several."""
        if len(sources) != 1:
            raise sources[1].refusal(
                "is one file too many: this format has one (import them one by one)",
            )
        return sources[0]

    def agreed_ranks(
        self,
        source: Source,
        ranks: int,
        why: str,
    ) -> int:
        """Return the number of ranks that the file implies.

        Raises `DocumentError` if hosts were given for another.
        """
        if self.options.ranks not in (None, ranks):
            reason = (
                f"has {ranks} ranks ({why}), but the hosts have {self.options.ranks} (change"
                " --hosts or --ranks-per-host)"
            )
            raise source.refusal(reason, code="wrong-length")
        return ranks

    def given_ranks(self, source: Source) -> int:
        """Return the number of ranks of the hosts.

        Raises `DocumentError` if no hosts were given.
        """
        if self.options.ranks is None:
            reason = "does not say how many ranks there are (give --hosts)"
            raise source.refusal(reason, code="missing-key")
        return self.options.ranks
