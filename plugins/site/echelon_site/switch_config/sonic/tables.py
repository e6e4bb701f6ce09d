"""What the tables of `config_db.json` hold for queues.

Traffic class, queue and PFC priority of a packet have one number, as in SONiC's own templates
(files/build_templates/qos_config.j2 of sonic-buildimage).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from echelon.planning.plan import LEVELS
from echelon_site.switch_config.queues import (
    EcnMarking,
    PortQueues,
    QueueServices,
    shares,
    strict_queues,
)

NAME = "ECHELON"
"""The name of each map and profile. Others stay beside it."""
MAX_WEIGHT = 100
"""The largest weight of a scheduler (sonic-scheduler.yang)."""
_BEST_EFFORT_GROUP = 0
"""The priority group of classes without PFC, whose packets are dropped when buffers are full."""
_COLOURS = ("green", "yellow", "red")

Fields = dict[str, str]
Profiles = dict[str, dict[str, Fields]]
"""Tables, in which profiles have fields."""


def _numbered(values: Iterable[int]) -> Fields:
    return {str(number): str(value) for number, value in enumerate(values)}


def profiles(queues: PortQueues) -> Profiles:
    """Return the maps and profiles that ports and queues name. Raises `QueueError`."""
    classes = range(LEVELS)
    tables: Profiles = {
        "DSCP_TO_TC_MAP": {NAME: _numbered(queues.queue_by_code_point)},
        "TC_TO_QUEUE_MAP": {NAME: _numbered(classes)},
        "SCHEDULER": dict(schedulers(queues.services).values()),
    }
    if queues.lossless is not None:
        groups = [number if number in queues.lossless else _BEST_EFFORT_GROUP for number in classes]
        protected = {str(number): str(number) for number in sorted(queues.lossless)}
        tables["TC_TO_PRIORITY_GROUP_MAP"] = {NAME: _numbered(groups)}
        tables["MAP_PFC_PRIORITY_TO_QUEUE"] = {NAME: _numbered(classes)}
        if protected:
            tables["PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"] = {NAME: protected}
    if queues.marking is not None:
        tables["WRED_PROFILE"] = {NAME: wred_profile(queues.marking)}
    return tables


def schedulers(services: QueueServices) -> Mapping[int, tuple[str, Fields]]:
    """Return the name and the fields of the scheduler of each queue. Raises `QueueError`.

    SONiC serves strict queues by their number: its orchagent ignores the field `priority`
    (orchagent/qosorch.cpp of sonic-swss).
    """
    strict = strict_queues(services)
    weighted = {}
    sharing = [queue for queue in range(LEVELS) if queue not in strict]
    if sharing:
        weights = shares(tuple(services[queue] for queue in sharing), MAX_WEIGHT)
        weighted = dict(zip(sharing, weights, strict=True))
    by_queue = {}
    for queue in range(LEVELS):
        if queue in strict:
            by_queue[queue] = f"{NAME}_STRICT", {"type": "STRICT"}
        else:
            weight = str(weighted[queue])
            by_queue[queue] = f"{NAME}_DWRR_{weight}", {"type": "DWRR", "weight": weight}
    return by_queue


def wred_profile(marking: EcnMarking) -> Fields:
    """Return the profile that marks packets of all colours."""
    fields = {"ecn": "ecn_all"}
    for colour in _COLOURS:
        fields[f"wred_{colour}_enable"] = "true"
        fields[f"{colour}_min_threshold"] = str(marking.min_bytes)
        fields[f"{colour}_max_threshold"] = str(marking.max_bytes)
        fields[f"{colour}_drop_probability"] = str(marking.percent)
    return fields


def port_fields(lossless: frozenset[int] | None, before: Fields) -> Fields:
    """Return the entry of a port in PORT_QOS_MAP, which otherwise is as `before`."""
    fields = {**before, "dscp_to_tc_map": NAME, "tc_to_queue_map": NAME}
    if lossless is None:
        return fields
    protected = ",".join(map(str, sorted(lossless)))
    fields |= {
        "tc_to_pg_map": NAME,
        "pfc_to_queue_map": NAME,
        "pfc_enable": protected,
        "pfcwd_sw_enable": protected,
    }
    # Only the templates of some chips have this map, so it is written where it was.
    if "pfc_to_pg_map" in before:
        if protected:
            fields["pfc_to_pg_map"] = NAME
        else:
            del fields["pfc_to_pg_map"]
    return fields
