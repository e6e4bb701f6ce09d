"""Run an experiment by name: measure what is missing, record the machine, draw the report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.model.documents import DocumentError
from echelon.model.progress import UNSEEN, CommandProgress
from echelon_lab.machine import machine
from echelon_lab.points.store import PointStore, Stored
from echelon_lab.points.tasks import sweep
from research.experiment import Selection
from research.measure import Runner
from research.registry import EXPERIMENTS
from research.settings import ExperimentSettings

MACHINE = "machine.json"


def run(
    name: str,
    settings: ExperimentSettings,
    selection: Selection,
    out: Path,
    *,
    workers: int,
    make_runner: Callable[[], Runner],
    command: Sequence[str],
    progress: CommandProgress = UNSEEN,
) -> list[Path]:
    """Run the experiment `name` into the directory `out`, which may hold a part of it.

    Return the files of its report.

    Raise `DocumentError`, `SweepError`, and `OSError` if nothing can be written.
    """
    entry = EXPERIMENTS[name]
    _refuse_mixture(name, settings, out)
    experiment = entry.load()
    stages = experiment.stages(settings, selection, make_runner)
    tasks = next(stages)
    out.mkdir(parents=True, exist_ok=True)
    store = PointStore(out)
    record = machine(command, settings.identity(), workers)
    _note(out, name, record)
    began = time.monotonic()
    while True:
        stored: Mapping[str, Stored] = sweep(tasks, store, workers, progress)
        try:
            tasks = stages.send(stored)
        except StopIteration:
            break
    took_s = round(time.monotonic() - began, 1)
    _note(out, name, {**record, "took_s": took_s})
    progress.stage("drawing the report")
    return experiment.report(store, settings, out)


def report(out: Path) -> list[Path]:
    """Draw and write again what `out` holds.

    Raise `DocumentError` if there is nothing, and `OSError`.
    """
    records = _records(out)
    if not records:
        raise DocumentError(
            str(out),
            "",
            "holds no experiment (run one into it: python -m research experiment NAME --out DIR)",
        )
    files: dict[Path, None] = {}
    for name, record in records.items():
        settings = ExperimentSettings.from_identity(record["settings"])
        experiment = EXPERIMENTS[name].load()
        for file in experiment.report(PointStore(out), settings, out):
            files[file] = None
    return list(files)


def _refuse_mixture(
    name: str,
    settings: ExperimentSettings,
    out: Path,
) -> None:
    """Refuse settings other than those of the experiments in the same report."""
    for other, record in _records(out).items():
        same_report = EXPERIMENTS[other].module == EXPERIMENTS[name].module
        if other != name and same_report and record["settings"] != settings.identity():
            raise DocumentError(
                "--out", str(out), f"holds {other} with other settings (name another directory)"
            )


def _records(out: Path) -> dict[str, dict[str, Any]]:
    """Return the records in `out` of known experiments."""
    try:
        records = json.loads((out / MACHINE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise DocumentError(
            str(out / MACHINE), "", f"cannot be read: {error} (remove it)"
        ) from None
    if not isinstance(records, dict) or not all(map(_is_record, records.values())):
        raise DocumentError(str(out / MACHINE), "", "was not written by an experiment (remove it)")
    return {name: record for name, record in records.items() if name in EXPERIMENTS}


def _is_record(record: object) -> bool:
    return isinstance(record, dict) and isinstance(record.get("settings"), dict)


def _note(
    out: Path,
    name: str,
    record: Mapping[str, Any],
) -> None:
    records = {**_records(out), name: record}
    text = json.dumps(records, indent=2, sort_keys=True)
    (out / MACHINE).write_text(f"{text}\n", encoding="utf-8")
