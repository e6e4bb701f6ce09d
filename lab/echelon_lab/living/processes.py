"""The process of emulated hosts beside a laboratory, and the laboratory's command about sizes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from fractions import Fraction

from echelon.model.errors import RunError
from echelon.switches.processes import dies_with_this
from echelon_lab.hosts.backends.base import NamespaceFabric
from echelon_lab.hosts.laboratory import Laboratory, preference
from echelon_lab.living.sizes import FACTOR, smaller
from echelon_lab.living.wires import packet_ends, unix_ends
from echelon_lab.living.workers import Workplace
from echelon_lab.scenarios.scale import scaled
from echelon_lab.scenarios.scenario import Scenario

_SCALED = f'#!/bin/sh\nexec {sys.executable} -Pm echelon_lab.living.sizes "$@"\n'


def check(scenario: Scenario) -> None:
    """Raise `RunError` for what switches in real time cannot do."""
    settings = {
        "control_latency": scenario.control_latency_s,
        "ecn_threshold": scenario.ecn_threshold_packets,
    }
    for key, value in settings.items():
        if value:
            reason = f"{key}: cannot be set on real switches (remove the key)"
            raise RunError(reason, code="conflicting-key")


def at_scale(scenario: Scenario, factor: Fraction) -> Scenario:
    """Return the scenario with rates and sizes times `factor`, and all of its jobs emulated.

    Raise `DocumentError` for what cannot be scaled.
    """
    specs = {name: smaller(spec, factor) for name, spec in scenario.described.specs.items()}
    return replace(scaled(scenario, factor).scenario, specs=specs)


@contextmanager
def emulated_workers(
    started: Laboratory,
    scenario: Scenario,
    factor: Fraction,
    hosts: NamespaceFabric | None,
) -> Iterator[None]:
    """Have hosts do the service's jobs until the end, and install those of the scenario.

    `scenario` is scaled by `factor`, which programs of the laboratory find in the environment. What
    the process warns of is for the person at the laboratory. Raise `RunError`.
    """
    os.environ[FACTOR] = str(factor)
    command = started.directory / "scaled"
    command.write_text(_SCALED)
    command.chmod(0o755)
    with ExitStack() as stack:
        if hosts is None:
            ends = unix_ends(scenario.fabric, started.directory, stack)
        else:
            ends = packet_ends(scenario.fabric, hosts, stack)
        process = stack.enter_context(
            subprocess.Popen(
                [*dies_with_this(), *preference(), sys.executable, "-Pm", "echelon_lab.living"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                process_group=0,
                pass_fds=[end.descriptor for end in ends],
            )
        )
        stack.callback(process.kill)
        assert process.stdin is not None
        with process.stdin:
            pickle.dump(Workplace(started.service.url, scenario, ends), process.stdin)
        specs = scenario.specs.values()
        started.service.install([spec.with_profile_error(scenario.profile_error) for spec in specs])
        yield
