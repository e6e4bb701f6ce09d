"""Documents of an earlier schema, and of a later one, in a real etcd."""

from __future__ import annotations

from echelon.controller.service.store import Store
from echelon.controller.service.store.base import Schema
from echelon_etcd.address import parse
from echelon_etcd.store import open_etcd
from tests.echelon.service.store import test_migrations
from tests.echelon.service.store.test_migrations import (
    test_a_migration_that_fails_changes_nothing as test_a_migration_that_fails_changes_nothing,
)
from tests.echelon.service.store.test_migrations import (
    test_documents_of_a_later_version_are_refused as test_documents_of_a_later_version_are_refused,
)


async def _open_etcd(url: str, schema: Schema) -> Store:
    return await open_etcd(parse(url), lease_s=20, schema=schema)


test_migrations.OPENERS["etcd"] = _open_etcd
