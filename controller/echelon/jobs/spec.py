"""The job file.

```yaml
job: bert                 # name
parallelism: pipeline     # or: data, parameter_server; the section of that name follows
workers: [h1, h2]         # hosts; of a pipeline in order of its stages
start: 0 s                # of the first iteration (default 0)
weight: 1                 # importance against other jobs (default 1)
pipeline:
  schedule: gpipe         # all forwards, then all backwards (default); or 1f1b: one forward, one backward
  micro_batches: 3
  forward: 1 s            # per micro-batch; one value, or a list with one per stage
  backward: 2 s           # likewise; left out (gpipe only): the iteration is the forward pass alone
  activation: 2.5 MB      # per micro-batch; one value, or a list with one per stage boundary
  gradient: 2.5 MB        # likewise; default: as the activations
data:
  gradient: 5 MB          # what is all-reduced
  compute: 500 ms         # of each worker before the all-reduce; or, if that overlaps with the backward pass, instead:
  forward: 150 ms
  backward: 350 ms        # the whole pass, cut into as many equal units as there are buckets
  buckets: 4              # each is all-reduced when it is computed and the one before it is all-reduced
parameter_server:
  server: h0              # a host that is none of the workers
  compute: 500 ms         # of each worker before it sends its gradient to the server
  aggregate: 10 ms        # of the server when it has them all, before it sends parameters to all workers (default 0)
  gradient: 5 MB          # from each worker, and as many bytes of parameters back
recognition:              # how switches tell the job's flows (default: {by: shim})
  by: bytes               # shim: by the header that Echelon's own senders write; or bytes, for unmodified senders:
  protocol: tcp           # tcp (default) or udp
  source_port: 5001       # each host has one connection to each host that it sends to, from this port
  destination_port: 5002  # to this one
  idle_gap: 50 ms         # silence after which the job's first connection begins a new iteration
```

By bytes, the flows of a connection are told by how many bytes it has carried since the iteration began, so the sizes in
the file must be what the senders really send. `idle_gap` is shorter than the pause of the job's first connection
between two iterations, and longer than what separates its packets otherwise; computing between two flows counts only if
it comes when 95 % of the connection's bytes have passed.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from echelon.documents import (
    Duration,
    Key,
    Name,
    PositiveDuration,
    PositiveReal,
    Section,
    parse_document,
    problem,
    read_document,
)
from echelon.jobs.paradigms import DataSpec, ParadigmSpec, ParameterServerSpec, PipelineSpec

Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
COUNTED_BYTES = 1 << 32
"""So many bytes of a connection and iteration can a switch tell apart."""
LONGEST_GAP_S = Fraction(1 << 32, 10**6)
SHORTEST_GAP_S = Fraction(1, 10**6)
"""Switches measure the gap in microseconds, in 32 bits."""
SHIM_PORT = 0xEF10
"""A UDP packet to this port begins with the shim header."""


class RecognitionSpec(Section):
    """How switches recognise the packets of the job's flows."""

    by: Literal["shim", "bytes"] = "shim"
    """shim: the sender writes it into every packet. bytes: by connection, and what it has carried in this iteration."""
    protocol: Literal["tcp", "udp"] | None = None
    """None: tcp."""
    source_port: Port | None = None
    destination_port: Port | None = None
    idle_gap: PositiveDuration | None = None
    """Seconds without a packet after which the next one begins a new iteration."""

    @model_validator(mode="after")
    def _check(self) -> RecognitionSpec:
        needed = ("source_port", "destination_port", "idle_gap")
        for key in ("protocol", *needed):
            given = getattr(self, key) is not None
            if given and self.by == "shim":
                raise problem(
                    "does not go with 'by: shim' (remove it, or write 'by: bytes')", key, code="conflicting-key"
                )
            if not given and self.by == "bytes" and key in needed:
                raise problem("is missing (switches need it to recognise flows by bytes)", key, code="missing-key")
        if self.idle_gap is not None and not SHORTEST_GAP_S <= self.idle_gap < LONGEST_GAP_S:
            raise problem(
                "is not between 1 us and 71 min (give what the pause between iterations exceeds)",
                "idle_gap",
                code="out-of-range",
            )
        if self.protocol == "udp" and self.destination_port == SHIM_PORT:
            raise problem(
                f"{SHIM_PORT} is the port of senders that write the shim (use another)",
                "destination_port",
                code="duplicate",
            )
        return self


Parallelism = Literal["pipeline", "data", "parameter_server"]
"""Each is the name of the section that goes with it."""


class JobSpec(Section):
    """A job as its file describes it, checked as far as it can be without a fabric."""

    job: Annotated[Name, Field(description="the job's name")]
    parallelism: Annotated[Parallelism, Field(description="'pipeline', 'data' or 'parameter_server'")]
    workers: Annotated[tuple[Name, ...], Field(min_length=2, max_length=1000, description="the hosts, as [h1, h2]")]
    """Of a pipeline in order of its stages, of a ring in order of the ring."""
    start: Duration = Fraction(0)
    """When the first iteration begins, seconds."""
    weight: PositiveReal = Fraction(1)
    """Multiplies the job's normalised tardiness when it is compared with other jobs'."""
    pipeline: PipelineSpec | None = None
    data: DataSpec | None = None
    parameter_server: ParameterServerSpec | None = None
    recognition: RecognitionSpec = RecognitionSpec()

    @property
    def paradigm(self) -> ParadigmSpec:
        """The section that `parallelism` names."""
        section: ParadigmSpec = getattr(self, self.parallelism)
        return section

    @property
    def hosts(self) -> dict[str, tuple[Key, ...]]:
        """All hosts of the job, the workers first, and the path of the key that names each."""
        hosts: dict[str, tuple[Key, ...]] = {worker: ("workers", index) for index, worker in enumerate(self.workers)}
        others = self.paradigm.other_hosts()
        return hosts | {host: (self.parallelism, key) for host, key in others.items()}

    @property
    def flow_count(self) -> int:
        """How many flows its iteration graph has; without building it."""
        return self.paradigm.flow_count(len(self.workers))

    @model_validator(mode="after")
    def _check(self) -> JobSpec:
        for index, worker in enumerate(self.workers):
            if worker in self.workers[:index]:
                raise problem(
                    f"'{worker}' is a worker already (name each host once)", "workers", index, code="duplicate"
                )
        for key in get_args(Parallelism):
            given = getattr(self, key) is not None
            if given and key != self.parallelism:
                raise problem(
                    f"does not go with 'parallelism: {self.parallelism}' (remove one of them)",
                    key,
                    code="conflicting-key",
                )
            if not given and key == self.parallelism:
                raise problem(f"is missing (add the section that 'parallelism: {key}' needs)", key, code="missing-key")
        try:
            self.paradigm.check(self.workers)
        except PydanticCustomError as error:
            context = error.context or {}
            raise problem(context["reason"], self.parallelism, *context["at"], code=context["code"]) from None
        carried = self.paradigm.connection_bytes(len(self.workers))
        if self.recognition.by == "bytes" and carried >= COUNTED_BYTES:
            raise problem(
                f"'bytes' cannot tell flows where a connection carries {carried} B in an iteration (4 GiB is the most; "
                "use the shim)",
                "recognition",
                "by",
                code="too-large",
            )
        return self


def load_job_spec(path: str | Path) -> JobSpec:
    """The specification in the YAML file `path`. Raises `DocumentError`."""
    return parse_document(JobSpec, read_document(path), str(path))
