"""Mininet nodes of our own: a topology, switches and a controller. Import this module after `load_mininet`.

Errors end the command after one line. An exception would make Mininet kill processes by their names, including those
that it did not start.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import yaml
from mininet.log import error, info  # type: ignore[import-not-found]
from mininet.node import Controller, Node, Switch  # type: ignore[import-not-found]
from mininet.topo import Topo  # type: ignore[import-not-found]

from echelon.client import Client, ClientError
from echelon.errors import RunError
from echelon.fabric.model import Fabric, LinkEnd
from echelon.fabric.write import fabric_text
from echelon.lab.hosts.backends.hosts import address
from echelon.lab.hosts.backends.mininet_network import Network, interfaces_of, network_of, prepare, reach
from echelon.lab.hosts.backends.names import interface_names
from echelon.processes import DIES_WITH_CALLER, NICENESS, free_port, preferred
from echelon.targets import TARGETS
from echelon.targets.launching import Place, SwitchProcess

__all__ = ["EchelonController", "FabricTopo", "P4Switch", "PassiveSwitch", "switch_class"]

_ANSWER_S = 10.0
_STOP_S = 10.0
_TAIL_LINES = 3


class FabricTopo(Topo):  # type: ignore[misc]
    """A Mininet topology of a fabric, with its names, ports and addresses, and its rates as Mininet's `bw`."""

    def build(self, fabric: Fabric) -> None:
        names = interface_names(fabric)
        for host in fabric.hosts:
            self.addHost(host, ip=address(fabric, host))
        for switch in fabric.switches.values():
            # Mininet cannot make a datapath id, which is not used here, from a name without digits.
            self.addSwitch(switch.name, dpid=f"{switch.device_id:x}")

        def end(number: int, at: LinkEnd) -> Mapping[str, object]:
            out: dict[str, object] = {f"port{number}": at.port, f"intfName{number}": names[at.node, at.port]}
            if at.node in fabric.hosts:
                out[f"addr{number}"] = fabric.hosts[at.node].mac
            return out

        for cable in fabric.cables:
            self.addLink(cable.a.node, cable.b.node, bw=cable.rate_bps / 10**6, **end(1, cable.a), **end(2, cable.b))


class PassiveSwitch(Switch):  # type: ignore[misc]
    """The interfaces of a switch that is started elsewhere."""

    def start(self, controllers: Sequence[Any]) -> None:
        """Do nothing."""


class P4Switch(Switch):  # type: ignore[misc]
    """A switch of a target, in the namespace that `mn` runs in.

    With the controller `echelon` it forwards. Without one, its P4Runtime service waits for a program, at the address
    that `mn` shows.
    """

    target: ClassVar[str]

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **{**params, "inNamespace": False})
        self._process: SwitchProcess | None = None
        self._controllers: Sequence[EchelonController] = ()

    def start(self, controllers: Sequence[Any]) -> None:
        """Start the switch. Mininet calls it when all nodes and links exist."""
        self._controllers = [controller for controller in controllers if isinstance(controller, EchelonController)]
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
        """Wait for all switches. Mininet calls it after it has started them."""
        for switch in switches:
            try:
                switch.process.wait_ready()
            except RunError as problem:
                _end(switch, problem)
        return switches

    @property
    def process(self) -> SwitchProcess:
        assert self._process is not None
        return self._process

    def connected(self) -> bool:
        """Return whether the controller `echelon`, if there is one, has brought the switch to its intent."""
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
    """The node of `--controller echelon[,policy=NAME][,port=PORT]`: `echelon serve` for all switches of the network.

    It has no jobs at first; `echelon job submit` adds some.
    """

    def __init__(self, name: str, policy: str = "fair", port: int | None = None, **params: Any) -> None:
        self._policy = policy
        self._entries: dict[str, Mapping[str, object]] = {}
        self._daemon: subprocess.Popen[bytes] | None = None
        super().__init__(name, port=port or free_port(), **params)

    @property
    def url(self) -> str:
        """The URL of the service's API."""
        return f"http://127.0.0.1:{self.port}"

    @classmethod
    def isAvailable(cls) -> bool:  # noqa: N802
        return True

    def checkListening(self) -> None:  # noqa: N802
        """Do nothing: the service reports a port that is taken, so Mininet need not try it with telnet."""

    def start(self) -> None:
        """Do nothing: Mininet calls it before there are switches (see `attach`)."""

    def attach(self, network: Network, switch: str, entry: Mapping[str, object]) -> None:
        """Add a switch, and start the service once all switches of the network are known. Raises `RunError`."""
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
        with self._log.open("wb") as log:
            self._daemon = subprocess.Popen(
                [*DIES_WITH_CALLER, sys.executable, "-Pm", "echelon", "serve", "--config", directory / "echelon.yaml"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        info(f"\n*** {self.name}: echelon watch --url {self.url}; files in {directory}\n")

    def has_ready(self, switch: str) -> bool:
        """Return whether all switches are at their intents. Raises `RunError` if the service has ended."""
        if self._daemon is None:
            return False
        status = self._daemon.poll()
        if status is not None:
            said = self._log.read_text(errors="replace").strip().splitlines()[-_TAIL_LINES:]
            raise RunError(f"echelon serve ended with status {status}: {' | '.join(said)}")
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
    fabric, name = network.fabric, switch.name
    rates = {port: fabric.rate_bps[name, other] for port, other in fabric.ports[name].items()}
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
