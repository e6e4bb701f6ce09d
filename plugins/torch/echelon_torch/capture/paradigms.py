"""The names of the paradigms that the operations of a job show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    found: dict[Recognised, None] = {}
    for own in profile.ranks:
        found.update(dict.fromkeys(_of_rank(own)))
    found.update(dict.fromkeys(_pipeline(profile)))
    return tuple(sorted(found, key=lambda each: (each.paradigm, each.because)))


def _of_rank(profile: RankProfile) -> Iterator[Recognised]:
    awaited = _awaited_at_once(profile)
    for group in dict.fromkeys(
        each.call.group for each in profile.operations if len(each.ranks) > 1
    ):
        own = [each for each in profile.operations if each.call.group == group]
        ranks = f"ranks {', '.join(map(str, own[0].ranks))}"
        kinds = {
            kind: [each for each in own if each.call.kind == kind]
            for kind in {each.call.kind for each in own}
        }
        reduces = kinds.get("all-reduce", [])
        gathers = kinds.get("all-gather", [])
        scatters = kinds.get("reduce-scatter", [])
        exchanges = kinds.get("all-to-all", [])
        if exchanges:
            yield Recognised("expert", f"{len(exchanges)} all-to-alls of {ranks}")
        buckets = [
            each for each in reduces if each.call.backward and each.call.number not in awaited
        ]
        if buckets:
            yield Recognised(
                "data",
                f"{len(buckets)} buckets all-reduced by {ranks}, awaited behind the backward pass",
            )
        behind = [] if buckets else _behind_backward(profile, reduces)
        if behind:
            yield Recognised(
                "data", f"{len(behind)} gradients all-reduced by {ranks} behind the backward pass"
            )
        blocking = [each for each in reduces if each.call.number in awaited]
        if {each.call.backward for each in blocking} == {True, False}:
            yield Recognised(
                "tensor",
                f"{len(blocking)} all-reduces of {ranks} in both passes, each awaited at once",
            )
        if all(
            {each.call.backward for each in each_kind} == {True, False}
            for each_kind in (gathers, scatters)
        ):
            # FSDP scatters nothing in the forward pass.
            because = (
                f"{len(gathers)} all-gathers and {len(scatters)} reduce-scatters of {ranks} in both"
                " passes"
            )
            yield Recognised("tensor", because)
        if gathers and scatters and all(each.call.backward for each in scatters):
            # A rank gathers parts of the size of those that it scatters whole.
            count = len(own[0].ranks)
            parts = {round(each.size_bytes.mean) * count for each in gathers}
            if all(round(each.size_bytes.mean) in parts for each in scatters):
                because = (
                    f"{len(gathers)} all-gathers and {len(scatters)} reduce-scatters of {ranks}"
                )
                yield Recognised("fsdp", f"{because} with the same bytes")


def _behind_backward(profile: RankProfile, reduces: Sequence[Operation]) -> Sequence[Operation]:
    """Return a group's all-reduces if all are behind the last operation of the backward pass; else
    none.
    """
    last = max(
        (each.call.number for each in profile.operations if each.call.backward), default=None
    )
    moments = [moment.ends_backward for moment in profile.moments]
    if (
        last is None
        or not reduces
        or any(moments)
        or min(each.call.number for each in reduces) < last
    ):
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
        if (
            moment.call is None
            and not moment.ends_backward
            and last is not None
            and last in moment.waits
        ):
            awaited.add(last)
        last = moment.call
    return awaited


def _pipeline(profile: JobProfile) -> Iterator[Recognised]:
    transfers = [
        [each for each in own.operations if each.call.kind in ("send", "receive")]
        for own in profile.ranks
    ]
    sends = {
        (at, _peer(each))
        for at, own in enumerate(transfers)
        for each in own
        if each.call.kind == "send"
    }
    if not sends:
        return
    # A first stage sends before it receives.
    for first, own in enumerate(transfers):
        if not own or own[0].call.kind != "send":
            continue
        chain = [first]
        while following := [
            dst for src, dst in sorted(sends) if src == chain[-1] and dst not in chain
        ]:
            chain.append(following[0])
        kinds = [each.call.kind for each in own if _peer(each) == chain[1]]
        ordered = kinds == sorted(kinds, reverse=True)
        batches = kinds.count("send")
        trained = "receive" in kinds
        if ordered and trained:
            schedule = "GPipe"
        elif trained:
            schedule = "1F1B"
        else:
            schedule = "forward only"
        stages = ", ".join(map(str, chain))
        yield Recognised(
            "pipeline", f"stages on ranks {stages}, {batches} micro-batches, {schedule}"
        )


def _peer(operation: Operation) -> int:
    return operation.ranks[operation.call.peer]
