"""The page of the Python API. mkdocstrings fills it from the docstrings."""

from __future__ import annotations

INTRODUCTION = """# Python API

Everything that `import echelon` gives. [Scenarios](../scenarios.md#from-python) shows how to use it.
"""


def page() -> str:
    """Return the page."""
    import echelon

    return "\n".join(
        [
            INTRODUCTION,
            *(f"::: echelon.{name}\n" for name in echelon.__all__),
            "::: echelon.controller.client.Client",
        ]
    )
