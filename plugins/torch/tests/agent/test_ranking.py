"""The program in the kernel that ranks packets, against the arithmetic in Python, and on real
connections.
"""

from __future__ import annotations

import ctypes
import json
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from echelon.model.fabric.builders import one_tor
from echelon.model.fabric.load import build_fabric
from echelon.planning.plan import FlowPlan
from echelon.planning.rankings.deadline import Deadline, Relative
from echelon.planning.rankings.fixed import Fixed
from echelon.switches.lowering.at_hosts import HostRule, lower_at_hosts
from echelon.switches.lowering.identity import SegmentIdentity, ShimIdentity
from echelon.switches.targets import TARGETS
from echelon_lab.endhosts.ranks import FlowRank, RankPacket
from echelon_torch.agent.connection import AgentError
from echelon_torch.agent.ranking import HostRanking
from plugins.torch.tests.agent import kernel
from tests.faults import naming
from tests.needs import needs
from tests.reference.frames import ipv4

pytestmark = pytest.mark.xdist_group("agent")


GAP_S = Fraction(10)
"""No connection is silent for so long in an iteration."""
STEP_US = 50_000
OWN = "127.0.0.1"
PATIENCE_S = 30.0


class Opts(ctypes.Structure):
    """`struct bpf_test_run_opts` of libbpf."""

    _fields_ = [
        ("sz", ctypes.c_size_t),
        *((name, ctypes.c_void_p) for name in ("data_in", "data_out")),
        *((name, ctypes.c_uint32) for name in ("data_size_in", "data_size_out")),
        *((name, ctypes.c_void_p) for name in ("ctx_in", "ctx_out")),
        *((name, ctypes.c_uint32) for name in ("ctx_size_in", "ctx_size_out", "retval")),
        *((name, ctypes.c_int) for name in ("repeat",)),
        *((name, ctypes.c_uint32) for name in ("duration", "flags", "cpu", "batch_size")),
    ]


TSTAMP_AT, CONTEXT_BYTES = 152, 192
"""The place of `tstamp` in `struct __sk_buff`, and its length."""


def through(ranking: HostRanking, frame: bytes, now_us: int) -> bytes:
    """Return what the program makes of a frame that leaves at a time."""
    context = bytearray(CONTEXT_BYTES)
    context[TSTAMP_AT : TSTAMP_AT + 8] = (now_us * 1000).to_bytes(8, sys.byteorder)
    given, answer = (
        ctypes.create_string_buffer(frame, len(frame)),
        ctypes.create_string_buffer(len(frame)),
    )
    about = ctypes.create_string_buffer(bytes(context), CONTEXT_BYTES)
    opts = Opts(
        sz=ctypes.sizeof(Opts),
        data_in=ctypes.addressof(given),
        data_size_in=len(frame),
        data_out=ctypes.addressof(answer),
        data_size_out=len(frame),
        ctx_in=ctypes.addressof(about),
        ctx_size_in=CONTEXT_BYTES,
    )
    run = ctypes.CDLL("libbpf.so.1", use_errno=True).bpf_prog_test_run_opts
    assert run(ranking.program, ctypes.byref(opts)) == 0, ctypes.get_errno()
    return answer.raw


def number(address: str) -> int:
    return int.from_bytes(socket.inet_aton(address), "big")


def tcp_frame(
    src: str, dst: str, ports: tuple[int, int], seq: int, size: int, tos: int = 2
) -> bytes:
    head = struct.pack("!HHIIBBHHH", *ports, seq % 2**32, 0, 5 << 4, 0x18, 512, 0, 0)
    return ipv4(number(src), number(dst), 6, head + bytes(size), tos=tos)


def rules_of(rankings: list[Any], sizes: list[int], peers: int) -> tuple[HostRule, ...]:
    """Return rules for flows that follow each other on connections to several peers in turn."""
    fabric, target = build_fabric(one_tor(2)), TARGETS["dscp"]
    flows = [FlowPlan("job", f"f{n}", of, ("h1", "tor", "h2")) for n, of in enumerate(rankings)]
    identities: dict[str, SegmentIdentity | ShimIdentity] = {}
    for peer in range(peers):
        mine = [n for n in range(len(flows)) if n % peers == peer]
        start = 0
        for n in mine:
            whole = sum(sizes[m] for m in mine)
            identities[f"f{n}"] = SegmentIdentity(
                *(OWN, f"127.0.0.{peer + 2}", "tcp", 100, 200),
                *(start, start + sizes[n], whole, GAP_S),
            )
            start += sizes[n]
    return lower_at_hosts("job", flows, identities, fabric, target.capabilities(target.options()))


def ranking_of(random: Random, relative: Relative | None) -> Any:
    if random.random() < 0.2:
        return Fixed(random.randint(0, 6))
    offset, due = (Fraction(random.randint(0, 1000), 1000) for _ in "ab")
    thresholds = (
        () if relative else tuple(sorted(Fraction(random.randint(0, 1000), 1000) for _ in range(6)))
    )
    return Deadline("E", offset, thresholds, 1, 7, relative, due, random.choice([None, -3, 0, 2]))


@needs("eBPF at interfaces")
@pytest.mark.parametrize("seed", range(40))
def test_packets_get_the_rank_of_their_flow(seed: int) -> None:
    """Each packet is of a flow and an iteration that the test knows, because it sends them."""
    random = Random(seed)
    period = Fraction(random.randint(50, 2000), 1000)
    relative = Relative(
        period, Fraction(random.randint(0, 100), 100), Fraction(0), Fraction(1), (Fraction(1, 10),)
    )
    chosen = relative if random.random() < 0.6 else None
    sizes = [random.randint(100, 9000) for _ in range(random.randint(1, 7))]
    peers = random.randint(1, min(3, len(sizes)))
    rules = rules_of([ranking_of(random, chosen) for _ in sizes], sizes, peers)
    first = FlowRank(rules[0])
    shared = {rule.echelonflow: FlowRank(rule).state for rule in rules}
    ranks = [FlowRank(rule, shared[rule.echelonflow]) for rule in rules]
    streams = [first.stream, *(FlowRank(rules[0]).stream for _ in range(peers - 1))]
    for n, of in enumerate(ranks):
        of.stream = streams[n % peers]
    now_us, base = (
        random.randint(10**9, 10**12),
        [random.randint(0, 2**32 - 1) for _ in range(peers)],
    )
    sent = [0] * peers
    with HostRanking(OWN) as ranking:
        ranking.update(rules)
        for iteration in range(1, 6):
            waiting = {
                peer: [n for n in range(len(sizes)) if n % peers == peer] for peer in range(peers)
            }
            positions = [0] * peers
            began = dict(enumerate(sent))
            # The first connection opens the iteration.
            order = [0]
            while any(waiting.values()):
                peer = (
                    order.pop()
                    if order
                    else random.choice([peer for peer, left in waiting.items() if left])
                )
                n = waiting[peer][0]
                segment = rules[n].identity
                assert isinstance(segment, SegmentIdentity)
                size = min(random.randint(1, 1448), segment.end_bytes - positions[peer])
                now_us += random.randint(0, STEP_US)
                resent = positions[peer] > 0 and random.random() < 0.15
                position = random.randint(0, positions[peer] - 1) if resent else positions[peer]
                size = min(size, positions[peer] - position) if resent else size
                of = next(m for m in range(n % peers, n + 1, peers) if position < _end(rules[m]))
                left = _end(rules[of]) - position
                frame = tcp_frame(
                    OWN, segment.dst_ipv4, (100, 200), base[peer] + began[peer] + position, size
                )
                queue = through(ranking, frame, now_us)[15] >> 5
                packet = RankPacket(iteration, left, size >= left, False, resent)
                assert queue == ranks[of].rank(now_us, packet).queue, (iteration, of, position)
                if not resent:
                    positions[peer] += size
                    sent[peer] += size
                    if positions[peer] == segment.end_bytes:
                        waiting[peer].pop(0)
            now_us += round(GAP_S * 10**6) + random.randint(1, 10**6)


def _end(rule: HostRule) -> int:
    assert isinstance(rule.identity, SegmentIdentity)
    return rule.identity.end_bytes


@needs("eBPF at interfaces")
def test_what_a_program_sends_beside_is_of_the_last_flow() -> None:
    rules = rules_of([Fixed(5), Fixed(3)], [1000, 1000], 1)
    with HostRanking(OWN) as ranking:
        ranking.update(rules)
        queues = [
            through(
                ranking, tcp_frame(OWN, "127.0.0.2", (100, 200), 7 + start, 1000), 10**9 + start
            )[15]
            >> 5
            for start in range(0, 12_000, 1000)
        ]
    assert queues[:3] == [5, 3, 3]
    # Far more is of no flow.
    assert queues[3:] == [3] * 8 + [0]


@needs("eBPF at interfaces")
def test_other_packets_stay_as_they_are_and_checksums_are_right() -> None:
    rules = rules_of([Fixed(5)], [10_000], 1)
    with HostRanking(OWN) as ranking:
        ranking.update(rules)
        known = tcp_frame(OWN, "127.0.0.2", (100, 200), 7, 100, tos=0x43)
        assert through(ranking, known, 10**9) == tcp_frame(
            OWN, "127.0.0.2", (100, 200), 7, 100, tos=5 << 5 | 3
        )
        nothing = tcp_frame(OWN, "127.0.0.2", (100, 200), 107, 0)
        assert through(ranking, nothing, 10**9) == tcp_frame(
            OWN, "127.0.0.2", (100, 200), 107, 0, tos=7 << 5 | 2
        )
        for other in (
            tcp_frame(OWN, "127.0.0.2", (101, 200), 7, 100),
            tcp_frame(OWN, "127.0.0.3", (100, 200), 7, 100),
            ipv4(
                number(OWN),
                number("127.0.0.2"),
                17,
                struct.pack("!HHHH", 100, 200, 108, 0) + bytes(100),
            ),
            ipv4(number(OWN), number("127.0.0.2"), 6, known[34:], fragment=1),
            known[:40],
        ):
            assert through(ranking, other, 10**9) == other
        ranking.update(())
        assert through(ranking, known, 10**9) == known


@needs("eBPF at interfaces")
def test_a_receiver_marks_its_acknowledgements_only() -> None:
    (rule,) = rules_of([Fixed(5)], [10_000], 1)
    assert isinstance(rule.identity, SegmentIdentity)
    arriving = replace(rule, identity=replace(rule.identity, src_ipv4="127.0.0.2", dst_ipv4=OWN))
    with HostRanking(OWN) as ranking:
        ranking.update([arriving])
        answer = tcp_frame(OWN, "127.0.0.2", (200, 100), 7, 0)
        assert through(ranking, answer, 10**9) == tcp_frame(
            OWN, "127.0.0.2", (200, 100), 7, 0, tos=7 << 5 | 2
        )
        data = tcp_frame(OWN, "127.0.0.2", (200, 100), 7, 100)
        assert through(ranking, data, 10**9) == data


def test_rules_survive_being_told() -> None:
    for rule in rules_of(
        [Fixed(5), Deadline("E", Fraction(1, 3), (Fraction(1),) * 6, 1, 7)], [10, 20], 1
    ):
        assert HostRule.of_document(json.loads(json.dumps(rule.to_document()))) == rule


TALK = """
import socket, struct, sys, time
sys.path[:0] = sys.argv[1:]
import subprocess
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
from plugins.torch.tests.agent.test_ranking import rules_of
from echelon.planning.rankings.fixed import Fixed
from echelon_torch.agent.ranking import HostRanking
seen = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
seen.bind(("lo", 0))
seen.settimeout(0.2)
server = socket.create_server(("127.0.0.2", 200))
ours = socket.socket()
ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
ours.bind(("127.0.0.1", 100))
with HostRanking("127.0.0.1") as ranking:
    ranking.update(rules_of([Fixed(3), Fixed(6), Fixed(1)], [5000, 5000, 5000], 1))
    ours.connect(("127.0.0.2", 200))
    theirs, _ = server.accept()
    for size in (2500, 2500, 2500, 2500, 2500, 2500):
        ours.sendall(bytes(size))
        left = size
        while left:
            left -= len(theirs.recv(left))
        time.sleep(0.1)  # until it is acknowledged
    answers = []
    try:
        while True:
            frame, (_, _, kind, *_) = seen.recvfrom(1 << 17)
            if kind == 4 and frame[12:14] == b"\\x08\\x00" and frame[23] == 6:
                size = len(frame) - 34 - 4 * (frame[46] >> 4)
                print(frame[29], size, frame[15] >> 5, frame[47])
    except TimeoutError:
        pass
"""


@needs("eBPF at interfaces", "network namespaces", "ip")
def test_real_connections_rise_when_all_is_acknowledged() -> None:
    """Over the loopback interface of a namespace of its own.

    One end ranks what it sends, and what it acknowledges.
    """
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", TALK, *sys.path],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    rows = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert [queue for source, size, queue, _ in rows if size] == [3, 3, 6, 6, 1, 1]
    assert {queue for source, size, queue, _ in rows if not size and source == 1} == {7}
    assert {queue for source, _, queue, _ in rows if source == 2} == {0}


HOLD = """
import sys
sys.path[:0] = sys.argv[1:]
from echelon_torch.agent.ranking import HostRanking
with HostRanking("127.0.0.1"):
    print(flush=True)
    sys.stdin.read()
"""


@needs("eBPF at interfaces")
@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_nothing_is_left_however_it_ends(number: signal.Signals | None) -> None:
    before = kernel.programs(), kernel.links()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline()
    during = kernel.programs(), kernel.links()
    new = [now - then for now, then in zip(during, before, strict=True)]
    assert [len(one) for one in new] == [1, 1]
    if number is not None:
        holder.send_signal(number)
    holder.communicate(timeout=PATIENCE_S)
    give_up_at = time.monotonic() + PATIENCE_S
    while kernel.programs() & new[0] or kernel.links() & new[1]:
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def test_an_address_that_no_interface_has_is_refused() -> None:
    with pytest.raises(AgentError, check=naming("192.0.2.1")):
        HostRanking("192.0.2.1")
