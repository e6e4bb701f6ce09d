"""Paths by address: all packets for a host that pass a switch go on by one way."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.builders import fat_tree, leaf_spine
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import equal_cost_paths
from echelon.model.jobs.graph import Job
from echelon.planning.policies.classes.policy import Classes
from echelon.planning.policies.crux.routes import LeastCongested
from tests.drawing import examples
from tests.echelon.policies.test_choice import mix, pairs

FABRICS = [build_fabric(leaf_spine(3, 4, hosts_per_leaf=4)), build_fabric(fat_tree(4))]


def jobs_on(hosts: list[str], seed: int) -> list[Job]:
    """Return jobs of a mix on random hosts, which they may share."""
    random = Random(seed)
    jobs = []
    for job in mix(seed, 6):
        ends = dict(zip(job.workers, random.sample(hosts, len(job.workers)), strict=True))
        flows = [replace(f, src=ends[f.src], dst=ends[f.dst]) for f in job.flows]
        computes = [replace(unit, worker=ends[unit.worker]) for unit in job.computes]
        jobs.append(replace(job, flows=tuple(flows), computes=tuple(computes)))
    return jobs


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(FABRICS))
def test_a_switch_has_one_way_to_each_host(seed: int, fabric: Fabric) -> None:
    jobs = jobs_on([*fabric.hosts], seed)
    by_address = LeastCongested(by_address=True).route(fabric, jobs)
    hops: dict[tuple[str, str], set[str]] = {}
    for routes in by_address.values():
        for (src, dst), path in routes.items():
            assert path in equal_cost_paths(fabric, src, dst)
            for switch, hop in pairwise(path[1:]):
                hops.setdefault((switch, dst), set()).add(hop)
    assert all(len(ways) == 1 for ways in hops.values())


@pytest.mark.parametrize(("paths", "spines"), [("given", 1), ("address", 2)])
def test_two_jobs_that_meet_on_a_spine_are_parted_by_other_ways(paths: str, spines: int) -> None:
    """Every second host is behind the same spine by its number."""
    fabric = replace(pairs(3, spines=2), paths="address")
    first, _, last = mix(5, 3)
    policy = Classes(Classes.Parameters.model_validate({"paths": paths, "draws": 0}))
    plan = policy.best_plan([first, last], fabric)
    used = {flow.path[2] for flow in plan.flows if flow.path[0].startswith("a")}
    assert len(used) == spines
