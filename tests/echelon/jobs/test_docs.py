"""docs/reference/jobs.md: every key of every paradigm is in it, and its jobs are good."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from echelon.model.documents import parse_document
from echelon.model.jobs.paradigm import registered
from echelon.model.jobs.spec import JobSpec

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "jobs.md").read_text(encoding="utf-8")
BLOCKS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize("name", registered().sections)
def test_every_key_is_shown(name: str) -> None:
    shown = {key for block in BLOCKS for key in block.get(name, {})}
    keys = registered().sections[name].model_fields
    assert shown == set(keys)


def test_the_jobs_in_it_are_good() -> None:
    workers: list[str] = []
    for block in BLOCKS:
        workers = block.get("workers", workers)
        (name,) = registered().sections.keys() & block.keys()
        parse_document(
            JobSpec, {"job": "j", "parallelism": name, "workers": workers, **block}, "docs/jobs.md"
        )
