"""Refusals of the sections of a job file: their codes, and the keys at fault."""

from __future__ import annotations

import pytest

from echelon.controller.machine.jobs import check_hosts
from echelon.model.documents import DocumentError, parse_document
from echelon.model.errors import Code
from echelon.model.fabric.load import FabricSpec, build_fabric
from echelon.model.jobs.spec import JobSpec
from echelon_lab.scenarios.scenario import ScenarioSpec
from tests.faults import coded

SECTIONS: dict[str, dict[str, object]] = {
    "data": {"forward": "50 ms", "backward": "100 ms", "buckets": 8, "gradient": "5 MB"},
    "parameter_server": {"server": "ps", "compute": "500 ms", "gradient": "5 MB"},
    "pipeline": {
        "schedule": "1f1b",
        "micro_batches": 3,
        "forward": "1 s",
        "backward": "2 s",
        "activation": "1 MB",
    },
}


def document(parallelism: str, **changes: object) -> dict[str, object]:
    """Return a good file with `changes` in the section; None: the key is left out."""
    section = {
        key: value
        for key, value in {**SECTIONS[parallelism], **changes}.items()
        if value is not None
    }
    return {"job": "j", "parallelism": parallelism, "workers": ["h1", "h2"], parallelism: section}


def halving_among(*workers: str) -> dict[str, object]:
    return {**document("data", collective="halving-doubling"), "workers": [*workers]}


PORTS = {"source_port": 1, "destination_port": 2, "idle_gap": "1 ms"}
BY_BYTES = {"by": "bytes", **PORTS}
PAUSED_UDP = {**BY_BYTES, "protocol": "udp", "pause": True}

GOOD = {
    **{parallelism: document(parallelism) for parallelism in SECTIONS},
    "four workers that halve and double": halving_among("h1", "h2", "h3", "h4"),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_file(name: str) -> None:
    spec = parse_document(JobSpec, GOOD[name], "job")
    assert spec.parallelism == GOOD[name]["parallelism"]


REFUSED: dict[str, tuple[dict[str, object], Code, str, list[str]]] = {
    # name: file, code, path of the key, what the text names
    "compute beside passes": (
        document("data", compute="1 s"),
        "conflicting-key",
        "data.forward",
        ["'compute'"],
    ),
    "no forward": (document("data", forward=None), "missing-key", "data.forward", ["'backward'"]),
    "no buckets": (document("data", buckets=None), "missing-key", "data.buckets", ["'forward'"]),
    "no time": (
        document("data", forward=None, backward=None, buckets=None),
        "missing-key",
        "data.compute",
        ["forward, backward"],
    ),
    "no bucket": (document("data", buckets=0), "too-small", "data.buckets", ["0", "1"]),
    "1001 buckets": (
        document("data", buckets=1001),
        "too-large",
        "data.buckets",
        ["1001", "1000"],
    ),
    "half a bucket": (document("data", buckets=2.5), "not-a-number", "data.buckets", ["2.5"]),
    "less than a byte": (
        document("data", gradient="15 B"),
        "too-small",
        "data.gradient",
        ["15 B", "2 workers", "8 buckets"],
    ),
    "unknown collective": (
        document("data", collective="star"),
        "not-allowed",
        "data.collective",
        ["'star'", "'ring', 'halving-doubling', 't"],
    ),
    "three workers that halve and double": (
        halving_among("h1", "h2", "h3"),
        "not-allowed",
        "data.collective",
        ["'halving-doubling'", "3"],
    ),
    "no unit": (document("data", backward="5"), "missing-unit", "data.backward", ["'5'", "10 ms"]),
    "no gradient": (document("data", gradient=None), "missing-key", "data.gradient", ["5 MB"]),
    "a server that works": (
        document("parameter_server", server="h2"),
        "duplicate",
        "parameter_server.server",
        ["'h2'"],
    ),
    "no server": (
        document("parameter_server", server=None),
        "missing-key",
        "parameter_server.server",
        ["h0"],
    ),
    "a negative time": (
        document("parameter_server", aggregate="-1 s"),
        "too-small",
        "parameter_server.aggregate",
        ["'-1 s'"],
    ),
    "1f1b without backward": (
        document("pipeline", backward=None),
        "missing-key",
        "pipeline.backward",
        ["'1f1b'"],
    ),
    "unknown schedule": (
        document("pipeline", schedule="2f2b"),
        "not-allowed",
        "pipeline.schedule",
        ["'2f2b'", "'gpipe'", "'1f1b'"],
    ),
    "a section of another paradigm": (
        {**document("data"), "parameter_server": SECTIONS["parameter_server"]},
        "conflicting-key",
        "parameter_server",
        ["'parallelism: data'"],
    ),
    "too much on a connection to be told by bytes": (
        {**document("parameter_server", gradient="4 GiB"), "recognition": BY_BYTES},
        "too-large",
        "recognition.by",
        ["'bytes'", "4294967296 B"],
    ),
    "a pause over the shim": (
        {**document("data"), "recognition": {"pause": True}},
        "conflicting-key",
        "recognition.pause",
        ["TCP"],
    ),
    "a pause over UDP": (
        {**document("data"), "recognition": PAUSED_UDP},
        "conflicting-key",
        "recognition.pause",
        ["TCP"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    file, code, path, names = REFUSED[name]
    with pytest.raises(DocumentError, check=coded(code, *names, file="job", path=path)):
        parse_document(JobSpec, file, "job")


FABRIC: dict[str, object] = {
    "fabric": "f",
    "hosts": ["h1", "h2", "h3"],
    "switches": ["s"],
    "links": [{"between": [host, "s"], "rate": "1 Gbit/s"} for host in ("h1", "h2", "h3")],
}


def test_a_server_that_the_fabric_does_not_have_is_named_where_it_stands() -> None:
    fabric = parse_document(FabricSpec, FABRIC, "fabric")
    spec = parse_document(JobSpec, document("parameter_server", server="h4"), "job")
    absent = coded("invalid-value", "'h4'", "'f'", file="job", path="parameter_server.server")
    with pytest.raises(DocumentError, check=absent):
        check_hosts(spec, build_fabric(fabric))
    check_hosts(
        parse_document(JobSpec, document("parameter_server", server="h3"), "job"),
        build_fabric(fabric),
    )


def test_a_scenario_knows_the_server_as_a_host_and_as_somebody_who_may_be_late() -> None:
    def scenario(server: str, late: str) -> ScenarioSpec:
        data = {
            "scenario": "s",
            "fabric": FABRIC,
            "jobs": [document("parameter_server", server=server)],
            "policies": ["fair"],
            "delays": [{"job": "j", "worker": late, "iteration": 1, "delay": "1 s"}],
        }
        return parse_document(ScenarioSpec, data, "s")

    assert scenario("h3", "h3").delays[0].worker == "h3"
    server = "jobs[0].parameter_server.server"
    absent = coded("unknown-host", "'h4'", "'f'", file="s", path=server)
    with pytest.raises(DocumentError, check=absent):
        scenario("h4", "h1")
    idle = coded("unknown-host", "'h5'", "'j'", file="s", path="delays[0].worker")
    with pytest.raises(DocumentError, check=idle):
        scenario("h3", "h5")
