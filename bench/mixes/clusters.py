"""Clusters by name, and random ones: a fabric, and jobs that are placed on its hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import yaml

from bench.mixes.jobs import (
    DECODING,
    FSDP_8B,
    GPUS_OF_HOST,
    LLAMA_70B,
    LLAMA_405B,
    MIDDLE,
    MIXTRAL,
    SMALL,
    Document,
    JobKind,
    Layout,
)
from echelon.model.fabric import builders
from echelon.model.fabric.load import FabricSpec, fabric_text

POLICIES = ("fair", "fifo", "mfs", "crux", "srpt", "echelon")
ITERATIONS = 12
HOST_BPS = 400 * 10**9
SMALL_LEAF = 8
LARGE_LEAF = 16
MOST_HOSTS_OF_SMALL_LEAVES = 64
STARTS_MS = 2_000
"""Jobs begin within this time: they were not submitted in step."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A fabric whose hosts have eight GPUs each, and the kinds of its jobs."""

    fabric: FabricSpec
    kinds: Sequence[JobKind]

    def scenario(self, name: str, rng: Random) -> Document:
        """Return the scenario file: jobs on random hosts, which they share only if they have to."""
        free = dict.fromkeys(self.fabric.hosts, GPUS_OF_HOST)
        jobs: list[Document] = []
        for number, kind in enumerate(self.kinds, start=1):
            hosts = _place(kind, free, rng)
            job_name = f"{kind.model.replace('.', '_')}-{number}"
            job = kind.document(job_name, hosts)
            job["start"] = f"{rng.randrange(STARTS_MS)} ms"
            jobs.append(job)
        text = fabric_text(self.fabric, "")
        fabric = yaml.load(text, yaml.CSafeLoader)
        return {
            "scenario": name,
            "fabric": fabric,
            "iterations": ITERATIONS,
            "policies": list(POLICIES),
            "jobs": jobs,
        }


def _gpus_per_host(kind: JobKind) -> int:
    if isinstance(kind, Layout):
        return kind.gpus_per_host
    return GPUS_OF_HOST


def _place(
    kind: JobKind,
    free: dict[str, int],
    rng: Random,
) -> list[str]:
    """Return random hosts with enough free GPUs, in random order, and take these GPUs."""
    gpus = _gpus_per_host(kind)
    candidates = [host for host, count in free.items() if count >= gpus]
    hosts = rng.sample(candidates, kind.hosts)
    for host in hosts:
        free[host] -= gpus
    return hosts


def _draw_kinds(
    choices: Sequence[Layout],
    jobs: int,
    hosts: int,
    rng: Random,
) -> list[JobKind]:
    """Return so many kinds of jobs that together fit on the hosts, different ones first.

    Those that are still to come are reckoned with what the smallest of the choices takes.
    """
    least = min(_gpus(layout) for layout in choices)
    free = hosts * GPUS_OF_HOST
    kinds: list[JobKind] = []
    for left in reversed(range(jobs)):
        most = free - left * least
        fitting = [layout for layout in choices if _gpus(layout) <= most]
        new = [layout for layout in fitting if layout not in kinds]
        layout = rng.choice(new or fitting)
        free -= _gpus(layout)
        kinds.append(layout)
    return kinds


def _gpus(layout: Layout) -> int:
    return layout.hosts * layout.gpus_per_host


def _leaf_spine(hosts: int, oversubscription: int) -> FabricSpec:
    """Return leaves of 8 or 16 hosts, whose uplinks have about the rate of a host's link."""
    if hosts <= MOST_HOSTS_OF_SMALL_LEAVES:
        per_leaf = SMALL_LEAF
    else:
        per_leaf = LARGE_LEAF
    spines = per_leaf // oversubscription
    return builders.leaf_spine(hosts // per_leaf, spines, per_leaf, oversubscription, HOST_BPS)


def _rails(hosts: int, oversubscription: int) -> FabricSpec:
    """Return servers of 8 NICs, each of which is a host at the switch of its rail."""
    servers = hosts // 8
    spines = servers // oversubscription
    return builders.rail_optimised(servers, 8, spines, oversubscription, HOST_BPS)


def _clos(hosts: int, oversubscription: int) -> FabricSpec:
    """Return pods of two leaves with 8 hosts each, and so many spines as uplinks need."""
    spines = 8 // oversubscription
    return builders.clos(hosts // 16, 2, spines, 8, oversubscription, HOST_BPS)


def _five(_rng: Random) -> Cluster:
    kinds = [LLAMA_405B, MIXTRAL, FSDP_8B, LLAMA_70B, DECODING]
    return Cluster(_leaf_spine(64, 2), kinds)


def _five_plain(_rng: Random) -> Cluster:
    """Return the like of `_five` with a training of experts in place of the decoding ones."""
    experts = Layout("mixtral-8x22b", 16, "tp=8,ep=8,dp=16", zero=1, micro_batches=2)
    kinds = [LLAMA_405B, MIXTRAL, FSDP_8B, LLAMA_70B, experts]
    return Cluster(_leaf_spine(64, 2), kinds)


def _dense(rng: Random) -> Cluster:
    choices = [layout for layout in MIDDLE if layout.hosts == 8]
    kinds = [*choices, *rng.sample(choices, 8 - len(choices))]
    return Cluster(_leaf_spine(64, 2), kinds)


def _rail64(rng: Random) -> Cluster:
    return Cluster(_rails(64, 2), _draw_kinds(MIDDLE, 8, 64, rng))


def _ls31(rng: Random) -> Cluster:
    return Cluster(_leaf_spine(64, 3), _draw_kinds(MIDDLE, 8, 64, rng))


def _clos64(rng: Random) -> Cluster:
    return Cluster(_clos(64, 2), _draw_kinds(MIDDLE, 10, 64, rng))


def _decode2(_rng: Random) -> Cluster:
    return Cluster(_leaf_spine(32, 2), [DECODING, DECODING])


def _big256(rng: Random) -> Cluster:
    choices = [*MIDDLE, LLAMA_405B]
    return Cluster(_leaf_spine(256, 2), _draw_kinds(choices, 20, 256, rng))


def _big1024_200(rng: Random) -> Cluster:
    return Cluster(_leaf_spine(1024, 2), _draw_kinds(MIDDLE, 200, 1024, rng))


def _big1024_1000(rng: Random) -> Cluster:
    kinds = _draw_kinds(SMALL, 1000, 1024, rng)
    # Jobs that take more of a host find their places first, so that all fit.
    kinds.sort(key=_gpus_per_host, reverse=True)
    return Cluster(_leaf_spine(1024, 2), kinds)


CLUSTERS: dict[str, Callable[[Random], Cluster]] = {
    "five": _five,
    "five_plain": _five_plain,
    "dense": _dense,
    "rail64": _rail64,
    "ls31": _ls31,
    "clos64": _clos64,
    "decode2": _decode2,
    "big256": _big256,
    "big1024_200": _big1024_200,
    "big1024_1000": _big1024_1000,
}


def _random_cluster(rng: Random) -> Cluster:
    """Return six to ten jobs on 32, 48 or 64 hosts.

    The fabric is a leaf-spine with 1 to 3 times oversubscribed leaves, rails, or a Clos of three
    stages.
    """
    hosts = rng.choice((32, 48, 64))
    shape = rng.choice(("leaf-spine", "leaf-spine", "rails", "clos"))
    if shape == "leaf-spine":
        fabric = _leaf_spine(hosts, rng.randint(1, 3))
    elif shape == "rails":
        fabric = _rails(hosts, rng.randint(1, 2))
    else:
        fabric = _clos(hosts, rng.randint(1, 3))
    return Cluster(fabric, _draw_kinds(MIDDLE, rng.randint(6, 10), hosts, rng))


def named_scenario(name: str) -> Document:
    """Return the scenario file of a named cluster. Its draws depend on the name alone."""
    rng = Random(name)
    return CLUSTERS[name](rng).scenario(name, rng)


def random_scenario(seed: int) -> Document:
    """Return the scenario file of the random cluster of a seed."""
    rng = Random(seed)
    return _random_cluster(rng).scenario(f"mix{seed:02d}", rng)


def find_scenario(name: str) -> Document:
    """Return the scenario file of a name: a cluster's, or ``mix07`` for the random one of seed 7.

    Raises `KeyError`.
    """
    if name in CLUSTERS:
        return named_scenario(name)
    seed = name.removeprefix("mix")
    if seed == name or not seed.isdecimal():
        raise KeyError(name)
    return random_scenario(int(seed))


def scenario_text(document: Document) -> str:
    """Return the text of a scenario file."""
    text: str = yaml.dump(
        document,
        Dumper=yaml.CSafeDumper,
        sort_keys=False,
        default_flow_style=None,
        width=120,
    )
    return text
