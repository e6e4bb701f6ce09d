"""The fixtures of the core's tests of stores."""

from tests.echelon.service.store.conftest import etcd as etcd
