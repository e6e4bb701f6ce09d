"""Keep what p4c's Tofino back end and its assembler made of a TNA program.

`python tofino_output.py BUILD DIR SOURCE [EXTENSION]`

DIR has `bf-rt.json`, `echelon.p4info.txtpb` and the folder `pipe`: the assembly `SOURCE.bfa`, the
assembler's `context.json` and the compiler's `logs`. The kept files go to the folder BUILD. EXTENSION
has the sources of a program that extends those of p4src.

Kept files hold nothing that changes from run to run, such as dates and run ids, so that the same
sources give the same files.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.model.p4program import source_digest

_RESOURCES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "logical_tables": ("logical_tables", "ids", ("size",)),
    "gateways": ("gateways", "gateways", ("nRows", "nUnits")),
    "sram_blocks": ("rams", "srams", ("nRows", "nColumns")),
    "tcam_blocks": ("tcams", "tcams", ("nRows", "nColumns")),
    "map_rams": ("map_rams", "maprams", ("nRows", "nUnits")),
    "hash_bits": ("hash_bits", "bits", ("nBits", "nFunctions")),
    "hash_distribution_units": ("hash_distribution_units", "units", ("nHashIds", "nUnitIds")),
    "stateful_and_meter_alus": ("meter_alus", "meters", ("nAlus",)),
    "counter_alus": ("statistic_alus", "stats", ("nAlus",)),
    "vliw_instructions": ("vliw", "instructions", ("size",)),
    "crossbar_bytes": ("xbar_bytes", "bytes", ("size",)),
}
"""The places of each resource of a stage in the report.

They are its part of the report, the list of what is used, and the factors of what is available.
"""

_UNITS = {
    "sram_blocks": "1,024 words of 128 bits",
    "tcam_blocks": "512 words of 44 bits",
    "hash_distribution_units": "16 bits of hash",
    "vliw_instructions": "one word of instructions for all containers",
}


def summary(resources: Mapping[str, Any], phv: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each stage and the packet header vector use, and what there is of each resource.

    Args:
        resources: the compiler's `resources.json`.
        phv: the compiler's `phv.json`.
    """
    report = resources["resources"]
    stages = report["mau"]["mau_stages"]
    return {
        "units": _UNITS,
        "available": {
            "stages": report["mau"]["nStages"],
            "per_stage": {
                name: math.prod(stages[0][part][size] for size in sizes)
                for name, (part, _, sizes) in _RESOURCES.items()
            },
            "parser_rows": report["parser"]["parsers"][0]["nStates"],
        },
        "stages": [
            {
                "stage": stage["stage_number"],
                **{name: len(stage[part][used]) for name, (part, used, _) in _RESOURCES.items()},
                "tables": [table["table_name"] for table in _by_id(stage["logical_tables"]["ids"])],
            }
            for stage in stages
        ],
        "parser_rows": {
            parser["gress"]: len(parser["states"]) for parser in report["parser"]["parsers"]
        },
        "phv": _containers(report["phv_containers"], phv["containers"]),
    }


def _by_id(tables: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the tables of a stage, each once, in the order in which the stage runs them."""
    yield from {
        table["id"]: table for table in sorted(tables, key=lambda table: int(table["id"]))
    }.values()


def _containers(
    available: Mapping[str, Sequence[Mapping[str, Any]]], used: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the containers of each kind and width: all, those used, and the bits in any stage."""
    numbers: dict[tuple[str, int], set[int]] = defaultdict(set)
    bits: Counter[tuple[str, int]] = Counter()
    for container in used:
        kind = container["container_type"], container["bit_width"]
        numbers[kind].add(container["phv_number"])
        covered = 0
        for part in container["slices"]:
            low, high = part["slice_info"]["lsb"], part["slice_info"]["msb"]
            covered |= (1 << high + 1) - (1 << low)
        bits[kind] += covered.bit_count()
    found = []
    for name, groups in available.items():
        for group in groups:
            kind = name, group["width"]
            found.append({
                "kind": name,
                "bits": group["width"],
                "available": group["units"],
                "used": len(numbers[kind]),
                "bits_used": bits[kind],
            })  # fmt: skip
    return found


def compact(context: Mapping[str, Any]) -> str:
    """Return a `context.json` without what changes at each run, one table or element a line."""
    lines = []
    for key, value in context.items():
        if key in ("build_date", "run_id"):
            continue
        if isinstance(value, list) and value:
            value_text = "[\n" + ",\n".join(_dense(item) for item in value) + "\n]"
        else:
            value_text = _dense(value)
        lines.append(f"{json.dumps(key)}: {value_text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _dense(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def without_run_id(assembly: str) -> str:
    """Return an assembly file without the number of the compiler's run."""
    return "".join(
        line for line in assembly.splitlines(keepends=True) if not line.startswith("  run_id:")
    )


def main(kept: Path, made: Path, source: str, extension: Path | None = None) -> None:
    """Keep the output in `kept`, with the digest of the sources in p4src and `extension`."""
    kept.mkdir(parents=True, exist_ok=True)
    for file in ("bf-rt.json", "echelon.p4info.txtpb"):
        shutil.copyfile(made / file, kept / file)
    pipe = made / "pipe"
    (kept / "echelon.bfa").write_text(without_run_id((pipe / f"{source}.bfa").read_text()))
    (kept / "context.json").write_text(compact(json.loads((pipe / "context.json").read_text())))
    resources, phv = (
        json.loads((pipe / "logs" / f"{log}.json").read_text()) for log in ("resources", "phv")
    )
    (kept / "resources.json").write_text(json.dumps(summary(resources, phv), indent=1) + "\n")
    (kept / "SOURCE.sha256").write_text(
        source_digest(Path(__file__).parent, "tna", extension) + "\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], *map(Path, sys.argv[4:]))
