"""A malformed file gives one line: the file, the key, the reason and, in brackets, what to do.

The cases check the code and the key of an error. `WORDING` alone pins the text, once for each code.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError, parse_document, read_document
from echelon.model.fabric.load import load_fabric
from echelon.model.jobs import load_job
from echelon.model.jobs.spec import JobSpec
from echelon_lab.scenarios.scenario import load_scenario
from tests.drawing import examples
from tests.faults import mentions
from tests.shared import refused

PIPELINE = """\
job: p
parallelism: pipeline
workers: [h1, h2, h3]
start: 0 s
weight: 1
pipeline:
  micro_batches: 3
  forward: 1 s
  backward: [1 s, 2 s, 3 s]
  activation: 2.5 MB
  gradient: [1 MB, 2 MB]
"""
DATA = """\
job: d
parallelism: data
workers: [h1, h2]
data: {compute: 500 ms, gradient: 5 MB}
recognition: {by: bytes, protocol: udp, source_port: 5001, destination_port: 5002, idle_gap: 50 ms}
"""
UDP = "by: bytes, protocol: udp, source_port: 5001, destination_port: 5002, idle_gap: 50 ms"
ROCE = "by: bytes, protocol: roce, queue_pair: 17, mtu: 1024 B, idle_gap: 50 ms"
FABRIC = """\
fabric: f
hosts: {h1: {}, h2: {ipv4: 10.0.7.7, mac: "02:00:00:00:07:07"}, h3: }
switches: {s1: {device_id: 7}, s2: }
links:
  - {between: [h1, s1], rate: 1 Gbit/s, delay: 1 us}
  - {between: [h2, s1], rate: 1 Gbit/s, ports: {s1: 9}}
  - {between: [s1, s2], rate: 10 Mbit/s}
  - {between: [s2, h3], rate: 1 Gbit/s}
"""
SCENARIO = """\
scenario: s
description: all keys
fabric: fabric.yaml
jobs:
  - pipeline.yaml
  - {job: d, parallelism: data, workers: [h1, h2], data: {compute: 500 ms, gradient: 5 MB}}
policies: [fair, varys, {policy: echelon, order: setf, shifts: none}]
iterations: 3
until: exactly
seed: 1
transport: {packet: 1250 B, window: 8, retransmit_after: 2 s, host_rate: 100 Mbit/s}
control_latency: 10 ms
stop_controller_after_iteration: 2
profile_error: 0.2
delays: [{job: d, worker: h1, iteration: 2, delay: 500 ms}]
background: [{name: bg, src: h1, dst: h3, rate: 1 Mbit/s, packet: 1000 B}]
traffic:
  - {name: web, model: burst, src: h1, dst: [h2, h1], load: 5 Mbit/s, sizes: sizes.txt, size_scale: 0.5, gaps: poisson}
  - {name: iperf, model: long, src: h2, dst: h3, load: 2 Mbit/s, parallel: 2, ecn: true}
  - {name: seen, schedule: seen.csv}
compute: cpu
queue: 200 kB
ecn_threshold: 20
"""
SIZES = "100 0.5\n1000 1\n"
SEEN = "start_us,src,dst,bytes\n5,h1,h2,100\n"

Load = Callable[[Path], object]
LOADERS: dict[str, tuple[str, Load]] = {
    "pipeline.yaml": (PIPELINE, load_job),
    "data.yaml": (DATA, load_job),
    "fabric.yaml": (FABRIC, load_fabric),
    "scenario.yaml": (SCENARIO, lambda path: load_scenario(path)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, (text, _) in LOADERS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "sizes.txt").write_text(SIZES)
    (tmp_path / "seen.csv").write_text(SEEN)
    return tmp_path


def fault(folder: Path, file: str) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        LOADERS[file][1](folder / file)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{caught.value.file}: ")
    assert line.endswith(")"), f"does not say what to do: {line}"
    return caught.value


@pytest.mark.parametrize("file", LOADERS)
def test_the_files_are_good_before_they_are_broken(folder: Path, file: str) -> None:
    LOADERS[file][1](folder / file)


BROKEN = [
    # file, what is replaced, by what, path of the key, code
    ("pipeline.yaml", "2.5 MB", "2.5 s", "pipeline.activation", "unknown-unit"),
    ("pipeline.yaml", "[1 MB, 2 MB]", "[1 MB, 2 s]", "pipeline.gradient[1]", "unknown-unit"),
    ("pipeline.yaml", "forward:", "froward:", "pipeline.froward", "unknown-key"),
    ("pipeline.yaml", "  forward: 1 s\n", "", "pipeline.forward", "missing-key"),
    ("pipeline.yaml", "forward: 1 s", "forward: 1", "pipeline.forward", "missing-unit"),
    ("pipeline.yaml", "forward: 1 s", "forward: -1 s", "pipeline.forward", "too-small"),
    ("pipeline.yaml", "[1 s, 2 s, 3 s]", "[1 s, 2 s]", "pipeline.backward", "wrong-length"),
    ("pipeline.yaml", "[1 MB, 2 MB]", "[1 MB]", "pipeline.gradient", "wrong-length"),
    ("pipeline.yaml", "[1 MB, 2 MB]", "[]", "pipeline.gradient", "wrong-length"),
    ("pipeline.yaml", "  backward: [1 s, 2 s, 3 s]\n", "", "pipeline.gradient", "conflicting-key"),
    ("pipeline.yaml", "2.5 MB", "0 B", "pipeline.activation", "too-small"),
    ("pipeline.yaml", "batches: 3", "batches: 3.5", "pipeline.micro_batches", "not-a-number"),
    ("pipeline.yaml", "batches: 3", "batches: 0", "pipeline.micro_batches", "too-small"),
    ("pipeline.yaml", "batches: 3", "batches: 10000000", "pipeline.micro_batches", "too-large"),
    ("pipeline.yaml", "batches: 3", "batches: true", "pipeline.micro_batches", "not-a-number"),
    ("pipeline.yaml", "[h1, h2, h3]", "[h1]", "workers", "wrong-length"),
    ("pipeline.yaml", "[h1, h2, h3]", "[h1, h2, h1]", "workers[2]", "duplicate"),
    ("pipeline.yaml", "[h1, h2, h3]", "[h1, 2, h3]", "workers[1]", "not-text"),
    ("pipeline.yaml", "[h1, h2, h3]", "h1", "workers", "not-a-list"),
    ("pipeline.yaml", "job: p", "job: no", "job", "not-text"),
    ("pipeline.yaml", "job: p", "job: a/b", "job", "not-a-name"),
    ("pipeline.yaml", "job: p", "x: &x [*x]", "x", "unknown-key"),
    ("pipeline.yaml", "weight: 1", "weight: .nan", "weight", "not-a-number"),
    ("pipeline.yaml", "weight: 1", "weight: 1.0e+300", "weight", "not-a-number"),
    ("pipeline.yaml", "weight: 1", "weight: 0", "weight", "too-small"),
    ("pipeline.yaml", "start: 0 s", "start: 1e30 s", "start", "too-large"),
    ("pipeline.yaml", "start: 0 s", "start: 0 s\nstart: 1 s", "line 5, column 1", "duplicate-key"),
    ("pipeline.yaml", "start: 0 s", "start: [", "line 6, column 9", "bad-syntax"),
    ("pipeline.yaml", "start: 0 s", "start: *a", "line 4, column 8", "bad-syntax"),
    ("pipeline.yaml", "start: 0 s", "start: !!python/none x", "line 4, column 8", "bad-syntax"),
    ("pipeline.yaml", "start: 0 s", "---", "line 4, column 1", "bad-syntax"),
    ("pipeline.yaml", "start: 0 s", "1: 0 s", "line 4, column 1", "not-text"),
    ("pipeline.yaml", "start: 0 s", "start: 2020-99-99", "", "bad-syntax"),
    ("pipeline.yaml", "start: 0 s", "start: " + "9" * 5000, "", "bad-syntax"),
    ("pipeline.yaml", "start: 0 s", "start: \x07", "character 58", "bad-syntax"),
    ("pipeline.yaml", "pipeline:\n", "pipeline: 3\nx:\n", "x", "unknown-key"),
    (
        "pipeline.yaml",
        "parallelism: pipeline",
        "parallelism: sequence",
        "parallelism",
        "not-allowed",
    ),
    ("pipeline.yaml", "parallelism: pipeline", "parallelism: data", "pipeline", "conflicting-key"),
    ("data.yaml", "data: {compute: 500 ms, gradient: 5 MB}", "", "data", "missing-key"),
    ("data.yaml", "{compute: 500 ms, gradient: 5 MB}", "500 ms", "data", "not-a-mapping"),
    ("data.yaml", "gradient: 5 MB", "gradient: 1 B", "data.gradient", "too-small"),
    ("data.yaml", "500 ms", "500 msec", "data.compute", "unknown-unit"),
    ("data.yaml", "by: bytes", "by: dscp", "recognition.by", "not-allowed"),
    ("data.yaml", "by: bytes", "by: shim", "recognition.protocol", "conflicting-key"),
    ("data.yaml", "by: bytes, protocol: udp, ", "", "recognition.source_port", "conflicting-key"),
    ("data.yaml", "protocol: udp", "protocol: sctp", "recognition.protocol", "not-allowed"),
    ("data.yaml", "source_port: 5001, ", "", "recognition.source_port", "missing-key"),
    ("data.yaml", ", idle_gap: 50 ms", "", "recognition.idle_gap", "missing-key"),
    ("data.yaml", "5001", "0", "recognition.source_port", "too-small"),
    ("data.yaml", "5002", "65536", "recognition.destination_port", "too-large"),
    ("data.yaml", "5002", "http", "recognition.destination_port", "not-a-number"),
    ("data.yaml", "5002", "61200", "recognition.destination_port", "duplicate"),
    ("data.yaml", "50 ms", "0 s", "recognition.idle_gap", "too-small"),
    ("data.yaml", "50 ms", "0.1 us", "recognition.idle_gap", "out-of-range"),
    ("data.yaml", "50 ms", "2 h", "recognition.idle_gap", "out-of-range"),
    ("data.yaml", "5 MB", "5 GB", "recognition.by", "too-large"),
    ("data.yaml", "protocol: udp", "protocol: roce", "recognition.source_port", "conflicting-key"),
    (
        "data.yaml",
        "protocol: udp",
        "protocol: udp, mtu: 1024 B",
        "recognition.mtu",
        "conflicting-key",
    ),
    ("data.yaml", UDP, ROCE.replace("1024", "1500"), "recognition.mtu", "out-of-range"),
    ("data.yaml", UDP, ROCE.replace(", mtu: 1024 B", ""), "recognition.mtu", "missing-key"),
    (
        "data.yaml",
        UDP,
        ROCE.replace("queue_pair: 17, ", ""),
        "recognition.queue_pair",
        "missing-key",
    ),
    ("data.yaml", UDP, ROCE.replace("17", "1"), "recognition.queue_pair", "too-small"),
    ("data.yaml", UDP, ROCE.replace("17", "0x1000000"), "recognition.queue_pair", "too-large"),
    ("data.yaml", UDP, ROCE + ", pause: true", "recognition.pause", "conflicting-key"),
    ("data.yaml", UDP, ROCE.replace("bytes", "agent"), "recognition.queue_pair", "conflicting-key"),
    ("data.yaml", "idle_gap", "gap", "recognition.gap", "unknown-key"),
    ("data.yaml", "{by: bytes, ", "[by, bytes]\nx: {", "x", "unknown-key"),
    ("fabric.yaml", "[h1, s1]", "[h1, s9]", "links[0].between[1]", "unknown-node"),
    ("fabric.yaml", "fabric: f", "fabric: f\nroce_marks: [26, 26]", "roce_marks", "wrong-length"),
    (
        "fabric.yaml",
        "fabric: f",
        "fabric: f\nroce_marks: [0, 8, 16, 24, 32, 40, 48, 64]",
        "roce_marks[7]",
        "too-large",
    ),
    ("fabric.yaml", "[s1, s2]", "[s1, h1]", "links[2].between", "duplicate"),
    ("fabric.yaml", "[s1, s2]", "[s1, s1]", "links[2].between", "duplicate"),
    ("fabric.yaml", "[s1, s2]", "[s1]", "links[2].between", "wrong-length"),
    ("fabric.yaml", "[s1, s2]", "[s1, s2, h1]", "links[2].between", "wrong-length"),
    (
        "fabric.yaml",
        "10 Mbit/s}",
        "1 Mbit/s}\n  - {between: [s2, s1], rate: 1 Mbit/s}",
        "links[3].between",
        "duplicate",
    ),
    ("fabric.yaml", "  - {between: [s1, s2], rate: 10 Mbit/s}\n", "", "hosts.h3", "unconnected"),
    ("fabric.yaml", "  - {between: [s2, h3], rate: 1 Gbit/s}\n", "", "hosts.h3", "unconnected"),
    ("fabric.yaml", "s2: }", "s2: , s3: }", "switches.s3", "unconnected"),
    ("fabric.yaml", "s2: }", "h1: }", "switches.h1", "duplicate"),
    ("fabric.yaml", "[h1, s1], rate", "[h1, h2], rate", "links[0].between", "invalid-value"),
    ("fabric.yaml", "rate: 10 Mbit/s", "rate: 0 Mbit/s", "links[2].rate", "too-small"),
    ("fabric.yaml", "rate: 10 Mbit/s", "delay: 1 s", "links[2].rate", "missing-key"),
    (
        "fabric.yaml",
        "rate: 10 Mbit/s",
        "rate: 10 Mbit/s, ports: {s1: 9}",
        "links[2].ports.s1",
        "duplicate",
    ),
    ("fabric.yaml", "{s1: 9}", "{s2: 9}", "links[1].ports.s2", "unknown-node"),
    ("fabric.yaml", "{s1: 9}", "{h2: 9}", "links[1].ports.h2", "invalid-value"),
    ("fabric.yaml", "{s1: 9}", "{s1: 511}", "links[1].ports.s1", "too-large"),
    ("fabric.yaml", "10.0.7.7", "10.0.7", "hosts.h2.ipv4", "not-an-address"),
    ("fabric.yaml", "10.0.7.7", "224.0.0.1", "hosts.h2.ipv4", "not-an-address"),
    ("fabric.yaml", "10.0.7.7", "10.0.0.1", "hosts.h2.ipv4", "duplicate"),
    ("fabric.yaml", "02:00:00:00:07:07", "01:00:00:00:07:07", "hosts.h2.mac", "not-an-address"),
    ("fabric.yaml", "02:00:00:00:07:07", "2:0", "hosts.h2.mac", "not-an-address"),
    ("fabric.yaml", "02:00:00:00:07:07", "02:00:00:00:00:01", "hosts.h2.mac", "duplicate"),
    ("fabric.yaml", "device_id: 7", "device_id: 2", "switches.s2.device_id", "duplicate"),
    ("fabric.yaml", "{s1: {device_id: 7}, s2: }", "[s1, s2, s1]", "switches[2]", "duplicate"),
    ("fabric.yaml", "{s1: {device_id: 7}, s2: }", "[s1, [s2]]", "switches[1]", "not-a-name"),
    ("fabric.yaml", "h3: }", "h 3: }", "hosts.h 3", "not-a-name"),
    (
        "scenario.yaml",
        "workers: [h1, h2]",
        "workers: [h1, h9]",
        "jobs[1].workers[1]",
        "unknown-host",
    ),
    (
        "scenario.yaml",
        "{job: d, ",
        (
            "{job: d, recognition: {by: bytes, protocol: udp, source_port: 1, destination_port: 2,"
            " idle_gap: 1 s}, "
        ),
        "jobs[1].recognition.protocol",
        "conflicting-key",
    ),
    ("scenario.yaml", "name: web", "name: bg", "traffic[0].name", "duplicate"),
    ("scenario.yaml", "name: iperf", "name: web", "traffic[1].name", "duplicate"),
    ("scenario.yaml", "model: burst", "model: bursts", "traffic[0].model", "not-allowed"),
    ("scenario.yaml", "model: burst, ", "", "traffic[0]", "conflicting-key"),
    ("scenario.yaml", "{name: seen,", "{name: seen, model: long,", "traffic[2]", "conflicting-key"),
    ("scenario.yaml", "{name: seen,", "{name: seen, src: h1,", "traffic[2].src", "conflicting-key"),
    ("scenario.yaml", "load: 5 Mbit/s, ", "", "traffic[0].load", "missing-key"),
    ("scenario.yaml", "gaps: poisson", "parallel: 3", "traffic[0].parallel", "conflicting-key"),
    ("scenario.yaml", "parallel: 2", "gaps: poisson", "traffic[1].gaps", "conflicting-key"),
    ("scenario.yaml", "[h2, h1]", "h1", "traffic[0]", "invalid-value"),
    ("scenario.yaml", "[h2, h1]", "[h2, h8]", "traffic[0].dst", "unknown-host"),
    ("scenario.yaml", "[h2, h1]", "[]", "traffic[0].dst", "not-a-name"),
    ("scenario.yaml", "sizes.txt", "gone.txt", "traffic[0].sizes", "unreadable-file"),
    ("scenario.yaml", "sizes: sizes.txt", "sizes: 7", "traffic[0].sizes", "not-allowed"),
    ("scenario.yaml", "seen.csv", "gone.csv", "traffic[2].schedule", "unreadable-file"),
    (
        "scenario.yaml",
        "schedule: seen.csv",
        "schedule: [1]",
        "traffic[2].schedule",
        "invalid-value",
    ),
    ("scenario.yaml", "size_scale: 0.5", "size_scale: 0", "traffic[0].size_scale", "too-small"),
    ("scenario.yaml", "load: 2 Mbit/s", "load: 2 bit/s", "traffic[1]", "invalid-value"),
    ("scenario.yaml", "compute: cpu", "compute: gpu", "compute", "not-allowed"),
    ("scenario.yaml", "queue: 200 kB", "queue: 200", "queue", "missing-unit"),
    ("scenario.yaml", "queue: 200 kB", "queue: 1249 B", "queue", "too-small"),
    ("scenario.yaml", "load: 5 Mbit/s", "load: 9000 Gbit/s", "traffic[0]", "invalid-value"),
    ("scenario.yaml", "ecn_threshold: 20", "ecn_threshold: 0", "ecn_threshold", "too-small"),
    (
        "scenario.yaml",
        "window: 8",
        "receive_window: 1 kB",
        "transport.receive_window",
        "out-of-range",
    ),
    ("scenario.yaml", "window: 8", "min_rto: 0 s", "transport.min_rto", "too-small"),
    ("scenario.yaml", "{job: d,", "{job: p,", "jobs[1].job", "duplicate"),
    ("scenario.yaml", "pipeline.yaml", "gone.yaml", "jobs[0]", "unreadable-file"),
    ("scenario.yaml", "fabric: fabric.yaml", "fabric: gone.yaml", "fabric", "unreadable-file"),
    ("scenario.yaml", "fabric: fabric.yaml", "fabric: 7", "fabric", "not-a-mapping"),
    ("scenario.yaml", "fabric: fabric.yaml\n", "", "fabric", "missing-key"),
    ("scenario.yaml", "varys", "vayrs", "policies[1]", "unknown-policy"),
    ("scenario.yaml", "varys", "fair", "policies[1]", "duplicate"),
    ("scenario.yaml", "varys", "3", "policies[1]", "not-allowed"),
    ("scenario.yaml", "policy: echelon", "polcy: echelon", "policies[2].policy", "missing-key"),
    (
        "scenario.yaml",
        "order: setf",
        "ordr: setf",
        "policies[2].ordr",
        "unknown-parameter",
    ),
    ("scenario.yaml", "order: setf", "order: best", "policies[2].order", "not-allowed"),
    ("scenario.yaml", "order: setf", "order: [setf]", "policies[2].order", "invalid-value"),
    (
        "scenario.yaml",
        "[fair, varys, {policy: echelon, order: setf, shifts: none}]",
        "[]",
        "policies",
        "wrong-length",
    ),
    ("scenario.yaml", "iterations: 3", "iterations: 0", "iterations", "too-small"),
    ("scenario.yaml", "until: exactly", "until: never", "until", "not-allowed"),
    ("scenario.yaml", "seed: 1", "seed: -1", "seed", "too-small"),
    ("scenario.yaml", "packet: 1250 B", "packet: 64 B", "transport.packet", "out-of-range"),
    ("scenario.yaml", "window: 8", "window: 8 packets", "transport.window", "not-a-number"),
    (
        "scenario.yaml",
        "retransmit_after: 2 s",
        "retransmit_after: 0",
        "transport.retransmit_after",
        "too-small",
    ),
    ("scenario.yaml", "latency: 10 ms", "latency: 10", "control_latency", "missing-unit"),
    ("scenario.yaml", "profile_error: 0.2", "profile_error: -1", "profile_error", "out-of-range"),
    ("scenario.yaml", "profile_error: 0.2", "profile_error: 20 %", "profile_error", "not-a-number"),
    (
        "scenario.yaml",
        "{job: d, worker: h1",
        "{job: e, worker: h1",
        "delays[0].job",
        "unknown-job",
    ),
    (
        "scenario.yaml",
        "{job: d, worker: h1",
        "{job: d, worker: h3",
        "delays[0].worker",
        "unknown-host",
    ),
    ("scenario.yaml", "h1, iteration: 2", "h1, iteration: 0", "delays[0].iteration", "too-small"),
    ("scenario.yaml", "dst: h3", "dst: s1", "background[0].dst", "unknown-host"),
    ("scenario.yaml", "dst: h3", "dst: h1", "background[0].dst", "duplicate"),
    ("scenario.yaml", "name: bg", "name: d", "background[0].name", "duplicate"),
    ("scenario.yaml", "seed: 1", "sed: 1", "sed", "unknown-key"),
    ("scenario.yaml", "description: all keys", "description: 7", "description", "not-text"),
]


@pytest.mark.parametrize(("file", "old", "new", "path", "code"), BROKEN)
def test_malformed(folder: Path, file: str, old: str, new: str, path: str, code: str) -> None:
    text = LOADERS[file][0]
    assert text.count(old) >= 1
    (folder / file).write_text(text.replace(old, new, 1))
    error = fault(folder, file)
    assert (error.file, error.path, error.code) == (str(folder / file), path, code)


WORDING = {
    "unknown-unit": "'s' is not a unit of size (use B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)",
    "unknown-key": "unknown key (did you mean 'forward'?)",
    "missing-key": "is missing (give the forward compute time per micro-batch, e.g. 1 s)",
    "missing-unit": "1 has no unit (write for example 10 ms; use s, ms, us, ns, min, h)",
    "too-small": "'-1 s' is negative (a duration is 0 or more)",
    "wrong-length": "has 2 values but 3 workers make 3 stages (give one value or 3)",
    "conflicting-key": "is given without 'backward' (add 'backward' or remove it)",
    "not-a-number": "3.5 is not a whole number (write for example 3)",
    "too-large": "10000000 is too large (give 1000 or less)",
    "duplicate": "'h1' is a worker already (name each host once)",
    "not-text": "2 is not text (YAML reads it as a number: quote it)",
    "not-a-list": "'h1' is not a list (write it as [a, b])",
    "not-a-name": "'a/b' is not a name (up to 32 letters, digits, '-', '_'; a letter first)",
    "duplicate-key": "duplicate key 'start' (keep one of them)",
    "bad-syntax": (
        "while parsing a flow sequence, did not find expected ',' or ']' (correct the YAML)"
    ),
    "not-allowed": (
        "'sequence' is not allowed (use 'data', 'expert', 'fsdp', 'graph', 'mesh',"
        " 'parameter_server', 'pipedream', 'pipeline' or 'tensor')"
    ),
    "not-a-mapping": "'500 ms' is not a mapping (write it as {key: value})",
    "out-of-range": (
        "is not between 1 us and 71 min (give a time that the pause between iterations exceeds)"
    ),
    "unknown-node": "'s9' is neither a host nor a switch (known: h1, h2, h3, s1, s2)",
    "unconnected": "cannot be reached from 'h1' (add a link)",
    "invalid-value": "links two hosts, 'h1' and 'h2' (link each to a switch)",
    "not-an-address": "'10.0.7' is not an IPv4 address (write it as 10.0.0.1)",
    "unknown-host": "'h9' is not a host of fabric 'f' (known: h1, h2, h3)",
    "unreadable-file": "there is no file 'gone.txt' next to it (correct the path)",
    "unknown-policy": "unknown policy 'vayrs' (did you mean 'varys'?)",
    "unknown-parameter": "is not a parameter of policy 'echelon' (did you mean 'order'?)",
    "unknown-job": "'e' is not a job of this scenario (known: p, d)",
}
"""The reason of the first case of each code."""


def test_the_wording_of_each_code(folder: Path) -> None:
    first = {code: (file, old, new) for file, old, new, _, code in reversed(BROKEN)}
    reasons = {}
    for code, (file, old, new) in first.items():
        (folder / file).write_text(LOADERS[file][0].replace(old, new, 1))
        reasons[code] = fault(folder, file).reason
        (folder / file).write_text(LOADERS[file][0])
    assert reasons == WORDING


def test_the_line_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(PIPELINE.replace("2.5 MB", "2.5 s"))
    with refused("unknown-unit", "pipeline.activation", DocumentError) as caught:
        load_job("job.yaml")
    assert isinstance(caught.value, DocumentError)
    assert f"{caught.value}" == f"job.yaml: pipeline.activation: {caught.value.reason}"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty-document"),
        (b"# nothing but a comment\n", "empty-document"),
        (b"- a\n- b\n", "not-a-mapping"),
        (b"text\n", "not-a-mapping"),
        (b"job: \xff\n", "not-utf8"),
        (b"a: " + b"[" * 200_000 + b"]" * 200_000, "nested-too-deep"),
        (b" " * (5 << 20), "too-large"),
    ],
)
def test_a_file_that_is_not_a_mapping(folder: Path, content: bytes, code: str) -> None:
    (folder / "data.yaml").write_bytes(content)
    assert fault(folder, "data.yaml").code == code


def test_no_file_and_no_regular_file(folder: Path) -> None:
    (folder / "data.yaml").unlink()
    absent = fault(folder, "data.yaml")
    assert absent.code == "unreadable-file"
    assert mentions(absent.reason, os.strerror(errno.ENOENT))
    (folder / "data.yaml").mkdir()
    irregular = fault(folder, "data.yaml")
    assert irregular.code == "unreadable-file"
    assert mentions(irregular.reason, os.strerror(errno.EISDIR))


def test_a_fault_in_a_file_that_a_scenario_names_is_reported_there(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("forward: 1 s", "forward: 1 B"))
    error = fault(folder, "scenario.yaml")
    assert (error.file, error.path) == (str(folder / "pipeline.yaml"), "pipeline.forward")
    (folder / "fabric.yaml").write_text(FABRIC.replace("10 Mbit/s", "10"))
    error = fault(folder, "scenario.yaml")
    assert (error.file, error.path) == (str(folder / "fabric.yaml"), "links[2].rate")


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"\xef\xbb\xbf" + DATA.encode())
    assert read_document(tmp_path / "job.yaml")["job"] == "d"


def test_merge_keys_may_be_overridden(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("base: &base {a: 1, b: 2}\nx: {<<: *base, a: 3}\n")
    assert read_document(tmp_path / "a.yaml")["x"] == {"a": 3, "b": 2}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=10) | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(
    st.sampled_from(["job", "parallelism", "workers", "start", "weight", "pipeline", "data"]),
    st.sampled_from(["", "micro_batches", "forward", "backward", "activation", "gradient"]),
    VALUES,
)
@settings(max_examples=examples(200), deadline=None)
def test_whatever_stands_at_a_key_no_other_error_comes_out(
    key: str, inner: str, value: object
) -> None:
    section: dict[str, object] = {"micro_batches": 2, "forward": "1 s", "activation": "1 MB"}
    data: dict[str, object] = {
        "job": "p",
        "parallelism": "pipeline",
        "workers": ["h1", "h2"],
        "pipeline": section,
    }
    if inner:
        section[inner] = value
    else:
        data[key] = value
    message = "job.yaml: "
    try:
        parse_document(JobSpec, data, "job.yaml")
    except DocumentError as error:
        message = str(error)
    assert message.startswith("job.yaml: ")
    assert len(message.splitlines()) == 1
