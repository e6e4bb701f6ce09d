"""Topologies of other tools: nodes, links, rates and paths as counted another way."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from echelon.model.documents import DocumentError
from echelon.model.fabric.model import Fabric
from echelon_importers.topologies.conversion import fitted
from echelon_importers.topologies.hostlist import HostlistError, expanded
from plugins.importers.tests.topology_files import DATA, fabric, imported, rate, shape, simai
from tests.faults import coded, naming


def ways(network: Fabric, a: str, b: str) -> list[tuple[str, ...]]:
    """Return the shortest paths between two hosts, which are the ends of each."""
    return [(a, *switches, b) for switches in network.shortest_paths.switches(a, b)]


# -- ns-3 ------------------------------------------------------------------------------------------


def test_two_datacentres_of_ns3() -> None:
    """Nodes 0 to 3 are the hosts; 4, 5 and 6, the second line, are switches; 6 joins 4 and 5."""
    file = DATA / "ns3-two-datacentres.txt"
    network = fabric("ns3", file.name)
    assert shape(network) == (4, 3, 6)
    for line in file.read_text().splitlines()[2:]:
        a, b, speed, delay, _ = line.split()
        ends = [f"h{int(node) + 1}" if int(node) < 4 else f"s{node}" for node in (a, b)]
        assert rate(network, *ends) == int(speed.removesuffix("Gbps"))
        delay_s = Fraction(delay.removesuffix("ms")) / 1000
        assert network.delay_s[ends[0], ends[1]] == pytest.approx(float(delay_s))
    assert ways(network, "h1", "h3") == [("h1", "s4", "s6", "s5", "h3")]


@pytest.mark.parametrize(("servers", "gpus", "cores"), [(2, 4, 2), (3, 8, 1), (4, 2, 4)])
def test_servers_of_simai_are_hosts_of_several_links(servers: int, gpus: int, cores: int) -> None:
    network = fabric("ns3", simai(servers, gpus, cores))
    assert shape(network) == (servers, gpus + cores, servers * gpus + gpus * cores)
    nvlinks = servers * gpus
    first_rail = servers * gpus + servers
    for server, rail in product(range(1, servers + 1), range(gpus)):
        assert rate(network, f"h{server}", f"s{first_rail + rail}") == 400
    # A packet between servers may take each rail.
    assert len(ways(network, "h1", "h2")) == gpus
    tally = imported("ns3", simai(servers, gpus, cores)).tally
    assert tally.ignored["links to NVSwitches"] == nvlinks
    assert f"--ranks-per-host {gpus} --local-bandwidth '2880 Gbit/s'" in " ".join(tally.notes)


def test_gpus_of_simai_may_be_hosts() -> None:
    network = fabric("ns3", simai(2, 4, 2), gpus="hosts")
    assert shape(network) == (8, 8, 24)
    assert ways(network, "h1", "h2") == [("h1", "s8", "h2")]
    assert rate(network, "h1", "s8") == 2880
    # Of the same rail: one switch; of another rail and server: by a core.
    assert ways(network, "h1", "h5") == [("h1", "s10", "h5")]
    assert len(ways(network, "h1", "h6")) == 2


def test_a_server_of_simai_is_where_its_nvswitch_is() -> None:
    crossed = simai(2, 4, 2).replace(b"\n3 8 2880Gbps", b"\n3 9 2880Gbps")
    with pytest.raises(DocumentError, check=naming("NVSwitch 9", "gpus=hosts")):
        imported("ns3", crossed)


def test_hosts_that_ns3_links_to_hosts_get_switches() -> None:
    ring = b"4 0 4\n\n" + b"".join(b"%d %d 25Gbps 5us 0.1\n" % (n, (n + 1) % 4) for n in range(4))
    network = fabric("ns3", ring)
    assert shape(network) == (4, 4, 8)
    assert rate(network, "h1", "h1-sw") == 50
    assert {len(way) for way in ways(network, "h1", "h3")} == {5}
    assert imported("ns3", ring).tally.ignored.total() == 4


@pytest.mark.parametrize(
    ("speed", "gbps"),
    [
        ("400Gbps", 400),
        ("2.5Gb/s", Fraction(5, 2)),
        ("50GBps", 400),
        ("1000Mbps", 1),
        ("1Tbps", 1000),
        ("1GiB/s", Fraction(2**33, 10**9)),
    ],
)
def test_rates_in_the_units_of_ns3(speed: str, gbps: Fraction) -> None:
    text = f"3 1 2\n2\n0 2 {speed} 1us 0\n1 2 {speed} 1us 0\n"
    assert rate(fabric("ns3", text.encode()), "h1", "s2") == gbps


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", ("file",)),
        ("3 1\n2\n", ("line 1", 2)),
        ("3 1 3\n2\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0\n", (2, 3)),
        ("3 1 2\n2\n0 2 1Gbps 1us 0\n1 3 1Gbps 1us 0\n", ("line 4", "3")),
        ("3 1 2\n2\n0 2 fast 1us 0\n1 2 1Gbps 1us 0\n", ("line 3", "fast")),
        ("3 1 2\n2\n0 2 1Gbps soon 0\n1 2 1Gbps 1us 0\n", ("line 3", "soon")),
        ("3 2 2\n2 2\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0\n", ("line 2", "2")),
        ("1 4 1\n0\n", ("line 1",)),
        ("99999999 1 2\n2\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0\n", ("line 1", 99999999)),
    ],
)
def test_what_ns3_would_not_read_is_refused(text: str, facts: tuple[object, ...]) -> None:
    with pytest.raises(DocumentError, check=naming(*facts)):
        imported("ns3", text.encode())


def test_what_stands_behind_the_links_is_said() -> None:
    text = b"3 1 2\n2\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0\nFirst line: total node #\n"
    tally = imported("ns3", text).tally
    assert tally.ignored["words behind the last link"] == 5
    assert "line 5" in " ".join(tally.notes)


# -- htsim -----------------------------------------------------------------------------------------


def test_three_tiers_of_htsim() -> None:
    """24 hosts in 3 pods of 2 ToRs and 2 aggregation switches; 2 core switches, one for each place
    of an aggregation switch.
    """
    network = fabric("htsim", "three-tiers.topo")
    assert shape(network) == (24, 6 + 6 + 2, 24 + 3 * 2 * 2 + 3 * 2)
    assert rate(network, "h1", "tor1") == 100
    assert rate(network, "tor1", "agg2") == 200
    assert rate(network, "agg4", "core2") == 400
    assert ways(network, "h1", "h4") == [("h1", "tor1", "h4")]
    assert len(ways(network, "h1", "h5")) == 2
    assert ways(network, "h1", "h24") == [
        ("h1", "tor1", "agg1", "core1", "agg5", "tor6", "h24"),
        ("h1", "tor1", "agg2", "core2", "agg6", "tor6", "h24"),
    ]
    assert network.delay_s["agg1", "core1"] == pytest.approx(2e-6)
    # No switch is oversubscribed: what comes from below can go on.
    for switch in network.switches:
        above = {"tor": "agg", "agg": "core", "core": "-"}[switch.rstrip("0123456789")]
        by_side = {True: Fraction(0), False: Fraction(0)}
        for node in network.ports[switch].values():
            by_side[node.startswith(above)] += rate(network, switch, node)
        assert by_side[True] == (0 if above == "-" else by_side[False])
    assert imported("htsim", "three-tiers.topo").tally.ignored["Switch_Latency_ns of a tier"] == 1


@pytest.mark.parametrize(
    ("word", "other", "facts"),
    [
        ("Podsize 8", "Podsize 7", ("24", "7")),
        ("Radix_Down 6", "Radix_Down 4", ("Tier 2", "4")),
        ("Oversubscribed 1", "Oversubscribed 2", ("Tier 1", "400", "2")),
        ("Tiers 3", "Tiers 4", ("4",)),
        ("Tiers 3", "", ("Tiers",)),
        ("Radix_Up 2", "", ("Tier 1", "Radix_up")),
        ("Radix_Up 2", "Radix_Sideways 2", ("line 15", "Radix_Sideways")),
        ("Radix_Up 2", "Radix_Up two", ("line 15", "two")),
    ],
)
def test_contradictions_of_htsim_are_refused(
    word: str, other: str, facts: tuple[object, ...]
) -> None:
    text = (DATA / "three-tiers.topo").read_text().replace(word, other, 1)
    with pytest.raises(DocumentError, check=naming(*facts)):
        imported("htsim", text.encode())


def test_a_file_with_one_of_three_tiers_says_which_is_missing() -> None:
    with pytest.raises(DocumentError, check=coded("missing-key", "half.topo", "Tier 1")):
        imported("htsim", "half.topo")


# -- ASTRA-sim -------------------------------------------------------------------------------------


def test_dimensions_of_astra_sim() -> None:
    """Four switches of eight NPUs, eight rings of four; each NPU forwards."""
    network = fabric("astra-network", "astra-network.yml")
    assert shape(network) == (32, 32 + 4, 32 + 32 + 32)
    assert rate(network, "h8-sw", "dim1-s1") == 3200
    assert rate(network, "h1-sw", "h9-sw") == rate(network, "h1-sw", "h25-sw") == 400
    assert rate(network, "h1", "h1-sw") == 3200 + 2 * 400
    assert network.delay_s["h8-sw", "dim1-s1"] == pytest.approx(500e-9)


def test_a_dimension_inside_servers_is_left_out() -> None:
    network = fabric("astra-network", "astra-network.yml", inside=1)
    assert shape(network) == (4, 4, 8)
    assert rate(network, "h1-sw", "h2-sw") == 8 * 400
    tally = imported("astra-network", "astra-network.yml", inside=1).tally
    assert "--ranks-per-host 8 --local-bandwidth '3200 Gbit/s'" in " ".join(tally.notes)


def network_text(shapes: str, counts: str) -> bytes:
    many = ", ".join(["50.0"] * len(counts.split(",")))
    text = f"topology: [{shapes}]\nnpus_count: [{counts}]\nbandwidth: [{many}]\nlatency: [{many}]\n"
    return text.encode()


@pytest.mark.parametrize("sides", [(4, 4), (2, 3, 5), (7,)])
def test_rings_of_astra_sim_are_a_torus(sides: tuple[int, ...]) -> None:
    """An NPU is as many hops from NPU 0 as its coordinates are from 0, on the shorter way round."""
    text = network_text(", ".join(["Ring"] * len(sides)), ", ".join(map(str, sides)))
    network = fabric("astra-network", text)
    places = list(product(*(range(side) for side in reversed(sides))))
    links = sum(len(places) // (2 if side == 2 else 1) for side in sides)
    assert shape(network) == (len(places), len(places), len(places) + links)
    for number, place in enumerate(places[1:], start=2):
        hops = sum(
            min(step, side - step) for step, side in zip(place, reversed(sides), strict=True)
        )
        assert {len(way) - 3 for way in ways(network, "h1", f"h{number}")} == {hops}


def test_everybody_is_linked_to_everybody() -> None:
    network = fabric("astra-network", network_text("FullyConnected", "6"))
    assert shape(network) == (6, 6, 6 + 15)
    assert rate(network, "h6", "h6-sw") == 5 * 400


def test_a_gigabyte_may_be_that_of_astra_sim() -> None:
    network = fabric("astra-network", network_text("Switch", "2"), gigabyte="binary")
    assert rate(network, "h1", "dim1-s1") == Fraction(50 * 8 * 2**30, 10**9)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (b"topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 1 ]\n", ("latency",)),
        (network_text("Ring, Ring", "4"), ("2 of topology", "1 of npus_count")),
        (network_text("Mesh", "4"), ("topology[0]", "Mesh")),
        (network_text("Ring", "1"), ("npus_count[0]", 1)),
        (network_text("Ring", "4").replace(b"50.0", b"tbd", 1), ("bandwidth[0]", "tbd")),
        (network_text("FullyConnected", "60000"), ("60000",)),
        (b"[1, 2]", ("file",)),
        (b"topology: [", ("file",)),
    ],
)
def test_what_astra_sim_would_not_read_is_refused(text: bytes, facts: tuple[object, ...]) -> None:
    with pytest.raises(DocumentError, check=naming(*facts)):
        imported("astra-network", text)


# -- Slurm -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tux0", ["tux0"]),
        ("tux[0-3,12,18-20]", [f"tux{n}" for n in (0, 1, 2, 3, 12, 18, 19, 20)]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("r[0-1]n[1-2]x,login", ["r0n1x", "r0n2x", "r1n1x", "r1n2x", "login"]),
    ],
)
def test_lists_of_hosts(text: str, names: list[str]) -> None:
    assert expanded(text) == names


@pytest.mark.parametrize(
    "text", ["", "n[", "n[3-1]", "n[a-b]", "n[000x333]", "n[0-9999999]", "a,,b"]
)
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(HostlistError):
        expanded(text)


@pytest.mark.parametrize(
    ("file", "nodes", "spine"),
    [
        ("slurm-topology.conf", ("tux0", "tux4"), "s2"),
        ("slurm-topology.yaml", ("node01", "node05"), "root"),
    ],
)
def test_two_leaves_and_a_spine_of_slurm(file: str, nodes: tuple[str, str], spine: str) -> None:
    network = fabric("slurm", file, rate="100 Gbit/s", delay="1 us")
    assert shape(network) == (8, 3, 10)
    leaves = [network.ports[node][0] for node in nodes]
    assert ways(network, *nodes) == [(nodes[0], leaves[0], spine, leaves[1], nodes[1])]
    # A leaf sends up what its four nodes can send.
    assert rate(network, leaves[0], spine) == 4 * rate(network, nodes[0], leaves[0]) == 400
    half = fabric("slurm", file, rate="100 Gbit/s", oversubscription="2")
    assert rate(half, leaves[0], spine) == 200


def test_too_much_at_a_host_is_said_of_the_host() -> None:
    text = (
        b"topology: [ FullyConnected ]\nnpus_count: [ 16 ]\nbandwidth: [ 300.0 ]\nlatency: [ 5 ]\n"
    )
    # 15 links of 300 GB/s.
    with pytest.raises(DocumentError, match=r"36000 Gbit/s in all at 'h1', but .* 10000 Gbit/s"):
        imported("astra-network", text)


def test_what_scontrol_prints_of_slurm() -> None:
    text = (
        b"SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]\n"
        b"SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
        b"SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
    )
    network = fabric("slurm", text, rate="100 Gbit/s")
    assert shape(network) == (4, 3, 6)
    blocks = b"BlockName=a BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b Nodes=n[3-4]\n"
    assert shape(fabric("slurm", blocks, rate="1 Gbit/s")) == (4, 3, 6)


def test_slurm_knows_no_rates() -> None:
    with pytest.raises(
        DocumentError, check=coded("missing-key", "--rate '100 Gbit/s'", "10 of 10")
    ):
        imported("slurm", "slurm-topology.conf")


def test_several_spines_share_what_leaves_send() -> None:
    text = b"SwitchName=s0 Nodes=t[0-3] LinkSpeed=900\nSwitchName=s1 Nodes=t[4-7]\n"
    text += b"switchname=s[4-7] \\\n switches=s[0-1]  # the spines\n"
    network = fabric("slurm", text, rate="100 Gbit/s")
    assert shape(network) == (8, 6, 8 + 8)
    assert rate(network, "s0", "s4") == 100
    assert len(ways(network, "t0", "t7")) == 4


def test_blocks_of_slurm_have_a_switch_for_each_size() -> None:
    text = "".join(f"BlockName=b{n} Nodes=n[{4 * n}-{4 * n + 3}]\n" for n in range(8))
    network = fabric("slurm", f"{text}BlockSizes=4,8,16,64\n".encode(), rate="100 Gbit/s")
    # 8 blocks, 4 pairs, 2 pairs of pairs, and one for 64 nodes, of which there are 32.
    assert shape(network) == (32, 8 + 4 + 2 + 1, 32 + 8 + 4 + 2)
    lengths = {len(ways(network, "n0", f"n{other}")[0]) - 2 for other in (1, 4, 8, 31)}
    assert lengths == {1, 3, 5, 7}
    # The name after `blocks` is how many blocks the switch joins.
    assert rate(network, "blocks4-1", "blocks16-1") == 16 * 100


def slurm_yaml(kind: str) -> bytes:
    return (
        f"---\n- topology: a\n  flat: true\n- topology: b\n  cluster_default: true\n{kind}".encode()
    )


TORUS = """\
  torus3d:
    toruses:
      - name: pod
        dims: {x: 4, y: 3, z: 2}
        regions:
          - {anchor: {x: 0, y: 0, z: 0}, dims: {x: 4, y: 3, z: 1}, nodes: "n[0-11]"}
          - {anchor: {x: 0, y: 0, z: 1}, dims: {x: 4, y: 3, z: 1}, nodes: "n[12-23]"}
"""


def test_a_torus_of_slurm() -> None:
    network = fabric("slurm", slurm_yaml(TORUS), rate="10 Gbit/s")
    assert shape(network) == (24, 24, 24 + 24 + 24 + 12)
    assert rate(network, "n0", "n0-sw") == 50
    around = {node.removesuffix("-sw") for node in network.ports["n0-sw"].values()}
    assert around == {"n0", "n1", "n3", "n4", "n8", "n12"}


def test_a_ring_of_slurm() -> None:
    network = fabric("slurm", b"RingName=r Nodes=n[1-5]\n", rate="10 Gbit/s")
    assert shape(network) == (5, 5, 10)


def test_a_topology_of_slurm_by_its_name() -> None:
    text = slurm_yaml("  tree: {switches: [{switch: s, nodes: 'n[1-3]'}]}\n")
    assert shape(fabric("slurm", text, rate="1 Gbit/s")) == (3, 1, 3)
    with pytest.raises(DocumentError, check=naming("flat", "echelon fabric")):
        imported("slurm", text, rate="1 Gbit/s", topology="a")
    with pytest.raises(DocumentError, check=coded("unknown-name", "topology", "'c'")):
        imported("slurm", text, rate="1 Gbit/s", topology="c")


def test_networks_apart_are_imported_one_by_one() -> None:
    text = b"SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-5]\n"
    with pytest.raises(DocumentError, check=coded("unconnected", "'n1'", "'n3'", "part=n1")):
        imported("slurm", text, rate="1 Gbit/s")
    fabric_file = imported("slurm", text, rate="1 Gbit/s", part="b")
    assert tuple(fabric_file.spec.hosts) == ("n3", "n4", "n5")
    assert fabric_file.tally.ignored["nodes without a way to b"] == 3


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("SwitchName=a Switches=b\n", ("'b'", "'a'")),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", ("'a'",)),
        ("SwitchName=a\n", ("line 1", "a")),
        ("SwitchName=a Nods=n1\n", ("line 1", "Nods=n1")),
        ("SwitchName=a Nodes=n[1-\n", ("line 1", "Nodes")),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", ("line 2", "'a'")),
        ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2\n", ("2",)),
        ("BlockName=b Nodes=n[1-4]\nBlockSizes=3,4\n", ("4",)),
        ("RingName=r Nodes=n[1-4]\nRingName=q Nodes=n[5-8]\n", ("2",)),
        ("# nothing\n", ("0",)),
        ("- topology: a\n", ("a",)),
        ("- topology: a\n  tree: {switches: 3}\n", ("topologies[0].tree.switches",)),
        ("- topology: a\n  flat: true\n- topology: b\n  flat: true\n", ("a", "b")),
    ],
)
def test_what_slurm_would_not_read_is_refused(text: str, facts: tuple[object, ...]) -> None:
    with pytest.raises(DocumentError, check=naming(*facts)):
        imported("slurm", text.encode(), rate="1 Gbit/s")


# -- InfiniBand ------------------------------------------------------------------------------------


REPORT = b"""\
CA     7  1 0x0000000000000011 4x EDR - SW     5  1 0x0000000000000001 ( 'n1 HCA-1' - 'leaf1' )
SW     5  1 0x0000000000000001 4x EDR - CA     7  1 0x0000000000000011 ( 'leaf1' - 'n1 HCA-1' )
SW     5  2 0x0000000000000001 4x EDR - CA     8  1 0x0000000000000012 ( 'leaf1' - 'n2 mlx5_0' )
SW     5  3 0x0000000000000001 4x HDR - SW     6  9 0x0000000000000002 ( 'leaf1' - 'spine' )
SW     5  4 0x0000000000000001 4x ???                                    'leaf1'

"""
"""Our own, as `ibnetdiscover -p` prints it. One end of some cables is not there."""


def test_the_ports_that_ibnetdiscover_reports() -> None:
    network = fabric("infiniband", REPORT)
    assert shape(network) == (2, 2, 3)
    assert [*network.hosts] == ["n1", "n2"]
    assert [*network.switches] == ["leaf1", "spine"]
    text = imported("infiniband", REPORT).text
    assert "{between: [leaf1, spine], rate: 200 Gbit/s}" in text
    assert text.count("rate: 100 Gbit/s") == 2
    tally = imported("infiniband", REPORT).tally
    assert tally.ignored["ports without a cable"] == 1


@pytest.mark.parametrize("line", [b"SW 5 1 0x1 4x EDR - CA", b"SW 5 1 0x1 4x EDR", b"SW 5"])
def test_a_broken_report_names_its_line(line: bytes) -> None:
    with pytest.raises(DocumentError, match=r"line 7: .*ibnetdiscover -p"):
        imported("infiniband", REPORT + line)


def test_what_ibnetdiscover_found() -> None:
    """Node 1 has two adapters; one adapter names no host; a link of two cables is one lane at the
    end of the second.
    """
    network = fabric("infiniband", "fabric.ibnetdiscover", delay="1 us")
    assert shape(network) == (3, 2, 5)
    other = "S-00000000000000a1"
    assert set(network.hosts) == {"node1", "node2", "H-00000000000000c4"}
    assert set(network.switches) == {"leaf1", other}
    assert rate(network, "node1", "leaf1") == 4 * 50
    assert rate(network, "node1", other) == 2 * 50
    assert rate(network, "node2", "leaf1") == 4 * 25
    # FDR: 14.0625 Gbaud, of which 64 of 66 bits are data.
    assert float(rate(network, "H-00000000000000c4", other)) == pytest.approx(54.545, abs=1e-3)
    assert rate(network, "leaf1", other) == 4 * 50 + 1 * 50
    tally = imported("infiniband", "fabric.ibnetdiscover", delay="1 us").tally
    assert "4xHDR and 1xHDR" in " ".join(tally.notes)
    assert tally.ignored["aggregation nodes inside switches"] == 1


def test_a_topology_file_of_ufm() -> None:
    network = fabric("infiniband", "topo.txt")
    assert shape(network) == (3, 2, 4)
    assert rate(network, "node1", "leaf1") == 2 * 4 * 50
    assert rate(network, "node2", "leaf1") == 4 * 25
    assert rate(network, "node3", "spine1") == 4 * 100
    assert rate(network, "leaf1", "spine1") == 4 * 50
    assert ways(network, "node1", "node3") == [("node1", "leaf1", "spine1", "node3")]


def test_a_topology_file_without_rates_needs_one() -> None:
    text = b"MTS2400 S-1\n\tP1 -> MT23108 H-1 P1\n\tP2 -> MT23108 H-1 P2\n\tP24 -> MT23108 H-2 P1\n"
    with pytest.raises(DocumentError, check=coded("missing-key", "--rate", "3 of 3")):
        imported("infiniband", text)
    network = fabric("infiniband", text, rate="10 Gbit/s")
    assert shape(network) == (2, 1, 2)
    assert rate(network, "H-1", "S-1") == 20


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("A a\n P1 -4x-50G-> HCA b P1\nA a\n P1 -4x-25G-> HCA b P1\n", ("line 4", "line 2")),
        (" P1 -4x-50G-> HCA b P1\n", ("line 1",)),
        ("A a\n P1 -4x-50G-> HCA b\n", ("line 2",)),
        ('Switch 2 "S-a" # "x" base\n[1] "H-b"[1](b) # "y HCA-1" lid 1 4xHDR\n', ("H-b",)),
    ],
)
def test_broken_topologies_of_infiniband_are_refused(text: str, facts: tuple[object, ...]) -> None:
    with pytest.raises(DocumentError, check=naming(*facts)):
        imported("infiniband", text.encode())


# -- all -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "file", "settings"),
    [
        ("ns3", "ns3-two-datacentres.txt", {"rate": "1 Gbit/s"}),
        ("ns3", "ns3-two-datacentres.txt", {"delay": "1 us"}),
        ("htsim", "three-tiers.topo", {"rate": "1 Gbit/s"}),
    ],
)
def test_what_the_file_says_is_not_replaced(kind: str, file: str, settings: dict[str, str]) -> None:
    [option] = settings
    with pytest.raises(DocumentError, check=coded("conflicting-key", f"--{option}", file)):
        imported(kind, file, **settings)


def test_a_link_above_the_highest_rate_is_named() -> None:
    text = b"SwitchName=a Nodes=n[0-9]\nSwitchName=b Nodes=m[0-9]\nSwitchName=c Switches=a,b\n"
    with pytest.raises(DocumentError, check=coded("too-large", "'a'", "'c'", "20000 Gbit/s")):
        imported("slurm", text, rate="2000 Gbit/s")


def test_names_that_a_fabric_cannot_have_are_changed_as_little_as_keeps_them_apart() -> None:
    words = ["a.b", "a-b", "7", "x" * 40, "x" * 41, "leaf"]
    names = fitted(words)
    assert names["a-b"] == "a-b"
    assert names["leaf"] == "leaf"
    assert names["a.b"] == "a-b-2"
    assert names["7"] == "n7"
    assert len({*names.values()}) == len(words)
    assert max(map(len, names.values())) == 32
