"""What the worker process of a host is to do: all that it needs to know, and no more."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import IO

from echelon.jobs.graph import Job


@dataclass(frozen=True, slots=True)
class ShimCarriage:
    """Flows go as UDP packets with the shim header."""

    number: int
    """Of the job."""
    flows: Mapping[str, int]
    """Number of each flow, by its name."""


@dataclass(frozen=True, slots=True)
class TcpCarriage:
    """Flows go as plain bytes over one TCP connection from each worker to each that it sends to."""

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
    """Packets that belong to no job."""

    dst: str
    rate_bps: int
    """Of frames, headers included."""
    packet_bytes: int
    """Of a frame."""
    source_port: int


@dataclass(frozen=True, slots=True)
class Assignment:
    host: str
    control: str
    """Path of the coordinator's Unix socket."""
    addresses: Mapping[str, str]
    """IPv4, by host."""
    jobs: tuple[WorkerJob, ...]
    rate_bps: int
    """Of frames; what the host does not exceed."""
    packet_bytes: int
    """Of a frame with the shim."""
    window_packets: int
    initial_window_packets: int
    retransmit_after_ns: int
    tcp_window_bytes: int
    """What a receiver over TCP lets be in flight."""
    ecn: bool
    """Whether connections over TCP ask for ECN."""
    computing: str
    """A name of `echelon.hosts.workers.computing.COMPUTING`."""
    sends: tuple[ConstantRate, ...] = ()
    discards: bool = False
    """Whether others send it such packets."""


def write_assignment(assignment: Assignment, to: IO[bytes]) -> None:
    """To a process of this program."""
    pickle.dump(assignment, to)


def read_assignment(source: IO[bytes]) -> Assignment:
    """What `write_assignment` wrote. Only from the process that started this one: a pickle can hold anything."""
    assignment = pickle.load(source)
    if not isinstance(assignment, Assignment):
        raise TypeError(f"an assignment is expected, not {type(assignment).__name__}")
    return assignment
