"""The file beside the store in which the plan in force is kept for the next start.

It says what the plan follows from, by a digest: the version of Echelon, fabric, switches and policy
of the configuration, and all documents of the store but records of the trail. With another digest,
or where anything else is wrong with it, the file is not used, and the service plans as without it.
So nothing depends on the file, and it may be removed at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.kept_plan import from_pieces, to_pieces
from echelon.controller.machine.planning import KeptPlan, Planned
from echelon.model.fabric.model import Fabric
from echelon.switches.lowering.capabilities import Capabilities

FORMAT = 1
_MODE = 0o600


class UnusablePlanError(Exception):
    """The file is missing, damaged, or of other jobs or settings; the text says which."""


class PlanFile:
    """The file beside a store. Its methods take long for many jobs: they are for a thread."""

    def __init__(
        self,
        store: Path,
        fabric: Fabric,
        capabilities: Mapping[str, Capabilities],
        policy: ChosenPolicy,
    ) -> None:
        self.path = store.with_name(store.name + ".plan")
        self._configured = (
            version("echelon-p4"),
            fabric,
            sorted(capabilities.items()),
            policy,
        )
        self._basis = ""
        """The digest of what the plan follows from that was read or written last."""

    def read(self, saved: str) -> KeptPlan:
        """Return the plan that follows from what is saved. Raises `UnusablePlanError`.

        `saved` is the digest of what the store holds.
        """
        try:
            body, _, seal = self.path.read_bytes().rpartition(b"\n")
        except FileNotFoundError:
            raise UnusablePlanError("there is none") from None
        except OSError as error:
            raise UnusablePlanError(f"it cannot be read: {error.strerror}") from error
        try:
            sealed = json.loads(seal)
            if sealed["format"] != FORMAT:
                raise UnusablePlanError("another version of Echelon wrote it")
            if sealed["content"] != hashlib.sha256(body).hexdigest():
                raise UnusablePlanError("it is damaged")
            basis = self._digest(saved)
            if sealed["basis"] != basis:
                raise UnusablePlanError("it follows from other jobs or settings")
            kept = from_pieces(_pieces(body))
        except UnusablePlanError:
            raise
        except Exception as error:
            # What may be wrong with bytes has no end.
            raise UnusablePlanError(f"it is damaged: {type(error).__name__}: {error}") from error
        self._basis = basis
        return kept

    def write(self, planned: Planned, saved: str) -> None:
        """Replace the file, unless it has a plan that follows from the same.

        `saved` is the digest of what the store holds with that plan. Raises `OSError`.
        """
        basis = self._digest(saved)
        if basis == self._basis:
            return
        content = hashlib.sha256()
        unfinished = self.path.with_name(self.path.name + ".unfinished")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        descriptor = os.open(unfinished, flags, _MODE)
        with os.fdopen(descriptor, "wb") as file:
            for piece in to_pieces(planned):
                for part in (len(piece).to_bytes(4), piece):
                    content.update(part)
                    file.write(part)
            file.write(b"\n" + _seal(basis, content.hexdigest()))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.path)
        self._basis = basis

    def _digest(self, saved: str) -> str:
        """Return the digest of everything that a plan follows from."""
        basis = (saved, *self._configured)
        return hashlib.sha256(repr(basis).encode()).hexdigest()


def _seal(basis: str, content: str) -> bytes:
    """Return the last line of a file, by which it is known to be whole."""
    line = {
        "format": FORMAT,
        "basis": basis,
        "content": content,
    }
    return json.dumps(line).encode()


def _pieces(body: bytes) -> Iterator[bytes]:
    end = 0
    while end < len(body):
        start = end + 4
        end = start + int.from_bytes(body[end:start])
        yield body[start:end]
