"""Data parallelism with a parameter server.

Workers push gradients to one host, which sends all of them new parameters.

Training is synchronous (Li et al., Scaling Distributed Machine Learning with the Parameter Server,
OSDI '14, with its sequential consistency). The server aggregates when it has the gradients of all
workers, and every worker waits for the new parameters. The server's link carries the bytes of all
workers, twice in an iteration.

The pushes are a coflow, because the server needs all of them before it goes on. The pulls are a
coflow too, because the last of them ends the iteration (EchelonFlow, Pan et al., HotNets '22,
section 3, eq. 5). They are two EchelonFlows because each is one collective of the paper: the
distance from the first to the second is not a compute time, but mostly the time that the pushes
take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import ClassVar

from pydantic import Field

from echelon.model.documents import Duration, Name, Size, duplicate
from echelon.model.jobs.combinators import Block, compute, flow, replicate, series
from echelon.model.jobs.graph import EchelonFlow, IterationGraph
from echelon.model.jobs.paradigm import Examples, Paradigm, example


class ParameterServer(Paradigm):
    """Data parallelism with a synchronous parameter server."""

    examples: ClassVar[Examples] = {
        "parameter_server": example(
            "parameter_server",
            "dlrm",
            2,
            server="h3",
            compute="500 ms",
            gradient="5 MB",
        ),
    }
    compute_times = frozenset({"compute", "aggregate"})

    server: Name = Field(description="the host that aggregates, e.g. h0")
    compute: Duration = Field(description="the compute time of an iteration, e.g. 500 ms")
    gradient: Size = Field(description="the bytes that each worker pushes, and pulls, e.g. 5 MB")
    aggregate: Duration = Fraction(0)
    """The seconds for which the server aggregates the gradients of all workers."""

    def flow_count(self, workers: int) -> int:
        return 2 * workers

    def connection_bytes(self, workers: int) -> int:
        return self.gradient

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        return parameter_server(workers, self.server, self.compute, self.gradient, self.aggregate)

    def check(self, workers: Sequence[str]) -> None:
        if self.server in workers:
            reason = f"'{self.server}' is one of the workers (give the server a host of its own)"
            raise duplicate(reason, "server")

    def other_hosts(self) -> Mapping[str, str]:
        return {self.server: "server"}


def parameter_server(
    workers: Sequence[str],
    server: str,
    compute_s: Fraction,
    gradient_bytes: int,
    aggregate_s: Fraction = Fraction(0),
) -> IterationGraph:
    """Return one iteration of `workers`, which compute, and then push `gradient_bytes`.

    Each computes for `compute_s` seconds.

    The `server`, a host of its own, aggregates for `aggregate_s` seconds when it has everything. It
    then sends as many bytes of parameters to each worker.

    Names count workers from 1: compute units `compute-w1`, `aggregate`; flows and EchelonFlows
    `push-w1` of `push` and `pull-w1` of `pull`.
    """

    def work(number: int, worker: str) -> Block:
        return compute(f"compute-w{number}", worker, compute_s)

    def push(number: int, worker: str) -> Block:
        return flow(f"push-w{number}", worker, server, gradient_bytes)

    def pull(number: int, worker: str) -> Block:
        return flow(f"pull-w{number}", server, worker, gradient_bytes)

    pushes = replicate(workers, push)
    pulls = replicate(workers, pull)
    aggregation = compute("aggregate", server, aggregate_s, "aggregate")
    iteration = series(replicate(workers, work), pushes, aggregation, pulls)
    pushed = EchelonFlow.coflow("push", pushes.flows)
    pulled = EchelonFlow.coflow("pull", pulls.flows)
    return iteration.graph(pushed, pulled)
