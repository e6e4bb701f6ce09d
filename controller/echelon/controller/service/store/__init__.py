"""The stores of what the service must not lose. A URL selects the store:

- ``sqlite:state.db``, ``sqlite:///var/lib/echelon/state.db``: a file; a second controller on the
  machine can stand by.
- ``etcd://host:2379,host2:2379/prefix``: several controllers on several machines (the plug-in
  echelon-etcd).

A distribution adds a kind of store by an entry point of the group `echelon.stores`, under the
scheme of its URLs. The object is ``async def open_url(url, *, lease_s, accept_empty) -> Store``::

    [project.entry-points."echelon.stores"]
    etcd = "my_package.store:open_url"
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, cast

from echelon.controller.machine.records import (
    COLLECTIONS,
    Changes,
    CollectionName,
    Document,
    Key,
    Snapshot,
)
from echelon.controller.service.store.base import (
    Candidate,
    EmptyStoreError,
    Leadership,
    NotLeaderError,
    Store,
    StoreError,
    StoreUnavailableError,
)
from echelon.model.extras import plug_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Opener = Callable[..., Awaitable[Store]]

__all__ = [
    "COLLECTIONS",
    "Candidate",
    "Changes",
    "CollectionName",
    "Document",
    "EmptyStoreError",
    "Key",
    "Leadership",
    "NotLeaderError",
    "Snapshot",
    "Store",
    "StoreError",
    "StoreUnavailableError",
    "open_store",
    "stores",
]


@cache
def stores() -> dict[str, EntryPoint]:
    """Return what opens a store, by the scheme of its URL."""
    return {entry.name: entry for entry in entry_points(group="echelon.stores")}


async def open_store(
    url: str,
    *,
    lease_s: float = 5.0,
    accept_empty: bool = True,
) -> Store:
    """Open the store of that URL. Raise `StoreError`.

    `lease_s` is the time in seconds after which a silent leader is replaced, where the store
    decides that by time. Without `accept_empty`, a store that holds nothing where it can tell that
    there was something is refused.
    """
    scheme, colon, _ = url.partition(":")
    entry = stores().get(scheme) if colon else None
    if entry is None:
        hint = plug_in("echelon.stores", scheme)
        if not hint:
            schemes = ", ".join(f"{name}:..." for name in stores())
            hint = f"no such kind of store (write {schemes})"
        # The rest of the URL may hold a password.
        kind = f"{scheme}:" if colon else "without a scheme"
        raise StoreError(f"store {kind}: {hint}")
    try:
        opener = cast("Opener", entry.load())
    except Exception as error:
        # A plug-in is anybody's code.
        reason = f"{entry.value} cannot be loaded: {type(error).__name__}: {error}"
        raise StoreError(f"store {scheme}: {reason} (update or remove that plug-in)") from error
    return await opener(
        url,
        lease_s=lease_s,
        accept_empty=accept_empty,
    )
