"""PipeDream's profiles, `graph.txt`: one line for each layer with its measured times and sizes, one
for each edge.

```
node3 -- Conv2d(3, 64, ...) -- forward_compute_time=4.151, backward_compute_time=6.046, activation_size=822083584.000, \
parameter_size=7168.000
	node3 -- node4
```

Times are milliseconds for a mini-batch, sizes are bytes. A layer with several outputs has sizes in
brackets, as in ``activation_size=[1.0; 2.0]``. The authors' optimizer appends `` -- stage_id=N``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from echelon.model.documents import DocumentError
from echelon.model.quantities import MAX_TEXT, excerpt
from echelon_importers.importer import Source

_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,12})?"
_MEASURED = re.compile(
    rf"forward_compute_time=({_NUMBER}), backward_compute_time=({_NUMBER}), "
    rf"activation_size=({_NUMBER}|\[{_NUMBER}(?:; {_NUMBER})*\]), parameter_size=({_NUMBER})"
)
MOST_MS = 10**7
"""The longest time of a layer that is believed."""
MOST_BYTES = 10**15


@dataclass(frozen=True, slots=True)
class ProfiledLayer:
    """The profile of one layer, for a mini-batch."""

    name: str
    description: str
    forward_s: Fraction
    backward_s: Fraction
    activation_bytes: int
    parameter_bytes: int


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """The layers of a model in topological order, and which ones each needs."""

    layers: tuple[ProfiledLayer, ...]
    needs: tuple[tuple[int, ...], ...]
    """The indices of the layers whose output each layer takes."""
    ignored: Mapping[str, int]

    def chosen(self, numbers: int) -> list[ProfiledLayer]:
        """Return the layers of a set of bits."""
        return [layer for number, layer in enumerate(self.layers) if numbers >> number & 1]


def parse_profile(source: Source) -> LayerProfile:
    """Return the profile in a file, without its inputs and without tuple items that nothing uses.

    Inputs cost nothing and belong to the first stage; the authors' optimizer leaves out the same
    layers. Raises `DocumentError`.
    """
    layers: dict[str, ProfiledLayer] = {}
    edges: dict[tuple[str, str], int] = {}
    for number, line in source.lines():
        if line.startswith("\t"):
            names = line.strip().split(" -- ")
            if len(names) != 2:
                raise source.fault(number, "is not an edge", "write '<tab>node1 -- node2'")
            edges.setdefault((names[0], names[1]), number)
        else:
            layer = _layer(source, number, line)
            if layer.name in layers:
                reason = f"{excerpt(layer.name)} has been described before"
                raise source.fault(number, reason, "remove one")
            layers[layer.name] = layer
    if not layers:
        raise source.refusal("describes no layers (check the format)", code="empty-document")
    for (before, after), number in edges.items():
        for name in (before, after):
            if name not in layers:
                reason = f"no layer is called {excerpt(name)}"
                raise source.fault(number, reason, "add or correct it")
        if before == after:
            raise source.fault(number, f"{excerpt(before)} needs itself", "remove the edge")
    return _ordered(source, layers, set(edges))


def _layer(
    source: Source,
    number: int,
    line: str,
) -> ProfiledLayer:
    words = line.strip().split(" -- ")
    has_name = 0 < len(words[0]) <= MAX_TEXT
    if len(words) not in (3, 4) or not has_name:
        reason = "is not a layer"
        raise source.fault(number, reason, "write 'NAME -- WHAT -- forward_compute_time=...'")
    name, description, measured, *stages = words
    for stage in stages:
        if not re.fullmatch(r"stage_id=[0-9]{1,6}", stage):
            reason = f"{excerpt(stage)} is not a stage"
            raise source.fault(number, reason, "write stage_id=N, or nothing")
    match = _MEASURED.fullmatch(measured)
    if match is None:
        reason = f"the measurements of {excerpt(name)} cannot be read"
        raise source.fault(
            number,
            reason,
            "write 'forward_compute_time=MS, backward_compute_time=MS, activation_size=BYTES,"
            " parameter_size=BYTES'",
        )
    forward, backward, activations, parameters = match.groups()
    forward_ms = Fraction(forward)
    backward_ms = Fraction(backward)
    parameter_bytes = Fraction(parameters)
    activation_bytes = Fraction(0)
    for size in activations.strip("[]").split("; "):
        activation_bytes += Fraction(size)
    largest = max(activation_bytes, parameter_bytes)
    if max(forward_ms, backward_ms) > MOST_MS or largest > MOST_BYTES:
        reason = f"a measurement of {excerpt(name)} is impossibly large"
        raise source.fault(number, reason, "correct it")
    return ProfiledLayer(
        name,
        description,
        forward_ms / 1000,
        backward_ms / 1000,
        math.ceil(activation_bytes),
        math.ceil(parameter_bytes),
    )


def _ordered(
    source: Source,
    layers: Mapping[str, ProfiledLayer],
    edges: set[tuple[str, str]],
) -> LayerProfile:
    ignored = Counter({"inputs": 0, "tuple items that nothing uses": 0})
    entered = {after for _, after in edges}
    left = {before for before, _ in edges}
    kept = []
    for name, layer in layers.items():
        if name not in entered and layer.description.startswith("Input"):
            ignored["inputs"] += 1
        elif name not in left and layer.description.startswith("__getitem__"):
            ignored["tuple items that nothing uses"] += 1
        else:
            kept.append(name)
    if not kept:
        raise source.refusal("describes nothing but inputs (check the file)", code="empty-document")
    needs: dict[str, set[str]] = {name: set() for name in kept}
    users: dict[str, list[str]] = {name: [] for name in kept}
    for before, after in sorted(edges):
        if before in needs and after in needs:
            needs[after].add(before)
            users[before].append(after)
    # Kahn's algorithm; among layers that are ready, the file's order decides.
    place = {name: index for index, name in enumerate(kept)}
    ready = [name for name in reversed(kept) if not needs[name]]
    missing = {name: len(needs[name]) for name in kept}
    order: list[str] = []
    while ready:
        name = ready.pop()
        order.append(name)
        for user in sorted(
            users[name],
            key=place.__getitem__,
            reverse=True,
        ):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    if len(order) < len(kept):
        stuck = next(name for name in kept if missing[name])
        reason = "the layers need each other in a circle (remove an edge)"
        raise DocumentError(source.name, stuck, reason, code="cycle")
    index = {name: number for number, name in enumerate(order)}
    needs_by_number = []
    for name in order:
        numbers = sorted(index[need] for need in needs[name])
        needs_by_number.append(tuple(numbers))
    return LayerProfile(
        tuple(layers[name] for name in order),
        tuple(needs_by_number),
        +ignored,
    )
