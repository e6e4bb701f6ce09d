"""The places where a profiled model can be cut into stages."""

from __future__ import annotations

from collections.abc import Sequence

from echelon_importers.pipedream.partition import Cut
from echelon_importers.pipedream.profile import LayerProfile


def cuts(profile: LayerProfile, most: int) -> tuple[list[Cut], str | None]:
    """Return at most `most` cuts in an order for `partition`, and what was left out, if anything
    was.

    A set of layers may run before a cut if it holds all that its layers need. If there are more
    such sets than `most`, only those along one topological order remain, and of these the ones that
    the fewest bytes cross.
    """
    sets = _all_sets(profile, most)
    if sets is not None:
        return [_cut(profile, layers) for layers in sets], None
    chain = []
    for number in range(len(profile.layers) + 1):
        first_layers = (1 << number) - 1
        chain.append(_cut(profile, first_layers))
    if len(chain) <= most:
        return chain, "cuts off one topological order of the layers: there are too many"

    def crossing_bytes(number: int) -> int:
        return chain[number].activation_bytes

    last = len(chain) - 1
    # Of cuts that as many bytes cross, the first.
    inner = sorted(range(1, last), key=crossing_bytes)
    numbers = [0, *inner[: most - 2], last]
    numbers.sort()
    kept = [chain[number] for number in numbers]
    return kept, f"cuts other than the {most} that the fewest bytes cross"


def _all_sets(profile: LayerProfile, most: int) -> Sequence[int] | None:
    """Return all closed sets of layers as bits, smaller ones first; None if there are more."""
    needs = []
    for needed_layers in profile.needs:
        needs.append(sum(1 << number for number in needed_layers))
    seen = {0}
    new = [0]
    while new:
        layers = new.pop()
        for number, needed in enumerate(needs):
            larger = layers | 1 << number
            has_needs = layers & needed == needed
            if not has_needs or larger in seen:
                continue
            seen.add(larger)
            new.append(larger)
            if len(seen) > most:
                return None
    return sorted(seen, key=_count_and_layers)


def _count_and_layers(layers: int) -> tuple[int, int]:
    return layers.bit_count(), layers


def _cut(profile: LayerProfile, layers: int) -> Cut:
    before = profile.chosen(layers)
    crossing: set[int] = set()
    for number, needs in enumerate(profile.needs):
        if not layers >> number & 1:
            crossing.update(need for need in needs if layers >> need & 1)

    compute_s = sum(layer.forward_s + layer.backward_s for layer in before)
    parameter_bytes = sum(layer.parameter_bytes for layer in before)
    activation_bytes = sum(profile.layers[number].activation_bytes for number in crossing)
    return Cut(layers, float(compute_s), parameter_bytes, activation_bytes)
