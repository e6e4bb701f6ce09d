"""Logins to etcd, and TLS with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import grpc  # type: ignore[import-untyped]
import pytest
from aetcd import rpc as messages  # type: ignore[import-untyped]

from echelon.controller.service.store import (
    Candidate,
    Changes,
    Key,
    StoreError,
    StoreUnavailableError,
    open_store,
)
from plugins.etcd.tests.etcd_process import EtcdProcess, etcd_process
from tests.coroutines import run
from tests.faults import coded
from tests.needs import needs
from tests.softswitch.p4runtime.test_tls import openssl

A = Candidate("a", "http://a")
X: Key = ("jobs", "x")

pytestmark = needs("etcd")


async def protect(endpoint: str) -> None:
    """Protect etcd with root, and with a user `ctl` who may read and write below /lab/."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        auth = messages.AuthStub(channel)
        permission = messages.Permission(
            permType=messages.Permission.READWRITE, key=b"/lab/", range_end=b"/lab0"
        )
        requests: Sequence[tuple[str, object]] = [
            ("UserAdd", messages.AuthUserAddRequest(name="root", password="pw")),
            ("UserGrantRole", messages.AuthUserGrantRoleRequest(user="root", role="root")),
            ("UserAdd", messages.AuthUserAddRequest(name="ctl", password="s:ec@ret/")),
            ("RoleAdd", messages.AuthRoleAddRequest(name="lab")),
            (
                "RoleGrantPermission",
                messages.AuthRoleGrantPermissionRequest(name="lab", perm=permission),
            ),
            ("UserGrantRole", messages.AuthUserGrantRoleRequest(user="ctl", role="lab")),
            ("AuthEnable", messages.AuthEnableRequest()),
        ]
        for method, request in requests:
            await getattr(auth, method)(request)


def test_a_login(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("s:ec@ret/\n")

    async def body(etcd: EtcdProcess) -> None:
        await protect(etcd.endpoint)
        for url in (
            f"etcd://ctl:s%3Aec%40ret%2F@{etcd.endpoint}/lab",
            f"etcd://ctl@{etcd.endpoint}/lab?password_file={password}",
        ):
            async with await open_store(url, lease_s=20) as store:
                assert store.url == f"etcd://{etcd.endpoint}/lab"
                assert "ret" not in repr(store)
                leadership = await store.campaign(A)
                await store.commit(Changes({("numbers", str(n)): {"n": n} for n in range(300)}))
                # etcd forgets its tokens; the lease it keeps.
                etcd.kill()
                etcd.start()
                await store.commit(Changes({X: {"n": 1}}))
                assert (await store.load())["jobs"] == {"x": {"n": 1}}
                assert not leadership.lost.is_set()
                async with await open_store(url, lease_s=20) as other:
                    waiting = asyncio.create_task(other.campaign(A))
                    # What a standby does needs no more than that either.
                    done, _ = await asyncio.wait([waiting], timeout=0.3)
                    assert not done
                    assert other.problem is None
                    await leadership.resign()
                    await asyncio.wait_for(waiting, 10)
        for url in (
            f"etcd://ctl:wr0ng@{etcd.endpoint}/lab",
            f"etcd://nobody:s%3Aec%40ret%2F@{etcd.endpoint}/lab",
            f"etcd://{etcd.endpoint}/lab",
            f"etcd://ctl:s%3Aec%40ret%2F@{etcd.endpoint}/lab2",
        ):
            prefix = url.rpartition("/")[2]
            refused = coded("store-failed", etcd.endpoint, f"/{prefix}/")
            with pytest.raises(StoreError, check=refused) as raised:
                await open_store(url)
            assert not isinstance(raised.value, StoreUnavailableError)
            assert "wr0ng" not in str(raised.value)
            assert "s:ec" not in str(raised.value)
            assert "ctl" not in str(raised.value)

    with etcd_process(tmp_path / "etcd") as process:
        run(body(process))


def certify(home: Path, name: str) -> None:
    """Make an authority `name`, and a certificate of 127.0.0.1 signed by it."""
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl(
        "req",
        "-x509",
        *new,
        "-subj",
        f"/CN={name}",
        "-addext",
        "keyUsage=critical,keyCertSign",
        "-keyout",
        home / f"{name}-ca.key",
        "-out",
        home / f"{name}-ca.pem",
    )
    openssl(
        *("req", "-x509", *new, "-subj", "/CN=one", "-addext", "subjectAltName=IP:127.0.0.1"),
        *(
            "-addext",
            "basicConstraints=CA:FALSE",
            "-CA",
            home / f"{name}-ca.pem",
            "-CAkey",
            home / f"{name}-ca.key",
        ),
        *("-keyout", home / f"{name}.key", "-out", home / f"{name}.pem"),
    )


def test_tls_with_certificates_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelon_etcd.store.ANSWER_S", 1.0)
    for name in ("ours", "theirs"):
        certify(tmp_path, name)
    options = [
        *("--cert-file", str(tmp_path / "ours.pem"), "--key-file", str(tmp_path / "ours.key")),
        *("--client-cert-auth", "--trusted-ca-file", str(tmp_path / "ours-ca.pem")),
    ]

    def query(ca: str, certificate: str) -> str:
        own = (
            f"&certificate={tmp_path}/{certificate}.pem&key={tmp_path}/{certificate}.key"
            if certificate
            else ""
        )
        return f"?ca={tmp_path}/{ca}-ca.pem{own}"

    async def body(etcd: EtcdProcess) -> None:
        async with await open_store(f"{etcd.url}/lab{query('ours', 'ours')}", lease_s=20) as store:
            await store.campaign(A)
            await store.commit(Changes({X: {"n": 1}}))
            assert (await store.load())["jobs"] == {"x": {"n": 1}}
            assert store.url == f"{etcd.url}/lab"
        for url in (
            f"{etcd.url}/lab{query('theirs', 'ours')}",
            f"{etcd.url}/lab{query('ours', '')}",
            f"{etcd.url}/lab{query('ours', 'theirs')}",
        ):
            unreachable = coded("store-unavailable", f"{etcd.url}/lab", "ca, certificate and key")
            with pytest.raises(StoreUnavailableError, check=unreachable):
                await open_store(url)

    with etcd_process(tmp_path / "etcd", *options, scheme="https") as process:
        run(body(process))
