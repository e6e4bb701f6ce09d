"""The configuration file of the service.

```yaml
service: lab                          # name, which marks its entries on switches: keep it
fabric: fabric.yaml                   # relative to this file, as every path here
policy: echelon                       # the default; or {name: echelon, parameters: {order: setf}, reroute: manual}
store: sqlite:state.db                # the default; a file next to this one, or etcd://host:2379/lab
switches:                             # every switch of the fabric
  s1: {address: "127.0.0.1:9559"}     # of its P4Runtime service; target: softswitch is the default
  s2: {address: "127.0.0.1:9560", target: bmv2, interfaces: "s2-eth{port}"}   # and what its target takes besides
tls: {ca: ca.pem, certificate: c.pem, key: k.pem}      # to the switches (default: none); a switch may have its own
api:
  listen: "127.0.0.1:8080"            # the default; or unix:/run/echelon.sock; port 0: any free one
  advertise: "https://ctl1:8080"      # what a standby answers clients (default: made from listen)
  tokens: tokens.yaml                 # default: none, which only a listener on this machine may have
  tls: {certificate: api.pem, key: api.key, client_ca: clients.pem}   # client_ca: who signs clients' certificates
  metrics: token                      # the default; or open: /metrics answers without a token
audit: 30 s                           # how often the switches are read and compared; what follows shows the defaults
lease: 5 s                            # after which a silent leader is replaced (etcd) or reported (sqlite)
limits: {jobs: 1000, flows_per_job: 10000, body: 1 MB, connections: 1000, connections_per_address: 200}
coalesce: 5 ms                        # changes within this time become one plan
telemetry: {correct_sizes: false}  # go by what agents measure (observability.md)
moves: {command: [], drain: 2 s}      # who moves links: a command, or by default a person; longest wait before
log: {format: text, level: info}      # format: text or json (default: text on a terminal, else json)
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr, create_model

from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.service.config_file import (
    ApiSpec,
    ListenAddress,
    LogSpec,
    ServiceSpec,
    SwitchEntrySpec,
    TlsSpec,
    store_url,
)
from echelon.model.documents import (
    DocumentError,
    Section,
    parse_document,
    read_document,
    suggestion,
)
from echelon.model.fabric.load import load_fabric
from echelon.model.fabric.model import Fabric, Switch
from echelon.model.quantities import excerpt
from echelon.switches.southbound.tls import TlsFiles
from echelon.switches.targets import TARGETS, Target, find_target


@dataclass(frozen=True, slots=True)
class SwitchConfig:
    name: str
    device_id: int
    """The number that the fabric gives the switch."""
    address: str
    """``host:port`` of its P4Runtime service; empty: nobody reaches it."""
    target: str
    options: Section
    """The options of the class that the target defines."""
    tls: TlsFiles | None
    """None: no TLS."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    certificate: Path
    key: Path
    client_ca: Path | None
    """Clients must present a certificate issued by this CA; None: they need no certificate."""


@dataclass(frozen=True, slots=True)
class ApiConfig:
    listen: ListenAddress
    advertise: str | None
    """URL at which others reach this controller; None: made from the address that it listens on."""
    tokens: Path | None
    tls: ServerTls | None
    open_metrics: bool
    """/metrics answers without a token."""


@dataclass(frozen=True, slots=True)
class Limits:
    jobs: int
    flows_per_job: int


@dataclass(frozen=True, slots=True)
class ApiLimits:
    body_bytes: int
    """Maximum size of a request's body, in bytes."""
    connections: int
    """Maximum number of connections to the API."""
    connections_per_address: int


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The configuration of a controller. Paths are absolute; durations are seconds."""

    file: Path
    name: str
    fabric: Fabric
    fabric_file: Path
    policy: ChosenPolicy
    """The policy in force until one is chosen through the API, which the store keeps."""
    reroute: bool
    """Whether plans avoid links that are down, which they are after `reroute_after_s`."""
    reroute_after_s: float
    store: SecretStr
    """URL; files in it are absolute."""
    switches: Mapping[str, SwitchConfig]
    """All switches of the fabric, in its order."""
    api: ApiConfig
    audit_s: float
    lease_s: float
    limits: Limits
    api_limits: ApiLimits
    coalesce_s: float
    correct_sizes: bool
    move_command: tuple[str, ...]
    """The command that moves links; empty: a person does."""
    drain_s: float
    """The longest wait for packets before links move."""
    log: LogSpec
    accept_empty: bool = False
    """Begin with an empty store even where there must have been jobs."""
    check_invariants: bool = False
    """Check the machine after each step, and end where it is faulty."""


def load_service_config(
    path: str | Path, targets: Mapping[str, Target[Any]] = TARGETS
) -> ServiceConfig:
    """Read the configuration in the YAML file `path`, with its fabric.

    Switches may be of these `targets`. Raises `DocumentError`, which names the file at fault: this
    one or the fabric's.
    """
    file = Path(path).absolute()
    directory = file.parent
    name = str(path)
    spec = parse_document(ServiceSpec, read_document(path), name)
    fabric_file = directory / spec.fabric
    if not fabric_file.is_file():
        reason = f"there is no file {excerpt(spec.fabric)} next to it (correct the path)"
        raise DocumentError(name, "fabric", reason)

    fabric = load_fabric(Path(path).parent / spec.fabric)
    _check_switches(spec.switches, fabric, name)
    tls = _tls_files(spec.tls, directory)
    reader = _SwitchReader(name, directory, fabric, targets, tls)
    switches = {}
    for switch in fabric.switches.values():
        entry = spec.switches[switch.name]
        switches[switch.name] = reader.read(switch, entry)

    policy = spec.policy
    limits = spec.limits
    return ServiceConfig(
        file=file,
        name=spec.service,
        fabric=fabric,
        fabric_file=fabric_file,
        policy=ChosenPolicy(policy.name, dict(policy.parameters)),
        reroute=policy.reroute == "auto",
        reroute_after_s=float(policy.reroute_after),
        store=_store(spec.store, directory),
        switches=switches,
        api=_api(spec.api, directory),
        audit_s=float(spec.audit),
        lease_s=float(spec.lease),
        limits=Limits(limits.jobs, limits.flows_per_job),
        api_limits=ApiLimits(limits.body, limits.connections, limits.connections_per_address),
        coalesce_s=float(spec.coalesce),
        correct_sizes=spec.telemetry.correct_sizes,
        move_command=spec.moves.command,
        drain_s=float(spec.moves.drain),
        log=spec.log,
    )


def _check_switches(
    entries: Mapping[str, object],
    fabric: Fabric,
    file: str,
) -> None:
    for name in entries:
        if name not in fabric.switches:
            hint = suggestion(name, fabric.switches)
            reason = f"is not a switch of fabric '{fabric.name}' ({hint})"
            raise DocumentError(file, f"switches.{name}", reason)
    for name in fabric.switches:
        if name not in entries:
            hint = f"add {name}: {{address: ...}}"
            reason = f"has no entry for switch '{name}' of fabric '{fabric.name}' ({hint})"
            raise DocumentError(file, "switches", reason)


def _store(url: SecretStr, directory: Path) -> SecretStr:
    return SecretStr(store_url(url.get_secret_value(), directory))


class _SwitchReader:
    """A reader of a switch's entry.

    The keys that all switches have, and those that its target adds, are one model. So an unknown
    key is compared with all that are known, and the path of a fault is right.
    """

    def __init__(
        self,
        file: str,
        directory: Path,
        fabric: Fabric,
        targets: Mapping[str, Target[Any]],
        tls: TlsFiles | None,
    ) -> None:
        self._file = file
        self._directory = directory
        self._targets = targets
        self._tls = tls
        self._ports = fabric.ports
        self._models: dict[str, type[Section]] = {}

    def read(self, switch: Switch, data: Mapping[str, object]) -> SwitchConfig:
        default = SwitchEntrySpec.model_fields["target"].default
        target_name = data.get("target", default)
        path = f"switches.{switch.name}.target"
        target = find_target(target_name, self._file, path, self._targets)

        ports = sorted(self._ports[switch.name])
        context = {"ports": tuple(ports)}
        entry = self._parse(switch.name, target, data, context)
        spec = cast(SwitchEntrySpec, entry)
        tls = self._tls
        if "tls" in data:
            tls = _tls_files(spec.tls, self._directory)
        if spec.address is None and target.needs_address:
            reason = "is missing (host:port of its P4Runtime service)"
            raise DocumentError(
                self._file, f"switches.{switch.name}.address", reason, code="missing-key"
            )
        options = target.options
        option_values = {key: data[key] for key in options.model_fields if key in data}
        return SwitchConfig(
            name=switch.name,
            device_id=switch.device_id,
            address=spec.address or "",
            target=target.name,
            options=options.model_validate(option_values, context=context),
            tls=tls,
        )

    def _parse(
        self,
        name: str,
        target: Target[Any],
        data: Mapping[str, object],
        context: Mapping[str, object],
    ) -> Section:
        if target.name not in self._models:
            base = (SwitchEntrySpec, target.options)
            self._models[target.name] = create_model(f"{target.name}_switch", __base__=base)
        model = self._models[target.name]
        try:
            return parse_document(model, data, self._file, context)
        except DocumentError as error:
            path = f"switches.{name}"
            if error.path:
                path += f".{error.path}"
            raise DocumentError(self._file, path, error.reason) from None


def _tls_files(spec: TlsSpec | None, directory: Path) -> TlsFiles | None:
    if spec is None:
        return None
    ca = _path(spec.ca, directory)
    certificate = _path(spec.certificate, directory)
    key = _path(spec.key, directory)
    return TlsFiles(ca, certificate, key)


def _api(spec: ApiSpec, directory: Path) -> ApiConfig:
    listen = spec.listen
    if listen.path is not None:
        listen = ListenAddress(None, 0, directory / listen.path)
    tls = None
    if spec.tls is not None:
        tls = ServerTls(
            certificate=directory / spec.tls.certificate,
            key=directory / spec.tls.key,
            client_ca=_path(spec.tls.client_ca, directory),
        )
    return ApiConfig(
        listen=listen,
        advertise=spec.advertise,
        tokens=_path(spec.tokens, directory),
        tls=tls,
        open_metrics=spec.metrics == "open",
    )


def _path(name: str | None, directory: Path) -> Path | None:
    if name is None:
        return None
    return directory / name
