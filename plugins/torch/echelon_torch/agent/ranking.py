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
from echelon.switches.lowering.identity import SegmentIdentity
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
        found = self._libbpf.bpf_object__find_program_by_name(self._object, b"ranks")
        return int(self._libbpf.bpf_program__fd(found))

    def update(self, rules: Iterable[HostRule]) -> None:
        """Rank by these rules from now on. Raise `AgentError` for more than the program holds.

        Flows are written beside those of before, then connections that refer to them, so that no
        packet finds rules of two kinds.
        """
        of_segments = [
            (rule, rule.identity) for rule in rules if isinstance(rule.identity, SegmentIdentity)
        ]
        if unknown := next((rule.job for rule, segment in of_segments if segment.by_bytes), None):
            raise AgentError(
                f"job {unknown}: hosts tell iterations apart by silence (leave out 'iterations:"
                " bytes')"
            )
        connections: dict[bytes, bytes] = {}
        flows: list[bytes] = []
        heads: set[str] = set()
        ordered = sorted(
            of_segments, key=lambda one: (one[0].job, one[1].five_tuple, one[1].start_bytes)
        )
        for (job, five_tuple), group in groupby(
            ordered, key=lambda one: (one[0].job, one[1].five_tuple)
        ):
            members = list(group)
            segment = members[0][1]
            is_own = segment.src_ipv4 == self._ipv4
            first = self._half * _HALF + len(flows)
            if is_own:
                own = [self._flow(rule, end) for rule, of in members for _, end in of.ranges]
            else:
                own = []
            flows += own
            value = _CONNECTION.pack(
                self._number("stream", (job, five_tuple)) if is_own else 0,
                not is_own,
                self._number("job", job),
                is_own and job not in heads,
                round(segment.idle_gap_s * _US_PER_S),
                int(segment.iteration_bytes * HEAD_SHARE),
                *(first, len(own), 0, 0, 0),
            )
            heads |= {job} if is_own else set()
            for _, src, dst, src_port, dst_port in segment.five_tuples:
                ends = (
                    socket.inet_aton(src),
                    socket.inet_aton(dst),
                    socket.htons(src_port),
                    socket.htons(dst_port),
                )
                if is_own:
                    connections[_KEY.pack(*ends)] = value
                else:
                    answers = _KEY.pack(ends[1], ends[0], ends[3], ends[2])
                    connections.setdefault(answers, value)
        if len(flows) > _HALF or max(map(len, self._numbers.values()), default=0) > MOST_FLOWS:
            raise AgentError(
                f"{len(flows)} flows or their connections are more than this host ranks ({_HALF})"
            )
        for number, flow in enumerate(flows):
            self._write("flows", struct.pack("=I", self._half * _HALF + number), flow)
        for key, value in connections.items():
            self._write("ranked", key, value)
        for key in self._held - connections.keys():
            self._libbpf.bpf_map_delete_elem(self._maps["ranked"], key)
        self._held, self._half = frozenset(connections), 1 - self._half

    def _flow(self, rule: HostRule, end_bytes: int) -> bytes:
        state = self._number("state", (rule.job, rule.echelonflow))
        return _FLOW.pack(end_bytes, state) + packed(rule)

    def _number(self, kind: str, key: object) -> int:
        numbers = self._numbers.setdefault(kind, {})
        return numbers.setdefault(key, len(numbers))

    def _write(self, name: str, key: bytes, value: bytes) -> None:
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
    """A thread that asks the service for the rules of jobs, and has them ranked by; use it as a
    context manager.

    `say` takes a line for the operator. What was ranked by stays while the service does not answer.
    """

    def __init__(
        self, client: Client, jobs: Sequence[str], ranking: HostRanking, say: Callable[[str], None]
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._ranking = ranking
        self._say = say
        self._documents: Sequence[Mapping[str, Any]] | None = None
        self._problem: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="rules", daemon=True)

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
        documents = [rule for job in self._jobs for rule in self._client.job(job).ranked_at_hosts]
        if documents == self._documents:
            return
        self._ranking.update(map(HostRule.of_document, documents))
        if not self._documents:
            self._say(
                f"rules for {len(documents)} flows"
                if documents
                else "no rules so far: switches rank these jobs"
            )
        self._documents = documents


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
