"""TLS: a server with a certificate, and one that demands certificates of its clients."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from softswitch.p4runtime.device import Device
from softswitch.p4runtime.server import Server
from tests.needs import require

TIMEOUT_S = 20
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Authority:
    """A certificate authority in a directory."""

    home: Path

    def issue(self, name: str, place: str = "DNS:localhost") -> tuple[bytes, bytes]:
        """Return (key, certificate) for `name` at a place."""
        home = self.home
        (home / "extensions").write_text(f"subjectAltName={place}\nauthorityKeyIdentifier=keyid\n")
        openssl("req", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", home / f"{name}.key",
                "-out", home / f"{name}.csr")  # fmt: skip
        openssl("x509", "-req", "-in", home / f"{name}.csr", "-CA", home / "ca.crt", "-CAkey", home / "ca.key",
                "-CAcreateserial", "-days", "2", "-extfile", home / "extensions",
                "-out", home / f"{name}.crt")  # fmt: skip
        return (home / f"{name}.key").read_bytes(), (home / f"{name}.crt").read_bytes()

    @property
    def certificate(self) -> bytes:
        return (self.home / "ca.crt").read_bytes()


def openssl(*arguments: str | Path) -> None:
    require("openssl")
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def make_authority(home: Path) -> Authority:
    home.mkdir()
    openssl("req", "-x509", *NEW_KEY, "-days", "2", "-subj", "/CN=authority",
            "-addext", "keyUsage=critical,keyCertSign",
            "-keyout", home / "ca.key", "-out", home / "ca.crt")  # fmt: skip
    return Authority(home)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls") / "ca")


def version(server: Server, credentials: grpc.ChannelCredentials | None) -> str:
    """Return the version that a client with these credentials is told.

    Raises RpcError if it is told nothing.
    """
    target = f"localhost:{server.port}"
    channel = (
        grpc.insecure_channel(target)
        if credentials is None
        else grpc.secure_channel(target, credentials)
    )
    with channel:
        answer = p4r_grpc.P4RuntimeStub(channel).Capabilities(
            p4r.CapabilitiesRequest(), timeout=TIMEOUT_S
        )
        return str(answer.p4runtime_api_version)


def refused(server: Server, credentials: grpc.ChannelCredentials | None) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        version(server, credentials)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_the_servers_certificate_is_checked(authority: Authority, tmp_path: Path) -> None:
    credentials = grpc.ssl_server_credentials([authority.issue("server")])
    with Server(Device(), "localhost:0", credentials=credentials) as server:
        assert version(server, grpc.ssl_channel_credentials(authority.certificate)) == "1.5.0"
        refused(server, None)
        refused(
            server, grpc.ssl_channel_credentials(make_authority(tmp_path / "other").certificate)
        )


def test_clients_need_a_certificate(authority: Authority, tmp_path: Path) -> None:
    credentials = grpc.ssl_server_credentials(
        [authority.issue("server")], authority.certificate, True
    )
    with Server(Device(), "localhost:0", credentials=credentials) as server:
        mutual = grpc.ssl_channel_credentials(authority.certificate, *authority.issue("client"))
        assert version(server, mutual) == "1.5.0"
        refused(server, grpc.ssl_channel_credentials(authority.certificate))
        stranger = make_authority(tmp_path / "other").issue("client")
        refused(server, grpc.ssl_channel_credentials(authority.certificate, *stranger))
