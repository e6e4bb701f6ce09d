"""Start a switch, run the tests of the P4 program on it with ptf, and print a table.

    python ptf/run.py --target softswitch promotion digests.Clock

The exit status is 0 if every test passed or was skipped, 1 if a test failed or the target ended by
itself, and 2 if nothing could be run.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from launch import results
from launch.wires import (
    Wire,
    WiringError,
    enter_own_namespace,
    in_own_namespace,
    lay_unix,
    lay_veth,
    why_no_veth,
)

from echelon.model.documents import DocumentError
from echelon.model.errors import RunError
from echelon.switches.targets import DEFAULT_TARGET, TARGETS, find_target
from echelon.switches.targets.launching import Place, SwitchLauncher, SwitchProcess

_HERE = Path(__file__).resolve().parent
PORTS = (0, 1, 2, 3, 4)
"""Hosts are at ports 1 to 4.

A program that forwards a packet without choosing a port sends it to port 0.
"""
P4INFO = "echelon.p4info.txtpb"
_TABLE = "flow"
_WITHOUT_TABLE = {"unclaimed"}
"""The modules of tests for which a program needs no table of flows."""
_DEVICE_ID = 1
_SWITCH = "target"
_TEST_TIMEOUT_S = 120
_LOG_TAIL_LINES = 15


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        launcher = find_target(options.target, "--target").launcher()
        if launcher is None:
            raise RunError(
                f"target {options.target} does not run as a process (give another --target)"
            )
        launcher.find()
        if options.program is not None and options.suite == _HERE:
            _check_program(options.program, options.tests)
        wiring = _choose_wiring(options.ports, options.target, launcher)
        if wiring == "veth" and not in_own_namespace():
            return enter_own_namespace()
        return _run(launcher, wiring, options)
    except (DocumentError, OSError, RunError, WiringError) as error:
        print(f"ptf: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ptf/run.py", description="Tests of the P4 program on a running switch."
    )
    parser.add_argument(
        "--target",
        default=DEFAULT_TARGET,
        help=f"what to test: {', '.join(TARGETS)} ({DEFAULT_TARGET})",
    )
    parser.add_argument(
        "--ports",
        choices=("auto", "veth", "unix"),
        default="auto",
        help=(
            "veth pairs in a network namespace of the run's own (root), or Unix sockets; auto: veth"
            " where possible"
        ),
    )
    parser.add_argument(
        "--program",
        type=_build_directory,
        metavar="DIR",
        help="the output of p4c for another build of the program",
    )
    parser.add_argument(
        "--suite",
        type=_suite_directory,
        default=_HERE,
        metavar="DIR",
        help="a folder whose tests/ are those of a plug-in's program (those of Echelon's)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out/ptf"), help="directory for logs (out/ptf)"
    )
    parser.add_argument(
        "tests", nargs="*", help="modules or module.Class; ^ before a name excludes it (all tests)"
    )
    return parser


def _build_directory(text: str) -> Path:
    if not Path(text, P4INFO).is_file():
        raise argparse.ArgumentTypeError(
            f"there is no {P4INFO} in {text}; give a directory with the output of p4c"
        )
    return Path(text)


def _suite_directory(text: str) -> Path:
    directory = Path(text).resolve()
    if not (directory / "tests").is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder tests in {text}")
    return directory


def _check_program(directory: Path, tests: Sequence[str]) -> None:
    """Raise `RunError` if the program lacks the table that these tests write to."""
    modules = {test.partition(".")[0] for test in tests if not test.startswith("^")}
    if modules and modules <= _WITHOUT_TABLE:
        return
    if f'alias: "{_TABLE}"' in (directory / P4INFO).read_text():
        return
    raise RunError(
        f"the program in {directory} has no table '{_TABLE}', which only tests of"
        f" {' and '.join(sorted(_WITHOUT_TABLE))} do without (for the program of a plug-in, give"
        " its tests with --suite, such as SUITE=plugins/aggregation/ptf)"
    )


def _choose_wiring(wanted: str, target: str, launcher: SwitchLauncher) -> str:
    if wanted == "unix":
        if not launcher.unix_ports:
            raise WiringError(
                f"target {target} cannot use Unix sockets as ports; use --ports veth, as root"
            )
        return "unix"
    obstacle = why_no_veth()
    if not obstacle:
        return "veth"
    if wanted == "auto" and launcher.unix_ports:
        return "unix"
    raise WiringError(
        f"cannot make veth pairs ({obstacle}); they need root, and the commands unshare and ip"
    )


def _run(launcher: SwitchLauncher, wiring: str, options: argparse.Namespace) -> int:
    out = options.out / options.target
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ptf-") as scratch:
        wires = lay_veth(PORTS) if wiring == "veth" else lay_unix(PORTS, Path(scratch))
        switch = launcher.launch(
            Place(_SWITCH, _DEVICE_ID, {wire.port: wire.switch_end for wire in wires}), out
        )
        try:
            switch.wait_ready()
            status, found = _run_tests(
                _ptf_command(wiring, wires, switch, options, out), out / "ptf.log"
            )
            problem = _problem(switch)
        finally:
            ended = switch.stop()
    for result in found:
        if result.bad:
            print(f"\n{result.test}\n{result.why}")
    print(
        f"\n{results.summary(found, f'{options.target} over {wiring} ports', time.monotonic() - start)};"
        f" logs in {out}"
    )
    # A target that crashes while it is being stopped ends by another signal.
    if problem or ended not in (0, -signal.SIGTERM):
        reason = problem or f"the target ended with status {ended}"
        print(f"{reason}\n{_tail(out / f'{_SWITCH}.log')}", file=sys.stderr)
        return 1
    if any(result.bad for result in found):
        return 1
    if status or not found:
        print(f"ptf ended with status {status}:\n{_tail(out / 'ptf.log')}", file=sys.stderr)
        return 2
    return 0


def _problem(switch: SwitchProcess) -> str:
    """Return how the switch ended by itself, or nothing if it still runs."""
    try:
        switch.check()
    except RunError as error:
        return str(error)
    return ""


def _ptf_command(
    wiring: str,
    wires: Sequence[Wire],
    switch: SwitchProcess,
    options: argparse.Namespace,
    out: Path,
) -> list[str]:
    platform = (
        ["--platform", "eth"]
        if wiring == "veth"
        else ["--platform", "unix", "--platform-dir", str(_HERE / "platforms")]
    )
    interfaces = [
        argument for wire in wires for argument in ("--interface", f"{wire.port}@{wire.test_end}")
    ]
    parameters: dict[str, object] = {
        "switch": dict(switch.entry),
        "device_id": _DEVICE_ID,
    }
    if options.program is not None:
        parameters["program"] = str(options.program.resolve())
    return [
        str(Path(sys.executable).with_name("ptf")),
        *("--test-dir", str(options.suite / "tests")),
        *("--pypath", str(_HERE), "--pypath", str(options.suite)),
        *platform,
        *interfaces,
        *("--log-dir", str(out / "log"), "--debug", "info"),
        *("--qlen", "4096", "--test-case-timeout", str(_TEST_TIMEOUT_S), "--allow-user"),
        *("--test-params", ";".join(f"{name}={value!r}" for name, value in parameters.items())),
        *options.tests,
    ]


def _run_tests(command: list[str], log: Path) -> tuple[int, list[results.Result]]:
    """Run ptf, and print each result as it comes. Return ptf's exit status and all results."""
    # The tests write their results into a pipe, which closes when ptf ends, for whatever reason.
    read_end, write_end = os.pipe()
    place = command.index("--test-params") + 1
    command[place] += f";results='/dev/fd/{write_end}'"
    found = []
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[write_end],
        )
        os.close(write_end)
        print(results.heading())
        with os.fdopen(read_end) as lines:
            for result in results.parse(lines):
                found.append(result)
                print(results.row(result), flush=True)
        return process.wait(), found


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])


if __name__ == "__main__":
    sys.exit(main())
