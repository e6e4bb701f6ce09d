"""Run as a module: a scenario under policies on real hosts, in a sandbox; prints a JSON document as
its last line.

    python -m tests.echelon.lab.hosts.inside SCENARIO --backend namespaces --target softswitch
    [--restart 2] POLICY...

`results` is what `echelon run` would write. `--restart N` kills the controller when the first job
has finished iteration N, and starts it again an iteration later.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from echelon.model.errors import RunError
from echelon.planning.policies import make_policy
from echelon_lab.hosts import run as hosts_run
from echelon_lab.hosts import sandbox
from echelon_lab.hosts.serving import ServiceProcess
from echelon_lab.scenarios import results
from echelon_lab.scenarios.results import PolicyRun, network_document, network_text
from echelon_lab.scenarios.scenario import load_scenario


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--backend", default="namespaces")
    parser.add_argument("--target", default="softswitch")
    parser.add_argument("--restart", type=int)
    parser.add_argument("policies", nargs="+")
    arguments = parser.parse_args()
    scenario = load_scenario(arguments.scenario)
    services: list[ServiceProcess] = []

    def observe(stands: hosts_run.Standing) -> None:
        services.append(stands.service)
        print("standing", flush=True)

    def progress(job: str, iteration: int) -> None:
        print("iteration", job, iteration, flush=True)
        if arguments.restart is not None and job == scenario.jobs[0].name:
            if iteration == arguments.restart:
                services[-1].kill()
            elif iteration == arguments.restart + 1:
                services[-1].start()

    runs: dict[str, PolicyRun] = {}
    try:
        for choice in scenario.policies:
            if choice.label in arguments.policies:
                make = partial(make_policy, choice.name, **dict(choice.parameters))
                runs[choice.label] = hosts_run.run(
                    scenario,
                    choice.label,
                    make,
                    progress,
                    backend=arguments.backend,
                    target=arguments.target,
                    observe=observe,
                )
    except RunError as error:
        print(error, file=sys.stderr)
        return 1
    document = results.assemble(scenario, arguments.target, runs)
    retransmitted = {label: dict(run.retransmitted) for label, run in runs.items()}
    network = json.loads(network_text(network_document(scenario, runs)))
    print(json.dumps({"results": document, "retransmitted": retransmitted, "network": network}))
    return 0


if __name__ == "__main__":
    command = [sys.executable, "-m", "tests.echelon.lab.hosts.inside", *sys.argv[1:]]
    sys.exit(main() if sandbox.inside() else sandbox.run_inside(command))
