// Where the nodes of a fabric stand: hosts below, each switch as far above them as it is away from the next host.

import { compare } from "./format.js";

// Returns {name, tier, x, isHost} of every node of links {a, b}; `switches` are the names that are no hosts. Tier 0 is
// that of hosts; x is from 0 to 1.
export function place(links, switches) {
  const neighbours = new Map();
  for (const { a, b } of links) {
    for (const [one, other] of [[a, b], [b, a]]) {
      if (!neighbours.has(one)) neighbours.set(one, []);
      neighbours.get(one).push(other);
    }
  }
  const tiers = new Map();
  let edge = [...neighbours.keys()].filter((name) => !switches.has(name));
  if (edge.length === 0) edge = [...neighbours.keys()].slice(0, 1);
  for (let tier = 0; edge.length > 0; tier += 1) {
    for (const name of edge) tiers.set(name, tier);
    edge = [...new Set(edge.flatMap((name) => neighbours.get(name)))].filter((name) => !tiers.has(name));
  }
  const byTier = new Map();
  for (const [name, tier] of tiers) {
    if (!byTier.has(tier)) byTier.set(tier, []);
    byTier.get(tier).push(name);
  }
  const places = new Map();
  for (const tier of [1, 0, ...[...byTier.keys()].filter((one) => one > 1)]) {
    const names = byTier.get(tier) ?? [];
    // Hosts stand below their switches; a tier of switches in the order of its names.
    const above = (name) => neighbours.get(name).map((one) => places.get(one)?.x).find((x) => x !== undefined);
    names.sort((a, b) => (tier === 0 ? (above(a) ?? 0) - (above(b) ?? 0) : 0) || compare(a, b));
    names.forEach((name, at) => {
      places.set(name, { name, tier, x: (at + 0.5) / names.length, isHost: !switches.has(name) });
    });
  }
  return [...places.values()];
}
