"""Documents in etcd (3.4 or later), for controllers on several machines.

``etcd://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...]/PREFIX[?ca=FILE&certificate=FILE&key=FILE&password_file=FILE]``

The leader holds a key that is bound to a lease; every commit is a transaction that compares this
key. etcd keeps every revision until it is compacted: run it with ``--auto-compaction-retention=1h``
or similar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from echelon_etcd.store import EtcdStore

__all__ = ["open_url"]


async def open_url(
    url: str,
    *,
    lease_s: float,
    accept_empty: bool,
) -> EtcdStore:
    """Open the store for `echelon.controller.service.store.open_store`.

    Nothing here tells that there was something, so `accept_empty` makes no difference.
    """
    from echelon.controller.service.store.base import StoreError
    from echelon_etcd.address import parse

    address = parse(url)
    try:
        import aetcd  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise StoreError(
            f"{address}: aetcd is not installed (run: pip install 'echelon-p4[etcd]')"
        ) from error
    from echelon_etcd.store import open_etcd

    return await open_etcd(address, lease_s=lease_s)
