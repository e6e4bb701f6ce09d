"""Commands about files: `check` for every kind, `serve --check`, and of bad ones, `token`."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon.controller.service.api.tokens import Tokens, load_tokens
from echelon_lab.run import simulate
from echelon_lab.traffic.outcome import FlowOutcome, write_outcomes
from echelon_lab.traffic.schedule import ScheduledFlow
from tests.needs import needs

FABRIC = """\
fabric: f
hosts: [h1, h2]
switches: [s1]
links: [{between: [h1, s1], rate: 1 Gbit/s}, {between: [s1, h2], rate: 1 Gbit/s}]
"""
SERVICE = """\
service: lab
fabric: fabric.yaml
switches: {s1: {address: "127.0.0.1:9559"}}
"""


ROOT = Path(__file__).parents[3]


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def only_line(result: Result, status: int = 2) -> str:
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    [line] = result.stderr.splitlines()
    return line


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "echelon.yaml").write_text(SERVICE)
    return tmp_path / "echelon.yaml"


def test_check_knows_configurations_and_tokens(config: Path) -> None:
    tokens = config.with_name("tokens.yaml")
    tokens.write_text(f"tokens: [{{name: ci, role: operator, sha256: '{'ab' * 32}'}}]")
    result = invoke("check", config, tokens, config.with_name("fabric.yaml"))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{config}: service 'lab' is good",
        f"{tokens}: tokens 'ci' is good",
        f"{config.with_name('fabric.yaml')}: fabric 'f' is good",
    ]


@pytest.mark.parametrize(
    ("old", "new", "path", "name"),
    [
        ("s1: {", "s2: {", "switches.s2", "'f'"),
        ("fabric.yaml", "none.yaml", "fabric", "'none.yaml'"),
        ("service: lab", "service: lab\npolicy: fare", "policy", "'fare'"),
    ],
)
def test_a_bad_configuration_is_one_line_for_every_command(
    old: str, new: str, path: str, name: str, config: Path
) -> None:
    config.write_text(SERVICE.replace(old, new))
    commands = [
        ["check", config],
        ["serve", "--config", config],
        ["serve", "--check", "--config", config],
    ]
    for command in [*commands, ["shell", "s1", "--config", config]]:
        line = only_line(invoke(*command))
        assert line.startswith(f"{config}: {path}: ")
        assert name in line


def test_a_bad_tokens_file_does_not_show_the_token_in_it(tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text("tokens: [{name: ci, role: operator, sha256: echelon_secret}]")
    line = only_line(invoke("check", file))
    assert line.startswith(f"{file}: tokens[0].sha256: ")
    assert "secret" not in line


@pytest.mark.parametrize(
    ("more", "path", "name"),
    [
        ("api: {tls: {certificate: c.pem, key: k.pem}}", "api.tls.certificate", "DIR/c.pem: "),
        ("tls: {ca: ca.pem}", "switches.s1.tls.ca", "DIR/ca.pem: "),
        ("api: {listen: '0.0.0.0:8080'}", "api.listen", " 0.0.0.0 "),
    ],
)
def test_serve_checks_the_files_that_a_configuration_names(
    more: str, path: str, name: str, config: Path
) -> None:
    assert (
        invoke("serve", "--check", "--config", config).stdout
        == f"{config}: service 'lab' is good\n"
    )
    config.write_text(f"{SERVICE}{more}\n")
    line = only_line(invoke("serve", "--check", "--config", config))
    assert line.startswith(f"{config}: {path}: ")
    assert name.replace("DIR", str(config.parent)) in line


def test_serve_checks_the_tokens_file(config: Path) -> None:
    config.write_text(f"{SERVICE}api: {{tokens: t.yaml}}\n")
    assert only_line(invoke("serve", "--check", "--config", config)).startswith(
        f"{config.with_name('t.yaml')}: "
    )


def test_a_store_of_ones_own_choice(config: Path) -> None:
    good = invoke("serve", "--check", "--config", config, "--store", "etcd://127.0.0.1:2379/lab")
    assert good.exit_code == 0
    line = only_line(
        invoke("serve", "--check", "--config", config, "--store", "etc://me:secret@h/lab")
    )
    assert line.startswith("--store: ")
    assert "'etc'" in line
    assert "'etcd'" in line
    assert "secret" not in line


def test_serve_with_a_bad_file_ends_at_once(config: Path) -> None:
    config.write_text(SERVICE.replace("127.0.0.1:9559", "nowhere"))
    command = [Path(sys.executable).with_name("echelon"), "serve", "--config", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{config}: switches.s1.address: ")
    assert done.stderr.count("\n") == 1


# -- tokens ----------------------------------------------------------------------------------------


def test_a_token_and_its_entry_belong_together(tmp_path: Path) -> None:
    output = invoke("token", "ci", "--role", "read-only").stdout
    heading, token, other_heading, entry = output.splitlines()
    assert (heading, other_heading) == ("token:", "entry for the tokens file:")
    assert output.count(token) == 1
    file = tmp_path / "tokens.yaml"
    file.write_text(f"tokens:\n{entry}\n")
    principal = Tokens(load_tokens(file).tokens).authenticate(token)
    assert principal is not None
    assert (principal.token, principal.role) == ("ci", "read-only")
    assert invoke("token", "ci", "--role", "read-only").stdout.splitlines()[1] != token


def test_a_token_for_a_file_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "ci.token"
    result = invoke("token", "ci", "--role", "operator", "--out", file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text().strip()
    assert token not in result.output
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(f"tokens:\n{result.stdout}")
    assert Tokens(load_tokens(tokens).tokens).authenticate(token) is not None
    assert only_line(invoke("token", "ci", "--role", "operator", "--out", file)).startswith(
        f"--out: {file}: "
    )
    assert file.read_text().strip() == token


@pytest.mark.parametrize(
    ("name", "role", "value"),
    [("ci", "boss", "role: 'boss' "), ("c i", "operator", "name: 'c i' ")],
)
def test_bad_tokens_are_one_line(name: str, role: str, value: str) -> None:
    assert value in only_line(invoke("token", name, "--role", role))


@needs("an ordinary user")
def test_where_a_token_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "--out" in only_line(
        invoke("token", "ci", "--role", "operator", "--out", tmp_path / "t")
    )


JOB = """\
job: pair
parallelism: graph
workers: [h1, h2]
graph:
  nodes:
    - {name: work, rank: 0, compute: 1 s}
    - {name: result, send: [0, 1], bytes: 3 MB, after: [work]}
"""


def test_show_lists_a_job_and_draws_it(tmp_path: Path) -> None:
    job = tmp_path / "pair.yaml"
    job.write_text(JOB)
    pictures = [tmp_path / "pair.png", tmp_path / "pair.svg"]
    result = invoke("show", job, "--out", pictures[0], "-o", pictures[1])
    assert result.exit_code == 0, result.output
    assert "1, 3000000 B" in result.stdout
    assert result.stdout.splitlines()[-2:] == [str(path) for path in pictures]
    assert all(path.stat().st_size for path in pictures)


def test_show_refuses_what_it_cannot_read_or_write(tmp_path: Path) -> None:
    job = tmp_path / "pair.yaml"
    job.write_text(JOB.replace("[work]", "[play]"))
    assert only_line(invoke("show", job)).startswith(f"{job}: graph.nodes[1].after: ")
    job.write_text(JOB)
    for out in (tmp_path / "pair.what", tmp_path / "nowhere" / "pair.png"):
        result = invoke("show", job, "--out", out)
        assert result.exit_code == 2
        [line] = result.stderr.splitlines()
        assert line.startswith(f"--out: {out}: ")


def test_check_takes_every_kind_of_file(tmp_path: Path) -> None:
    """Those that commands read and write, each made by the command or shipped."""
    simulate(ROOT / "topologies/scenarios/fig2.yaml", ["fair"]).write(tmp_path)
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(
        f"{{sweep: two, scenario: {ROOT}/topologies/scenarios/fig2.yaml, vary: {{iterations: [1,"
        " 2]}}"
    )
    swept = invoke("sweep", sweep, "-o", tmp_path / "swept", "--workers", "1")
    assert swept.exit_code == 0, swept.output
    schedule = tmp_path / "web.csv"
    options = ("--load", "1 Mbit/s", "--duration", "1 s", "--src", "h1", "--dst", "h2")
    made = invoke("traffic", "generate", "consistent", *options, "-o", schedule)
    assert made.exit_code == 0, made.output
    flow = ScheduledFlow(0, "h1", "h2", 1000)
    write_outcomes([FlowOutcome(flow, 0.0, 1.0)], tmp_path / "flows.csv")
    (tmp_path / "trace.txt").write_text("2 1\n1 0 1 0 1 1:5\n")
    sizes = ROOT / "lab/echelon_lab/traffic/cdf/cache.txt"
    said = {
        tmp_path / "results.json": "results of a run is good",
        sweep: "sweep 'two' is good",
        tmp_path / "swept" / "sweep.json": "results of a sweep 'two' is good",
        schedule: "schedule of traffic is good",
        tmp_path / "flows.csv": "flows of cross traffic is good",
        tmp_path / "trace.txt": "trace of coflows is good",
        sizes: "distribution of sizes 'cache' is good",
    }
    result = invoke("check", *said)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [f"{file}: {what}" for file, what in said.items()]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "results.json",
            '{"results": {"fair": {"jobs": {"a": {"iteration_times_s": []}}}}}',
            ": results.fair.jobs.a: ",
        ),
        ("results.json", '{"results": {"fair": {"jobs"', "JSON"),
        ("s.yaml", "{sweep: s, scenario: {}, vary: {iterations: 3}}", "vary"),
        ("web.csv", "a,b\n1,2\n", "a,b"),
        ("web.csv", "start_us,src,dst,bytes\n-1,a,b,5\n", "line 2"),
        ("trace.txt", "2 2\n1 0 1 0 1 1:5\n", "2 coflows"),
        ("links.txt", "3 2\n0 1 1\n1 2 1\n", "taken for a trace of coflows"),
        ("graph.txt", "7 9\n8 3\n", "taken for a distribution of sizes"),
        ("rows.csv", "a,b\n", "taken for a schedule of traffic"),
        ("sizes.txt", "1000 0\n2000 0.5\n", "0.5"),
    ],
)
def test_check_says_what_is_wrong_with_other_files(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    line = only_line(invoke("check", tmp_path / name))
    assert line.startswith(f"{tmp_path / name}")
    assert said in line


def test_check_looks_at_parameters_of_policies(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    fig2 = (ROOT / "topologies/scenarios/fig2.yaml").read_text()
    scenario.write_text(
        fig2.replace("[fair, varys, echelon]", "['echelon(order=setf)', 'aalo(levelss=3)']")
    )
    line = only_line(invoke("check", scenario))
    assert line.startswith(f"{scenario}: policies[1].levelss: ")
    assert "'aalo'" in line
    assert "queues" in line
