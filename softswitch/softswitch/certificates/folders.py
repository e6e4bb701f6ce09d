"""The folders of certificates: one for each switch and each client, and that of the authority.

The folder of a switch or client is all that its machine needs, and no machine needs another one.
What is still good is kept, so that whoever runs it again and again renews what ends soon, and
nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from softswitch.certificates import AUTHORITY_FOLDER
from softswitch.certificates.issuing import (
    Credential,
    Wanted,
    issue,
    new_authority,
    read_credential,
)
from softswitch.rpc.tls import AUTHORITY, CERTIFICATE, CLIENTS, KEY

__all__ = ["Outcome", "keep"]

_FIRST_CLIENT = "controller"
"""The client if none is asked for and there is none."""

_RENEW_BEFORE = timedelta(days=60)
"""The time before its end at which a certificate is renewed, or a third of its life if shorter.

Whoever renews each month then has a second chance.
"""

_SECRET = 0o600
_PUBLIC = 0o644


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one folder."""

    name: str
    folder: Path
    action: str
    """The action that was taken, and why."""
    end: datetime
    hosts: tuple[str, ...]
    is_server: bool


def keep(
    out: Path,
    servers: Mapping[str, tuple[str, ...]],
    clients: Sequence[str],
    days: float,
    now: datetime | None = None,
) -> tuple[Outcome, list[Outcome]]:
    """Make or renew all certificates below a folder; return the authority's, and the others.

    Those that are there already are renewed, too, whether or not they are among `servers` (names
    and hosts) and `clients`.

    Raises:
        ValueError: a name is taken by the other kind, or a file is not what was written.
        OSError: a file cannot be read or written.
    """
    moment = now or datetime.now(UTC)
    out.mkdir(parents=True, exist_ok=True)
    authority, outcome = _authority(out / AUTHORITY_FOLDER, moment)

    present = dict(_present(out))
    wanted = _all_wanted(out, present, servers, clients)
    names = [each.name for each in wanted if not each.is_server]
    outcomes = []
    for each in wanted:
        folder = out / each.name
        pair = present.get(each.name)
        reason = _reason(pair, each, authority, moment)
        if pair is None or reason is not None:
            pair = issue(authority, each, moment, days)
            _write(folder / KEY, pair.key_pem, _SECRET)
            _write(folder / CERTIFICATE, pair.certificate_pem, _PUBLIC)
        _write(folder / AUTHORITY, authority.certificate_pem, _PUBLIC)
        if each.is_server and _write(folder / CLIENTS, _clients(names), _PUBLIC):
            reason = reason or "kept, with other clients"
        action = reason or "kept"
        outcomes.append(Outcome(each.name, folder, action, pair.end, each.hosts, each.is_server))
    return outcome, outcomes


def _all_wanted(
    out: Path,
    present: Mapping[str, Credential],
    servers: Mapping[str, tuple[str, ...]],
    clients: Sequence[str],
) -> list[Wanted]:
    """Return what is wanted, present and new, clients first, each kind by name."""
    wanted = {name: Wanted(name, pair.hosts, pair.is_server) for name, pair in present.items()}
    if not clients and all(each.is_server for each in wanted.values()):
        clients = [_FIRST_CLIENT]
    asked = [Wanted(name, hosts, is_server=True) for name, hosts in servers.items()]
    asked += [Wanted(name, (name,), is_server=False) for name in clients]
    for each in asked:
        earlier = wanted.get(each.name, each)
        if earlier.is_server != each.is_server:
            kind = "switch" if earlier.is_server else "client"
            raise ValueError(f"{out / each.name}: is that of a {kind}; choose another name")
        wanted[each.name] = each
    return sorted(wanted.values(), key=_rank)


def _rank(wanted: Wanted) -> tuple[bool, str]:
    return wanted.is_server, wanted.name


def _authority(folder: Path, now: datetime) -> tuple[Credential, Outcome]:
    action = "kept"
    authority = _read(folder)
    if authority is None:
        action = "made"
        authority = new_authority("switches", now)
        _write(folder / KEY, authority.key_pem, _SECRET)
        _write(folder / CERTIFICATE, authority.certificate_pem, _PUBLIC)
    elif authority.end <= now:
        raise ValueError(
            f"{folder}: the authority ended on {authority.end:%Y-%m-%d}; begin anew with another"
            " --out, and bring its folders to all machines"
        )
    return authority, Outcome(AUTHORITY_FOLDER, folder, action, authority.end, (), False)


def _present(out: Path) -> Iterator[tuple[str, Credential]]:
    for certificate in sorted(out.glob(f"*/{CERTIFICATE}")):
        folder = certificate.parent
        if folder.name == AUTHORITY_FOLDER:
            continue
        pair = _read(folder)
        if pair is not None:
            yield folder.name, pair


def _read(folder: Path) -> Credential | None:
    """Return the pair in a folder; None if there is none, or only half of one."""
    try:
        certificate = (folder / CERTIFICATE).read_bytes()
        key = (folder / KEY).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return read_credential(certificate, key)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder}: {error}; move it away, and run this again") from None


def _reason(
    pair: Credential | None,
    wanted: Wanted,
    authority: Credential,
    now: datetime,
) -> str | None:
    """Return why a certificate has to be made; None if the present one is good."""
    if pair is None:
        return "made"
    if not pair.is_signed_by(authority):
        return "renewed, since another authority had signed it"
    if set(pair.hosts) != set(wanted.hosts):
        return f"renewed, since it was for {', '.join(pair.hosts)}"
    length = pair.end - pair.certificate.not_valid_before_utc
    if pair.end - now < min(_RENEW_BEFORE, length / 3):
        verb = "ended" if pair.end <= now else "would have ended"
        return f"renewed, since it {verb} on {pair.end:%Y-%m-%d}"
    return None


def _clients(names: Iterable[str]) -> bytes:
    lines = "".join(f"{name}\n" for name in names)
    return f"# The clients that may call this switch, one a line.\n{lines}".encode()


def _write(path: Path, content: bytes, mode: int) -> bool:
    """Write a file as a whole, unless it has that content; return whether it was another one.

    A reader never sees half of it, and nobody else ever sees a key.
    """
    try:
        if path.read_bytes() == content:
            path.chmod(mode)
            return False
        is_other = True
    except FileNotFoundError:
        is_other = False
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
    new.replace(path)
    return is_other
