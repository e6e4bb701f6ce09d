"""Client arbitration as a pure state machine.

Claims and closed streams come in, notices and terminations go out.

Specification: "Client Arbitration and Controller Replication". The primary of a role is the live
stream that holds the highest election id that the device has ever seen for that role. A stream that
leaves the id unset, or that holds a lower one, is a backup. This module knows nothing of gRPC,
threads or protobuf messages; a stream is any hashable token.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from softswitch.rpc.status import Code, Status

__all__ = ["Arbitration", "Claim", "Notice", "Termination"]


@dataclass(frozen=True, slots=True)
class Claim:
    """The content of a controller's MasterArbitrationUpdate.

    `role` is "" for the default role. `role_config` is kept and returned unchanged. `election_id`
    is None if it is unset.
    """

    device_id: int
    role: str
    election_id: int | None
    role_config: object | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """A MasterArbitrationUpdate to send on `stream`.

    `code` is OK for the primary, ALREADY_EXISTS for a backup while there is a primary, NOT_FOUND
    while there is none. `election_id` is the highest ever seen for the role, None before the first.
    """

    stream: Hashable
    role: str
    role_config: object | None
    election_id: int | None
    code: Code


@dataclass(frozen=True, slots=True)
class Termination:
    """A notice that `stream` must be closed with `status`."""

    stream: Hashable
    status: Status


@dataclass(slots=True)
class _Role:
    highest: int | None = None
    config: object | None = None
    live: dict[Hashable, int | None] = field(default_factory=dict)

    def primary(self) -> Hashable | None:
        if self.highest is None:
            return None
        for stream, election_id in self.live.items():
            if election_id == self.highest:
                return stream
        return None


class Arbitration:
    """The arbitration of one device, which decides who may write.

    Args:
        device_id: the only device id that a claim may name.
        max_streams_per_role: any further stream of the same role is refused with
            RESOURCE_EXHAUSTED.
        max_roles: any further role is refused, too. Roles are remembered for ever, for their
            highest election id.
        check_config: returns the fault in the config of a claim, None if there is none.
    """

    def __init__(
        self,
        device_id: int,
        max_streams_per_role: int = 16,
        max_roles: int = 256,
        check_config: Callable[[Claim], Status | None] = lambda _claim: None,
    ) -> None:
        self._device_id = device_id
        self._check_config = check_config
        self._max_streams = max_streams_per_role
        self._max_roles = max_roles
        self._roles: dict[str, _Role] = {"": _Role()}
        self._role_of: dict[Hashable, str] = {}

    def claim(self, stream: Hashable, claim: Claim) -> list[Notice | Termination]:
        """Return the consequences of a claim, in the order of sending.

        The new primary is notified last.
        """
        refusal = self._refusal(stream, claim)
        if refusal is not None:
            return [Termination(stream, refusal), *self.closed(stream)]
        role = self._roles.setdefault(claim.role, _Role())
        was_primary = role.primary() == stream and stream in role.live
        role.live[stream] = claim.election_id
        self._role_of[stream] = claim.role
        election_id = claim.election_id
        if election_id is not None and (role.highest is None or election_id >= role.highest):
            role.highest = election_id
            role.config = claim.role_config
            backups = [other for other in role.live if other != stream]
            return list(self._notices(claim.role, [*backups, stream]))
        streams = list(role.live) if was_primary else [stream]
        return list(self._notices(claim.role, streams))

    def closed(self, stream: Hashable) -> list[Notice | Termination]:
        """Return the consequences of a broken stream.

        The other streams are notified if it was the primary's.
        """
        name = self._role_of.pop(stream, None)
        if name is None:
            return []
        role = self._roles[name]
        was_primary = role.primary() == stream
        del role.live[stream]
        if was_primary:
            return list(self._notices(name, list(role.live)))
        return []

    def knows(self, role: str) -> bool:
        """Return whether any stream ever took `role`; the default role is always known."""
        return role in self._roles

    def is_primary(self, role: str, election_id: int | None) -> bool:
        """Return whether a unary request with these values comes from the role's primary."""
        state = self._roles.get(role)
        if state is None or election_id is None or election_id != state.highest:
            return False
        return state.primary() is not None

    def primaries(self) -> list[Hashable]:
        """Return the streams of the primaries of all roles."""
        return [stream for _, stream in self.roles_of_primaries()]

    def roles_of_primaries(self) -> list[tuple[str, Hashable]]:
        """Return the (role, stream) of every primary."""
        primaries: list[tuple[str, Hashable]] = []
        for name, role in self._roles.items():
            stream = role.primary()
            if stream is not None:
                primaries.append((name, stream))
        return primaries

    def config(self, role: str) -> object | None:
        """Return the config of a known role, as sent by its latest primary."""
        return self._roles[role].config

    def live_roles(self) -> list[str]:
        """Return the roles that a live stream has."""
        return [name for name, role in self._roles.items() if role.live]

    def _refusal(self, stream: Hashable, claim: Claim) -> Status | None:
        current = self._role_of.get(stream)
        if claim.device_id != self._device_id:
            if current is not None:
                return Status(
                    Code.FAILED_PRECONDITION,
                    f"this stream belongs to device {self._device_id};"
                    f" open another one for device {claim.device_id}",
                )
            return Status(
                Code.NOT_FOUND,
                f"this server has no device {claim.device_id}, only device {self._device_id}",
            )
        if current is not None and current != claim.role:
            return Status(
                Code.FAILED_PRECONDITION,
                f"this stream has role {current!r}; close it and open"
                f" another one for role {claim.role!r}",
            )
        role = self._roles.get(claim.role, _Role())
        rivals = [other for other, number in role.live.items() if number == claim.election_id]
        if claim.election_id is not None and set(rivals) - {stream}:
            return Status(
                Code.INVALID_ARGUMENT,
                f"election id {claim.election_id} is already used by another"
                f" controller of role {claim.role!r}",
            )
        wrong = self._check_config(claim)
        if wrong is not None:
            return wrong
        if claim.role not in self._roles and len(self._roles) >= self._max_roles:
            return Status(
                Code.RESOURCE_EXHAUSTED,
                f"the device has seen {len(self._roles)} roles, which is the limit",
            )
        if current is None and len(role.live) >= self._max_streams:
            return Status(
                Code.RESOURCE_EXHAUSTED,
                f"role {claim.role!r} has {len(role.live)} streams, which is the limit; close one",
            )
        return None

    def _notices(self, name: str, streams: list[Hashable]) -> Iterator[Notice]:
        role = self._roles[name]
        primary = role.primary()
        for stream in streams:
            if primary is None:
                code = Code.NOT_FOUND
            elif stream == primary:
                code = Code.OK
            else:
                code = Code.ALREADY_EXISTS
            yield Notice(stream, name, role.config, role.highest, code)
