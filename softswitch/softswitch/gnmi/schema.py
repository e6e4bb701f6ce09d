"""The supported part of the tree: OpenConfig's paths for queues and ports.

`softswitch:` marks this switch's own leaves.

    /qos/interfaces/interface[interface-id=PORT]/output/queues/queue[name=QUEUE]/config
        name, softswitch:level, softswitch:weight, softswitch:min-rate, softswitch:max-rate,
        softswitch:depth
    /qos/interfaces/interface[interface-id=PORT]/output/queues/queue[name=QUEUE]/state
        name, transmit-pkts, transmit-octets, dropped-pkts, dropped-octets
    /interfaces/interface[name=PORT]/config
        name, softswitch:port-rate
    /interfaces/interface[name=PORT]/state
        name, ifindex, oper-status
    /interfaces/interface[name=PORT]/state/counters
        in-pkts, in-octets, out-pkts, out-octets
    /softswitch:foreign-writer
        the client that changed tables or the pipeline last, beside the one that asks

Ports and queues are decimal numbers. Rates are in bits per second, depth in bytes. A maximum rate
or port rate of 0 means that there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from softswitch.gnmi.paths import Step, path_text
from softswitch.rpc.status import Code, RefusedError
from softswitch.tm import LEVELS, MAX_WEIGHT, QUEUES

__all__ = ["Branch", "Leaf", "Place", "Tree"]

_UINT64_MAX = (1 << 64) - 1


@dataclass(frozen=True)
class Leaf:
    """A value: a number in `low`..`high`, or text where `is_text`.

    Only leaves with `is_config` can be set.

    A leaf that `is_constant` keeps its value as long as its port exists. Every change of a leaf
    that `is_event` is reported.
    """

    is_config: bool
    is_text: bool = False
    is_constant: bool = False
    is_event: bool = False
    low: int = 0
    high: int = _UINT64_MAX

    @property
    def is_wide(self) -> bool:
        """Return whether the type is uint64, which JSON_IETF writes as a string."""
        return not self.is_text and self.high > 0xFFFFFFFF


@dataclass(frozen=True)
class Branch:
    """A container, or the instance of a list where `key` names the list's key."""

    children: Mapping[str, Branch | Leaf]
    key: str = ""


class Place(NamedTuple):
    """One node with the instances that it belongs to.

    `port` and `queue` are None above the respective list.
    """

    node: Branch | Leaf
    steps: tuple[Step, ...]
    port: int | None = None
    queue: int | None = None

    @property
    def text(self) -> str:
        """Return the path as text."""
        return path_text(self.steps)


_NAME = Leaf(
    is_config=True,
    is_text=True,
    is_constant=True,
)
_STATE_NAME = Leaf(
    is_config=False,
    is_text=True,
    is_constant=True,
)
_COUNTER = Leaf(is_config=False)

_QUEUE = Branch(
    {
        "config": Branch(
            {
                "name": _NAME,
                "softswitch:level": Leaf(True, high=LEVELS - 1),
                "softswitch:weight": Leaf(True, low=1, high=MAX_WEIGHT),
                "softswitch:min-rate": Leaf(True),
                "softswitch:max-rate": Leaf(True),
                "softswitch:depth": Leaf(True),
            }
        ),
        "state": Branch(
            {
                "name": _STATE_NAME,
                "transmit-pkts": _COUNTER,
                "transmit-octets": _COUNTER,
                "dropped-pkts": _COUNTER,
                "dropped-octets": _COUNTER,
            }
        ),
    },
    key="name",
)

_ROOT = Branch(
    {
        "qos": Branch(
            {
                "interfaces": Branch(
                    {
                        "interface": Branch(
                            {"output": Branch({"queues": Branch({"queue": _QUEUE})})},
                            key="interface-id",
                        )
                    }
                )
            }
        ),
        "interfaces": Branch(
            {
                "interface": Branch(
                    {
                        "config": Branch({"name": _NAME, "softswitch:port-rate": Leaf(True)}),
                        "state": Branch(
                            {
                                "name": _STATE_NAME,
                                "ifindex": Leaf(False, is_constant=True, high=0xFFFFFFFF),
                                "oper-status": Leaf(
                                    is_config=False,
                                    is_text=True,
                                    is_event=True,
                                ),
                                "counters": Branch(
                                    {
                                        "in-pkts": _COUNTER,
                                        "in-octets": _COUNTER,
                                        "out-pkts": _COUNTER,
                                        "out-octets": _COUNTER,
                                    }
                                ),
                            }
                        ),
                    },
                    key="name",
                )
            }
        ),
        "softswitch:foreign-writer": Leaf(is_config=False, is_text=True),
    }
)


@dataclass(frozen=True)
class Tree:
    """The schema over the ports that a switch has now."""

    ports: Sequence[int]
    root: Place = field(default=Place(_ROOT, ()))

    def locate(self, steps: Iterable[Step]) -> list[Place]:
        """Return the places that a path means.

        A list without its key, or with ``*``, means all its instances.

        Raises:
            RefusedError: INVALID_ARGUMENT for a name or key that the schema does not have,
                NOT_FOUND for a port or queue that the switch does not have.
        """
        wanted = tuple(steps)
        places = [self.root]
        for depth, step in enumerate(wanted, 1):
            children: list[Place] = []
            for place in places:
                children += self.enter(place, step, wanted[:depth])
            places = children
        return places

    def children(self, place: Place) -> Iterator[tuple[str, Place]]:
        """Yield the children of a container, or of a list's instance, by name."""
        assert isinstance(place.node, Branch)
        for name, node in place.node.children.items():
            if isinstance(node, Branch) and node.key:
                for child in self._instances(place, name, node):
                    yield name, child
            else:
                steps = (*place.steps, Step(name))
                yield name, Place(node, steps, place.port, place.queue)

    def leaves(self, place: Place) -> Iterator[Place]:
        """Yield the leaves at and below `place`."""
        if isinstance(place.node, Leaf):
            yield place
        else:
            for _, child in self.children(place):
                yield from self.leaves(child)

    def enter(
        self,
        place: Place,
        step: Step,
        path: Sequence[Step],
    ) -> Iterator[Place]:
        """Yield the places that a step from `place` means.

        `path` is the way there, for errors; they are `locate`'s.
        """
        if isinstance(place.node, Leaf):
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"{path_text(path)}: {path_text(path[:-1])} is a leaf"
            )
        node = place.node.children.get(step.name)
        if node is None:
            names = ", ".join(place.node.children)
            raise RefusedError(
                Code.INVALID_ARGUMENT,
                f"{path_text(path)}: there is no {step.name!r}; there are: {names}",
            )
        key = node.key if isinstance(node, Branch) else ""
        if set(step.keys) - {key}:
            raise RefusedError(
                Code.INVALID_ARGUMENT,
                f"{path_text(path)}: the key of {step.name!r} is {key or 'missing'}",
            )
        if not (isinstance(node, Branch) and node.key):
            steps = (*place.steps, Step(step.name))
            yield Place(node, steps, place.port, place.queue)
            return
        instance = step.keys.get(node.key, "*")
        if instance == "*":
            yield from self._instances(place, step.name, node)
            return
        numbers = self._numbers(place)
        # Only the canonical spelling names an instance: "1", not "01".
        number = -1
        if instance.isdecimal() and instance.isascii():
            number = int(instance)
        if number not in numbers or str(number) != instance:
            kind = "ports" if place.port is None else "queues"
            listed = ", ".join(map(str, numbers)) or "none"
            raise RefusedError(
                Code.NOT_FOUND, f"{path_text(path)}: no {instance!r} there; {kind}: {listed}"
            )
        yield self._instance(place, step.name, node, number)

    def _numbers(self, place: Place) -> Sequence[int]:
        return self.ports if place.port is None else range(QUEUES)

    def _instances(
        self,
        place: Place,
        name: str,
        node: Branch,
    ) -> Iterator[Place]:
        for number in self._numbers(place):
            yield self._instance(place, name, node, number)

    def _instance(
        self,
        place: Place,
        name: str,
        node: Branch,
        number: int,
    ) -> Place:
        step = Step(name, {node.key: str(number)})
        steps = (*place.steps, step)
        if place.port is None:
            return Place(node, steps, number)
        return Place(node, steps, place.port, number)
