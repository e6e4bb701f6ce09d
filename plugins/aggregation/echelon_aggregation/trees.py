"""Trees of switches: the children and parents in a path, and the loads of its links."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from echelon.model.fabric.model import Path, root_of
from echelon.planning.allocation import Link
from echelon.planning.paths import hosts_of, links_of


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree: each node but the root has a parent.

    There is one object for each path (`tree_of`).
    """

    root: str
    hosts: tuple[str, ...]
    """The workers in the order of the collective; the fallback is on the first one's host."""
    parents: Mapping[str, str]

    @cached_property
    def switches(self) -> tuple[str, ...]:
        """Return the switches, the root first."""
        parents = dict.fromkeys(self.parents.values())
        return tuple({self.root: None, **parents})

    def way_up(self, node: str) -> Iterator[Link]:
        """Yield the links from a node up to the root."""
        while node != self.root:
            yield node, self.parents[node]
            node = self.parents[node]

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Return both directions of each link, crossed once by a block that all switches sum."""
        up = self.parents.items()
        return (*up, *_reversed(up))

    @cached_property
    def without_memory(self) -> Mapping[Link, int]:
        """Return how often each link carries a block that no switch adds up.

        Each worker's contribution goes to the fallback on the shortest way in the tree; that of the
        worker on the fallback's host goes to its switch and back. The result goes up to the root
        and down to all.
        """
        to_root = list(self.way_up(self.hosts[0]))
        crossed: Counter[Link] = Counter(to_root)
        crossed.update(_reversed(self.parents.items()))
        for host in self.hosts:
            up = list(self.way_up(host))
            down = list(to_root)
            # Links near the root that both ways have are not crossed, but the fallback's own always
            # is.
            while min(len(up), len(down)) > 1 and up[-1] == down[-1]:
                up.pop()
                down.pop()
            crossed.update(up)
            crossed.update(_reversed(down))
        return crossed

    def way(self, start: str, end: str) -> Path:
        """Return the nodes from one host to another; from a host to itself by its switch."""
        up = self._ancestors(start)
        down = self._ancestors(end)
        top = next(node for node in up if node in down)
        before = up[: up.index(top)]
        after = down[: down.index(top)]
        after.reverse()
        return (start, *before, top, *after, end)

    def _ancestors(self, host: str) -> list[str]:
        """Return the switches from a host up to the root."""
        return [parent for _, parent in self.way_up(host)]

    def load(self, added_up: float) -> dict[Link, float]:
        """Return the bytes on each link for each byte of the flow, if switches add up this part."""
        crossed = self.without_memory
        load: dict[Link, float] = {}
        for link in self.links:
            load[link] = added_up + (1 - added_up) * crossed[link]
        return load


def _reversed(links: Iterable[Link]) -> Iterator[Link]:
    return ((end, start) for start, end in links)


@lru_cache(maxsize=4096)
def tree_of(path: Path) -> Tree:
    """Return the tree of a path among hosts (`echelon.model.fabric.model.Path`)."""
    # Dictionaries rather than sets: their order is that of the path.
    neighbours: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for start, end in links_of(path):
        neighbours[start][end] = None
        neighbours[end][start] = None
    parents: dict[str, str] = {}
    reached = [root_of(path)]
    for node in reached:
        for neighbour in neighbours[node]:
            if neighbour != parents.get(node):
                parents[neighbour] = node
                reached.append(neighbour)
    return Tree(reached[0], hosts_of(path), parents)
