"""Start a switch, run the tests of the P4 program on it with ptf, print a table.

    python ptf/run.py --target softswitch promotion digests.Clock

The exit status is 0 if every test passed or was skipped, 1 if one did not or the target ended by itself, 2 if nothing
could be run.
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
from launch.target import DEVICE_ID, TARGETS, Running, Target, TargetDeadError, TargetMissingError, running
from launch.wires import (
    Wire,
    WiringError,
    enter_own_namespace,
    in_own_namespace,
    lay_unix,
    lay_veth,
    why_no_veth,
)

_HERE = Path(__file__).resolve().parent
PORTS = (0, 1, 2, 3, 4)
"""Hosts are at 1 to 4; at 0 comes out what a program forwards without having said where."""
_TEST_TIMEOUT_S = 120
_LOG_TAIL_LINES = 15


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    target = TARGETS[options.target]
    try:
        target.find()
        wiring = _choose_wiring(options.ports, target)
        if wiring == "veth" and not in_own_namespace():
            return enter_own_namespace()
        return _run(target, wiring, options)
    except (OSError, TargetMissingError, WiringError) as error:
        print(f"ptf: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except TargetDeadError as error:
        print(f"ptf: {error}:\n{_tail(options.out / target.name / 'target.log')}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ptf/run.py", description="Tests of the P4 program on a running switch.")
    parser.add_argument("--target", choices=sorted(TARGETS), default="softswitch", help="what to test (softswitch)")
    parser.add_argument(
        "--ports",
        choices=("auto", "veth", "unix"),
        default="auto",
        help="veth pairs in a network namespace of its own (root), or Unix sockets; auto: veth where that is allowed",
    )
    parser.add_argument(
        "--program",
        type=_build_directory,
        metavar="DIR",
        help="echelon.json and echelon.p4info.txtpb of another build of the program",
    )
    parser.add_argument("--out", type=Path, default=Path("out/ptf"), help="directory for logs (out/ptf)")
    parser.add_argument(
        "tests", nargs="*", help="modules or module.Class; ^ before a name leaves it out; all by default"
    )
    return parser


def _build_directory(text: str) -> Path:
    for name in ("echelon.json", "echelon.p4info.txtpb"):
        if not Path(text, name).is_file():
            raise argparse.ArgumentTypeError(f"there is no {name} in {text}; give a directory that p4c has written")
    return Path(text)


def _choose_wiring(wanted: str, target: Target) -> str:
    if wanted == "unix":
        if not target.unix_ports:
            raise WiringError(f"target {target.name} has no Unix sockets as ports; use --ports veth, as root")
        return "unix"
    obstacle = why_no_veth()
    if not obstacle:
        return "veth"
    if wanted == "auto" and target.unix_ports:
        return "unix"
    raise WiringError(f"no veth pairs here ({obstacle}); they need root, and the commands unshare and ip")


def _run(target: Target, wiring: str, options: argparse.Namespace) -> int:
    out = options.out / target.name
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ptf-") as scratch:
        wires = lay_veth(PORTS) if wiring == "veth" else lay_unix(PORTS, Path(scratch))
        with running(target, wires, Path(scratch), out / "target.log") as switch:
            status, found = _run_tests(_ptf_command(wiring, wires, switch, options, out), out / "ptf.log")
            ended_early = switch.process.poll() is not None
    for result in found:
        if result.bad:
            print(f"\n{result.test}\n{result.why}")
    print(f"\n{results.summary(found, f'{target.name} over {wiring} ports', time.monotonic() - start)}; logs in {out}")
    # A target that was told to stop while it crashes ends by its own signal.
    ended = switch.process.returncode
    if ended_early or ended not in (0, -signal.SIGTERM):
        print(f"the target ended by itself with status {ended}:\n{_tail(out / 'target.log')}", file=sys.stderr)
        return 1
    if any(result.bad for result in found):
        return 1
    if status or not found:
        print(f"ptf ended with status {status}:\n{_tail(out / 'ptf.log')}", file=sys.stderr)
        return 2
    return 0


def _ptf_command(
    wiring: str, wires: Sequence[Wire], switch: Running, options: argparse.Namespace, out: Path
) -> list[str]:
    platform = (
        ["--platform", "eth"]
        if wiring == "veth"
        else ["--platform", "unix", "--platform-dir", str(_HERE / "platforms")]
    )
    interfaces = [argument for wire in wires for argument in ("--interface", f"{wire.port}@{wire.test_end}")]
    parameters: dict[str, object] = {
        "address": switch.address,
        "device_id": DEVICE_ID,
        "queue_rates": switch.queue_rates,
    }
    if options.program is not None:
        parameters["program"] = str(options.program.resolve())
    return [
        str(Path(sys.executable).with_name("ptf")),
        *("--test-dir", str(_HERE / "tests"), "--pypath", str(_HERE)),
        *platform,
        *interfaces,
        *("--log-dir", str(out / "log"), "--debug", "info"),
        *("--qlen", "4096", "--test-case-timeout", str(_TEST_TIMEOUT_S), "--allow-user"),
        *("--test-params", ";".join(f"{name}={value!r}" for name, value in parameters.items())),
        *options.tests,
    ]


def _run_tests(command: list[str], log: Path) -> tuple[int, list[results.Result]]:
    """Run ptf, printing each result as it comes."""
    # The tests write their results into a pipe: its end is the end of ptf, however that comes.
    read_end, write_end = os.pipe()
    place = command.index("--test-params") + 1
    command[place] += f";results='/dev/fd/{write_end}'"
    found = []
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, pass_fds=[write_end]
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
