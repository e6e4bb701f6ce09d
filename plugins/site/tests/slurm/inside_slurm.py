"""Run as a module: jobs of the real Slurm, one after the other, in a sandbox.

    python -m plugins.site.tests.slurm.inside_slurm

It ends with status 0 if everything was as its assertions say.
"""

from __future__ import annotations

import os
import pwd
import sys

import yaml

from echelon_lab.hosts import sandbox
from plugins.site.tests.slurm.slurm_cluster import Place, place
from tests.echelon.service.lab import ring, until

MODULE = "plugins.site.tests.slurm.inside_slurm"
SHOWN = "env | grep -E '^(NCCL|ECHELON)_' | sort; sleep 300"


def nothing_yet(here: Place) -> None:
    """Check that sync without any job does nothing, and that this is no error."""
    done = here.slurm.sync()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def a_job_file(here: Place) -> None:
    """The file's workers become Slurm's hosts, tasks get the class, and scancel removes the job."""
    slurm = here.slurm
    (slurm.folder / "job.yaml").write_text(yaml.safe_dump(ring("any", ["a", "b", "c"])))
    job = slurm.submit(SHOWN, "--nodes=3", "--nodelist=n[2-4]", "--comment=echelon:job.yaml")
    slurm.wait_state(job, "RUNNING")
    until(lambda: f"ECHELON_JOB=slurm-{job}" in slurm.output(job), "the task has no environment")
    assert here.registered() == {f"slurm-{job}": ["n2", "n3", "n4"]}
    with here.client() as client:
        (entry,) = {group.traffic_class for group in client.classes(f"slurm-{job}").classes}
    output = slurm.output(job)
    assert f"NCCL_IB_TC={entry}\n" in output, output
    assert f"Echelon: job slurm-{job}, policy crux: queue" in output
    assert slurm.facts(job)["AdminComment"] == f"Echelon knows the job as slurm-{job}"
    slurm.command("scancel", str(job))
    until(lambda: not here.registered(), "scancel leaves the job")


def a_model(here: Place) -> None:
    """A model by name, with options of `echelon job new`, has the GPUs of Slurm's hosts."""
    comment = "--comment=echelon:llama-7b --parallel tp=8 --zero 1"
    job = here.slurm.submit("sleep 300", "--nodes=2", comment)
    here.slurm.wait_state(job, "RUNNING")
    until(
        lambda: f"slurm-{job}" in here.registered(), here.slurm.facts(job).get("AdminComment", "")
    )
    assert len(here.registered()[f"slurm-{job}"]) == 2
    here.slurm.command("scancel", str(job))
    until(lambda: not here.registered(), "scancel leaves the job")


def an_array(here: Place) -> None:
    """Each task of an array is a job, with hosts of its own."""
    options = ("--nodes=2", "--array=0-1", "--comment=echelon:job2.yaml")
    array = here.slurm.submit("sleep 300", *options)
    until(lambda: len(here.registered()) == 2, "not both tasks are registered")
    hosts = here.registered()
    running = here.slurm.running()
    assert hosts == {f"slurm-{job}": sorted(nodes) for job, nodes in running.items()}
    assert sorted(host for names in hosts.values() for host in names) == here.slurm.nodes
    here.slurm.command("scancel", str(array))
    until(lambda: not here.registered(), "scancel leaves a task")


def other_jobs(here: Place) -> None:
    """A job without such a comment, and one with a mistake in it, run; the latter says why not."""
    slurm = here.slurm
    plain = slurm.submit("echo plain; env | grep -c ECHELON_JOB", "--nodes=1", "--comment=mine")
    slurm.wait_state(plain, "COMPLETED", "FAILED")
    assert slurm.output(plain) == "plain\n0\n"
    wrong = slurm.submit("echo ran", "--nodes=1", "--comment=echelon:absent.yaml")
    facts = slurm.wait_state(wrong, "COMPLETED")
    assert facts["AdminComment"].startswith("Echelon refuses the job: "), facts
    assert "absent.yaml: No such file or directory" in facts["AdminComment"]
    first, *_, last = slurm.output(wrong).splitlines()
    assert first.startswith("Echelon: this job starts without classes: ")
    assert last == "ran"
    assert not here.registered()


def files_of_others(here: Place) -> None:
    """Root reads a job file with the rights of the job's user."""
    slurm = here.slurm
    user = pwd.getpwnam("nobody")
    home = slurm.folder / "home"
    home.mkdir()
    os.chown(home, user.pw_uid, user.pw_gid)
    for name in ("mine", "secret"):
        path = home / f"{name}.yaml"
        path.write_text(yaml.safe_dump(ring("any", ["a", "b"])))
        path.chmod(0o600)
    os.chown(home / "mine.yaml", user.pw_uid, user.pw_gid)
    options = ("--nodes=2", f"--uid={user.pw_uid}", f"--gid={user.pw_gid}", f"--chdir={home}")
    for name, shown in (("mine", "Echelon knows"), ("secret", "Permission denied")):
        job = slurm.submit("true", *options, f"--comment=echelon:{name}.yaml")
        facts = slurm.wait_state(job, "COMPLETED")
        assert shown in facts["AdminComment"], facts
    until(lambda: not here.registered(), "a job is left over")


def a_service_that_is_down(here: Place) -> None:
    """A job starts without it; sync registers it later, and removes what ended meanwhile."""
    slurm = here.slurm
    ended = slurm.submit("sleep 300", "--nodes=2", "--comment=echelon:job2.yaml")
    until(lambda: f"slurm-{ended}" in here.registered(), "the job is not registered")
    here.kill_service()
    slurm.command("scancel", str(ended))
    slurm.wait_state(ended, "CANCELLED")
    job = slurm.submit("echo runs; sleep 300", "--nodes=2", "--comment=echelon:job2.yaml")
    until(lambda: "runs" in slurm.output(job), "the job does not run")
    assert slurm.output(job).startswith("Echelon: this job starts without classes: ")
    done = slurm.sync()
    assert done.returncode == 1, done
    here.start_service()
    done = slurm.sync()
    assert done.returncode == 0, done
    assert set(done.stdout.splitlines()) == {
        f"slurm-{ended} is removed",
        f"slurm-{job} is registered",
    }
    assert list(here.registered()) == [f"slurm-{job}"]
    assert slurm.sync().stdout == ""
    slurm.kill("slurmctld")
    done = slurm.sync()
    assert done.returncode == 1, done
    assert "check that slurmctld runs" in done.stderr
    assert list(here.registered()) == [f"slurm-{job}"]
    slurm.start_controller()
    until(lambda: job in slurm.running(), "slurmctld forgot the job")
    slurm.command("scancel", str(job))
    until(lambda: not here.registered(), "scancel leaves the job")


def a_dead_node(here: Place) -> None:
    """A job whose node dies starts again, and has its new hosts.

    Slurm 22.05 kills the epilog of such a job, so that sync has to remove it in between.
    """
    slurm = here.slurm
    job = slurm.submit("sleep 300", "--nodes=2", "--requeue", "--comment=echelon:job2.yaml")
    until(lambda: f"slurm-{job}" in here.registered(), "the job is not registered")
    before = here.registered()[f"slurm-{job}"]
    slurm.kill(before[0])
    until(lambda: slurm.facts(job)["JobState"] == "PENDING", "the death is not seen")
    assert slurm.sync().returncode == 0
    assert not here.registered()
    until(lambda: here.registered(), "the job is not registered again")
    after = here.registered()[f"slurm-{job}"]
    assert after == slurm.running()[job]
    assert before[0] not in after
    slurm.command("scancel", str(job))
    until(lambda: not here.registered(), "scancel leaves the job")


def a_strict_site(here: Place) -> None:
    """A job waits in the queue until it can be registered."""
    slurm = here.slurm
    settings = yaml.safe_load(slurm.config.read_text())
    slurm.config.write_text(yaml.safe_dump({**settings, "strict": True}))
    here.kill_service()
    job = slurm.submit("echo ran", "--nodes=2", "--comment=echelon:job2.yaml")
    until(lambda: "AdminComment" in slurm.facts(job), "the prolog says nothing")
    slurm.wait_state(job, "PENDING")
    assert slurm.output(job) == ""
    here.start_service()
    # Slurm would try again after two minutes.
    slurm.command("scontrol", "update", f"JobId={job}", "StartTime=now")
    facts = slurm.wait_state(job, "COMPLETED")
    assert slurm.output(job).endswith("ran\n")
    assert facts["AdminComment"] == f"Echelon knows the job as slurm-{job}"
    until(lambda: not here.registered(), "a job is left over")


def main() -> int:
    with place(sandbox.scratch(), 4, wait="2 s") as here:
        two = yaml.safe_dump(ring("any", ["a", "b"]))
        (here.slurm.folder / "job2.yaml").write_text(two)
        for step in (
            nothing_yet,
            a_job_file,
            a_model,
            an_array,
            other_jobs,
            files_of_others,
            a_service_that_is_down,
            a_dead_node,
            a_strict_site,
        ):
            print(step.__name__, flush=True)
            try:
                step(here)
            except BaseException:
                for path in (here.slurm.log, here.slurm.folder / "slurmctld.log"):
                    if path.exists():
                        print(f"--- {path.name}", *path.read_text().splitlines()[-30:], sep="\n")
                raise
    return 0


if __name__ == "__main__":
    sys.exit(main() if sandbox.inside() else sandbox.run_inside([sys.executable, "-m", MODULE]))
