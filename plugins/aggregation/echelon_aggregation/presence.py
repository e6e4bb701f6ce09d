"""The presence of the others of a group, for which a worker would otherwise wait without end.

Each process says in the group's store that it lives, and how many collectives it has begun. One
that waits for long reads what the others said. Pure: the store's texts and times in, a cause out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """The last message of a worker."""

    beat: int
    begun: int
    """The number of collectives that it has begun."""
    left: bool = False
    """It has left the group, in order."""

    def text(self) -> str:
        return f"{self.beat} {self.begun} {int(self.left)}"

    @staticmethod
    def read(text: str) -> Word:
        beat, begun, left = map(int, text.split())
        return Word(beat, begun, bool(left))


class Presence:
    """The knowledge of a worker about the others while it waits."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._heard: dict[int, tuple[Word, float]] = {}
        """The last word of each, and when it was new."""
        self._all_since: float | None = None
        """The time since which all have begun what this worker waits for."""

    def stop(self) -> None:
        """Forget what was heard: nothing is waited for."""
        self._heard.clear()
        self._all_since = None

    def cause(
        self,
        words: Sequence[Word],
        rank: int,
        waited_s: float,
        now: float,
    ) -> str | None:
        """Return why worker `rank` waits in vain; None while it may wait.

        `words` has the words of all by rank, and `waited_s` the time since its last result.
        """
        for other, word in enumerate(words):
            last = self._heard.get(other)
            if last is None or last[0] != word:
                self._heard[other] = word, now
        silence = self._silence(rank, now)
        if silence is not None:
            return silence
        mine = words[rank].begun
        for other, word in enumerate(words):
            if word.left and word.begun < mine:
                return (
                    f"worker {other} has left the group after {word.begun} collectives; this is"
                    f" number {mine}"
                )
        if any(word.begun < mine for word in words):
            self._all_since = None
        elif self._all_since is None:
            self._all_since = now
        elif min(waited_s, now - self._all_since) >= self._silence_s:
            return (
                f"no result has come for {waited_s:.1f} s, though all workers send: "
                "neither a switch of the tree nor the fallback answers"
            )
        return None

    def _silence(self, rank: int, now: float) -> str | None:
        """Return who has been silent for too long, all others or one of them."""
        silent_s = {}
        for other, (_, since_s) in self._heard.items():
            if other != rank:
                silent_s[other] = now - since_s
        most_s = max(silent_s.values(), default=0.0)
        if most_s < self._silence_s:
            return None
        if len(silent_s) > 1 and min(silent_s.values()) >= self._silence_s / 2:
            return (
                f"no other worker has said anything for {most_s:.1f} s: the network between"
                " them is gone"
            )
        other = max(silent_s, key=silent_s.__getitem__)
        return (
            f"worker {other} has said nothing for {most_s:.1f} s: its process, or its host, is gone"
        )
