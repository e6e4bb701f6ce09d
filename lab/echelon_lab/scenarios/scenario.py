"""The scenario file: a fabric, jobs on it, the policies to compare, and what goes wrong meanwhile.

```yaml
scenario: fig2                    # name
description: one line
fabric: ../dumbbell.yaml          # a file, relative to this one; or its contents
jobs: [a.yaml, {job: b, ...}]     # likewise, one for each job; {file: a.yaml, job: c, workers: [h3, h4]}: the same
                                  # with these keys changed
policies: [fair, {policy: echelon, order: setf}]   # names; with parameters as a mapping
iterations: 20                    # of each job (default 1)
until: all-done                   # default: every job iterates until the slowest has done that many, so that the load
                                  # stays up; exactly: each job stops after that many
seed: 0                           # seed for all random choices (default 0)
transport:                        # of the emulated senders; the defaults are shown
  packet: 1250 B                  # on the wire
  window: auto                    # packets in flight per connection: as its path needs, or a number
  initial_window: 4               # packets that a flow begins with; the window opens by one for each acknowledged
                                  # (default: the window, or for a number what the path holds)
  retransmit_after: 2 s           # without acknowledgement
  host_rate: 1 Gbit/s             # what a sender does not exceed (default: the rate of its link)
  min_rto: 200 ms                 # for TCP: the least retransmission time-out (Linux's; RFC 6298 says 1 s)
  receive_window: 1 MB            # for TCP: what a receiver lets be in flight on a connection
  ecn: false                      # for the jobs' TCP: explicit congestion notification
  message: 128 KiB                # for RoCE: the messages in which a flow is sent, a multiple of 4 KiB
queue: 1 MiB                      # bytes that each queue of a switch's port holds (default: as the switch comes)
ecn_threshold: 64                 # packets in its queue from which a packet is marked (default: the target's own)
control_latency: 0 s              # from an event to the switches' new state, for policies that react to events
stop_controller_after_iteration: 5    # from then on the switches are on their own (default: never)
profile_error: 0.2                # the controller believes that computing takes 20 % longer than it does (default 0),
                                  # and so the distances between flows; -0.2: shorter. What is really computed stays
delays:                           # the first compute unit of a worker in an iteration (counted from 1) takes longer
  - {job: b, worker: h1, iteration: 2, delay: 500 ms}
background:                       # traffic that belongs to no job, at a constant rate
  - {name: bg, src: h1, dst: h9, rate: 1 Mbit/s, packet: 1250 B}
traffic:                          # flows that belong to no job, over TCP and with an end; drawn from `seed`
  - name: web
    model: consistent             # Algorithm 1; burst: Algorithm 2; long: long flows at a rate; or, instead of all
                                  # that follows but `ecn`, flows at given times:  schedule: FILE.csv
    src: h1                       # a host or a list; flows are between all pairs
    dst: [h8, h9]
    load: 20 Mbit/s               # payload, all pairs together
    sizes: web_search             # of flows: a distribution's name, or the path of its file
    size_scale: 0.01              # flows are so much shorter (default 1)
    gaps: exponential             # or poisson, as the thesis prints it
    parallel: 4                   # of long: how many flows (default 1)
    ecn: true                     # default false
compute: timed                    # on real hosts: compute units are waits (default); cpu: they keep a processor busy
commands:                         # jobs whose workers are programs on real hosts (docs/torch.md)
  b: torchrun train.py --width 512
```

Jobs that switches recognise by bytes (`recognition` in their files) send over TCP, or over RoCE if
that is their protocol. Virtual targets know no processors, so `compute` has no effect there, and a
job with a command is emulated as its file describes it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    Field,
    GetPydanticSchema,
    PlainValidator,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from echelon.model.documents import (
    Count,
    DocumentError,
    Duration,
    Name,
    PositiveDuration,
    Rate,
    Real,
    Section,
    Size,
    parse_document,
    problem,
    read_document,
    refuse,
    suggestion,
)
from echelon.model.fabric.load import FabricSpec, build_fabric, load_fabric_spec
from echelon.model.fabric.model import Fabric
from echelon.model.foreign import foreign_files_named
from echelon.model.jobs import build_jobs
from echelon.model.jobs.analysis import with_profile_error
from echelon.model.jobs.graph import FlowKey, Job
from echelon.model.jobs.spec import MTUS, JobSpec, RecognitionSpec, load_job_spec
from echelon.model.quantities import QuantityError, excerpt, size_bytes
from echelon.planning.execution import Until
from echelon.planning.policies import PolicyChoiceError, parse_parameters
from echelon.planning.windows import ACK_BYTES, Windows
from echelon.switches.lowering.identity import Identity, identities_of, number_shims
from echelon_lab.scenarios.traffic_spec import TrafficSource, TrafficSpec
from echelon_lab.traffic.schedule import read_schedule
from echelon_lab.traffic.sizes import builtin_sizes, load_sizes

Compute = Literal["timed", "cpu"]
Congestion = Literal["newreno", "mltcp"]
"""The congestion control of our TCP.

`mltcp` is NewReno with the additive increase of MLTCP (HotNets '24).
"""

MIN_PACKET_BYTES = 128
"""Shortest packet: room for Ethernet, IPv4, UDP and what the senders add."""
MAX_PACKET_BYTES = 9000
"""Longest packet: a jumbo frame."""


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy and its parameters, by name."""

    name: str
    parameters: tuple[tuple[str, str], ...] = ()
    """Parameters that the scenario gives, sorted by name."""

    @classmethod
    def parse(cls, text: str) -> PolicyChoice:
        """Return the policy that `text` names, as ``name`` or ``name(parameter=value, ...)``.

        Raises `PolicyChoiceError`.
        """
        choice = cls.read(text)
        parse_parameters(choice.name, dict(choice.parameters))
        return choice

    @classmethod
    def read(cls, text: str) -> PolicyChoice:
        """Return the same without checking whether there is such a policy."""
        name, bracket, inside = text.strip().removesuffix(")").partition("(")
        parameters = []
        if bracket:
            for setting in inside.split(","):
                key, _, value = setting.partition("=")
                parameters.append((key.strip(), value.strip()))
        return cls(name, tuple(sorted(parameters)))

    @property
    def label(self) -> str:
        """The text that stands for the choice in tables: ``echelon`` or ``echelon(order=setf)``."""
        if not self.parameters:
            return self.name
        parameters = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.name}({parameters})"


@dataclass(frozen=True, slots=True)
class Transport:
    """Settings of the emulated senders."""

    packet_bytes: int = 1250
    """Length on the wire, headers included. The last packet of a flow may be smaller."""
    window_packets: int | None = None
    """Packets in flight on one connection; None: as many as its path needs."""
    retransmit_after_s: Fraction = Fraction(2)
    host_rate_bps: int | None = None
    """Maximum rate of a sender; None for the rate of its link."""
    min_rto_s: Fraction = Fraction(1, 5)
    """TCP's minimum retransmission time-out.

    The default is Linux's, whatever the links' rates: it stays where links are scaled down and time
    is not. RFC 6298 says 1 s.
    """
    receive_window_bytes: int = 1_000_000
    """Maximum of TCP's bytes in flight on a connection."""
    initial_window_packets: int | None = None
    """Packets that a flow begins with, over the shim's transport.

    None: the window, or as many as its path in the plan holds where `window_packets` is given.
    Above the window it has no effect.
    """
    ecn: bool = False
    """Whether the jobs' TCP negotiates explicit congestion notification (RFC 3168)."""
    congestion: Congestion = "newreno"
    """The congestion control of the jobs' TCP: RFC 6582, or MLTCP (HotNets '24)."""
    message_bytes: int = 1 << 17
    """The bytes of the messages in which flows are sent over RoCE. The default is NCCL's."""

    @property
    def windows(self) -> Windows:
        """The windows of senders with the shim."""
        return Windows(
            self.packet_bytes,
            self.window_packets,
            self.initial_window_packets,
            ACK_BYTES,
            passes=True,
            streams=True,
        )


@dataclass(frozen=True, slots=True)
class Delay:
    """A straggler: the first compute unit of `worker` in an iteration takes `delay_s` longer.

    Iterations of `job` are counted from 1.
    """

    job: str
    worker: str
    iteration: int
    delay_s: Fraction


@dataclass(frozen=True, slots=True)
class Background:
    """Traffic of constant rate that no job claims."""

    name: str
    src: str
    dst: str
    rate_bps: int
    packet_bytes: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """One experiment, with everything in it that determines its result."""

    name: str
    description: str
    file: Path
    fabric: Fabric
    jobs: tuple[Job, ...]
    policies: tuple[PolicyChoice, ...]
    iterations: int
    until: Until
    """The condition that ends the run (`echelon.planning.execution`)."""
    seed: int
    transport: Transport
    control_latency_s: Fraction
    stop_controller_after_iteration: int | None
    profile_error: Fraction
    delays: tuple[Delay, ...]
    background: tuple[Background, ...]
    traffic: tuple[TrafficSource, ...] = ()
    """Flows over TCP that belong to no job."""
    compute: Compute = "timed"
    """The behaviour of a compute unit on real hosts. Other targets ignore it."""
    precise_from: int | None = None
    """The iterations from which a run ends as soon as its mean slowdown is precise.

    None: it ends after `iterations` only.
    """
    queue_bytes: int | None = None
    """Size of each queue of a switch's port; None for the switch's own."""
    ecn_threshold_packets: int | None = None
    """Packets in its own queue from which a packet is marked; None for the target's own number."""
    specs: Mapping[str, JobSpec] = field(default_factory=dict)
    """Specifications that jobs were built from, by job.

    A job without one is recognised by its shim.
    """
    together: Mapping[str, int] = field(default_factory=dict)
    """The number of iterations that are simulated as one, by job (`echelon_lab.scenarios.coarse`).

    Empty: the run has every flow.
    """
    misjudged: tuple[Job, ...] | None = None
    """The jobs as the controller sees them; None: as `profile_error` says."""
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The words of the command that each worker of a job runs, by job.

    The workers of other jobs are emulated.
    """

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of the scenario before it runs: windows that cannot fill a path."""
        from echelon_lab.scenarios.narrow import narrow_windows

        transport = self.transport
        sentences = narrow_windows(
            self.jobs,
            self.fabric,
            self.identities,
            packet_bytes=transport.packet_bytes,
            window_packets=transport.window_packets,
            receive_window_bytes=transport.receive_window_bytes,
        )
        return tuple(sentences)

    @property
    def described(self) -> Scenario:
        """Return the scenario with all jobs emulated.

        Those of programs are as their files describe them, by shim.
        """
        shim = {"recognition": RecognitionSpec()}
        described = {}
        for job, spec in self.specs.items():
            if spec.recognition.by == "agent":
                described[job] = spec.model_copy(update=shim)
        return replace(
            self,
            specs={**self.specs, **described},
            commands={},
        )

    @property
    def identities(self) -> dict[FlowKey, Identity]:
        """Return how switches recognise each flow, as the jobs' files say.

        Raise `LoweringError` for more than a shim can number.
        """
        identities: dict[FlowKey, Identity] = dict(number_shims(self.jobs))
        for number, job in enumerate(self.jobs, start=1):
            spec = self.specs.get(job.name)
            if spec is None:
                continue
            for flow, identity in identities_of(job, number, spec, self.fabric).items():
                identities[job.name, flow] = identity
        return identities

    @property
    def believed_jobs(self) -> tuple[Job, ...]:
        """The jobs as the controller sees them: with compute times wrong by `profile_error`."""
        if self.misjudged is not None:
            return self.misjudged
        return tuple(with_profile_error(job, self.profile_error) for job in self.jobs)


def _packet(value: object) -> int:
    size = size_bytes(value)
    if not MIN_PACKET_BYTES <= size <= MAX_PACKET_BYTES:
        raise QuantityError(
            f"{excerpt(value)} is not the size of a packet (use {MIN_PACKET_BYTES} to"
            f" {MAX_PACKET_BYTES} B)",
            code="out-of-range",
        )
    return size


Packet = Annotated[
    int, PlainValidator(_packet), WithJsonSchema({"type": "string", "examples": ["1250 B"]})
]
"""Length of a packet on the wire, in bytes."""


def _window(value: object) -> int:
    size = size_bytes(value)
    if not 2 * MAX_PACKET_BYTES <= size < 1 << 30:
        raise QuantityError(
            f"{excerpt(value)} is not a TCP window"
            f" (use {2 * MAX_PACKET_BYTES} B to less than 1 GiB)",
            code="out-of-range",
        )
    return size


AUTO = "auto"


def _packets(value: object, validate: ValidatorFunctionWrapHandler) -> int | None:
    if value == AUTO:
        return None
    packets: int = validate(value)
    return packets


_PACKETS_SCHEMA = {
    "anyOf": [{"const": AUTO}, {"type": "integer", "minimum": 1, "maximum": 65535}],
}
Packets = Annotated[
    int | None,
    GetPydanticSchema(
        lambda _source, handler: handler(Annotated[int, Field(strict=True, ge=1, le=65535)])
    ),
    WrapValidator(_packets),
    WithJsonSchema(_PACKETS_SCHEMA),
]
"""A number of packets; None: it depends on the path."""


def _message(value: object) -> int:
    size = size_bytes(value)
    if not size or size % MTUS[-1] or size >= 1 << 31:
        raise QuantityError(
            f"{excerpt(value)} is not the size of a message"
            f" (use a multiple of {MTUS[-1]} B below 2 GiB)",
            code="out-of-range",
        )
    return size


def _recognised(job: JobSpec) -> str:
    if job.recognition.protocol == "roce":
        return f"{job.recognition.by} over RoCE"
    return job.recognition.by


class TransportSpec(Section):
    packet: Packet = 1250
    """The length of a packet on the wire."""
    window: Packets = Field(default=AUTO, validate_default=True)
    """The most packets of a connection that are not yet acknowledged.

    `auto`: as many as its path needs. It is not for TCP.
    """
    initial_window: Annotated[int, Field(strict=True, ge=1, le=65535)] | None = None
    """The number of packets with which a flow begins; not for TCP.

    Default: the window; for a window that is given, as many as its path in the plan holds.
    """
    retransmit_after: PositiveDuration = Fraction(2)
    """The time without acknowledgement after which a packet is sent again; not for TCP."""
    host_rate: Rate | None = None
    """The rate at which a host sends at most. Default: that of its link."""
    min_rto: PositiveDuration = Fraction(1, 5)
    """The shortest retransmission time-out of TCP."""
    receive_window: Annotated[int, PlainValidator(_window), WithJsonSchema({"type": "string"})] = (
        1_000_000
    )
    """The receive window of TCP."""
    ecn: bool = False
    """TCP connections of jobs negotiate ECN."""
    congestion: Congestion = "newreno"
    """The congestion control of TCP."""
    message: Annotated[int, PlainValidator(_message), WithJsonSchema({"type": "string"})] = 1 << 17
    """The bytes of the messages in which flows are sent over RoCE."""


class DelaySpec(Section):
    job: Annotated[Name, Field(description="the name of the job")]
    worker: Annotated[Name, Field(description="the host that is late")]
    iteration: Annotated[Count, Field(description="the iteration, counted from 1")]
    delay: Annotated[Duration, Field(description="how much later, e.g. 500 ms")]


class BackgroundSpec(Section):
    name: Annotated[Name, Field(description="a name for it")]
    src: Annotated[Name, Field(description="the host it comes from")]
    dst: Annotated[Name, Field(description="the host it goes to")]
    rate: Annotated[Rate, Field(description="its rate, e.g. 1 Mbit/s")]
    packet: Packet = 1250
    """The length of a packet on the wire."""


def _policy(value: object) -> PolicyChoice:
    if isinstance(value, PolicyChoice):
        return value
    if isinstance(value, str):
        return PolicyChoice.read(value)
    if not isinstance(value, Mapping):
        raise problem(
            f"{excerpt(value)} is not a policy (write its name, or {{policy: name, parameter:"
            " value})",
            code="not-allowed",
        )
    if not isinstance(value.get("policy"), str):
        raise problem("is missing (give the name of the policy)", "policy", code="missing-key")
    parameters = []
    for key, setting in value.items():
        if key == "policy":
            continue
        if not isinstance(setting, str | int | float):
            raise problem(f"{excerpt(setting)} is not a value (write text or a number)", str(key))
        parameters.append((str(key), str(setting)))
    return PolicyChoice(value["policy"], tuple(sorted(parameters)))


def _command(value: object) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return value
    if not isinstance(value, str):
        raise problem(
            f"{excerpt(value)} is not a command (write it as in a terminal: torchrun train.py)"
        )
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise problem(
            f"{excerpt(value)} is not a command: {str(error).lower()} (close what is quoted)"
        ) from None
    if not words:
        raise problem("is empty (write a command, e.g. torchrun train.py)")
    return words


Command = Annotated[
    tuple[str, ...],
    PlainValidator(_command),
    WithJsonSchema({"type": "string", "examples": ["torchrun train.py"]}),
]
"""A command as a file gives it, in words: quoted as in a shell, which has no part in it."""

Policies = Annotated[
    tuple[Annotated[PolicyChoice, PlainValidator(_policy), WithJsonSchema({})], ...],
    Field(
        min_length=1,
        description="a list of policies, e.g. [fair, echelon]",
    ),
]
"""Policies as a file lists them: names, or mappings with parameters."""


class ScenarioSpec(Section):
    """A scenario as its file describes it. The files that it names have been read already."""

    scenario: Annotated[Name, Field(description="the scenario's name")]
    description: str = ""
    """One line for reports."""
    fabric: Annotated[FabricSpec, Field(description="a fabric or the path of its file")]
    jobs: Annotated[
        tuple[JobSpec, ...],
        Field(
            min_length=1,
            description="a list of jobs or paths of their files",
        ),
    ]
    policies: Policies
    iterations: Count = 1
    """The number of iterations of each job."""
    until: Until = "all-done"
    """The end of the run.

    all-done: every job iterates until the slowest has done that many. exactly: each job stops then.
    """
    seed: Annotated[int, Field(strict=True, ge=0, le=2**32 - 1)] = 0
    """The seed of all random choices: cross traffic."""
    transport: TransportSpec = TransportSpec()
    """The way in which hosts send."""
    control_latency: Duration = Fraction(0)
    """The time until the controller hears of an event on a switch, for reactive policies."""
    stop_controller_after_iteration: Count | None = None
    """The controller stops after this iteration. Default: never."""
    profile_error: Real = Fraction(0)
    """0.2: the controller believes compute times 20 % longer than they are."""
    delays: tuple[DelaySpec, ...] = ()
    """Workers that are late once."""
    background: tuple[BackgroundSpec, ...] = ()
    """Packets at a constant rate."""
    traffic: tuple[TrafficSpec, ...] = ()
    """Cross traffic: flows with an end that belong to no job."""
    compute: Compute = "timed"
    """The way to compute on real hosts: timed (units wait) or cpu (they keep a processor busy)."""
    queue: Size | None = None
    """The bytes that each queue of a switch's port holds. Default: as the switch comes."""
    ecn_threshold: Count | None = None
    """The number of packets in a queue from which a packet is marked. Default: the target's own."""
    commands: Annotated[dict[Name, Command], Field(default_factory=dict)]
    """The commands of jobs whose workers are programs on real hosts.

    Elsewhere these jobs are emulated.
    """

    @model_validator(mode="after")
    def _check(self) -> ScenarioSpec:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[PydanticCustomError]:
        if not -1 < self.profile_error <= 10:
            yield problem(
                "is not between -1 and 10 (0.2 means: believed 20 % longer)",
                "profile_error",
                code="out-of-range",
            )
        if self.queue is not None and self.queue < self.transport.packet:
            yield problem(
                f"holds no packet of {self.transport.packet} B (give more)",
                "queue",
                code="too-small",
            )
        yield from self._faults_of_jobs()
        yield from self._faults_of_commands()
        yield from self._faults_of_delays()
        yield from self._faults_of_background()
        yield from self._faults_of_traffic()
        for index, policy in enumerate(self.policies):
            if policy in self.policies[:index]:
                yield problem(
                    f"'{policy.label}' is listed already (name each once)",
                    "policies",
                    index,
                    code="duplicate",
                )
            try:
                parse_parameters(policy.name, dict(policy.parameters))
            except PolicyChoiceError as error:
                place = () if error.parameter is None else (error.parameter,)
                yield problem(error.reason, "policies", index, *place, code=error.code)

    def _faults_of_jobs(self) -> Iterator[PydanticCustomError]:
        names: dict[str, int] = {}
        for index, job in enumerate(self.jobs):
            if job.job in names:
                yield problem(
                    f"the name '{job.job}' is also the name of"
                    f" jobs[{names[job.job]}] (give another)",
                    "jobs",
                    index,
                    "job",
                    code="duplicate",
                )
            names.setdefault(job.job, index)
            if job.recognition.protocol == "udp":
                yield problem(
                    "'udp' is only for external senders; a scenario's send over TCP without the"
                    " shim (write 'tcp')",
                    "jobs",
                    index,
                    "recognition",
                    "protocol",
                    code="conflicting-key",
                )
            for host, place in job.hosts.items():
                yield from self._faults_of_host(host, "jobs", index, *place)

    def _faults_of_commands(self) -> Iterator[PydanticCustomError]:
        jobs = {job.job: job for job in self.jobs}
        for name in self.commands:
            if name not in jobs:
                reason = f"'{name}' is not a job of this scenario ({suggestion(name, jobs)})"
                yield problem(reason, "commands", name, code="unknown-job")
                continue
            recognition = jobs[name].recognition
            if recognition.by != "agent" or recognition.protocol == "roce":
                yield problem(
                    f"job '{name}' is recognised by {_recognised(jobs[name])}, which a program's is"
                    " not (write 'recognition: {by: agent, idle_gap: ...}' into its file)",
                    "commands",
                    name,
                    code="conflicting-key",
                )
        for index, delay in enumerate(self.delays):
            if delay.job in self.commands:
                reason = f"'{delay.job}' has a command, which nothing can delay (remove it)"
                yield problem(reason, "delays", index, "job", code="conflicting-key")

    def _faults_of_delays(self) -> Iterator[PydanticCustomError]:
        workers = {job.job: job.hosts for job in self.jobs}
        for index, delay in enumerate(self.delays):
            if delay.job not in workers:
                yield problem(
                    f"'{delay.job}' is not a job of this scenario"
                    f" ({suggestion(delay.job, workers)})",
                    "delays",
                    index,
                    "job",
                    code="unknown-job",
                )
            elif delay.worker not in workers[delay.job]:
                yield problem(
                    f"'{delay.worker}' is not a worker of job '{delay.job}' "
                    f"({suggestion(delay.worker, workers[delay.job])})",
                    "delays",
                    index,
                    "worker",
                    code="unknown-host",
                )

    def _faults_of_background(self) -> Iterator[PydanticCustomError]:
        names = {job.job for job in self.jobs}
        for index, traffic in enumerate(self.background):
            if traffic.name in names:
                yield problem(
                    f"the name '{traffic.name}' is taken (give another)",
                    "background",
                    index,
                    "name",
                    code="duplicate",
                )
            names.add(traffic.name)
            yield from self._faults_of_host(traffic.src, "background", index, "src")
            yield from self._faults_of_host(traffic.dst, "background", index, "dst")
            if traffic.src == traffic.dst:
                yield problem(
                    f"'{traffic.dst}' is also the source (name another host)",
                    "background",
                    index,
                    "dst",
                    code="duplicate",
                )

    def _faults_of_traffic(self) -> Iterator[PydanticCustomError]:
        names = {job.job for job in self.jobs} | {traffic.name for traffic in self.background}
        for index, traffic in enumerate(self.traffic):
            if traffic.name in names:
                yield problem(
                    f"the name '{traffic.name}' is taken (give another)",
                    "traffic",
                    index,
                    "name",
                    code="duplicate",
                )
            names.add(traffic.name)
            for key, hosts in (("src", traffic.src), ("dst", traffic.dst)):
                for host in hosts:
                    yield from self._faults_of_host(host, "traffic", index, key)
            if traffic.schedule is not None:
                for src, dst in traffic.source.pairs:
                    yield from self._faults_of_host(src, "traffic", index, "schedule")
                    yield from self._faults_of_host(dst, "traffic", index, "schedule")

    def _faults_of_host(self, name: str, *place: str | int) -> Iterator[PydanticCustomError]:
        if name not in self.fabric.hosts:
            hint = suggestion(name, self.fabric.hosts)
            yield problem(
                f"'{name}' is not a host of fabric '{self.fabric.fabric}' ({hint})",
                *place,
                code="unknown-host",
            )


def load_scenario(path: str | Path) -> Scenario:
    """Return the scenario in the YAML file `path`, with the files it names.

    Raises `DocumentError`, which names the file at fault: the scenario's own or one that it names.
    """
    with foreign_files_named(path):
        return scenario_of(read_document(path), path)


def scenario_of(document: Mapping[str, object], path: str | Path) -> Scenario:
    """Return the scenario in `document`, which came from the file `path`.

    Values may also be objects: a `FabricSpec`, `JobSpec`s, `PolicyChoice`s. Files that the document
    names are relative to `path`. Raises `DocumentError`, which names the file at fault.
    """
    data = with_files(document, path)
    return build_scenario(parse_document(ScenarioSpec, data, str(path)), Path(path))


def with_files(document: Mapping[str, object], path: str | Path) -> dict[str, object]:
    """Return `document` with the contents of the files it names, relative to `path`.

    Raises `DocumentError`.
    """
    data = dict(document)
    fabric = data.get("fabric")
    jobs = data.get("jobs")
    # All files are read before the first fault is raised, so that people see all at once.
    faults: list[DocumentError] = []

    def read(
        load: Callable[[Path], object],
        key: str,
        name: str | Path,
    ) -> object:
        try:
            return load(_named_file(path, key, name))
        except DocumentError as error:
            faults.extend((error, *error.other_faults))
            return None

    if isinstance(fabric, str | Path):
        data["fabric"] = read(load_fabric_spec, "fabric", fabric)
    if isinstance(jobs, list | tuple):
        contents = []
        for index, job in enumerate(jobs):
            if isinstance(job, str | Path):
                content = read(load_job_spec, f"jobs[{index}]", job)
            else:
                read_file = partial(read, read_document, f"jobs[{index}].file")
                content = _changed(job, read_file)
            contents.append(content)
        data["jobs"] = contents
    if faults:
        faults[0].other_faults = tuple(faults[1:])
        raise faults[0]
    if "traffic" in data:
        data["traffic"] = _with_files(path, data["traffic"])
    return data


def _changed(job: object, read: Callable[[str], object]) -> object:
    """Return the job of the file that `job` names, with its other keys in place of the file's.

    A `job` that names no file is returned as it is. `read` reads the file.
    """
    if not isinstance(job, Mapping) or not isinstance(job.get("file"), str):
        return job
    document = read(job["file"])
    changes = {key: value for key, value in job.items() if key != "file"}
    if isinstance(document, dict):
        return {**document, **changes}
    return changes


def build_scenario(spec: ScenarioSpec, file: Path) -> Scenario:
    """Return the scenario that a checked specification describes. `file` is where it came from."""
    delays = []
    for delay in spec.delays:
        delays.append(Delay(delay.job, delay.worker, delay.iteration, delay.delay))
    return Scenario(
        name=spec.scenario,
        description=spec.description,
        file=file,
        fabric=build_fabric(spec.fabric),
        jobs=build_jobs(spec.jobs),
        policies=spec.policies,
        iterations=spec.iterations,
        until=spec.until,
        seed=spec.seed,
        transport=_transport(spec.transport),
        control_latency_s=spec.control_latency,
        stop_controller_after_iteration=spec.stop_controller_after_iteration,
        profile_error=spec.profile_error,
        delays=tuple(delays),
        background=tuple(_background(traffic) for traffic in spec.background),
        traffic=tuple(traffic.source for traffic in spec.traffic),
        compute=spec.compute,
        queue_bytes=spec.queue,
        ecn_threshold_packets=spec.ecn_threshold,
        specs={job.job: job for job in spec.jobs},
        commands=spec.commands,
    )


def _transport(spec: TransportSpec) -> Transport:
    return Transport(
        packet_bytes=spec.packet,
        window_packets=spec.window,
        retransmit_after_s=spec.retransmit_after,
        host_rate_bps=spec.host_rate,
        min_rto_s=spec.min_rto,
        receive_window_bytes=spec.receive_window,
        initial_window_packets=spec.initial_window,
        ecn=spec.ecn,
        congestion=spec.congestion,
        message_bytes=spec.message,
    )


def _background(spec: BackgroundSpec) -> Background:
    return Background(spec.name, spec.src, spec.dst, spec.rate, spec.packet)


def _with_files(scenario: str | Path, traffic: object) -> object:
    """Return the `traffic` section with the contents of the files that it names."""
    if not isinstance(traffic, list):
        return traffic
    sections: list[object] = []
    for index, source in enumerate(traffic):
        if not isinstance(source, dict):
            sections.append(source)
            continue
        section = dict(source)
        schedule = section.get("schedule")
        if isinstance(schedule, str):
            file = _named_file(scenario, f"traffic[{index}].schedule", schedule)
            section["schedule"] = read_schedule(file)
        sizes = section.get("sizes")
        if isinstance(sizes, str) and sizes not in builtin_sizes():
            file = _named_file(scenario, f"traffic[{index}].sizes", sizes)
            section["sizes"] = load_sizes(file)
        sections.append(section)
    return sections


def _named_file(
    scenario: str | Path,
    key: str,
    name: str | Path,
) -> Path:
    file = Path(scenario).parent / name
    if not file.is_file():
        reason = f"there is no file {excerpt(str(name))} next to it (correct the path)"
        raise DocumentError(str(scenario), key, reason, code="unreadable-file")
    return file
