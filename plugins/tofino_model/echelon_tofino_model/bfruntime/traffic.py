"""The fixed tables at work: ports and their queues, over the port schedulers of the switch.

Every port of the four pipes has its settings, whether an interface is attached to it or not. They
act on the ports that the switch has: each change of a table configures the queues of the port, or is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from echelon_tofino_model.bfruntime.device import Data, Entries, Key
from echelon_tofino_model.bfruntime.fixed import GROUP, NODE, PORT, fixed_schema
from echelon_tofino_model.bfruntime.schema import BfrtTable
from softswitch.portgroups import (
    GROUPS_PER_PIPE,
    LOGICAL_QUEUES,
    PIPES,
    PORTS_PER_GROUP,
    PortGroup,
    group_of,
    port_of,
)
from softswitch.rpc.status import Code, RefusedError
from softswitch.tm import PortQueues, QueueConfig, QueueStats

__all__ = ["CELL_BYTES", "TrafficManager"]

CELL_BYTES = 80
"""The cell of a Tofino 1's packet buffer."""

_LEVELS = {"LOW": 0, "HIGH": 7} | {str(level): level for level in range(8)}
_UNLIMITED_BYTES = 1 << 62
"""The depth of a queue whose packets are never dropped: more than a buffer can hold."""

_PORT_SCHEDULING = "tf1.tm.port.sched_cfg"
_PORT_SHAPING = "tf1.tm.port.sched_shaping"
_QUEUE_SHAPING = "tf1.tm.queue.sched_shaping"

Values = dict[str, Any]


class TrafficManager:
    """The ports and queues of a Tofino over the schedulers of a switch.

    Where a port has a scheduler, its queues are numbered as the port counts them (`queue_nr`). At
    first every queue has the lowest priority and weight 1023, as a Tofino comes up. The calls of
    its tables belong under the switch's lock.

    Args:
        ports: the scheduler of each port that the switch has, by number. Read at every call, so
            that ports may be added; `attach` configures one that was added.
        now_ns: the switch's clock.
        is_up: tells whether a port has its link.
    """

    def __init__(
        self,
        ports: Mapping[int, PortQueues],
        now_ns: Callable[[], int],
        is_up: Callable[[int], bool] = lambda _port: True,
    ) -> None:
        self._ports = ports
        self._now_ns = now_ns
        self._is_up = is_up
        self._groups: dict[tuple[int, int], PortGroup] = {}
        self._values: dict[tuple[str, Key], Data] = {}
        """The values that clients have set, by table and full key. All others are initial."""
        self._absent: set[int] = set()
        """The ports that a client has removed from `$PORT`."""
        self._line_rates: dict[int, int | None] = {}
        self._depths: dict[int, int] = {}
        self._drops: dict[Key, int] = {}
        self._peaks: dict[Key, int] = {}
        self.reset()

    def reset(self) -> None:
        """Set everything back as it was before a client changed it.

        Raise RefusedError if packets wait in a queue that would be removed.
        """
        for port in self._ports:
            self._check_carving(port, PortGroup())
        for kept in (self._groups, self._values, self._absent, self._drops, self._peaks):
            kept.clear()
        for port in self._ports:
            self.attach(port)

    def attach(self, port: int) -> None:
        """Configure the scheduler of a port that the switch has got.

        A port that a Tofino cannot have is left alone.
        """
        try:
            pipe, number, place = group_of(port)
        except ValueError:
            return
        scheduler = self._ports[port]
        # What the port came with, before settings change it.
        if port not in self._depths:
            self._line_rates[port] = scheduler.rate_bps
            self._depths[port] = scheduler.config(0).depth_bytes
        scheduler.set_queues(self.group(pipe, number).counts[place], self._now_ns())
        self._apply_port(port)

    def entries(self, table: str, pipe: int | None) -> Entries | None:
        """Return the entries of a fixed table; None if there is no such table here.

        `pipe` None means all pipes.
        """
        described = fixed_schema().tables.get(table)
        if described is None or table in (NODE, GROUP):
            return None
        return _TABLES.get(table, _Settings)(self, described, pipe)

    def queue_nr(self, port: int, qid: int) -> int:
        """Return the queue of a port's scheduler to which a packet for logical queue `qid` goes.

        Raise ValueError for a port that a Tofino does not have, or that has no queues."""
        pipe, number, place = group_of(port)
        queues = self.group(pipe, number).maps[place]
        if not queues:
            raise ValueError(f"port {port} has no queues")
        return queues[qid % LOGICAL_QUEUES]

    def group(self, pipe: int, number: int) -> PortGroup:
        """Return the division of a group's queues."""
        return self._groups.get((pipe, number)) or _DEFAULT_GROUP

    # -- settings ----------------------------------------------------------------------------------

    def data(self, table: BfrtTable, key: Key) -> Data:
        """Return the settings of an entry, the initial ones where no client has changed them."""
        data = self._values.get((table.name, key))
        return _initial(table) if data is None else data

    def change(
        self,
        table: BfrtTable,
        key: Key,
        data: Data,
        apply: Callable[[], None],
    ) -> None:
        """Change an entry's settings and `apply` them.

        The former ones stay if that raises ValueError or RefusedError.

        Fields that are read only are ignored, as the open SDE ignores them.
        """
        before = self._values.get((table.name, key))
        self._values[table.name, key] = _merged(table, self.data(table, key), data)
        try:
            apply()
        except (ValueError, RefusedError) as error:
            if before is None:
                self.forget(table, key)
            else:
                self._values[table.name, key] = before
            # What was applied before the refusal goes back, too.
            apply()
            if isinstance(error, RefusedError):
                raise
            raise RefusedError(Code.INVALID_ARGUMENT, f"{table.name}: {error}") from None

    def forget(self, table: BfrtTable, key: Key) -> None:
        """Set an entry back to its initial settings; the caller applies them."""
        self._values.pop((table.name, key), None)

    def setting(
        self,
        table: str,
        key: Key,
        field: str,
    ) -> Any:
        """Return one field of an entry."""
        return self.data(fixed_schema().tables[table], key).fields[field]

    # -- ports -------------------------------------------------------------------------------------

    def has(self, port: int) -> bool:
        """Return whether the switch has a port, and no client has removed it."""
        return port in self._ports and port not in self._absent

    def port_status(self, port: int) -> Values:
        """Return what is known of a port besides settings, as fields of `$PORT`."""
        pipe, number, place = group_of(port)
        connector = pipe * GROUPS_PER_PIPE + number + 1
        is_enabled = self.setting(PORT, (port,), "$PORT_ENABLE")
        return {
            "$IS_VALID": True,
            "$CONN_ID": connector,
            "$CHNL_ID": place,
            "$PORT_NAME": f"{connector}/{place}",
            "$PORT_UP": is_enabled and self._is_up(port),
            "$MEDIA_TYPE": "BF_MEDIA_TYPE_UNKNOWN",
        }

    def tofino_ports(self) -> Iterator[int]:
        """Yield the ports that the switch has, by number."""
        for port in sorted(self._ports):
            try:
                group_of(port)
            except ValueError:
                continue
            yield port

    def add(self, port: int) -> None:
        """Add a port that a client had removed.

        Raise RefusedError if it is there, or the switch does not have it.
        """
        if port not in self._ports:
            text = f"{PORT}: the switch has no port {port}; attach an interface to it"
            raise RefusedError(Code.INVALID_ARGUMENT, text)
        if port not in self._absent:
            raise RefusedError(Code.ALREADY_EXISTS, f"{PORT}: port {port} is there already")
        self._absent.discard(port)

    def remove(self, port: int) -> None:
        """Remove a port: it sends nothing until it is added again."""
        self._absent.add(port)
        self.apply_port(port)

    def apply_port(self, port: int) -> None:
        """Configure the rate and all queues of a port by its settings, if the switch has it.

        Raise ValueError or RefusedError.
        """
        if port in self._ports:
            self._apply_port(port)

    def _apply_port(self, port: int) -> None:
        scheduler = self._ports[port]
        pipe, number, place = group_of(port)
        first = self.group(pipe, number).first_queue(place)
        # All settings are read before any is applied: one that is refused changes nothing.
        rate_bps = self._port_rate_bps(port)
        configs = []
        for pg_queue in range(first, first + scheduler.queues):
            configs.append(self._queue_config((pipe, number, pg_queue), port))
        now_ns = self._now_ns()
        if rate_bps != scheduler.rate_bps:
            scheduler.set_rate(rate_bps, now_ns)
        for queue, config in enumerate(configs):
            if config != scheduler.config(queue):
                scheduler.configure(queue, config, now_ns)

    def _port_rate_bps(self, port: int) -> int | None:
        """Return the rate of a port: its line's, or a lower one to which it is shaped."""
        line_bps = self._line_rates[port]
        if not self.setting(_PORT_SCHEDULING, (port,), "max_rate_enable"):
            return line_bps
        shaped_bps = self._rate_bps(_PORT_SHAPING, (port,), "max_rate")
        if line_bps is None:
            return shaped_bps
        return min(line_bps, shaped_bps)

    # -- queues ------------------------------------------------------------------------------------

    def owner(self, key: Key) -> tuple[int, int] | None:
        """Return the port of a queue and its `queue_nr` there; None if no port has it.

        The key is (pipe, group, `pg_queue`).
        """
        pipe, number, pg_queue = key
        owner = self.group(pipe, number).owner(pg_queue)
        if owner is None:
            return None
        place, queue = owner
        return port_of(pipe, number, place), queue

    def apply_queue(self, key: Key) -> None:
        """Configure a queue by its settings, if a port of the switch has it.

        Raise ValueError or RefusedError.
        """
        owner = self.owner(key)
        if owner is None:
            return
        port, queue = owner
        config = self._queue_config(key, port)
        scheduler = self._ports.get(port)
        if scheduler is not None and config != scheduler.config(queue):
            scheduler.configure(queue, config, self._now_ns())

    def divide(
        self,
        pipe: int,
        number: int,
        group: PortGroup,
    ) -> None:
        """Divide a group's queues among its ports.

        Raise RefusedError, before anything changes, if packets wait in a queue that a port loses.
        """
        ports = [port_of(pipe, number, place) for place in range(PORTS_PER_GROUP)]
        for port in ports:
            self._check_carving(port, group)
        self._groups[pipe, number] = group
        for place, port in enumerate(ports):
            if port in self._ports:
                self._ports[port].set_queues(group.counts[place], self._now_ns())
                self._apply_port(port)

    def counters(self, key: Key) -> Values:
        """Return the counters of a queue as fields of `tf1.tm.counter.queue`."""
        dropped = used = peak = 0
        stats = self._stats(key)
        if stats is not None:
            dropped = stats.dropped_packets
            used = _cells(stats.queued_bytes)
            peak = stats.peak_bytes
        # Clearing the watermark leaves what has been reached since; a scheduler keeps only the
        # highest ever.
        has_new_peak = peak > self._peaks.get(key, 0)
        return {
            "drop_count_packets": dropped - self._drops.get(key, 0),
            "usage_cells": used,
            "watermark_cells": _cells(peak) if has_new_peak else used,
        }

    def clear_counters(self, key: Key, fields: Iterable[str]) -> None:
        """Count from 0 again."""
        stats = self._stats(key)
        if stats is None:
            return
        if "drop_count_packets" in fields:
            self._drops[key] = stats.dropped_packets
        if "watermark_cells" in fields:
            self._peaks[key] = stats.peak_bytes

    def _stats(self, key: Key) -> QueueStats | None:
        """Return what a scheduler has counted for a queue; None if no port of the switch has it."""
        owner = self.owner(key)
        if owner is None or owner[0] not in self._ports:
            return None
        port, queue = owner
        return self._ports[port].stats[queue]

    def _check_carving(self, port: int, group: PortGroup) -> None:
        try:
            _, _, place = group_of(port)
        except ValueError:
            return
        if port not in self._ports:
            return
        for queue, stats in enumerate(self._ports[port].stats):
            if queue >= group.counts[place] and stats.queued_packets:
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    f"tf1.tm.port.group: {stats.queued_packets} packets wait in queue {queue}"
                    f" of port {port}, which it would lose; stop its traffic first",
                )

    def _queue_config(self, key: Key, port: int) -> QueueConfig:
        scheduling = self.data(_QUEUE_SCHED_CFG, key).fields
        min_rate_bps = 0
        if scheduling["min_rate_enable"]:
            min_rate_bps = self._rate_bps(_QUEUE_SHAPING, key, "min_rate")
        max_rate_bps = None
        if scheduling["max_rate_enable"]:
            max_rate_bps = self._rate_bps(_QUEUE_SHAPING, key, "max_rate")
        speed = self.setting(_PORT_SCHEDULING, (port,), "scheduling_speed")
        is_enabled = self.has(port) and self.setting(PORT, (port,), "$PORT_ENABLE")
        is_served = is_enabled and speed != "BF_SPEED_NONE"
        return QueueConfig(
            level=_LEVELS[scheduling["max_priority"]],
            # A Tofino takes 0, too.
            weight=max(1, scheduling["dwrr_weight"]),
            min_rate_bps=min_rate_bps,
            max_rate_bps=max_rate_bps,
            depth_bytes=self._depth_bytes(key, port),
            guaranteed_level=_LEVELS[scheduling["min_priority"]],
            scheduled=bool(scheduling["scheduling_enable"] and is_served),
        )

    def _depth_bytes(self, key: Key, port: int) -> int:
        buffer = self.data(_QUEUE_BUFFER, key)
        cells: int = buffer.fields["guaranteed_cells"]
        if not buffer.fields["tail_drop_enable"]:
            return _UNLIMITED_BYTES
        if buffer.action == "shared_pool":
            if buffer.fields["dynamic_baf"] != "DISABLE":
                # A queue that may take a share of the pool is as deep as the switch lets queues be.
                return self._depths.get(port, QueueConfig().depth_bytes)
            cells += buffer.fields["pool_max_cells"]
        return cells * CELL_BYTES

    def _rate_bps(
        self,
        table: str,
        key: Key,
        field: str,
    ) -> int:
        if self.setting(table, key, "unit") == "PPS":
            text = f"{table}: softswitch limits bits per second, not packets; write unit BPS"
            raise RefusedError(Code.UNIMPLEMENTED, text)
        kilobits: int = self.setting(table, key, field)
        if not kilobits:
            raise ValueError(f"{field} is 0 and enabled; give a rate, or do not enable it")
        return kilobits * 1000


class _Settings:
    """The entries of a table that always has the same ones.

    The key of a table of queues or groups begins with the pipe inside: clients name the pipe by the
    request's target.
    """

    def __init__(
        self,
        traffic: TrafficManager,
        table: BfrtTable,
        pipe: int | None,
    ) -> None:
        self._traffic = traffic
        self._table = table
        self._pipe = pipe
        self._by_port = table.key[0].name in ("dev_port", "$DEV_PORT")

    def insert(self, key: Key, data: Data) -> None:
        raise self._unsupported("entries cannot be added; modify them")

    def delete(self, key: Key) -> None:
        raise self._unsupported("entries cannot be deleted; clear the table")

    def modify(self, key: Key, data: Data) -> None:
        is_read_only = all(field.read_only for field in self._table.data)
        if is_read_only and not self._table.actions:
            raise self._unsupported("it is read only")
        self._change(self._full(key), data)

    def clear(self) -> None:
        for full in self._keys(None):
            self._traffic.forget(self._table, full)
            self._apply(full)

    def get(self, key: Key) -> Data:
        return self._read(self._full(key))

    def all(self) -> Iterator[tuple[Key, Data]]:
        if not self._by_port:
            self._one_pipe()
        for full in self._keys(self._pipe):
            key = full if self._by_port else full[1:]
            yield key, self._read(full)

    def usage(self) -> int:
        return sum(1 for _ in self._keys(self._pipe))

    def default(self) -> Data | None:
        return None

    def set_default(self, data: Data | None) -> None:
        raise self._unsupported("it has no default entry")

    # -- what tables do in their own way -----------------------------------------------------------

    def _read(self, full: Key) -> Data:
        return self._traffic.data(self._table, full)

    def _change(self, full: Key, data: Data) -> None:
        self._traffic.change(self._table, full, data, lambda: self._apply(full))

    def _apply(self, full: Key) -> None:
        if self._by_port:
            self._traffic.apply_port(full[0])
        else:
            self._traffic.apply_queue(full)

    # -- keys --------------------------------------------------------------------------------------

    def _full(self, key: Key) -> Key:
        if self._by_port:
            try:
                group_of(key[0])
            except ValueError as error:
                raise self._invalid(f"{error}") from None
            return key
        sizes = (GROUPS_PER_PIPE, LOGICAL_QUEUES)
        for value, field, size in zip(key, self._table.key, sizes, strict=False):
            if value >= size:
                raise self._invalid(f"{field.name} {value} is not in 0..{size - 1}")
        return (self._one_pipe(), *key)

    def _one_pipe(self) -> int:
        if self._pipe is None:
            raise self._invalid(
                f"name one pipe, 0 to {PIPES - 1}, as the target's pipe_id: dev_port / 128"
            )
        return self._pipe

    def _keys(self, pipe: int | None) -> Iterator[Key]:
        if self._by_port:
            for place in product(range(PIPES), range(GROUPS_PER_PIPE), range(PORTS_PER_GROUP)):
                yield (port_of(*place),)
            return
        pipes = range(PIPES) if pipe is None else (pipe,)
        has_queues = len(self._table.key) == 2
        if has_queues:
            yield from product(pipes, range(GROUPS_PER_PIPE), range(LOGICAL_QUEUES))
        else:
            yield from product(pipes, range(GROUPS_PER_PIPE))

    def _invalid(self, why: str) -> RefusedError:
        return RefusedError(Code.INVALID_ARGUMENT, f"{self._table.name}: {why}")

    def _unsupported(self, why: str) -> RefusedError:
        return RefusedError(Code.UNIMPLEMENTED, f"{self._table.name}: {why}")


class _PortConfig(_Settings):
    """`tf1.tm.port.cfg`: where a port's queues are."""

    def _read(self, full: Key) -> Data:
        pipe, number, place = group_of(full[0])
        group = self._traffic.group(pipe, number)
        fields = dict(_initial(self._table).fields)
        fields["pg_id"] = number
        fields["pg_port_nr"] = place
        fields["port_queues_count"] = group.counts[place]
        fields["ingress_qid_map"] = group.maps[place]
        fields["egress_qid_queues"] = group.queues_of(place)
        return Data(None, fields)


class _Groups(_Settings):
    """`tf1.tm.port.group`: the division of a group's queues."""

    def default(self) -> Data | None:
        return _division(_DEFAULT_GROUP, ())

    def _read(self, full: Key) -> Data:
        pipe, number = full
        ports = tuple(port_of(pipe, number, place) for place in range(PORTS_PER_GROUP))
        return _division(self._traffic.group(pipe, number), ports)

    def clear(self) -> None:
        for pipe, number in self._keys(self._pipe):
            self._traffic.divide(pipe, number, _DEFAULT_GROUP)

    def _change(self, full: Key, data: Data) -> None:
        pipe, number = full
        try:
            group = _redivided(self._traffic.group(pipe, number), data)
        except ValueError as error:
            raise self._invalid(f"{error}") from None
        self._traffic.divide(pipe, number, group)


def _division(group: PortGroup, ports: tuple[int, ...]) -> Data:
    """Return the entry of a group's division."""
    fields: Values = {"pg_dev_ports": ports, "port_queue_count": group.counts}
    for place in range(PORTS_PER_GROUP):
        fields[f"ingress_qid_map_{place}"] = group.maps[place]
        fields[f"egress_qid_queues_{place}"] = group.queues_of(place)
    return Data("map", fields)


def _redivided(group: PortGroup, change: Data) -> PortGroup:
    """Return a group after the action of `change`. Raise ValueError."""
    counts = change.fields.get("port_queue_count", group.counts)
    if len(counts) != PORTS_PER_GROUP:
        raise ValueError(
            f"port_queue_count: {len(counts)} items; a group has {PORTS_PER_GROUP} ports"
        )
    match change.action:
        case "seq":
            return PortGroup.sequential(counts)
        case "even":
            return PortGroup.even(counts)
        case "crop":
            return group.cropped(counts)
        case "map":
            maps = []
            for place in range(PORTS_PER_GROUP):
                queues = change.fields.get(f"ingress_qid_map_{place}", group.maps[place])
                maps.append(tuple(queues))
            return replace(
                group,
                counts=tuple(counts),
                maps=tuple(maps),
            )
    raise ValueError("name an action: map, seq, even or crop")


class _QueueMap(_Settings):
    """`tf1.tm.queue.map`: the port that has a queue."""

    def _read(self, full: Key) -> Data:
        fields = {**_initial(self._table).fields, "ingress_qid_max": LOGICAL_QUEUES}
        owner = self._traffic.owner(full)
        if owner is not None:
            port, queue_nr = owner
            pipe, number, place = group_of(port)
            queues = self._traffic.group(pipe, number).maps[place]
            qids = tuple(qid for qid, mapped in enumerate(queues) if mapped == queue_nr)
            fields["dev_port"] = port
            fields["queue_nr"] = queue_nr
            fields["ingress_qid_count"] = len(qids)
            fields["ingress_qid_list"] = qids
        return Data(None, fields)


class _QueueCounters(_Settings):
    """`tf1.tm.counter.queue`: drops and depth of a queue. Only 0 can be written."""

    def _read(self, full: Key) -> Data:
        return Data(None, self._traffic.counters(full))

    def _change(self, full: Key, data: Data) -> None:
        written = {name: value for name, value in data.fields.items() if name != "usage_cells"}
        for name, value in written.items():
            if value:
                raise self._invalid(f"{name}: {value}: a counter can only be set to 0")
        self._traffic.clear_counters(full, written)

    def clear(self) -> None:
        for full in self._keys(self._pipe):
            self._traffic.clear_counters(full, ("drop_count_packets", "watermark_cells"))


class _Ports(_Settings):
    """`$PORT`: the ports of the switch. All that it has are there at first, and enabled."""

    def insert(self, key: Key, data: Data) -> None:
        for name in ("$SPEED", "$FEC"):
            if name not in data.fields:
                raise self._invalid(f"a port to be added needs {name}")
        (port,) = self._full(key)
        self._traffic.add(port)
        self._traffic.forget(self._table, (port,))
        self._change((port,), Data(None, {"$PORT_ENABLE": False, **data.fields}))

    def modify(self, key: Key, data: Data) -> None:
        self._present(key)
        super().modify(key, data)

    def delete(self, key: Key) -> None:
        self._traffic.remove(*self._present(key))

    def clear(self) -> None:
        for port in self._traffic.tofino_ports():
            if self._traffic.has(port):
                self._traffic.remove(port)

    def get(self, key: Key) -> Data:
        return self._read(self._present(key))

    def all(self) -> Iterator[tuple[Key, Data]]:
        for port in self._traffic.tofino_ports():
            if self._traffic.has(port):
                yield (port,), self._read((port,))

    def usage(self) -> int:
        return sum(1 for _ in self.all())

    def _read(self, full: Key) -> Data:
        data = self._traffic.data(self._table, full)
        return Data(None, {**data.fields, **self._traffic.port_status(full[0])})

    def _present(self, key: Key) -> Key:
        full = self._full(key)
        if not self._traffic.has(full[0]):
            raise RefusedError(Code.NOT_FOUND, f"{PORT}: there is no port {full[0]}")
        return full


def _initial(table: BfrtTable) -> Data:
    name = table.actions[0].name if table.actions else None
    fields = {field.name: field.initial for field in table.fields(name)}
    if table.name == PORT:
        fields["$SPEED"] = "BF_SPEED_100G"
        fields["$PORT_ENABLE"] = True
    return Data(name, fields)


def _merged(
    table: BfrtTable,
    before: Data,
    change: Data,
) -> Data:
    """Return `before` with the fields of `change`.

    An action that changes begins with its initial values.
    """
    action = change.action or before.action
    merged = {}
    for field in table.fields(action):
        name = field.name
        merged[name] = before.fields.get(name, field.initial)
        if name in change.fields and not field.read_only:
            merged[name] = change.fields[name]
    return Data(action, merged)


def _cells(size_bytes: int) -> int:
    return -(-size_bytes // CELL_BYTES)


_DEFAULT_GROUP = PortGroup()
_QUEUE_SCHED_CFG = fixed_schema().tables["tf1.tm.queue.sched_cfg"]
_QUEUE_BUFFER = fixed_schema().tables["tf1.tm.queue.buffer"]
_TABLES: Mapping[str, type[_Settings]] = {
    PORT: _Ports,
    "tf1.tm.counter.queue": _QueueCounters,
    "tf1.tm.port.cfg": _PortConfig,
    "tf1.tm.port.group": _Groups,
    "tf1.tm.queue.map": _QueueMap,
}
