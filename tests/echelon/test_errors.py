"""The codes of errors: documented, raised, and kept."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import get_args

from echelon.model.documents import DocumentError
from echelon.model.errors import Code
from echelon.planning.plan import PlanError

ROOT = Path(__file__).parents[2]
CODES = list(get_args(Code))


def test_every_code_is_documented_in_order() -> None:
    assert (
        re.findall(
            r"^\| `([a-z0-9-]+)` \|", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE
        )
        == CODES
    )


def test_every_code_has_a_use() -> None:
    """Every code is used elsewhere than in the list of all codes."""
    listed = ROOT / "controller" / "echelon" / "model" / "errors.py"
    text = "".join(path.read_text() for path in listed.parents[1].rglob("*.py") if path != listed)
    assert [code for code in CODES if f'"{code}"' not in text and code != "failed"] == []


def test_a_code_is_the_one_given_or_that_of_the_class() -> None:
    assert PlanError("no").code == "plan-impossible"
    assert PlanError("no", code="no-route").code == "no-route"


def test_an_error_from_another_process_keeps_its_code() -> None:
    there = pickle.loads(
        pickle.dumps(DocumentError("f.yaml", "a[0]", "is wrong (mend it)", code="too-large"))
    )
    assert (there.code, str(there)) == ("too-large", "f.yaml: a[0]: is wrong (mend it)")
