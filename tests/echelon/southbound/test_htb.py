# ruff: noqa: E501 - what tc prints is not broken up
"""HTB trees: what settings become, against numbers worked out by hand, iproute2's commands, and the
kernel.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.targets.bmv2.htb import QUEUES, HtbTree, Leaf, Port, settings_of, tree_of
from echelon.switches.targets.bmv2.queues import Bmv2Queues, ShapedPort
from echelon.switches.targets.bmv2.shaper import HANDLE, Root, Shaper
from echelon.switches.targets.bmv2.sockets import socket_bytes
from tests import namespaces
from tests.faults import coded, naming
from tests.namespaces import Namespace
from tests.needs import needs, require
from tests.shared import refused

TEN = Port(10_000_000)


def setting(
    queue: int, level: int | None = None, weight: int = 1, low: int = 0, high: int | None = None
) -> QueueSetting:
    return QueueSetting(1, queue, queue if level is None else level, weight, low, high)


STRICT = tuple(setting(queue) for queue in range(QUEUES))


# -- by hand ---------------------------------------------------------------------------------------

# Level 2 holds queues 1 and 2 by 2 : 3; queue 0 has 1 % at least and 25 % at most; the others are
# strict.
BY_HAND = (
    setting(0, low=100_000, high=2_500_000),
    setting(1, level=2, weight=2),
    setting(2, level=2, weight=3),
    *STRICT[3:],
)
# 10 Mbit/s: a burst of a millisecond is 1250 bytes, less than the two frames of 1514 that a bucket
# holds at least. A queue without minimum has 10 Mbit/s / 10,000, and a queue's own bucket holds one
# frame.
COMMANDS = """\
qdisc add dev s1-eth3 root handle ec: htb default 10
class add dev s1-eth3 parent ec: classid ec:1 htb rate 10000000bit ceil 10000000bit burst 3028 cburst 3028
class add dev s1-eth3 parent ec:1 classid ec:10 htb rate 100000bit ceil 2500000bit burst 1514 cburst 1514 prio 7 quantum 1514
qdisc add dev s1-eth3 parent ec:10 handle ec10: pfifo limit 11
class add dev s1-eth3 parent ec:1 classid ec:11 htb rate 1000bit ceil 10000000bit burst 1514 cburst 1514 prio 5 quantum 1514
qdisc add dev s1-eth3 parent ec:11 handle ec11: pfifo limit 11
class add dev s1-eth3 parent ec:1 classid ec:12 htb rate 1000bit ceil 10000000bit burst 1514 cburst 1514 prio 5 quantum 2271
qdisc add dev s1-eth3 parent ec:12 handle ec12: pfifo limit 11
class add dev s1-eth3 parent ec:1 classid ec:13 htb rate 1000bit ceil 10000000bit burst 1514 cburst 1514 prio 4 quantum 1514
qdisc add dev s1-eth3 parent ec:13 handle ec13: pfifo limit 11
class add dev s1-eth3 parent ec:1 classid ec:14 htb rate 1000bit ceil 10000000bit burst 1514 cburst 1514 prio 3 quantum 1514
qdisc add dev s1-eth3 parent ec:14 handle ec14: pfifo limit 11
class add dev s1-eth3 parent ec:1 classid ec:15 htb rate 1000bit ceil 10000000bit burst 1514 cburst 1514 prio 2 quantum 1514
qdisc add dev s1-eth3 parent ec:15 handle ec15: pfifo limit 11
class add dev s1-eth3 parent ec:1 classid ec:16 htb rate 1000bit ceil 10000000bit burst 1514 cburst 1514 prio 1 quantum 1514
qdisc add dev s1-eth3 parent ec:16 handle ec16: pfifo limit 11
class add dev s1-eth3 parent ec:1 classid ec:17 htb rate 1000bit ceil 10000000bit burst 1514 cburst 1514 prio 0 quantum 1514
qdisc add dev s1-eth3 parent ec:17 handle ec17: pfifo limit 11
"""


# IPv4 with a header of 20 bytes, and the queue in the three upper bits of the second byte.
FILTERS = "".join(
    "filter add dev s1-eth3 parent ec: protocol ip pref 1 u32 match u32"
    f" {0x05 << 24 | queue << 5 << 16:#010x} {0x0F << 24 | 0xE0 << 16:#010x} at 0 flowid"
    f" ec:1{queue}\n"
    for queue in range(1, 8)
)


def test_the_tree_of_a_port() -> None:
    whole, least = 10_000_000, 1000
    assert tree_of(BY_HAND, TEN) == HtbTree(
        whole,
        (
            Leaf(100_000, 2_500_000, 7, 1514, 11),
            Leaf(least, whole, 5, 1514, 11),
            Leaf(least, whole, 5, 2271, 11),
            *(Leaf(least, whole, 7 - queue, 1514, 11) for queue in range(3, 8)),
        ),
    )


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        (STRICT[:7], ["queues 0 to 7", "0, 1, 2, 3, 4, 5, 6"]),
        ((*STRICT, STRICT[0]), ["queues 0 to 7", "0, 1, 2, 3, 4, 5, 6, 7, 0"]),
        ((replace(STRICT[0], level=8), *STRICT[1:]), ["queue 0: level 8", "0..7"]),
        ((replace(STRICT[0], weight=1024), *STRICT[1:]), ["queue 0: weight 1024", "1..1023"]),
        (
            (replace(STRICT[0], min_rate_bps=9, max_rate_bps=8), *STRICT[1:]),
            ["queue 0", "8 bit/s", "9 bit/s"],
        ),
        ((replace(STRICT[0], max_rate_bps=0), *STRICT[1:]), ["queue 0", "0 bit/s"]),
        (
            tuple(replace(s, min_rate_bps=1_250_001) for s in STRICT),
            ["10000008 bit/s", "10000000"],
        ),
    ],
)
def test_what_no_tree_can_carry(changed: tuple[QueueSetting, ...], names: list[str]) -> None:
    with pytest.raises(ValueError, check=naming(*names)):
        tree_of(changed, TEN)


def test_a_port_that_is_too_slow() -> None:
    with pytest.raises(ValueError, check=naming("1000 bit/s", "1664 bit/s")):
        tree_of(STRICT, Port(1000))


# -- for all settings ------------------------------------------------------------------------------


@st.composite
def ports(draw: st.DrawFn) -> Port:
    mtu = draw(st.sampled_from([1500, 9000]))
    return Port(draw(st.integers(100_000, 10**11)), mtu, draw(st.integers(1, 100)))


@st.composite
def settings_of_port(draw: st.DrawFn, port: Port) -> tuple[QueueSetting, ...]:
    levels = draw(st.lists(st.integers(0, 7), min_size=QUEUES, max_size=QUEUES))
    weights = draw(st.lists(st.integers(1, 1023), min_size=QUEUES, max_size=QUEUES))
    shares = draw(st.lists(st.integers(0, 125), min_size=QUEUES, max_size=QUEUES))
    out = []
    for queue in range(QUEUES):
        low = port.rate_bps * shares[queue] // 1000
        high = draw(st.none() | st.integers(max(low, 1), 2 * port.rate_bps))
        out.append(QueueSetting(1, queue, levels[queue], weights[queue], low, high))
    return tuple(out)


@given(st.data())
@settings(deadline=None)
def test_every_tree_keeps_what_was_asked_for(data: st.DataObject) -> None:
    port = data.draw(ports())
    asked = data.draw(settings_of_port(port))
    tree = tree_of(asked, port)
    least = max(8 * port.frame_bytes / 60, port.rate_bps / 10_000)
    assert tree.rate_bps <= port.rate_bps
    assert sum(leaf.rate_bps for leaf in tree.leaves) <= port.rate_bps + QUEUES * (
        least * 1.001 + 16
    )
    for wanted, leaf in zip(asked, tree.leaves, strict=True):
        assert leaf.prio == 7 - wanted.level
        assert leaf.rate_bps <= leaf.ceil_bps
        assert leaf.ceil_bps <= max(tree.rate_bps, least + 16)
        assert leaf.rate_bps >= wanted.min_rate_bps * Fraction(999, 1000) - 8
        assert leaf.rate_bps <= max(wanted.min_rate_bps, least * 1.001 + 16)
        # HTB sends whole frames: a smaller quantum would not be kept. And the kernel keeps bursts
        # below 274 s.
        assert leaf.quantum_bytes >= port.frame_bytes
        assert 8 * port.frame_bytes / leaf.rate_bps < 274
    for _, members in groupby(
        sorted(zip(asked, tree.leaves, strict=True), key=lambda m: m[0].level), lambda m: m[0].level
    ):
        level = list(members)
        heaviest = max(a.weight for a, _ in level)
        for a, x in level:
            # Turns of more than eight frames would starve who has a window; the lightest queues
            # have an eighth instead.
            assert x.quantum_bytes <= 8 * port.frame_bytes
            for b, y in level:
                share = Fraction(x.quantum_bytes, y.quantum_bytes)
                exact = max(Fraction(a.weight), Fraction(heaviest, 8)) / max(
                    Fraction(b.weight), Fraction(heaviest, 8)
                )
                assert abs(share / exact - 1) <= Fraction(2, port.frame_bytes) + Fraction(1, 127)
                if heaviest <= 8 * min(a.weight for a, _ in level):
                    assert abs(share / exact - 1) <= Fraction(2, port.frame_bytes)
    # The same tree is read as settings that make it again.
    read = settings_of(tree, 1, port)
    assert read is not None
    assert tree_of(read, port) == tree
    assert [s.level for s in read] == [s.level for s in asked]


def test_settings_that_fit_are_read_exactly() -> None:
    assert settings_of(tree_of(STRICT, TEN), 1, TEN) == STRICT
    assert settings_of(tree_of(BY_HAND, TEN), 1, TEN) == BY_HAND


def test_somebody_elses_tree_has_no_settings() -> None:
    tree = tree_of(BY_HAND, TEN)
    assert settings_of(replace(tree, rate_bps=5_000_000), 1, TEN) is None
    shallow = tuple(replace(leaf, limit_packets=3) for leaf in tree.leaves)
    assert settings_of(replace(tree, leaves=shallow), 1, TEN) is None
    light = (*tree.leaves[:1], replace(tree.leaves[1], quantum_bytes=700), *tree.leaves[2:])
    assert settings_of(replace(tree, leaves=light), 1, TEN) is None


# -- the kernel ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network() -> Iterator[Namespace]:
    require("HTB trees")
    with namespaces.namespace() as made:
        yield made


@pytest.fixture
def wire(network: Namespace) -> Iterator[Namespace]:
    """Yield a namespace with interfaces p1 and p2, and their peers p1_h and p2_h."""
    network.veth("p1", "p2")
    yield network
    network.run("ip link del p1; ip link del p2")


def driver(wire: Namespace, port: Port = TEN, ports: tuple[int, ...] = (1,)) -> Bmv2Queues:
    return Bmv2Queues("s1", [ShapedPort(number, f"p{number}", port) for number in ports], wire.path)


def by_queue(settings: tuple[QueueSetting, ...]) -> dict[tuple[int, int], QueueSetting]:
    return {(s.port, s.queue): s for s in settings}


def root_of(wire: Namespace, interface: str = "p1") -> Root:
    with Shaper(wire.path).interface(interface) as opened:
        return opened.read()


def shown(wire: Namespace, interface: str = "p1") -> list[str]:
    """Return iproute2's output for an interface, without counters and what differs from build to
    build.
    """
    text = wire.run(
        "; ".join(f"tc -d {what} show dev {interface}" for what in ("qdisc", "class", "filter"))
    )
    text = re.sub(r" (direct_qlen|r2q|refcnt|direct_packets_stat|ver) \S+", "", text)
    return sorted(text.replace(interface, "").splitlines())


def test_the_tree_is_as_iproute2_would_build_it(wire: Namespace) -> None:
    """iproute2's bursts may be a tick of 64 ns shorter: it rounds twice."""
    wire.run(f"tc -batch - <<'END'\n{(COMMANDS + FILTERS).replace('s1-eth3', 'p2')}END\n")
    asyncio.run(driver(wire).write(BY_HAND))
    assert shown(wire, "p1") == shown(wire, "p2")
    assert root_of(wire, "p1") == root_of(wire, "p2") == Root("htb", HANDLE, tree_of(BY_HAND, TEN))


def test_fast_ports_have_bursts_of_a_millisecond(wire: Namespace) -> None:
    port = Port(10**9)
    asyncio.run(driver(wire, port).write(STRICT))
    assert re.search(
        r"class htb ec:1 root rate 1Gbit ceil 1Gbit .*burst 125000b/1 .*cburst 125000b/1 ",
        "\n".join(shown(wire)),
    )


def test_a_port_faster_than_32_bits_of_bytes_per_second(wire: Namespace) -> None:
    port = Port(100 * 10**9)
    asyncio.run(driver(wire, port).write(STRICT))
    assert "class htb ec:1 root rate 100Gbit ceil 100Gbit" in "\n".join(shown(wire))
    assert root_of(wire).tree == tree_of(STRICT, port)


def test_a_tree_is_changed_where_it_differs(wire: Namespace) -> None:
    """Classes and queues that stay keep their counts, and those that change keep theirs, too."""
    asyncio.run(driver(wire).write(BY_HAND))
    wire.python(SEND, "p1", "0", "3", "200")
    swapped = (
        *BY_HAND[:1],
        replace(BY_HAND[1], weight=3),
        replace(BY_HAND[2], weight=2),
        *BY_HAND[3:],
    )
    for port in (TEN, Port(20_000_000), replace(TEN, depth_packets=12)):
        asyncio.run(driver(wire, port).write(swapped))
        assert root_of(wire).tree == tree_of(swapped, port)
        assert sent(wire, "ec:10") == 3


def test_what_the_kernel_made_itself_is_told_from_what_others_made(wire: Namespace) -> None:
    assert root_of(wire) == Root("noqueue", 0)
    wire.run("tc qdisc add dev p1 root handle 8001: tbf rate 1mbit burst 2000 limit 3000")
    found = root_of(wire)
    assert (found.kind, found.handle, found.is_default, found.is_ours) == (
        "tbf",
        0x80010000,
        False,
        False,
    )


async def test_the_kernel_holds_what_was_written(wire: Namespace) -> None:
    queues = driver(wire, ports=(1, 2))
    await queues.open(None)
    assert await queues.read() == {}
    second = tuple(replace(s, port=2, weight=s.queue + 1, level=0) for s in STRICT)
    await queues.write([*BY_HAND, *second])
    wanted = by_queue((*BY_HAND, *second))
    assert await queues.read() == wanted
    assert (await asyncio.to_thread(root_of, wire)).tree == tree_of(BY_HAND, TEN)
    # Another controller, which was never asked for anything, reads the same from the kernel.
    assert await driver(wire, ports=(1, 2)).read() == wanted


ODD = tuple(
    replace(
        s,
        weight=3 + 2 * s.queue,
        level=s.queue // 3,
        min_rate_bps=123_457 * s.queue,
        max_rate_bps=m,
    )
    for s, m in zip(
        STRICT,
        (7_777_777, None, 1_234_567, None, 999_999, None, 9_999_999, 20_000_000),
        strict=True,
    )
)


async def test_settings_between_the_kernels_steps_are_drift_for_nobody(wire: Namespace) -> None:
    """Rates that are no whole bytes, and weights that are not the smallest, are read back as they
    were asked for.
    """
    queues = driver(wire)
    await queues.write(ODD)
    assert await queues.read() == by_queue(ODD)
    assert (await asyncio.to_thread(root_of, wire)).tree == tree_of(ODD, TEN)
    # Another controller writes the same anew, as it cannot know; the tree stays the same one.
    handles = wire.run("tc -s class show dev p1")
    other = driver(wire)
    await other.write(ODD)
    assert await other.read() == by_queue(ODD)
    assert wire.run("tc -s class show dev p1") == handles


SEND = """
import socket, sys
interface, tos, count, length = sys.argv[1], *map(int, sys.argv[2:])
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind((interface, 0))
frame = bytes(12) + b"\\x08\\x00\\x45" + bytes([tos]) + bytes(length - 16)
for _ in range(count):
    raw.send(frame)
"""


def sent(wire: Namespace, what: str) -> int:
    """Return the packets that a class or queue has sent."""
    found = re.search(
        rf"{what} .*?Sent \d+ bytes (\d+) pkt", wire.run("tc -s class show dev p1"), re.DOTALL
    )
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize(
    ("tos", "queue"),
    [(0x00, 0), (0x20, 1), (0xE0, 7), (0x62, 3), (0xBF, 5)],
)
def test_packets_go_to_the_queue_that_their_dscp_names(
    wire: Namespace, tos: int, queue: int
) -> None:
    asyncio.run(driver(wire).write(STRICT))
    wire.python(SEND, "p1", str(tos), "3", "200")
    counts = [sent(wire, f"ec:1{q}") for q in range(QUEUES)]
    assert counts == [3 if q == queue else 0 for q in range(QUEUES)]


def test_what_the_switch_has_not_marked_goes_to_queue_0(wire: Namespace) -> None:
    asyncio.run(driver(wire).write(STRICT))
    with_options = SEND.replace("\\x45", "\\x46")
    wire.python(with_options, "p1", str(0xE0), "2", "200")
    wire.python(SEND.replace("\\x08\\x00", "\\x08\\x06"), "p1", str(0xE0), "2", "200")
    assert [sent(wire, f"ec:1{q}") for q in range(QUEUES)] == [4, *[0] * 7]


async def test_packets_wait_on_while_the_tree_changes(wire: Namespace) -> None:
    slow = Port(10_000)
    queues = driver(wire, slow)
    await queues.write(STRICT)
    # Two frames leave at once, the others one every 1.2 s.
    wire.python(SEND, "p1", "0", "10", "1514")
    await queues.write([replace(s, level=3, weight=5, min_rate_bps=1000) for s in STRICT])
    shown = wire.run("tc -s class show dev p1")
    found = re.search(r"ec:10 .*?Sent \d+ bytes (\d+) pkt .*?backlog \S+ (\d+)p", shown, re.DOTALL)
    assert found is not None
    left, waiting = map(int, found.groups())
    assert left + waiting == 10
    assert waiting > 0


@pytest.mark.parametrize(
    "damage",
    [
        "tc qdisc del dev p1 root",
        "tc filter del dev p1 parent ec:",
        "tc filter add dev p1 parent ec: protocol ip pref 9 u32 match u32 0 0 at 0 flowid ec:17",
        (
            "tc class change dev p1 parent ec:1 classid ec:13 htb rate 1000bit ceil 1mbit prio 4"
            " quantum 1514"
        ),
        (
            "tc class change dev p1 parent ec:1 classid ec:13 htb rate 1000bit ceil 10mbit prio 0"
            " quantum 1514"
        ),
        (
            "tc class change dev p1 parent ec:1 classid ec:13 htb rate 1000bit ceil 10mbit prio 4"
            " quantum 15140"
        ),
        "tc class change dev p1 parent ec: classid ec:1 htb rate 9mbit ceil 9mbit",
        "tc qdisc change dev p1 parent ec:15 handle ec15: pfifo limit 99",
        "tc qdisc replace dev p1 parent ec:15 handle 15: bfifo limit 9999",
        "tc class add dev p1 parent ec:1 classid ec:99 htb rate 1mbit",
        "tc qdisc del dev p1 root; tc qdisc add dev p1 root handle ec: htb default 17",
    ],
)
async def test_drift_is_found_and_repaired(wire: Namespace, damage: str) -> None:
    queues = driver(wire)
    await queues.write(BY_HAND)
    wire.run(damage)
    read = await queues.read()
    wrong = [s for s in BY_HAND if read.get((s.port, s.queue)) != s]
    assert wrong
    await queues.write(wrong)
    assert await queues.read() == by_queue(BY_HAND)
    assert (await asyncio.to_thread(root_of, wire)).tree == tree_of(BY_HAND, TEN)


def refusal(queues: Bmv2Queues, settings: tuple[QueueSetting, ...] = STRICT) -> str:
    with refused("switch-failed", error=SouthboundError) as caught:
        asyncio.run(queues.write(settings))
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_what_others_have_put_there_stays(wire: Namespace) -> None:
    wire.run("tc qdisc add dev p1 root handle 7: tbf rate 1mbit burst 2000 limit 3000")
    before = wire.run("tc qdisc show dev p1")
    assert asyncio.run(driver(wire).read()) == {}
    text = refusal(driver(wire))
    assert text.startswith("switch s1, port 1 (p1): ")
    assert " tbf " in text
    assert text.endswith(": tc qdisc del dev p1 root")
    assert wire.run("tc qdisc show dev p1") == before


def test_an_interface_that_is_not_there(wire: Namespace) -> None:
    nowhere = Bmv2Queues("s1", [ShapedPort(1, "p1", TEN), ShapedPort(2, "px", TEN)], wire.path)
    both = (*STRICT, *(replace(s, port=2) for s in STRICT))
    assert (
        refusal(nowhere, both)
        == f"switch s1, port 2 (px): there is no such interface in namespace {wire.path}; "
        "check `interfaces` and `namespace`"
    )
    assert root_of(wire).tree == tree_of(STRICT, TEN), "the other port is written all the same"


def test_a_refusal_says_how_many_ports_it_is_about(wire: Namespace) -> None:
    nowhere = Bmv2Queues("s1", [ShapedPort(n, f"px{n}", TEN) for n in (1, 2, 3)], wire.path)
    text = refusal(nowhere, tuple(replace(s, port=n) for s in STRICT for n in (1, 2, 3)))
    assert text.startswith("switch s1, port 1 (px1): ")
    assert wire.path in text
    assert re.search(r"\(\D+ 2 \D+\)$", text)


def test_a_port_without_interface(wire: Namespace) -> None:
    text = refusal(driver(wire), tuple(replace(s, port=9) for s in STRICT))
    assert text.startswith("switch s1: port 9 ")
    assert "`interfaces`" in text


def test_settings_that_do_not_fit_leave_the_port_as_it_is(wire: Namespace) -> None:
    queues = driver(wire)
    asyncio.run(queues.write(BY_HAND))
    greedy = tuple(replace(s, min_rate_bps=9_000_000) for s in STRICT)
    text = refusal(queues, greedy)
    assert text.startswith("switch s1, port 1 (p1): ")
    assert " 72000000 bit/s" in text
    assert asyncio.run(queues.read()) == by_queue(BY_HAND)


@needs("HTB trees")
def test_a_namespace_that_is_not_there() -> None:
    gone = Bmv2Queues("s1", [ShapedPort(1, "p1", TEN)], "nosuch")
    assert (
        refusal(gone)
        == "switch s1, port 1 (p1): there is no network namespace nosuch; is the switch running?"
    )


@needs("setpriv", "HTB trees")
def test_without_permission() -> None:
    script = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from echelon.switches.targets.bmv2.shaper import Shaper, ShaperError\n"
        "try:\n"
        "    with Shaper().interface('lo') as interface: interface.remove()\n"
        "except ShaperError as error: print(error)\n"
    )
    command = [
        "unshare",
        "--net",
        "setpriv",
        "--bounding-set",
        "-all",
        "--inh-caps",
        "-all",
        sys.executable,
        "-c",
        script,
    ]
    done = subprocess.run([*command, *sys.path], capture_output=True, text=True, check=True)
    assert done.stdout == "not permitted; run as root, or with CAP_NET_ADMIN\n"


def test_queues_that_a_socket_cannot_fill_are_refused() -> None:
    """The kernel's figure here is 2048 bytes for the frame of 1514 and the skb's data, and 256 for
    the skb.
    """
    assert socket_bytes(1514) == 2304
    deep = Bmv2Queues("s1", [ShapedPort(1, "p1", replace(TEN, depth_packets=10_000))])
    too_deep = coded("switch-failed", "switch s1: depth 10000: 8 queues", "net.core.wmem_default")
    with pytest.raises(SouthboundError, check=too_deep):
        asyncio.run(deep.open(None))
    asyncio.run(Bmv2Queues("s1", [ShapedPort(1, "p1", replace(TEN, depth_packets=1))]).open(None))
