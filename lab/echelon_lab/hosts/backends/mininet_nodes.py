"""Mininet nodes of our own: a topology, switches and a controller, also for `mn --custom`.

Networks of such nodes are fabrics.

Import this module after `load_mininet`.

Errors end the command after one line. An exception would make Mininet kill processes by their
names, including those that it did not start.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import yaml
from mininet.link import Intf  # type: ignore[import-not-found]
from mininet.log import error, info  # type: ignore[import-not-found]
from mininet.node import Controller, Node, Switch  # type: ignore[import-not-found]
from mininet.topo import Topo  # type: ignore[import-not-found]

from echelon.controller.client import Client, ClientError
from echelon.model.documents import DocumentError, parse_document
from echelon.model.errors import RunError
from echelon.model.fabric import builders
from echelon.model.fabric.load import FabricSpec, build_fabric, fabric_text
from echelon.model.fabric.model import Fabric, LinkEnd
from echelon.model.quantities import rate_text
from echelon.switches.processes import DIES_WITH_CALLER, NICENESS, free_port, preferred, start
from echelon.switches.targets import DEFAULT_TARGET, TARGETS
from echelon.switches.targets.launching import Place, SwitchProcess
from echelon_lab.hosts.backends.interfaces import (
    Batch,
    address,
    await_running,
    entered_namespaces,
    interface_names,
    neighbour_setups,
    run_batches,
    switch_ipv6_off,
    switch_offloads_off,
)
from echelon_lab.hosts.serving import READY_S

_ANSWER_S = 10.0
_STOP_S = 10.0
_POLL_S = 0.1
_TAIL_LINES = 3


class FabricTopo(Topo):  # type: ignore[misc]
    """A Mininet topology of a fabric, with its names, ports and addresses.

    Its rates are Mininet's `bw`.
    """

    def build(self, fabric: Fabric) -> None:
        names = interface_names(fabric)
        for host in fabric.hosts:
            self.addHost(host, ip=address(fabric, host))
        for switch in fabric.switches.values():
            # Mininet cannot make a datapath id, which is not used here, from a name without digits.
            self.addSwitch(switch.name, dpid=f"{switch.device_id:x}")

        def end(number: int, link_end: LinkEnd) -> Mapping[str, object]:
            node = link_end.node
            options: dict[str, object] = {
                f"port{number}": link_end.port,
                f"intfName{number}": names[node, link_end.port],
            }
            if node in fabric.hosts:
                options[f"addr{number}"] = fabric.hosts[node].mac
            return options

        for cable in fabric.cables:
            self.addLink(
                cable.a.node,
                cable.b.node,
                bw=cable.rate_bps / 10**6,
                **end(1, cable.a),
                **end(2, cable.b),
            )


class PassiveSwitch(Switch):  # type: ignore[misc]
    """The interfaces of a switch that is started elsewhere."""

    def start(self, controllers: Sequence[Any]) -> None:
        """Do nothing."""


class P4Switch(Switch):  # type: ignore[misc]
    """A switch of a target, in the namespace that `mn` runs in.

    With the controller `echelon` it forwards. Without one, its P4Runtime service waits for a
    program, at the address that `mn` shows.
    """

    target: ClassVar[str]

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **{**params, "inNamespace": False})
        self._process: SwitchProcess | None = None
        self._controllers: Sequence[EchelonController] = ()

    def start(self, controllers: Sequence[Any]) -> None:
        """Start the switch. Mininet calls it when all nodes and links exist."""
        self._controllers = []
        for controller in controllers:
            if isinstance(controller, EchelonController):
                self._controllers.append(controller)
        try:
            network = _prepared(self)
            self._process = _launch(self, network)
            info(f"({self._process.address}) ")
            for controller in self._controllers:
                controller.attach(network, self.name, self._process.entry)
        except RunError as problem:
            _end(self, problem)

    @classmethod
    def batchStartup(cls, switches: Sequence[P4Switch]) -> Sequence[P4Switch]:  # noqa: N802
        """Wait for all switches, and until they hold what the controller wants.

        Mininet calls it after it has started the switches.
        """
        for switch in switches:
            try:
                switch.process.wait_ready()
            except RunError as problem:
                _end(switch, problem)
        give_up_at = time.monotonic() + READY_S
        for switch in switches:
            while not switch.connected():
                if time.monotonic() > give_up_at:
                    _end(
                        switch,
                        RunError(f"switch {switch.name}: not at its intent after {READY_S:g} s"),
                    )
                time.sleep(_POLL_S)
        return switches

    @property
    def process(self) -> SwitchProcess:
        assert self._process is not None
        return self._process

    def connected(self) -> bool:
        """Return whether the controller `echelon`, if any, has brought the switch to its intent."""
        try:
            self.process.check()
            return all(controller.has_ready(self.name) for controller in self._controllers)
        except RunError as problem:
            _end(self, problem)

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803
        """End the switch. Mininet calls it at the end."""
        if self._process is not None:
            self._process.stop()
        super().stop(deleteIntfs)


def switch_class(target: str) -> type[P4Switch]:
    """Return the class of node for `--switch TARGET`."""
    return type(f"P4Switch_{target}", (P4Switch,), {"target": target})


class EchelonController(Controller):  # type: ignore[misc]
    """The node of `--controller echelon[,policy=NAME][,port=PORT]`.

    It runs `echelon serve` for all switches of the network.

    It has no jobs at first; `echelon job submit` adds some.
    """

    def __init__(
        self,
        name: str,
        policy: str = "echelon",
        port: int | None = None,
        **params: Any,
    ) -> None:
        self._policy = policy
        self._entries: dict[str, Mapping[str, object]] = {}
        self._daemon: subprocess.Popen[bytes] | None = None
        super().__init__(name, port=port or free_port(), **params)

    @property
    def url(self) -> str:
        """The URL of the service's API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def service(self) -> subprocess.Popen[bytes] | None:
        """The process of the service, once all switches are known."""
        return self._daemon

    @classmethod
    def isAvailable(cls) -> bool:  # noqa: N802
        return True

    def checkListening(self) -> None:  # noqa: N802
        """Do nothing.

        The service reports a port that is taken, so Mininet need not try it with telnet.
        """

    def start(self) -> None:
        """Do nothing: Mininet calls it before there are switches (see `attach`)."""

    def attach(
        self,
        network: Network,
        switch: str,
        entry: Mapping[str, object],
    ) -> None:
        """Add a switch, and start the service once all switches of the network are known.

        Raises `RunError`.
        """
        self._entries[switch] = entry
        if len(self._entries) < len(network.fabric.switches):
            return
        directory = _directory()
        (directory / "fabric.yaml").write_text(fabric_text(network.spec, "What Mininet has built."))
        config = {
            "service": "mininet",
            "fabric": "fabric.yaml",
            "policy": self._policy,
            "switches": self._entries,
            "api": {"listen": f"127.0.0.1:{self.port}"},
            "store": "sqlite:state.db",
        }
        (directory / "echelon.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        serve = [
            sys.executable,
            "-Pm",
            "echelon",
            "serve",
            "--config",
            str(directory / "echelon.yaml"),
        ]
        self._daemon = start([*DIES_WITH_CALLER, *serve], self._log)
        info(f"\n*** {self.name}: echelon watch --url {self.url}; files in {directory}\n")

    def has_ready(self, switch: str) -> bool:
        """Return whether all switches are at their intents.

        Raises `RunError` if the service has ended.
        """
        if self._daemon is None:
            return False
        status = self._daemon.poll()
        if status is not None:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            last_lines = " | ".join(lines[-_TAIL_LINES:])
            raise RunError(f"echelon serve ended with status {status}: {last_lines}")
        try:
            with Client(self.url, timeout_s=_ANSWER_S) as client:
                return client.status().settled and client.switch(switch).state == "ready"
        except ClientError:
            return False

    def stop(self, *args: Any, **params: Any) -> None:
        """End the service. Mininet calls it at the end."""
        if self._daemon is not None:
            self._daemon.terminate()
            try:
                self._daemon.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()
        # The parent class would look for an OpenFlow controller among the shell's jobs.
        Node.stop(self, *args, **params)

    @property
    def _log(self) -> Path:
        return _directory() / "echelon.log"


def _launch(switch: P4Switch, network: Network) -> SwitchProcess:
    launcher = TARGETS[switch.target].launcher()
    if launcher is None:
        raise RunError(f"target {switch.target} does not run as a process (give another --switch)")
    fabric = network.fabric
    name = switch.name
    rates = {}
    for port, other in fabric.ports[name].items():
        rates[port] = fabric.rate_bps[name, other]
    place = Place(name, fabric.switches[name].device_id, interfaces_of(switch), rates)
    return launcher.launch(place, _directory(), before=(*DIES_WITH_CALLER, *preferred(NICENESS)))


def _prepared(switch: P4Switch) -> Network:
    """Return the network of `switch`, and prepare its hosts and switches the first time."""
    network = _networks.get(switch)
    if network is None:
        network = network_of(switch)
        prepare(network.fabric, network.hosts, network.switches.values())
        _networks.update(dict.fromkeys(network.switches.values(), network))
    return network


_networks: dict[Switch, Network] = {}


def _directory() -> Path:
    """Return a directory for files of this process, which goes when the process ends."""
    global _files
    if _files is None:
        _files = tempfile.TemporaryDirectory(prefix="echelon-mn-")
    return Path(_files.name)


_files: tempfile.TemporaryDirectory[str] | None = None


def _end(switch: P4Switch, problem: RunError) -> NoReturn:
    """End the command after one line; the module's docstring says why this is not an exception."""
    error(f"\n*** {problem}\n")
    hosts, switches, _ = reach(switch)
    for controller in switch._controllers:  # noqa: SLF001
        controller.stop()
    for node in (*switches.values(), *hosts.values()):
        node.stop(deleteIntfs=True)
        node.terminate()
    raise SystemExit(1)


DEFAULT_BPS = 1_000_000_000
"""The rate of a link for which the topology gives none."""


@dataclass(frozen=True, slots=True)
class Network:
    """Hosts and switches that Mininet's links connect."""

    spec: FabricSpec
    fabric: Fabric
    hosts: Mapping[str, Node]
    switches: Mapping[str, Switch]


def interfaces_of(switch: Switch) -> Mapping[int, str]:
    """Return the interfaces of the switch, by port."""
    interfaces = {}
    for port, intf in sorted(_linked(switch).items()):
        interfaces[port] = intf.name
    return interfaces


def prepare(
    fabric: Fabric,
    hosts: Mapping[str, Node],
    switches: Iterable[Switch],
    mtu_bytes: int | None = None,
) -> None:
    """Make hosts and switches what `HostFabric` describes.

    Mininet has given the hosts their addresses.

    Without `mtu_bytes`, MTUs stay as Mininet set them. Raises `RunError`.
    """
    ports = [interface for switch in switches for interface in interfaces_of(switch).values()]
    names = {}
    for host, node in hosts.items():
        names[host] = node.defaultIntf().name
    setups = neighbour_setups(fabric, names)
    with ExitStack() as closing:
        outside = closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        held = dict(zip(names, entered_namespaces(hosts[host].pid for host in names), strict=True))
        for namespace in held.values():
            closing.callback(namespace.close)
        batches = []
        for host in names:
            batches.append(
                Batch(
                    [*_mtus([names[host]], mtu_bytes), *setups[host]],
                    f"host {host}",
                    held[host].descriptor,
                )
            )
        run_batches([Batch(_mtus(ports, mtu_bytes), "switches"), *batches])
        ends = []
        for host, interface in names.items():
            ends.append((held[host].inside, interface))
        ends += [(outside, interface) for interface in ports]
        for interface in ports:
            switch_ipv6_off(interface)
        for where, interface in ends:
            switch_offloads_off(where, interface)
        for where, interface in ends:
            await_running(where, interface)


def _mtus(interfaces: Sequence[str], mtu_bytes: int | None) -> Sequence[str]:
    if mtu_bytes is None:
        return []
    return [f"link set {interface} mtu {mtu_bytes}" for interface in interfaces]


def network_of(switch: Switch) -> Network:
    """Return the network that `switch` belongs to.

    Raises `RunError` if no fabric can describe it.
    """
    hosts, switches, links = reach(switch)
    spec = _spec(hosts, switches, links)
    return Network(spec, build_fabric(spec), hosts, switches)


def reach(switch: Switch) -> tuple[Mapping[str, Node], Mapping[str, Switch], Sequence[Any]]:
    """Return the hosts, switches and links that can be reached from `switch`.

    Nodes are by name, and include it.
    """
    hosts: dict[str, Node] = {}
    switches: dict[str, Switch] = {switch.name: switch}
    links: dict[int, Any] = {}
    waiting = [switch]
    while waiting:
        for intf in _linked(waiting.pop()).values():
            links[id(intf.link)] = intf.link
            node = _other(intf).node
            if not isinstance(node, Switch):
                hosts[node.name] = node
            elif node.name not in switches:
                switches[node.name] = node
                waiting.append(node)
    return hosts, switches, list(links.values())


def _spec(
    hosts: Mapping[str, Node],
    switches: Mapping[str, Switch],
    links: Sequence[Any],
) -> FabricSpec:
    link_documents = []
    for link in links:
        ends = (link.intf1, link.intf2)
        ports = {}
        for end in ends:
            if end.node.name in switches:
                ports[end.node.name] = end.node.ports[end]
        link_document = {
            "between": [end.node.name for end in ends],
            "rate": rate_text(_rate_bps(link.intf1)),
            "ports": ports,
        }
        link_documents.append(link_document)
    host_documents = {}
    for name in sorted(hosts):
        host_documents[name] = {"ipv4": hosts[name].IP(), "mac": hosts[name].MAC()}
    document = {
        "fabric": "mininet",
        "hosts": host_documents,
        "switches": sorted(switches),
        "links": link_documents,
    }
    try:
        return parse_document(FabricSpec, document, "the topology")
    except DocumentError as error:
        raise RunError(str(error)) from None


def _linked(node: Node) -> Mapping[int, Intf]:
    """Return the interfaces that have a link, by port."""
    interfaces = {}
    for port, intf in node.intfs.items():
        if intf.link is not None:
            interfaces[port] = intf
    return interfaces


def _other(intf: Intf) -> Intf:
    link = intf.link
    if link.intf1 is intf:
        return link.intf2
    return link.intf1


def _rate_bps(intf: Intf) -> int:
    """Return the rate of the link, which Mininet holds in Mbit/s."""
    if intf.params.get("bw"):
        return round(float(intf.params["bw"]) * 10**6)
    return DEFAULT_BPS


switches = {name: switch_class(name) for name in TARGETS}
switches["default"] = switches[DEFAULT_TARGET]
controllers = {"echelon": EchelonController}

_BUILDERS: Mapping[str, Callable[..., FabricSpec]] = {
    "one_tor": builders.one_tor,
    "thesis_a": builders.thesis_a,
    "thesis_b": builders.thesis_b,
    "dumbbell": builders.dumbbell,
    "line": builders.line,
    "leaf_spine": builders.leaf_spine,
    "fat_tree": builders.fat_tree,
    "rail_optimised": builders.rail_optimised,
}


def default_controller() -> type[EchelonController]:
    """Return the default controller, for `findController` of `mn`, which a custom file may replace.

    `rate` is the rate of hosts' links (or of the bottleneck, where there is one) in Mbit/s; other
    rates follow from it. All other parameters are those of `echelon.model.fabric.builders`.
    """
    return EchelonController


def topology(name: str) -> Callable[..., FabricTopo]:
    """Return a function that builds the topology from `mn`'s numbers.

    Wrong numbers end the command with one line.
    """
    build = _BUILDERS[name]

    def topo(
        *numbers: float,
        rate: float | None = None,
        **named: float,
    ) -> FabricTopo:
        if rate is not None:
            named["rate_bps"] = round(rate * 10**6)
        if "oversubscription" in named:
            named["oversubscription"] = Fraction(str(named["oversubscription"]))  # type: ignore[assignment]
        try:
            return FabricTopo(build_fabric(build(*numbers, **named)))
        except (ValueError, TypeError) as error:
            # An exception would make `mn` kill processes by their names.
            print(f"--topo {name}: {error}", file=sys.stderr)
            raise SystemExit(2) from None

    return topo
