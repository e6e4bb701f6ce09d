"""Lasting numbers of flows, EchelonFlows, profiles and the like, while jobs come and go.

A number stays with its part for as long as the job has that part. It is then kept until the switch
has acknowledged an intent without it: if it were given out earlier, an entry of the departed job
could still be there and refer to another job's part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from echelon.model.errors import Code, CodedError
from echelon.model.kept import altered
from echelon.switches.lowering.identity import FiveTuple

Document = dict[str, Any]
"""A value that JSON can hold."""


class NumberKind(StrEnum):
    """The kinds of things that are numbered at each switch, in the words of messages."""

    FLOW = "flows"
    PAIR = "pairs of hosts"
    """A pair is known by the hosts and by the next hop."""
    ECHELONFLOW = "EchelonFlows"
    PROFILE = "threshold profiles"
    """A profile is known by its content, and shared by the jobs that have the same one."""
    GROUP = "groups of flows"
    CONNECTION = "connections"
    TREE = "trees"
    """A tree has one number at all switches."""
    JOB = "jobs"
    """Indexes of the register of epochs of jobs that a switch recognises by bytes."""


class ExhaustedError(CodedError, ValueError):
    """The error for numbers that have run out; the text says of which kind."""

    code: Code = "numbers-exhausted"


class Pool:
    """Whole numbers from `first` up to `limit` (not included).

    Numbers that were never taken come first, lowest first; then the one that has been free for
    longest. What a switch keeps in registers for a number (an epoch or a reference time) outlives
    its owner and could be mistaken for the next owner's, so a number is reused as late as possible.
    """

    def __init__(self, limit: int, first: int = 0) -> None:
        self.limit = limit
        self._fresh = first
        """This number and all higher ones were never taken."""
        self._taken: set[int] = set()
        self._returned: deque[int] = deque()
        """Numbers that are free again, including some that have been claimed since."""

    def copy(self) -> Pool:
        """Return a pool that gives the same numbers from now on."""
        taken = set(self._taken)
        returned = deque(self._returned)
        return altered(self, _taken=taken, _returned=returned)

    def __len__(self) -> int:
        """Return how many numbers are taken."""
        return len(self._taken)

    def take(self) -> int:
        """Take a free number and return it. Raise `ExhaustedError`."""
        if self._fresh < self.limit:
            number = self._fresh
            self._fresh += 1
        else:
            while self._returned and self._returned[0] in self._taken:
                self._returned.popleft()
            if not self._returned:
                raise ExhaustedError(f"all {len(self._taken)} numbers are taken")
            number = self._returned.popleft()
        self._taken.add(number)
        return number

    def claim(self, number: int) -> None:
        """Take this very number. Raise `ValueError` if it is taken or out of bounds."""
        if number in self._taken or not 0 <= number < self.limit:
            raise ValueError(f"number {number} is taken, or not below {self.limit}")
        # The last use of the numbers below is unknown.
        self._returned.extend(range(self._fresh, number))
        self._fresh = max(self._fresh, number + 1)
        self._taken.add(number)

    def free(self, number: int) -> None:
        """Give a taken number back."""
        self._taken.remove(number)
        self._returned.append(number)

    def undo(self, number: int) -> None:
        """Undo the last `take`, which gave this number."""
        self._taken.remove(number)
        if number == self._fresh - 1:
            self._fresh -= 1
        else:
            self._returned.appendleft(number)


_Part = tuple[NumberKind, Hashable]
"""A thing that has a number: its kind, and what tells it from others of the kind."""


@dataclass(slots=True)
class _SharedNumber:
    number: int
    users: int


class _SwitchPools:
    """The pools of one switch, and what several jobs share there."""

    def __init__(self, limits: Mapping[NumberKind, int]) -> None:
        self.pools = {kind: Pool(limit) for kind, limit in limits.items()}
        self.profiles: dict[Hashable, _SharedNumber] = {}
        """The number of each content, and how many jobs hold it."""
        self.unused: dict[int, list[tuple[str, _Part]]] = {}
        """Unused parts as (job, part), by the version since which they are unused.

        A part that came back into use is skipped.
        """

    def copy(self) -> _SwitchPools:
        pools = {kind: pool.copy() for kind, pool in self.pools.items()}
        profiles = {content: copy(shared) for content, shared in self.profiles.items()}
        unused = {version: list(parts) for version, parts in self.unused.items()}
        return altered(
            self,
            pools=pools,
            profiles=profiles,
            unused=unused,
        )

    def take(self, part: _Part) -> int:
        kind, key = part
        if kind is not NumberKind.PROFILE:
            return self.pools[kind].take()
        shared = self.profiles.get(key)
        if shared is None:
            number = self.pools[kind].take()
            shared = _SharedNumber(number, users=0)
            self.profiles[key] = shared
        shared.users += 1
        return shared.number

    def claim(self, part: _Part, number: int) -> None:
        kind, key = part
        if kind is not NumberKind.PROFILE:
            self.pools[kind].claim(number)
            return
        shared = self.profiles.get(key)
        if shared is None:
            self.pools[kind].claim(number)
            self.profiles[key] = _SharedNumber(number, users=1)
            return
        if shared.number != number:
            raise ValueError(
                f"number {number} is said to be of a profile that has number {shared.number}"
            )
        shared.users += 1

    def free(self, part: _Part, number: int) -> None:
        if self._let_go(part):
            self.pools[part[0]].free(number)

    def undo(self, part: _Part, number: int) -> None:
        """Undo the last `take`, which was for this part."""
        if self._let_go(part):
            self.pools[part[0]].undo(number)

    def _let_go(self, part: _Part) -> bool:
        """Let go of the part; return whether no other job has its number."""
        kind, key = part
        if kind is not NumberKind.PROFILE:
            return True
        shared = self.profiles[key]
        shared.users -= 1
        if shared.users:
            return False
        del self.profiles[key]
        return True


@dataclass(slots=True)
class _Held:
    """The numbers that one job holds at one switch."""

    numbers: dict[_Part, int] = field(default_factory=dict)
    unused: dict[_Part, int] = field(default_factory=dict)
    """The members of `numbers` that no intent uses any more, and since which version."""

    def copy(self) -> _Held:
        return _Held(dict(self.numbers), dict(self.unused))


class JobNumbers:
    """The numbers of one job at one switch while its entries are made.

    What is not asked for is given up.
    """

    def __init__(
        self,
        switch: str,
        job: str,
        pools: _SwitchPools,
        held: _Held,
        taken: list[tuple[_SwitchPools, _Held, _Part]],
    ):
        self.switch = switch
        self.job = job
        self._pools = pools
        self._held = held
        self._taken = taken
        self.used: set[_Part] = set()
        self.took = False
        """Whether the job has a number now that it did not have before."""

    def flow(self, name: str) -> int:
        """Return the number of a flow. Raise `ExhaustedError`, as the other methods do."""
        return self._number((NumberKind.FLOW, name))

    def pair(self, ends: tuple[str, str, str]) -> int:
        """Return the number of the flows from one host to another by the same next hop."""
        return self._number((NumberKind.PAIR, ends))

    def echelonflow(self, name: str) -> int:
        return self._number((NumberKind.ECHELONFLOW, name))

    def group(self, name: str) -> int:
        """Return the number of a group of flows, for which the switch keeps bytes or times."""
        return self._number((NumberKind.GROUP, name))

    def profile(self, content: Hashable) -> int:
        """Return the number of a profile; `content` is nested tuples of numbers and texts."""
        return self._number((NumberKind.PROFILE, content))

    def connection(self, five_tuple: FiveTuple) -> int:
        return self._number((NumberKind.CONNECTION, five_tuple))

    def tree(self, ends: Hashable) -> int:
        """Return the number of a tree, from 1."""
        return self._number((NumberKind.TREE, ends)) + 1

    def register(self) -> int:
        """Return the job's own index where this switch counts its iterations."""
        return self._number((NumberKind.JOB, ""))

    def _number(self, part: _Part) -> int:
        self.used.add(part)
        number = self._held.numbers.get(part)
        if number is None:
            try:
                number = self._pools.take(part)
            except ExhaustedError:
                raise ExhaustedError(self._exhausted(part[0])) from None
            self._held.numbers[part] = number
            self._taken.append((self._pools, self._held, part))
            self.took = True
        return number

    def _exhausted(self, kind: NumberKind) -> str:
        leaving: set[_Part] = set()
        for unused in self._pools.unused.values():
            leaving.update(part for _, part in unused if part[0] is kind)
        wait = ""
        if leaving:
            wait = f" (up to {len(leaving)} of them are being removed from it: try again)"
        return (
            f"job {self.job}: switch {self.switch}: more than {self._pools.pools[kind].limit}"
            f" {kind}{wait}; spread the jobs over more switches"
        )


class Attempt:
    """Numbers for one new version of the intents; see `Numbering.attempt`."""

    def __init__(self, numbering: Numbering, version: int) -> None:
        self._numbering = numbering
        self._version = version
        self._users: list[tuple[_SwitchPools, _Held, JobNumbers]] = []
        self._taken: list[tuple[_SwitchPools, _Held, _Part]] = []

    def numbers(self, switch: str, job: str) -> JobNumbers:
        """Return the numbers of a job whose part at that switch is lowered.

        Call it once for each, whether or not the job keeps anything there.
        """
        pools = self._numbering._switches[switch]  # noqa: SLF001
        held = self._numbering._held(job, switch)  # noqa: SLF001
        numbers = JobNumbers(switch, job, pools, held, self._taken)
        self._users.append((pools, held, numbers))
        return numbers

    def keep(self) -> None:
        """Give jobs what they asked for, and note what they did not ask for as unused."""
        for pools, held, numbers in self._users:
            if numbers.took:
                self._numbering._changed.add(numbers.job)  # noqa: SLF001
            for part in held.numbers:
                if part in numbers.used:
                    held.unused.pop(part, None)
                elif part not in held.unused:
                    held.unused[part] = self._version
                    unused = pools.unused.setdefault(self._version, [])
                    unused.append((numbers.job, part))
            self._numbering._forget_if_empty(numbers.job, numbers.switch)  # noqa: SLF001

    def give_back(self) -> None:
        """Undo everything that jobs asked for, the latest first."""
        for pools, held, part in reversed(self._taken):
            pools.undo(part, held.numbers.pop(part))
        for _, _, numbers in self._users:
            self._numbering._forget_if_empty(numbers.job, numbers.switch)  # noqa: SLF001


class Numbering:
    """The numbers of all jobs at all switches.

    `limits` says, by switch, how many there are of each kind. Not safe for use by several threads
    at once: use it where plans are made.
    """

    def __init__(self, limits: Mapping[str, Mapping[NumberKind, int]]) -> None:
        self._switches = {name: _SwitchPools(by_kind) for name, by_kind in limits.items()}
        self._jobs: dict[str, dict[str, _Held]] = {}
        """The numbers that each job holds at each switch."""
        self._changed: set[str] = set()
        self.freed = 0
        """Number of numbers that have become free so far."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Numbering:
        """Return a numbering that gives the same numbers from now on."""
        switches = {name: pools.copy() for name, pools in self._switches.items()}
        jobs = {}
        for job, held_at in self._jobs.items():
            jobs[job] = {switch: held.copy() for switch, held in held_at.items()}
        return altered(
            self,
            _switches=switches,
            _jobs=jobs,
            _changed=set(self._changed),
        )

    @property
    def jobs(self) -> frozenset[str]:
        """Every job that holds a number, used or kept back."""
        return frozenset(self._jobs)

    @contextmanager
    def attempt(self, version: int) -> Iterator[Attempt]:
        """Number the intents of that version, which rises from one attempt to the next.

        If the block ends normally, what a job asked for in it belongs to the job, and what it had
        and did not ask for again is unused since `version`. If the block raises, everything stays
        as it was.
        """
        attempt = Attempt(self, version)
        try:
            yield attempt
        except BaseException:
            attempt.give_back()
            raise
        attempt.keep()

    def keeps_back(self, switch: str) -> bool:
        """Return whether numbers there are unused and not free yet."""
        return bool(self._switches[switch].unused)

    def settle(self, switch: str, version: int) -> frozenset[str]:
        """Free what has been unused since that version or before.

        The switch has acknowledged its intent.

        Return the jobs that no longer hold a number at any switch because of this. Takes time in
        proportion to what becomes free.
        """
        pools = self._switches.get(switch)
        if pools is None:
            return frozenset()
        forgotten = set()
        settled = [since for since in pools.unused if since <= version]
        for since in sorted(settled):
            for job, part in pools.unused.pop(since):
                held = self._jobs.get(job, {}).get(switch)
                # It may have come back into use since, and perhaps have been given up once more.
                if held is None or held.unused.get(part) != since:
                    continue
                del held.unused[part]
                pools.free(part, held.numbers.pop(part))
                self.freed += 1
                self._changed.add(job)
                if self._forget_if_empty(job, switch):
                    forgotten.add(job)
        return frozenset(forgotten)

    def _held(self, job: str, switch: str) -> _Held:
        at_switches = self._jobs.setdefault(job, {})
        return at_switches.setdefault(switch, _Held())

    def _forget_if_empty(self, job: str, switch: str) -> bool:
        """Forget the job if it holds nothing anywhere; return whether it was forgotten."""
        switches = self._jobs.get(job)
        if switches is None:
            return True
        held = switches.get(switch)
        if held is not None and not held.numbers:
            del switches[switch]
        if switches:
            return False
        del self._jobs[job]
        return True

    def take_changed(self) -> frozenset[str]:
        """Return the jobs whose `export` has changed since the last call (or `restore`).

        The export is empty for a job that holds nothing more.
        """
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def export(self, job: str) -> Document:
        """Return everything that the job holds, unused numbers included, for `restore`.

        It is empty if the job holds nothing. By kind, ``keys`` are what is numbered; ``at`` holds,
        by switch, runs of [index into keys, number, how many].
        """
        document: Document = {}
        places: dict[NumberKind, dict[Hashable, int]] = {}
        for switch, held in self._jobs.get(job, {}).items():
            for (kind, key), number in held.numbers.items():
                place_by_key = places.setdefault(kind, {})
                place = place_by_key.setdefault(key, len(place_by_key))
                kind_document = document.setdefault(kind.name, {"keys": [], "at": {}})
                runs = kind_document["at"].setdefault(switch, [])
                _append_to_runs(runs, place, number)
        for kind, place_by_key in places.items():
            keys = [_thawed(key) for key in place_by_key]
            document[kind.name]["keys"] = keys
        return document

    def restore(self, documents: Mapping[str, Document]) -> None:
        """Restore what `export` gave for each job, into a numbering without numbers.

        The numbers count as unused since before the first version until the next attempt claims
        them. Switches that no longer exist are skipped. Raise `ValueError`, naming the job, for
        documents that `export` did not make.
        """
        for job, document in documents.items():
            try:
                for part, switch, number in _numbers_in(document):
                    self._restore(job, switch, part, number)
            except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
                raise ValueError(f"job {job}: its stored numbers cannot be read: {error}") from None

    def _restore(
        self,
        job: str,
        switch: str,
        part: _Part,
        number: int,
    ) -> None:
        pools = self._switches.get(switch)
        if pools is None:
            self._changed.add(job)
            return
        held = self._held(job, switch)
        if part in held.numbers:
            raise ValueError(f"{part[1]!r} is numbered twice at {switch}")
        pools.claim(part, number)
        held.numbers[part] = number
        held.unused[part] = _BEFORE
        unused = pools.unused.setdefault(_BEFORE, [])
        unused.append((job, part))


_BEFORE = 0
"""The version of numbers that were given before a restart."""


def _append_to_runs(
    runs: list[list[int]],
    place: int,
    number: int,
) -> None:
    """Lengthen the last run if this place and number come next in it; else begin a run."""
    if runs:
        last = runs[-1]
        first_place, first_number, length = last
        if (place, number) == (first_place + length, first_number + length):
            last[2] += 1
            return
    runs.append([place, number, 1])


def _numbers_in(document: Document) -> Iterator[tuple[_Part, str, int]]:
    """Yield each numbered part with switch and number."""
    for name, kind_document in document.items():
        kind = NumberKind[name]
        keys = [_frozen(key) for key in kind_document["keys"]]
        for switch, runs in kind_document["at"].items():
            for first, number, length in runs:
                for step in range(length):
                    part = (kind, keys[first + step])
                    yield part, switch, number + step


def _thawed(key: Hashable) -> object:
    if isinstance(key, tuple):
        return [_thawed(item) for item in key]
    return key


def _frozen(key: object) -> Hashable:
    if isinstance(key, list):
        return tuple(_frozen(item) for item in key)
    if not isinstance(key, str | int):
        raise TypeError(f"{key!r} is not a key")
    return key
