"""Clients that may call a switch, by the names in their certificates, and files that change."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from finsy.proto import gnmi, gnmi_grpc, p4r, p4r_grpc

from softswitch.certificates.folders import keep
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.server import Server
from softswitch.rpc.admission import AllowedClients, GuardedHandler
from softswitch.rpc.tls import TlsFiles, TlsSource
from tests.softswitch.tls.folders import LOOPBACK, channel_credentials, expire, make

TIMEOUT_S = 20


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def served(
    folder: Path, allowed: Sequence[str] | None = None, clock: Clock | None = None
) -> Iterator[Server]:
    files = TlsFiles.from_folder(folder)
    names = AllowedClients(files.allowed if allowed is None else allowed, clock or Clock())
    credentials = TlsSource(files).credentials()
    with Server(Device(), "127.0.0.1:0", credentials=credentials, allowed=names) as server:
        yield server


@contextmanager
def channel(server: Server, folder: Path) -> Iterator[grpc.Channel]:
    address = f"127.0.0.1:{server.port}"
    with grpc.secure_channel(address, channel_credentials(folder)) as opened:
        yield opened


def version(opened: grpc.Channel) -> str:
    request = p4r.CapabilitiesRequest()
    answer = p4r_grpc.P4RuntimeStub(opened).Capabilities(request, timeout=TIMEOUT_S)
    return str(answer.p4runtime_api_version)


def code(call: object, request: object) -> tuple[grpc.StatusCode, str]:
    """Return how a call fails."""
    try:
        answer = call(request, timeout=TIMEOUT_S)  # type: ignore[operator]
        # The answers of a stream come as they are asked for.
        list(answer)
    except grpc.RpcError as error:
        return error.code(), error.details()
    pytest.fail(f"{request} was answered")


def test_all_calls_of_others_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = make(tmp_path / "c", "controller", "intruder")
    with (
        caplog.at_level(logging.WARNING),
        served(out / "s1", ["controller"]) as server,
        channel(server, out / "controller") as ours,
        channel(server, out / "intruder") as theirs,
    ):
        assert version(ours) == "1.5.0"
        p4runtime = p4r_grpc.P4RuntimeStub(theirs)
        queries = gnmi_grpc.gNMIStub(theirs)
        requests = (
            (p4runtime.Capabilities, p4r.CapabilitiesRequest()),
            (p4runtime.Write, p4r.WriteRequest(device_id=1)),
            (p4runtime.Read, p4r.ReadRequest(device_id=1)),
            (p4runtime.StreamChannel, iter([p4r.StreamMessageRequest()])),
            (p4runtime.SetForwardingPipelineConfig, p4r.SetForwardingPipelineConfigRequest()),
            (queries.Capabilities, gnmi.CapabilityRequest()),
            (queries.Get, gnmi.GetRequest()),
            (queries.Subscribe, iter([gnmi.SubscribeRequest()])),
        )
        for call, request in requests:
            status, reason = code(call, request)
            assert status == grpc.StatusCode.PERMISSION_DENIED, request
            assert "'intruder'" in reason
            assert "--allow-client" in reason
        # A stream of ours is served as before.
        stream = p4r_grpc.P4RuntimeStub(ours).StreamChannel(iter([_bid()]), timeout=TIMEOUT_S)
        assert next(stream).arbitration.status.code == 0
    # Of the eight, one line says who and from where; the clock stands still.
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("softswitch: a call of ipv4:127.0.0.1:")
    assert "the certificate of 'intruder' was refused" in line


def _bid() -> p4r.StreamMessageRequest:
    message = p4r.StreamMessageRequest()
    message.arbitration.device_id = 1
    message.arbitration.election_id.low = 1
    return message


def test_a_refused_message_is_not_parsed(tmp_path: Path) -> None:
    """A stranger's nonsense is refused for its sender, before parsing takes time from others."""
    out = make(tmp_path / "c", "controller", "intruder")
    nonsense = b"\xff" * 1000
    expected = {
        "controller": grpc.StatusCode.INVALID_ARGUMENT,
        "intruder": grpc.StatusCode.PERMISSION_DENIED,
    }
    with served(out / "s1", ["controller"]) as server:
        for name, status in expected.items():
            with channel(server, out / name) as opened, pytest.raises(grpc.RpcError) as caught:
                opened.unary_unary("/p4.v1.P4Runtime/Write")(nonsense, timeout=TIMEOUT_S)
            assert caught.value.code() == status


def test_a_method_keeps_its_threads() -> None:
    def serve(_message: bytes, _context: object) -> Iterator[bytes]:
        return iter(())

    pool = object()
    serve.experimental_thread_pool = pool  # type: ignore[attr-defined]
    handler = grpc.unary_stream_rpc_method_handler(serve)
    service = grpc.method_handlers_generic_handler("service", {"Method": handler})
    guarded = GuardedHandler(service, AllowedClients(["controller"]))
    details = SimpleNamespace(method="/service/Method")
    assert guarded.service(details).unary_stream.experimental_thread_pool is pool
    assert guarded.service(SimpleNamespace(method="/service/None")) is None


def test_names_in_a_file_count_from_the_next_second(tmp_path: Path) -> None:
    out = make(tmp_path / "c", "controller", "operator")
    clients = out / "s1" / "clients.txt"
    clock = Clock()
    with (
        served(out / "s1", clock=clock) as server,
        channel(server, out / "operator") as opened,
    ):
        assert version(opened) == "1.5.0"
        clients.write_text("controller  # the only one\n")
        os.utime(clients, (1, 1))
        clock.now_s += 1.5
        with pytest.raises(grpc.RpcError, match="operator"):
            version(opened)
        # Nobody at all, and no file: they stay as they were.
        for change in (lambda: clients.write_text("# nobody\n"), clients.unlink):
            change()
            clock.now_s += 1.5
            with channel(server, out / "controller") as ours:
                assert version(ours) == "1.5.0"


def test_lines_about_refusals_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = make(tmp_path / "c", "controller", "intruder")
    clock = Clock()
    with (
        caplog.at_level(logging.WARNING),
        served(out / "s1", ["controller"], clock) as server,
        channel(server, out / "intruder") as opened,
    ):
        for _ in range(20):
            with pytest.raises(grpc.RpcError):
                version(opened)
        assert len(caplog.records) == 1
        clock.now_s += 1.5
        with pytest.raises(grpc.RpcError):
            version(opened)
    assert caplog.records[-1].getMessage().endswith("(19 more since the last line)")


def test_a_list_of_nobody_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "clients.txt"
    empty.write_text("# nobody\n\n")
    with pytest.raises(ValueError, match="nobody could call"):
        AllowedClients([f"@{empty}"])


def test_renewed_files_count_from_the_next_handshake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = make(tmp_path / "c")
    expire(out / "s1")
    files = TlsFiles.from_folder(out / "s1")
    source = TlsSource(files)
    (remark,) = source.remarks()
    assert remark.startswith(f"TLS certificate {files.certificate}: certificate has expired; ")
    with Server(Device(), "127.0.0.1:0", credentials=source.credentials()) as server:
        with channel(server, out / "controller") as opened, pytest.raises(grpc.RpcError):
            version(opened)
        # Half of a pair changes nothing, and does no harm.
        good = (out / "s1" / "key.pem").read_bytes()
        (out / "s1" / "key.pem").write_text("half")
        with channel(server, out / "controller") as opened, pytest.raises(grpc.RpcError):
            version(opened)
        assert "TLS files stay as they were" in caplog.text
        (out / "s1" / "key.pem").write_bytes(good)
        keep(out, {}, (), 398)
        with channel(server, out / "controller") as opened:
            assert version(opened) == "1.5.0"
    assert TlsSource(files).remarks() == []


def test_each_renewal_is_logged_and_each_reason_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = tmp_path / "clients.txt"
    clock = Clock()
    names.write_text("controller\n")
    allowed = AllowedClients([f"@{names}"], clock)
    caller = SimpleNamespace(peer_identities=lambda: [b"controller"])
    for text in ("controller\n# comment\n", "controller\n", "", "#", "controller\n"):
        names.write_text(text)
        for _ in range(2):
            clock.now_s += 1.5
            allowed.check(caller)
    lines = [record.getMessage() for record in caplog.records]
    complaint = lines.pop(2)
    assert complaint.startswith("softswitch: allowed clients stay as they were: ")
    assert lines == ["softswitch: allowed clients were read again"] * 3


def test_what_ends_soon_is_said(tmp_path: Path) -> None:
    out = tmp_path / "c"
    keep(out, {"s1": LOOPBACK}, (), 20)
    (remark,) = TlsSource(TlsFiles.from_folder(out / "s1")).remarks()
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 20 * 86400))
    assert f"certificate.pem: ends on {day}; run softswitch certificates" in remark
