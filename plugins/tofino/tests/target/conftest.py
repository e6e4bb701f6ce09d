"""A switch that serves BF Runtime over sockets, and Echelon's program as a Tofino's compiler would
describe it.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from echelon.model.p4program import P4Program, program
from echelon_tofino.target.queues import BfrtQueues
from echelon_tofino.target.session import BfrtSession
from echelon_tofino_model.bfruntime.device import Data, Key
from echelon_tofino_model.bfruntime.server import BfRuntimeServer
from echelon_tofino_model.bfruntime.service import BfRuntime
from echelon_tofino_model.bfruntime.store import StoredDevice
from echelon_tofino_model.bfruntime.traffic import TrafficManager
from tests.coroutines import pytest_pyfunc_call as pytest_pyfunc_call
from tests.reference.bf_rt_info import bf_rt_info
from tests.softswitch.tm.native import SchedulerInC

PORTS = (1, 2, 3)


class Rig:
    """One switch: what sessions connect to, and what stands behind it."""

    def __init__(self, described: P4Program, address: str = "127.0.0.1:0") -> None:
        self.program = described
        self.lock = threading.RLock()
        self.ports = {port: SchedulerInC(10_000_000) for port in PORTS}
        self.traffic = TrafficManager(self.ports, lambda: 0)
        self.device = StoredDevice(self.traffic)
        self.service = BfRuntime(self.device, self.lock)
        self.server = BfRuntimeServer(self.service, address)

    def session(self, term: int | None = None, queues: BfrtQueues | None = None) -> BfrtSession:
        driver = queues or BfrtQueues("s1", PORTS)
        return BfrtSession(
            "s1", self.server.address, 1, self.program, election_id=term, queues=driver
        )

    def held_or_nothing(self) -> dict[tuple[str, Key], Data]:
        """Return as `held` does; nothing if there is no program yet."""
        return {} if self.device.program is None else self.held()

    def held(self) -> dict[tuple[str, Key], Data]:
        """Return every entry of the program's tables, by table and key."""
        with self.lock:
            current = self.device.program
            assert current is not None
            return {
                (name, key): data
                for name in current.schema.tables
                if (entries := self.device.entries(name, None)) is not None
                for key, data in entries.all()
            }


@pytest.fixture(scope="session")
def described(tmp_path_factory: pytest.TempPathFactory) -> P4Program:
    """Echelon's program for v1model, described as p4c's Tofino back end describes its own."""
    folder = tmp_path_factory.mktemp("tna")
    source = program("v1model")
    shutil.copy(source.p4info, folder / source.p4info.name)
    (folder / "echelon.bfa").write_text("version: 1.0.0\n")
    (folder / "bf-rt.json").write_bytes(bf_rt_info(source.p4info.read_text()))
    return P4Program("echelon", folder / source.p4info.name, folder / "echelon.bfa")


@pytest.fixture
def rig(described: P4Program) -> Iterator[Rig]:
    made = Rig(described)
    with made.server:
        yield made


@pytest.fixture(scope="session")
def make_intent() -> Any:
    from tests.echelon.southbound.conftest import intent_of

    return intent_of
