"""The OpenAPI document is an interface: it changes when somebody means it to.

`python -m tests.echelon.service.api.test_openapi` writes the file anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from echelon.controller.service.api.app import create_app
from echelon.controller.service.api.settings import ApiSettings
from echelon.controller.service.api.tokens import Tokens

FILE = Path(__file__).with_name("openapi.json")


def document() -> str:
    """Return the document of a service with tokens and metrics, in the order in which it answers
    it.
    """
    # It depends on no state of a service.
    app = create_app(cast(Any, None), ApiSettings(tokens=Tokens([])), lambda: (b"", "text/plain"))
    found = app.openapi()
    found["info"]["version"] = "VERSION"
    return _text(found, levels=3) + "\n"


def _text(value: Any, levels: int) -> str:
    """Return JSON, with what is deeper than `levels` on one line."""
    if levels == 0 or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return (
        "{\n"
        + ",\n".join(f"{json.dumps(key)}: {_text(one, levels - 1)}" for key, one in value.items())
        + "\n}"
    )


def test_the_document_is_the_committed_one() -> None:
    assert document() == FILE.read_text(encoding="utf-8")


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
