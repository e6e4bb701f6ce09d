"""All-reduce in two levels: inside each host, then between hosts along rails.

Source: Cho et al., BlueConnect: Decomposing All-Reduce for Deep Learning on Heterogeneous Network Hierarchy, MLSys '19,
section 3. With L ranks on each of H hosts, the ranks of a host reduce-scatter the data over a ring, so that each has
the sum of one of L shards. Ranks that are in the same place on their hosts (a rail) all-reduce their shard over a ring.
Then the ranks of a host all-gather the shards. Every rank sends 2(L-1)/L of the data inside its host, and 2(H-1)/(L H)
of it to another host: hosts send L times less than if each rank ran a ring of its own.

Ranks are in the order of hosts, L from each. The shards are cut into H chunks each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from echelon.jobs.collectives.algorithm import Algorithm, AllReduce, Round, Transfer
from echelon.jobs.collectives.ring import sent_chunk


@dataclass(frozen=True, slots=True)
class Hierarchical(AllReduce):
    """The all-reduce in two levels, with `local` ranks on each host."""

    local: int = 1

    def on(self, hosts: Sequence[str]) -> Algorithm:
        return Hierarchical(hosts.count(hosts[0]))

    def misplaced(self, hosts: Sequence[str]) -> str | None:
        local = hosts.count(hosts[0])
        parts = [list(hosts[at : at + local]) for at in range(0, len(hosts), local)]
        if any(part != [part[0]] * local for part in parts) or len(set(hosts)) < len(parts):
            return "needs as many ranks of the group on each host, listed host by host (use 'ring', or list them so)"
        return None

    def reduce(self, ranks: int) -> Iterator[Round]:
        hosts = ranks // self.local
        yield from (self._inside(number, hosts) for number in range(self.local - 1))
        yield from (self._between(number, hosts) for number in range(hosts - 1))

    def spread(self, ranks: int) -> Iterator[Round]:
        hosts = ranks // self.local
        yield from (self._between(number, hosts) for number in range(hosts - 1, 2 * (hosts - 1)))
        yield from (self._inside(number, hosts) for number in range(self.local - 1, 2 * (self.local - 1)))

    def chunks(self, ranks: int) -> int:
        return ranks

    def flow_count(self, ranks: int) -> int:
        return 2 * ranks * (self.local - 1 + ranks // self.local - 1)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        hosts = ranks // self.local
        return 2 * max((self.local - 1) * hosts, hosts - 1) * -(-size_bytes // ranks)

    def refusal(self, ranks: int) -> str | None:
        if ranks % self.local:
            return f"needs a multiple of {self.local} ranks, not {ranks} (use 'ring')"
        return None

    def _inside(self, number: int, hosts: int) -> Round:
        """Return a round of the rings inside hosts, whose chunks are shards."""
        out = []
        for host in range(hosts):
            for place in range(self.local):
                shard = sent_chunk(number, place, self.local)
                src, dst = (host * self.local + at for at in (place, (place + 1) % self.local))
                out.append(Transfer(src, dst, range(shard * hosts, (shard + 1) * hosts)))
        return out

    def _between(self, number: int, hosts: int) -> Round:
        """Return a round of the rings along rails. After the rounds inside, a rank has the shard of the next place."""
        out = []
        for host in range(hosts):
            for place in range(self.local):
                chunk = (place + 1) % self.local * hosts + sent_chunk(number, host, hosts)
                src, dst = (at * self.local + place for at in (host, (host + 1) % hosts))
                out.append(Transfer(src, dst, range(chunk, chunk + 1)))
        return out
