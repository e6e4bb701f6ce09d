"""Every registered paradigm keeps what a paradigm promises; foreign ones are found, and broken ones
named.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from echelon.model.documents import DocumentError, parse_document
from echelon.model.jobs import build_job, build_jobs
from echelon.model.jobs.analysis import connections, with_profile_error
from echelon.model.jobs.graph import GraphError, limited_work
from echelon.model.jobs.paradigm import registered
from echelon.model.jobs.spec import UNBUILT, JobSpec
from tests.soak.work import SECTIONS, job_file

EXAMPLES = {
    title: example
    for paradigm in registered().sections.values()
    for title, example in paradigm.examples.items()
}


def test_nothing_that_is_installed_is_broken() -> None:
    assert registered().broken == {}


@pytest.mark.parametrize("name", registered().sections)
def test_a_paradigm_explains_itself(name: str) -> None:
    paradigm = registered().sections[name]
    assert (paradigm.__doc__ or "").strip()
    assert any(example["parallelism"] == name for example in paradigm.examples.values())
    assert paradigm.compute_times <= set(paradigm.model_fields)


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_is_a_job_of_which_all_is_known_beforehand(title: str) -> None:
    spec = parse_document(JobSpec, EXAMPLES[title], title)
    job = build_job(spec)
    assert set(job.workers) == set(spec.hosts)
    assert spec.flow_count == len(job.flows)
    assert spec.paradigm.step_count(len(spec.workers)) >= len(job.flows) + len(job.computes)
    carried = [sum(flow.size_bytes for flow in flows) for flows in connections(job).values()]
    assert spec.paradigm.connection_bytes(len(spec.workers)) >= max(carried)
    wrong = Fraction(1, 5)
    assert build_job(spec.with_profile_error(wrong)) == with_profile_error(job, wrong)


@pytest.mark.wide
def test_a_graph_has_no_more_steps_than_are_counted_beforehand() -> None:
    """The files are random ones of each paradigm, small enough to be built."""
    rng = Random(1)
    built: Counter[str] = Counter()
    while len(built) < len(SECTIONS) or min(built.values()) < 3:
        file = job_file(rng)
        with suppress(DocumentError, GraphError), limited_work(10**6):
            spec = parse_document(JobSpec, file, "job", {UNBUILT: True})
            if (counted := spec.paradigm.step_count(len(spec.workers))) < 2000:
                job = build_job(spec)
                assert counted >= len(job.flows) + len(job.computes), file
                built[spec.parallelism] += 1


def test_steps_say_themselves_what_they_are() -> None:
    """The kinds and micro-batches agree with the names."""
    job = build_job(parse_document(JobSpec, EXAMPLES["pipeline"], "pipeline"))
    for unit in job.computes:
        assert unit.name.startswith(f"{unit.kind}-s")
        assert unit.name.endswith(f"-m{unit.micro_batch}")
    for flow in job.flows:
        assert flow.name.endswith(f"-m{flow.micro_batch}")
    assert {unit.kind for unit in job.computes} == {"forward", "backward"}


FOREIGN = '''
from fractions import Fraction

from echelon.model.documents import Duration, Size
from echelon.model.jobs.collectives import Collective
from echelon.model.jobs.collectives import AllToAll
from echelon.model.jobs.combinators import compute, replicate, series
from echelon.model.jobs.graph import EchelonFlow
from echelon.model.jobs.paradigm import Paradigm


class Shuffle(Paradigm):
    """Compute, then exchange everything with everyone."""

    examples = {}
    compute_times = frozenset({"think"})
    think: Duration
    exchanged: Size

    def iteration(self, workers):
        sent = Collective(AllToAll(), workers).block("shuffle", self.exchanged)
        thought = replicate(workers, lambda i, worker: compute(f"think-w{i}", worker, self.think))
        return series(thought, sent).graph(EchelonFlow.coflow("shuffle", sent.flows))

    def flow_count(self, workers):
        return AllToAll().flow_count(workers)

    def connection_bytes(self, workers):
        return AllToAll().connection_bytes(workers, self.exchanged)
'''

JOB = """\
job: s
parallelism: shuffle
workers: [h1, h2, h3]
shuffle: {think: 1 s, exchanged: 9 B}
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder with two foreign distributions: a paradigm, and one that fails to import."""
    (tmp_path / "shuffling.py").write_text(FOREIGN)
    (tmp_path / "s.yaml").write_text(JOB)
    for name, target in (("shuffle", "shuffling:Shuffle"), ("missing", "nowhere:Nothing")):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[echelon.paradigms]\n{name} = {target}\n")
    return tmp_path


def check(folder: Path, job: str) -> tuple[int, str]:
    """Return the exit status and output of `echelon check` with these distributions installed."""
    (folder / "s.yaml").write_text(job)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "echelon", "check", "s.yaml"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_foreign_paradigm_is_used_as_ours_are(installed: Path) -> None:
    assert check(installed, JOB) == (0, "s.yaml: job 's' is good\n")
    assert check(installed, JOB.replace("think", "thnk")) == (
        2,
        "s.yaml: shuffle.thnk: unknown key (did you mean 'think'?)\n",
    )
    status, said = check(installed, JOB.replace("parallelism: shuffle", "parallelism: data"))
    assert (status, said.split(" (")[0]) == (
        2,
        "s.yaml: shuffle: does not go with 'parallelism: data'",
    )


def test_a_broken_paradigm_is_named_by_its_jobs_only(installed: Path) -> None:
    status, said = check(installed, JOB.replace("shuffle", "missing"))
    assert status == 2
    assert said.startswith(
        "s.yaml: parallelism: 'missing' of missing (nowhere:Nothing) cannot be used: "
    )
    assert said.endswith("(repair or remove it)\n")


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_jobs_that_differ_by_their_hosts_share_a_graph(example: dict[str, object]) -> None:
    workers = example["workers"]
    assert isinstance(workers, list)
    moved = {**example, "job": "moved", "workers": [f"other-{host}" for host in workers[::-1]]}
    specs = [parse_document(JobSpec, document, "test") for document in (example, moved)]
    jobs = build_jobs(specs)
    assert jobs == tuple(map(build_job, specs))
    assert jobs[0].echelonflows is jobs[1].echelonflows
