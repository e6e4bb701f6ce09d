"""The last hour of jobs and ports."""

from __future__ import annotations

from echelon.controller.resources.base import Resource

Values = tuple[float | None, ...]
"""A value for each step, oldest first; null: nothing was seen."""


class JobHistory(Resource):
    job: str
    iteration_s: Values
    """The longest iteration that ended in the step."""
    tardiness_s: Values
    """The largest tardiness that was seen in the step."""


class PortHistory(Resource):
    switch: str
    port: int
    to: str
    """The host or switch at the other end of the port's link."""
    queues: tuple[Values, ...]
    """The part of the link's rate that each queue sent, the lowest level first."""


class HistoryResource(Resource):
    """The last hour in steps of equal length. The last step has not ended."""

    from_s: float
    """The time at which the first step began."""
    step_s: float
    jobs: tuple[JobHistory, ...]
    """Those first whose longest iteration was longest against the job alone."""
    ports: tuple[PortHistory, ...]
    """Those first that sent the most."""
