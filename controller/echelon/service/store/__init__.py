"""The stores of what the service must not lose. A URL selects the store:

- ``sqlite:state.db``, ``sqlite:///var/lib/echelon/state.db``: a file; a second controller on the machine can stand by.
- ``etcd://host:2379,host2:2379/prefix``: several controllers on several machines (`echelon.service.store.etcd`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from echelon.control.records import COLLECTIONS, Changes, CollectionName, Document, Key, Snapshot
from echelon.service.store.base import Candidate, Leadership, NotLeaderError, Store, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Opener = Callable[..., Awaitable[Store]]

__all__ = [
    "COLLECTIONS",
    "STORES",
    "Candidate",
    "Changes",
    "CollectionName",
    "Document",
    "Key",
    "Leadership",
    "NotLeaderError",
    "Snapshot",
    "Store",
    "StoreError",
    "StoreUnavailableError",
    "open_store",
]

STORES = {"sqlite": "echelon.service.store.sqlite", "etcd": "echelon.service.store.etcd"}
"""The module for each URL scheme, with `async def open_url(url, *, lease_s) -> Store`."""


async def open_store(url: str, *, lease_s: float = 5.0) -> Store:
    """Open the store of that URL. Raise `StoreError`.

    `lease_s` is the time in seconds after which a silent leader is replaced, where the store decides that by time.
    """
    scheme, colon, _ = url.partition(":")
    module = STORES.get(scheme) if colon else None
    if module is None:
        known = ", ".join(f"{name}:..." for name in STORES)
        # The rest of the URL may hold a password.
        raise StoreError(
            f"store {scheme + colon if colon else 'without a scheme'}: no such kind of store (write {known})"
        )
    opener = cast("Opener", import_module(module).open_url)
    return await opener(url, lease_s=lease_s)
