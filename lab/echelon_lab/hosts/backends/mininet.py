"""A fabric of Mininet's hosts and links.

Debian packages Mininet for its own Python only; `load_mininet` imports it into any.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Self

from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon_lab.hosts.backends.interfaces import HostFabric

INSTALL = "apt-get install --no-install-recommends mininet iputils-ping bridge-utils ethtool"
_PACKAGE = Path("/usr/lib/python3/dist-packages/mininet")
_COMMANDS = ("mnexec", "ifconfig")


def missing() -> str | None:
    """Return why Mininet cannot be used here, in one line with what to do, or None if it can."""
    for command in _COMMANDS:
        if shutil.which(command) is None:
            return f"{command} is not installed ({INSTALL})"
    if _found() is None:
        return f"Mininet's Python package is not in {_PACKAGE} ({INSTALL})"
    return None


def load_mininet() -> None:
    """Make `import mininet.net` work, without the rest of Debian's Python packages.

    Raises `RunError`.
    """
    if "mininet.net" in sys.modules:
        return
    reason = missing()
    if reason is not None:
        raise RunError(f"no Mininet: {reason}")
    spec = _found()
    assert spec is not None
    assert spec.loader is not None
    if "mininet" not in sys.modules:
        module = importlib.util.module_from_spec(spec)
        sys.modules["mininet"] = module
        spec.loader.exec_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Mininet is older than these warnings
        if importlib.util.find_spec("distutils") is None:
            _replace_distutils()
        importlib.import_module("mininet.net")


def _found() -> importlib.machinery.ModuleSpec | None:
    return importlib.util.find_spec("mininet") or (
        importlib.util.spec_from_file_location(
            "mininet", _PACKAGE / "__init__.py", submodule_search_locations=[str(_PACKAGE)]
        )
        if (_PACKAGE / "__init__.py").exists()
        else None
    )


def _replace_distutils() -> None:
    """Put a stand-in for distutils, which Python 3.12 removed.

    Mininet compares versions of Open vSwitch with it.
    """
    package = ModuleType("distutils")
    version = ModuleType("distutils.version")
    version.StrictVersion = tuple  # type: ignore[attr-defined]
    package.version = version  # type: ignore[attr-defined]
    sys.modules |= {"distutils": package, "distutils.version": version}


class MininetFabric(HostFabric):
    """A `HostFabric` of Mininet's hosts and links. Entering it imports Mininet."""

    def __init__(self, fabric: Fabric, mtu_bytes: int = 1500) -> None:
        super().__init__(fabric, mtu_bytes)
        self._processes: Mapping[str, int] = {}
        """The process id of each host's shell."""

    def __enter__(self) -> Self:
        load_mininet()
        from mininet.net import Mininet  # type: ignore[import-not-found]

        from echelon_lab.hosts.backends.mininet_nodes import FabricTopo, PassiveSwitch, prepare

        # Otherwise Mininet would raise limits of the whole machine (files,
        # buffers, backlogs) for good.
        Mininet.inited = True
        with ExitStack() as building:
            net = Mininet(
                topo=FabricTopo(self._fabric),
                switch=PassiveSwitch,
                controller=None,
                build=False,
            )
            building.callback(net.stop)
            try:
                net.build()
            except Exception as error:  # Mininet has no narrower class
                raise RunError(f"Mininet: {' '.join(str(error).split())}") from None
            hosts = {host: net[host] for host in self._fabric.hosts}
            prepare(
                self._fabric, hosts, [net[switch] for switch in self._fabric.switches], self._mtu
            )
            self._processes = {host: node.pid for host, node in hosts.items()}
            self._closing = building.pop_all()
        return self

    def in_host(self, host: str) -> Sequence[str]:
        return ("nsenter", f"--net=/proc/{self._processes[host]}/ns/net", "--")
