"""The keys of the service's configuration file, each checked alone.

`echelon.controller.service.config` says what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import quote, unquote

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PlainValidator,
    SecretStr,
    WithJsonSchema,
    model_validator,
)

from echelon.controller.service.store import stores
from echelon.model.documents import (
    Count,
    Duration,
    Name,
    PositiveDuration,
    Section,
    Size,
    problem,
    suggestion,
)
from echelon.model.extras import plug_in
from echelon.model.quantities import excerpt
from echelon.planning.policies import PolicyChoiceError, parse_parameters
from echelon.switches.targets import DEFAULT_TARGET

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

MIN_LEASE_S = 1
MAX_LEASE_S = 3600
MAX_COALESCE_S = 10


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Either `host` and `port`, or the `path` of a Unix socket."""

    host: str | None
    port: int
    """The port; 0: any free one."""
    path: Path | None

    def __str__(self) -> str:
        if self.host is None:
            return f"unix:{self.path}"
        if ":" in self.host:
            return f"[{self.host}]:{self.port}"
        return f"{self.host}:{self.port}"


def store_url(text: str, directory: Path) -> str:
    """Return the store's URL `text` with its files absolute.

    A URL without ``//`` names a file below `directory`, and so do the parameters ``?ca=``,
    ``certificate=``, ``key=`` and ``password_file=``. Raise `ValueError` for a URL of no known kind
    of store.
    """
    match = _STORE.fullmatch(text)
    if match is None:
        # The text itself may hold a password.
        raise ValueError(
            "is not the URL of a store (write it as sqlite:state.db or etcd://host:2379/name)"
        )
    scheme = match["scheme"]
    if scheme not in stores():
        hint = plug_in("echelon.stores", scheme)
        if not hint:
            hint = f"there is no kind of store '{scheme}' ({suggestion(scheme, stores())})"
        raise ValueError(hint)

    base = directory.absolute()
    rest = match["rest"]
    if not rest.startswith("//"):
        rest = f"//{base / rest}"

    def make_absolute(parameter: re.Match[str]) -> str:
        file = base / unquote(parameter["file"])
        return f"{parameter['key']}{quote(str(file))}"

    return f"{scheme}:{_FILE_PARAMETER.sub(make_absolute, rest)}"


_FILE_PARAMETER = re.compile(r"(?P<key>[?&](?:ca|certificate|key|password_file)=)(?P<file>[^&]+)")
_STORE = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):(?P<rest>\S.*)")
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]{1,5})")
_UNIX = "unix:"
_DEFAULT_STORE = SecretStr("sqlite:state.db")


def _endpoint(
    value: object,
    example: str,
    lowest_port: int,
) -> tuple[str, int]:
    """Return host and port in ``host:port``. Raise `ValueError`."""
    # Unquoted, YAML reads some of these as numbers to the base 60.
    text = value if isinstance(value, str) else ""
    match = _ADDRESS.fullmatch(text)
    if match is not None:
        port = int(match["port"])
        if lowest_port <= port <= 65535:
            return match["host"].strip("[]"), port
    raise ValueError(f'{excerpt(value)} is not an address (write it in quotes, as "{example}")')


def _address(value: object) -> str:
    _endpoint(value, "10.0.0.7:9559", 1)
    return str(value)


def _listen(value: object) -> ListenAddress:
    if isinstance(value, str) and value.startswith(_UNIX):
        path = value.removeprefix(_UNIX)
        if not path.strip():
            raise ValueError("does not name a socket (write it as unix:/run/echelon/api.sock)")
        return ListenAddress(None, 0, Path(path))
    host, port = _endpoint(value, "127.0.0.1:8080", 0)
    return ListenAddress(host, port, None)


def _url(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/@]+/?", value):
        raise ValueError(
            f"{excerpt(value)} is not the URL of a controller (write it as https://ctl1:8080)"
        )
    return value.rstrip("/")


def _store(value: object) -> SecretStr:
    if not isinstance(value, str):
        raise ValueError(
            f"{excerpt(value)} is not the URL of a store (write it as sqlite:state.db)"
        )
    store_url(value, Path())
    return SecretStr(value)


def _file(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError(f"{excerpt(value)} is not a path (write the name of a file)")
    return value


def _policy(value: object) -> object:
    """Turn a bare name into a mapping."""
    if isinstance(value, str):
        return {"name": value}
    return value


def _text_values(value: object) -> object:
    """Turn the numbers among a mapping's values into text."""
    if not isinstance(value, Mapping):
        return value
    texts = {}
    for key, setting in value.items():
        is_plain = isinstance(setting, str | int | float) and not isinstance(setting, bool)
        if not is_plain:
            raise problem(f"{excerpt(setting)} is not a value (write text or a number)", str(key))
        texts[key] = str(setting)
    return texts


_TEXT = WithJsonSchema({"type": "string"})

FilePath = Annotated[str, PlainValidator(_file), _TEXT]
"""The value as the file has it."""
Address = Annotated[
    str,
    PlainValidator(_address),
    WithJsonSchema({"type": "string", "examples": ["127.0.0.1:9559"]}),
]
Url = Annotated[str, PlainValidator(_url), WithJsonSchema({"type": "string", "format": "uri"})]
Listen = Annotated[ListenAddress, PlainValidator(_listen), _TEXT]
StoreUrl = Annotated[SecretStr, PlainValidator(_store), _TEXT]
Truth = Annotated[bool, Field(strict=True)]


class PolicySpec(Section):
    name: Annotated[
        str,
        Field(
            strict=True,
            description="the policy, e.g. echelon",
        ),
    ] = "echelon"
    parameters: Annotated[dict[str, str], BeforeValidator(_text_values)] = Field(
        default_factory=dict
    )
    """The policy's parameters by name."""
    reroute: Literal["auto", "manual"] = "auto"
    """auto: plans lead around switches that do not answer and ports that are down."""
    reroute_after: PositiveDuration = Fraction(2)
    """The time after which they are taken to be down."""

    @model_validator(mode="after")
    def _check(self) -> PolicySpec:
        try:
            parse_parameters(self.name, self.parameters)
        except PolicyChoiceError as error:
            path = ("parameters", error.parameter) if error.parameter else ()
            raise problem(error.reason, *path, code=error.code) from None
        return self


class TlsSpec(Section):
    ca: FilePath | None = None
    """The file of certificates that sign those of the switches."""
    certificate: FilePath | None = None
    """The file of the controller's own certificate."""
    key: FilePath | None = None
    """The file of its private key."""

    @model_validator(mode="after")
    def _check(self) -> TlsSpec:
        if self.certificate is not None and self.key is None:
            raise problem("is missing (it goes with 'certificate')", "key", code="missing-key")
        if self.key is not None and self.certificate is None:
            raise problem("is missing (it goes with 'key')", "certificate", code="missing-key")
        return self


class SwitchEntrySpec(Section):
    """The keys that the switches of every target have."""

    address: Annotated[Address | None, Field(description="host:port of its P4Runtime service")] = (
        None
    )
    """Only switches that are configured by other means may lack it."""
    target: Annotated[str, Field(strict=True)] = DEFAULT_TARGET
    """The kind of switch."""
    tls: TlsSpec | None = None
    """Replaces the common one; null: none."""


class ServerTlsSpec(Section):
    certificate: Annotated[FilePath, Field(description="the file of the server's certificate")]
    key: Annotated[FilePath, Field(description="the file of its private key")]
    client_ca: FilePath | None = None
    """The file of certificates that sign those of clients. Default: clients need none."""


class ApiSpec(Section):
    listen: Listen = ListenAddress("127.0.0.1", 8080, None)
    """host:port, or unix:PATH; port 0: any free one."""
    advertise: Url | None = None
    """The URL that a standby answers clients. Default: made from `listen`."""
    tokens: FilePath | None = None
    """The tokens file. Default: none, which only a listener on this machine may have."""
    tls: ServerTlsSpec | None = None
    """Serves HTTPS. Default: HTTP."""
    metrics: Literal["token", "open"] = "token"
    """open: /metrics answers without a token."""


class LimitsSpec(Section):
    jobs: Count = 1000
    """The most jobs that are registered."""
    flows_per_job: Count = 10_000
    """The most flows of an iteration."""
    body: Size = 10**6
    """The size of the largest request."""
    connections: Count = 1000
    """The most connections of clients."""
    connections_per_address: Count = 200
    """The most connections from one IPv4 address or IPv6 /64 network."""


class TelemetrySpec(Section):
    correct_sizes: Truth = False
    """Replace sizes of job files by what agents measured."""

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_former_keys(cls, data: object, validate: ModelWrapValidatorHandler[Self]) -> Self:
        # It would be taken for a misspelt 'correct_sizes'.
        if isinstance(data, Mapping) and "correct_distances" in data:
            reason = (
                "is gone: it gained nothing, because switches tolerate wrong profiles (remove it)"
            )
            raise problem(reason, "correct_distances", code="unknown-key")
        return validate(data)


class MovesSpec(Section):
    command: tuple[Annotated[str, Field(strict=True, min_length=1)], ...] = ()
    """The program that moves links, and its arguments (`echelon.controller.service.moving`).

    Default: a person moves them.
    """
    drain: Duration = Fraction(2)
    """The longest wait for packets on their way over links that go."""


class LogSpec(Section):
    format: LogFormat | None = None
    """Default: text on a terminal, else json."""
    level: LogLevel = "info"
    """The least severe records that are written."""


class ServiceSpec(Section):
    """The configuration as its file has it, checked without fabric and targets."""

    service: Annotated[Name, Field(description="a name for the service")]
    fabric: Annotated[FilePath, Field(description="the path of the fabric's file")]
    switches: Annotated[
        dict[Name, dict[str, object]],
        Field(description='the switches of the fabric, as {s1: {address: "127.0.0.1:9559"}}'),
    ]
    policy: Annotated[PolicySpec, BeforeValidator(_policy)] = PolicySpec()
    """The policy of the first start, by name or with `parameters`; what is done if links fail."""
    store: StoreUrl = _DEFAULT_STORE
    """sqlite:PATH or etcd://HOST:PORT/NAME."""
    tls: TlsSpec | None = None
    """The TLS files for the sessions with switches. Default: none."""
    api: ApiSpec = ApiSpec()
    """The REST API."""
    audit: PositiveDuration = Fraction(30)
    """The time between two comparisons of each switch with its intent."""
    lease: PositiveDuration = Fraction(5)
    """The time after which a silent leader is replaced (etcd) or reported (sqlite)."""
    limits: LimitsSpec = LimitsSpec()
    """The limits of what clients may ask for."""
    coalesce: Duration = Fraction(5, 1000)
    """Changes within this time become one plan."""
    telemetry: TelemetrySpec = TelemetrySpec()
    """The use of the reports of switches."""
    moves: MovesSpec = MovesSpec()
    """The move of links from port to port."""
    log: LogSpec = LogSpec()
    """The log on standard error."""

    @model_validator(mode="after")
    def _check(self) -> ServiceSpec:
        if not MIN_LEASE_S <= self.lease <= MAX_LEASE_S:
            reason = f"is not between {MIN_LEASE_S} s and {MAX_LEASE_S} s (5 s is a good choice)"
            raise problem(reason, "lease", code="out-of-range")
        if self.coalesce > MAX_COALESCE_S:
            reason = f"is more than {MAX_COALESCE_S} s (5 ms is a good choice)"
            raise problem(reason, "coalesce", code="too-large")
        return self
