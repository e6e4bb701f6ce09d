"""Every malformed file gives one line: the file, the key, the reason and, in brackets, what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.documents import DocumentError, parse_document, read_document
from echelon.fabric.load import load_fabric
from echelon.jobs import load_job
from echelon.jobs.spec import JobSpec
from echelon.scenarios.scenario import load_scenario

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
policies: [fair, coflow, {policy: echelon, order: setf, reference: iteration}]
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


UNITS = "'s' is not a unit of size (use B, kB, MB, GB, KiB, MiB, GiB)"

BROKEN = [
    # file, what is replaced, by what, path of the key, reason
    ("pipeline.yaml", "2.5 MB", "2.5 s", "pipeline.activation", UNITS),
    ("pipeline.yaml", "[1 MB, 2 MB]", "[1 MB, 2 s]", "pipeline.gradient[1]", UNITS),
    ("pipeline.yaml", "forward:", "froward:", "pipeline.froward", "unknown key (did you mean 'forward'?)"),
    ("pipeline.yaml", "  forward: 1 s\n", "", "pipeline.forward", "is missing (give the forward compute time"),
    ("pipeline.yaml", "forward: 1 s", "forward: 1", "pipeline.forward", "1 has no unit (write for example 10 ms"),
    ("pipeline.yaml", "forward: 1 s", "forward: -1 s", "pipeline.forward", "'-1 s' is negative"),
    ("pipeline.yaml", "[1 s, 2 s, 3 s]", "[1 s, 2 s]", "pipeline.backward", "has 2 values but 3 workers make 3 stages"),
    ("pipeline.yaml", "[1 MB, 2 MB]", "[1 MB]", "pipeline.gradient", "has 1 values but 3 workers make 2 stage bound"),
    ("pipeline.yaml", "[1 MB, 2 MB]", "[]", "pipeline.gradient", "has 0 values but 3 workers"),
    ("pipeline.yaml", "  backward: [1 s, 2 s, 3 s]\n", "", "pipeline.gradient", "is given without 'backward'"),
    ("pipeline.yaml", "2.5 MB", "0 B", "pipeline.activation", "is zero (give more than 0)"),
    ("pipeline.yaml", "batches: 3", "batches: 3.5", "pipeline.micro_batches", "3.5 is not a whole number"),
    ("pipeline.yaml", "batches: 3", "batches: 0", "pipeline.micro_batches", "0 is too small (give 1 or more)"),
    ("pipeline.yaml", "batches: 3", "batches: 10000000", "pipeline.micro_batches", "too large (give 1000 or less)"),
    ("pipeline.yaml", "batches: 3", "batches: true", "pipeline.micro_batches", "true is not a whole number"),
    ("pipeline.yaml", "[h1, h2, h3]", "[h1]", "workers", "has 1 items (give at least 2)"),
    ("pipeline.yaml", "[h1, h2, h3]", "[h1, h2, h1]", "workers[2]", "'h1' is a worker already"),
    ("pipeline.yaml", "[h1, h2, h3]", "[h1, 2, h3]", "workers[1]", "2 is not text (YAML reads it as a number: quote"),
    ("pipeline.yaml", "[h1, h2, h3]", "h1", "workers", "'h1' is not a list"),
    ("pipeline.yaml", "job: p", "job: no", "job", "false is not text (YAML reads it as a truth value: quote it)"),
    ("pipeline.yaml", "job: p", "job: a/b", "job", "'a/b' is not a name"),
    ("pipeline.yaml", "job: p", "x: &x [*x]", "x", "unknown key (known: job, parallelism"),
    ("pipeline.yaml", "weight: 1", "weight: .nan", "weight", "nan is not a number"),
    ("pipeline.yaml", "weight: 1", "weight: 1.0e+300", "weight", "is not a number between -10^9 and 10^9"),
    ("pipeline.yaml", "weight: 1", "weight: 0", "weight", "0 is not positive"),
    ("pipeline.yaml", "start: 0 s", "start: 1e30 s", "start", "too large (a duration is at most 10000 h)"),
    ("pipeline.yaml", "start: 0 s", "start: 0 s\nstart: 1 s", "line 5, column 1", "duplicate key 'start' (keep one"),
    ("pipeline.yaml", "start: 0 s", "start: [", "line 6, column 9", "while parsing a flow"),
    ("pipeline.yaml", "start: 0 s", "start: *a", "line 4, column 8", "undefined alias (correct the YAML)"),
    ("pipeline.yaml", "start: 0 s", "start: !!python/none x", "line 4, column 8", "could not determine a constructor"),
    ("pipeline.yaml", "start: 0 s", "---", "line 4, column 1", "expected a single document"),
    ("pipeline.yaml", "start: 0 s", "1: 0 s", "line 4, column 1", "key '1' is not text (quote it)"),
    ("pipeline.yaml", "start: 0 s", "start: 2020-99-99", "", "holds a value that YAML cannot read"),
    ("pipeline.yaml", "start: 0 s", "start: " + "9" * 5000, "", "holds a value that YAML cannot read"),
    ("pipeline.yaml", "start: 0 s", "start: \x07", "character 58", "'\\x07' does not belong in a text (remove it)"),
    ("pipeline.yaml", "pipeline:\n", "pipeline: 3\nx:\n", "x", "unknown key (known: job,"),
    (
        "pipeline.yaml",
        "parallelism: pipeline",
        "parallelism: tensor",
        "parallelism",
        "(use 'data', 'parameter_server' or 'pipeline'",
    ),
    ("pipeline.yaml", "parallelism: pipeline", "parallelism: data", "pipeline", "does not go with 'parallelism: data'"),
    ("data.yaml", "data: {compute: 500 ms, gradient: 5 MB}", "", "data", "is missing (add the section"),
    ("data.yaml", "{compute: 500 ms, gradient: 5 MB}", "500 ms", "data", "'500 ms' is not a mapping"),
    ("data.yaml", "gradient: 5 MB", "gradient: 1 B", "data.gradient", "less than a byte for each of 2 workers"),
    ("data.yaml", "500 ms", "500 msec", "data.compute", "'msec' is not a unit of duration (use s, ms,"),
    ("data.yaml", "by: bytes", "by: dscp", "recognition.by", "'dscp' is not allowed (use 'shim' or 'bytes')"),
    ("data.yaml", "by: bytes", "by: shim", "recognition.protocol", "does not go with 'by: shim'"),
    ("data.yaml", "by: bytes, protocol: udp, ", "", "recognition.source_port", "does not go with 'by: shim'"),
    ("data.yaml", "protocol: udp", "protocol: sctp", "recognition.protocol", "(use 'tcp' or 'udp')"),
    ("data.yaml", "source_port: 5001, ", "", "recognition.source_port", "is missing (switches need it"),
    ("data.yaml", ", idle_gap: 50 ms", "", "recognition.idle_gap", "is missing (switches need it"),
    ("data.yaml", "5001", "0", "recognition.source_port", "0 is too small (give 1 or more)"),
    ("data.yaml", "5002", "65536", "recognition.destination_port", "65536 is too large (give 65535 or less)"),
    ("data.yaml", "5002", "http", "recognition.destination_port", "'http' is not a whole number"),
    ("data.yaml", "5002", "61200", "recognition.destination_port", "61200 is the port of senders that write the shim"),
    ("data.yaml", "50 ms", "0 s", "recognition.idle_gap", "0 s' is zero"),
    ("data.yaml", "50 ms", "0.1 us", "recognition.idle_gap", "is not between 1 us and 71 min"),
    ("data.yaml", "50 ms", "2 h", "recognition.idle_gap", "is not between 1 us and 71 min"),
    ("data.yaml", "5 MB", "5 GB", "recognition.by", "carries 5000000000 B in an iteration"),
    ("data.yaml", "idle_gap", "gap", "recognition.gap", "unknown key"),
    ("data.yaml", "{by: bytes, ", "[by, bytes]\nx: {", "x", "unknown key"),
    ("fabric.yaml", "[h1, s1]", "[h1, s9]", "links[0].between[1]", "'s9' is neither a host nor a switch"),
    ("fabric.yaml", "[s1, s2]", "[s1, h1]", "links[2].between[1]", "host 'h1' has a link already, links[0]"),
    ("fabric.yaml", "[s1, s2]", "[s1, s1]", "links[2].between", "links 's1' to itself"),
    ("fabric.yaml", "[s1, s2]", "[s1]", "links[2].between", "has 1 items (give at least 2)"),
    ("fabric.yaml", "[s1, s2]", "[s1, s2, h1]", "links[2].between", "has 3 items (give at most 2)"),
    (
        "fabric.yaml",
        "10 Mbit/s}",
        "1 Mbit/s}\n  - {between: [s2, s1], rate: 1 Mbit/s}",
        "links[3].between",
        "again, as lin",
    ),
    ("fabric.yaml", "  - {between: [s1, s2], rate: 10 Mbit/s}\n", "", "hosts.h3", "cannot be reached from 'h1' (add a"),
    ("fabric.yaml", "  - {between: [s2, h3], rate: 1 Gbit/s}\n", "", "hosts.h3", "has no link"),
    ("fabric.yaml", "s2: }", "s2: , s3: }", "switches.s3", "cannot be reached from 'h1'"),
    ("fabric.yaml", "s2: }", "h1: }", "switches.h1", "'h1' is a host as well"),
    ("fabric.yaml", "[h1, s1], rate", "[h1, h2], rate", "links[0].between", "links two hosts, 'h1' and 'h2'"),
    ("fabric.yaml", "rate: 10 Mbit/s", "rate: 0 Mbit/s", "links[2].rate", "is zero"),
    ("fabric.yaml", "rate: 10 Mbit/s", "delay: 1 s", "links[2].rate", "is missing (give the capacity"),
    ("fabric.yaml", "rate: 10 Mbit/s", "rate: 10 Mbit/s, ports: {s1: 9}", "links[2].ports.s1", "taken by links[1]"),
    ("fabric.yaml", "{s1: 9}", "{s2: 9}", "links[1].ports.s2", "'s2' is not an end of this link (use h2 or s1)"),
    ("fabric.yaml", "{s1: 9}", "{h2: 9}", "links[1].ports.h2", "'h2' is a host"),
    ("fabric.yaml", "{s1: 9}", "{s1: 511}", "links[1].ports.s1", "511 is too large (give 509 or less)"),
    ("fabric.yaml", "10.0.7.7", "10.0.7", "hosts.h2.ipv4", "'10.0.7' is not an IPv4 address"),
    ("fabric.yaml", "10.0.7.7", "224.0.0.1", "hosts.h2.ipv4", "cannot be a host's address"),
    ("fabric.yaml", "10.0.7.7", "10.0.0.1", "hosts.h2.ipv4", "10.0.0.1 is that of 'h1' as well"),
    ("fabric.yaml", "02:00:00:00:07:07", "01:00:00:00:07:07", "hosts.h2.mac", "cannot be a host's address"),
    ("fabric.yaml", "02:00:00:00:07:07", "2:0", "hosts.h2.mac", "'2:0' is not a MAC address"),
    ("fabric.yaml", "02:00:00:00:07:07", "02:00:00:00:00:01", "hosts.h2.mac", "is that of 'h1' as well"),
    ("fabric.yaml", "device_id: 7", "device_id: 2", "switches.s2.device_id", "2 is that of 's1' as well"),
    ("fabric.yaml", "{s1: {device_id: 7}, s2: }", "[s1, s2, s1]", "switches[2]", "'s1' is listed already"),
    ("fabric.yaml", "{s1: {device_id: 7}, s2: }", "[s1, [s2]]", "switches[1]", "['s2'] is not a name"),
    ("fabric.yaml", "h3: }", "h 3: }", "hosts.h 3", "'h 3' is not a name"),
    (
        "scenario.yaml",
        "workers: [h1, h2]",
        "workers: [h1, h9]",
        "jobs[1].workers[1]",
        "'h9' is not a host of fabric 'f'",
    ),
    (
        "scenario.yaml",
        "{job: d, ",
        "{job: d, recognition: {by: bytes, protocol: udp, source_port: 1, destination_port: 2, idle_gap: 1 s}, ",
        "jobs[1].recognition.protocol",
        "a scenario's send over TCP what has no shim (write 'tcp')",
    ),
    ("scenario.yaml", "name: web", "name: bg", "traffic[0].name", "the name 'bg' is taken"),
    ("scenario.yaml", "name: iperf", "name: web", "traffic[1].name", "the name 'web' is taken"),
    ("scenario.yaml", "model: burst", "model: bursts", "traffic[0].model", "use 'consistent', 'burst' or 'long')"),
    ("scenario.yaml", "model: burst, ", "", "traffic[0]", "needs either 'model' or 'schedule'"),
    ("scenario.yaml", "{name: seen,", "{name: seen, model: long,", "traffic[2]", "needs either 'model' or 'schedule'"),
    ("scenario.yaml", "{name: seen,", "{name: seen, src: h1,", "traffic[2].src", "does not go with a schedule"),
    ("scenario.yaml", "load: 5 Mbit/s, ", "", "traffic[0].load", "is missing (model 'burst' needs it)"),
    ("scenario.yaml", "gaps: poisson", "parallel: 3", "traffic[0].parallel", "does not go with model 'burst'"),
    ("scenario.yaml", "parallel: 2", "gaps: poisson", "traffic[1].gaps", "does not go with model 'long'"),
    ("scenario.yaml", "[h2, h1]", "h1", "traffic[0]", "there is no pair of different hosts"),
    ("scenario.yaml", "[h2, h1]", "[h2, h8]", "traffic[0].dst", "'h8' is not a host of fabric 'f'"),
    ("scenario.yaml", "[h2, h1]", "[]", "traffic[0].dst", "[] is no host"),
    ("scenario.yaml", "sizes.txt", "gone.txt", "traffic[0].sizes", "there is no file 'gone.txt' next to it"),
    ("scenario.yaml", "sizes: sizes.txt", "sizes: 7", "traffic[0].sizes", "7 is no distribution of sizes (use "),
    ("scenario.yaml", "seen.csv", "gone.csv", "traffic[2].schedule", "there is no file 'gone.csv' next to it"),
    (
        "scenario.yaml",
        "schedule: seen.csv",
        "schedule: [1]",
        "traffic[2].schedule",
        "[1] is not the path of a s",
    ),
    ("scenario.yaml", "size_scale: 0.5", "size_scale: 0", "traffic[0].size_scale", "0 is not positive"),
    ("scenario.yaml", "load: 2 Mbit/s", "load: 2 bit/s", "traffic[1]", "less than a byte for each of 2 flows"),
    ("scenario.yaml", "compute: cpu", "compute: gpu", "compute", "use 'timed' or 'cpu')"),
    ("scenario.yaml", "queue: 200 kB", "queue: 200", "queue", "200 has no unit"),
    ("scenario.yaml", "queue: 200 kB", "queue: 1249 B", "queue", "holds no packet of 1250 B"),
    ("scenario.yaml", "load: 5 Mbit/s", "load: 9000 Gbit/s", "traffic[0]", "flows are too many at once"),
    ("scenario.yaml", "ecn_threshold: 20", "ecn_threshold: 0", "ecn_threshold", "0 is too small"),
    (
        "scenario.yaml",
        "window: 8",
        "receive_window: 1 kB",
        "transport.receive_window",
        "'1 kB' is no TCP window (use",
    ),
    ("scenario.yaml", "window: 8", "min_rto: 0 s", "transport.min_rto", "'0 s' is zero"),
    ("scenario.yaml", "{job: d,", "{job: p,", "jobs[1].job", "the name 'p' is that of jobs[0] as well"),
    ("scenario.yaml", "pipeline.yaml", "gone.yaml", "jobs[0]", "there is no file 'gone.yaml' next to it"),
    ("scenario.yaml", "fabric: fabric.yaml", "fabric: gone.yaml", "fabric", "there is no file 'gone.yaml' next to it"),
    ("scenario.yaml", "fabric: fabric.yaml", "fabric: 7", "fabric", "7 is not a mapping"),
    ("scenario.yaml", "fabric: fabric.yaml\n", "", "fabric", "is missing (give a fabric or the path of its file)"),
    ("scenario.yaml", "coflow", "coflwo", "policies[1]", "unknown policy 'coflwo' (did you mean 'coflow'?)"),
    ("scenario.yaml", "coflow", "fair", "policies[1]", "'fair' is listed already"),
    ("scenario.yaml", "coflow", "3", "policies[1]", "3 is not a policy"),
    ("scenario.yaml", "policy: echelon", "polcy: echelon", "policies[2].policy", "is missing"),
    (
        "scenario.yaml",
        "order: setf",
        "ordr: setf",
        "policies[2].ordr",
        "is not a parameter of policy 'echelon' (did you",
    ),
    ("scenario.yaml", "order: setf", "order: best", "policies[2].order", "(use 'normalised', 'deadline' or 'setf')"),
    ("scenario.yaml", "order: setf", "order: [setf]", "policies[2].order", "['setf'] is not a value"),
    (
        "scenario.yaml",
        "[fair, coflow, {policy: echelon, order: setf, reference: iteration}]",
        "[]",
        "policies",
        "has 0 items",
    ),
    ("scenario.yaml", "iterations: 3", "iterations: 0", "iterations", "0 is too small (give 1 or more)"),
    ("scenario.yaml", "until: exactly", "until: never", "until", "use 'all-done' or 'exactly')"),
    ("scenario.yaml", "seed: 1", "seed: -1", "seed", "-1 is too small"),
    ("scenario.yaml", "packet: 1250 B", "packet: 64 B", "transport.packet", "no packet's size (use 128 to 9000 B)"),
    ("scenario.yaml", "window: 8", "window: 8 packets", "transport.window", "'8 packets' is not a whole number"),
    ("scenario.yaml", "retransmit_after: 2 s", "retransmit_after: 0", "transport.retransmit_after", "0 is zero"),
    ("scenario.yaml", "latency: 10 ms", "latency: 10", "control_latency", "10 has no unit"),
    ("scenario.yaml", "profile_error: 0.2", "profile_error: -1", "profile_error", "is not between -1 and 10"),
    ("scenario.yaml", "profile_error: 0.2", "profile_error: 20 %", "profile_error", "'20 %' is not a number"),
    (
        "scenario.yaml",
        "{job: d, worker: h1",
        "{job: e, worker: h1",
        "delays[0].job",
        "'e' is not a job of this scenario",
    ),
    (
        "scenario.yaml",
        "{job: d, worker: h1",
        "{job: d, worker: h3",
        "delays[0].worker",
        "'h3' is not a worker of job 'd'",
    ),
    ("scenario.yaml", "h1, iteration: 2", "h1, iteration: 0", "delays[0].iteration", "0 is too small"),
    ("scenario.yaml", "dst: h3", "dst: s1", "background[0].dst", "'s1' is not a host of fabric 'f'"),
    ("scenario.yaml", "dst: h3", "dst: h1", "background[0].dst", "'h1' is the source as well"),
    ("scenario.yaml", "name: bg", "name: d", "background[0].name", "the name 'd' is taken"),
    ("scenario.yaml", "seed: 1", "sed: 1", "sed", "unknown key (did you mean 'seed'?)"),
    ("scenario.yaml", "description: all keys", "description: 7", "description", "7 is not text"),
]


@pytest.mark.parametrize(("file", "old", "new", "path", "reason"), BROKEN)
def test_malformed(folder: Path, file: str, old: str, new: str, path: str, reason: str) -> None:
    text = LOADERS[file][0]
    assert text.count(old) >= 1
    (folder / file).write_text(text.replace(old, new, 1))
    error = fault(folder, file)
    assert error.file == str(folder / file)
    assert error.path == path
    assert reason in error.reason


def test_the_line_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(PIPELINE.replace("2.5 MB", "2.5 s"))
    with pytest.raises(DocumentError) as caught:
        load_job("job.yaml")
    assert str(caught.value) == f"job.yaml: pipeline.activation: {UNITS}"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"# nothing but a comment\n", "is empty"),
        (b"- a\n- b\n", "is a list"),
        (b"text\n", "is a text"),
        (b"job: \xff\n", "byte 5 is not UTF-8"),
        (b"a: " + b"[" * 200_000 + b"]" * 200_000, "is nested more than 64 deep"),
        (b" " * (5 << 20), "is larger than 4 MiB"),
    ],
)
def test_no_mapping_at_all(folder: Path, content: bytes, reason: str) -> None:
    (folder / "data.yaml").write_bytes(content)
    assert reason in fault(folder, "data.yaml").reason


def test_no_file_and_no_regular_file(folder: Path) -> None:
    (folder / "data.yaml").unlink()
    assert "No such file or directory" in fault(folder, "data.yaml").reason
    (folder / "data.yaml").mkdir()
    assert "Is a directory" in fault(folder, "data.yaml").reason


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
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10) | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(
    st.sampled_from(["job", "parallelism", "workers", "start", "weight", "pipeline", "data"]),
    st.sampled_from(["", "micro_batches", "forward", "backward", "activation", "gradient"]),
    VALUES,
)
@settings(max_examples=200, deadline=None)
def test_whatever_stands_at_a_key_no_other_error_comes_out(key: str, inner: str, value: object) -> None:
    section: dict[str, object] = {"micro_batches": 2, "forward": "1 s", "activation": "1 MB"}
    data: dict[str, object] = {"job": "p", "parallelism": "pipeline", "workers": ["h1", "h2"], "pipeline": section}
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
