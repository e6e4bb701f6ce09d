"""PyTorch through the network: processes with sockets of their own, on the model of a switch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from fractions import Fraction
from math import frexp
from pathlib import Path
from typing import Any

import pytest

from echelon_aggregation.membership import VARIABLE
from plugins.aggregation.tests.model_switch import ModelSwitch, membership
from tests.faults import mentions
from tests.needs import needs

pytestmark = needs("torch")

WORKERS = 4


@dataclass
class Rank:
    """The end of a process."""

    status: int
    said: str
    errors: str

    @property
    def found(self) -> dict[str, Any]:
        assert self.status == 0, self.errors
        loaded: dict[str, Any] = json.loads(self.said.splitlines()[-1])
        return loaded


def run(
    directory: Path,
    what: str,
    backend: str = "cpu:echelon",
    loses: float = 0.0,
    silence_s: float = 60,
) -> list[Rank]:
    of = membership(directory, WORKERS, silence_s=silence_s)
    file = directory / "group.json"
    file.write_text(of.model_dump_json())
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    switch = ModelSwitch(of, loses)
    command = [sys.executable, "-m", "plugins.aggregation.tests.torch_worker"]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(WORKERS), f"127.0.0.1:{store.port}", backend, what],
            env={**os.environ, VARIABLE: str(file)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORKERS)
    ]
    try:
        said = [process.communicate(timeout=300) for process in processes]
        return [
            Rank(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)
        ]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
        switch.close()


def test_each_collective_goes_its_way(tmp_path: Path) -> None:
    ranks = run(tmp_path, "operations", loses=0.01)
    found = [rank.found for rank in ranks]
    given = [each["given"] for each in found]
    for start in range(0, 999, 32):
        chunk = range(start, min(start + 32, 999))
        # Values of four workers have 30 - 2 bits, so that sums have 30.
        power = frexp(max(abs(each[at]) for each in given for at in chunk))[1]
        bound = WORKERS * Fraction(2) ** (power - 28) / 2
        for at in chunk:
            total = sum(Fraction(each[at]) for each in given)
            off = abs(Fraction(found[0]["summed"][at]) - total)
            assert off <= bound + abs(total) / 2**24, at
    for rank, each in enumerate(found):
        assert each["summed"] == found[0]["summed"]
        assert each["whole"] == [0] * 5, "4 * 2^30, modulo 2^32"
        assert each["double"] == [6.0] * 3
        assert each["most"] == [3.0] * 3
        assert each["sent"] == [number * 2**40 for number in range(7)]
        assert each["odd"] == [1, 2, 3]
        assert each["share"] == [6 + 40 * rank, 10 + 40 * rank]
        assert each["gathered"] == [0.0, 1.0, 2.0, 3.0]
        assert each["pair"] == ([2.0] if rank < 2 else [1.0])
    for said in (
        "allreduce goes through Gloo: values of torch.float64 (the network adds float32 and int32)",
        "allreduce goes through Gloo: the network only adds",
        "allgather goes through Gloo: the network does not do it",
        "a group goes through Gloo: it has 2 of 4 workers",
    ):
        assert ranks[0].errors.count(said) == 1, ranks[0].errors


@pytest.fixture(scope="module")
def by_gloo(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    ranks = run(tmp_path_factory.mktemp("gloo"), "training", "gloo")
    losses: list[float] = ranks[0].found["losses"]
    return losses


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "backend"), [("training", "cpu:echelon"), ("hook", "cpu:echelon"), ("hook", "gloo")]
)
def test_a_model_learns_as_with_gloo(
    tmp_path: Path, by_gloo: list[float], what: str, backend: str
) -> None:
    ranks = run(tmp_path, what, backend)
    losses = [rank.found["losses"] for rank in ranks]
    assert losses == [losses[0]] * WORKERS
    assert len(by_gloo) == 200
    assert sum(by_gloo[-20:]) < sum(by_gloo[:20]) / 4, "it learns"
    difference = max(abs(one - other) for one, other in zip(losses[0], by_gloo, strict=True))
    print(f"{what}, {backend}: the losses of 200 steps are {difference:.2e} apart at most")
    assert difference < 1e-3
    assert ranks[0].found["epochs"] == (200 if what == "hook" else 0)


@pytest.mark.long
def test_the_end_of_a_worker_ends_the_others_with_the_cause(tmp_path: Path) -> None:
    began = time.monotonic()
    ranks = run(tmp_path, "dies", silence_s=5)
    print(f"all had ended after {time.monotonic() - began:.1f} s")
    assert [rank.status for rank in ranks] == [3, 3, 3, -9]
    for rank in ranks[:3]:
        assert mentions(rank.errors.splitlines()[-1], "worker 3")
