"""Action profiles and selectors: members, groups and one-shot sets (specification: "ActionProfileMember" and on).

A one-shot set becomes a group of its own in the switch, with ids above the 32 bits that controllers have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from finsy.proto import p4r

from softswitch import Switch
from softswitch.p4runtime.codec import ActionCodec
from softswitch.p4runtime.p4info import P4InfoError, P4InfoIndex, ProfileInfo
from softswitch.p4runtime.refusals import refusing
from softswitch.p4runtime.status import Code, RefusedError
from softswitch.tables import ActionProfile

__all__ = ["ProfileStore", "ProfileView"]

_MOST_WEIGHT = 1 << 16
"""The most that the weights of one group may add up to: a member occupies a slot per unit of weight."""

_FIRST_HIDDEN_ID = 1 << 32


@dataclass
class ProfileView:
    """One action profile as controllers see it."""

    info: ProfileInfo
    profile: ActionProfile
    actions: Mapping[int, ActionCodec]
    group_messages: dict[int, p4r.ActionProfileGroup] = field(default_factory=dict)
    one_shots: int = 0
    """Table entries that were programmed in one shot."""

    @property
    def place(self) -> str:
        """How messages call it."""
        return f"action profile {self.info.name}"

    def call(self, action: p4r.Action) -> tuple[str, tuple[int, ...]]:
        """Return name and arguments of `action`; INVALID_ARGUMENT for one that the profile does not have."""
        codec = self.actions.get(action.action_id)
        if codec is None:
            raise self.refused(Code.INVALID_ARGUMENT, f"there is no action with id {action.action_id}")
        return codec.name, codec.decode(action)

    def refused(self, code: Code, reason: str) -> RefusedError:
        """Return the error to raise, with the profile's name in front of `reason`."""
        return RefusedError(code, f"{self.place}: {reason}")

    def check_weights(self, weights: list[int], limit: int) -> list[int]:
        """Return the weights to use; refuse what the profile does not allow and a size above `limit` (0: no limit)."""
        if self.info.weights_disallowed:
            if any(weights):
                raise self.refused(Code.INVALID_ARGUMENT, "weights are not allowed")
            weights = [1] * len(weights)
        if any(weight < 1 for weight in weights):
            raise self.refused(Code.INVALID_ARGUMENT, "a weight is not positive")
        most = self.info.max_member_weight
        if self.info.sum_of_members and most and any(weight > most for weight in weights):
            raise self.refused(Code.INVALID_ARGUMENT, f"a weight is above {most}")
        size = len(weights) if self.info.sum_of_members else sum(weights)
        if limit and size > limit:
            raise self.refused(Code.INVALID_ARGUMENT, f"the group's size {size} is above {limit}")
        if sum(weights) > _MOST_WEIGHT:
            raise self.refused(Code.RESOURCE_EXHAUSTED, f"the weights add up to more than {_MOST_WEIGHT}")
        return weights


class ProfileStore:
    """All action profiles of a program."""

    def __init__(self, info: P4InfoIndex, switch: Switch) -> None:
        self._views: dict[int, ProfileView] = {}
        self._hidden_ids = itertools.count(_FIRST_HIDDEN_ID)
        for number, profile in info.profiles.items():
            tables = [info.tables[table] for table in profile.table_ids if table in info.tables]
            implementation = switch.action_profiles.get(profile.name)
            if implementation is None:
                raise P4InfoError(f"action profile {profile.name!r} of the P4Info is not in the program")
            actions = {action: ActionCodec(info.actions[action]) for table in tables for action in table.actions}
            self._views[number] = ProfileView(profile, implementation, actions)
        self.members = MemberStore(self)
        self.groups = GroupStore(self)

    def view(self, profile_id: int) -> ProfileView:
        """Return one profile; INVALID_ARGUMENT for an id that the program does not have."""
        view = self._views.get(profile_id)
        if view is None:
            raise RefusedError(Code.INVALID_ARGUMENT, f"the program has no action profile with id {profile_id}")
        return view

    def views(self, profile_id: int) -> list[ProfileView]:
        """Return one profile, or all of them for 0."""
        return [self.view(profile_id)] if profile_id else list(self._views.values())

    def insert_one_shot(self, view: ProfileView, actions: p4r.ActionProfileActionSet) -> int:
        """Make the hidden group of a one-shot set; return its number.

        Raises:
            RefusedError: INVALID_ARGUMENT if members or groups are in use, or for a bad action or weight.
        """
        if not view.info.with_selector:
            raise view.refused(Code.INVALID_ARGUMENT, "one-shot programming needs an action selector")
        if view.group_messages or any(number < _FIRST_HIDDEN_ID for number in view.profile.members):
            raise view.refused(Code.INVALID_ARGUMENT, "one-shot sets cannot be mixed with members and groups")
        if actions.action_selection_mode == p4r.ActionProfileActionSet.RANDOM:
            raise view.refused(Code.UNIMPLEMENTED, "groups choose by hash, not at random")
        for action in actions.action_profile_actions:
            _refuse_watch(view, action)
        weights = view.check_weights(
            [action.weight for action in actions.action_profile_actions], view.info.max_group_size
        )
        calls = [view.call(action.action) for action in actions.action_profile_actions]
        if len(view.profile.members) + len(calls) > view.profile.max_size:
            raise view.refused(Code.RESOURCE_EXHAUSTED, f"is full ({view.profile.max_size} members)")
        numbers = {next(self._hidden_ids): weight for weight in weights}
        with refusing():
            for number, (name, args) in zip(numbers, calls, strict=True):
                view.profile.insert_member(number, name, args)
            group = next(self._hidden_ids)
            view.profile.insert_group(group, numbers)
        view.one_shots += 1
        return group

    def delete_one_shot(self, view: ProfileView, group: int) -> None:
        """Remove the hidden group of a one-shot set that no entry uses any more."""
        members = list(view.profile.groups[group].members)
        view.profile.delete_group(group)
        for member in members:
            view.profile.delete_member(member)
        view.one_shots -= 1


class MemberStore:
    """ActionProfileMember entities."""

    def __init__(self, profiles: ProfileStore) -> None:
        self._profiles = profiles

    def write(self, kind: int, entity: p4r.ActionProfileMember) -> None:
        """INSERT, MODIFY or DELETE a member."""
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
        for view in self._profiles.views(query.action_profile_id):
            names = {codec.name: codec for codec in view.actions.values()}
            for number, member in view.profile.members.items():
                if number >= _FIRST_HIDDEN_ID or query.member_id not in (0, number):
                    continue
                message = p4r.ActionProfileMember(action_profile_id=view.info.id, member_id=number)
                names[member.action].encode(member.args, message.action)
                yield p4r.Entity(action_profile_member=message)

    def current(self, entity: p4r.ActionProfileMember) -> Iterator[p4r.Entity]:
        """Yield the member that an update of `entity` would change."""
        return self.read(entity) if entity.action_profile_id and entity.member_id else iter(())


class GroupStore:
    """ActionProfileGroup entities."""

    def __init__(self, profiles: ProfileStore) -> None:
        self._profiles = profiles

    def write(self, kind: int, entity: p4r.ActionProfileGroup) -> None:
        """INSERT, MODIFY or DELETE a group."""
        view = self._profiles.view(entity.action_profile_id)
        number = entity.group_id
        _check_id(view, "group", number)
        if kind == p4r.Update.DELETE:
            with refusing(Code.FAILED_PRECONDITION):
                view.profile.delete_group(number)
            del view.group_messages[number]
            return
        if not view.info.with_selector:
            raise view.refused(Code.INVALID_ARGUMENT, "has no selector, so no groups")
        if view.one_shots:
            raise view.refused(Code.INVALID_ARGUMENT, "groups cannot be mixed with one-shot sets")
        weights = self._weights(view, entity)
        with refusing():
            if kind == p4r.Update.INSERT:
                view.profile.insert_group(number, weights)
            else:
                before = view.group_messages.get(number)
                if before is not None and before.max_size != entity.max_size:
                    raise view.refused(
                        Code.INVALID_ARGUMENT, f"max_size of group {number} is {before.max_size} and cannot change"
                    )
                view.profile.modify_group(number, weights)
        kept = p4r.ActionProfileGroup()
        kept.CopyFrom(entity)
        view.group_messages[number] = kept

    def read(self, query: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
        """Yield one group, or all where an id is 0."""
        for view in self._profiles.views(query.action_profile_id):
            for number, message in view.group_messages.items():
                if query.group_id in (0, number):
                    yield p4r.Entity(action_profile_group=message)

    def current(self, entity: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
        """Yield the group that an update of `entity` would change."""
        return self.read(entity) if entity.action_profile_id and entity.group_id else iter(())

    def _weights(self, view: ProfileView, entity: p4r.ActionProfileGroup) -> dict[int, int]:
        limit = view.info.max_group_size
        if entity.max_size < 0 or (limit and not 1 <= entity.max_size <= limit):
            shown = f"1..{limit}" if limit else "0 or more"
            raise view.refused(
                Code.INVALID_ARGUMENT, f"max_size {entity.max_size} of group {entity.group_id} is not {shown}"
            )
        for member in entity.members:
            _refuse_watch(view, member)
        numbers = [member.member_id for member in entity.members]
        if len(set(numbers)) < len(numbers):
            raise view.refused(Code.INVALID_ARGUMENT, f"group {entity.group_id} has a member twice")
        weights = view.check_weights([member.weight for member in entity.members], 0)
        size = len(weights) if view.info.sum_of_members else sum(weights)
        if entity.max_size and size > entity.max_size:
            raise view.refused(
                Code.RESOURCE_EXHAUSTED,
                f"size {size} of group {entity.group_id} is above its max_size {entity.max_size}",
            )
        return dict(zip(numbers, weights, strict=True))


def _check_id(view: ProfileView, what: str, number: int) -> None:
    if number == 0:
        raise view.refused(Code.INVALID_ARGUMENT, f"the {what} id is missing")


def _refuse_watch(view: ProfileView, message: Any) -> None:
    if message.watch or message.watch_port:
        raise view.refused(Code.UNIMPLEMENTED, "watch ports are not supported")
