"""The names of the paradigms that the operations of a job show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from echelon_torch.capture.iterations import JobProfile, Operation, RankProfile

_LEAST_GRADIENT = 1024


@dataclass(frozen=True, slots=True)
class Recognised:
    """A paradigm, and what shows it."""

    paradigm: str
    """The name of the paradigm in a job file."""
    because: str


def recognise(profile: JobProfile) -> tuple[Recognised, ...]:
    """Return the paradigms of a job; none if its operations show none.

    * `fsdp`: a group gathers parameters and scatters gradients, with the bytes of the one in the
      other.
    * `data`: a group all-reduces in the backward pass, and waits at its end only; or behind the
      backward pass, in which the rank communicates with others.
    * `tensor`: a group all-reduces in both passes, and a rank waits for each at once; or it gathers
      and scatters in both (sequence parallelism).
    * `expert`: a group exchanges all-to-all.
    * `pipeline`: ranks send to neighbours and receive from them in return. The schedule is GPipe if
      the first stage sends everything before it receives, else 1F1B.
    """
    recognised = set(_pipelines(profile))
    for rank in profile.ranks:
        recognised.update(_by_rank(rank))
    return tuple(sorted(recognised, key=lambda each: (each.paradigm, each.because)))


def _by_rank(profile: RankProfile) -> Iterator[Recognised]:
    operations: dict[str, list[Operation]] = {}
    for each in profile.operations:
        if len(each.ranks) > 1:
            operations.setdefault(each.call.group, []).append(each)
    for group in operations.values():
        yield from _by_group(profile, group)


def _by_group(profile: RankProfile, operations: Sequence[Operation]) -> Iterator[Recognised]:
    ranks = f"ranks {', '.join(map(str, operations[0].ranks))}"
    by_kind: dict[str, list[Operation]] = defaultdict(list)
    for each in operations:
        by_kind[each.call.kind].append(each)

    exchanges = by_kind["all-to-all"]
    if exchanges:
        yield Recognised("expert", f"{len(exchanges)} all-to-alls of {ranks}")
    yield from _by_reduces(profile, by_kind["all-reduce"], ranks)
    yield from _by_gathers(by_kind["all-gather"], by_kind["reduce-scatter"], ranks)


def _by_reduces(
    profile: RankProfile,
    reduces: Sequence[Operation],
    ranks: str,
) -> Iterator[Recognised]:
    awaited = _awaited_at_once(profile)
    blocking = [each for each in reduces if each.call.number in awaited]
    if _is_in_both_passes(blocking):
        yield Recognised(
            "tensor", f"{len(blocking)} all-reduces of {ranks} in both passes, each awaited at once"
        )

    late = [each for each in reduces if each.call.number not in awaited]
    buckets = [each for each in late if each.call.backward]
    if buckets:
        yield Recognised(
            "data",
            f"{len(buckets)} buckets all-reduced by {ranks}, awaited behind the backward pass",
        )
        return
    gradients = _behind_backward(profile, reduces)
    if gradients:
        yield Recognised(
            "data", f"{len(gradients)} gradients all-reduced by {ranks} behind the backward pass"
        )


def _by_gathers(
    gathers: Sequence[Operation],
    scatters: Sequence[Operation],
    ranks: str,
) -> Iterator[Recognised]:
    because = f"{len(gathers)} all-gathers and {len(scatters)} reduce-scatters of {ranks}"
    # FSDP scatters nothing in the forward pass.
    if _is_in_both_passes(gathers) and _is_in_both_passes(scatters):
        yield Recognised("tensor", f"{because} in both passes")
    if not gathers or not scatters or not all(each.call.backward for each in scatters):
        return

    # A rank gathers parts of the size of those that it scatters whole.
    count = len(gathers[0].ranks)
    sizes = {round(each.size_bytes.mean) * count for each in gathers}
    if all(round(each.size_bytes.mean) in sizes for each in scatters):
        yield Recognised("fsdp", f"{because} with the same bytes")


def _is_in_both_passes(operations: Sequence[Operation]) -> bool:
    return {each.call.backward for each in operations} == {True, False}


def _behind_backward(profile: RankProfile, reduces: Sequence[Operation]) -> Sequence[Operation]:
    """Return a group's all-reduces if all follow the backward pass's last operation; else none."""
    backward = [each.call.number for each in profile.operations if each.call.backward]
    if not backward or not reduces:
        return ()
    if any(moment.ends_backward for moment in profile.moments):
        return ()
    if min(each.call.number for each in reduces) < max(backward):
        return ()
    # A single number, such as a loss, is no gradient.
    if sum(each.size_bytes.mean for each in reduces) >= _LEAST_GRADIENT:
        return reduces
    return ()


def _awaited_at_once(profile: RankProfile) -> set[int]:
    """Return the calls for which the rank waits as the next thing that it does."""
    awaited = set()
    last: int | None = None
    for moment in profile.moments:
        waits = moment.call is None and not moment.ends_backward
        if waits and last is not None and last in moment.waits:
            awaited.add(last)
        last = moment.call
    return awaited


def _pipelines(profile: JobProfile) -> Iterator[Recognised]:
    transfers: list[list[Operation]] = []
    sends = set()
    for rank, rank_profile in enumerate(profile.ranks):
        transfers.append([])
        for each in rank_profile.operations:
            if each.call.kind in ("send", "receive"):
                transfers[rank].append(each)
            if each.call.kind == "send":
                sends.add((rank, _peer(each)))

    for rank, operations in enumerate(transfers):
        # A first stage sends before it receives.
        if operations and operations[0].call.kind == "send":
            yield _pipeline(_chain(rank, sends), operations)


def _chain(first: int, sends: Collection[tuple[int, int]]) -> list[int]:
    """Return the stages that follow each other from the first on."""
    chain = [first]
    while True:
        receivers = [dst for src, dst in sends if src == chain[-1] and dst not in chain]
        if not receivers:
            return chain
        chain.append(min(receivers))


def _pipeline(chain: Sequence[int], transfers: Sequence[Operation]) -> Recognised:
    """Return the pipeline whose first stage makes these transfers."""
    kinds = [each.call.kind for each in transfers if _peer(each) == chain[1]]
    batches = kinds.count("send")
    if "receive" not in kinds:
        schedule = "forward only"
    elif kinds == sorted(kinds, reverse=True):
        schedule = "GPipe"
    else:
        schedule = "1F1B"
    stages = ", ".join(map(str, chain))
    because = f"stages on ranks {stages}, {batches} micro-batches, {schedule}"
    return Recognised("pipeline", because)


def _peer(operation: Operation) -> int:
    return operation.ranks[operation.call.peer]
