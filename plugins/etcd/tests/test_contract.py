"""The contract of every store, on a real etcd (tests/echelon/service/store)."""

from tests.echelon.service.store.test_contract import *  # noqa: F403 - its tests
from tests.echelon.service.store.test_model import *  # noqa: F403 - its tests
