"""Run as a module: jobs of the real Slurm that are cancelled and killed at random moments, while
nodes, slurmctld and the service die and come back.

    python -m plugins.site.tests.slurm.storm [--jobs N] [--nodes N] [--seed N] [--calm]

Now and then nothing else is killed and `echelon slurm sync` runs once: then the service has to have
exactly the jobs that Slurm runs, with their hosts, as `squeue` prints them. A last time when all
jobs have ended. It prints a table, and ends with status 1 if a job was left over or missing.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from echelon_lab.hosts import sandbox
from plugins.site.tests.slurm.slurm_cluster import FORGOTTEN, Place, place
from tests.echelon.service.lab import ring, until

MODULE = "plugins.site.tests.slurm.storm"
SYNC_PERIOD_S = 10.0
LARGEST = 3
"""The most nodes of a job."""
ENDED = ("COMPLETED", "CANCELLED", "FAILED", "NODE_FAIL", "TIMEOUT", FORGOTTEN)
RECENT = 40
"""The lines of what happened before a fault that are shown."""
ATTEMPTS = 5
"""How often a check is repeated in which Slurm's own jobs changed meanwhile."""


@dataclass
class Tally:
    """What was done, and what was seen."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Storm:
    """Random jobs, and random deaths."""

    def __init__(self, here: Place, rng: random.Random, jobs: int, *, calm: bool) -> None:
        self._here = here
        self._calm = calm
        self._rng = rng
        self._left = jobs
        self.tally = Tally()
        self.kinds: dict[int, str] = {}
        """What each job is, by its number."""
        self._quiet = threading.Lock()
        """Held by the thread that runs `sync`."""
        self._over = threading.Event()
        self._began_s = time.monotonic()
        self._trace: list[str] = []

    def _note(self, text: str) -> None:
        self._trace.append(f"{time.monotonic() - self._began_s:8.1f} s  {text}")

    def _report(self, fault: str) -> None:
        """Remember a fault, with what happened before it."""
        self.tally.wrong.append("\n".join([fault, *self._trace[-RECENT:]]))

    def run(self) -> None:
        """Let everything happen until all jobs have ended."""
        timer = threading.Thread(target=self._sync_often, daemon=True)
        timer.start()
        acts = [self._submit] * 8 + [self._cancel] * 2
        if not self._calm:
            acts += [self._kill_service, self._kill_controller, self._kill_both]
            acts += [self._kill_node] * 3
        while self._left:
            self._rng.choice(acts)()
            time.sleep(self._rng.uniform(0.0, 1.0))
            if self._rng.random() < 0.06:
                self._check()
        until_ended = time.monotonic() + 600.0
        while any(self._state(job) not in ENDED for job in self.kinds):
            assert time.monotonic() < until_ended, "jobs do not end"
            if self._calm or self._rng.random() < 0.6:
                self._check()
            else:
                self._kill_service()
            time.sleep(2.0)
        self._over.set()
        timer.join()
        self._check()
        left = self._here.registered()
        for name in left:
            self._report(f"left over at the end: {name}")
        for job in self.kinds:
            self.tally.counts[f"ended {self._state(job)}"] += 1
            self._read(job)

    # -- what users do -----------------------------------------------------------------------------

    def _submit(self) -> None:
        nodes = self._rng.randint(2, LARGEST)
        kind = self._rng.choices(["file", "model", "plain", "wrong"], [10, 4, 2, 1])[0]
        options = [f"--nodes={nodes}", self._rng.choice(["--requeue", "--no-requeue"])]
        if kind == "file":
            options.append(f"--comment=echelon:job{nodes}.yaml")
        elif kind == "model":
            options.append("--comment=echelon:llama-7b --parallel tp=8 --zero 1")
        elif kind == "wrong":
            options.append("--comment=echelon:absent.yaml")
        seconds = self._rng.uniform(1.0, 25.0)
        job = self._here.slurm.submit(f"env | grep ^ECHELON_JOB; sleep {seconds:.1f}", *options)
        if job in self.kinds:
            # The number of one that it forgot.
            self.tally.counts["numbers that Slurm gave twice"] += 1
        self.kinds[job] = kind
        self._left -= 1
        if self._left % 10 == 0:
            print(f"{self._left} jobs are left, {len(self.tally.wrong)} faults", file=sys.stderr)
        self._note(f"submitted {job}, {kind}, {options}")
        self.tally.counts[f"submitted {kind}"] += 1

    def _cancel(self) -> None:
        alive = [job for job in self.kinds if self._state(job) not in ENDED]
        if not alive:
            return
        job = self._rng.choice(alive)
        hard = self._rng.random() < 0.3
        self._note(f"cancel {job}")
        signal = ["--signal=KILL", "--full"] if hard else []
        self._here.slurm.command("scancel", *signal, str(job))
        self.tally.counts["killed by scancel -s KILL" if hard else "cancelled"] += 1

    # -- what dies ---------------------------------------------------------------------------------

    def _kill_service(self) -> None:
        self._note("service dies")
        self._here.kill_service()
        self.tally.counts["deaths of the service"] += 1
        self._work_on()
        self._here.start_service(wait=self._rng.random() < 0.5)

    def _kill_controller(self) -> None:
        self._note("slurmctld dies")
        self._here.slurm.kill("slurmctld")
        self.tally.counts["deaths of slurmctld"] += 1
        time.sleep(self._rng.uniform(0.0, 4.0))
        self._start_controller()

    def _kill_both(self) -> None:
        self._note("both die")
        self._here.kill_service()
        self._here.slurm.kill("slurmctld")
        self.tally.counts["deaths of both"] += 1
        time.sleep(self._rng.uniform(0.0, 4.0))
        self._start_controller()
        self._work_on()
        self._here.start_service()

    def _kill_node(self) -> None:
        node = self._rng.choice(self._here.slurm.nodes)
        self._note(f"node {node} dies")
        self._here.slurm.kill(node)
        self.tally.counts["deaths of a node"] += 1
        if self._rng.random() < 0.5:
            # Longer than slurmctld waits for it.
            self._work_on(15.0)
        self._here.slurm.start_node(node)

    def _start_controller(self) -> None:
        slurm = self._here.slurm
        slurm.start_controller()
        until(lambda: slurm.command("squeue").returncode == 0, "slurmctld does not come back")

    def _work_on(self, seconds: float | None = None) -> None:
        """Let users go on while something is dead."""
        give_up_at = time.monotonic() + (seconds or self._rng.uniform(0.0, 6.0))
        while time.monotonic() < give_up_at:
            if self._left and self._rng.random() < 0.3:
                self._submit()
            elif self._rng.random() < 0.1:
                self._cancel()
            time.sleep(0.5)

    # -- what is seen ------------------------------------------------------------------------------

    def _sync_often(self) -> None:
        while not self._over.wait(SYNC_PERIOD_S):
            with self._quiet:
                self._sync()

    def _sync(self) -> bool:
        done = self._here.slurm.sync()
        if done.returncode:
            self.tally.counts["runs of sync without an answer"] += 1
        if "Traceback" in done.stderr:
            self._report(done.stderr)
        self._note(f"sync: {done.stdout.split()} {done.stderr.strip()}")
        for line in done.stdout.splitlines():
            if line.endswith(" is removed"):
                self.tally.counts["repaired: removed by sync"] += 1
            elif line.endswith(" is registered"):
                self.tally.counts["repaired: registered by sync"] += 1
        self.tally.counts["runs of sync"] += 1
        return done.returncode == 0

    def _check(self) -> None:
        """Compare the service with Slurm after one sync, at a moment when no job comes or goes."""
        for _ in range(ATTEMPTS):
            with self._quiet:
                before = self._here.slurm.running()
                synced = self._sync()
                registered = self._here.registered()
                after = self._here.slurm.running()
            if synced and before == after:
                break
        else:
            self.tally.counts["checks given up, as jobs came and went"] += 1
            return
        wanted = {}
        for job, nodes in after.items():
            if self.kinds[job] in ("file", "model"):
                wanted[f"slurm-{job}"] = sorted(nodes)
        self.tally.counts["checks"] += 1
        self.tally.counts["jobs in checks"] += len(wanted)
        for name in registered.keys() - wanted.keys():
            self._report(f"left over: {name}, with {self._state(int(name[6:]))}")
        for name in wanted.keys() - registered.keys():
            self._report(f"missing: {name}, {self._here.slurm.facts(int(name[6:]))}")
        for name in wanted.keys() & registered.keys():
            if wanted[name] != registered[name]:
                hosts = f"{registered[name]} for {wanted[name]}"
                self._report(f"wrong hosts: {name}, {hosts}")

    def _state(self, job: int) -> str:
        return self._here.slurm.facts(job)["JobState"]

    def _read(self, job: int) -> None:
        """Count what the job's output says of its environment."""
        output = self._here.slurm.output(job)
        kind = self.kinds[job]
        if not output:
            self.tally.counts["never started a task"] += 1
        elif f"ECHELON_JOB=slurm-{job}\n" in output:
            self.tally.counts["tasks had classes"] += 1
        elif kind in ("file", "model"):
            self.tally.counts["tasks had none, the output says why"] += 1
            if "starts without classes" not in output:
                self.tally.counts["tasks had none, the output says nothing"] += 1
                print(f"job {job}, {self._state(job)}, says only: {output}", file=sys.stderr)
        if kind == "plain" and "Echelon" in output:
            self._report(f"a plain job got something: {output}")


def main() -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100, help="jobs (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=10, help="nodes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed (default: %(default)s)")
    parser.add_argument("--calm", action="store_true", help="nothing dies but jobs")
    options = parser.parse_args()
    if not sandbox.inside():
        return sandbox.run_inside([sys.executable, "-m", MODULE, *sys.argv[1:]])
    began_s = time.monotonic()
    with place(sandbox.scratch(), options.nodes, wait="2 s") as here:
        for nodes in range(2, LARGEST + 1):
            spec = ring("any", [f"w{number}" for number in range(nodes)])
            (here.slurm.folder / f"job{nodes}.yaml").write_text(yaml.safe_dump(spec))
        storm = Storm(here, random.Random(options.seed), options.jobs, calm=options.calm)
        storm.run()
        hooks = _hook_messages(here.slurm.log)
    tally = storm.tally
    for name, count in sorted((tally.counts + hooks).items()):
        print(f"{count:6d}  {name}")
    print(f"{len(tally.wrong):6d}  left over, missing, or with wrong hosts")
    print(f"seed {options.seed}, {options.nodes} nodes, {time.monotonic() - began_s:.0f} s")
    for line in tally.wrong:
        print(line)
    return 1 if tally.wrong else 0


def _hook_messages(log: Path) -> Counter[str]:
    """Return how often hooks reported something, by kind."""
    counts: Counter[str] = Counter()
    text = log.read_text() if log.exists() else ""
    counts["hooks without an answer of the service"] = len(re.findall("does not answer", text))
    counts["hooks that refused a job"] = len(re.findall("Echelon refuses the job", text))
    counts["hooks with a traceback"] = len(re.findall("Traceback", text))
    return counts


if __name__ == "__main__":
    sys.exit(main())
