"""What a scenario's given windows cannot fill."""

from __future__ import annotations

from collections.abc import Iterator

from echelon.model.jobs.graph import Flow
from echelon.planning.paths import FlowPaths, is_tree, packets_held
from echelon.planning.plan import PlanError
from echelon.planning.windows import SPARE_PACKETS
from echelon.switches.lowering.identity import ShimIdentity
from echelon_lab.scenarios.scenario import Scenario


def narrow_windows(scenario: Scenario) -> tuple[str, ...]:
    """Return a sentence for each window that is given and too small for a path, if there is any.

    It names the path that is filled least. Which one a plan takes may be another.
    """
    return tuple(_narrow(scenario))


def _narrow(scenario: Scenario) -> Iterator[str]:
    transport = scenario.transport
    try:
        paths = FlowPaths().update(scenario.jobs, scenario.fabric)
    except PlanError:
        return  # whoever runs it is told
    identities = scenario.identities
    longest: dict[bool, tuple[int, str, Flow, tuple[str, ...]]] = {}
    held_by_path: dict[tuple[str, ...], int] = {}
    for job in scenario.jobs:
        for flow in job.flows:
            path = paths[job.name][flow.name]
            if len(path) < 2 or is_tree(path):
                continue
            if path not in held_by_path:
                held = packets_held(path, scenario.fabric, transport.packet_bytes)
                held_by_path[path] = held
            held = held_by_path[path]
            identity = identities[job.name, flow.name]
            is_tcp = not isinstance(identity, ShimIdentity) and identity.mtu is None
            if is_tcp not in longest or held > longest[is_tcp][0]:
                longest[is_tcp] = held, job.name, flow, path

    window = transport.window_packets
    if window is not None and False in longest:
        held, name, flow, path = longest[False]
        if window < held:
            yield (
                f"transport.window: {window} packets do not fill the path of job {name} from"
                f" {flow.src} to {flow.dst} over {len(path) - 1} links, which holds {held}: a flow"
                f" gets at most {_percent(window, held)} of its rate there (write window: auto, or"
                f" {held + SPARE_PACKETS})"
            )
    if True in longest:
        held, name, flow, path = longest[True]
        held_bytes = held * transport.packet_bytes
        if transport.receive_window_bytes < held_bytes:
            yield (
                f"transport.receive_window: {transport.receive_window_bytes} B do not fill the path"
                f" of job {name} from {flow.src} to {flow.dst} over {len(path) - 1} links, which"
                f" holds {held_bytes} B: TCP gets at most"
                f" {_percent(transport.receive_window_bytes, held_bytes)} of its rate there (give"
                " more)"
            )


def _percent(part: float, total: float) -> str:
    return f"{100 * part / total:.2g} %"
