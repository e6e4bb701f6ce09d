"""A command in namespaces of its own: processes, mounts, network, IPC.

All of it ends when it or its caller does.

    caller -> unshare -> first process of the new namespace (this file, run as a script) -> command

Three mechanisms end the sandbox. When the first process ends, for whatever reason, the kernel kills
all others of its namespace, and interfaces, mounts and network namespaces go with the processes.
The caller's death, SIGKILL included, kills `unshare`, which kills the first process
(PR_SET_PDEATHSIG, at both steps). The first process also holds one end of a pipe whose other end
only the caller has, and ends when that is closed: a caller cannot die unnoticed. Signals travel
through the same pipe, each once. The command is in a session of its own, so that Ctrl-C in a
terminal reaches only the caller; a shell needs the caller's, for its jobs.

The network outside does not exist inside: loopback is up, IPv6 is off, and bridges ask no firewall.
Files are those outside, with these exceptions: /proc; the interfaces in /sys; /dev/shm and
`private` directories, which are empty file systems in memory; and /run, where files can be added
that are invisible outside (`scratch`, the names of `ip netns`).

As a script, this file imports only the smallest part of the standard library, to start quickly.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["NO_SANDBOX", "inside", "missing", "run_inside", "scratch"]

NO_SANDBOX = 125
"""Exit status where the namespaces could not be made. No part of the command has run then."""
_NOT_FOUND = 127
_BY_SIGNAL = 128

_MARK = "ECHELON_SANDBOX"
"""Environment variable with the process namespace of the sandbox.

Its value is meaningless outside.
"""
_PROCESSES = Path("/proc/self/ns/pid")
_UNSHARE = (
    "unshare",
    "--fork",
    "--kill-child",
    "--pid",
    "--mount",
    "--mount-proc",
    "--net",
    "--ipc",
    "--propagation",
    "private",
)
_NEEDED = {
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
}
"""Commands and the Debian packages that contain them."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_RUN = Path("/run")
_SCRATCH = _RUN / "sandbox"
_NETNS = _RUN / "netns"
_MEMORY = Path("/dev/shm")
_SYS = Path("/sys")
_INTERFACES = ("class/net", "devices/virtual/net")
"""The folders of /sys that show the interfaces of the network in which it was mounted.

BMv2 looks there five times a second whether its ports are up, and complains of those that it does
not find.
"""
_BIND = 4096 | 16384  # MS_BIND, MS_REC
_SETTINGS = Path("/proc/sys")
_SESSION = Path("/proc/self/autogroup")
"""The niceness of this session.

Where the kernel groups processes by session (sched_autogroup_enabled), that of a process counts
only within its own, and the sandbox is one.
"""
_NICENESS = -10
"""The same number as in echelon.switches.processes, which this script does not import."""
_SYSCTLS = {
    # The kernel's router solicitations and multicast reports would
    # be counted with the packets of a run.
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    # A bridge would hand frames to the firewall, which drops those that it does not like.
    "net/bridge/bridge-nf-call-iptables": "0",
    "net/bridge/bridge-nf-call-ip6tables": "0",
    "net/bridge/bridge-nf-call-arptables": "0",
}


Mount = Callable[[str, Path, str | None, int], None]
"""Function of (source, target, kind of file system, flags)."""


# -- outside ---------------------------------------------------------------------------------------


def inside() -> bool:
    """Return whether this process runs in a sandbox."""
    return _MARK in os.environ and os.environ[_MARK] == str(_PROCESSES.readlink())


def scratch() -> Path:
    """Return a directory with a short path in the memory of this sandbox.

    It is empty at first and gone with the sandbox.

    Raises `RunError` outside a sandbox.
    """
    if not inside():
        from echelon.model.errors import RunError

        raise RunError("there is no scratch directory outside a sandbox (call sandbox.run_inside)")
    return _SCRATCH


def missing() -> str | None:
    """Return why this machine cannot make a sandbox with interfaces, and what to do.

    None means that it can.
    """
    import shutil
    import subprocess

    if sys.platform != "linux":
        return (
            "it needs Linux's namespaces (take --target fluid or softswitch without --on,"
            " which run anywhere)"
        )
    for command, package in _NEEDED.items():
        if shutil.which(command) is None:
            return f"{command} is not installed (apt-get install {package})"
    if os.geteuid() != 0:
        return "network namespaces and interfaces need root (run it with sudo)"
    probe = [*_UNSHARE, "ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"]
    done = subprocess.run(
        probe,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words = " ".join(done.stderr.split()) or f"status {done.returncode}"
        return (
            f"this machine allows no namespaces with veth interfaces: {words}"
            " (a container may need --privileged)"
        )
    return None


def run_inside(
    argv: Sequence[str],
    private: Sequence[str] = (),
    *,
    terminal: bool = False,
) -> int:
    """Run a command in a sandbox; return its exit status, 128 + N where signal N ended it.

    Standard streams, directory and environment are the caller's. SIGINT, SIGTERM and SIGHUP go to
    the command (if this is called in the main thread, and they are not ignored), which decides what
    to do. When the command ends, all processes that it started are killed. `private` directories
    are empty inside at first, and their content is gone afterwards. With `terminal` the caller's
    terminal is the command's, which may be a shell.

    The calling thread has to live as long as the sandbox. Raises `RunError` where no sandbox is
    possible.
    """
    import subprocess
    import threading

    reason = missing()
    if reason is not None:
        from echelon.model.errors import RunError

        raise RunError(f"no sandbox for the run: {reason}")
    life_line, held = os.pipe()
    script = [
        sys.executable,
        "-I",
        "-S",
        __file__,
        str(life_line),
        *(f"--private={path}" for path in private),
        "--",
    ]
    forwards = threading.current_thread() is threading.main_thread()
    before = {}
    try:
        # Before there is a process: an early signal waits in the pipe.
        if forwards:
            wanted = []
            for number in _FORWARDED:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    wanted.append(number)
            before = {number: signal.signal(number, _forward_to(held)) for number in wanted}
        process = subprocess.Popen(
            [*_UNSHARE, *script, *argv],
            pass_fds=(life_line,),
            start_new_session=not terminal,
            preexec_fn=_die_with(os.getpid()),
        )
        os.close(life_line)
        life_line = -1
        try:
            status = process.wait()
        finally:
            process.kill()
            process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(held)
        if life_line >= 0:
            os.close(life_line)
    if status >= 0:
        return status
    return _BY_SIGNAL - status


def _forward_to(pipe: int) -> Callable[[int, object], None]:
    def forward(number: int, _frame: object) -> None:
        with suppress(BrokenPipeError):  # the sandbox has just ended
            os.write(pipe, bytes([number]))

    return forward


def _die_with(parent: int) -> Callable[[], None]:
    """Return a function for a child to call between fork and exec.

    SIGKILL then ends the child when the thread that made it ends.
    """
    import ctypes

    prctl = ctypes.CDLL(
        None
    ).prctl  # looked up now: a child of a process with threads must do as little as possible

    def die_with() -> None:
        prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(NO_SANDBOX)

    return die_with


# -- inside: the first process of its namespace ----------------------------------------------------


def _first(
    life_line: int,
    private: Sequence[str],
    argv: Sequence[str],
) -> int:
    """Prepare the sandbox, and run the command in it.

    Wait for its end, for signals, and for the caller's death.
    """
    try:
        _furnish(private)
    except OSError as error:
        print(f"sandbox: {error.filename or 'namespaces'}: {error.strerror}", file=sys.stderr)
        return NO_SANDBOX
    os.environ[_MARK] = str(_PROCESSES.readlink())
    os.set_inheritable(life_line, False)
    # The kernel gives the first process no signal that it has no handler for. SIGCHLD only has to
    # wake it.
    wake, woken = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    try:
        # Not subprocess: all orphans of the namespace become children of this process, too.
        command = os.posix_spawnp(argv[0], list(argv), os.environ, setsigdef=_IGNORED_BY_PYTHON)
    except OSError as error:
        print(f"sandbox: {argv[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND
    return _watch(command, life_line, wake)


def _watch(
    command: int,
    life_line: int,
    wake: int,
) -> int:
    import select

    poll = select.poll()
    for descriptor in (life_line, wake):
        poll.register(descriptor, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == life_line:
                signals = os.read(life_line, 64)
                if not signals:
                    return NO_SANDBOX
                for number in signals:
                    os.kill(command, number)
            else:
                os.read(wake, 64)
        ended = _reap()
        if command in ended:
            return ended[command]


def _reap() -> dict[int, int]:
    """Return the exit statuses of the children that have ended, by process."""
    ended: dict[int, int] = {}
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not process:
            return ended
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            ended[process] = code
        else:
            ended[process] = _BY_SIGNAL - code


def _furnish(private: Sequence[str]) -> None:
    import ctypes
    import fcntl
    import socket
    import struct

    libc = ctypes.CDLL(None, use_errno=True)

    def mount(
        source: str,
        target: Path,
        kind: str | None,
        flags: int,
    ) -> None:
        if libc.mount(source.encode(), bytes(target), kind and kind.encode(), flags, None):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(target))

    for directory in (_MEMORY, *map(Path, private)):
        if directory.is_dir():
            mount("tmpfs", directory, "tmpfs", 0)
    if _RUN.is_dir():
        _replicate(_RUN, mount)
        _SCRATCH.mkdir(exist_ok=True)
        with suppress(PermissionError):  # the kernel of a container may refuse another one
            mount("sysfs", _SCRATCH, "sysfs", 0)
            for listing in _INTERFACES:
                if (_SYS / listing).is_dir():  # a bare root may lack /sys
                    mount(str(_SCRATCH / listing), _SYS / listing, None, _BIND)
        for directory in (_NETNS, _SCRATCH):
            directory.mkdir(exist_ok=True)
            mount("tmpfs", directory, "tmpfs", 0)
    try:
        _SESSION.write_text(str(_NICENESS))
    except FileNotFoundError:
        pass  # this kernel groups nothing
    except OSError as error:
        print(
            f"sandbox: {_SESSION}: {error.strerror}: a busy machine slows the run down",
            file=sys.stderr,
        )
    for name, value in _SYSCTLS.items():
        with suppress(FileNotFoundError):
            (_SETTINGS / name).write_text(value)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up = struct.pack("16sh22x", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, up)  # SIOCSIFFLAGS


def _replicate(directory: Path, mount: Mount) -> None:
    """Replace `directory` by a new one with the same entries.

    What is added there is then not visible outside.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        before = Path(
            f"/proc/self/fd/{descriptor}"
        )  # the old directory will be covered, but not gone
        entries = list(before.iterdir())
        mount("tmpfs", directory, "tmpfs", 0)
        directory.chmod(0o755)
        for entry in entries:
            new = directory / entry.name
            if entry.is_symlink():
                new.symlink_to(entry.readlink())
                continue
            if entry.is_dir():
                new.mkdir()
            else:
                new.touch()
            mount(str(entry), new, None, _BIND)
    finally:
        os.close(descriptor)


def _main() -> int:
    words = sys.argv[1:]
    split = words.index("--")
    life_line, *options = words[:split]
    return _first(
        int(life_line),
        [option.removeprefix("--private=") for option in options],
        words[split + 1 :],
    )


if __name__ == "__main__":
    sys.exit(_main())
