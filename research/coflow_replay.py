"""The replay of a coflow trace on one big switch under a policy, as a fluid.

The ports of the switch are its only bottlenecks. Between decisions all rates are constant. A policy
decides when a coflow arrives or is finished and when it says so itself, as in
`Allocation.valid_until_s`; and when a flow is finished, though no sooner than an interval after the
last decision, in which the bandwidth of finished flows is idle. With interval 0 this is the model
of `echelon.planning.fluid` for such coflows.

A trace has hundreds of thousands of flows at a time, so the flows of a coflow are arrays.
`_ArraySharing` gives rates to them; their order and what they get is the policy's own decision
(`CoflowPolicy.share`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from echelon.model.fabric.builders import one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.progress import UNSEEN, CommandProgress
from echelon.planning.allocation import Link, Number
from echelon.planning.policies.coflows import CoflowKey

if TYPE_CHECKING:
    from echelon.planning.policies.coflows import CoflowPolicy
    from echelon_lab.traffic.coflow_trace import CoflowTrace, TracedCoflow

Floats: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"
Ints: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
Mask: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.bool_]]"

DONE_BYTES = 1e-3
"""A flow is finished if less than this is left, since times are rounded."""
FULL = 1e-9
"""A port is full if at most this part of its rate is left."""


@dataclass(frozen=True, slots=True)
class CoflowReplay:
    """The completion times of the coflows of a trace."""

    completion_s: Mapping[str, float]
    """The time from arrival to the end of the last flow, by coflow."""
    end_s: float
    """The time when the last coflow was finished, counted from the trace's time 0."""
    decisions: int


@dataclass(slots=True, eq=False)
class _Coflow:
    """A coflow under way: arrays of its flows that are not finished."""

    key: CoflowKey
    arrival_s: float
    src: Ints
    dst: Ints
    """The receiving ports, numbered after the sending ones."""
    left: Floats
    rates: Floats
    size: float
    """The bytes of all its flows, finished ones included."""

    def __init__(self, traced: TracedCoflow, ports: int) -> None:
        mappers = len(traced.mappers)
        reducers = len(traced.reducers)
        self.key = traced.name, 1, "coflow"
        self.arrival_s = traced.arrival_s
        senders = np.array(traced.mappers, dtype=np.int64)
        receivers = np.array([ports + port for port, _ in traced.reducers], dtype=np.int64)
        shares = np.array([size / mappers for _, size in traced.reducers])
        # A flow from each mapper to each reducer, with an equal share of what the reducer gets.
        self.src = np.tile(senders, reducers)
        self.dst = np.repeat(receivers, mappers)
        self.left = np.repeat(shares, mappers)
        self.size = float(self.left.sum())
        self.rates = np.zeros_like(self.left)
        self.drop_finished()

    def drop_finished(self) -> None:
        going = self.left > DONE_BYTES
        if not going.all():
            self.src = self.src[going]
            self.dst = self.dst[going]
            self.left = self.left[going]
            self.rates = self.rates[going]


class _ArraySharing:
    """The `echelon.planning.policies.coflows.CoflowSharing` of coflows on one big switch, whose
    links are numbered.
    """

    def __init__(
        self,
        coflows: Sequence[_Coflow],
        links: Sequence[Link],
        rate_Bps: float,  # noqa: N803
    ) -> None:
        self._by_key = {coflow.key: coflow for coflow in coflows}
        self._links = links
        self._full = FULL * rate_Bps
        self.residual_Bps: MutableMapping[Link, Number] = dict.fromkeys(links, rate_Bps)
        for coflow in coflows:
            coflow.rates[:] = 0

    @property
    def coflows(self) -> Sequence[CoflowKey]:
        return list(self._by_key)

    def load_bytes(self, coflow: CoflowKey) -> Mapping[Link, Number]:
        sent = self._by_key[coflow]
        loads = self._by_link(sent.src, sent.left) + self._by_link(sent.dst, sent.left)
        by_link = {}
        for link, load in zip(self._links, loads.tolist(), strict=True):
            if load:
                by_link[link] = load
        return by_link

    def sent_bytes(self, coflow: CoflowKey) -> Number:
        sent = self._by_key[coflow]
        return sent.size - float(sent.left.sum())

    def rate_Bps(self, coflow: CoflowKey) -> Number:  # noqa: N802
        return float(self._by_key[coflow].rates.sum())

    def finish_in(self, coflow: CoflowKey, seconds: Number) -> None:
        sent = self._by_key[coflow]
        sent.rates[:] = sent.left / float(seconds)
        room = self._room(self.residual_Bps)
        room -= self._by_link(sent.src, sent.rates)
        room -= self._by_link(sent.dst, sent.rates)
        self._leave(self.residual_Bps, room)

    def fill_evenly(
        self,
        coflows: Iterable[CoflowKey],
        residual_Bps: MutableMapping[Link, Number],  # noqa: N803
    ) -> None:
        chosen = [self._by_key[key] for key in coflows]
        if not chosen:
            return
        room = self._room(residual_Bps)
        src = np.concatenate([coflow.src for coflow in chosen])
        dst = np.concatenate([coflow.dst for coflow in chosen])
        added = np.zeros(len(src))
        going = np.flatnonzero(self._has_room(room, src, dst))
        while len(going):
            s = src[going]
            d = dst[going]
            count = self._by_link(s) + self._by_link(d)
            share = np.divide(
                room,
                count,
                out=np.full(len(room), np.inf),
                where=count > 0,
            )
            src_share = share[s]
            dst_share = share[d]
            # Flows stop at every port whose share is the lowest among the ports of its flows, not
            # only at the tightest port.
            tied = 1 + 1e-12
            looser = self._by_link(s, dst_share * tied < src_share)
            looser += self._by_link(d, src_share * tied < dst_share)
            stops = looser == 0
            stopped = stops[s] | stops[d]
            rates = np.minimum(src_share, dst_share)[stopped]
            added[going[stopped]] = rates
            taken = self._by_link(s[stopped], rates)
            taken += self._by_link(d[stopped], rates)
            room -= taken
            np.maximum(room, 0, out=room)
            going = going[~stopped]
        self._leave(residual_Bps, room)
        begin = 0
        for coflow in chosen:
            end = begin + len(coflow.src)
            coflow.rates += added[begin:end]
            begin = end

    def fill_in_order(self) -> None:
        room = self._room(self.residual_Bps)
        for coflow in self._by_key.values():
            src = coflow.src
            dst = coflow.dst
            going = np.flatnonzero(self._has_room(room, src, dst))
            while len(going):
                flow = going[0]
                sender = src[flow]
                receiver = dst[flow]
                rate = min(room[sender], room[receiver])
                coflow.rates[flow] += rate
                room[sender] -= rate
                room[receiver] -= rate
                has_room = self._has_room(room, src[going], dst[going])
                going = going[has_room]
        self._leave(self.residual_Bps, room)

    def _has_room(
        self,
        room: Floats,
        src: Ints,
        dst: Ints,
    ) -> Mask:
        """Return of each flow whether neither of its ports is full."""
        src_has_room: Mask = room[src] > self._full
        dst_has_room: Mask = room[dst] > self._full
        return src_has_room & dst_has_room

    def _by_link(self, ends: Ints, values: Floats | Mask | None = None) -> Floats:
        """Return the sum of `values` (by default the number) of the flows at each link."""
        return np.bincount(
            ends,
            weights=values,
            minlength=len(self._links),
        ).astype(np.float64)

    def _room(self, residual_Bps: Mapping[Link, Number]) -> Floats:  # noqa: N803
        return np.array([float(residual_Bps.get(link, 0.0)) for link in self._links])

    def _leave(self, residual_Bps: MutableMapping[Link, Number], room: Floats) -> None:  # noqa: N803
        for link, left in zip(self._links, room.tolist(), strict=True):
            if link in residual_Bps:
                residual_Bps[link] = left if left > self._full else 0.0


def replay(
    trace: CoflowTrace,
    policy: CoflowPolicy,
    rate_bps: int,
    interval_s: float = 0.0,
    progress: CommandProgress = UNSEEN,
) -> CoflowReplay:
    """Send all coflows of a trace at the rates of a policy.

    Every port of the switch has `rate_bps` in each direction.

    `progress` is told of each coflow that has finished.
    """
    fabric = build_fabric(one_tor(max(trace.ports, 2), rate_bps))
    policy.plan((), fabric)
    hosts = list(fabric.hosts)[: trace.ports]
    (switch,) = fabric.switches
    links = [(host, switch) for host in hosts]
    links += [(switch, host) for host in hosts]
    to_come = list(reversed(trace.coflows))
    active: list[_Coflow] = []
    completion_s: dict[str, float] = {}
    now_s = 0.0
    decisions = 0
    while to_come or active:
        if not active:
            now_s = max(now_s, to_come[-1].arrival_s)
        while to_come and to_come[-1].arrival_s <= now_s:
            active.append(_Coflow(to_come.pop(), trace.ports))
        hold_s = policy.share(_ArraySharing(active, links, rate_bps / 8))
        decisions += 1
        end_s = _next_s(now_s, active, interval_s)
        if hold_s is not None:
            end_s = min(end_s, now_s + float(hold_s))
        if to_come:
            end_s = min(end_s, to_come[-1].arrival_s)
        going = []
        for coflow in active:
            coflow.left -= coflow.rates * (end_s - now_s)
            coflow.drop_finished()
            if len(coflow.left):
                going.append(coflow)
            else:
                name, *_ = coflow.key
                completion_s[name] = end_s - coflow.arrival_s
        now_s = end_s
        finished = len(active) - len(going)
        if finished:
            progress.done(finished)
        active = going
    return CoflowReplay(completion_s, now_s, decisions)


def _next_s(
    now_s: float,
    active: Sequence[_Coflow],
    interval_s: float,
) -> float:
    """Return when a coflow is finished, or the first flow at which a decision is due."""
    first_flow_s = first_coflow_s = np.inf
    for coflow in active:
        if not len(coflow.left):
            return now_s
        needs_s = np.divide(
            coflow.left,
            coflow.rates,
            out=np.full(len(coflow.left), np.inf),
            where=coflow.rates > 0,
        )
        first_flow_s = min(first_flow_s, float(needs_s.min()))
        first_coflow_s = min(first_coflow_s, float(needs_s.max()))
    decision_s = max(first_flow_s, interval_s)
    return now_s + min(first_coflow_s, decision_s)
