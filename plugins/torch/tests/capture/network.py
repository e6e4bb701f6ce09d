"""Training jobs of real processes, each rank in a network namespace of its own, captured on links
of a given rate.

Run as root: ``python -m plugins.torch.tests.capture.network OUT fsdp,moe 50,100 3`` trains
examples/torch/fsdp.py and moe.py on 3 ranks at 50 and at 100 Mbit/s. It prints what the kernel has
counted, and the times that `fluid` predicts from the captured job files. The work is done by a
second process in a sandbox, in which the namespaces are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from echelon_lab.hosts import sandbox

ROOT = Path(__file__).parents[4]
COUNTED = Path(__file__).with_name("counted.py")
PORT = 29500
FIRST = ("setsid", "-w", "sh", "-c", 'echo -20 >/proc/self/autogroup; exec nice -n -20 "$@"', "sh")
"""The start of a rank's command, so that other work on the machine delays it little.

A session has a priority of its own.
"""
PAYLOAD_BYTES, FRAME_BYTES = 1448, 1514
"""The payload and the frame of a full TCP segment with time stamps."""
# A queue that TCP can fill without losses, and a burst that is little of a transfer.
LIMIT = "tc -n {namespace} qdisc add dev eth0 root tbf rate {rate_bps}bit burst 6kb limit 4mb"


@dataclass(frozen=True)
class Case:
    """A job on one rate of links."""

    name: str
    script: str
    """A file of examples/torch, with its arguments."""
    ranks: int = 2
    rate_bps: int | None = None
    """The rate at which each rank may send. None: no limit."""
    iterations: int = 10
    skip: int = 3


def capture(cases: Sequence[Case], out: Path) -> None:
    """Capture each job in a sandbox; OUT/NAME has its job file, its summary, and what each
    interface has sent.
    """
    plan = out / "cases.json"
    plan.write_text(json.dumps([asdict(case) for case in cases]))
    status = sandbox.run_inside(
        [sys.executable, "-m", "plugins.torch.tests.capture.network", "--inside", str(plan)]
    )
    if status:
        raise RuntimeError(f"the capture ended with status {status}")


def _inside(plan: Path) -> None:
    _shell("ip link add hub type bridge", "ip link set hub up")
    for number, case in enumerate(json.loads(plan.read_text())):
        _capture(number, Case(**case), plan.parent)


def _capture(number: int, case: Case, out: Path) -> None:
    directory = out / case.name
    directory.mkdir()
    ranks = []
    for rank in range(case.ranks):
        # Names and addresses of their own for each job, so that nothing of the one before is in the
        # way.
        namespace, port = f"c{number}r{rank}", f"c{number}p{rank}"
        _shell(
            f"ip netns add {namespace}",
            f"ip link add {port} type veth peer name eth0 netns {namespace}",
            f"ip link set {port} master hub up",
            f"ip -n {namespace} addr add 10.0.{number}.{rank + 1}/24 dev eth0",
            f"ip -n {namespace} link set lo up",
            f"ip -n {namespace} link set eth0 up",
            *([LIMIT.format(namespace=namespace, rate_bps=case.rate_bps)] if case.rate_bps else []),
        )
        ranks.append(_rank(case, rank, number, namespace, directory))
    failed = [rank.wait() for rank in ranks]
    # With DDP, threads of Gloo outlive `destroy_process_group`. One of them may free a tensor when
    # Python ends already, which aborts the process, observed or not (PyTorch 2.13; its issue
    # 190489).
    if not all((directory / f"sent-{rank}.json").exists() for rank in range(case.ranks)):
        said = "\n".join(
            (directory / f"rank-{rank}.log").read_text()[-2000:] for rank in range(case.ranks)
        )
        raise RuntimeError(f"{case.name}: the ranks ended with {failed}: {said}")
    for rank in range(case.ranks):
        shutil.copy(directory / f"host-{rank}" / f"rank-{rank}.json", directory)
    describe = ["--records", "-o", str(directory), "--job", str(directory / "job.yaml")]
    subprocess.run(
        [sys.executable, "-m", "echelon", "capture", *describe],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _rank(
    case: Case, rank: int, number: int, namespace: str, directory: Path
) -> subprocess.Popen[bytes]:
    script, *arguments = case.script.split()
    iterations = ["--iterations", str(case.iterations + case.skip + 1)]
    train = [
        str(COUNTED),
        str(directory),
        str(ROOT / "examples" / "torch" / script),
        *arguments,
        *iterations,
    ]
    options = [
        "--iterations",
        str(case.iterations),
        "--skip",
        str(case.skip),
        "-o",
        str(directory / f"host-{rank}"),
    ]
    # What torchrun sets. Its own processes on several hosts wait for each other at their end, for
    # minutes on a busy machine.
    environment = {
        "RANK": str(rank),
        "WORLD_SIZE": str(case.ranks),
        "MASTER_ADDR": f"10.0.{number}.1",
        "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
    }
    with (directory / f"rank-{rank}.log").open("wb") as log:
        return subprocess.Popen(
            [
                *("ip", "netns", "exec", namespace, *FIRST),
                *(
                    sys.executable,
                    "-m",
                    "echelon",
                    "capture",
                    *options,
                    "--",
                    sys.executable,
                    *train,
                ),
            ],
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _shell(*commands: str) -> None:
    for command in commands:
        subprocess.run(command.split(), check=True)


def sent_by_job(job: Path) -> dict[str, int]:
    """Return the bytes that each host sends in an iteration of a job file."""
    import echelon

    sent: dict[str, int] = {}
    for flow in echelon.build_job(echelon.load_job(job)).flows:
        sent[flow.src] = sent.get(flow.src, 0) + flow.size_bytes
    return sent


def sent_by_kernel(directory: Path, case: Case) -> dict[str, float]:
    """Return the bytes that the interface of each host has sent in an iteration that was recorded,
    in the mean.
    """
    out = {}
    for rank in range(case.ranks):
        counts = json.loads((directory / f"sent-{rank}.json").read_text())
        # Step `skip` is the last one of those that were not recorded.
        first, last = case.skip - 1, case.skip - 1 + case.iterations
        out[f"h{rank + 1}"] = (counts[last] - counts[first]) / case.iterations
    return out


def summary(directory: Path) -> dict[str, Any]:
    described: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    return described


def predicted_s(job: Path, rate_bps: int) -> float:
    """Return the iteration time that `fluid` gives the job alone on links of this rate."""
    import echelon

    spec = echelon.load_job(job)
    # The queueing discipline counts whole frames, and a job over TCP the payload in them.
    rate = f"{rate_bps * PAYLOAD_BYTES // FRAME_BYTES} bit/s"
    links = [{"between": [host, "s"], "rate": rate, "delay": "10 us"} for host in spec.workers]
    fabric = {"fabric": "one", "hosts": list(spec.workers), "switches": ["s"], "links": links}
    # TCP acknowledges every other segment.
    transport = {"packet": f"{PAYLOAD_BYTES} B", "window": 4}
    scenario = {
        "scenario": "alone",
        "fabric": fabric,
        "jobs": [spec],
        "iterations": 3,
        "transport": transport,
    }
    times = [
        row.time_s
        for row in echelon.simulate(scenario, policies=["fifo"]).iterations().itertuples()
    ]
    return sum(times) / len(times)


def measured_s(directory: Path) -> float:
    """Return the iteration time of the real job: the median of the slowest rank."""
    return max(float(each["iteration_s"]["median"]) for each in summary(directory)["by_rank"])


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--inside"]:
        _inside(Path(arguments[1]))
        return
    out = Path(arguments[0])
    out.mkdir()
    cases = [
        Case(f"{script}-{rate}", f"{script}.py", ranks=int(arguments[3]), rate_bps=rate * 10**6)
        for script in arguments[1].split(",")
        for rate in map(int, arguments[2].split(","))
    ]
    capture(cases, out)
    for case in cases:
        directory = out / case.name
        job, kernel = sent_by_job(directory / "job.yaml"), sent_by_kernel(directory, case)
        ratios = ", ".join(f"{host} {counted / job[host]:.4f}" for host, counted in kernel.items())
        measured, predicted = (
            measured_s(directory),
            predicted_s(directory / "job.yaml", case.rate_bps or 0),
        )
        print(f"{case.name:13} bytes by the kernel against the job's: {ratios}", end="; ")
        print(
            f"iteration {measured * 1e3:.1f} ms, predicted {predicted * 1e3:.1f} ms:"
            f" {predicted / measured - 1:+.1%}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
