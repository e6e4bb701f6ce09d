"""Numbers that last: what a switch calls flows, EchelonFlows, profiles, connections and jobs while jobs come and go.

A number stays with its part for as long as the job has that part. Afterwards it is kept until the switch has
acknowledged an intent without it: handed on earlier, an entry of the departed job, still there, would speak of somebody
else's part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from echelon.lowering.identity import FiveTuple

Document = dict[str, Any]
"""What JSON can hold."""


class Kind(StrEnum):
    """What is numbered at each switch, in the words of messages."""

    FLOW = "flows"
    ECHELONFLOW = "EchelonFlows"
    PROFILE = "threshold profiles"
    """Known by their content, and shared by the jobs that have the same."""
    CONNECTION = "connections"
    JOB = "jobs"
    """Of the register in which a switch keeps the epoch of jobs that it recognises by bytes."""


class ExhaustedError(ValueError):
    """There is no free number; the text says of what."""


class Pool:
    """Whole numbers from `first` up to `limit` (not included): those first, lowest first, that were never taken, then
    the one that has been free for longest.

    What a switch keeps in registers for a number, an epoch or a reference time, outlives its owner, and could be taken
    for the next one's: the later that comes, the better.
    """

    def __init__(self, limit: int, first: int = 0) -> None:
        self.limit = limit
        self._fresh = first
        """This and higher ones were never taken."""
        self._taken: set[int] = set()
        self._returned: deque[int] = deque()
        """Those that are free again, and some that have been claimed since."""

    def __len__(self) -> int:
        """How many are taken."""
        return len(self._taken)

    def take(self) -> int:
        """A free number. Raises `ExhaustedError`."""
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
        """Take this very number. Raises `ValueError` if it is taken or out of bounds."""
        if number in self._taken or not 0 <= number < self.limit:
            raise ValueError(f"number {number} is taken, or not below {self.limit}")
        # Of those below nobody knows when they were taken last.
        self._returned.extend(range(self._fresh, number))
        self._fresh = max(self._fresh, number + 1)
        self._taken.add(number)

    def free(self, number: int) -> None:
        """Give a taken number back."""
        self._taken.remove(number)
        self._returned.append(number)

    def undo(self, number: int) -> None:
        """As if the last `take` had not been, which gave this number."""
        self._taken.remove(number)
        if number == self._fresh - 1:
            self._fresh -= 1
        else:
            self._returned.appendleft(number)


_Part = tuple[Kind, Hashable]


class _AtSwitch:
    """The pools of one switch, and what several jobs share there."""

    def __init__(self, limits: Mapping[Kind, int]) -> None:
        self.pools = {kind: Pool(limit) for kind, limit in limits.items()}
        self.profiles: dict[Hashable, list[int]] = {}
        """By content: number, and how many jobs hold it."""
        self.unused: dict[int, list[tuple[str, _Part]]] = {}
        """By version since which they are unused: (job, part). A part that was used again since is passed over."""

    def take(self, part: _Part) -> int:
        kind, key = part
        if kind is not Kind.PROFILE:
            return self.pools[kind].take()
        shared = self.profiles.get(key)
        if shared is None:
            shared = self.profiles[key] = [self.pools[kind].take(), 0]
        shared[1] += 1
        return shared[0]

    def claim(self, part: _Part, number: int) -> None:
        kind, key = part
        if kind is Kind.PROFILE and key in self.profiles:
            shared = self.profiles[key]
            if shared[0] != number:
                raise ValueError(f"number {number} is said to be of a profile that has number {shared[0]}")
            shared[1] += 1
            return
        self.pools[kind].claim(number)
        if kind is Kind.PROFILE:
            self.profiles[key] = [number, 1]

    def free(self, part: _Part, number: int) -> None:
        if self._let_go(part):
            self.pools[part[0]].free(number)

    def undo(self, part: _Part, number: int) -> None:
        """As if the last `take` had not been, which was of this part."""
        if self._let_go(part):
            self.pools[part[0]].undo(number)

    def _let_go(self, part: _Part) -> bool:
        """Returns whether nobody else has the number."""
        kind, key = part
        if kind is not Kind.PROFILE:
            return True
        shared = self.profiles[key]
        shared[1] -= 1
        if shared[1]:
            return False
        del self.profiles[key]
        return True


@dataclass(slots=True)
class _Held:
    """What one job holds at one switch."""

    numbers: dict[_Part, int] = field(default_factory=dict)
    unused: dict[_Part, int] = field(default_factory=dict)
    """Those of `numbers` that no intent uses any more: since which version."""


class JobNumbers:
    """The numbers of one job at one switch, while its entries are made. What is not asked for is given up."""

    def __init__(self, switch: str, job: str, at: _AtSwitch, held: _Held, taken: list[tuple[_AtSwitch, _Held, _Part]]):
        self.switch = switch
        self.job = job
        self._at = at
        self._held = held
        self._taken = taken
        self.used: set[_Part] = set()
        self.took = False
        """Whether it has a number now that it did not have before."""

    def flow(self, name: str) -> int:
        """Raises `ExhaustedError`, as the others do."""
        return self._number((Kind.FLOW, name))

    def echelonflow(self, name: str) -> int:
        return self._number((Kind.ECHELONFLOW, name))

    def profile(self, content: tuple[tuple[int, int, int], ...]) -> int:
        """`content`: (lowest slack key, highest, queue) of each of its entries."""
        return self._number((Kind.PROFILE, content))

    def connection(self, five_tuple: FiveTuple) -> int:
        return self._number((Kind.CONNECTION, five_tuple))

    def register(self) -> int:
        """The job's own index where this switch counts its iterations."""
        return self._number((Kind.JOB, ""))

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

    def _exhausted(self, kind: Kind) -> str:
        leaving = len({part for gone in self._at.unused.values() for _, part in gone if part[0] is kind})
        wait = f" (up to {leaving} of them are being removed from it: try again)" if leaving else ""
        return (
            f"job {self.job}: switch {self.switch}: more than {self._at.pools[kind].limit} {kind}{wait}; "
            "spread the jobs over more switches"
        )


class Attempt:
    """Numbers for one new version of the intents; see `Numbering.attempt`."""

    def __init__(self, numbering: Numbering, version: int) -> None:
        self._numbering = numbering
        self._version = version
        self._users: list[tuple[_AtSwitch, _Held, JobNumbers]] = []
        self._taken: list[tuple[_AtSwitch, _Held, _Part]] = []

    def of(self, switch: str, job: str) -> JobNumbers:
        """For a job whose part at that switch is made anew; once for each, whether or not it keeps anything there."""
        at = self._numbering._switches[switch]
        held = self._numbering._jobs.setdefault(job, {}).setdefault(switch, _Held())
        numbers = JobNumbers(switch, job, at, held, self._taken)
        self._users.append((at, held, numbers))
        return numbers

    def keep(self) -> None:
        for at, held, numbers in self._users:
            if numbers.took:
                self._numbering._changed.add(numbers.job)
            for part in held.numbers:
                if part in numbers.used:
                    held.unused.pop(part, None)
                elif part not in held.unused:
                    held.unused[part] = self._version
                    at.unused.setdefault(self._version, []).append((numbers.job, part))
            self._numbering._forget_if_empty(numbers.job, numbers.switch)

    def give_back(self) -> None:
        for at, held, part in reversed(self._taken):
            at.undo(part, held.numbers.pop(part))
        for _, _, numbers in self._users:
            self._numbering._forget_if_empty(numbers.job, numbers.switch)


class Numbering:
    """The numbers of all jobs at all switches.

    `limits`: by switch, how many there are of each kind. Not for several threads at once: use it where plans are made.
    """

    def __init__(self, limits: Mapping[str, Mapping[Kind, int]]) -> None:
        self._switches = {name: _AtSwitch(of_kind) for name, of_kind in limits.items()}
        self._jobs: dict[str, dict[str, _Held]] = {}
        self._changed: set[str] = set()
        self.freed = 0
        """How many numbers have become free so far."""

    @property
    def jobs(self) -> frozenset[str]:
        """Every job that holds a number, used or kept back."""
        return frozenset(self._jobs)

    @contextmanager
    def attempt(self, version: int) -> Iterator[Attempt]:
        """Numbers for the intents of that version (rising from one attempt to the next).

        Leaving it normally, what a job asked for in it is its own, and what it had and did not ask for again is unused
        since `version`. Leaving it by an exception, everything is as it was.
        """
        attempt = Attempt(self, version)
        try:
            yield attempt
        except BaseException:
            attempt.give_back()
            raise
        attempt.keep()

    def settle(self, switch: str, version: int) -> frozenset[str]:
        """The switch has acknowledged the intent of that version: what has been unused since then or before is free.

        Returns the jobs that hold no number at any switch any more, because of this. Time in proportion to what
        becomes free.
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
        """Returns whether the job holds nothing anywhere."""
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
        """Jobs whose `export` is not what it was at the last call (or in `restore`); empty if it holds nothing more."""
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def export(self, job: str) -> Document:
        """All that the job holds, unused numbers included, for `restore`. Empty if it holds none.

        By kind: ``keys``, what is numbered; ``at``, by switch, runs of [index into keys, number, how many].
        """
        out: Document = {}
        index: dict[Kind, dict[Hashable, int]] = {}
        for switch, held in self._jobs.get(job, {}).items():
            for (kind, key), number in held.numbers.items():
                known = index.setdefault(kind, {})
                position = known.setdefault(key, len(known))
                runs = out.setdefault(kind.name, {"keys": [], "at": {}})["at"].setdefault(switch, [])
                if runs and runs[-1][0] + runs[-1][2] == position and runs[-1][1] + runs[-1][2] == number:
                    runs[-1][2] += 1
                else:
                    runs.append([position, number, 1])
        for kind, known in index.items():
            out[kind.name]["keys"] = [_thawed(key) for key in known]
        return out

    def restore(self, documents: Mapping[str, Document]) -> None:
        """What `export` gave for each job, into a numbering in which nothing was numbered yet.

        Until the next attempt claims them, the numbers are unused since before the first version. Switches that are no
        more are passed over. Raises `ValueError`, naming the job, for documents that `export` did not make.
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
"""The version of what was numbered before a restart."""


def _numbers_in(document: Document) -> Iterator[tuple[_Part, str, int]]:
    for name, of_kind in document.items():
        kind = Kind[name]
        keys = [_frozen(key) for key in of_kind["keys"]]
        for switch, runs in of_kind["at"].items():
            for first, number, length in runs:
                for step in range(length):
                    yield (kind, keys[first + step]), switch, number + step


def _thawed(key: Hashable) -> object:
    return [_thawed(item) for item in key] if isinstance(key, tuple) else key


def _frozen(key: object) -> Hashable:
    if isinstance(key, list):
        return tuple(_frozen(item) for item in key)
    if not isinstance(key, str | int):
        raise TypeError(f"{key!r} is no key")
    return key
