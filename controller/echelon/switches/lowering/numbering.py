"""Numbers that last: what a switch calls flows, EchelonFlows, profiles and the like while jobs come
and go.

A number stays with its part for as long as the job has that part. It is then kept until the switch
has acknowledged an intent without it: if it were given out earlier, an entry of the departed job
could still be there and refer to another job's part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
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
    ECHELONFLOW = "EchelonFlows"
    PROFILE = "threshold profiles"
    """A profile is known by its content, and shared by the jobs that have the same one."""
    GROUP = "groups of flows"
    CONNECTION = "connections"
    TREE = "trees"
    """A tree has one number at all switches."""
    JOB = "jobs"
    """Indexes of the register in which a switch keeps the epoch of jobs that it recognises by
    bytes.
    """


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
        return altered(self, _taken=set(self._taken), _returned=deque(self._returned))

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


class _AtSwitch:
    """The pools of one switch, and what several jobs share there."""

    def __init__(self, limits: Mapping[NumberKind, int]) -> None:
        self.pools = {kind: Pool(limit) for kind, limit in limits.items()}
        self.profiles: dict[Hashable, list[int]] = {}
        """The number of each content, and how many jobs hold it."""
        self.unused: dict[int, list[tuple[str, _Part]]] = {}
        """Unused parts as (job, part), by the version since which they are unused.

        A part used again is skipped.
        """

    def copy(self) -> _AtSwitch:
        return altered(
            self,
            pools={kind: pool.copy() for kind, pool in self.pools.items()},
            profiles={content: list(shared) for content, shared in self.profiles.items()},
            unused={version: list(parts) for version, parts in self.unused.items()},
        )

    def take(self, part: _Part) -> int:
        kind, key = part
        if kind is not NumberKind.PROFILE:
            return self.pools[kind].take()
        shared = self.profiles.get(key)
        if shared is None:
            shared = self.profiles[key] = [self.pools[kind].take(), 0]
        shared[1] += 1
        return shared[0]

    def claim(self, part: _Part, number: int) -> None:
        kind, key = part
        if kind is NumberKind.PROFILE and key in self.profiles:
            shared = self.profiles[key]
            if shared[0] != number:
                raise ValueError(
                    f"number {number} is said to be of a profile that has number {shared[0]}"
                )
            shared[1] += 1
            return
        self.pools[kind].claim(number)
        if kind is NumberKind.PROFILE:
            self.profiles[key] = [number, 1]

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
        shared[1] -= 1
        if shared[1]:
            return False
        del self.profiles[key]
        return True


@dataclass(slots=True)
class _Held:
    """The numbers that one job holds at one switch."""

    numbers: dict[_Part, int] = field(default_factory=dict)
    unused: dict[_Part, int] = field(default_factory=dict)
    """The members of `numbers` that no intent uses any more, and the version since which that is
    so.
    """

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
        at: _AtSwitch,
        held: _Held,
        taken: list[tuple[_AtSwitch, _Held, _Part]],
    ):
        self.switch = switch
        self.job = job
        self._at = at
        self._held = held
        self._taken = taken
        self.used: set[_Part] = set()
        self.took = False
        """Whether the job has a number now that it did not have before."""

    def flow(self, name: str) -> int:
        """Return the number of a flow. Raise `ExhaustedError`, as the other methods do."""
        return self._number((NumberKind.FLOW, name))

    def echelonflow(self, name: str) -> int:
        return self._number((NumberKind.ECHELONFLOW, name))

    def group(self, name: str) -> int:
        """Return the number of a group of the job's flows, for which the switch keeps bytes or
        times.
        """
        return self._number((NumberKind.GROUP, name))

    def profile(self, content: Hashable) -> int:
        """Return the number of a profile with this `content`: nested tuples of numbers and
        texts.
        """
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
                number = self._at.take(part)
            except ExhaustedError:
                raise ExhaustedError(self._exhausted(part[0])) from None
            self._held.numbers[part] = number
            self._taken.append((self._at, self._held, part))
            self.took = True
        return number

    def _exhausted(self, kind: NumberKind) -> str:
        leaving = len(
            {part for gone in self._at.unused.values() for _, part in gone if part[0] is kind}
        )
        if leaving:
            wait = f" (up to {leaving} of them are being removed from it: try again)"
        else:
            wait = ""
        return (
            f"job {self.job}: switch {self.switch}: more than {self._at.pools[kind].limit}"
            f" {kind}{wait}; spread the jobs over more switches"
        )


class Attempt:
    """Numbers for one new version of the intents; see `Numbering.attempt`."""

    def __init__(self, numbering: Numbering, version: int) -> None:
        self._numbering = numbering
        self._version = version
        self._users: list[tuple[_AtSwitch, _Held, JobNumbers]] = []
        self._taken: list[tuple[_AtSwitch, _Held, _Part]] = []

    def of(self, switch: str, job: str) -> JobNumbers:
        """Return the numbers of a job whose part at that switch is made anew. Call it once for
        each, whether or not the job keeps anything there."""
        at = self._numbering._switches[switch]  # noqa: SLF001
        held = self._numbering._jobs.setdefault(job, {}).setdefault(switch, _Held())  # noqa: SLF001
        numbers = JobNumbers(switch, job, at, held, self._taken)
        self._users.append((at, held, numbers))
        return numbers

    def keep(self) -> None:
        for at, held, numbers in self._users:
            if numbers.took:
                self._numbering._changed.add(numbers.job)  # noqa: SLF001
            for part in held.numbers:
                if part in numbers.used:
                    held.unused.pop(part, None)
                elif part not in held.unused:
                    held.unused[part] = self._version
                    at.unused.setdefault(self._version, []).append((numbers.job, part))
            self._numbering._forget_if_empty(numbers.job, numbers.switch)  # noqa: SLF001

    def give_back(self) -> None:
        for at, held, part in reversed(self._taken):
            at.undo(part, held.numbers.pop(part))
        for _, _, numbers in self._users:
            self._numbering._forget_if_empty(numbers.job, numbers.switch)  # noqa: SLF001


class Numbering:
    """The numbers of all jobs at all switches.

    `limits` says, by switch, how many there are of each kind. Not safe for use by several threads
    at once: use it where plans are made.
    """

    def __init__(self, limits: Mapping[str, Mapping[NumberKind, int]]) -> None:
        self._switches = {name: _AtSwitch(of_kind) for name, of_kind in limits.items()}
        self._jobs: dict[str, dict[str, _Held]] = {}
        self._changed: set[str] = set()
        self.freed = 0
        """Number of numbers that have become free so far."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Numbering:
        """Return a numbering that gives the same numbers from now on."""
        return altered(
            self,
            _switches={name: at.copy() for name, at in self._switches.items()},
            _jobs={
                job: {switch: held.copy() for switch, held in switches.items()}
                for job, switches in self._jobs.items()
            },
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
        """Free what has been unused since that version or before: the switch has acknowledged its
        intent.

        Return the jobs that no longer hold a number at any switch because of this. Takes time in
        proportion to what becomes free.
        """
        at = self._switches.get(switch)
        gone = set()
        if at is None:
            return frozenset()
        for since in sorted(v for v in at.unused if v <= version):
            for job, part in at.unused.pop(since):
                held = self._jobs.get(job, {}).get(switch)
                # It may have been used again since, and perhaps given up again.
                if held is None or held.unused.get(part) != since:
                    continue
                del held.unused[part]
                at.free(part, held.numbers.pop(part))
                self.freed += 1
                self._changed.add(job)
                if self._forget_if_empty(job, switch):
                    gone.add(job)
        return frozenset(gone)

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
        """Return the jobs whose `export` has changed since the last call (or `restore`); empty for
        a job that holds nothing more."""
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def export(self, job: str) -> Document:
        """Return everything that the job holds, unused numbers included, for `restore`. Empty if it
        holds nothing.

        By kind: ``keys`` are what is numbered; ``at`` holds, by switch, runs of [index into keys,
        number, how many].
        """
        out: Document = {}
        index: dict[NumberKind, dict[Hashable, int]] = {}
        for switch, held in self._jobs.get(job, {}).items():
            for (kind, key), number in held.numbers.items():
                known = index.setdefault(kind, {})
                position = known.setdefault(key, len(known))
                runs = out.setdefault(kind.name, {"keys": [], "at": {}})["at"].setdefault(
                    switch, []
                )
                if (
                    runs
                    and runs[-1][0] + runs[-1][2] == position
                    and runs[-1][1] + runs[-1][2] == number
                ):
                    runs[-1][2] += 1
                else:
                    runs.append([position, number, 1])
        for kind, known in index.items():
            out[kind.name]["keys"] = [_thawed(key) for key in known]
        return out

    def restore(self, documents: Mapping[str, Document]) -> None:
        """Restore what `export` gave for each job, into a numbering in which nothing has been
        numbered yet.

        The numbers count as unused since before the first version until the next attempt claims
        them. Switches that no longer exist are skipped. Raise `ValueError`, naming the job, for
        documents that `export` did not make.
        """
        for job, document in documents.items():
            try:
                for part, switch, number in _numbers_in(document):
                    at = self._switches.get(switch)
                    if at is None:
                        self._changed.add(job)
                        continue
                    held = self._jobs.setdefault(job, {}).setdefault(switch, _Held())
                    if part in held.numbers:
                        raise ValueError(f"{part[1]!r} is numbered twice at {switch}")
                    at.claim(part, number)
                    held.numbers[part] = number
                    held.unused[part] = _BEFORE
                    at.unused.setdefault(_BEFORE, []).append((job, part))
            except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
                raise ValueError(f"job {job}: its stored numbers cannot be read: {error}") from None


_BEFORE = 0
"""The version of numbers that were given before a restart."""


def _numbers_in(document: Document) -> Iterator[tuple[_Part, str, int]]:
    for name, of_kind in document.items():
        kind = NumberKind[name]
        keys = [_frozen(key) for key in of_kind["keys"]]
        for switch, runs in of_kind["at"].items():
            for first, number, length in runs:
                for step in range(length):
                    yield (kind, keys[first + step]), switch, number + step


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
