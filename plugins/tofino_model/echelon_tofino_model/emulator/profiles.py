"""Action profiles, whose members entries share, and selectors, which choose by a hash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from echelon_tofino_model.emulator.phv import Read, Vector
from echelon_tofino_model.emulator.tables import (
    ActionSpec,
    Pack,
    TableEntry,
    checked_args,
    packed_data,
    stand_alone,
)
from softswitch.errors import BadEntry, DuplicateEntry, NoSuchEntry, TableFull


@dataclass(slots=True)
class MemberGroup:
    """The members of a group; those whose flag is false are passed over."""

    members: tuple[tuple[int, bool], ...]
    active: tuple[TableEntry, ...]


class Profile:
    """The members of an action profile, and the groups of its selector.

    Methods raise a :class:`~softswitch.errors.TableError` with the profile and the reason.
    """

    def __init__(
        self,
        name: str,
        actions: Sequence[ActionSpec],
        size: int,
    ) -> None:
        self.name = name
        self.actions = {action.name: action for action in actions}
        self.size = size
        self.selector: str | None = None
        """The name of the selector, which has the groups."""
        self.members: dict[int, TableEntry] = {}
        self.groups: dict[int, MemberGroup] = {}
        self.packers: dict[str, Mapping[str, Pack]] = {}

    def set_member(
        self,
        number: int,
        action: str,
        args: Mapping[str, int],
        *,
        is_new: bool = True,
    ) -> None:
        """Add or change a member."""
        if is_new and number in self.members:
            raise DuplicateEntry(
                f"action profile '{self.name}': there is already a member {number}"
            )
        if not is_new:
            self.member(number)
        if is_new and len(self.members) >= self.size:
            raise TableFull(f"action profile '{self.name}': all {self.size} members are in use")
        if action not in self.actions:
            raise BadEntry(f"action profile '{self.name}': there is no action '{action}'")
        values = checked_args(f"action profile '{self.name}'", self.actions[action], args)
        # A member stays the object that groups have among their active ones.
        member = self.members.get(number) or stand_alone(action, values)
        member.action = action
        member.args = values
        member.data = packed_data(member, self.packers)
        self.members[number] = member

    def member(self, number: int) -> TableEntry:
        """Return a member."""
        if number not in self.members:
            raise NoSuchEntry(f"action profile '{self.name}': there is no member {number}")
        return self.members[number]

    def delete_member(self, number: int) -> None:
        """Remove a member that no group has."""
        self.member(number)
        for group, content in self.groups.items():
            if any(member == number for member, _ in content.members):
                raise BadEntry(f"action profile '{self.name}': group {group} has member {number}")
        del self.members[number]

    def set_group(self, number: int, members: Sequence[tuple[int, bool]]) -> None:
        """Add or change a group of (member, whether it is active)."""
        active = tuple([self.member(member) for member, is_active in members if is_active])
        group = self.groups.get(number)
        if group is None:
            self.groups[number] = MemberGroup(tuple(members), active)
        else:
            group.members = tuple(members)
            group.active = active

    def group(self, number: int) -> MemberGroup:
        """Return a group."""
        if number not in self.groups:
            raise NoSuchEntry(
                f"action selector '{self.selector or self.name}': there is no group {number}"
            )
        return self.groups[number]

    def delete_group(self, number: int) -> None:
        """Remove a group."""
        self.group(number)
        del self.groups[number]

    def repack(self) -> None:
        """Pack the data of every member again, after a table was added to `packers`."""
        for member in self.members.values():
            member.data = packed_data(member, self.packers)

    def chosen(
        self,
        entry: TableEntry,
        read: Read | None,
        vector: Vector,
    ) -> TableEntry | None:
        """Return the member that an entry leads to; None if its group has no active member.

        The hash is reduced modulo the number of active members.
        """
        if entry.member is not None:
            return self.members.get(entry.member)
        group = None if entry.group is None else self.groups.get(entry.group)
        if group is None or not group.active:
            return None
        if read is None:
            return group.active[0]
        return group.active[read(vector) % len(group.active)]
