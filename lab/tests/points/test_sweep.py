"""A sweep keeps what it has, does the rest, and says what failed."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from echelon.model.progress import CommandProgress
from echelon_lab.points.store import PointStore, Stored
from echelon_lab.points.tasks import SweepError, Task, sweep
from lab.tests.points.measuring import die, die_once, refuse, square
from tests.faults import coded

NUMBERS = range(1, 6)
ROOT = Path(__file__).parents[3]
PATIENCE_S = 30.0


def tasks(log: Path, version: str = "1") -> list[Task]:
    return [
        Task(
            f"square-{n}", {"number": n, "version": version}, partial(square, n, log), cost=float(n)
        )
        for n in NUMBERS
    ]


def asked(log: Path) -> list[int]:
    """Return the numbers that were measured, in order."""
    return [int(line.split()[0]) for line in log.read_text().splitlines()] if log.exists() else []


class Listener(CommandProgress):
    """A progress that remembers, and interrupts when `last` parts are done."""

    def __init__(self, last: int | None = None) -> None:
        self.stages: list[tuple[float, float]] = []
        self.begun: list[str] = []
        self.parts = 0.0
        self._last = last

    def stage(self, doing: str, /, parts: float = 0, unit: str = "", kept: float = 0) -> None:
        self.stages.append((parts, kept))

    def doing(self, what: str, /) -> None:
        self.begun.append(what.split()[-1])

    def done(self, parts: float = 1, /) -> None:
        self.parts += parts
        if self.parts == self._last:
            raise KeyboardInterrupt


@pytest.mark.parametrize("workers", [0, 2])
def test_everything_is_measured_once_and_read_back(tmp_path: Path, workers: int) -> None:
    log, store = tmp_path / "log", PointStore(tmp_path)
    seen = Listener()
    found = sweep(tasks(log), store, workers, seen)
    assert {name: stored.result["square"] for name, stored in found.items()} == {
        f"square-{n}": n * n for n in NUMBERS
    }
    assert (seen.stages, seen.parts) == ([(len(NUMBERS), 0)], len(NUMBERS))
    assert sorted(seen.begun) == sorted(found)
    assert sorted(asked(log)) == list(NUMBERS)
    again = Listener()
    assert sweep(tasks(log), store, workers, again) == found
    assert (again.stages, again.begun, again.parts) == ([(len(NUMBERS), len(NUMBERS))], [], 0)
    assert len(asked(log)) == len(NUMBERS)
    processes = {int(line.split()[1]) for line in log.read_text().splitlines()}
    assert (os.getpid() in processes) == (workers == 0)


def test_the_longest_begin_first(tmp_path: Path) -> None:
    sweep(tasks(tmp_path / "log"), PointStore(tmp_path), 0)
    assert asked(tmp_path / "log") == sorted(NUMBERS, reverse=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupted_sweep_goes_on(tmp_path: Path, workers: int) -> None:
    log, store = tmp_path / "log", PointStore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        sweep(tasks(log), store, workers, Listener(last=2))
    assert not multiprocessing.active_children()
    kept = {int(stored.identity["number"]) for stored in store}
    assert len(kept) == 2
    log.unlink()
    # In this process, which saves the start of others: what is kept does not tell them apart.
    assert len(sweep(tasks(log), store, 0)) == len(NUMBERS)
    assert sorted(asked(log)) == sorted(set(NUMBERS) - kept)


ENDED_AT_START = """
import multiprocessing.util, signal, sys
from pathlib import Path
from echelon_lab.points.store import PointStore
from echelon_lab.points.tasks import sweep
from lab.tests.points.test_sweep import tasks

def end(*_):
    sys.exit(143)

def spawn_and_end(path, words, descriptors, spawn=multiprocessing.util.spawnv_passfds):
    process = spawn(path, words, descriptors)
    if "spawn_main" in str(words):
        signal.raise_signal(signal.SIGTERM)
    return process

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    multiprocessing.util.spawnv_passfds = spawn_and_end
    folder = Path(sys.argv[1])
    sweep(tasks(folder / "log"), PointStore(folder), 2)
"""


def test_an_end_while_a_process_starts_is_quiet(tmp_path: Path) -> None:
    """The signal comes when the process is there, but has not got its instructions."""
    script = tmp_path / "ended.py"
    script.write_text(ENDED_AT_START)
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (143, "")


def test_another_identity_is_another_point(tmp_path: Path) -> None:
    log, store = tmp_path / "log", PointStore(tmp_path)
    sweep(tasks(log), store, 0)
    sweep(tasks(log, version="2"), store, 0)
    assert len(asked(log)) == 2 * len(NUMBERS)
    assert len(list(store)) == 2 * len(NUMBERS)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"identity": {"number": 1}, "result": {}}', '{"identity": 1}']
)
def test_what_cannot_be_read_is_measured_again(tmp_path: Path, text: str) -> None:
    log, store = tmp_path / "log", PointStore(tmp_path)
    sweep(tasks(log), store, 0)
    spoiled = store.path("square-1", {"number": 1, "version": "1"})
    spoiled.write_text(text)
    assert len(list(store)) == len(NUMBERS) - 1
    sweep(tasks(log), store, 0)
    assert sorted(asked(log)) == sorted([*NUMBERS, 1])
    assert len(list(store)) == len(NUMBERS)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failure_is_named_and_the_others_are_kept(tmp_path: Path, workers: int) -> None:
    bad = Task("bad", {"number": 0}, partial(refuse, "the fabric is broken"), cost=9.0)
    with pytest.raises(SweepError, check=coded("run-failed", "bad", "the fabric is broken")):
        sweep([bad, *tasks(tmp_path / "log")], PointStore(tmp_path), workers)
    assert len(list(PointStore(tmp_path))) == len(NUMBERS)


def test_a_process_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    once = Task("once", {"number": 0}, partial(die_once, tmp_path / "dead"), cost=9.0)
    found = sweep([once, *tasks(log)], PointStore(tmp_path), 2)
    assert found["once"].result == {"survived": True}
    assert {name: stored.result["square"] for name, stored in found.items() if name != "once"} == {
        f"square-{n}": n * n for n in NUMBERS
    }


def test_only_the_task_that_kills_its_process_fails(tmp_path: Path) -> None:
    with pytest.raises(SweepError, check=coded("run-failed", "dead: ")):
        sweep(
            [Task("dead", {"number": 0}, die, cost=9.0), *tasks(tmp_path / "log")],
            PointStore(tmp_path),
            2,
        )
    assert len(list(PointStore(tmp_path))) == len(NUMBERS)
    assert not multiprocessing.active_children()


@pytest.mark.wide
def test_a_process_that_dies_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SweepError, check=coded("run-failed", "dead: ")):
        sweep([Task("dead", {"number": 0}, die)], PointStore(tmp_path), 1)
    assert not multiprocessing.active_children()


KILLED = """
import sys
from functools import partial
from pathlib import Path
from echelon_lab.points.store import PointStore
from echelon_lab.points.tasks import Task, sweep
from lab.tests.points.measuring import stay
where = Path(sys.argv[1])
if __name__ == "__main__":
    tasks = [Task(f"stay-{n}", {"number": n}, partial(stay, where / "log")) for n in (1, 2)]
    sweep(tasks, PointStore(where), 2)
"""


def test_nobody_outlives_a_sweep_that_is_killed(tmp_path: Path) -> None:
    script, log = tmp_path / "killed.py", tmp_path / "log"
    script.write_text(KILLED)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "controller")]),
    }
    with subprocess.Popen(
        [sys.executable, script, tmp_path], env=environment, stderr=subprocess.DEVNULL
    ) as process:
        while not log.exists() or len(log.read_text().split()) < 2:
            assert process.poll() is None
        staying = [os.pidfd_open(int(number)) for number in log.read_text().split()]
        process.kill()
    try:
        for descriptor in staying:
            assert select.select([descriptor], [], [], PATIENCE_S)[0], (
                "it goes on after its parent's death"
            )
    finally:
        for descriptor in staying:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)


def test_nothing_partial_is_left_where_writing_fails(tmp_path: Path) -> None:
    (tmp_path / "points").write_text("a file where the directory should be")
    with pytest.raises(OSError):
        PointStore(tmp_path).put("square-1", Stored({"number": 1}, {"square": 1}, 0.0))
    assert list(tmp_path.iterdir()) == [tmp_path / "points"]
