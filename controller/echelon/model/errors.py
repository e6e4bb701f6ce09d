"""The base of every error that a user can meet: a text for people, a code for programs.

The text may change from one version to the next; the code does not. `docs/errors.md` explains each
code.
"""

from __future__ import annotations

from typing import Literal

Code = Literal[
    # Files and bodies of requests, before any key is looked at.
    "unreadable-file",
    "not-utf8",
    "bad-syntax",
    "duplicate-key",
    "nested-too-deep",
    "empty-document",
    # One key, or one of its values.
    "invalid-value",
    "unknown-key",
    "missing-key",
    "conflicting-key",
    "not-a-mapping",
    "not-a-list",
    "not-text",
    "not-a-name",
    "not-a-number",
    "not-an-address",
    "not-a-quantity",
    "missing-unit",
    "unknown-unit",
    "not-allowed",
    "too-small",
    "too-large",
    "out-of-range",
    "wrong-length",
    "duplicate",
    "unconnected",
    # Names that nothing has.
    "unknown-host",
    "unknown-node",
    "unknown-switch",
    "unknown-link",
    "unknown-job",
    "unknown-policy",
    "unknown-target",
    "unknown-parameter",
    "unknown-path",
    "unknown-name",
    # Plans.
    "cycle",
    "plan-impossible",
    "no-route",
    "does-not-fit",
    "numbers-exhausted",
    # Switches.
    "switch-failed",
    "not-primary",
    "tls",
    # The service and its store.
    "refused",
    "name-taken",
    "limit-reached",
    "unavailable",
    "standby",
    "no-plan",
    "store-failed",
    "store-unavailable",
    "not-leader",
    "cannot-listen",
    # Requests to the API.
    "unauthenticated",
    "forbidden",
    "timeout",
    "method-not-allowed",
    "unsupported-media-type",
    "too-many-requests",
    "internal",
    "no-answer",
    # Runs and measurements.
    "run-failed",
    "failed",
]
"""The kind of fault."""


class CodedError(Exception):
    """An error with a text for people and a `code` for programs."""

    code: Code = "failed"

    def __init__(self, *args: object, code: Code | None = None) -> None:
        super().__init__(*args)
        if code is not None:
            self.code = code


class RunError(CodedError):
    """A run cannot go on. The message is one line, for the person who started it."""

    code: Code = "run-failed"
