"""The queues of a Tofino, by the tables of its traffic manager.

A port shares the 32 queues of its port group with three others. Programs name logical queues; the
tables of queues name physical ones, by group and number in the group. So the map of each port is
read first. A queue's level has to be set twice: `max_priority` orders queues for the bandwidth that
is left over, `min_priority` for guaranteed rates. A queue of which only one is set keeps the
other's default, the lowest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from finsy import GRPCStatusCode

from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.southbound.channel import CallError
from echelon.switches.southbound.errors import SouthboundError
from echelon_tofino.target.channel import ALL_PIPES, BfrtChannel
from echelon_tofino.target.fixed import FixedTable, fixed_tables

if TYPE_CHECKING:
    from finsy import GNMIClient

QUEUES = 8
"""The logical queues of a port that plans use."""

_PORT = "tf1.tm.port.cfg"
_SCHEDULING = "tf1.tm.queue.sched_cfg"
_SHAPING = "tf1.tm.queue.sched_shaping"
_LEVELS = {"LOW": 0, "HIGH": 7} | {str(level): level for level in range(8)}
PORTS_PER_PIPE_BITS = 7
_RATE_TOLERANCE = 0.02
"""Share by which a rate may differ when read: shapers have a mantissa of a few bits."""


_Queue = tuple[int, int]
"""A logical queue as (port, number)."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a logical queue of a port."""

    pipe: int
    group: int
    queue: int

    @property
    def key(self) -> dict[str, int]:
        return {"pg_id": self.group, "pg_queue": self.queue}


class BfrtQueues:
    """A `QueueDriver` for the given ports of a switch, over the session's BF Runtime channel."""

    def __init__(self, switch: str, ports: Sequence[int]) -> None:
        self._switch = switch
        self._ports = ports
        self._calls: BfrtChannel | None = None
        self._tables: Mapping[str, FixedTable] = {}
        self._places: dict[_Queue, _Place] = {}
        self._asked: dict[_Queue, QueueSetting] = {}
        """The settings that were written. Rates come back rounded."""

    async def open(self, gnmi: GNMIClient | None) -> None:
        raise SouthboundError(
            f"switch {self._switch}: its queues are reached by BF Runtime; it needs a session of it"
        )

    async def open_over(self, calls: BfrtChannel) -> None:
        """Prepare for a new session: read where the queues of every port are."""
        self._calls = calls
        try:
            config = await calls.config()
            description = config.non_p4_config.bfruntime_info
            self._tables = fixed_tables(description, (_PORT, _SCHEDULING, _SHAPING))
        except CallError as error:
            raise self._refused("reading its fixed tables", error) from None
        except ValueError as error:
            raise SouthboundError(f"switch {self._switch}: {error}") from None
        table = self._tables[_PORT]
        keys = [{"dev_port": port} for port in self._ports]
        answers = await self._read(table, keys, ALL_PIPES, "queue maps")
        self._places = {}
        for port, values in zip(self._ports, answers, strict=True):
            queues = values["egress_qid_queues"][:QUEUES]
            if len(set(queues)) < QUEUES:
                raise SouthboundError(
                    f"switch {self._switch}, port {port}: its first {QUEUES} logical queues share"
                    f" {len(set(queues))} physical ones; give each its own in tf1.tm.port.group,"
                    f" group {values['pg_id']}"
                )
            pipe = port >> PORTS_PER_PIPE_BITS
            for qid, queue in enumerate(queues):
                self._places[port, qid] = _Place(pipe, values["pg_id"], queue)

    async def read(self) -> Mapping[_Queue, QueueSetting]:
        settings: dict[_Queue, QueueSetting] = {}
        for pipe, queues in self._by_pipe(self._places):
            keys = [self._places[queue].key for queue in queues]
            scheduling = await self._read(self._tables[_SCHEDULING], keys, pipe, "queues")
            shaping = await self._read(self._tables[_SHAPING], keys, pipe, "queue rates")
            for queue, how, rates in zip(queues, scheduling, shaping, strict=True):
                setting = self._asked.get(queue)
                if setting is None or not _is_as_asked(setting, how, rates):
                    setting = _setting(*queue, how, rates)
                if setting is not None:
                    settings[queue] = setting
        return settings

    async def write(self, settings: Sequence[QueueSetting]) -> None:
        wanted = {(setting.port, setting.queue): setting for setting in settings}
        for port, queue in wanted:
            if (port, queue) not in self._places:
                raise SouthboundError(
                    f"switch {self._switch}, port {port}: has no queue {queue} that plans can use"
                )
        shaping = self._tables[_SHAPING]
        scheduling = self._tables[_SCHEDULING]
        for pipe, places in self._by_pipe(wanted):
            updates = []
            for place in places:
                setting = wanted[place]
                key = self._places[place].key
                # Rates first: they must be right when they are enabled.
                updates.append(shaping.update(key, _rates(setting)))
                updates.append(scheduling.update(key, _scheduling(setting)))
                self._asked.pop(place, None)
            assert self._calls is not None
            try:
                await self._calls.write(updates, pipe)
            except CallError as error:
                raise self._refused("queue configuration", error) from None
            self._asked.update({place: wanted[place] for place in places})

    def _by_pipe(self, places: Iterable[_Queue]) -> list[tuple[int, list[_Queue]]]:
        """Return places by their pipe: a request to tables of queues names one."""
        pipes: defaultdict[int, list[_Queue]] = defaultdict(list)
        for place in sorted(places):
            pipe = self._places[place].pipe
            pipes[pipe].append(place)
        return sorted(pipes.items())

    async def _read(
        self,
        table: FixedTable,
        keys: Sequence[Mapping[str, int]],
        pipe: int,
        purpose: str,
    ) -> list[dict[str, Any]]:
        assert self._calls is not None
        entities = [table.query(key) for key in keys]
        values: list[dict[str, Any]] = []
        try:
            async for answer in self._calls.read(entities, pipe):
                values += [table.values(entity.table_entry) for entity in answer.entities]
        except CallError as error:
            raise self._refused(f"reading {purpose}", error) from None
        return values

    def _refused(self, purpose: str, error: CallError) -> SouthboundError:
        parts = [status for status in error.updates if status.code]
        first = parts[0] if parts else error.status
        more = f" (and {len(parts) - 1} more)" if len(parts) > 1 else ""
        code = GRPCStatusCode(first.code).name
        return SouthboundError(
            f"switch {self._switch}: {purpose} refused: {first.message} [{code}]{more}"
        )


def _kilobits(rate_bps: int) -> int:
    return max(1, rate_bps // 1000)


def _rates(setting: QueueSetting) -> dict[str, Any]:
    values: dict[str, Any] = {"unit": "BPS"}
    if setting.min_rate_bps:
        values["min_rate"] = _kilobits(setting.min_rate_bps)
    if setting.max_rate_bps is not None:
        most = _kilobits(setting.max_rate_bps)
        values["max_rate"] = max(most, values.get("min_rate", 0))
    return values


def _scheduling(setting: QueueSetting) -> dict[str, Any]:
    return {
        "min_priority": str(setting.level),
        "max_priority": str(setting.level),
        "dwrr_weight": setting.weight,
        "min_rate_enable": setting.min_rate_bps > 0,
        "max_rate_enable": setting.max_rate_bps is not None,
        "scheduling_enable": True,
    }


def _is_as_asked(
    asked: QueueSetting,
    how: Mapping[str, Any],
    rates: Mapping[str, Any],
) -> bool:
    """Return whether a queue still is what was made of `asked`."""
    # A level has several spellings.
    spelled = {name: _spelled(name, value) for name, value in how.items()}
    if spelled != _scheduling(asked):
        return False
    asked_rates = _rates(asked)
    return all(_is_about(rates[name], value) for name, value in asked_rates.items())


def _spelled(name: str, value: Any) -> Any:
    """Return a field of a queue's scheduling as `_scheduling` writes it."""
    if name.endswith("_priority"):
        return str(_LEVELS[value])
    return value


def _is_about(read: Any, written: str | int) -> bool:
    if isinstance(written, str):
        return bool(written == read)
    difference: int = abs(read - written)
    return difference <= written * _RATE_TOLERANCE


def _setting(
    port: int,
    queue: int,
    how: Mapping[str, Any],
    rates: Mapping[str, Any],
) -> QueueSetting | None:
    """Return the setting of a queue; None if it is not configured as this driver would do it."""
    level = _LEVELS[how["max_priority"]]
    if _LEVELS[how["min_priority"]] != level:
        return None
    if not how["scheduling_enable"] or rates["unit"] != "BPS":
        return None
    # The defaults of rates that are not enabled mean nothing.
    min_rate_bps = rates["min_rate"] * 1000 if how["min_rate_enable"] else 0
    max_rate_bps = rates["max_rate"] * 1000 if how["max_rate_enable"] else None
    return QueueSetting(port, queue, level, how["dwrr_weight"], min_rate_bps, max_rate_bps)
