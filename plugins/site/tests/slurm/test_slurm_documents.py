"""Tests of the document that is registered for the comment of a job, without Slurm."""

from __future__ import annotations

import os
import re
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from echelon.cli import app
from echelon.controller.resources.plan import ClassesResource, ClassResource
from echelon.model.documents import DocumentError, parse_document
from echelon.model.jobs.spec import JobSpec
from echelon_site.slurm.job_document import job_document
from echelon_site.slurm.settings import Settings, load_settings
from echelon_site.slurm.slurm_job import SlurmJob
from echelon_site.slurm.task_environment import task_lines
from tests.echelon.service.lab import ring
from tests.needs import needs

ROOT = Path(__file__).resolve().parents[4]
SPEC = ring("bert", ["a", "b"])
URL = "http://ctl1:8080"


def document(
    folder: Path,
    words: str,
    hosts: tuple[str, ...] = ("n1", "n2"),
) -> dict[str, Any]:
    job = SlurmJob(7, os.getuid(), "n[1-2]", f"echelon:{words}", str(folder))
    return job_document(job, hosts, gpus_per_host=8)


def refusal(folder: Path, words: str, *hosts: str) -> str:
    with pytest.raises(DocumentError) as caught:
        document(folder, words, hosts or ("n1", "n2"))
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bert.yaml").write_text(yaml.safe_dump(SPEC))
    return tmp_path


@pytest.mark.parametrize("prefix", ["", "./", "absolute"])
def test_hosts_of_slurm_take_the_places_of_workers(folder: Path, prefix: str) -> None:
    if prefix == "absolute":
        prefix = f"{folder}/"
    expected = {**SPEC, "job": "slurm-7", "workers": ["n1", "n2"]}
    assert document(folder, f"{prefix}bert.yaml") == expected


def test_a_file_for_these_hosts_keeps_its_order(folder: Path) -> None:
    (folder / "mine.yaml").write_text(yaml.safe_dump(ring("x", ["n2", "n1"])))
    assert document(folder, "mine.yaml")["workers"] == ["n2", "n1"]


def test_a_model_is_what_job_new_prints(folder: Path) -> None:
    options = ["--parallel", "tp=8,pp=2", "--gpu", "H100", "--global-batch", "16"]
    words = ["job", "new", "llama3.1-8b", "--gpus", "16", *options, "--hosts", "n1,n2"]
    printed = CliRunner().invoke(app, words)
    assert printed.exit_code == 0
    expected = {**yaml.safe_load(printed.stdout), "job": "slurm-7"}
    assert document(folder, f"llama3.1-8b {' '.join(options)}") == expected


def test_what_the_page_lets_a_user_type(folder: Path) -> None:
    page = (ROOT / "docs" / "slurm.md").read_text()
    (comment,) = re.findall(r'(?m)^#SBATCH --comment="echelon:(.*)"$', page)
    typed = document(folder, comment)
    assert parse_document(JobSpec, typed, "the page").workers == ("n1", "n2")


def test_refusals_of_comments(folder: Path) -> None:
    assert refusal(folder, "").startswith("--comment: names nothing (write echelon:FILE")
    assert refusal(folder, "'bert.yaml").startswith("--comment: No closing quotation")
    assert "--zero' stands behind a job file" in refusal(folder, "bert.yaml --zero 1")
    assert "unknown model 'nosuch' (known: " in refusal(folder, "nosuch")
    assert "--out: does not go with Slurm" in refusal(folder, "llama-7b --out /tmp/x")
    assert "-o/tmp/x: does not go with Slurm" in refusal(folder, "llama-7b -o/tmp/x")
    assert "no such option: --nosuch" in refusal(folder, "llama-7b --nosuch")


def test_refusals_of_files(folder: Path) -> None:
    assert refusal(folder, "absent.yaml").startswith(f"{folder}/absent.yaml: No such file")
    counted = f"{folder}/bert.yaml: workers: are not as many as the 3 nodes of the job"
    assert refusal(folder, "bert.yaml", "n1", "n2", "n3").startswith(counted)
    (folder / "list.yaml").write_text("[1, 2]")
    assert refusal(folder, "list.yaml").startswith(f"{folder}/list.yaml: ")
    (folder / "bytes.yaml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refusal(folder, "bytes.yaml")
    os.mkfifo(folder / "pipe.yaml")
    assert "is not a file of at most 4 MiB" in refusal(folder, "pipe.yaml")
    assert "is not a file of at most 4 MiB" in refusal(folder, "/dev/zero")
    with (folder / "large.yaml").open("w") as large:
        large.truncate(5 << 20)
    assert "is not a file of at most 4 MiB" in refusal(folder, "large.yaml")


@needs("an ordinary user")
def test_a_file_of_another_user() -> None:
    assert "does not belong to the user of the job" in refusal(Path("/etc"), "/etc/passwd")


def test_settings(tmp_path: Path) -> None:
    path = tmp_path / "slurm.yaml"
    path.write_text("{url: 'unix:/run/x', hosts: {gpu-001.site: h1}, wait: 500 ms, strict: true}")
    settings = load_settings(path)
    assert settings.host("gpu-001.site") == "h1"
    assert settings.host("n2") == "n2"
    assert (settings.wait, settings.strict) == (Fraction(1, 2), True)
    path.write_text("{urll: x}")
    with pytest.raises(DocumentError, match=r"slurm.yaml: urll: unknown key \(did you mean 'url'"):
        load_settings(path)


def test_a_longer_wait_than_the_service_allows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "slurm.yaml"
    path.write_text("{wait: 60 s}")
    assert load_settings(path).wait == 60
    path.write_text("{wait: 61 s}")
    with pytest.raises(DocumentError) as error:
        load_settings(path)
    assert error.value.path == "wait"


def test_the_shipped_settings_are_the_defaults() -> None:
    shipped = load_settings(ROOT / "deploy" / "slurm" / "slurm.yaml")
    defaults = type(shipped)(url=shipped.url)
    assert shipped == defaults


@needs("systemd-analyze")
def test_systemd_understands_the_timer(tmp_path: Path) -> None:
    for name in ("echelon-slurm.service", "echelon-slurm.timer"):
        unit = (ROOT / "deploy" / "slurm" / name).read_text()
        # Neither is on every machine.
        unit = unit.replace("/opt/echelon/bin/echelon", "/bin/true").replace("User=slurm\n", "")
        (tmp_path / name).write_text(unit)
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "echelon-slurm.timer"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) not in done.stderr


def classes(*queues: int | None) -> ClassesResource:
    groups = []
    for number, queue in enumerate(queues):
        dscp = None if queue is None else 8 * queue
        byte = None if queue is None else 32 * queue + 2
        name = f"flow{number}"
        group = ClassResource(echelonflow=name, queue=queue, dscp=dscp, traffic_class=byte)
        groups.append(group)
    return ClassesResource(job="slurm-7", policy="crux", classes=tuple(groups))


def test_the_environment_of_one_class() -> None:
    settings = Settings(url=URL, hosts={"gpu-001": "h1"}, ca="/etc/echelon/ca.pem")
    assert list(task_lines(classes(5, 5), settings, "gpu-001")) == [
        "export ECHELON_JOB=slurm-7",
        "export ECHELON_WORKER=h1",
        "export ECHELON_URL=http://ctl1:8080",
        "export ECHELON_CA=/etc/echelon/ca.pem",
        "print Echelon: job slurm-7, policy crux: queue 5, DSCP 40",
        "export NCCL_IB_TC=162",
        "export NCCL_IB_SL=5",
        "unset ECHELON_TRAFFIC_CLASSES",
    ]


def test_the_environment_without_a_class_that_lasts() -> None:
    export, worker, _, said = task_lines(classes(None), Settings(url=URL), "h2")
    assert export == "export ECHELON_JOB=slurm-7"
    assert worker == "export ECHELON_WORKER=h2"
    assert said.startswith("print Echelon: policy crux ranks the flows of job 'slurm-7'")
