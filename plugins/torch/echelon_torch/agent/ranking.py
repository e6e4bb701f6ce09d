"""Ranks of a host's packets, where switches do not rank: a program in the kernel writes them as
code points (`bpf/ranks.bpf.c`), by the rules that the service makes.

It is attached to the interface of the job's address by a link that only this process holds, as
`program.KernelProgram` is to a control group. Linux has such links (tcx) from 6.6 on.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from echelon.controller.client import Client, ClientError
from echelon.switches.lowering.at_hosts import HostRule
from echelon.switches.lowering.identity import FiveTuple, SegmentIdentity
from echelon.switches.lowering.job_part import HEAD_SHARE
from echelon_lab.endhosts.ranks import packed
from echelon_torch.agent.connection import AgentError
from echelon_torch.agent.program import load_libbpf, refused

OBJECT = Path(__file__).parent / "bpf" / "ranks.bpf.o"
POLL_S = 0.5
"""Time between two questions for rules. Ports of connections are in them as agents report them."""
MOST_FLOWS = 1 << 14
_HALF = MOST_FLOWS // 2
_TCX_EGRESS = 47
_SIOCGIFADDR = 0x8915
_KEY = struct.Struct("=4s4sHH")
_CONNECTION = struct.Struct("=4IQ6I")
_FLOW = struct.Struct("=2I")
_US_PER_S = 1_000_000
_RuledSegment = tuple[HostRule, SegmentIdentity]


class HostRanking:
    """The program at the interface with the address `ipv4`; use it as a context manager.

    Raise `AgentError`.
    """

    def __init__(self, ipv4: str) -> None:
        interface = _interface_of(ipv4)
        self._libbpf = load_libbpf()
        self._ipv4 = ipv4
        self._maps: dict[str, int] = {}
        self._numbers: dict[str, dict[object, int]] = {}
        """The number of each stream, job and state, which they keep, by kind."""
        self._held: frozenset[bytes] = frozenset()
        self._half = 0
        self._link = -1
        self._object = None
        try:
            self._attach(interface)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._link >= 0:
            os.close(self._link)
        if self._object:
            self._libbpf.bpf_object__close(self._object)
        self._link = -1
        self._object = None

    @property
    def program(self) -> int:
        """The descriptor of the program."""
        program = self._libbpf.bpf_object__find_program_by_name(self._object, b"ranks")
        return int(self._libbpf.bpf_program__fd(program))

    def update(self, rules: Iterable[HostRule]) -> None:
        """Rank by these rules from now on. Raise `AgentError` for more than the program holds.

        Flows are written beside those of before, then connections that refer to them, so that no
        packet finds rules of two kinds.
        """
        segments = []
        for rule in rules:
            if isinstance(rule.identity, SegmentIdentity):
                _check(rule.job, rule.identity)
                segments.append((rule, rule.identity))

        connections: dict[bytes, bytes] = {}
        flows: list[bytes] = []
        heads: set[str] = set()
        for (job, five_tuple), group in groupby(sorted(segments, key=_place), key=_stream):
            members = list(group)
            segment = members[0][1]
            is_own = segment.src_ipv4 == self._ipv4
            stream = 0
            ranges: list[bytes] = []
            if is_own:
                stream = self._number("stream", (job, five_tuple))
                ranges = self._ranges(members)

            value = _CONNECTION.pack(
                stream,
                not is_own,
                self._number("job", job),
                is_own and job not in heads,
                round(segment.idle_gap_s * _US_PER_S),
                int(segment.iteration_bytes * HEAD_SHARE),
                *(self._half * _HALF + len(flows), len(ranges), 0, 0, 0),
            )
            flows += ranges
            if is_own:
                heads.add(job)
            for _, src, dst, src_port, dst_port in segment.five_tuples:
                if is_own:
                    connections[_key(src, dst, src_port, dst_port)] = value
                else:
                    # What this host sends on the connection are answers.
                    connections.setdefault(_key(dst, src, dst_port, src_port), value)

        most_numbers = max(map(len, self._numbers.values()), default=0)
        if len(flows) > _HALF or most_numbers > MOST_FLOWS:
            raise AgentError(
                f"{len(flows)} flows or their connections are more than this host ranks ({_HALF})"
            )
        self._replace(connections, flows)

    def _replace(self, connections: Mapping[bytes, bytes], flows: Sequence[bytes]) -> None:
        first = self._half * _HALF
        for number, flow in enumerate(flows, start=first):
            self._write("flows", struct.pack("=I", number), flow)
        for key, value in connections.items():
            self._write("ranked", key, value)
        for key in self._held - connections.keys():
            self._libbpf.bpf_map_delete_elem(self._maps["ranked"], key)
        self._held = frozenset(connections)
        self._half = 1 - self._half

    def _ranges(self, members: Sequence[_RuledSegment]) -> list[bytes]:
        flows = []
        for rule, segment in members:
            flows += [self._flow(rule, end_bytes) for _, end_bytes in segment.ranges]
        return flows

    def _flow(self, rule: HostRule, end_bytes: int) -> bytes:
        state = self._number("state", (rule.job, rule.echelonflow))
        return _FLOW.pack(end_bytes, state) + packed(rule)

    def _number(self, kind: str, key: object) -> int:
        numbers = self._numbers.setdefault(kind, {})
        return numbers.setdefault(key, len(numbers))

    def _write(
        self,
        name: str,
        key: bytes,
        value: bytes,
    ) -> None:
        if self._libbpf.bpf_map_update_elem(self._maps[name], key, value, 0) != 0:
            raise refused("write its rules")

    def _attach(self, interface: int) -> None:
        lib = self._libbpf
        code = OBJECT.read_bytes()
        self._object = lib.bpf_object__open_mem(code, len(code), None)
        if not self._object:
            raise refused("read its ranking program")
        if lib.bpf_object__load(self._object) != 0:
            raise refused("load its ranking program")
        for name in ("ranked", "flows", "streams", "states", "epochs"):
            self._maps[name] = lib.bpf_object__find_map_fd_by_name(self._object, name.encode())
        self._link = lib.bpf_link_create(self.program, interface, _TCX_EGRESS, None)
        if self._link < 0:
            raise refused("attach its ranking program (it needs Linux 6.6)")


class FollowedRules:
    """A thread that keeps the ranking of jobs to the rules of the service; a context manager.

    `say` takes a line for the operator. What was ranked by stays while the service does not answer.
    """

    def __init__(
        self,
        client: Client,
        jobs: Sequence[str],
        ranking: HostRanking,
        say: Callable[[str], None],
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._ranking = ranking
        self._say = say
        self._documents: Sequence[Mapping[str, Any]] | None = None
        self._problem: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._follow,
            name="rules",
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        while True:
            try:
                self._ask()
                problem = None
            except (ClientError, AgentError) as error:
                problem = str(error)
            if problem not in (None, self._problem):
                self._say(f"ranks: {problem}")
            self._problem = problem
            if self._ended.wait(POLL_S):
                return

    def _ask(self) -> None:
        documents: list[Mapping[str, Any]] = []
        for job in self._jobs:
            documents += self._client.job(job).ranked_at_hosts
        if documents == self._documents:
            return
        self._ranking.update(map(HostRule.of_document, documents))
        if not self._documents:
            if documents:
                self._say(f"rules for {len(documents)} flows")
            else:
                self._say("no rules so far: switches rank these jobs")
        self._documents = documents


def _check(job: str, segment: SegmentIdentity) -> None:
    if segment.by_bytes:
        raise AgentError(
            f"job {job}: hosts tell iterations apart by silence (leave out 'iterations: bytes')"
        )


def _stream(ruled: _RuledSegment) -> tuple[str, FiveTuple]:
    rule, segment = ruled
    return rule.job, segment.five_tuple


def _place(ruled: _RuledSegment) -> tuple[str, FiveTuple, int]:
    _, segment = ruled
    return *_stream(ruled), segment.start_bytes


def _key(
    src: str,
    dst: str,
    src_port: int,
    dst_port: int,
) -> bytes:
    addresses = socket.inet_aton(src), socket.inet_aton(dst)
    return _KEY.pack(*addresses, socket.htons(src_port), socket.htons(dst_port))


def _interface_of(ipv4: str) -> int:
    """Return the index of the interface with an address. Raise `AgentError`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for index, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue  # it has no address
            if socket.inet_ntoa(answer[20:24]) == ipv4:
                return index
    raise AgentError(
        f"{ipv4}: no interface has this address, which the fabric gives to the job's host (name the"
        " host)"
    )
