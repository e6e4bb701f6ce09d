"""Queue configuration, state and counters of a device's ports as a gNMI tree: get and set, without
gRPC.

A Set changes everything or nothing. Every operation is applied to a copy of the configuration, the
outcome is checked, and only then the ports that differ change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from finsy.proto import gnmi

from softswitch.gnmi.paths import Step, from_message, to_message
from softswitch.gnmi.schema import Branch, Leaf, Place, Tree
from softswitch.rpc.status import Code, RefusedError
from softswitch.tm import STRICT_QUEUES, QueueConfig, QueueStats

__all__ = ["PortCounters", "QosPort", "QosTree", "Value"]

Value = int | str

_CONFIG_FIELDS = {
    "softswitch:level": "level",
    "softswitch:weight": "weight",
    "softswitch:min-rate": "min_rate_bps",
    "softswitch:max-rate": "max_rate_bps",
    "softswitch:depth": "depth_bytes",
}

_STATE_FIELDS = {
    "transmit-pkts": "dequeued_packets",
    "transmit-octets": "dequeued_bytes",
    "dropped-pkts": "dropped_packets",
    "dropped-octets": "dropped_bytes",
}


class PortCounters(NamedTuple):
    """The packets and bytes that a port has received and sent since the switch started."""

    in_packets: int
    in_bytes: int
    out_packets: int
    out_bytes: int


_COUNTERS = ("in-pkts", "in-octets", "out-pkts", "out-octets")


class QosPort(Protocol):
    """An egress port, as far as the tree needs it; `softswitch.tm.PortScheduler` is one."""

    @property
    def rate_bps(self) -> int | None: ...

    def set_rate(self, rate_bps: int | None, now_ns: int) -> None: ...

    def config(self, queue: int) -> QueueConfig: ...

    def configure(self, queue: int, config: QueueConfig, now_ns: int) -> None: ...

    @property
    def stats(self) -> tuple[QueueStats, ...]: ...


_KNOWN = 4096
"""Number of paths whose places are kept."""


@dataclass
class _Draft:
    """The values that a Set asks for. The ports supply all other values."""

    queues: dict[tuple[int, int], dict[str, tuple[int, Place]]] = field(default_factory=dict)
    """(port, queue) -> QueueConfig field -> (value, leaf)"""
    rates: dict[int, int] = field(default_factory=dict)

    def put(self, place: Place, value: int) -> None:
        assert place.port is not None
        if place.queue is None:
            self.rates[place.port] = value
        else:
            name = _CONFIG_FIELDS[place.steps[-1].name]
            self.queues.setdefault((place.port, place.queue), {})[name] = (value, place)


class QosTree:
    """The tree of one device.

    `ports` is read at every request, so ports may come and go. The caller holds the device's lock.

    Args:
        ports: the ports by number. is_up: tells whether a port has its link. counters: returns the
        counters of a port; None if the port is not counted, which leaves out its counter leaves.
    """

    def __init__(
        self,
        ports: Mapping[int, QosPort],
        is_up: Callable[[int], bool] = lambda _port: True,
        counters: Callable[[int], PortCounters | None] = lambda _port: None,
    ) -> None:
        self._ports = ports
        self._counters = counters
        self._port_leaves: dict[str, Callable[[int, QosPort], Value]] = {
            "softswitch:port-rate": lambda _number, port: port.rate_bps or 0,
            "ifindex": lambda number, _port: number,
            "oper-status": lambda number, _port: "UP" if is_up(number) else "DOWN",
        }
        self._first_rates: dict[int, int | None] = {}
        self._known_ports: Sequence[int] = ()
        self._known: dict[tuple[bytes, bytes], Place] = {}
        """Places that were found for serialized paths and prefixes, with these ports."""

    def get(
        self, path: gnmi.Path, prefix: gnmi.Path | None, kind: int, encoding: int
    ) -> Iterator[gnmi.Update]:
        """Yield the values at `path`.

        Args:
            path: with or without list keys; ``*`` stands for every instance. prefix: the path that
            precedes it, if any. kind: a GetRequest.DataType. encoding: PROTO yields one update per
            leaf; JSON and JSON_IETF yield one per place that `path` means.

        Raises:
            RefusedError: INVALID_ARGUMENT, NOT_FOUND, or UNIMPLEMENTED for another encoding.
        """
        if encoding not in (gnmi.PROTO, gnmi.JSON, gnmi.JSON_IETF):
            if encoding in gnmi.Encoding.values():
                name = gnmi.Encoding.Name(encoding)
            else:
                name = str(encoding)
            raise RefusedError(
                Code.UNIMPLEMENTED,
                f"encoding {name} is not supported; use JSON_IETF, JSON or PROTO",
            )
        tree = self._tree()
        for place in tree.locate(from_message(path, prefix)):
            if encoding == gnmi.PROTO:
                for leaf in tree.leaves(place):
                    value = self._value(leaf) if _wanted(leaf, kind) else None
                    if value is not None:
                        yield gnmi.Update(path=to_message(leaf.steps), val=_scalar(value))
                continue
            found = self._json(tree, place, kind, encoding == gnmi.JSON_IETF)
            if found is not None:
                text = json.dumps(found).encode()
                if encoding == gnmi.JSON_IETF:
                    value = gnmi.TypedValue(json_ietf_val=text)
                else:
                    value = gnmi.TypedValue(json_val=text)
                yield gnmi.Update(path=to_message(place.steps), val=value)

    def is_constant(self, path: gnmi.Path, prefix: gnmi.Path | None) -> bool:
        """Return whether nothing at or below `path` ever changes.

        Raise RefusedError as `get` does.
        """
        return all(leaf.is_constant for leaf in self._leaves(path, prefix))

    def tells_changes(self, path: gnmi.Path, prefix: gnmi.Path | None) -> bool:
        """Return whether every change at or below `path` is reported.

        Raise RefusedError as `get` does.
        """
        return all(leaf.is_constant or leaf.is_event for leaf in self._leaves(path, prefix))

    def _leaves(self, path: gnmi.Path, prefix: gnmi.Path | None) -> Iterator[Leaf]:
        tree = self._tree()
        for place in tree.locate(from_message(path, prefix)):
            for leaf in tree.leaves(place):
                assert isinstance(leaf.node, Leaf)
                yield leaf.node

    def set(self, request: gnmi.SetRequest, now_ns: int) -> gnmi.SetResponse:
        """Apply a Set: deletes, then replaces, then updates. Deleted values return to their
        defaults.

        Raises:
            RefusedError: INVALID_ARGUMENT with the path and the reason. Nothing has changed then.
        """
        if request.union_replace:
            raise RefusedError(Code.UNIMPLEMENTED, "union_replace is not supported; use replace")
        if request.HasField("prefix"):
            prefix = request.prefix
        else:
            prefix = None
        draft = _Draft()
        tree = self._tree()
        response = gnmi.SetResponse(timestamp=now_ns)
        if prefix is not None:
            response.prefix.CopyFrom(prefix)
        for path in request.delete:
            self._reset(tree, self._one(tree, path, prefix), draft)
            response.response.add(path=path, op=gnmi.UpdateResult.DELETE)
        for update in request.replace:
            place = self._one(tree, update.path, prefix)
            self._reset(tree, place, draft)
            self._assign(tree, place, update.val, draft)
            response.response.add(path=update.path, op=gnmi.UpdateResult.REPLACE)
        for update in request.update:
            self._assign(tree, self._one(tree, update.path, prefix), update.val, draft)
            response.response.add(path=update.path, op=gnmi.UpdateResult.UPDATE)
        self._apply(draft, now_ns)
        return response

    def _tree(self) -> Tree:
        for number, port in self._ports.items():
            self._first_rates.setdefault(number, port.rate_bps)
        return Tree(sorted(self._ports))

    def _value(self, leaf: Place) -> Value | None:
        """Return the value of a leaf, None if it is unknown."""
        assert leaf.port is not None
        name = leaf.steps[-1].name
        port = self._ports[leaf.port]
        if name == "name":
            return str(leaf.port if leaf.queue is None else leaf.queue)
        if name in self._port_leaves:
            return self._port_leaves[name](leaf.port, port)
        if name in _COUNTERS:
            counted = self._counters(leaf.port)
            if counted is None:
                return None
            return counted[_COUNTERS.index(name)]
        assert leaf.queue is not None
        if name in _CONFIG_FIELDS:
            number: int = getattr(port.config(leaf.queue), _CONFIG_FIELDS[name]) or 0
            return number
        counter: int = getattr(port.stats[leaf.queue], _STATE_FIELDS[name])
        return counter

    def _json(self, tree: Tree, place: Place, kind: int, ietf: bool) -> Any:
        if isinstance(place.node, Leaf):
            if not _wanted(place, kind):
                return None
            value = self._value(place)
            if value is None:
                return None
            return str(value) if ietf and place.node.is_wide else value
        if place.steps:
            found: dict[str, Any] = dict(place.steps[-1].keys)
        else:
            found = {}
        keys = len(found)
        for name, child in tree.children(place):
            value = self._json(tree, child, kind, ietf)
            if value is None:
                continue
            if child.steps[-1].keys:
                found.setdefault(name, []).append(value)
            else:
                found[name] = value
        return found if len(found) > keys else None

    def _one(self, tree: Tree, path: gnmi.Path, prefix: gnmi.Path | None) -> Place:
        """Return the only place that a path means. Raise RefusedError (INVALID_ARGUMENT)."""
        if tree.ports != self._known_ports or len(self._known) >= _KNOWN:
            self._known_ports = tree.ports
            self._known = {}
        key = path.SerializeToString(), b"" if prefix is None else prefix.SerializeToString()
        place = self._known.get(key)
        if place is None:
            place = self._known[key] = self._located(tree, path, prefix)
        return place

    def _located(self, tree: Tree, path: gnmi.Path, prefix: gnmi.Path | None) -> Place:
        steps = from_message(path, prefix)
        try:
            places = tree.locate(steps)
        except RefusedError as error:
            raise RefusedError(Code.INVALID_ARGUMENT, error.status.message) from None
        exact = [place for place in places if place.steps == steps]
        if not exact:
            text = Place(Branch({}), steps).text
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"{text}: a Set needs the key of every list, and no '*'"
            )
        return exact[0]

    def _reset(self, tree: Tree, place: Place, draft: _Draft) -> None:
        if isinstance(place.node, Leaf) and not (place.node.is_config and not place.node.is_text):
            raise RefusedError(Code.INVALID_ARGUMENT, f"{place.text} is read-only")
        for leaf in tree.leaves(place):
            assert isinstance(leaf.node, Leaf)
            assert leaf.port is not None
            if leaf.node.is_config and not leaf.node.is_text:
                if leaf.queue is None:
                    value = self._first_rates[leaf.port]
                else:
                    value = getattr(STRICT_QUEUES[leaf.queue], _CONFIG_FIELDS[leaf.steps[-1].name])
                draft.put(leaf, value or 0)

    def _assign(self, tree: Tree, place: Place, value: gnmi.TypedValue, draft: _Draft) -> None:
        kind = value.WhichOneof("value")
        given: Any
        if kind in ("json_val", "json_ietf_val"):
            try:
                given = json.loads(getattr(value, kind))
            except (ValueError, RecursionError) as error:
                raise RefusedError(
                    Code.INVALID_ARGUMENT, f"{place.text}: not JSON: {error}"
                ) from None
        elif kind in ("uint_val", "int_val", "string_val"):
            given = getattr(value, kind)
        else:
            if kind is None:
                text = "no value"
            else:
                text = f"a value of type {kind}"
            raise RefusedError(
                Code.INVALID_ARGUMENT,
                f"{place.text}: {text}; send json_ietf_val, or uint_val or string_val at a leaf",
            )
        self._assign_json(tree, place, given, draft)

    def _assign_json(self, tree: Tree, place: Place, given: Any, draft: _Draft) -> None:
        if isinstance(place.node, Leaf):
            self._assign_leaf(place, given, draft)
            return
        if not isinstance(given, dict):
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"{place.text}: {_shown(given)} is not a JSON object"
            )
        keys = place.steps[-1].keys if place.steps else {}
        for name, part in given.items():
            if name in keys:
                if part != keys[name]:
                    raise RefusedError(
                        Code.INVALID_ARGUMENT,
                        f"{place.text}: {name} is {_shown(part)} in the value",
                    )
                continue
            node = place.node.children.get(name)
            if isinstance(node, Leaf):
                self._assign_leaf(
                    Place(node, (*place.steps, Step(name)), place.port, place.queue), part, draft
                )
            elif isinstance(node, Branch) and node.key:
                self._assign_list(tree, place, name, node.key, part, draft)
            else:
                child = self._child(tree, place, Step(name))
                self._assign_json(tree, child, part, draft)

    def _assign_list(
        self, tree: Tree, place: Place, name: str, key: str, given: Any, draft: _Draft
    ) -> None:
        text = Place(place.node, (*place.steps, Step(name))).text
        if not isinstance(given, list):
            raise RefusedError(Code.INVALID_ARGUMENT, f"{text}: {_shown(given)} is not a JSON list")
        for part in given:
            instance = part.get(key) if isinstance(part, dict) else None
            if not isinstance(instance, str) or instance == "*":
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    f"{text}: {_shown(part)} has no {key!r} that names its instance",
                )
            self._assign_json(
                tree, self._child(tree, place, Step(name, {key: instance})), part, draft
            )

    def _child(self, tree: Tree, place: Place, step: Step) -> Place:
        try:
            return next(tree.enter(place, step, (*place.steps, step)))
        except RefusedError as error:
            raise RefusedError(Code.INVALID_ARGUMENT, error.status.message) from None

    def _assign_leaf(self, place: Place, given: Any, draft: _Draft) -> None:
        node = place.node
        assert isinstance(node, Leaf)
        if not node.is_config:
            raise RefusedError(Code.INVALID_ARGUMENT, f"{place.text} is read-only")
        if node.is_text:
            if given != self._value(place):
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    f"{place.text}: {_shown(given)} is not the name in the path",
                )
            return
        # RFC 7951 writes 64-bit numbers as strings.
        if isinstance(given, str) and given.isascii() and given.isdecimal():
            number = int(given)
        else:
            number = given
        if (
            not isinstance(number, int)
            or isinstance(number, bool)
            or not node.low <= number <= node.high
        ):
            raise RefusedError(
                Code.INVALID_ARGUMENT,
                f"{place.text}: {_shown(given)} is not a number in {node.low}..{node.high}",
            )
        draft.put(place, number)

    def _apply(self, draft: _Draft, now_ns: int) -> None:
        configs: dict[tuple[int, int], QueueConfig] = {}
        for (port, queue), values in draft.queues.items():
            changes: dict[str, int | None] = {name: value for name, (value, _) in values.items()}
            if "max_rate_bps" in changes:
                changes["max_rate_bps"] = changes["max_rate_bps"] or None
            try:
                configs[port, queue] = replace(self._ports[port].config(queue), **changes)  # type: ignore[arg-type]
            except ValueError as error:
                path = next(leaf.text for _, leaf in values.values()).rpartition("/")[0]
                raise RefusedError(Code.INVALID_ARGUMENT, f"{path}: {error}") from None
        for (port, queue), config in configs.items():
            if config != self._ports[port].config(queue):
                self._ports[port].configure(queue, config, now_ns)
        for port, rate_bps in draft.rates.items():
            if (rate_bps or None) != self._ports[port].rate_bps:
                self._ports[port].set_rate(rate_bps or None, now_ns)


def _wanted(leaf: Place, kind: int) -> bool:
    assert isinstance(leaf.node, Leaf)
    return kind == gnmi.GetRequest.ALL or (kind == gnmi.GetRequest.CONFIG) == leaf.node.is_config


def _scalar(value: Value) -> gnmi.TypedValue:
    if isinstance(value, str):
        return gnmi.TypedValue(string_val=value)
    return gnmi.TypedValue(uint_val=value)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
