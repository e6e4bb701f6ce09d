"""The body of every answer that is not a success."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ErrorDetail(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    status: int
    """The HTTP status."""
    code: str
    """The kind of fault, for programs. docs/errors.md explains each code."""
    reason: str
    """One line: what, why, and what to do."""
    path: str
    """The key at fault, like `pipeline.activation[0]`, or a line and column; empty: none."""


class ErrorResource(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail
