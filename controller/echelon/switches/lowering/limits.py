"""The limits of recognising a job by its bytes, told before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import RecognitionSpec
from echelon.model.quantities import duration_text

_NAMED = 2
"""The number of pairs of hosts that a line names."""


def limits(job: Job, recognition: RecognitionSpec) -> Iterator[str]:
    """Yield lines about a job's recognition; none where its senders mark packets."""
    if recognition.by == "shim" or recognition.idle_gap is None:
        return
    pairs = connections(job)
    pause = ""
    if not recognition.pause:
        pause = ", and over TCP each gets its rank when it starts and after pauses"
    gap = duration_text(recognition.idle_gap)
    if recognition.iterations == "bytes":
        begins = (
            "behind the bytes of the one before, on each connection, and is put right by silences"
            f" of {gap} near it (on a Tofino, whose stages are full, after such a silence alone: where"
            " there is none, no iteration begins,"
            " and what is past the bytes of the first is best effort)"
        )
    else:
        begins = f"after {gap} of silence and 95 % of a connection's bytes"
    yield (
        f"job '{job.name}': flows are told apart by their order and sizes on {len(pairs)}"
        f" connections{pause}; an iteration begins {begins}"
    )
    if recognition.by == "agent":
        yield (
            f"job '{job.name}': bytes and silences are counted on connections that carry data: not"
            " on those to stores and rendezvous, which agents tell by who opened them, nor on any"
            " that carries less than 1/32 of the bytes between its hosts. Several that carry data"
            " between two hosts at once count as one, in the order in which their bytes pass"
        )
    if not recognition.pause:
        return
    # By bytes, each direction has a connection of its own, unless its ports are those of the other
    # one.
    is_shared = recognition.by == "agent" or recognition.source_port == recognition.destination_port
    both = [
        f"{src} and {dst}" for src, dst in pairs if is_shared and src < dst and (dst, src) in pairs
    ]
    if both:
        more = f" and {len(both) - _NAMED} more pairs" if both[_NAMED:] else ""
        yield (
            f"job '{job.name}': recognition.pause does nothing between"
            f" {', '.join(both[:_NAMED])}{more}: one connection carries data both ways there, and a"
            " pause of both would stop it"
        )
    if recognition.by == "agent":
        yield (
            f"job '{job.name}': recognition.pause does nothing between hosts with several"
            " connections that carry data, since they have no common sequence numbers"
        )
