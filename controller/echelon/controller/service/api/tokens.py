"""Bearer tokens and their roles.

```yaml
tokens:
  - name: ci            # what the access log calls it
    role: operator      # or read-only, or agent
    sha256: 5e88...     # of the token; only its owner has the token itself
    limits: {requests_per_s: 20, jobs: 50, flows: 20000, body: 100 kB}  # default: the service's
```

`echelon token` makes a token with its entry. A token has 256 random bits, so one round of SHA-256
protects it: a slower hash protects secrets that can be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from echelon.model.documents import (
    Count,
    DocumentError,
    Name,
    Section,
    Size,
    parse_document,
    problem,
    read_document,
)
from echelon.model.quantities import QuantityError

log = logging.getLogger("echelon.api")

Role = Literal["read-only", "agent", "operator"]
"""The right of a token.

read-only: may look. agent: may report connections and iterations of jobs, and ask for what that
takes. operator: may look and change things.
"""

PREFIX = "echelon_"
"""Prefix of every token, so that scanners for leaked secrets can recognise one."""
_SHA256 = re.compile("[0-9A-Fa-f]{64}")
CHECK_INTERVAL_S = 1.0
"""Maximum time until a changed tokens file is noticed, at the next request."""


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _sha256(value: object) -> str:
    if isinstance(value, str) and _SHA256.fullmatch(value):
        return value.lower()
    # The text in place of a digest may be a token, so it is not repeated.
    raise QuantityError(
        "is not a SHA-256 in 64 hexadecimal digits, in quotes (make an entry with 'echelon token')"
    )


class TokenLimits(Section):
    """The limits of one token, beside those of the service; None: no limit."""

    requests_per_s: Annotated[Count | None, Field(description="the most requests in a second")] = (
        None
    )
    jobs: Annotated[
        Count | None, Field(description="the most jobs that the token has registered")
    ] = None
    flows: Annotated[Count | None, Field(description="the most flows of these jobs together")] = (
        None
    )
    body: Annotated[
        Size | None, Field(description="the size of the largest request, as 100 kB")
    ] = None


class TokenSpec(Section):
    name: Annotated[Name, Field(description="a name for the token, for the access log")]
    role: Annotated[Role, Field(description="'read-only', 'agent' or 'operator'")]
    sha256: Annotated[
        str,
        PlainValidator(_sha256),
        WithJsonSchema({"type": "string", "pattern": "^[0-9A-Fa-f]{64}$"}),
        Field(description="the token's SHA-256, as 'echelon token' prints it"),
    ]
    only_jobs: Annotated[
        tuple[Name, ...] | None,
        Field(
            min_length=1,
            max_length=1000,
            description="the jobs of an agent's token",
        ),
    ] = None
    """The jobs of which an agent may report. Default: all."""
    limits: TokenLimits = TokenLimits()
    """The limits of this token. Default: those of the service."""

    @model_validator(mode="after")
    def _check_jobs(self) -> TokenSpec:
        if self.only_jobs is not None and self.role != "agent":
            reason = f"does not limit the role {self.role} (give the role agent, or leave it out)"
            raise problem(reason, "only_jobs", code="conflicting-key")
        return self


class TokensSpec(Section):
    """The tokens file."""

    tokens: Annotated[
        tuple[TokenSpec, ...],
        Field(
            min_length=1,
            max_length=1000,
            description="the tokens, as 'echelon token' prints them",
        ),
    ]

    @model_validator(mode="after")
    def _check(self) -> TokensSpec:
        for key in ("name", "sha256"):
            seen: dict[str, int] = {}
            for index, token in enumerate(self.tokens):
                value = getattr(token, key)
                first = seen.setdefault(value, index)
                if first != index:
                    reason = f"is also that of tokens[{first}] (give each token its own)"
                    raise problem(reason, "tokens", index, key, code="duplicate")
        return self


NO_LIMITS = TokenLimits()


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller."""

    token: str | None
    """The token's name; None: no tokens are configured."""
    role: Role
    limits: TokenLimits = NO_LIMITS
    only_jobs: frozenset[str] | None = None
    """The jobs of which an agent may report; None: all."""


class Authenticator(Protocol):
    def authenticate(self, token: str) -> Principal | None:
        """Return the client whose token that is; None if it is not valid."""


class Tokens:
    """A fixed set of tokens, known by their hashes."""

    def __init__(self, specs: Iterable[TokenSpec]) -> None:
        self._principals: list[tuple[bytes, Principal]] = []
        for spec in specs:
            sha256 = bytes.fromhex(spec.sha256)
            self._principals.append((sha256, _principal(spec)))

    def authenticate(self, token: str) -> Principal | None:
        presented = bytes.fromhex(digest(token))
        caller: Principal | None = None
        # All are compared, each in constant time, so that the duration does not reveal which one
        # was close.
        for valid, principal in self._principals:
            if hmac.compare_digest(valid, presented):
                caller = principal
        return caller


def _principal(spec: TokenSpec) -> Principal:
    only_jobs = None
    if spec.only_jobs is not None:
        only_jobs = frozenset(spec.only_jobs)
    return Principal(spec.name, spec.role, spec.limits, only_jobs)


def load_tokens(path: str | Path) -> TokensSpec:
    """Load the tokens file at `path`.

    Raise `DocumentError`, also for a file that everybody may write to.
    """
    spec = parse_document(TokensSpec, read_document(path), str(path))
    if Path(path).stat().st_mode & stat.S_IWOTH:
        reason = f"can be written by every user of this machine (chmod o-w {path})"
        raise DocumentError(str(path), "", reason)
    return spec


class TokensFile:
    """The tokens of a file, read again when it changes.

    A faulty change is logged, and the former tokens stay in force.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file. Raise `DocumentError` if it is faulty now."""
        self._path = path
        self._clock = clock
        self._version = _version(path)
        self._tokens = Tokens(load_tokens(path).tokens)
        self._checked_at = clock()

    def authenticate(self, token: str) -> Principal | None:
        self._refresh()
        return self._tokens.authenticate(token)

    def _refresh(self) -> None:
        if self._clock() - self._checked_at >= CHECK_INTERVAL_S:
            self.reload()

    def reload(self) -> None:
        """Read the file now, if it has changed."""
        self._checked_at = self._clock()
        version = _version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            specs = load_tokens(self._path).tokens
        except (DocumentError, OSError) as error:
            event = "the changed tokens file is faulty, the former tokens remain valid: %s"
            log.error(event, error)
            return
        self._tokens = Tokens(specs)
        log.info("read %s again: %d tokens", self._path, len(specs))


def _version(path: Path) -> tuple[int, int, int] | None:
    """Return a value that differs whenever the file was written or replaced; None: it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


@dataclass(frozen=True, slots=True)
class NewToken:
    token: str
    """The token, for its owner; it is shown once and stored nowhere."""
    entry: str
    """YAML for the tokens file: an item of its list `tokens`."""

    def __repr__(self) -> str:
        return "NewToken(...)"


def new_token(
    name: str,
    role: Role,
    only_jobs: Sequence[str] = (),
) -> NewToken:
    """Make a random token with its entry. Raise `DocumentError` for what the file would refuse."""
    token = PREFIX + secrets.token_urlsafe(32)
    document: dict[str, object] = {"name": name, "role": role, "sha256": digest(token)}
    jobs = ""
    if only_jobs:
        document["only_jobs"] = list(only_jobs)
        jobs = f", only_jobs: [{', '.join(only_jobs)}]"
    spec = parse_document(TokenSpec, document, "token")
    entry = f'  - {{name: "{spec.name}", role: {spec.role}, sha256: "{spec.sha256}"{jobs}}}\n'
    return NewToken(token, entry)
