"""The fixed tables at work: ports and their queues, over the port schedulers of the switch.

Every port of the four pipes has its settings, whether an interface is attached to it or not. They
act on the ports that the switch has: each change of a table configures the `PortScheduler` of the
port, or is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
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
from softswitch.tm import PortScheduler, QueueConfig

__all__ = ["CELL_BYTES", "TrafficManager"]

CELL_BYTES = 80
"""The cell of a Tofino 1's packet buffer."""

_LEVELS = {"LOW": 0, **{str(level): level for level in range(8)}, "HIGH": 7}

Values = dict[str, Any]


class TrafficManager:
    """The ports and queues of a Tofino over the schedulers of a switch.

    Where a port has a scheduler, its queues are numbered as the port counts them (`queue_nr`). At
    first every queue has the lowest priority and weight 1023, as a Tofino comes up. The calls of
    its tables belong under the switch's lock.

    Args:
        ports: the scheduler of each port that the switch has, by number. Read at every call, so
        that ports may be
            added; `attach` configures one that was added.
        now_ns: the switch's clock. is_up: tells whether a port has its link.
    """

    def __init__(
        self,
        ports: Mapping[int, PortScheduler],
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
        """Set everything back as it was before a client changed it. Raise RefusedError if packets
        wait in a queue that would be removed."""
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
        of_port = self.group(pipe, number).maps[place]
        if not of_port:
            raise ValueError(f"port {port} has no queues")
        return of_port[qid % LOGICAL_QUEUES]

    def group(self, pipe: int, number: int) -> PortGroup:
        """Return the division of a group's queues."""
        return self._groups.get((pipe, number)) or _DEFAULT_GROUP

    # -- settings ----------------------------------------------------------------------------------

    def data(self, table: BfrtTable, key: Key) -> Data:
        """Return the settings of an entry, the initial ones where no client has changed them."""
        found = self._values.get((table.name, key))
        return _initial(table) if found is None else found

    def change(self, table: BfrtTable, key: Key, data: Data, apply: Callable[[], None]) -> None:
        """Change an entry's settings and `apply` them; keep the former ones if that raises
        ValueError or RefusedError.

        Fields that are read only are ignored, as the open SDE ignores them."""
        before = self._values.get((table.name, key))
        after = _merged(table, self.data(table, key), data)
        self._values[table.name, key] = after
        try:
            apply()
        except (ValueError, RefusedError) as error:
            if before is None:
                del self._values[table.name, key]
            else:
                self._values[table.name, key] = before
            apply()
            if isinstance(error, RefusedError):
                raise
            raise RefusedError(Code.INVALID_ARGUMENT, f"{table.name}: {error}") from None

    def forget(self, table: BfrtTable, key: Key) -> None:
        """Set an entry back to its initial settings; the caller applies them."""
        self._values.pop((table.name, key), None)

    def setting(self, table: str, key: Key, field: str) -> Any:
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
        return {
            "$IS_VALID": True,
            "$CONN_ID": connector,
            "$CHNL_ID": place,
            "$PORT_NAME": f"{connector}/{place}",
            "$PORT_UP": self.setting(PORT, (port,), "$PORT_ENABLE") and self._is_up(port),
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
            raise RefusedError(
                Code.INVALID_ARGUMENT,
                f"{PORT}: the switch has no port {port}; attach an interface to it",
            )
        if port not in self._absent:
            raise RefusedError(Code.ALREADY_EXISTS, f"{PORT}: port {port} is there already")
        self._absent.discard(port)

    def remove(self, port: int) -> None:
        """Remove a port: it sends nothing until it is added again."""
        self._absent.add(port)
        self.apply_port(port)

    def apply_port(self, port: int) -> None:
        """Configure the rate and all queues of a port by its settings, if the switch has it. Raise
        ValueError or RefusedError."""
        if port in self._ports:
            self._apply_port(port)

    def _apply_port(self, port: int) -> None:
        scheduler = self._ports[port]
        line_bps = self._line_rates[port]
        rate_bps = line_bps
        if self.setting("tf1.tm.port.sched_cfg", (port,), "max_rate_enable"):
            shaped_bps = self._rate_bps("tf1.tm.port.sched_shaping", (port,), "max_rate")
            if line_bps is None:
                rate_bps = shaped_bps
            else:
                rate_bps = min(line_bps, shaped_bps)
        pipe, number, place = group_of(port)
        first = self.group(pipe, number).first_queue(place)
        configs = [
            self._queue_config((pipe, number, first + queue), port)
            for queue in range(scheduler.queues)
        ]
        now_ns = self._now_ns()
        if rate_bps != scheduler.rate_bps:
            scheduler.set_rate(rate_bps, now_ns)
        for queue, config in enumerate(configs):
            if config != scheduler.config(queue):
                scheduler.configure(queue, config, now_ns)

    # -- queues ------------------------------------------------------------------------------------

    def owner(self, key: Key) -> tuple[int, int] | None:
        """Return the port of a queue, whose key is (pipe, group, `pg_queue`), and its `queue_nr`
        there. None if no port has it."""
        pipe, number, pg_queue = key
        found = self.group(pipe, number).owner(pg_queue)
        if found is None:
            return None
        return (port_of(pipe, number, found[0]), found[1])

    def apply_queue(self, key: Key) -> None:
        """Configure a queue by its settings, if a port of the switch has it.

        Raise ValueError or RefusedError.
        """
        owner = self.owner(key)
        if owner is None:
            return
        port, queue = owner
        config = self._queue_config(key, port)
        if port in self._ports and config != self._ports[port].config(queue):
            self._ports[port].configure(queue, config, self._now_ns())

    def divide(self, pipe: int, number: int, group: PortGroup) -> None:
        """Divide a group's queues anew. Raise RefusedError, before anything changes, if packets
        wait in a queue that a port loses."""
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
        owner = self.owner(key)
        if owner is not None and owner[0] in self._ports:
            stats = self._ports[owner[0]].stats[owner[1]]
            dropped = stats.dropped_packets
            used = _cells(stats.queued_bytes)
            peak = stats.peak_bytes
        return {
            "drop_count_packets": dropped - self._drops.get(key, 0),
            "usage_cells": used,
            # Clearing the watermark leaves what has been reached since; a scheduler keeps only the
            # highest ever.
            "watermark_cells": _cells(peak) if peak > self._peaks.get(key, 0) else used,
        }

    def clear_counters(self, key: Key, fields: Iterable[str]) -> None:
        """Count from 0 again."""
        owner = self.owner(key)
        if owner is None or owner[0] not in self._ports:
            return
        stats = self._ports[owner[0]].stats[owner[1]]
        if "drop_count_packets" in fields:
            self._drops[key] = stats.dropped_packets
        if "watermark_cells" in fields:
            self._peaks[key] = stats.peak_bytes

    def _check_carving(self, port: int, group: PortGroup) -> None:
        try:
            count = group.counts[group_of(port)[2]]
        except ValueError:
            return
        if port in self._ports:
            for queue, stats in enumerate(self._ports[port].stats):
                if queue >= count and stats.queued_packets:
                    raise RefusedError(
                        Code.INVALID_ARGUMENT,
                        f"tf1.tm.port.group: {stats.queued_packets} packets wait in queue {queue}"
                        f" of port {port}, which it would lose; stop its traffic first",
                    )

    def _queue_config(self, key: Key, port: int) -> QueueConfig:
        scheduling = self.data(_QUEUE_SCHED_CFG, key).fields
        shaping = "tf1.tm.queue.sched_shaping"
        has_min = scheduling["min_rate_enable"]
        has_max = scheduling["max_rate_enable"]
        is_served = (
            self.setting("tf1.tm.port.sched_cfg", (port,), "scheduling_speed") != "BF_SPEED_NONE"
        )
        is_enabled = self.has(port) and self.setting(PORT, (port,), "$PORT_ENABLE")
        return QueueConfig(
            level=_LEVELS[scheduling["max_priority"]],
            # A Tofino takes 0, too.
            weight=max(1, scheduling["dwrr_weight"]),
            min_rate_bps=self._rate_bps(shaping, key, "min_rate") if has_min else 0,
            max_rate_bps=self._rate_bps(shaping, key, "max_rate") if has_max else None,
            depth_bytes=self._depth_bytes(key, port),
            guaranteed_level=_LEVELS[scheduling["min_priority"]],
            scheduled=bool(scheduling["scheduling_enable"] and is_served and is_enabled),
        )

    def _depth_bytes(self, key: Key, port: int) -> int:
        buffer = self.data(_QUEUE_BUFFER, key)
        cells: int = buffer.fields["guaranteed_cells"]
        if not buffer.fields["tail_drop_enable"]:
            return 1 << 62
        if buffer.action == "shared_pool":
            if buffer.fields["dynamic_baf"] != "DISABLE":
                # A queue that may take a share of the pool is as deep as the switch lets queues be.
                return self._depths.get(port, QueueConfig().depth_bytes)
            cells += buffer.fields["pool_max_cells"]
        return cells * CELL_BYTES

    def _rate_bps(self, table: str, key: Key, field: str) -> int:
        if self.setting(table, key, "unit") == "PPS":
            raise RefusedError(
                Code.UNIMPLEMENTED,
                f"{table}: softswitch limits bits per second, not packets; write unit BPS",
            )
        kilobits: int = self.setting(table, key, field)
        if not kilobits:
            raise ValueError(f"{field} is 0 and enabled; give a rate, or do not enable it")
        return kilobits * 1000


class _Settings:
    """The entries of a table that always has the same ones.

    The key of a table of queues or groups begins with the pipe inside: clients name the pipe by the
    request's target.
    """

    def __init__(self, traffic: TrafficManager, table: BfrtTable, pipe: int | None) -> None:
        self._traffic = traffic
        self._table = table
        self._pipe = pipe
        self._by_port = table.key[0].name in ("dev_port", "$DEV_PORT")

    def insert(self, key: Key, data: Data) -> None:
        raise self._unsupported("entries cannot be added; modify them")

    def delete(self, key: Key) -> None:
        raise self._unsupported("entries cannot be deleted; clear the table")

    def modify(self, key: Key, data: Data) -> None:
        if all(field.read_only for field in self._table.data) and not self._table.actions:
            raise self._unsupported("it is read only")
        full = self._full(key)
        self._change(full, data)

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
            yield full if self._by_port else full[1:], self._read(full)

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
                raise RefusedError(Code.INVALID_ARGUMENT, f"{self._table.name}: {error}") from None
            return key
        for value, field, size in zip(
            key, self._table.key, (GROUPS_PER_PIPE, LOGICAL_QUEUES), strict=False
        ):
            if value >= size:
                text = f"{self._table.name}: {field.name} {value} is not in 0..{size - 1}"
                raise RefusedError(Code.INVALID_ARGUMENT, text)
        return (self._one_pipe(), *key)

    def _one_pipe(self) -> int:
        if self._pipe is None:
            text = (
                f"{self._table.name}: name one pipe, 0 to {PIPES - 1}, as the target's pipe_id:"
                " dev_port / 128"
            )
            raise RefusedError(Code.INVALID_ARGUMENT, text)
        return self._pipe

    def _keys(self, pipe: int | None) -> Iterator[Key]:
        has_queues = len(self._table.key) == 2
        for one in range(PIPES) if pipe is None or self._by_port else (pipe,):
            for group in range(GROUPS_PER_PIPE):
                if self._by_port:
                    yield from ((port_of(one, group, place),) for place in range(PORTS_PER_GROUP))
                elif has_queues:
                    yield from ((one, group, queue) for queue in range(LOGICAL_QUEUES))
                else:
                    yield (one, group)

    def _unsupported(self, why: str) -> RefusedError:
        return RefusedError(Code.UNIMPLEMENTED, f"{self._table.name}: {why}")


class _PortConfig(_Settings):
    """`tf1.tm.port.cfg`: where a port's queues are."""

    def _read(self, full: Key) -> Data:
        pipe, number, place = group_of(full[0])
        group = self._traffic.group(pipe, number)
        return Data(
            None,
            {
                **_initial(self._table).fields,
                "pg_id": number,
                "pg_port_nr": place,
                "port_queues_count": group.counts[place],
                "ingress_qid_map": group.maps[place],
                "egress_qid_queues": group.queues_of(place),
            },
        )


class _Groups(_Settings):
    """`tf1.tm.port.group`: the division of a group's queues."""

    def default(self) -> Data | None:
        return self._shown(_DEFAULT_GROUP, ())

    def _read(self, full: Key) -> Data:
        pipe, number = full
        ports = tuple(port_of(pipe, number, place) for place in range(PORTS_PER_GROUP))
        return self._shown(self._traffic.group(pipe, number), ports)

    def _shown(self, group: PortGroup, ports: tuple[int, ...]) -> Data:
        fields: Values = {"pg_dev_ports": ports, "port_queue_count": group.counts}
        for place in range(PORTS_PER_GROUP):
            fields[f"ingress_qid_map_{place}"] = group.maps[place]
            fields[f"egress_qid_queues_{place}"] = group.queues_of(place)
        return Data("map", fields)

    def clear(self) -> None:
        for pipe, number in self._keys(self._pipe):
            self._traffic.divide(pipe, number, _DEFAULT_GROUP)

    def _change(self, full: Key, data: Data) -> None:
        pipe, number = full
        now = self._traffic.group(pipe, number)
        counts = data.fields.get("port_queue_count", now.counts)
        try:
            if len(counts) != PORTS_PER_GROUP:
                raise ValueError(
                    f"port_queue_count: {len(counts)} items; a group has {PORTS_PER_GROUP} ports"
                )
            match data.action:
                case "seq":
                    group = PortGroup.sequential(counts)
                case "even":
                    group = PortGroup.even(counts)
                case "crop":
                    group = now.cropped(counts)
                case "map":
                    maps = [
                        tuple(data.fields.get(f"ingress_qid_map_{place}", now.maps[place]))
                        for place in range(PORTS_PER_GROUP)
                    ]
                    group = replace(now, counts=tuple(counts), maps=tuple(maps))
                case _:
                    raise ValueError("name an action: map, seq, even or crop")
        except ValueError as error:
            raise RefusedError(Code.INVALID_ARGUMENT, f"{self._table.name}: {error}") from None
        self._traffic.divide(pipe, number, group)


class _QueueMap(_Settings):
    """`tf1.tm.queue.map`: the port that has a queue."""

    def _read(self, full: Key) -> Data:
        fields = {**_initial(self._table).fields, "ingress_qid_max": LOGICAL_QUEUES}
        owner = self._traffic.owner(full)
        if owner is not None:
            port, queue_nr = owner
            pipe, number, place = group_of(port)
            of_port = self._traffic.group(pipe, number).maps[place]
            qids = tuple(qid for qid, mapped in enumerate(of_port) if mapped == queue_nr)
            fields |= {
                "dev_port": port,
                "queue_nr": queue_nr,
                "ingress_qid_count": len(qids),
                "ingress_qid_list": qids,
            }
        return Data(None, fields)


class _QueueCounters(_Settings):
    """`tf1.tm.counter.queue`: drops and depth of a queue. Only 0 can be written."""

    def _read(self, full: Key) -> Data:
        return Data(None, self._traffic.counters(full))

    def _change(self, full: Key, data: Data) -> None:
        written = {name: value for name, value in data.fields.items() if name != "usage_cells"}
        for name, value in written.items():
            if value:
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    f"{self._table.name}: {name}: {value}: a counter can only be set to 0",
                )
        self._traffic.clear_counters(full, written)

    def clear(self) -> None:
        for full in self._keys(self._pipe):
            self._traffic.clear_counters(full, ("drop_count_packets", "watermark_cells"))


class _Ports(_Settings):
    """`$PORT`: the ports of the switch. All that it has are there at first, and enabled."""

    def insert(self, key: Key, data: Data) -> None:
        for name in ("$SPEED", "$FEC"):
            if name not in data.fields:
                raise RefusedError(
                    Code.INVALID_ARGUMENT, f"{PORT}: a port to be added needs {name}"
                )
        (port,) = self._full(key)
        self._traffic.add(port)
        self._traffic.forget(self._table, (port,))
        self._change((port,), Data(None, {"$PORT_ENABLE": False, **data.fields}))

    def modify(self, key: Key, data: Data) -> None:
        self._known(key)
        super().modify(key, data)

    def delete(self, key: Key) -> None:
        self._traffic.remove(*self._known(key))

    def clear(self) -> None:
        for port in self._traffic.tofino_ports():
            if self._traffic.has(port):
                self._traffic.remove(port)

    def get(self, key: Key) -> Data:
        return self._read(self._known(key))

    def all(self) -> Iterator[tuple[Key, Data]]:
        for port in self._traffic.tofino_ports():
            if self._traffic.has(port):
                yield (port,), self._read((port,))

    def usage(self) -> int:
        return sum(1 for _ in self.all())

    def _read(self, full: Key) -> Data:
        data = self._traffic.data(self._table, full)
        return Data(None, {**data.fields, **self._traffic.port_status(full[0])})

    def _known(self, key: Key) -> Key:
        full = self._full(key)
        if not self._traffic.has(full[0]):
            raise RefusedError(Code.NOT_FOUND, f"{PORT}: there is no port {full[0]}")
        return full


def _initial(table: BfrtTable) -> Data:
    action = table.actions[0] if table.actions else None
    fields = {
        field.name: field.initial for field in (*table.data, *(action.fields if action else ()))
    }
    if table.name == PORT:
        fields |= {"$SPEED": "BF_SPEED_100G", "$PORT_ENABLE": True}
    return Data(None if action is None else action.name, fields)


def _merged(table: BfrtTable, before: Data, change: Data) -> Data:
    """Return `before` with the fields of `change`; an action that changes begins with its initial
    values.
    """
    action = change.action or before.action
    kept = {
        field.name: before.fields.get(field.name, field.initial) for field in table.fields(action)
    }
    writable = {field.name for field in table.fields(action) if not field.read_only}
    return Data(
        action, kept | {name: value for name, value in change.fields.items() if name in writable}
    )


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
