"""Action profiles and selectors: members, groups and one-shot sets.

In the specification: "ActionProfileMember" and on.

In the switch, a one-shot set is a group that belongs to one table entry; nothing else refers to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from finsy.proto import p4r

from softswitch import Switch
from softswitch.lookup import Call
from softswitch.p4runtime.codec import ActionCodec
from softswitch.p4runtime.p4info import P4InfoError, P4InfoIndex, ProfileInfo
from softswitch.p4runtime.past import selected
from softswitch.p4runtime.refusals import refusing
from softswitch.p4runtime.watching import PortWatch
from softswitch.profiles import Group, Member
from softswitch.rpc.status import Code, RefusedError
from softswitch.tables import ActionProfile

__all__ = ["OneShot", "ProfileStore", "ProfileView"]

_MOST_WEIGHT = 1 << 16
"""The largest sum of the weights of one group: a member occupies a slot per unit of weight."""


@dataclass
class ProfileView:
    """One action profile as controllers see it."""

    info: ProfileInfo
    profile: ActionProfile
    actions: Mapping[int, ActionCodec]
    group_messages: dict[int, p4r.ActionProfileGroup] = field(default_factory=dict)
    one_shots: int = 0
    """The number of table entries that were programmed in one shot."""
    set_members: int = 0
    """The number of actions in one-shot sets, each of which counts as a member."""
    occupied: int = 0
    """The part of the selector's size that all groups together take.

    It is in members or weights, as the size semantics says.
    """

    @property
    def numbers(self) -> dict[int, int]:
        """Return the first element of a call, by action id."""
        positions = list(self.profile.actions)
        numbers: dict[int, int] = {}
        for action_id, codec in self.actions.items():
            numbers[action_id] = positions.index(codec.name)
        return numbers

    @property
    def place(self) -> str:
        """Return the profile's name in messages."""
        return f"action profile {self.info.name}"

    def call(self, action: p4r.Action) -> tuple[str, tuple[int, ...]]:
        """Return name and arguments of `action`.

        Refuse one that the profile does not have with INVALID_ARGUMENT.
        """
        codec = self.actions.get(action.action_id)
        if codec is None:
            reason = f"there is no action with id {action.action_id}"
            raise self.refused(Code.INVALID_ARGUMENT, reason)
        return codec.name, codec.decode(action)

    def refused(self, code: Code, reason: str) -> RefusedError:
        """Return the error to raise, with the profile's name in front of `reason`."""
        return RefusedError(code, f"{self.place}: {reason}")

    def check_weights(
        self,
        weights: Sequence[int],
        by_members: bool,
        limit: int,
    ) -> Sequence[int]:
        """Return the weights to use.

        Refuse weights that the profile does not allow, and a group whose size is above `limit`.

        Args:
            weights: as the controller sent them.
            by_members: whether a group's size is its number of members instead of the sum of their
                weights.
            limit: the largest size; 0 means none.
        """
        if self.info.weights_disallowed:
            if any(weights):
                raise self.refused(Code.INVALID_ARGUMENT, "weights are not allowed")
            weights = [1] * len(weights)
        if weights and min(weights) < 1:
            raise self.refused(Code.INVALID_ARGUMENT, "a weight is not positive")
        total = sum(weights)
        most = self.info.max_member_weight
        if by_members and most and max(weights, default=0) > most:
            raise self.refused(Code.INVALID_ARGUMENT, f"a weight is above {most}")
        size = len(weights) if by_members else total
        if limit and size > limit:
            raise self.refused(Code.INVALID_ARGUMENT, f"the group's size {size} is above {limit}")
        if total > _MOST_WEIGHT:
            raise self.refused(
                Code.RESOURCE_EXHAUSTED, f"the weights add up to more than {_MOST_WEIGHT}"
            )
        return weights

    def size(self, weights: Collection[int]) -> int:
        """Return the part of the selector's size that a group with these weights takes."""
        if self.info.sum_of_members:
            return len(weights)
        return sum(weights)

    def refuse_overflow(self, more: int) -> None:
        """Raise RESOURCE_EXHAUSTED unless the selector has room for `more` in its groups."""
        most = self.info.size
        if most and self.occupied + more > most:
            unit = "members" if self.info.sum_of_members else "weights"
            raise self.refused(
                Code.RESOURCE_EXHAUSTED,
                f"is full: all groups together have room for {unit} of {most}, {self.occupied} are"
                f" taken, {more} more are wanted",
            )


class OneShot(NamedTuple):
    """The one-shot set of a table entry."""

    written: bytes
    """The serialized ActionProfileActionSet."""
    group: Group
    size: int
    """The part of the selector's size that it takes."""
    members: int
    """The number of its actions, which count as the profile's members."""


class ProfileStore:
    """All action profiles of a program."""

    def __init__(self, info: P4InfoIndex, switch: Switch, watch: PortWatch) -> None:
        self.watch = watch
        self._views: dict[int, ProfileView] = {}
        for number, profile in info.profiles.items():
            implementation = switch.action_profiles.get(profile.name)
            if implementation is None and not profile.table_ids:
                continue  # p4c omits profiles that no table uses from the program
            if implementation is None:
                raise P4InfoError(
                    f"action profile {profile.name!r} of the P4Info is not in the program"
                )
            actions: dict[int, ActionCodec] = {}
            for table_id in profile.table_ids:
                if table_id in info.tables:
                    for action in info.tables[table_id].actions:
                        actions[action] = ActionCodec(info.actions[action])
            self._views[number] = ProfileView(profile, implementation, actions)
        self.members = MemberStore(self)
        self.groups = GroupStore(self)

    def view(self, profile_id: int) -> ProfileView:
        """Return one profile. Refuse an id that the program does not have with INVALID_ARGUMENT."""
        view = self._views.get(profile_id)
        if view is None:
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"the program has no action profile with id {profile_id}"
            )
        return view

    def views(self, profile_id: int) -> list[ProfileView]:
        """Return one profile, or all of them for 0."""
        if profile_id:
            return [self.view(profile_id)]
        return list(self._views.values())

    def make_one_shot(
        self,
        view: ProfileView,
        actions: p4r.ActionProfileActionSet,
        instead: OneShot | None = None,
    ) -> OneShot:
        """Make the group of a one-shot set, which may replace another set that goes.

        Raises:
            RefusedError: INVALID_ARGUMENT if members or groups are in use, or for a bad action or
            weight.
        """
        if actions.action_selection_mode == p4r.ActionProfileActionSet.RANDOM:
            raise view.refused(Code.UNIMPLEMENTED, "groups choose by hash, not at random")
        if actions.action_selection_mode not in _HASHING:
            raise view.refused(
                Code.INVALID_ARGUMENT,
                f"there is no action selection mode {actions.action_selection_mode}",
            )
        by_members = _BY_MEMBERS.get(actions.size_semantics, view.info.sum_of_members)
        if actions.size_semantics not in p4r.ActionProfileActionSet.SizeSemantics.values():
            raise view.refused(
                Code.INVALID_ARGUMENT, f"there is no size semantics {actions.size_semantics}"
            )
        calls: list[Call] = []
        weights: list[int] = []
        ports: list[int | None] = []
        for part in actions.action_profile_actions:
            weights.append(part.weight)
            name, args = view.call(part.action)
            with refusing():
                calls.append(view.profile.call(name, args))
            ports.append(self.watch.port(part, view.place))
        watch = ports if any(port is not None for port in ports) else ()
        written = actions.SerializeToString()
        return self.make_set(view, calls, weights, watch, by_members, written, instead)

    def make_set(
        self,
        view: ProfileView,
        calls: Sequence[Call],
        weights: Sequence[int],
        watch: Sequence[int | None],
        by_members: bool,
        written: bytes,
        instead: OneShot | None = None,
    ) -> OneShot:
        """Make a group of calls that fit the profile.

        `watch` are the ports that the calls depend on; it is empty if there are none. `written` is
        the serialized ActionProfileActionSet.

        Raises:
            RefusedError: as `make_one_shot`.
        """
        if not view.info.with_selector:
            raise view.refused(
                Code.INVALID_ARGUMENT, "one-shot programming needs an action selector"
            )
        if view.group_messages or view.profile.members:
            raise view.refused(
                Code.INVALID_ARGUMENT, "one-shot sets cannot be mixed with members and groups"
            )
        weights = view.check_weights(weights, by_members, view.info.max_group_size)
        size = view.size(weights)
        more = size if instead is None else size - instead.size
        if view.occupied + more > view.info.size:
            view.refuse_overflow(more)
        members = view.set_members + len(calls)
        if instead is not None:
            members -= instead.members
        if members > view.profile.max_size:
            raise view.refused(
                Code.RESOURCE_EXHAUSTED, f"is full ({view.profile.max_size} members)"
            )
        group = view.profile.make_set(calls, weights, watch)
        view.one_shots += 1
        view.set_members += len(calls)
        view.occupied += size
        return OneShot(written, group, size, len(calls))

    def drop_one_shot(self, view: ProfileView, one_shot: OneShot) -> None:
        """Remove the group of a one-shot set that no entry uses any more."""
        view.profile.drop_set(one_shot.group)
        view.occupied -= one_shot.size
        view.set_members -= one_shot.members
        view.one_shots -= 1


class MemberStore:
    """ActionProfileMember entities."""

    def __init__(self, profiles: ProfileStore) -> None:
        self._profiles = profiles

    def write(self, kind: int, entity: p4r.ActionProfileMember) -> None:
        """Apply an INSERT, MODIFY or DELETE of a member."""
        view = self._profiles.view(entity.action_profile_id)
        _check_id(view, "member", entity.member_id)
        if kind == p4r.Update.DELETE:
            with refusing(Code.FAILED_PRECONDITION):
                view.profile.delete_member(entity.member_id)
            return
        if view.one_shots:
            raise view.refused(Code.INVALID_ARGUMENT, "members cannot be mixed with one-shot sets")
        if not entity.HasField("action"):
            raise view.refused(Code.INVALID_ARGUMENT, f"member {entity.member_id} has no action")
        name, args = view.call(entity.action)
        with refusing():
            if kind == p4r.Update.INSERT:
                view.profile.insert_member(entity.member_id, name, args)
            else:
                view.profile.modify_member(entity.member_id, name, args)

    def read(self, query: p4r.ActionProfileMember) -> Iterator[p4r.Entity]:
        """Yield one member, or all where an id is 0."""
        listed: list[tuple[ProfileView, list[tuple[int, Member]]]] = []
        for view in self._profiles.views(query.action_profile_id):
            listed.append((view, selected(view.profile.members, query.member_id)))
        for view, members in listed:
            names = {codec.name: codec for codec in view.actions.values()}
            for number, member in members:
                message = p4r.ActionProfileMember(
                    action_profile_id=view.info.id,
                    member_id=number,
                )
                names[member.action].encode(member.args, message.action)
                yield p4r.Entity(action_profile_member=message)

    def current(self, entity: p4r.ActionProfileMember) -> Iterator[p4r.Entity]:
        """Yield the member that an update of `entity` would change."""
        if entity.action_profile_id and entity.member_id:
            return self.read(entity)
        return iter(())


class GroupStore:
    """ActionProfileGroup entities."""

    def __init__(self, profiles: ProfileStore) -> None:
        self._profiles = profiles

    def write(self, kind: int, entity: p4r.ActionProfileGroup) -> None:
        """Apply an INSERT, MODIFY or DELETE of a group."""
        view = self._profiles.view(entity.action_profile_id)
        number = entity.group_id
        _check_id(view, "group", number)
        if kind == p4r.Update.DELETE:
            size = self._size(view, number)
            with refusing(Code.FAILED_PRECONDITION):
                view.profile.delete_group(number)
            view.occupied -= size
            del view.group_messages[number]
            return
        if not view.info.with_selector:
            raise view.refused(Code.INVALID_ARGUMENT, "has no selector and therefore no groups")
        if view.one_shots:
            raise view.refused(Code.INVALID_ARGUMENT, "groups cannot be mixed with one-shot sets")
        weights = self._weights(view, entity)
        watch: dict[int, int] = {}
        for member in entity.members:
            port = self._profiles.watch.port(member, view.place)
            if port is not None:
                watch[member.member_id] = port

        is_new = kind == p4r.Update.INSERT
        before = view.group_messages.get(number)
        if not is_new and before is not None and before.max_size != entity.max_size:
            raise view.refused(
                Code.INVALID_ARGUMENT,
                f"max_size of group {number} is {before.max_size} and cannot change",
            )
        more = view.size(weights.values())
        if not is_new:
            more -= self._size(view, number)
        if not is_new or before is None:
            view.refuse_overflow(more)
        with refusing():
            if is_new:
                view.profile.insert_group(number, weights, watch)
            else:
                view.profile.modify_group(number, weights, watch)
        view.occupied += more
        kept = p4r.ActionProfileGroup()
        kept.CopyFrom(entity)
        view.group_messages[number] = kept

    def read(self, query: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
        """Yield one group, or all where an id is 0."""
        listed: list[tuple[int, p4r.ActionProfileGroup]] = []
        for view in self._profiles.views(query.action_profile_id):
            listed += selected(view.group_messages, query.group_id)
        for _, message in listed:
            yield p4r.Entity(action_profile_group=message)

    def current(self, entity: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
        """Yield the group that an update of `entity` would change."""
        if entity.action_profile_id and entity.group_id:
            return self.read(entity)
        return iter(())

    def _weights(self, view: ProfileView, entity: p4r.ActionProfileGroup) -> dict[int, int]:
        limit = view.info.max_group_size
        if entity.max_size < 0 or (limit and not 1 <= entity.max_size <= limit):
            limits = f"1..{limit}" if limit else "0 or more"
            raise view.refused(
                Code.INVALID_ARGUMENT,
                f"max_size {entity.max_size} of group {entity.group_id} is not {limits}",
            )
        if entity.max_size > _MOST_WEIGHT:
            raise view.refused(
                Code.RESOURCE_EXHAUSTED,
                f"max_size {entity.max_size} of group {entity.group_id} is above {_MOST_WEIGHT}",
            )
        numbers = [member.member_id for member in entity.members]
        if len(set(numbers)) < len(numbers):
            raise view.refused(Code.INVALID_ARGUMENT, f"group {entity.group_id} has a member twice")
        written = [member.weight for member in entity.members]
        weights = view.check_weights(written, view.info.sum_of_members, 0)
        size = view.size(weights)
        if entity.max_size and size > entity.max_size:
            raise view.refused(
                Code.RESOURCE_EXHAUSTED,
                f"size {size} of group {entity.group_id} is above its max_size {entity.max_size}",
            )
        return dict(zip(numbers, weights, strict=True))

    def _size(self, view: ProfileView, number: int) -> int:
        group = view.profile.groups.get(number)
        if group is None:
            return 0
        return view.size(group.members.values())


def _check_id(
    view: ProfileView,
    kind: str,
    number: int,
) -> None:
    if number == 0:
        raise view.refused(Code.INVALID_ARGUMENT, f"the {kind} id is missing")


_HASHING = (
    p4r.ActionProfileActionSet.DEFAULT_MODE_DETERMINED_BY_ACTION_SELECTOR,
    p4r.ActionProfileActionSet.HASH,
)

_BY_MEMBERS = {
    p4r.ActionProfileActionSet.SUM_OF_MEMBERS: True,
    p4r.ActionProfileActionSet.SUM_OF_WEIGHTS: False,
}
