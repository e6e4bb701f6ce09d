"""TLS of a server: its files, which are read again when they change, and the clients it takes.

gRPC only says that it could not listen, so files are checked before gRPC sees them. A certificate
that is renewed counts from the next handshake on: a switch forwards packets for years, and must not
be started again for a file.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softswitch.rpc.rereading import ChangingFiles

__all__ = ["AUTHORITY", "CERTIFICATE", "CLIENTS", "KEY", "TlsFiles", "TlsSource"]

AUTHORITY = "authority.pem"
CERTIFICATE = "certificate.pem"
KEY = "key.pem"
CLIENTS = "clients.txt"
"""The names of the files in a folder of a switch."""

_SOON_S = 30 * 86400.0
"""The time before its end at which a certificate is remarked on.

`softswitch certificates` renews 60 days before the end, so whoever runs it each month never sees
the remark.
"""

_ADVICE = "run softswitch certificates again, or copy its folder for this switch here"

_FLIGHTS = 4
"""The number of times that both sides of a handshake in memory are given their turn.

TLS 1.3 needs two, TLS 1.2 three.
"""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of a server."""

    authority: Path | None
    """The authority that signs the certificates of clients."""
    certificate: Path
    key: Path
    with_client_auth: bool
    """Whether clients without a valid certificate are refused in the handshake."""
    allowed: tuple[str, ...] = ()
    """The names of clients that may call; @FILE has a name a line. Empty: every valid client."""

    @classmethod
    def from_folder(cls, folder: Path, names: Sequence[str] = ()) -> TlsFiles:
        """Return the files of a folder that `softswitch certificates` has made for a switch.

        Args:
            folder: the folder.
            names: clients that may call beside those of the folder.
        """
        return cls(
            folder / AUTHORITY,
            folder / CERTIFICATE,
            folder / KEY,
            with_client_auth=True,
            allowed=(f"@{folder / CLIENTS}", *names),
        )

    def paths(self) -> Sequence[Path]:
        """Return the files that gRPC is given."""
        pair = (self.certificate, self.key)
        return pair if self.authority is None else (*pair, self.authority)


class TlsSource:
    """The current content of a server's files, for one server.

    Raises:
        ValueError, OSError: a file is missing or is not what it should be; the text names it.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._changing = ChangingFiles("TLS files", files.paths(), self._read)

    def credentials(self) -> Any:
        """Return credentials for a gRPC server, which asks for the files at each handshake."""
        import grpc  # type: ignore[import-untyped]

        # gRPC calls `renew` at each handshake in one of its threads, and never takes a
        # configuration twice. Of a pair that is being renewed, one half may be there already.
        return grpc.dynamic_ssl_server_credentials(
            self._changing.content, self._changing.renew, self._files.with_client_auth
        )

    def remarks(self) -> list[str]:
        """Return a line for each certificate that is no longer good, or not for long."""
        files = self._files
        lines = []
        end = _end_of_pair(files.certificate, files.key)
        if isinstance(end, str):
            lines.append(f"TLS certificate {files.certificate}: {end}; {_ADVICE}")
        elif end - time.time() < _SOON_S:
            lines.append(f"TLS certificate {files.certificate}: ends on {_day(end)}; {_ADVICE}")
        if files.authority is not None:
            end_s = _end_of_authority(files.authority)
            if end_s - time.time() < _SOON_S:
                verb = "ended" if end_s < time.time() else "ends"
                lines.append(f"TLS authority {files.authority}: {verb} on {_day(end_s)}; {_ADVICE}")
        return lines

    def _read(self) -> Any:
        import grpc

        files = self._files
        _check_pair(files.certificate, files.key)
        authority = None
        if files.authority is not None:
            _end_of_authority(files.authority)
            authority = files.authority.read_bytes()
        pair = (files.key.read_bytes(), files.certificate.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], authority)


class _EncryptedKeyError(Exception):
    """The error for a key whose passphrase OpenSSL asks for."""


def _no_password() -> str:
    raise _EncryptedKeyError


def _check_pair(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a server's context with the pair. Raise `ValueError`, or `OSError` with the file."""
    for path in (certificate, key):
        # OpenSSL does not say which of both it could not read.
        path.open("rb").close()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # An encrypted key would make OpenSSL ask on the terminal.
        context.load_cert_chain(certificate, key, password=_no_password)
    except _EncryptedKeyError:
        raise ValueError(f"TLS key {key}: is encrypted; give one without a passphrase") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(
                f"TLS key {key}: does not belong to the certificate {certificate};"
                " give the pair that belongs together"
            ) from None
        raise ValueError(
            f"TLS certificate {certificate}, key {key}: not a certificate and its key in PEM form"
        ) from None
    return context


def _end_of_authority(path: Path) -> float:
    """Return the time at which the last of the authority's certificates ends, in s since 1970."""
    path.open("rb").close()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise ValueError(f"TLS authority {path}: holds no certificate in PEM form") from None
    ends = [ssl.cert_time_to_seconds(str(ca["notAfter"])) for ca in context.get_ca_certs()]
    # A client's own certificate may stand for the authority; Python tells nothing about it.
    return max(ends, default=math.inf)


def _end_of_pair(certificate: Path, key: Path) -> float | str:
    """Return the time at which a certificate ends, or why it is not valid now.

    Python decodes only a certificate that a peer has shown, so one is shown in memory, to a client
    that trusts exactly this one.
    """
    server = _check_pair(certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    to_server = ssl.MemoryBIO()
    to_client = ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server)
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_FLIGHTS):
        for side in (client_side, server_side):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    decoded = client_side.getpeercert()
    if not decoded:
        return "cannot be shown in a handshake"
    return ssl.cert_time_to_seconds(str(decoded["notAfter"]))


def _day(time_s: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(time_s))
