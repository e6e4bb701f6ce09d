"""Refusals of the sections of a job file, and their wording."""

from __future__ import annotations

import pytest
import yaml

from echelon.controller.machine.jobs import check_hosts
from echelon.model.documents import DocumentError, parse_document
from echelon.model.fabric.load import FabricSpec, build_fabric
from echelon.model.jobs.spec import JobSpec
from echelon_lab.scenarios.scenario import ScenarioSpec

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


@pytest.mark.parametrize("parallelism", SECTIONS)
def test_a_good_file(parallelism: str) -> None:
    assert parse_document(JobSpec, document(parallelism), "job").parallelism == parallelism


REFUSED = """
data {compute: 1 s} -> data.forward: does not go with 'compute' (give one, or forward, backward and buckets)
data {forward: null} -> data.forward: is missing ('backward' needs forward, backward and buckets)
data {buckets: null} -> data.buckets: is missing ('forward' needs forward, backward and buckets)
data {forward: null, backward: null, buckets: null} -> data.compute: is missing (give the compute time
data {buckets: 0} -> data.buckets: 0 is too small (give 1 or more)
data {buckets: 1001} -> data.buckets: 1001 is too large (give 1000 or less)
data {buckets: 2.5} -> data.buckets: 2.5 is not a whole number (
data {gradient: 15 B} -> data.gradient: of 15 B is less than a byte for each of 2 workers in each of 8 buckets (
data {collective: star} -> data.collective: 'star' is not allowed (use 'ring', 'halving-doubling', 't
data {backward: '5'} -> data.backward: '5' has no unit (write for example 10 ms
data {gradient: null} -> data.gradient: is missing (give the bytes to all-reduce, e.g. 5 MB)
parameter_server {server: h2} -> parameter_server.server: 'h2' is one of the workers (give the server a host of its own)
parameter_server {server: null} -> parameter_server.server: is missing (give the host that aggregates, e.g. h0)
parameter_server {aggregate: -1 s} -> parameter_server.aggregate: '-1 s' is negative (
pipeline {backward: null} -> pipeline.backward: is missing ('1f1b' alternates forward and backward: give its time)
pipeline {schedule: 2f2b} -> pipeline.schedule: '2f2b' is not allowed (use 'gpipe' or '1f1b')
"""
"""Refused job files: in each line a section, what is changed in it, and how the refusal begins."""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_is_refused(line: str) -> None:
    given, refusal = line.split(" -> ")
    parallelism, _, changes = given.partition(" ")
    with pytest.raises(DocumentError) as caught:
        parse_document(JobSpec, document(parallelism, **yaml.safe_load(changes)), "")
    assert str(caught.value).startswith(refusal)


def test_halving_and_doubling_needs_a_power_of_two() -> None:
    section = {"compute": "1 s", "gradient": "1 MB", "collective": "halving-doubling"}
    job = {"job": "j", "parallelism": "data", "workers": ["h1", "h2", "h3"], "data": section}
    with pytest.raises(
        DocumentError,
        match=r"^job: data.collective: 'halving-doubling' needs a power of two of worker",
    ):
        parse_document(JobSpec, job, "job")
    parse_document(JobSpec, job | {"workers": ["h1", "h2", "h3", "h4"]}, "job")


def test_a_section_of_another_paradigm_is_refused() -> None:
    both = {**document("data"), "parameter_server": SECTIONS["parameter_server"]}
    with pytest.raises(
        DocumentError, match=r"^job: parameter_server: does not go with 'parallelism: data'"
    ):
        parse_document(JobSpec, both, "job")


def test_a_connection_that_carries_too_much_to_be_told_by_bytes() -> None:
    by_bytes = {"by": "bytes", "source_port": 1, "destination_port": 2, "idle_gap": "1 ms"}
    document_ = {**document("parameter_server", gradient="4 GiB"), "recognition": by_bytes}
    with pytest.raises(
        DocumentError, match="cannot tell flows apart on a connection that carries 4294967296 B"
    ):
        parse_document(JobSpec, document_, "job")


@pytest.mark.parametrize(
    "recognition", [{}, {"by": "bytes", "protocol": "udp"}], ids=["shim", "udp"]
)
def test_only_tcp_can_be_paused(recognition: dict[str, str]) -> None:
    ports = {"source_port": 1, "destination_port": 2, "idle_gap": "1 ms"} if recognition else {}
    document_ = {**document("data"), "recognition": {**recognition, **ports, "pause": True}}
    with pytest.raises(
        DocumentError, match=r"^job: recognition.pause: is for connections over TCP"
    ):
        parse_document(JobSpec, document_, "job")


FABRIC: dict[str, object] = {
    "fabric": "f",
    "hosts": ["h1", "h2", "h3"],
    "switches": ["s"],
    "links": [{"between": [host, "s"], "rate": "1 Gbit/s"} for host in ("h1", "h2", "h3")],
}


def test_a_server_that_the_fabric_does_not_have_is_named_where_it_stands() -> None:
    fabric = parse_document(FabricSpec, FABRIC, "fabric")
    spec = parse_document(JobSpec, document("parameter_server", server="h4"), "job")
    with pytest.raises(
        DocumentError, match=r"^job: parameter_server.server: 'h4' is not a host of fabric 'f' \("
    ):
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
    with pytest.raises(
        DocumentError,
        match=r"^s: jobs\[0\].parameter_server.server: 'h4' is not a host of fabric 'f'",
    ):
        scenario("h4", "h1")
    with pytest.raises(
        DocumentError, match=r"^s: delays\[0\].worker: 'h5' is not a worker of job 'j'"
    ):
        scenario("h3", "h5")
