"""Queue configuration, state and counters of a device's ports as a gNMI tree, without gRPC.

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
from softswitch.gnmi.writers import Writers
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
    """An egress port, as far as the tree needs it."""

    @property
    def rate_bps(self) -> int | None: ...

    def set_rate(self, rate_bps: int | None, now_ns: int) -> None: ...

    def config(self, queue: int) -> QueueConfig: ...

    def configure(
        self,
        queue: int,
        config: QueueConfig,
        now_ns: int,
    ) -> None: ...

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
            values = self.queues.setdefault((place.port, place.queue), {})
            values[name] = (value, place)


class QosTree:
    """The tree of one device.

    `ports` is read at every request, so ports may come and go. The caller holds the device's lock.

    Args:
        ports: the ports by number.
        is_up: tells whether a port has its link.
        counters: returns the counters of a port; None if the port is not counted, which leaves out
            its counter leaves.
    """

    def __init__(
        self,
        ports: Mapping[int, QosPort],
        is_up: Callable[[int], bool] = lambda _port: True,
        counters: Callable[[int], PortCounters | None] = lambda _port: None,
    ) -> None:
        self._ports = ports
        self._is_up = is_up
        self._counters = counters
        self.writers = Writers()
        """The clients that change the device."""
        self._first_rates: dict[int, int | None] = {}
        self._placed_ports: Sequence[int] = ()
        self._places: dict[tuple[bytes, bytes], Place] = {}
        """Places that were found for serialized paths and prefixes, with these ports."""

    def get(
        self,
        path: gnmi.Path,
        prefix: gnmi.Path | None,
        kind: int,
        encoding: int,
    ) -> Iterator[gnmi.Update]:
        """Yield the values at `path`.

        Args:
            path: with or without list keys; ``*`` stands for every instance.
            prefix: the path that precedes it, if any.
            kind: a GetRequest.DataType.
            encoding: PROTO yields one update per leaf; JSON and JSON_IETF yield one per place that
                `path` means.

        Raises:
            RefusedError: INVALID_ARGUMENT, NOT_FOUND, or UNIMPLEMENTED for another encoding.
        """
        if encoding not in (gnmi.PROTO, gnmi.JSON, gnmi.JSON_IETF):
            name = str(encoding)
            if encoding in gnmi.Encoding.values():
                name = gnmi.Encoding.Name(encoding)
            raise RefusedError(
                Code.UNIMPLEMENTED,
                f"encoding {name} is not supported; use JSON_IETF, JSON or PROTO",
            )
        tree = self._tree()
        for place in tree.locate(from_message(path, prefix)):
            if encoding == gnmi.PROTO:
                yield from self._scalars(tree, place, kind)
                continue
            content = self._json(tree, place, kind, encoding == gnmi.JSON_IETF)
            if content is None:
                continue
            text = json.dumps(content).encode()
            value = gnmi.TypedValue(json_val=text)
            if encoding == gnmi.JSON_IETF:
                value = gnmi.TypedValue(json_ietf_val=text)
            yield gnmi.Update(
                path=to_message(place.steps),
                val=value,
            )

    def _scalars(
        self,
        tree: Tree,
        place: Place,
        kind: int,
    ) -> Iterator[gnmi.Update]:
        for leaf in tree.leaves(place):
            if not _wanted(leaf, kind):
                continue
            value = self._value(leaf)
            if value is not None:
                yield gnmi.Update(
                    path=to_message(leaf.steps),
                    val=_scalar(value),
                )

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
        """Apply a Set: deletes, then replaces, then updates.

        Deleted values return to their defaults.

        Raises:
            RefusedError: INVALID_ARGUMENT with the path and the reason. Nothing has changed then.
        """
        if request.union_replace:
            raise RefusedError(Code.UNIMPLEMENTED, "union_replace is not supported; use replace")
        prefix = request.prefix if request.HasField("prefix") else None
        draft = _Draft()
        tree = self._tree()
        response = gnmi.SetResponse(timestamp=now_ns)
        if prefix is not None:
            response.prefix.CopyFrom(prefix)
        for path in request.delete:
            self._reset(tree, self._single_place(tree, path, prefix), draft)
            response.response.add(
                path=path,
                op=gnmi.UpdateResult.DELETE,
            )
        for update in request.replace:
            place = self._single_place(tree, update.path, prefix)
            self._reset(tree, place, draft)
            self._assign(tree, place, update.val, draft)
            response.response.add(
                path=update.path,
                op=gnmi.UpdateResult.REPLACE,
            )
        for update in request.update:
            place = self._single_place(tree, update.path, prefix)
            self._assign(tree, place, update.val, draft)
            response.response.add(
                path=update.path,
                op=gnmi.UpdateResult.UPDATE,
            )
        self._apply(draft, now_ns)
        return response

    def _tree(self) -> Tree:
        for number, port in self._ports.items():
            self._first_rates.setdefault(number, port.rate_bps)
        return Tree(sorted(self._ports))

    def _value(self, leaf: Place) -> Value | None:
        """Return the value of a leaf, None if it is unknown."""
        name = leaf.steps[-1].name
        if name == "softswitch:foreign-writer":
            return self.writers.foreign()
        assert leaf.port is not None
        port = self._ports[leaf.port]
        if name == "name":
            return str(leaf.port if leaf.queue is None else leaf.queue)
        if name == "softswitch:port-rate":
            return port.rate_bps or 0
        if name == "ifindex":
            return leaf.port
        if name == "oper-status":
            return "UP" if self._is_up(leaf.port) else "DOWN"
        if name in _COUNTERS:
            counters = self._counters(leaf.port)
            return None if counters is None else counters[_COUNTERS.index(name)]

        assert leaf.queue is not None
        if name in _CONFIG_FIELDS:
            config = port.config(leaf.queue)
            number: int = getattr(config, _CONFIG_FIELDS[name]) or 0
            return number
        counter: int = getattr(port.stats[leaf.queue], _STATE_FIELDS[name])
        return counter

    def _json(
        self,
        tree: Tree,
        place: Place,
        kind: int,
        ietf: bool,
    ) -> Any:
        if isinstance(place.node, Leaf):
            if not _wanted(place, kind):
                return None
            value = self._value(place)
            if value is None:
                return None
            return str(value) if ietf and place.node.is_wide else value
        content: dict[str, Any] = {}
        if place.steps:
            content.update(place.steps[-1].keys)
        keys = len(content)
        for name, child in tree.children(place):
            value = self._json(tree, child, kind, ietf)
            if value is None:
                continue
            if child.steps[-1].keys:
                content.setdefault(name, []).append(value)
            else:
                content[name] = value
        return content if len(content) > keys else None

    def _single_place(
        self,
        tree: Tree,
        path: gnmi.Path,
        prefix: gnmi.Path | None,
    ) -> Place:
        """Return the only place that a path means. Raise RefusedError (INVALID_ARGUMENT)."""
        if tree.ports != self._placed_ports or len(self._places) >= _KNOWN:
            self._placed_ports = tree.ports
            self._places = {}
        prefix_bytes = b"" if prefix is None else prefix.SerializeToString()
        key = (path.SerializeToString(), prefix_bytes)
        place = self._places.get(key)
        if place is None:
            place = self._located(tree, path, prefix)
            self._places[key] = place
        return place

    def _located(
        self,
        tree: Tree,
        path: gnmi.Path,
        prefix: gnmi.Path | None,
    ) -> Place:
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

    def _reset(
        self,
        tree: Tree,
        place: Place,
        draft: _Draft,
    ) -> None:
        if isinstance(place.node, Leaf) and not _has_default(place.node):
            raise RefusedError(Code.INVALID_ARGUMENT, f"{place.text} is read-only")
        for leaf in tree.leaves(place):
            assert isinstance(leaf.node, Leaf)
            if not _has_default(leaf.node):
                continue
            assert leaf.port is not None
            if leaf.queue is None:
                value = self._first_rates[leaf.port]
            else:
                field = _CONFIG_FIELDS[leaf.steps[-1].name]
                value = getattr(STRICT_QUEUES[leaf.queue], field)
            draft.put(leaf, value or 0)

    def _assign(
        self,
        tree: Tree,
        place: Place,
        value: gnmi.TypedValue,
        draft: _Draft,
    ) -> None:
        kind = value.WhichOneof("value")
        content: Any
        if kind in ("json_val", "json_ietf_val"):
            try:
                content = json.loads(getattr(value, kind))
            except (ValueError, RecursionError) as error:
                raise RefusedError(
                    Code.INVALID_ARGUMENT, f"{place.text}: not JSON: {error}"
                ) from None
        elif kind in ("uint_val", "int_val", "string_val"):
            content = getattr(value, kind)
        else:
            text = "no value" if kind is None else f"a value of type {kind}"
            raise RefusedError(
                Code.INVALID_ARGUMENT,
                f"{place.text}: {text}; send json_ietf_val, or uint_val or string_val at a leaf",
            )
        self._assign_json(tree, place, content, draft)

    def _assign_json(
        self,
        tree: Tree,
        place: Place,
        content: Any,
        draft: _Draft,
    ) -> None:
        if isinstance(place.node, Leaf):
            self._assign_leaf(place, content, draft)
            return
        if not isinstance(content, dict):
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"{place.text}: {_excerpt(content)} is not a JSON object"
            )
        keys = place.steps[-1].keys if place.steps else {}
        for name, part in content.items():
            if name in keys:
                if part != keys[name]:
                    raise RefusedError(
                        Code.INVALID_ARGUMENT,
                        f"{place.text}: {name} is {_excerpt(part)} in the value",
                    )
                continue
            node = place.node.children.get(name)
            if isinstance(node, Leaf):
                steps = (*place.steps, Step(name))
                leaf = Place(node, steps, place.port, place.queue)
                self._assign_leaf(leaf, part, draft)
            elif isinstance(node, Branch) and node.key:
                self._assign_list(tree, place, name, node.key, part, draft)
            else:
                child = self._child(tree, place, Step(name))
                self._assign_json(tree, child, part, draft)

    def _assign_list(
        self,
        tree: Tree,
        place: Place,
        name: str,
        key: str,
        content: Any,
        draft: _Draft,
    ) -> None:
        text = Place(place.node, (*place.steps, Step(name))).text
        if not isinstance(content, list):
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"{text}: {_excerpt(content)} is not a JSON list"
            )
        for part in content:
            instance = part.get(key) if isinstance(part, dict) else None
            if not isinstance(instance, str) or instance == "*":
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    f"{text}: {_excerpt(part)} has no {key!r} that names its instance",
                )
            child = self._child(tree, place, Step(name, {key: instance}))
            self._assign_json(tree, child, part, draft)

    def _child(
        self,
        tree: Tree,
        place: Place,
        step: Step,
    ) -> Place:
        try:
            return next(tree.enter(place, step, (*place.steps, step)))
        except RefusedError as error:
            raise RefusedError(Code.INVALID_ARGUMENT, error.status.message) from None

    def _assign_leaf(
        self,
        place: Place,
        content: Any,
        draft: _Draft,
    ) -> None:
        node = place.node
        assert isinstance(node, Leaf)
        if not node.is_config:
            raise RefusedError(Code.INVALID_ARGUMENT, f"{place.text} is read-only")
        if node.is_text:
            if content != self._value(place):
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    f"{place.text}: {_excerpt(content)} is not the name in the path",
                )
            return
        # RFC 7951 writes 64-bit numbers as strings.
        number = content
        if isinstance(content, str) and content.isascii() and content.isdecimal():
            number = int(content)
        is_integer = isinstance(number, int) and not isinstance(number, bool)
        if not is_integer or not node.low <= number <= node.high:
            raise RefusedError(
                Code.INVALID_ARGUMENT,
                f"{place.text}: {_excerpt(content)} is not a number in {node.low}..{node.high}",
            )
        draft.put(place, number)

    def _apply(self, draft: _Draft, now_ns: int) -> None:
        configs: dict[tuple[int, int], QueueConfig] = {}
        for (port, queue), values in draft.queues.items():
            changes: dict[str, int | None] = {}
            for name, (value, _) in values.items():
                changes[name] = value
            if changes.get("max_rate_bps") == 0:
                changes["max_rate_bps"] = None
            present = self._ports[port].config(queue)
            try:
                configs[port, queue] = replace(present, **changes)  # type: ignore[arg-type]
            except ValueError as error:
                _, leaf = next(iter(values.values()))
                path, _, _ = leaf.text.rpartition("/")
                raise RefusedError(Code.INVALID_ARGUMENT, f"{path}: {error}") from None
        for (port, queue), config in configs.items():
            if config != self._ports[port].config(queue):
                self._ports[port].configure(queue, config, now_ns)
        for port, rate in draft.rates.items():
            # A rate of 0 means that there is none.
            rate_bps = rate or None
            if rate_bps != self._ports[port].rate_bps:
                self._ports[port].set_rate(rate_bps, now_ns)


def _has_default(leaf: Leaf) -> bool:
    """Return whether a leaf can be set, and therefore returns to its default when it is deleted."""
    return leaf.is_config and not leaf.is_text


def _wanted(leaf: Place, kind: int) -> bool:
    assert isinstance(leaf.node, Leaf)
    if kind == gnmi.GetRequest.ALL:
        return True
    return leaf.node.is_config == (kind == gnmi.GetRequest.CONFIG)


def _scalar(value: Value) -> gnmi.TypedValue:
    if isinstance(value, str):
        return gnmi.TypedValue(string_val=value)
    return gnmi.TypedValue(uint_val=value)


def _excerpt(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
