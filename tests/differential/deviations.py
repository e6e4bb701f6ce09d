"""The differences between softswitch and BMv2 that are intended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from finsy.proto import p4r

from softswitch.rpc.status import Code


@dataclass(frozen=True)
class Deviation:
    """A difference that is meant: of status codes where `applies` says so, or of what generators
    never ask for.
    """

    what: str
    why: str
    applies: Callable[[p4r.Update, int, int], bool] | None = None


def _target_error(_update: p4r.Update, _ours: int, theirs: int) -> bool:
    return theirs == Code.UNKNOWN


def _absent_member(update: p4r.Update, ours: int, theirs: int) -> bool:
    action = update.entity.table_entry.action.WhichOneof("type")
    refers = action in ("action_profile_member_id", "action_profile_group_id")
    return (
        refers
        and ours in (Code.NOT_FOUND, Code.RESOURCE_EXHAUSTED)
        and theirs == Code.INVALID_ARGUMENT
    )


DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        "status UNKNOWN of BMv2",
        "BMv2 reports every refusal of its own tables and arrays as UNKNOWN; softswitch gives the"
        " reason (RESOURCE_EXHAUSTED for a full table, OUT_OF_RANGE for an index)",
        _target_error,
    ),
    Deviation(
        "an entry that refers to a member or group that is not there",
        "the specification says NOT_FOUND, so does softswitch (RESOURCE_EXHAUSTED if the table is"
        " full, too); BMv2 says INVALID_ARGUMENT",
        _absent_member,
    ),
    Deviation(
        "order of the replicas of one packet at one port",
        "BMv2 has that of a hash table, softswitch that in which they were written; P4Runtime has"
        " none",
    ),
    Deviation(
        "an empty byte string, a range over all values",
        "the specification says INVALID_ARGUMENT, so does softswitch; BMv2 takes them for 0 and for"
        " a field left out",
    ),
    Deviation(
        "priority and is_const of constant entries, when read",
        "softswitch numbers them from the last up and says is_const; BMv2 gives 2**31 less the"
        " JSON's priority",
    ),
    Deviation(
        "bytes of a counter of packets, packets of a counter of bytes",
        "softswitch keeps both and lets both be written; BMv2 counts both and lets one be written",
    ),
    Deviation(
        "register<int<N>>",
        "BMv2 reads a negative cell back as a positive number of N bits (fields.h wraps only what"
        " exceeds N bits); softswitch reads what was written",
    ),
)


def allowed(update: p4r.Update, ours: int, theirs: int) -> bool:
    """Return whether the two status codes of an update may differ as they do.

    Both must refuse or both accept.
    """
    if (ours == Code.OK) != (theirs == Code.OK):
        return False
    return any(d.applies is not None and d.applies(update, ours, theirs) for d in DEVIATIONS)
