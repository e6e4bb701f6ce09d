"""Malformed jobs of every kind: each refused with one clear line, by the daemon over HTTP and by
the file's loader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from echelon.controller.client import Client
from echelon.model.documents import DocumentError
from echelon.model.jobs.spec import load_job_spec
from tests.drawing import examples
from tests.echelon.service.api.malformed import (
    DAMAGES,
    DATA,
    FLOW_LIMIT,
    PIPELINE,
    Malformed,
    malformed,
)
from tests.echelon.service.api.test_errors import assert_same_words
from tests.echelon.service.lab import Lab

BODIES = malformed(seed=20, count=examples(1000))
MAX_LINE = 600
HOSTS = ("h1", "h2", "h3")
STAR = {
    "fabric": "star",
    "hosts": list(HOSTS),
    "switches": ["s1"],
    "links": [{"between": [host, "s1"], "rate": "1 Gbit/s"} for host in HOSTS],
}


def assert_clear(line: str, case: Malformed) -> None:
    assert line.isprintable(), (case.how, line)
    assert len(line) < MAX_LINE, (case.how, line)
    assert line.endswith(")"), f"{case.how}: does not say what to do: {line}"


def test_they_are_of_every_kind() -> None:
    counts = Counter(case.how for case in BODIES)
    assert len({case.body for case in BODIES}) == len(BODIES) == examples(1000)
    assert set(counts) == {name for name, _ in DAMAGES}
    assert malformed(20, 50) == malformed(20, 50)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with TemporaryDirectory(prefix="lab-") as directory:
        lab = Lab(Path(directory), STAR, limits={"flows_per_job": FLOW_LIMIT, "body": "100 kB"})
        lab.start()
        try:
            daemon = lab.daemon()
            with lab.client(daemon):
                yield daemon.wait_listening()
        finally:
            lab.stop()


def test_the_daemon_refuses_each_with_one_line(url: str) -> None:
    headers = {"Content-Type": "application/json"}
    statuses: Counter[int] = Counter()
    with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as http:
        # Each takes the daemon as long as all of them take the loader of files below.
        for case in BODIES[: examples(600)]:
            response = http.post("/jobs", content=case.body)
            assert response.status_code in (400, 422), (case, response.text)
            error = response.json()["error"]
            assert list(error) == ["status", "code", "reason", "path"]
            assert_clear(f"{error['path']}: {error['reason']}", case)
            statuses[response.status_code] += 1
    assert min(statuses[400], statuses[422]) > statuses.total() / 5
    with Client(url) as client:
        assert client.jobs() == []
        assert client.not_ready() is None
        # What they were made from is right.
        for spec in (PIPELINE, DATA):
            assert client.register_job(spec).name == spec["job"]


def test_the_daemon_has_the_words_of_the_files_loader(url: str, tmp_path: Path) -> None:
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        assert_same_words(http, tmp_path)


def test_the_loader_of_files_refuses_each_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    for case in BODIES:
        if case.with_fabric:
            continue
        file.write_bytes(case.body)
        with pytest.raises(DocumentError) as caught:
            load_job_spec(file)
        assert caught.value.file == str(file)
        assert_clear(str(caught.value), case)
