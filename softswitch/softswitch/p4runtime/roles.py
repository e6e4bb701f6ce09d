"""The rights of a role (specification: "Role Config").

The specification leaves the form of `role.config` to an agreement between server and clients. This
switch uses Stratum's message `stratum.P4RoleConfig`, which existing controllers already send:

- `exclusive_p4_ids`, `shared_p4_ids`: the P4Info ids of tables, action profiles, counters, meters,
  registers, value sets and digests that the role may write. A read of the role shows only these. An
  id that is exclusive to one role cannot be claimed by another role with a config. Multicast groups
  and clone sessions have no P4Info id and belong to every role.
- `receives_packet_ins`, `packet_in_filter`: whether packet-ins reach the role's primary, and only
  those with that value in that metadata field. Digests and idle timeouts reach it if the digest or
  table belongs to the role.
- `can_push_pipeline`: whether it may set the pipeline.

A role without a config may write all, as the specification says. But whoever reaches the port may
claim a role and send its config, too, so a config proves nothing. Two rules protect a controller
that has the default role, to which all of the switch belongs:

- While the default role has a primary, other roles only read, unless the operator has listed them.
- The pipeline is the default role's. Another role sets it if it is listed and its config has
  `can_push_pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from finsy.proto import p4r, stratum
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from softswitch.rpc.status import Code, RefusedError

__all__ = [
    "EVERY_ROLE",
    "FULL_ACCESS",
    "ListedRoles",
    "RoleScope",
    "check_claim",
    "p4info_id",
    "role_scope",
]

EVERY_ROLE = "*"
"""The name that an operator lists to let every role write."""

_CLAIM_BYTES = 64 << 10
"""The most bytes of a role's name and config, which the device keeps.

A config with all 65,536 ids of a program would have more; a program has some hundreds.
"""


@dataclass(frozen=True, slots=True)
class RoleScope:
    """The limits of one role."""

    ids: frozenset[int] | None = None
    """The P4Info ids that it may write and read; None means all."""
    exclusive: frozenset[int] = frozenset()
    """The `ids` that no other role with a config may have."""
    receives_packet_ins: bool = True
    packet_in_filter: tuple[int, int] | None = None
    """(metadata id, value) that a packet-in must have."""
    grants_pipeline: bool = False
    """Whether its config lets it set the pipeline."""

    def covers(self, number: int | None) -> bool:
        """Return whether the role covers an entity with P4Info id `number`.

        None is an entity without one.
        """
        return self.ids is None or number is None or number in self.ids

    def wants(self, packet: p4r.PacketIn) -> bool:
        """Return whether the role's primary receives `packet`."""
        if not self.receives_packet_ins or self.packet_in_filter is None:
            return self.receives_packet_ins
        number, value = self.packet_in_filter
        return any(
            part.metadata_id == number and int.from_bytes(part.value, "big") == value
            for part in packet.metadata
        )


FULL_ACCESS = RoleScope()


class ListedRoles:
    """The roles that the operator knows, and what others may not do.

    Args:
        names: the listed roles; `EVERY_ROLE` stands for all.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def may_act(self, role: str, has_owner: bool) -> bool:
        """Return whether `role` may do more than read.

        Args:
            role: its name, "" for the default role.
            has_owner: whether the default role has a primary.
        """
        return not role or not has_owner or self._lists(role)

    def check_change(self, role: str, has_owner: bool) -> None:
        """Raise RefusedError (PERMISSION_DENIED) unless `role` may do more than read."""
        if not self.may_act(role, has_owner):
            raise RefusedError(
                Code.PERMISSION_DENIED,
                f"role {role!r} may only read while the default role has a primary; the operator"
                f" has to list it (softswitch --role {role})",
            )

    def check_pipeline(self, role: str, scope: RoleScope) -> None:
        """Raise RefusedError (PERMISSION_DENIED) unless `role` may set the pipeline."""
        is_granted = self._lists(role) and scope.grants_pipeline
        if role and not is_granted:
            raise RefusedError(
                Code.PERMISSION_DENIED,
                f"role {role!r} may not set the pipeline, which belongs to the default role; the"
                f" operator has to list it (softswitch --role {role}) and its config must have"
                " can_push_pipeline",
            )

    def _lists(self, role: str) -> bool:
        return role in self._names or EVERY_ROLE in self._names


def check_claim(role: str, config: Any) -> None:
    """Raise RefusedError (RESOURCE_EXHAUSTED) if a claim holds more than the device keeps."""
    size = len(role.encode())
    if config is not None:
        size += config.ByteSize()
    if size > _CLAIM_BYTES:
        raise RefusedError(
            Code.RESOURCE_EXHAUSTED,
            f"the role's name and config have {size} bytes; {_CLAIM_BYTES} are the limit",
        )


def role_scope(
    role: str,
    config: Any,
    scopes: Mapping[str, RoleScope],
) -> RoleScope:
    """Return the limits that `config` describes.

    Args:
        role: the name of the role, for messages.
        config: a google.protobuf.Any, None if the controller sent none.
        scopes: the limits of the roles that controllers hold now.

    Raises:
        RefusedError: INVALID_ARGUMENT if it is not a P4RoleConfig, contradicts itself or claims
        another role's ids.
    """
    if config is None:
        return FULL_ACCESS
    message = stratum.P4RoleConfig()
    try:
        is_unpacked = config.Unpack(message)
    except DecodeError:
        is_unpacked = False
    if not is_unpacked:
        kind = config.TypeName() or "nothing"
        raise _refused(
            role,
            f"it must hold a {message.DESCRIPTOR.full_name},"
            f" but holds {kind} or a malformed message",
        )
    exclusive = frozenset(message.exclusive_p4_ids)
    shared = frozenset(message.shared_p4_ids)
    if 0 in exclusive | shared:
        raise _refused(role, "0 is not a P4Info id")
    both = exclusive & shared
    if both:
        raise _refused(role, f"id {min(both)} is both exclusive and shared")
    for name, other in scopes.items():
        if name == role or other.ids is None:
            continue
        taken = (exclusive & other.ids) | (shared & other.exclusive)
        if taken:
            raise _refused(
                role,
                f"id {min(taken)} already belongs to role {name!r}"
                " and cannot be exclusive to another",
            )
    packet_filter = None
    if message.HasField("packet_in_filter"):
        wanted = message.packet_in_filter
        packet_filter = (wanted.metadata_id, int.from_bytes(wanted.value, "big"))
    return RoleScope(
        exclusive | shared,
        exclusive,
        message.receives_packet_ins,
        packet_filter,
        message.can_push_pipeline,
    )


def p4info_id(entity: p4r.Entity) -> int | None:
    """Return the P4Info id that `entity` belongs to.

    The packet replication engine has none.
    """
    kind = entity.WhichOneof("entity")
    find = _IDS.get(kind) if kind is not None else None
    return None if find is None else find(entity)


_IDS: dict[str, Callable[[p4r.Entity], int]] = {
    "table_entry": attrgetter("table_entry.table_id"),
    "direct_counter_entry": attrgetter("direct_counter_entry.table_entry.table_id"),
    "direct_meter_entry": attrgetter("direct_meter_entry.table_entry.table_id"),
    "action_profile_member": attrgetter("action_profile_member.action_profile_id"),
    "action_profile_group": attrgetter("action_profile_group.action_profile_id"),
    "counter_entry": attrgetter("counter_entry.counter_id"),
    "meter_entry": attrgetter("meter_entry.meter_id"),
    "register_entry": attrgetter("register_entry.register_id"),
    "value_set_entry": attrgetter("value_set_entry.value_set_id"),
    "digest_entry": attrgetter("digest_entry.digest_id"),
}


def _refused(role: str, reason: str) -> RefusedError:
    return RefusedError(Code.INVALID_ARGUMENT, f"the config of role {role!r}: {reason}")
