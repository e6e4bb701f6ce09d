"""The assignment of a host's worker process: everything that it needs to know, and nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import IO

from echelon.jobs.graph import Job


@dataclass(frozen=True, slots=True)
class ShimCarriage:
    """Flows as UDP packets with the shim header."""

    number: int
    """Number of the job."""
    flows: Mapping[str, int]
    """Number of each flow, by its name."""


@dataclass(frozen=True, slots=True)
class TcpCarriage:
    """Flows as plain bytes over one TCP connection from each worker to each worker that it sends to."""

    source_port: int
    destination_port: int


Carriage = ShimCarriage | TcpCarriage


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """A job that the host has a part in."""

    job: Job
    delays: Mapping[int, Fraction]
    """Seconds by which the host's first unit takes longer, by iteration (from 1)."""
    carriage: Carriage


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """Packets of constant rate that belong to no job."""

    dst: str
    rate_bps: int
    """Rate of frames, headers included."""
    packet_bytes: int
    """Length of a frame."""
    source_port: int


@dataclass(frozen=True, slots=True)
class Assignment:
    host: str
    control: str
    """Path of the coordinator's Unix socket."""
    addresses: Mapping[str, str]
    """IPv4 addresses by host."""
    jobs: tuple[WorkerJob, ...]
    rate_bps: int
    """Maximum rate of the host's frames."""
    packet_bytes: int
    """Length of a frame with the shim."""
    window_packets: int
    initial_window_packets: int
    retransmit_after_ns: int
    tcp_window_bytes: int
    """Maximum of the bytes in flight to a receiver over TCP."""
    ecn: bool
    """Whether connections over TCP ask for ECN."""
    computing: str
    """A name in `echelon.lab.hosts.workers.computing.COMPUTING`."""
    sends: tuple[ConstantRate, ...] = ()
    discards: bool = False
    """Whether other hosts send background packets to this one."""


def write_assignment(assignment: Assignment, to: IO[bytes]) -> None:
    """Write the assignment for a process of this program."""
    pickle.dump(assignment, to)


def read_assignment(source: IO[bytes]) -> Assignment:
    """Read what `write_assignment` wrote. Only for input from the process that started this one: a pickle can hold
    anything."""
    assignment = pickle.load(source)
    if not isinstance(assignment, Assignment):
        raise TypeError(f"an assignment is expected, not {type(assignment).__name__}")
    return assignment
