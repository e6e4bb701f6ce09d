"""Check the exercise "write a ranking": python check.py FOLDER"""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd
from echelon.model.fabric.model import Switch as FabricSwitch
from echelon.planning.plan import LEVELS, FlowPlan, Plan, QueuePlan
from echelon.switches.lowering.identity import ShimIdentity
from echelon.switches.lowering.intent import Interval, Prefix
from echelon.switches.lowering.lower import lower
from echelon.switches.targets.softswitch.capabilities import softswitch
from echelon_lab.endhosts.shim import DataSegment, FlowAddress, ShimFrames
from softswitch import Switch, load_program

P4SRC = Path(__file__).parents[3] / "p4src"
LIMIT_BYTES, LOWER, UPPER = 500, 2, 5
ETHERNET_BYTES = 14


ACTION = """
    @id(0x01000116) @name(".short")
    action short(port_t port, mac_t dst_mac, profile_id_t profile) {
        take_path(port, dst_mac);
        meta.ranking = Ranking.SHORT;
        meta.profile = profile;
    }

    @id(0x02000105)
"""


def add_ranking(v1model: Path, branch: str) -> None:
    """Add the ranking to a copy of the program: its value, its action, and its branch."""
    insert(v1model / "include" / "types.p4", "    DSCP = 5\n", "    DSCP = 5,\n    SHORT = 6\n")

    flow = v1model / "include" / "control" / "flow.p4"
    insert(flow, "\n    @id(0x02000105)\n", ACTION)
    insert(flow, "            dscp;\n", "            dscp;\n            short;\n")

    program = v1model / "echelon.p4"
    key = "                    meta.level_key = (bit<32>)hdr.ipv4.dscp;\n                }\n"
    insert(program, key, key + branch)
    # The length is no time that runs out while the packet waits.
    lasts = "meta.ranking == Ranking.DSCP) {\n                    meta.rank_holds_us"
    insert(program, lasts, lasts.replace(")", " || meta.ranking == Ranking.SHORT)", 1))


def insert(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    if before not in text:
        sys.exit(f"{path.name} has changed: the check does not find {before.strip()!r}")
    path.write_text(text.replace(before, after, 1))


def compiled(folder: Path) -> bytes:
    """Return the program with the ranking, as p4c writes it for softswitch."""
    if shutil.which("p4c-bm2-ss") is None:
        sys.exit("p4c-bm2-ss is not installed: it compiles your ranking")
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copytree(P4SRC, Path(scratch) / "p4src")
        add_ranking(copy / "v1model", (folder / "short.p4").read_text())
        out = Path(scratch) / "echelon.json"
        command = [
            "p4c-bm2-ss",
            "--std",
            "p4-16",
            "--arch",
            "v1model",
            "-o",
            str(out),
            "echelon.p4",
        ]
        done = subprocess.run(
            command, cwd=copy / "v1model", capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(done.stderr)
        return out.read_bytes()


def switch_with(program: bytes, ranking: Any) -> Switch:
    """Return a switch between two hosts with the entries of a flow that has the ranking."""
    hosts = {f"h{at}": Host(f"h{at}", f"10.0.0.{at}", f"02:00:00:00:00:0{at}") for at in (1, 2)}
    links = tuple(
        CableLink(LinkEnd(f"h{at}", 0), LinkEnd("s1", at), 1_000_000_000, Fraction(0))
        for at in (1, 2)
    )
    fabric = Fabric("pair", hosts, {"s1": FabricSwitch("s1", 1)}, links)
    plan = Plan(
        "check",
        (FlowPlan("job", "flow", ranking, ("h1", "s1", "h2")),),
        tuple(map(QueuePlan, range(LEVELS))),
    )
    switch = Switch(load_program(program, "echelon.json"))
    for entry in lower(plan, fabric, {("job", "flow"): ShimIdentity(1, 0)}, softswitch())[
        "s1"
    ].entries:
        (call,) = entry.actions
        table = switch.tables[full_name(switch.tables, entry.table)]
        key = tuple(element(match) for _, match in entry.match)
        table.insert(
            key,
            entry.priority,
            full_name(table.actions, call.name),
            [value for _, value in call.arguments],
        )
    return switch


def full_name(names: Any, name: str) -> str:
    return next(each for each in names if each.rpartition(".")[2] == name)


def element(match: Any) -> Any:
    if isinstance(match, Prefix):
        return match.value, match.length
    return (match.low, match.high) if isinstance(match, Interval) else match


def problems(switch: Switch) -> Iterator[str]:
    """Yield the lengths of packets that enter a wrong queue."""
    address = FlowAddress(
        "02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1", "10.0.0.2", 4000, 1, 0
    )
    wrong = []
    for at, length in enumerate(range(100, 1501)):
        frame_bytes = length + ETHERNET_BYTES
        # Every packet says that it is alone, and leaves before the next: its queue does not depend
        # on those before.
        frame = ShimFrames(address, 1, frame_bytes).data(
            DataSegment(1_000_000, frame_bytes, alone=True)
        )
        now_ns = 1_000_000_000 + at * 1_000_000
        (queued,) = switch.ingress(1, frame, now_ns)
        switch.egress(queued, now_ns, now_ns, 0, 0)
        expected = UPPER if length <= LIMIT_BYTES else LOWER
        if queued.queue != expected:
            wrong.append((length, queued.queue, expected))
    for (queue, expected), group in itertools.groupby(wrong, key=lambda one: one[1:]):
        lengths = [length for length, _, _ in group]
        yield (
            f"packets of {lengths[0]} to {lengths[-1]} bytes enter queue {queue}, not queue"
            f" {expected}"
        )


def ranking_in(folder: Path) -> Any:
    """Return the class of the ranking in the folder."""
    spec = importlib.util.spec_from_file_location("short", folder / "short.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["short"] = module
    spec.loader.exec_module(module)
    return module.Short


def main(folder: Path) -> int:
    ranking = ranking_in(folder)(LIMIT_BYTES, LOWER, UPPER)
    found = list(problems(switch_with(compiled(folder), ranking)))
    for problem in found:
        print(problem)
    print("there is something left to do" if found else "done")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
