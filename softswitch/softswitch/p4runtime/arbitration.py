"""Client arbitration as a pure state machine.

Claims and closed streams come in, notices and terminations go out.

Specification: "Client Arbitration and Controller Replication". The primary of a role is the live
stream that holds the highest election id that the device has ever seen for that role. A stream that
leaves the id unset, or that holds a lower one, is a backup. This module knows nothing of gRPC,
threads or protobuf messages; a stream is any hashable token.

Streams are bounded, but backups cannot keep a primary out: one that claims the highest id gets the
place of a backup, and peers get equal shares of the places of backups (`softswitch.rpc.peers`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass, field

from softswitch.rpc.peers import LOCAL, Peer, crowding, gives_way
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
    peer: Peer = LOCAL


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

    def is_won_by(self, claim: Claim) -> bool:
        """Return whether `claim` makes a primary."""
        if claim.election_id is None:
            return False
        return self.highest is None or claim.election_id >= self.highest


class Arbitration:
    """The arbitration of one device, which decides who may write.

    Args:
        device_id: the only device id that a claim may name.
        max_streams_per_role: a further stream of the same role is refused with RESOURCE_EXHAUSTED,
            unless it becomes the primary or its peer has less than its share. Then another ends.
        max_roles: the roles remembered for their highest election id. The oldest without a stream
            is forgotten for a further one, which is refused if there is none.
        check_config: returns the fault in the config of a claim, None if there is none.
        listed: the roles beside the default one that the operator knows. Others cannot take their
            places.
        max_unlisted: the streams of all other roles together.
    """

    def __init__(
        self,
        device_id: int,
        max_streams_per_role: int = 16,
        max_roles: int = 256,
        check_config: Callable[[Claim], Status | None] = lambda _claim: None,
        listed: Collection[str] = (),
        max_unlisted: int = 64,
    ) -> None:
        self._device_id = device_id
        self._check_config = check_config
        self._max_streams = max_streams_per_role
        self._max_roles = max_roles
        self._listed = frozenset({"", *listed})
        self._max_unlisted = max_unlisted
        self._roles: dict[str, _Role] = {"": _Role()}
        self._role_of: dict[Hashable, str] = {}
        """The roles of the live streams, in the order in which these came."""
        self._peers: dict[Hashable, Peer] = {}
        self.primaries: list[tuple[str, Hashable]] = []
        """The role and stream of every primary."""

    def claim(self, stream: Hashable, claim: Claim) -> list[Notice | Termination]:
        """Return the consequences of a claim, in the order of sending.

        The new primary is notified last.
        """
        outcomes: list[Notice | Termination] = []
        refusal = self._refusal(stream, claim)
        if refusal is None and stream not in self._role_of:
            outcomes, refusal = self._make_room(claim)
        if refusal is not None:
            return [Termination(stream, refusal), *self.closed(stream)]
        role = self._roles.setdefault(claim.role, _Role())
        was_primary = role.primary() == stream and stream in role.live
        role.live[stream] = claim.election_id
        self._role_of[stream] = claim.role
        self._peers[stream] = claim.peer
        informed = list(role.live) if was_primary else [stream]
        if role.is_won_by(claim):
            role.highest = claim.election_id
            role.config = claim.role_config
            informed = [other for other in role.live if other != stream]
            informed.append(stream)
        self._note_primaries()
        return [*outcomes, *self._notices(claim.role, informed)]

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
        del self._peers[stream]
        self._note_primaries()
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
        return self._check_config(claim)

    def _make_room(self, claim: Claim) -> tuple[list[Notice | Termination], Status | None]:
        """Return the consequences of giving a place to a new stream, or why it gets none."""
        if not self._has_room_for_role(claim.role):
            reason = f"the device knows {self._max_roles} roles with streams, which is the limit"
            return [], Status(Code.RESOURCE_EXHAUSTED, f"{reason}; close those of one")
        role = self._roles.get(claim.role, _Role())
        if len(role.live) >= self._max_streams:
            full = f"role {claim.role!r} has {len(role.live)} streams"
            primary = role.primary()
            backups = [stream for stream in role.live if stream != primary]
            return self._exchange(claim, full, backups, role.is_won_by(claim))
        unlisted = [stream for stream, name in self._role_of.items() if name not in self._listed]
        if claim.role in self._listed or len(unlisted) < self._max_unlisted:
            return [], None
        full = f"the roles that the operator does not list have {len(unlisted)} streams"
        return self._exchange(claim, full, unlisted, wins=False)

    def _exchange(
        self,
        claim: Claim,
        full: str,
        crowd: list[Hashable],
        wins: bool,
    ) -> tuple[list[Notice | Termination], Status | None]:
        """Give the place of one of `crowd` to a new stream, if it makes a primary or is due."""
        held = [(stream, self._peers[stream]) for stream in crowd]
        leaving = crowding(held) if wins else gives_way(claim.peer, held)
        if leaving is None:
            reason = f"{full}, which is the limit; close one of those of {claim.peer}"
            return [], Status(Code.RESOURCE_EXHAUSTED, reason)
        reason = f"{full}, which is the limit; this one gives way to one of {claim.peer}"
        ended = Termination(leaving, Status(Code.RESOURCE_EXHAUSTED, reason))
        return [ended, *self.closed(leaving)], None

    def _has_room_for_role(self, name: str) -> bool:
        """Return whether one more role can be remembered; another may be forgotten for it."""
        if name in self._roles or name in self._listed:
            return True
        unlisted = [other for other in self._roles if other not in self._listed]
        if len(unlisted) < self._max_roles:
            return True
        for other in unlisted:
            if not self._roles[other].live:
                del self._roles[other]
                return True
        return False

    def _note_primaries(self) -> None:
        self.primaries = []
        for name, role in self._roles.items():
            stream = role.primary()
            if stream is not None:
                self.primaries.append((name, stream))

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
