"""Echelon: a P4 control plane that schedules the flows of distributed training jobs.

As a library (docs/scenarios.md)::

    import echelon

    fabric = echelon.fabrics.leaf_spine(leaves=2, spines=2, rate_bps=10**9)
    job = echelon.job(
        job="a",
        parallelism="data",
        workers=["h1", "h5"],
        data={"compute": "1 s", "gradient": "50 MB"},
    )
    scenario = {"fabric": fabric, "jobs": [job], "iterations": 5}
    compared = echelon.simulate(scenario, policies=["fair", "echelon"])
    print(compared.jobs())

Attributes are imported when they are first used; those about runs come from `echelon_lab`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echelon.model.documents import DocumentError
    from echelon.model.errors import CodedError, RunError
    from echelon.model.fabric import builders as fabrics
    from echelon.model.fabric.load import FabricSpec, build_fabric
    from echelon.model.fabric.load import load_fabric_spec as load_fabric
    from echelon.model.fabric.model import Fabric
    from echelon.model.jobs import build_job
    from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
    from echelon.model.jobs.spec import JobSpec
    from echelon.model.jobs.spec import load_job_spec as load_job
    from echelon.model.jobs.spec import make_job_spec as job
    from echelon.planning.plan import PlanError
    from echelon.planning.policies import policy_names
    from echelon_lab.comparison import JobOutcome, PolicyComparison
    from echelon_lab.run import prepare as scenario
    from echelon_lab.run import simulate
    from echelon_lab.scenarios.results import PolicyRun
    from echelon_lab.scenarios.scenario import PolicyChoice, Scenario, load_scenario

_PLACES = {
    "PolicyComparison": "echelon_lab.comparison",
    "JobOutcome": "echelon_lab.comparison",
    "simulate": "echelon_lab.run",
    "scenario": "echelon_lab.run:prepare",
    "Scenario": "echelon_lab.scenarios.scenario",
    "PolicyChoice": "echelon_lab.scenarios.scenario",
    "load_scenario": "echelon_lab.scenarios.scenario",
    "PolicyRun": "echelon_lab.scenarios.results",
    "RunError": "echelon.model.errors",
    "job": "echelon.model.jobs.spec:make_job_spec",
    "JobSpec": "echelon.model.jobs.spec",
    "load_job": "echelon.model.jobs.spec:load_job_spec",
    "build_job": "echelon.model.jobs",
    "ComputeUnit": "echelon.model.jobs.graph",
    "EchelonFlow": "echelon.model.jobs.graph",
    "Flow": "echelon.model.jobs.graph",
    "Job": "echelon.model.jobs.graph",
    "fabrics": "echelon.model.fabric.builders:",
    "FabricSpec": "echelon.model.fabric.load",
    "load_fabric": "echelon.model.fabric.load:load_fabric_spec",
    "build_fabric": "echelon.model.fabric.load",
    "Fabric": "echelon.model.fabric.model",
    "policy_names": "echelon.planning.policies",
    "PlanError": "echelon.planning.plan",
    "DocumentError": "echelon.model.documents",
    "CodedError": "echelon.model.errors",
}
"""The module of each attribute, and its name there if it has another; ``MODULE:`` is the module
itself.
"""

__all__ = [
    "CodedError",
    "ComputeUnit",
    "DocumentError",
    "EchelonFlow",
    "Fabric",
    "FabricSpec",
    "Flow",
    "Job",
    "JobOutcome",
    "JobSpec",
    "PlanError",
    "PolicyChoice",
    "PolicyComparison",
    "PolicyRun",
    "RunError",
    "Scenario",
    "build_fabric",
    "build_job",
    "fabrics",
    "job",
    "load_fabric",
    "load_job",
    "load_scenario",
    "policy_names",
    "scenario",
    "simulate",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'echelon' has no attribute '{name}'")
    module, colon, inside = place.partition(":")
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        from echelon.model.extras import how_to_install

        raise ModuleNotFoundError(how_to_install(error) or str(error), name=error.name) from error
    if colon and not inside:
        value = found
    else:
        value = getattr(found, inside or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
