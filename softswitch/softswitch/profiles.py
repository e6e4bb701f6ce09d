"""Action profiles: actions that table entries refer to.

They refer to one of them, or to a group from which a hash selects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from . import ir
from .errors import BadEntry, DuplicateEntry, NoSuchEntry, TableFull
from .lookup import Call
from .numerals import brief


def checked_call(
    owner: str,
    actions: tuple[str, ...],
    params: Mapping[str, tuple[ir.Param, ...]],
    action: str,
    args: Sequence[int],
) -> Call:
    if action not in params:
        listed = ", ".join(map(repr, actions))
        raise BadEntry(f"{owner}: has no action '{action}'; it has {listed}")
    wanted = params[action]
    if len(args) != len(wanted):
        raise BadEntry(f"{owner}: action '{action}' takes {len(wanted)} arguments, not {len(args)}")
    for param, value in zip(wanted, args, strict=True):
        if not 0 <= value < 1 << param.width:
            raise BadEntry(
                f"{owner}: action '{action}' argument '{param.name}': {brief(value)} does not fit"
                f" {param.width} bits"
            )
    return (actions.index(action), *args)


class Member:
    """A member of an action profile; ``cell`` holds its call."""

    __slots__ = ("action", "args", "cell")

    def __init__(
        self,
        action: str,
        args: tuple[int, ...],
        call: Call,
    ) -> None:
        self.action = action
        self.args = args
        self.cell = [call]


Part = tuple[list[Call], int, int | None]
"""A cell of a group, its weight, and the port that it depends on."""

_NO_MEMBERS: Mapping[int, int] = MappingProxyType({})


class Group:
    """A group of calls with weights, either of members or of its own.

    ``parts`` are (cell, weight, port to watch or None), none in a set that watches nothing.
    ``members`` maps member ids to weights, and is empty in a group without members.
    """

    __slots__ = ("_cells", "calls", "members", "parts", "weights")

    def __init__(self, calls: Sequence[Call] = (), weights: Sequence[int] = ()) -> None:
        self.members: Mapping[int, int] = _NO_MEMBERS
        self.parts: Sequence[Part] = ()
        self.calls = calls
        self.weights = weights
        """The calls of a set that watches nothing, and their weights."""
        self._cells: list[list[Call]] | None = None

    @property
    def cells(self) -> list[list[Call]]:
        """Return the cells to choose from: each as many times as its weight.

        Parts that watch a port that is down have none. The list stays the same object, because
        entries refer to it.
        """
        cells = self._cells
        if cells is None:
            # Sets come by the thousand, and in native memory nobody
            # asks for the cells of most of them.
            cells = self._cells = []
            for call, weight in zip(self.calls, self.weights, strict=True):
                cells += [[call]] * weight
        return cells


class ActionProfile:
    """The members and groups of an action profile, shared by the tables that use it.

    The controller chooses the ids.
    """

    def __init__(
        self, spec: ir.ActionProfileSpec, actions: Mapping[str, tuple[ir.Param, ...]]
    ) -> None:
        self.name = spec.name
        self.max_size = spec.max_size
        self.has_selector = spec.selector is not None
        self.actions = tuple(actions)
        self._params = dict(actions)
        self.members: dict[int, Member] = {}
        self.groups: dict[int, Group] = {}
        self._member_users: dict[int, int] = {}
        self._group_users: dict[int, int] = {}
        self._memberships: dict[int, int] = {}
        self._watchers: dict[int, set[Group]] = {}
        self._down: set[int] = set()
        self.on_change: Callable[[list[Any]], object] = lambda _changed: None
        """The callback for a change of what entries refer to.

        It gets a member's cell or a group's cells.
        """

    def call(self, action: str, args: Sequence[int]) -> Call:
        """Return the result of look-ups for an action with arguments. Raises :class:`BadEntry`."""
        return checked_call(
            f"action profile '{self.name}'", self.actions, self._params, action, args
        )

    def insert_member(
        self,
        member: int,
        action: str,
        args: Sequence[int],
    ) -> None:
        """Add a member. Raises :class:`DuplicateEntry`, :class:`TableFull`, :class:`BadEntry`."""
        if member in self.members:
            raise DuplicateEntry(f"action profile '{self.name}': member {member} exists")
        if len(self.members) >= self.max_size:
            raise TableFull(f"action profile '{self.name}': is full ({self.max_size} members)")
        self.members[member] = Member(action, tuple(args), self.call(action, args))

    def modify_member(
        self,
        member: int,
        action: str,
        args: Sequence[int],
    ) -> None:
        stored = self._member(member)
        stored.cell[0] = self.call(action, args)
        self.on_change(stored.cell)
        stored.action = action
        stored.args = tuple(args)

    def delete_member(self, member: int) -> None:
        """Remove a member. Raises :class:`BadEntry` while an entry or a group uses it."""
        self._member(member)
        if self._member_users.get(member):
            raise BadEntry(
                f"action profile '{self.name}': member {member} is used by a table entry"
            )
        if self._memberships.get(member):
            numbers = [n for n, group in self.groups.items() if member in group.members]
            raise BadEntry(
                f"action profile '{self.name}': member {member} is in group {numbers[0]}"
            )
        del self.members[member]

    def insert_group(
        self,
        group: int,
        members: Mapping[int, int],
        watch: Mapping[int, int] | None = None,
    ) -> None:
        """Add a group. ``members`` maps member ids to weights (at least 1).

        ``watch`` maps the members that depend on a port to its number. They are not chosen while
        the port is down.
        """
        if not self.has_selector:
            raise BadEntry(f"action profile '{self.name}': has no selector and therefore no groups")
        if group in self.groups:
            raise DuplicateEntry(f"action profile '{self.name}': group {group} exists")
        self._check_members(members)
        self.groups[group] = Group()
        self.modify_group(group, members, watch)

    def modify_group(
        self,
        group: int,
        members: Mapping[int, int],
        watch: Mapping[int, int] | None = None,
    ) -> None:
        stored = self._group(group)
        self._check_members(members)
        self._leave(stored)
        stored.members = dict(members)
        watch = watch or {}
        parts: list[Part] = []
        for member, weight in sorted(members.items()):
            self._memberships[member] = self._memberships.get(member, 0) + 1
            cell = self.members[member].cell
            parts.append((cell, weight, watch.get(member)))
        self._fill(stored, parts)

    def delete_group(self, group: int) -> None:
        """Remove a group. Raises :class:`BadEntry` while an entry uses it."""
        stored = self._group(group)
        if self._group_users.get(group):
            raise BadEntry(f"action profile '{self.name}': group {group} is used by a table entry")
        self._leave(stored)
        del self.groups[group]

    def make_set(
        self,
        calls: Sequence[Call],
        weights: Sequence[int],
        watch: Sequence[int | None] = (),
    ) -> Group:
        """Make a group without a number and without members, for one table entry.

        ``watch`` has the port or None for each call; without it there are no watched ports.
        """
        if not watch:
            return Group(calls, weights)
        group = Group()
        cells = [[call] for call in calls]
        self._fill(group, list(zip(cells, weights, watch, strict=True)))
        return group

    def drop_set(self, group: Group) -> None:
        """Forget a group that :meth:`make_set` made."""
        self._leave(group)

    def set_port_up(self, port: int, up: bool) -> None:
        """Tell the groups that watch a port whether it is up. Ports count as up until then."""
        if up:
            self._down.discard(port)
        else:
            self._down.add(port)
        for group in self._watchers.get(port, ()):
            self._choose(group)

    def _fill(self, group: Group, parts: Sequence[Part]) -> None:
        group.parts = parts
        for _, _, port in parts:
            if port is not None:
                self._watchers.setdefault(port, set()).add(group)
        self._choose(group)

    def _choose(self, group: Group) -> None:
        """Fill in the cells to choose from."""
        down = self._down
        cells = group.cells
        cells.clear()
        for cell, weight, port in group.parts:
            if port not in down:
                cells += [cell] * weight
        self.on_change(cells)

    def _leave(self, group: Group) -> None:
        """Release what the group's parts occupy."""
        for member in group.members:
            self._memberships[member] -= 1
            if not self._memberships[member]:
                del self._memberships[member]
        for port in {port for _, _, port in group.parts if port is not None}:
            self._watchers[port].discard(group)
            if not self._watchers[port]:
                del self._watchers[port]

    def cells(self, member: int | None, group: int | None) -> list[list[Call]]:
        """Return the list that a table entry refers to."""
        if (member is None) == (group is None):
            raise BadEntry(
                f"action profile '{self.name}': an entry refers to either a member or a group"
            )
        if member is not None:
            return [self._member(member).cell]
        assert group is not None
        return self._group(group).cells

    def use(
        self,
        member: int | None,
        group: int | None,
        change: int,
    ) -> None:
        """Note that an entry refers to a member or group (``change`` 1) or no longer does (-1)."""
        if group is None:
            users = self._member_users
            number = member
        else:
            users = self._group_users
            number = group
        assert number is not None
        count = users.get(number, 0) + change
        if count:
            users[number] = count
        else:
            users.pop(number, None)

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
                raise BadEntry(
                    f"action profile '{self.name}': member {member} has weight {weight},"
                    " must be at least 1"
                )
