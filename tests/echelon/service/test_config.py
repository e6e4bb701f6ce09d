"""The service's configuration file: what it comes to, and one line about each mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from echelon.controller.service.config import ServiceConfig, load_service_config
from echelon.controller.service.config_file import ListenAddress, ServiceSpec, store_url
from echelon.model.documents import DocumentError, Section
from echelon.model.errors import Code
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.southbound.queues import QueueDriver
from echelon.switches.southbound.tls import TlsFiles
from echelon.switches.targets import Site, Target
from echelon.switches.targets.softswitch import Softswitch
from tests.drawing import examples
from tests.faults import coded
from tests.shared import refused

FABRIC = """\
fabric: pair
hosts: [h1, h2]
switches: {s1: , s2: {device_id: 7}}
links:
  - {between: [h1, s1], rate: 1 Gbit/s}
  - {between: [s1, s2], rate: 10 Mbit/s}
  - {between: [s2, h2], rate: 1 Gbit/s}
"""
SMALL = """\
service: lab
fabric: fabric.yaml
switches:
  s1: {address: "127.0.0.1:9559"}
  s2: {address: "127.0.0.1:9560"}
"""
LARGE = """\
service: lab
fabric: fabric.yaml
policy: {name: echelon, parameters: {order: setf}}
store: sqlite:state/s.db
switches:
  s1: {address: "[::1]:9559", tls: {ca: other.pem}}
  s2: {address: "switch-2.example:9560", target: toy, speed: 3}
tls: {ca: ca.pem, certificate: c.pem, key: /keys/k.pem}
api:
  listen: "0.0.0.0:0"
  advertise: "https://ctl1:8080/"
  tokens: tokens.yaml
  tls: {certificate: api.pem, key: api.key, client_ca: clients.pem}
  metrics: open
audit: 500 ms
lease: 2 s
limits: {jobs: 5, flows_per_job: 20, body: 10 kB}
coalesce: 0 s
telemetry: {correct_sizes: true}
log: {format: json, level: debug}
"""


class ToyOptions(Section):
    speed: Annotated[int, Field(strict=True, ge=1, description="its speed")]
    colours: tuple[str, ...] = ()


class Toy(Target[ToyOptions]):
    """A target of which only the options matter."""

    name = "toy"
    options = ToyOptions

    def capabilities(self, options: ToyOptions) -> Capabilities:
        raise NotImplementedError

    def queue_driver(self, options: ToyOptions, site: Site) -> QueueDriver:
        raise NotImplementedError


TARGETS = {"softswitch": Softswitch(), "toy": Toy()}


def load(folder: Path, text: str) -> ServiceConfig:
    (folder / "fabric.yaml").write_text(FABRIC)
    (folder / "echelon.yaml").write_text(text)
    return load_service_config(folder / "echelon.yaml", TARGETS)


def test_the_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL)
    assert config.file == tmp_path / "echelon.yaml"
    assert config.name == "lab"
    assert (config.fabric.name, config.fabric_file) == ("pair", tmp_path / "fabric.yaml")
    assert (config.policy.name, config.policy.parameters) == ("echelon", {})
    assert config.store.get_secret_value() == f"sqlite://{tmp_path}/state.db"
    assert [
        (s.name, s.device_id, s.address, s.target, s.tls) for s in config.switches.values()
    ] == [
        ("s1", 1, "127.0.0.1:9559", "softswitch", None),
        ("s2", 7, "127.0.0.1:9560", "softswitch", None),
    ]
    assert config.api.listen == ListenAddress("127.0.0.1", 8080, None)
    assert (config.api.advertise, config.api.tokens, config.api.tls, config.api.open_metrics) == (
        None,
    ) * 3 + (False,)
    assert (config.audit_s, config.lease_s, config.coalesce_s) == (30.0, 5.0, 0.005)
    assert (config.limits.jobs, config.limits.flows_per_job, config.api_limits.body_bytes) == (
        1000,
        10_000,
        10**6,
    )
    assert config.correct_sizes is False
    assert (config.log.format, config.log.level) == (None, "info")


def test_every_key(tmp_path: Path) -> None:
    config = load(tmp_path, LARGE)
    assert (config.policy.name, config.policy.parameters) == ("echelon", {"order": "setf"})
    assert config.store.get_secret_value() == f"sqlite://{tmp_path}/state/s.db"
    s1, s2 = config.switches.values()
    assert (s1.address, s1.tls) == ("[::1]:9559", TlsFiles(tmp_path / "other.pem", None, None))
    assert s2.tls == TlsFiles(tmp_path / "ca.pem", tmp_path / "c.pem", Path("/keys/k.pem"))
    assert (s2.target, s2.options) == ("toy", ToyOptions(speed=3))
    assert config.api.listen == ListenAddress("0.0.0.0", 0, None)
    assert config.api.advertise == "https://ctl1:8080"
    assert config.api.tokens == tmp_path / "tokens.yaml"
    assert config.api.tls is not None
    assert config.api.tls.client_ca == tmp_path / "clients.pem"
    assert config.api.open_metrics
    assert (config.audit_s, config.lease_s, config.coalesce_s) == (0.5, 2.0, 0.0)
    assert (config.limits.jobs, config.limits.flows_per_job, config.api_limits.body_bytes) == (
        5,
        20,
        10_000,
    )
    assert config.correct_sizes
    assert (config.log.format, config.log.level) == ("json", "debug")


def test_the_documented_example_is_good(tmp_path: Path) -> None:
    """The example in the docstring of the module names every key that there is."""
    import echelon.controller.service.config as module

    example = (module.__doc__ or "").split("```yaml\n")[1].split("```")[0]
    assert set(yaml.safe_load(example)) == set(ServiceSpec.model_fields)
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "echelon.yaml").write_text(example)
    config = load_service_config(tmp_path / "echelon.yaml")
    assert {switch.target for switch in config.switches.values()} == {"softswitch", "bmv2"}


def test_a_switch_may_do_without_the_tls_of_the_others(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL.replace('9559"}', '9559", tls: }') + "tls: {ca: ca.pem}\n")
    assert [switch.tls for switch in config.switches.values()] == [
        None,
        TlsFiles(tmp_path / "ca.pem", None, None),
    ]


def test_paths_are_absolute_wherever_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(tmp_path, LARGE)
    monkeypatch.chdir(tmp_path.parent)
    config = load_service_config(Path(tmp_path.name) / "echelon.yaml", TARGETS)
    assert config.file.is_absolute()
    assert config.fabric_file.is_absolute()
    assert config.store.get_secret_value() == f"sqlite://{tmp_path}/state/s.db"
    assert config.api.tokens == tmp_path / "tokens.yaml"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("sqlite:state.db", "sqlite:///base/state.db"),
        ("sqlite:/var/lib/state.db", "sqlite:///var/lib/state.db"),
        ("sqlite:///var/lib/state.db", "sqlite:///var/lib/state.db"),
        ("etcd://a:2379,b:2379/lab", "etcd://a:2379,b:2379/lab"),
        (
            "etcd://me@a/lab?ca=x/ca.pem&key=/k.pem&other=x",
            "etcd://me@a/lab?ca=/base/x/ca.pem&key=/k.pem&other=x",
        ),
    ],
)
def test_urls_of_stores(text: str, url: str) -> None:
    assert store_url(text, Path("/base")) == url


@pytest.mark.parametrize(
    ("text", "listen", "shown"),
    [
        ("127.0.0.1:0", ListenAddress("127.0.0.1", 0, None), "127.0.0.1:0"),
        ("[::1]:80", ListenAddress("::1", 80, None), "[::1]:80"),
        ("unix:/run/e.sock", ListenAddress(None, 0, Path("/run/e.sock")), "unix:/run/e.sock"),
    ],
)
def test_addresses_to_listen_on(
    text: str, listen: ListenAddress, shown: str, tmp_path: Path
) -> None:
    config = load(tmp_path, SMALL + f'api: {{listen: "{text}"}}\n')
    assert config.api.listen == listen
    assert str(config.api.listen) == shown


MISTAKES: list[tuple[str, str, Code, str, str]] = [
    ("service: lab\n", "", "missing-key", "service", ""),
    ("service: lab", "service: 1", "not-text", "service", "1"),
    ("service: lab", "servcie: lab", "unknown-key", "servcie", "'service'"),
    ("fabric.yaml", "fabrik.yaml", "invalid-value", "fabric", "'fabrik.yaml'"),
    ("fabric.yaml", "[h1]", "invalid-value", "fabric", "['h1']"),
    ("  s2:", "  s3:", "invalid-value", "switches.s3", "s1, s2"),
    (
        '  s2: {address: "switch-2.example:9560", target: toy, speed: 3}\n',
        "",
        "invalid-value",
        "switches",
        "'s2'",
    ),
    (
        "target: toy, speed: 3",
        "target: tou, speed: 3",
        "unknown-target",
        "switches.s2.target",
        "'toy'",
    ),
    ("target: toy, speed: 3", "target: [toy]", "unknown-target", "switches.s2.target", "['toy']"),
    ("target: toy, speed: 3", "target: toy", "invalid-value", "switches.s2.speed", "its speed"),
    ("speed: 3", "speed: 3, sped: 4", "invalid-value", "switches.s2.sped", "'speed'"),
    ("speed: 3", "speed: 3, adress: 4", "invalid-value", "switches.s2.adress", "'address'"),
    ("speed: 3", "speed: 0", "invalid-value", "switches.s2.speed", "0"),
    ("speed: 3", "speed: 3, colours: [1]", "invalid-value", "switches.s2.colours[0]", "1"),
    (
        '"[::1]:9559", tls: {ca: other.pem}',
        "nowhere",
        "invalid-value",
        "switches.s1.address",
        "'nowhere'",
    ),
    (
        '"[::1]:9559", tls: {ca: other.pem}',
        "12:34",
        "invalid-value",
        "switches.s1.address",
        '"10.0.0.7:9559"',
    ),
    ('"[::1]:9559"', '"h:99999"', "invalid-value", "switches.s1.address", "'h:99999'"),
    (
        '{address: "[::1]:9559", tls: {ca: other.pem}}',
        "h:1",
        "not-a-mapping",
        "switches.s1",
        "'h:1'",
    ),
    ("{ca: other.pem}", "{caa: other.pem}", "invalid-value", "switches.s1.tls.caa", "'ca'"),
    ("key: /keys/k.pem", "", "missing-key", "tls.key", "'certificate'"),
    ("name: echelon", "name: echelo", "unknown-policy", "policy", "'echelon'"),
    (
        "order: setf",
        "order: best",
        "not-allowed",
        "policy.parameters.order",
        "'left', 'memory', 'normalised', 'deadline' or 'setf'",
    ),
    ("order: setf", "odrer: setf", "unknown-parameter", "policy.parameters.odrer", "'order'"),
    ("order: setf", "order: [setf]", "invalid-value", "policy.parameters.order", "['setf']"),
    ("sqlite:state/s.db", "state.db", "invalid-value", "store", "sqlite:state.db"),
    ("sqlite:state/s.db", "sqlit:s.db", "invalid-value", "store", "'sqlite'"),
    ("sqlite:state/s.db", "7", "invalid-value", "store", "7"),
    ('"0.0.0.0:0"', '"0.0.0.0"', "invalid-value", "api.listen", "'0.0.0.0'"),
    ('"0.0.0.0:0"', '"unix:"', "invalid-value", "api.listen", "unix:/"),
    ("https://ctl1:8080/", "ctl1:8080", "invalid-value", "api.advertise", "'ctl1:8080'"),
    (
        "https://ctl1:8080/",
        "https://me:pw@ctl1:8080/",
        "invalid-value",
        "api.advertise",
        "'https://me:pw@ctl1:8080/'",
    ),
    ("certificate: api.pem, ", "", "missing-key", "api.tls.certificate", ""),
    ("metrics: open", "metrics: shut", "not-allowed", "api.metrics", "'token' or 'open'"),
    ("audit: 500 ms", "audit: 500", "missing-unit", "audit", "500"),
    ("audit: 500 ms", "audit: 0 s", "too-small", "audit", "'0 s'"),
    ("lease: 2 s", "lease: 2 ms", "out-of-range", "lease", "3600 s"),
    ("coalesce: 0 s", "coalesce: 1 h", "too-large", "coalesce", "10 s"),
    ("jobs: 5", "jobs: 0", "too-small", "limits.jobs", "0"),
    ("body: 10 kB", "body: 10", "missing-unit", "limits.body", "10"),
    ("correct_sizes: true", "correct_sizes: 1", "invalid-value", "telemetry.correct_sizes", ""),
    (
        "correct_sizes: true",
        "correct_distances: true",
        "unknown-key",
        "telemetry.correct_distances",
        "",
    ),
    ("level: debug", "level: loud", "not-allowed", "log.level", "'loud'"),
    (
        "service: lab",
        "service: lab\nservice: lab",
        "duplicate-key",
        "line 2, column 1",
        "'service'",
    ),
]


@pytest.mark.parametrize(("old", "new", "code", "path", "name"), MISTAKES)
def test_a_mistake_is_one_line(
    old: str, new: str, code: Code, path: str, name: str, tmp_path: Path
) -> None:
    assert LARGE.count(old) == 1
    mistake = coded(code, name, file=str(tmp_path / "echelon.yaml"), path=path)
    with pytest.raises(DocumentError, check=mistake) as caught:
        load(tmp_path, LARGE.replace(old, new))
    assert caught.value.reason.endswith(")")


def test_a_fault_of_the_fabric_names_its_file(tmp_path: Path) -> None:
    load(tmp_path, SMALL)
    (tmp_path / "fabric.yaml").write_text(FABRIC.replace("10 Mbit/s", "fast"))
    file = str(tmp_path / "fabric.yaml")
    with pytest.raises(
        DocumentError, check=coded("not-a-quantity", "'fast'", file=file, path="links[1].rate")
    ):
        load_service_config(tmp_path / "echelon.yaml", TARGETS)


def test_a_password_in_the_stores_url_is_not_shown(tmp_path: Path) -> None:
    with refused("invalid-value", "store", DocumentError) as caught:
        load(tmp_path, LARGE.replace("sqlite:state/s.db", "//me:secret@etcd"))
    assert "secret" not in str(caught.value)


def _paths(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    out = [at]
    if isinstance(value, dict):
        for key, inner in value.items():
            out += _paths(inner, (*at, key))
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config")
    (path / "fabric.yaml").write_text(FABRIC)
    return path


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.just([]),
    st.just({"x": [1]}),
)


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_whatever_stands_at_a_key_either_loads_or_is_one_line(
    data: st.DataObject, folder: Path
) -> None:
    document = yaml.safe_load(LARGE)
    path = data.draw(st.sampled_from([path for path in _paths(document) if path]))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = data.draw(SCALARS)
    file = folder / "echelon.yaml"
    file.write_text(yaml.safe_dump(document))
    said = None
    try:
        assert set(load_service_config(file, TARGETS).switches) == {"s1", "s2"}
    except DocumentError as error:
        said = str(error)
    assert said is None or (
        said.startswith(f"{file}: ") and said.endswith(")") and "\n" not in said
    )


def test_checking_a_file_imports_nothing_heavy(tmp_path: Path) -> None:
    load(tmp_path, SMALL)
    program = (
        "import sys\nfrom echelon.controller.service.config import"
        " load_service_config\nload_service_config(sys.argv[1])\nheavy = {'networkx', 'grpc',"
        " 'finsy', 'fastapi', 'uvicorn', 'thriftpy2', 'aetcd'} &"
        " set(sys.modules)\nsys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "echelon.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
