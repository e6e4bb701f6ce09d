"""The credentials of a client: its token, its certificate, and the authorities that it trusts."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from pydantic import SecretStr

from echelon.controller.client.errors import ClientError

TOKEN_FILE_VARIABLE = "ECHELON_TOKEN_FILE"
MAX_TOKEN_LINE = 4096
"""Characters of the first line of a token's file that are read; a token has far fewer."""

Certificate = str | Path | tuple[str | Path, str | Path]
"""A file with a certificate and its key, or a pair of files."""


def client_context(ca: str | Path | None, certificate: Certificate | None) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or later. Raise `ClientError`.

    `ca` must have signed the server's certificate (None: the system's authorities); `certificate`
    is the client's own, with its key, in one file or as a pair of files.
    """
    certificate_file: str | Path | None
    key_file: str | Path | None = None
    if isinstance(certificate, tuple):
        certificate_file, key_file = certificate
    else:
        certificate_file = certificate
    for path in (ca, certificate_file, key_file):
        if path is not None:
            _check_readable(path)
    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise ClientError(
            None, f"{ca} does not hold certificates in PEM form (correct the file)"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate_file is not None:
        _load_certificate(context, certificate_file, key_file)
    return context


def _load_certificate(
    context: ssl.SSLContext,
    certificate_file: str | Path,
    key_file: str | Path | None,
) -> None:
    try:
        context.load_cert_chain(certificate_file, key_file, password=_no_password)
    except (ssl.SSLError, PermissionError):
        if key_file is None:
            names = str(certificate_file)
        else:
            names = f"{certificate_file} and {key_file}"
        reason = (
            f"{names} do not hold a certificate and its unencrypted key in PEM form (correct the"
            " files)"
        )
        raise ClientError(None, reason) from None


def _no_password() -> str:
    # Without this OpenSSL would ask for the password of an encrypted key on the terminal.
    raise PermissionError


def _check_readable(path: str | Path) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise ClientError(None, f"{path}: {error.strerror or error} (check the path)") from None


def token_from_environment() -> SecretStr | None:
    """Return the token in the file that ECHELON_TOKEN_FILE names, if it names one."""
    file = os.environ.get(TOKEN_FILE_VARIABLE)
    if file:
        return read_token(file)
    return None


def read_token(path: str | Path) -> SecretStr:
    """Return the token in the first line of the file at `path`.

    Raise `ClientError` if it has none.
    """
    try:
        with Path(path).open(encoding="ascii") as stream:
            line = stream.readline(MAX_TOKEN_LINE).strip()
    except OSError as error:
        raise ClientError(
            None, f"{path}: {error.strerror or error} (check the path of the token's file)"
        ) from None
    except UnicodeDecodeError:
        raise ClientError(
            None, f"{path} does not hold a token in its first line (check the path)"
        ) from None
    if not line:
        raise ClientError(None, f"{path} is empty (write the token into its first line)")
    return checked_token(line, str(path))


def checked_token(token: str | SecretStr, source: str = "the token") -> SecretStr:
    """Return a token. Raise `ClientError` if it does not fit into a header."""
    secret = token if isinstance(token, SecretStr) else SecretStr(token)
    characters = secret.get_secret_value()
    if not characters or not all("!" <= character <= "~" for character in characters):
        raise ClientError(
            None,
            f"{source} has characters that tokens never contain (copy the output of 'echelon"
            " token')",
        )
    return secret
