"""The registry of targets: each is an entry point of the group `echelon.targets`, under its own name.

Listing the names imports no target. A distribution adds a target by an entry point that names a subclass of `Target`::

    [project.entry-points."echelon.targets"]
    stub = "my_package.stub:Stub"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from echelon.targets.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "echelon.targets"


class Registry(Mapping[str, Target[Any]]):
    """The targets by name, in the order of their names. A target is loaded when it is first asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, Target[Any]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._registered)

    def __len__(self) -> int:
        return len(self._registered)

    def __getitem__(self, name: str) -> Target[Any]:
        """Return the target of that name.

        Raises `KeyError` if there is none, and `DocumentError` for one that cannot be loaded.
        """
        if name not in self._loaded:
            self._loaded[name] = _load(self._registered[name])
        return self._loaded[name]

    @cached_property
    def _registered(self) -> dict[str, EntryPoint]:
        # Imported here because it takes longer than the rest of `echelon --help`.
        from importlib.metadata import entry_points

        found: dict[str, EntryPoint] = {}
        for entry in sorted(entry_points(group=GROUP)):
            other = found.setdefault(entry.name, entry)
            if other.value != entry.value:
                from echelon.documents import DocumentError

                reason = f"two distributions register it: {other.value} and {entry.value} (remove one)"
                raise DocumentError(f"target {entry.name}", "", reason)
        return found


def _load(entry: EntryPoint) -> Target[Any]:
    from echelon.documents import DocumentError

    where = f"target {entry.name}"
    try:
        kind = entry.load()
    except Exception as error:  # a distribution's module may raise anything
        reason = f"{entry.value} cannot be imported: {error} (repair or remove the distribution that registers it)"
        raise DocumentError(where, "", reason) from error
    if not (isinstance(kind, type) and issubclass(kind, Target) and kind.name == entry.name):
        reason = f"{entry.value} is not a Target of that name (subclass echelon.targets.Target, and set its `name`)"
        raise DocumentError(where, "", reason)
    return kind()


TARGETS = Registry()
"""All targets that installed distributions register."""


def find_target(name: object, file: str, path: str = "", targets: Mapping[str, Target[Any]] = TARGETS) -> Target[Any]:
    """Return the target `name` that `file` asks for at the key `path`.

    Raises `DocumentError` for an unknown one, with the names that there are.
    """
    from echelon.documents import DocumentError, suggestion
    from echelon.extras import plug_in
    from echelon.quantities import shown

    if isinstance(name, str) and name in targets:
        return targets[name]
    if DEFAULT_TARGET not in targets:
        reason = "Echelon's own targets are not registered (run: python -m pip install --editable .)"
        raise DocumentError(file, path, reason)
    reason = plug_in(GROUP, str(name)) or f"unknown target {shown(name)} ({suggestion(str(name), targets)})"
    raise DocumentError(file, path, reason, code="unknown-target")
