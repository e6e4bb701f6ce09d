"""The expectations of an error: its code and the things that it names, rather than its wording."""

from __future__ import annotations

from collections.abc import Callable

from echelon.model.errors import Code, CodedError


def coded(code: Code, *names: str, **attributes: object) -> Callable[[CodedError], bool]:
    """Return a check for `pytest.raises`: the error has the code and the attributes, and its text
    has the names.
    """

    def check(error: CodedError) -> bool:
        found = {name: getattr(error, name, None) for name in attributes}
        return (
            error.code == code and found == attributes and all(name in str(error) for name in names)
        )

    return check
