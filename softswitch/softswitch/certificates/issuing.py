"""Keys and certificates: an authority of its own, and certificates for servers and clients.

Keys are on the curve P-256, which every TLS library takes. A server's certificate is not accepted
as a client's: whoever takes over a switch cannot give orders to the others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from softswitch.certificates import AUTHORITY_DAYS

__all__ = ["Credential", "Wanted", "issue", "new_authority", "read_credential"]

_SKEW = timedelta(hours=1)
"""The time by which a clock may be behind that of the machine that makes certificates."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def end(self) -> datetime:
        return self.certificate.not_valid_after_utc

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    @property
    def is_server(self) -> bool:
        usage = self.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        return ExtendedKeyUsageOID.SERVER_AUTH in usage.value

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses and names of machines that it is for."""
        names = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        hosts = []
        for name in names.value:
            hosts.append(str(name.value))
        return tuple(hosts)

    def is_signed_by(self, authority: Credential) -> bool:
        try:
            self.certificate.verify_directly_issued_by(authority.certificate)
        except (InvalidSignature, TypeError, ValueError):
            # The last two: it names another issuer, or its key is of another kind.
            return False
        return True


@dataclass(frozen=True, slots=True)
class Wanted:
    """A certificate as it is wanted."""

    name: str
    hosts: tuple[str, ...]
    """The addresses and names of a server's machine; of a client, its name."""
    is_server: bool


def new_authority(name: str, now: datetime) -> Credential:
    """Return an authority that signs its own certificate."""
    key = _new_key()
    subject = _subject(name)
    builder = _builder(subject, subject, key, now, timedelta(days=AUTHORITY_DAYS))
    # Python 3.13 refuses an authority without key usage.
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    builder = builder.add_extension(constraints, critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return Credential(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: Credential,
    wanted: Wanted,
    now: datetime,
    days: float,
) -> Credential:
    """Return a certificate that the authority has signed. It ends with the authority at latest."""
    key = _new_key()
    issuer = authority.certificate
    length = min(timedelta(days=days), authority.end - now)
    builder = _builder(_subject(wanted.name), issuer.subject, key, now, length)
    if wanted.is_server:
        purpose = ExtendedKeyUsageOID.SERVER_AUTH
    else:
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    names = x509.SubjectAlternativeName(list(_names(wanted.hosts)))
    constraints = x509.BasicConstraints(ca=False, path_length=None)
    builder = builder.add_extension(constraints, critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(signer, critical=False)
    return Credential(builder.sign(authority.key, hashes.SHA256()), key)


def read_credential(certificate: bytes, key: bytes) -> Credential:
    """Return a pair from PEM. Raise ValueError if it is not a pair as `issue` makes them."""
    leaf = x509.load_pem_x509_certificate(certificate)
    secret = serialization.load_pem_private_key(key, password=None)
    if not isinstance(secret, ec.EllipticCurvePrivateKey):
        raise ValueError("its key is not one of an elliptic curve")
    if secret.public_key() != leaf.public_key():
        raise ValueError("its key does not belong to its certificate")
    return Credential(leaf, secret)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    length: timedelta,
) -> x509.CertificateBuilder:
    public = key.public_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    builder = x509.CertificateBuilder(issuer, subject, public)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _SKEW)
    builder = builder.not_valid_after(now + length)
    return builder.add_extension(identifier, critical=False)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _names(hosts: Iterable[str]) -> Iterable[x509.GeneralName]:
    for host in hosts:
        try:
            yield x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            yield x509.DNSName(host)
