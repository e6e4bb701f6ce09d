"""The expectations of an error: its code and the things that it names, rather than its wording."""

from __future__ import annotations

import re
from collections.abc import Callable

from echelon.model.errors import Code, CodedError


def coded(code: Code, *names: str, **attributes: object) -> Callable[[CodedError], bool]:
    """Return a check for `pytest.raises`: the error has the code and the attributes, and its text
    is one line that has the names.
    """

    def check(error: CodedError) -> bool:
        found = {name: getattr(error, name, None) for name in attributes}
        text = str(error)
        return (
            error.code == code
            and found == attributes
            and len(text.splitlines()) == 1
            and all(name in text for name in names)
        )

    return check


def naming(*facts: object) -> Callable[[BaseException], bool]:
    """Return a check for `pytest.raises`: the error's text has each of the facts."""

    def check(error: BaseException) -> bool:
        return mentions(str(error), *facts)

    return check


def mentions(text: str, *facts: object) -> bool:
    """Return whether a text has each name or number as a word, whatever stands between them."""
    return all(re.search(rf"(?<!\w){re.escape(str(fact))}(?!\w)", text) for fact in facts)
