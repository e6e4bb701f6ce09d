"""TLS and mutual TLS to switches.

Files are checked before gRPC sees them, since gRPC only says that it could not connect.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.model.errors import Code, CodedError

if TYPE_CHECKING:
    from finsy import GRPCCredentialsTLS


class TlsError(CodedError):
    """The error for a file that is missing or not what it should be; the text names it."""

    code: Code = "tls"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of a client of switches. Nothing is read before `credentials`."""

    ca: Path | None = None
    """The authority that signed the switch's certificate; None: any that gRPC trusts by itself."""
    certificate: Path | None = None
    """The client's certificate, for switches that ask for one; with `key`, or neither."""
    key: Path | None = None

    def credentials(self) -> GRPCCredentialsTLS:
        """Return credentials for finsy, and by `to_client_credentials` for gRPC. Raise `TlsError`.

        Each call reads the files anew, so that the next session takes files that were renewed.
        """
        from finsy import GRPCCredentialsTLS

        authority = _read("authority", self.ca)
        certificate = _read("certificate", self.certificate)
        key = _read("key", self.key)
        self._check()
        return GRPCCredentialsTLS(
            cacert=authority,
            cert=certificate,
            private_key=key,
        )

    def _check(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca is not None:
            try:
                context.load_verify_locations(self.ca)
            except ssl.SSLError:
                raise TlsError(
                    f"TLS authority {self.ca}: holds no certificate in PEM form"
                ) from None
        if self.certificate is None or self.key is None:
            return
        try:
            # An encrypted key would make OpenSSL ask on the terminal.
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except _EncryptedKeyError:
            raise TlsError(
                f"TLS key {self.key}: is encrypted; give one without a passphrase"
            ) from None
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                reason = f"does not belong to the certificate {self.certificate}"
                raise TlsError(
                    f"TLS key {self.key}: {reason}; give the pair that belongs together"
                ) from None
            raise TlsError(
                f"TLS certificate {self.certificate}, key {self.key}:"
                " not a certificate and its key in PEM form"
            ) from None


_NO_CONNECTION = "failed to connect to all addresses"
_MEANINGS = {
    "certificate has expired": "the switch's certificate has expired; renew it at the switch",
    "VERIFY_FAILED": (
        "another authority than {tls.ca} has signed the switch's certificate; give the one that has"
    ),
    "Hostname": "the switch's certificate is not for this address; make one that is",
    "WRONG_VERSION": "the switch speaks no TLS; start it with TLS, or leave out tls",
}
"""The meanings of parts of gRPC's texts, the more exact ones first."""


def explained(problem: str, tls: TlsFiles | None) -> str:
    """Return a switch's problem with what it means, where gRPC has failed to connect."""
    start, failed, reason = problem.partition(_NO_CONNECTION)
    if not failed:
        return problem
    for sign, meaning in _MEANINGS.items():
        if sign in reason:
            return start + meaning.format(tls=tls)
    if "losed" not in reason and "reset" not in reason:
        return problem
    # A server with TLS that does not take a client's certificate closes without a word.
    if tls is None:
        return f"{start}the switch closes the connection; it may demand TLS (give tls)"
    if tls.certificate is None:
        return f"{start}the switch may demand a certificate (give tls.certificate and tls.key)"
    return (
        f"{start}the switch refuses the certificate {tls.certificate}: it has expired, or another"
        " authority has signed it than the switch asks for; renew it there or here"
    )


class _EncryptedKeyError(Exception):
    """The error for a key whose passphrase OpenSSL asks for."""


def _no_password() -> str:
    raise _EncryptedKeyError


def _read(role: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsError(
            f"TLS {role} {path}: {error.strerror}; check the path and its permissions"
        ) from None
