"""The page of the Python API. mkdocstrings fills it from the docstrings."""

from __future__ import annotations

INTRODUCTION = """# Python API

Everything that `import echelon` gives. [Scenarios](scenarios.md#from-python) shows how to use it.
"""

CLIENTS = """## Clients of the service

`Client` blocks, `AsyncClient` is awaited, and both have the calls of `Calls`. Where a call is annotated with
`Conversation[JobResource]`, `Client` returns a `JobResource` and `AsyncClient` a coroutine of one.
[Service](service.md#python-clients) shows how to use them.
"""


def page() -> str:
    """Return the page."""
    import echelon

    return "\n".join(
        [
            INTRODUCTION,
            *(f"::: echelon.{name}\n" for name in echelon.__all__),
            CLIENTS,
            "::: echelon.controller.client.Client\n",
            "::: echelon.controller.client.AsyncClient\n",
            "::: echelon.controller.client.calls.Calls",
        ]
    )
