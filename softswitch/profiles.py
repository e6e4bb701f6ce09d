"""Action profiles: actions that table entries refer to, singly or in groups among which a hash selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import ir
from .errors import BadEntry, DuplicateEntry, NoSuchEntry, TableFull
from .lookup import Call


def checked_call(
    owner: str,
    actions: tuple[str, ...],
    params: Mapping[str, tuple[ir.Param, ...]],
    action: str,
    args: Sequence[int],
) -> Call:
    if action not in params:
        raise BadEntry(f"{owner}: has no action '{action}'; it has {', '.join(repr(a) for a in actions)}")
    wanted = params[action]
    if len(args) != len(wanted):
        raise BadEntry(f"{owner}: action '{action}' takes {len(wanted)} arguments, not {len(args)}")
    for param, value in zip(wanted, args, strict=True):
        if not 0 <= value < 1 << param.width:
            raise BadEntry(
                f"{owner}: action '{action}' argument '{param.name}': {value} does not fit {param.width} bits"
            )
    return (actions.index(action), *args)


class Member:
    """A member of an action profile; ``cell`` holds its call."""

    __slots__ = ("action", "args", "cell")

    def __init__(self, action: str, args: tuple[int, ...], call: Call) -> None:
        self.action = action
        self.args = args
        self.cell = [call]


class Group:
    """A group of members with weights; ``cells`` has each member's cell as many times as its weight."""

    __slots__ = ("cells", "members")

    def __init__(self) -> None:
        self.members: dict[int, int] = {}
        self.cells: list[list[Call]] = []


class ActionProfile:
    """The members and groups of an action profile, shared by the tables that use it. Ids are the controller's."""

    def __init__(self, spec: ir.ActionProfile, actions: Mapping[str, tuple[ir.Param, ...]]) -> None:
        self.name = spec.name
        self.max_size = spec.max_size
        self.has_selector = spec.selector is not None
        self.actions = tuple(actions)
        self._params = dict(actions)
        self.members: dict[int, Member] = {}
        self.groups: dict[int, Group] = {}
        self._users: dict[tuple[str, int], int] = {}

    def _call(self, action: str, args: Sequence[int]) -> Call:
        return checked_call(f"action profile '{self.name}'", self.actions, self._params, action, args)

    def insert_member(self, member: int, action: str, args: Sequence[int]) -> None:
        """Raises :class:`DuplicateEntry`, :class:`TableFull`, :class:`BadEntry`."""
        if member in self.members:
            raise DuplicateEntry(f"action profile '{self.name}': member {member} exists")
        if len(self.members) >= self.max_size:
            raise TableFull(f"action profile '{self.name}': is full ({self.max_size} members)")
        self.members[member] = Member(action, tuple(args), self._call(action, args))

    def modify_member(self, member: int, action: str, args: Sequence[int]) -> None:
        found = self._member(member)
        found.cell[0] = self._call(action, args)
        found.action, found.args = action, tuple(args)

    def delete_member(self, member: int) -> None:
        """Raises :class:`BadEntry` while an entry or a group uses the member."""
        self._member(member)
        if self._users.get(("member", member)):
            raise BadEntry(f"action profile '{self.name}': member {member} is used by a table entry")
        for number, group in self.groups.items():
            if member in group.members:
                raise BadEntry(f"action profile '{self.name}': member {member} is in group {number}")
        del self.members[member]

    def insert_group(self, group: int, members: Mapping[int, int]) -> None:
        """``members`` maps member ids to weights (at least 1)."""
        if not self.has_selector:
            raise BadEntry(f"action profile '{self.name}': has no selector, so no groups")
        if group in self.groups:
            raise DuplicateEntry(f"action profile '{self.name}': group {group} exists")
        self._check_members(members)
        self.groups[group] = Group()
        self.modify_group(group, members)

    def modify_group(self, group: int, members: Mapping[int, int]) -> None:
        found = self._group(group)
        self._check_members(members)
        found.members = dict(members)
        found.cells[:] = [self.members[m].cell for m, weight in sorted(members.items()) for _ in range(weight)]

    def delete_group(self, group: int) -> None:
        """Raises :class:`BadEntry` while an entry uses the group."""
        self._group(group)
        if self._users.get(("group", group)):
            raise BadEntry(f"action profile '{self.name}': group {group} is used by a table entry")
        del self.groups[group]

    def cells(self, member: int | None, group: int | None) -> list[list[Call]]:
        """The list that a table entry refers to."""
        if (member is None) == (group is None):
            raise BadEntry(f"action profile '{self.name}': an entry refers to either a member or a group")
        if member is not None:
            return [self._member(member).cell]
        assert group is not None
        return self._group(group).cells

    def use(self, member: int | None, group: int | None, change: int) -> None:
        """Note that an entry refers to a member or group (``change`` 1) or does so no longer (-1)."""
        key = ("group", group) if group is not None else ("member", member)
        self._users[key] = self._users.get(key, 0) + change  # type: ignore[index, arg-type]

    def _member(self, member: int) -> Member:
        if member not in self.members:
            raise NoSuchEntry(f"action profile '{self.name}': there is no member {member}")
        return self.members[member]

    def _group(self, group: int) -> Group:
        if group not in self.groups:
            raise NoSuchEntry(f"action profile '{self.name}': there is no group {group}")
        return self.groups[group]

    def _check_members(self, members: Mapping[int, int]) -> None:
        for member, weight in members.items():
            self._member(member)
            if weight < 1:
                raise BadEntry(f"action profile '{self.name}': member {member} has weight {weight}, must be at least 1")
