"""`python -m tests.conformance`: ask switches for all that P4Runtime requires.

Prints what is not met, and how many are. `--write` writes the page of the documentation.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "controller")]

from tests.conformance.page import PAGE, kinds, read, written  # noqa: E402
from tests.conformance.requirement import REQUIREMENTS, asked  # noqa: E402
from tests.conformance.switches import NAMES  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("--switch", action="append", choices=NAMES, help="only this one")
    parser.add_argument("--number", action="append", help="only this requirement; repeatable")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    verdicts = read() if PAGE.is_file() else {}
    for name in options.switch or NAMES:
        chosen = [r for r in REQUIREMENTS if not options.number or r.number in options.number]
        for requirement, answer in asked(name, chosen):
            verdicts[requirement.number, name] = answer is None
            if answer is not None:
                print(f"{name}: {requirement.number} {requirement.words} -> {answer}")
        for kind, requirements in kinds().items():
            met = sum(verdicts.get((r.number, name), False) for r in requirements)
            print(f"{name}: {met} of {len(requirements)} {kind}")
    if options.write:
        PAGE.write_text(written(verdicts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
