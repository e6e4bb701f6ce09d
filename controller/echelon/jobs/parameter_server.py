"""Data parallelism with a parameter server: workers push gradients to one host, which sends all of them new parameters.

Synchronous training (Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI '14, with its
sequential consistency): the server aggregates when the gradients of all workers are there, and every worker waits for
the new parameters. The server's link carries everybody's bytes, twice in an iteration.

The pushes are a coflow, as the server needs all of them before it goes on; so are the pulls, as the iteration is over
with the last of them (EchelonFlow, Pan et al., HotNets '22, section 3, eq. 5). They are two EchelonFlows and not one
because each is one collective of the paper; how far the second follows the first is no distance of computing but
mostly the time that the pushes take.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from echelon.jobs.graph import ComputeUnit, EchelonFlow, Flow
from echelon.jobs.iteration import IterationGraph


def parameter_server(
    workers: Sequence[str], server: str, compute_s: Fraction, gradient_bytes: int, aggregate_s: Fraction = Fraction(0)
) -> IterationGraph:
    """One iteration of `workers`, each with `compute_s` seconds of work before it pushes `gradient_bytes` to `server`.

    The server, a host of its own, takes `aggregate_s` seconds for all of them together and then sends as many bytes of
    parameters to each worker.

    Names count workers from 1: computes `compute-w1`, `aggregate`; flows and EchelonFlows `push-w1` of `push` and
    `pull-w1` of `pull`.
    """
    numbered = list(enumerate(workers, start=1))
    computes = [ComputeUnit(f"compute-w{i}", worker, compute_s) for i, worker in numbered]
    pushes = [Flow(f"push-w{i}", worker, server, gradient_bytes, (f"compute-w{i}",)) for i, worker in numbered]
    aggregate = ComputeUnit("aggregate", server, aggregate_s, tuple(flow.name for flow in pushes))
    pulls = [Flow(f"pull-w{i}", server, worker, gradient_bytes, (aggregate.name,)) for i, worker in numbered]
    return IterationGraph((*computes, aggregate), (*pushes, *pulls), (_coflow("push", pushes), _coflow("pull", pulls)))


def _coflow(name: str, flows: Sequence[Flow]) -> EchelonFlow:
    return EchelonFlow(name, tuple(flow.name for flow in flows), (Fraction(0),) * len(flows))
