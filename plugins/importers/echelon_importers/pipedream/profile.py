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
from echelon.model.quantities import MAX_TEXT, shown
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
    what: str
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


def parse_profile(source: Source) -> LayerProfile:
    """Return the profile in a file, without its inputs and without tuple items that nothing uses.

    Inputs cost nothing and belong to the first stage; the authors' optimizer leaves out the same
    layers. Raises `DocumentError`.
    """
    layers: dict[str, ProfiledLayer] = {}
    edges: dict[tuple[str, str], int] = {}
    for number, line in enumerate(source.text().splitlines(), start=1):
        if not line.strip():
            continue
        if line.startswith("\t"):
            names = line.strip().split(" -- ")
            if len(names) != 2:
                raise source.fault(number, "is not an edge", "write '<tab>node1 -- node2'")
            edges.setdefault((names[0], names[1]), number)
        else:
            layer = _layer(source, number, line)
            if layer.name in layers:
                raise source.fault(
                    number, f"{shown(layer.name)} has been described before", "remove one"
                )
            layers[layer.name] = layer
    if not layers:
        raise DocumentError(
            source.name, "", "describes no layers (check the format)", code="empty-document"
        )
    for (before, behind), number in edges.items():
        for name in (before, behind):
            if name not in layers:
                raise source.fault(number, f"no layer is called {shown(name)}", "add or correct it")
        if before == behind:
            raise source.fault(number, f"{shown(before)} needs itself", "remove the edge")
    return _ordered(source, layers, set(edges))


def _layer(source: Source, number: int, line: str) -> ProfiledLayer:
    words = line.strip().split(" -- ")
    if len(words) not in (3, 4) or not words[0] or len(words[0]) > MAX_TEXT:
        raise source.fault(
            number, "is not a layer", "write 'NAME -- WHAT -- forward_compute_time=...'"
        )
    if len(words) == 4 and not re.fullmatch(r"stage_id=[0-9]{1,6}", words[3]):
        raise source.fault(
            number, f"{shown(words[3])} is not a stage", "write stage_id=N, or nothing"
        )
    found = _MEASURED.fullmatch(words[2])
    if found is None:
        raise source.fault(
            number,
            f"the measurements of {shown(words[0])} cannot be read",
            "write 'forward_compute_time=MS, backward_compute_time=MS, activation_size=BYTES,"
            " parameter_size=BYTES'",
        )
    forward_ms, backward_ms, activation, parameters = found.groups()
    times = [Fraction(forward_ms), Fraction(backward_ms)]
    sizes = [
        sum((Fraction(size) for size in activation.strip("[]").split("; ")), Fraction(0)),
        Fraction(parameters),
    ]
    if max(times) > MOST_MS or max(sizes) > MOST_BYTES:
        raise source.fault(
            number, f"a measurement of {shown(words[0])} is impossibly large", "correct it"
        )
    return ProfiledLayer(
        words[0],
        words[1],
        times[0] / 1000,
        times[1] / 1000,
        math.ceil(sizes[0]),
        math.ceil(sizes[1]),
    )


def _ordered(
    source: Source, layers: Mapping[str, ProfiledLayer], edges: set[tuple[str, str]]
) -> LayerProfile:
    ignored: Counter[str] = Counter()
    entered = {behind for _, behind in edges}
    left = {before for before, _ in edges}
    inputs = {
        name for name in layers if name not in entered and layers[name].what.startswith("Input")
    }
    unused = {
        name for name in layers if name not in left and layers[name].what.startswith("__getitem__")
    }
    ignored.update({"inputs": len(inputs), "tuple items that nothing uses": len(unused - inputs)})
    kept = [name for name in layers if name not in inputs | unused]
    if not kept:
        raise DocumentError(
            source.name, "", "describes nothing but inputs (check the file)", code="empty-document"
        )
    needs: dict[str, set[str]] = {name: set() for name in kept}
    users: dict[str, list[str]] = {name: [] for name in kept}
    for before, behind in sorted(edges):
        if before in needs and behind in needs:
            needs[behind].add(before)
            users[before].append(behind)
    # Kahn's algorithm; among layers that are ready, the file's order decides.
    place = {name: index for index, name in enumerate(kept)}
    ready = [name for name in kept if not needs[name]][::-1]
    missing = {name: len(needs[name]) for name in kept}
    order: list[str] = []
    while ready:
        name = ready.pop()
        order.append(name)
        for user in sorted(users[name], key=place.__getitem__, reverse=True):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    if len(order) < len(kept):
        stuck = next(name for name in kept if missing[name])
        raise DocumentError(
            source.name,
            stuck,
            "the layers need each other in a circle (remove an edge)",
            code="cycle",
        )
    index = {name: number for number, name in enumerate(order)}
    return LayerProfile(
        tuple(layers[name] for name in order),
        tuple(tuple(sorted(index[need] for need in needs[name])) for name in order),
        +ignored,
    )
