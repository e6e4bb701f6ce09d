"""The flows that switches saw last, and which jobs waited for which others by them."""

from __future__ import annotations

from echelon.controller.resources.base import Resource


class FlowTable(Resource):
    """Flows that finished, by column: a flow has the same place in each of them.

    Times are on one clock, to within the delay of a switch's report.
    """

    count: int
    """Number of flows that this leader has seen so far, more than are kept."""
    jobs: tuple[str, ...]
    """The names that `job` counts, from 0."""
    flows: tuple[str, ...]
    """The names that `flow` counts, from 0."""
    number: tuple[int, ...]
    """The flow's place among all that were seen, from 1."""
    job: tuple[int, ...]
    flow: tuple[int, ...]
    iteration: tuple[int, ...]
    """The iteration; in a running service modulo 256, as switches count."""
    start_s: tuple[float, ...]
    finish_s: tuple[float, ...]
    tardiness_s: tuple[float | None, ...]
    """The time from its ideal finish time to its finish; null: the plan gives it none."""


class WaitResource(Resource):
    """The time that a job's flows lost while flows of a job were on the same links."""

    job: str
    other: str
    """The other job, or the job itself."""
    wait_s: float
    links: tuple[tuple[str, str], ...]
    """The links where they met, as a node and the next one; the longest meeting first."""


class WaitsResource(Resource):
    """The jobs that wait for others, by the flows that were seen last.

    This is an estimate: it divides the time that a flow takes beyond its time alone over those that
    were on its links meanwhile.
    """

    flows: int
    """Number of flows that this comes from."""
    from_s: float | None
    """Start of the first of them."""
    to_s: float | None
    """Finish of the last."""
    waits: tuple[WaitResource, ...]
    """The longest first."""
