"""The listener: addresses, TLS, certificates of clients, Unix sockets, and how it ends."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import ssl
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from echelon.controller.client import Client, ClientError
from echelon.controller.service.api.app import create_app
from echelon.controller.service.api.server import (
    HEADER_BYTES,
    ApiServer,
    ListenError,
    ServerSettings,
)
from echelon.controller.service.config import ServerTls
from echelon.controller.service.config_file import ListenAddress
from echelon.model.documents import DocumentError
from tests.echelon.service.api.memory import JOB, MemoryService, standby
from tests.echelon.service.api.serving import LOCALHOST, TIMEOUT_S, Serving, serving
from tests.faults import coded
from tests.needs import needs
from tests.softswitch.p4runtime.test_tls import Authority, make_authority, openssl

APP = create_app(standby())


def at(host: str, port: int = 0) -> ServerSettings:
    return ServerSettings(ListenAddress(host, port, None))


# -- addresses -------------------------------------------------------------------------------------


def test_a_free_port_is_chosen_and_told() -> None:
    with serving(APP) as one, serving(APP) as other:
        assert one.server.port
        assert one.server.port != other.server.port
        assert one.url == f"http://127.0.0.1:{one.server.port}"
        for running in (one, other):
            with Client(running.url) as client:
                assert client.is_alive()


def test_a_name_is_listened_on() -> None:
    with serving(APP, at("localhost")) as running, Client(running.url) as client:
        assert client.is_alive()


@needs("::1")
def test_ipv6() -> None:
    with serving(APP, at("::1")) as running, Client(running.url) as client:
        assert running.url.startswith("http://[::1]:")
        assert client.is_alive()


def test_addresses_that_cannot_be_listened_on() -> None:
    with serving(APP) as running:
        port = running.server.port or 0
        taken = coded("cannot-listen", f"127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}")
        with pytest.raises(ListenError, check=taken):
            ApiServer(APP, at("127.0.0.1", port))
    elsewhere = coded("cannot-listen", f"192.0.2.1:0: {os.strerror(errno.EADDRNOTAVAIL)}")
    with pytest.raises(ListenError, check=elsewhere):
        ApiServer(APP, at("192.0.2.1"))
    nowhere = coded("cannot-listen", "no.such.host.invalid:0: ", "api.listen")
    with pytest.raises(ListenError, check=nowhere):
        ApiServer(APP, at("no.such.host.invalid"))


def test_the_address_is_given_back() -> None:
    server = ApiServer(APP, ServerSettings(LOCALHOST))
    server.close()
    port = int(server.url.rpartition(":")[2])
    with serving(APP, at("127.0.0.1", port)) as running:
        assert running.server.port == port
    with serving(APP, at("127.0.0.1", port)):
        pass


# -- Unix sockets ----------------------------------------------------------------------------------


def unix(path: Path) -> ServerSettings:
    return ServerSettings(ListenAddress(None, 0, path))


def test_a_unix_socket_is_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with serving(APP, unix(path)) as running:
        assert (running.url, running.server.port) == (f"unix:{path}", None)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with Client(running.url) as client:
            assert client.status().role == "standby"
        taken = coded("cannot-listen", f"unix:{path}: {os.strerror(errno.EADDRINUSE)}")
        with pytest.raises(ListenError, check=taken):
            ApiServer(APP, unix(path))
        assert path.exists()
    assert not path.exists()


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with serving(APP, unix(path)) as running, Client(running.url) as client:
        assert client.is_alive()


def test_what_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(ListenError, check=coded("cannot-listen", f"unix:{path}: ")):
        ApiServer(APP, unix(path))
    assert path.read_text() == "mine"
    nowhere = tmp_path / "gone" / "api.sock"
    with pytest.raises(ListenError, check=coded("cannot-listen", f"unix:{nowhere}", "api.listen")):
        ApiServer(APP, unix(nowhere))
    too_long = tmp_path / ("x" * 200)
    with pytest.raises(ListenError, check=coded("cannot-listen", f"unix:{too_long}")):
        ApiServer(APP, unix(too_long))


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = make_authority(tmp_path_factory.mktemp("api-tls") / "ca")
    made.issue("server")
    made.issue("operator")
    return made


def server_tls(authority: Authority, *, client_ca: bool = False) -> ServerTls:
    home = authority.home
    return ServerTls(
        home / "server.crt", home / "server.key", home / "ca.crt" if client_ca else None
    )


def by_name(running: Serving) -> str:
    """Return the URL with the name that the certificate is for."""
    return f"https://localhost:{running.server.port}"


def test_tls(authority: Authority, tmp_path: Path) -> None:
    with serving(
        create_app(MemoryService()), ServerSettings(LOCALHOST, server_tls(authority))
    ) as running:
        assert running.url == f"https://127.0.0.1:{running.server.port}"
        with Client(by_name(running), ca=authority.home / "ca.crt") as client:
            assert client.register_job(JOB).name == "d"
        other = make_authority(tmp_path / "other")
        for url, home in ((by_name(running), other.home), (running.url, authority.home)):
            untrusted = coded("no-answer", url, "CERTIFICATE_VERIFY_FAILED", status=None)
            with (
                Client(url, ca=home / "ca.crt") as client,
                pytest.raises(ClientError, check=untrusted),
            ):
                client.status()
        untrusted = coded("no-answer", "CERTIFICATE_VERIFY_FAILED", status=None)
        with Client(by_name(running)) as client, pytest.raises(ClientError, check=untrusted):
            client.status()  # the system knows no such authority
        with Client(by_name(running).replace("https", "http")) as client:
            assert not client.is_alive()


def test_old_tls_is_refused(authority: Authority) -> None:
    def handshake(running: Serving, version: ssl.TLSVersion) -> str | None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(authority.home / "ca.crt")
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = context.maximum_version = version
        plain = socket.create_connection(("127.0.0.1", running.server.port or 0), TIMEOUT_S)
        with plain, context.wrap_socket(plain, server_hostname="localhost") as secured:
            return secured.version()

    with serving(APP, ServerSettings(LOCALHOST, server_tls(authority))) as running:
        for good, name in (
            (ssl.TLSVersion.TLSv1_2, "TLSv1.2"),
            (ssl.TLSVersion.TLSv1_3, "TLSv1.3"),
        ):
            assert handshake(running, good) == name
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(running, ssl.TLSVersion.TLSv1_1)


def test_mutual_tls(authority: Authority, tmp_path: Path) -> None:
    home = authority.home
    with serving(APP, ServerSettings(LOCALHOST, server_tls(authority, client_ca=True))) as running:
        url, ca = by_name(running), home / "ca.crt"
        with Client(
            url, ca=ca, certificate=(home / "operator.crt", home / "operator.key")
        ) as client:
            assert client.is_alive()
        no_answer = coded("no-answer", url, status=None)
        with Client(url, ca=ca) as client, pytest.raises(ClientError, check=no_answer):
            client.status()
        stranger = make_authority(tmp_path / "other")
        stranger.issue("operator")
        pair = (stranger.home / "operator.crt", stranger.home / "operator.key")
        with (
            Client(url, ca=ca, certificate=pair) as client,
            pytest.raises(ClientError, check=no_answer),
        ):
            client.status()
        both = tmp_path / "both.pem"
        both.write_bytes(
            (home / "operator.crt").read_bytes() + (home / "operator.key").read_bytes()
        )
        with Client(url, ca=ca, certificate=both) as client:
            assert client.is_alive()


def test_a_renewed_certificate_is_taken_up(authority: Authority, tmp_path: Path) -> None:
    tls = ServerTls(tmp_path / "c.pem", tmp_path / "k.pem", None)

    def put(name: str) -> None:
        shutil.copy(authority.home / f"{name}.crt", tls.certificate)
        shutil.copy(authority.home / f"{name}.key", tls.key)

    def shown(running: Serving) -> bytes:
        certificate = ssl.get_server_certificate(
            ("127.0.0.1", running.server.port or 0), timeout=TIMEOUT_S
        )
        return certificate.strip().encode()

    def file(name: str) -> bytes:
        text = (authority.home / f"{name}.crt").read_text()
        return text[text.index("-----BEGIN") :].strip().encode()

    put("server")
    with serving(APP, ServerSettings(LOCALHOST, tls)) as running:
        assert shown(running) == file("server")
        put("operator")
        running.call(running.server.reload_certificate)
        assert shown(running) == file("operator")
        tls.key.write_text("nothing")
        with pytest.raises(DocumentError):
            running.call(running.server.reload_certificate)
        assert shown(running) == file("operator")


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> Path:
    for name in ("server.crt", "server.key", "operator.key", "ca.crt"):
        shutil.copy(authority.home / name, tmp_path)
    (tmp_path / "text").write_text("not PEM")
    openssl(
        "ec",
        "-in",
        tmp_path / "server.key",
        "-aes256",
        "-passout",
        "pass:x",
        "-out",
        tmp_path / "locked.key",
    )
    return tmp_path


@pytest.mark.parametrize(
    ("certificate", "key", "client_ca", "at_fault", "name"),
    [
        ("gone", "server.key", None, "gone", os.strerror(errno.ENOENT)),
        ("server.crt", "gone", None, "gone", os.strerror(errno.ENOENT)),
        ("server.crt", "server.key", "gone", "gone", os.strerror(errno.ENOENT)),
        ("text", "server.key", None, "text", "PEM"),
        ("server.crt", "text", None, "text", "PEM"),
        ("server.crt", "server.crt", None, "server.crt", "PEM"),
        ("server.crt", "server.key", "text", "text", "PEM"),
        ("server.crt", "operator.key", None, "operator.key", "server.crt"),
        ("server.crt", "locked.key", None, "locked.key", "passphrase"),
        (".", "server.key", None, "", os.strerror(errno.EISDIR)),
    ],
)
def test_faulty_tls_files(
    files: Path, certificate: str, key: str, client_ca: str | None, at_fault: str, name: str
) -> None:
    tls = ServerTls(files / certificate, files / key, files / client_ca if client_ca else None)
    faulty = coded("invalid-value", name, file=str(files / at_fault), path="")
    with pytest.raises(DocumentError, check=faulty) as caught:
        ApiServer(APP, ServerSettings(LOCALHOST, tls))
    assert caught.value.reason.endswith(")")


# -- requests --------------------------------------------------------------------------------------


def raw(running: Serving, request: bytes) -> bytes:
    """Return the bytes that come back until the server closes."""
    with socket.create_connection(("127.0.0.1", running.server.port or 0), TIMEOUT_S) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.sendall(request)
        return connection.makefile("rb").read()


@pytest.fixture(scope="module")
def running() -> Iterator[Serving]:
    with serving(APP) as made:
        yield made


def test_headers_are_bounded(running: Serving) -> None:
    fits = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: " + b"x" * (
        HEADER_BYTES // 2
    )
    assert raw(running, fits + b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    for size in (HEADER_BYTES, 70_000):
        at_once = fits + b"x" * (size - HEADER_BYTES // 2) + b"\r\n\r\n"
        assert raw(running, at_once).startswith(b"HTTP/1.1 400 ")
    endless = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"x" * (2 * HEADER_BYTES)
    assert raw(running, endless).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /nothing HTTP/9.9\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        (
            b"POST /jobs HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length:"
            b" 3\r\n\r\nzz\r\n"
        ),
        b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /%ff%fe%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /jobs?%ff=%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET http://elsewhere/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
)
def test_no_bytes_make_the_server_fail(
    running: Serving, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert raw(running, request_).startswith(b"HTTP/1.1 4")
    assert not [record for record in caplog.records if record.exc_info]
    with Client(running.url) as client:
        assert client.is_alive()


def test_two_lengths_of_a_body_end_the_connection(running: Serving) -> None:
    head = (
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\nTransfer-Encoding:"
        b" chunked\r\n\r\n"
    )
    smuggled = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answers = raw(running, head + smuggled)
    assert answers.startswith(b"HTTP/1.1 400 ")
    assert answers.count(b"HTTP/1.1") == 1


def test_a_connection_is_kept(running: Serving) -> None:
    with socket.create_connection(("127.0.0.1", running.server.port or 0), TIMEOUT_S) as connection:
        answers = connection.makefile("rb")
        for _ in range(3):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
            while (line := answers.readline()) != b"\r\n":
                name, _, value = line.partition(b": ")
                if name == b"content-length":
                    length = int(value)
            assert answers.read(length) == b'{"alive":true}'


# -- how it ends -----------------------------------------------------------------------------------


def test_signals_are_left_alone() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with serving(APP) as running, Client(running.url) as client:
        assert client.is_alive()
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@contextmanager
def asking(running: Serving, method: str, path: str) -> Iterator[socket.socket]:
    """Open a connection with a request about job `d` that the service is busy with."""
    with socket.create_connection(("127.0.0.1", running.server.port or 0), TIMEOUT_S) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        yield connection


@contextmanager
def removing(running: Serving, service: MemoryService) -> Iterator[socket.socket]:
    """Ask for the removal of a job, which takes the store as long as the test wants."""
    with Client(running.url) as client:
        client.register_job(JOB)
    service.store.held = True
    with asking(running, "DELETE", "/jobs/d") as connection:
        while not running.call(lambda: service.waiting):
            pass
        yield connection


def test_requests_under_way_are_answered_before_it_ends() -> None:
    service = MemoryService()
    with serving(create_app(service)) as running:
        with removing(running, service) as connection:
            running.call(running.server.stop)
            running.call(running.server.stop)
            running.call(service.store.release.set)
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 204 ")
        running.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])), TIMEOUT_S)


def test_who_waits_for_a_job_is_answered_when_it_ends() -> None:
    service = MemoryService()
    with serving(create_app(service)) as running:
        with Client(running.url) as client:
            client.register_job(JOB)
        with asking(running, "GET", "/jobs/d?wait_s=60") as connection:
            while not running.call(lambda: service.waiting):
                pass
            running.wait(service.planned())
            running.call(running.server.stop)
            answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b'"state":"planned"' in answer


def test_what_takes_too_long_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    service = MemoryService()
    hurried = ServerSettings(LOCALHOST, drain_s=0)
    with serving(create_app(service), hurried) as running, removing(running, service) as connection:
        running.call(running.server.stop)
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"unavailable"' in answer
    assert not [record for record in caplog.records if record.exc_info]
