"""The job file.

```yaml
job: bert                 # name
parallelism: pipeline     # the paradigm; the section of that name follows
workers: [h1, h2]         # hosts
start: 0 s                # of the first iteration (default 0)
weight: 1                 # importance compared with other jobs (default 1)
pipeline: {...}           # echelon.model.jobs.paradigms has one module for each section
recognition:              # how switches recognise the job's flows (default: {by: shim})
  by: bytes               # shim: by the header that Echelon's own senders write; or bytes, for unmodified senders;
                          # or agent, the same, where agents on the hosts report the connections (only idle_gap follows)
  protocol: tcp           # tcp (default), udp, or roce (RoCE v2, with the next two keys in place of ports)
  queue_pair: 0x100       # roce with by: bytes: what a host gets from the job's first host goes to its queue pair of
                          # this number, what it gets from the second one to the next number, and so on
  mtu: 4096 B             # roce: the path's MTU, by which packets are counted: 256, 512, 1024, 2048 or 4096 B
  source_port: 5001       # each host has one connection to each host that it sends to, from this port
  destination_port: 5002  # to this one
  idle_gap: 50 ms         # silence after which the job's first connections start a new iteration
  iterations: silence     # silence (default), or bytes: iterations follow each other without a silence as well
  pause: true             # switches may let TCP pause for a round trip to change its queue (default false)
```

With `by: bytes` or `by: agent`, switches tell the flows of a connection apart by how many bytes it
has carried since the iteration started, so the sizes in the file must be what the senders really
send. `idle_gap` must be shorter than the pause of the job's first connections between two
iterations, and longer than any other pause between their packets. A pause for computing counts only
after 95 % of the connection's bytes.

With `iterations: bytes`, each connection begins its next iteration behind the bytes of the last
one, as pipelines and sharded jobs need that have no such silence. `idle_gap` must then be longer
than every silence within an iteration; a longer one near a border moves the border there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from echelon.model.documents import (
    Duration,
    Key,
    Name,
    PositiveDuration,
    PositiveReal,
    Section,
    conflict,
    duplicate,
    missing,
    parse_document,
    problem,
    read_document,
    refuse,
)
from echelon.model.foreign import foreign_files_named
from echelon.model.jobs.paradigm import Paradigm, registered
from echelon.model.jobs.ranked import MOST_STEPS, RankedParadigm
from echelon.model.quantities import QuantityError, excerpt, size_bytes, size_text

Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
UNBUILT = "unbuilt"
"""The key of a context in which a file is checked without what takes as long as building its graph:
whoever builds it refuses one of too many steps, and asks `JobSpec.carried_refusal`."""
COUNTED_BYTES = 1 << 32
"""The most bytes of a connection that a switch can count in an iteration."""
LONGEST_GAP_S = Fraction(1 << 32, 10**6)
SHORTEST_GAP_S = Fraction(1, 10**6)
"""Switches measure the gap in microseconds, in 32 bits."""
SHIM_PORT = 0xEF10
"""A UDP packet to this port starts with the shim header."""


_PORTS = ("source_port", "destination_port")
_NEEDED = {
    ("shim", False): (),
    ("bytes", False): (*_PORTS, "idle_gap"),
    ("agent", False): ("idle_gap",),
    ("bytes", True): ("queue_pair", "mtu", "idle_gap"),
    ("agent", True): ("mtu", "idle_gap"),
}
"""The keys that `recognition` requires, by method and by whether the job uses RoCE."""
MTUS = (256, 512, 1024, 2048, 4096)
"""The path MTUs that RoCE allows, in bytes of payload."""


def _mtu(value: object) -> int:
    size = size_bytes(value)
    if size not in MTUS:
        raise QuantityError(
            f"{excerpt(value)} is not the MTU of a path of RoCE"
            f" (use {', '.join(map(str, MTUS))} B)",
            code="out-of-range",
        )
    return size


class RecognitionSpec(Section):
    """The way in which switches recognise the packets of the job's flows."""

    by: Literal["shim", "bytes", "agent"] = "shim"
    """shim: the sender marks every packet. bytes: by connection, and what it has carried in this
    iteration. agent: in the same way, by the connections that agents on the hosts report; all those
    between two hosts count as one."""
    protocol: Literal["tcp", "udp", "roce"] | None = None
    """None: tcp. With `by: agent`, tcp or roce."""
    queue_pair: Annotated[int, Field(strict=True, ge=2, le=0xFF0000)] | None = None
    """The number of a host's queue pair for what comes from the job's first host; those for its
    other hosts follow. Only `by: bytes` over RoCE has it, and requires it."""
    mtu: (
        Annotated[
            int,
            PlainValidator(_mtu),
            PlainSerializer(size_text, when_used="json"),
            WithJsonSchema({"type": "string", "examples": ["4096 B"]}),
        ]
        | None
    ) = None
    """The MTU of the paths. Only RoCE has it, and requires it."""
    source_port: Port | None = None
    """The port of the sender. Only `by: bytes` has it, and requires it."""
    destination_port: Port | None = None
    """The port of the receiver. Only `by: bytes` has it, and requires it."""
    idle_gap: PositiveDuration | None = None
    """Seconds without a packet after which the next one starts a new iteration."""
    iterations: Literal["silence", "bytes"] = "silence"
    """The border between two iterations: a silence, or the last byte of the one before."""
    pause: bool = False
    """Whether switches let a sender over TCP pause for less than a round trip, so that its
    connection can rise to its queue: they close the window that acknowledgements announce, and
    count by sequence numbers. Not with the shim, nor over UDP."""

    @model_validator(mode="after")
    def _check(self) -> RecognitionSpec:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[PydanticCustomError]:
        is_roce = self.protocol == "roce" and self.by != "shim"
        needed = _NEEDED[self.by, is_roce]
        for key in ("protocol", *_PORTS, "queue_pair", "mtu", "idle_gap"):
            has_key = getattr(self, key) is not None
            is_of_roce = key in ("queue_pair", "mtu")
            is_optional = self.by == "bytes" or (is_roce and key == "protocol")
            if has_key and is_roce and key in _PORTS:
                yield conflict("is of TCP and UDP (remove it, and give 'queue_pair')", key)
            elif has_key and not is_roce and self.by != "shim" and is_of_roce:
                yield conflict("is of RoCE (remove it, or write 'protocol: roce')", key)
            elif has_key and key not in needed and not is_optional:
                yield conflict(
                    f"does not go with 'by: {self.by}' (remove it, or write 'by: bytes')", key
                )
            if not has_key and key in needed:
                yield missing("switches need it to recognise flows by bytes", key)
        if self.idle_gap is not None and not SHORTEST_GAP_S <= self.idle_gap < LONGEST_GAP_S:
            reason = (
                "is not between 1 us and 71 min"
                " (give a time that the pause between iterations exceeds)"
            )
            yield problem(reason, "idle_gap", code="out-of-range")
        if self.iterations == "bytes" and self.by == "shim":
            yield conflict(
                "is for senders that do not mark packets"
                " (remove it, or write 'by: bytes' or 'by: agent')",
                "iterations",
            )
        if self.pause and (self.by == "shim" or self.protocol not in (None, "tcp")):
            yield conflict(
                "is for connections over TCP (remove it, or write 'by: bytes' or 'by: agent')",
                "pause",
            )
        if self.protocol == "udp" and self.destination_port == SHIM_PORT:
            yield duplicate(
                f"{SHIM_PORT} is the port of senders that write the shim (use another)",
                "destination_port",
            )


class JobSpec(Section):
    """A job as its file describes it, checked as far as it can be without a fabric.

    It has a section, a `Paradigm` or None, for each registered paradigm.
    """

    job: Name = Field(description="the job's name")
    parallelism: str = Field(description="the paradigm")
    """The name of the section that describes an iteration. A list of axes, from the outermost,
    stands for the paradigm that nests them, with this `order`."""
    workers: Annotated[
        tuple[Name, ...],
        Field(
            min_length=2,
            max_length=10_000,
            description="the hosts, as [h1, h2]",
        ),
    ]
    """Each paradigm says what their order means."""
    start: Duration = Fraction(0)
    """The start of the first iteration, in seconds."""
    weight: PositiveReal = Fraction(1)
    """The factor of the job's normalised tardiness when a policy compares it with others'."""
    recognition: RecognitionSpec = RecognitionSpec()
    """The way in which switches recognise the job's packets."""

    @property
    def paradigm(self) -> Paradigm:
        """Return the section that `parallelism` names."""
        section: Paradigm = getattr(self, self.parallelism)
        return section

    @property
    def hosts(self) -> dict[str, tuple[Key, ...]]:
        """Return all hosts, workers first, each with the path of the key that names it."""
        hosts: dict[str, tuple[Key, ...]] = {}
        for index, worker in enumerate(self.workers):
            hosts[worker] = ("workers", index)
        for host, key in self.paradigm.other_hosts().items():
            hosts[host] = (self.parallelism, key)
        return hosts

    @property
    def flow_count(self) -> int:
        """Return how many flows the iteration graph has.

        Of ranks, this takes as long as building it.
        """
        return self.paradigm.flow_count(len(self.workers))

    def with_profile_error(self, error: Fraction) -> JobSpec:
        """Return the job with a profile of its compute times that is wrong by `error`.

        1/5 means 20 % too long. `echelon.model.jobs.analysis.with_profile_error` does the same to a
        job.
        """
        if not error:
            return self
        section = self.paradigm.scaled(1 + error)
        return self.model_copy(update={self.parallelism: section})

    @model_validator(mode="wrap")
    @classmethod
    def _check_parallelism(cls, data: object, validate: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, dict):
            return validate(data)
        name = data.get("parallelism")
        if isinstance(name, list | tuple):
            return validate(_nested(data, name))
        broken = registered().broken
        if isinstance(name, str) and name in broken:
            raise problem(f"'{name}' {broken[name]}", "parallelism", code="not-allowed")
        return validate(data)

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> JobSpec:
        context = info.context or {}
        refuse(self._faults(counted=not context.get(UNBUILT)))
        return self

    def _faults(self, *, counted: bool) -> Iterator[PydanticCustomError]:
        seen: set[str] = set()
        for index, worker in enumerate(self.workers):
            if worker in seen:
                yield duplicate(
                    f"'{worker}' is a worker already (name each host once)", "workers", index
                )
            seen.add(worker)
        for key in registered().sections:
            if key != self.parallelism and getattr(self, key) is not None:
                yield conflict(
                    f"does not go with 'parallelism: {self.parallelism}' (remove one of them)", key
                )
        if getattr(self, self.parallelism) is None:
            remedy = f"add the section that 'parallelism: {self.parallelism}' needs"
            yield missing(remedy, self.parallelism)
            return
        # Others answer by arithmetic.
        counted = counted or not isinstance(self.paradigm, RankedParadigm)
        if not counted and self.paradigm.step_count(len(self.workers)) > MOST_STEPS:
            # Checking takes long, too. Whoever builds graphs refuses this one.
            return
        try:
            self.paradigm.check(self.workers)
        except PydanticCustomError as error:
            context = error.context or {}
            yield problem(context["reason"], self.parallelism, *context["at"], code=context["code"])
            return
        if self.recognition.by == "shim":
            return
        # Echelon's senders send in this order, and programs in their own, which differs only within
        # an iteration.
        place = ("recognition", "by")
        kind = self.recognition.by
        refusal = self.paradigm.counting_refusal(exactly=kind == "bytes")
        if refusal is not None:
            yield problem(f"'{kind}' {refusal} (use the shim)", *place, code="not-allowed")
        if counted:
            carried = self.paradigm.connection_bytes(len(self.workers))
            refusal = self.carried_refusal(carried)
            if refusal is not None:
                yield problem(refusal, *place, code="too-large")

    def carried_refusal(self, carried: int) -> str | None:
        """Return why switches cannot count `carried` bytes of a connection; None: they can."""
        if self.recognition.by == "shim" or carried < COUNTED_BYTES:
            return None
        return (
            f"'{self.recognition.by}' cannot tell flows apart on a connection that carries"
            f" {carried} B in an iteration (the limit is 4 GiB: use the shim)"
        )


def _nested(data: dict[str, Any], axes: Sequence[object]) -> dict[str, Any]:
    """Return a document whose `parallelism` names the paradigm that nests these axes.

    The section of that paradigm has them.
    """
    sections = registered().sections
    for name, section in sections.items():
        if axes and section.nests.issuperset(str(axis) for axis in axes):
            document = {**data, "parallelism": name}
            inside = data.get(name)
            if isinstance(inside, dict):
                if "order" in inside:
                    reason = "does not go with a list in 'parallelism' (remove one)"
                    raise conflict(reason, name, "order")
                document[name] = {**inside, "order": axes}
            return document
    nested = [section.nests for section in sections.values()]
    choices = sorted(frozenset[str]().union(*nested))
    reason = (
        f"{excerpt(axes)} cannot be nested (use some of {', '.join(choices)},"
        " or the name of one paradigm)"
    )
    raise problem(reason, "parallelism", code="not-allowed")


def _with_sections(base: type[JobSpec]) -> type[JobSpec]:
    """Return `base` with a key for each registered paradigm.

    `parallelism` is restricted to their names.
    """
    sections = registered().sections
    *names, last_name = (f"'{name}'" for name in sections)
    description = f"{', '.join(names)} or {last_name}" if names else last_name
    choice = Field(description=description)
    fields: dict[str, Any] = {}
    for name, section in sections.items():
        fields[name] = (section | None, None)
    fields["parallelism"] = (Annotated[Literal[tuple(sections)], choice], ...)
    return create_model(
        base.__name__,
        __base__=base,
        __module__=base.__module__,
        __doc__=base.__doc__,
        **fields,
    )


if not TYPE_CHECKING:
    JobSpec = _with_sections(JobSpec)


def load_job_spec(path: str | Path) -> JobSpec:
    """Return the specification in the YAML file `path`. Raises `DocumentError`."""
    with foreign_files_named(path):
        return parse_document(JobSpec, read_document(path), str(path))


def make_job_spec(**keys: object) -> JobSpec:
    """Return the specification with these keys of a job file. Raises `DocumentError`."""
    name = keys.get("job")
    return parse_document(JobSpec, keys, f"job {name}" if isinstance(name, str) else "job")


def _keys() -> str:
    """Return the keys of a job and of its sections, as `help(echelon.job)` lists them."""
    sections = registered().sections
    lines = []
    for name, field in JobSpec.model_fields.items():
        if name not in sections:
            lines.append(f"    {name}: {field.description or 'optional'}")
    for name, section in sections.items():
        lines.append(f"    {name}, a mapping, where it is the parallelism:")
        for key, field in section.model_fields.items():
            lines.append(f"        {key}: {field.description or 'optional'}")
    return "\n".join(lines)


make_job_spec.__doc__ = f"{make_job_spec.__doc__}\n\n{_keys()}\n"
