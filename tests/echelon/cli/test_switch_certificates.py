"""A controller and a switch with certificates that one command has made, from end to end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from echelon.cli import app
from echelon.controller.client import Client
from softswitch.cli import main
from tests.echelon.service.lab import LINE, PATIENCE_S, Daemon
from tests.softswitch.tls.folders import expire
from tests.softswitch_process import Running, running

pytestmark = pytest.mark.xdist_group("cli-tls")


def wait_problem(client: Client, words: str) -> None:
    """Wait until the switch has a problem with these words; "" waits until it is ready."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        (switch,) = client.switches()
        if words:
            is_there = words in (switch.problem or "")
        else:
            is_there = switch.state == "ready"
        if is_there:
            return
        assert time.monotonic() < give_up_at, switch
        time.sleep(0.1)


def configure(folder: Path, switch: Running, printed: str) -> Path:
    """Write a configuration with the keys that the command has printed."""
    (folder / "fabric.yaml").write_text(yaml.safe_dump(LINE))
    settings = {
        "service": "certified",
        "fabric": "fabric.yaml",
        "switches": {"s1": {"address": switch.address}},
        "api": {"listen": "127.0.0.1:0"},
        "log": {"format": "json"},
    }
    (keys,) = (line.strip() for line in printed.splitlines() if line.startswith("  tls: "))
    config = folder / "echelon.yaml"
    config.write_text(f"{yaml.safe_dump(settings)}{keys}\n")
    return config


def test_wrong_certificates_are_said_and_renewed_ones_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "certificates"
    certificates = ["certificates", "--out", str(out)]
    assert main([*certificates, "s1=127.0.0.1"]) == 0
    printed = capsys.readouterr().out
    expire(out / "controller")

    ports = [text for port in (1, 2) for text in ("-i", f"{port}@unix:{tmp_path}/s1-{port}")]
    queues = ("--priority-queues", "8")
    with running("--no-p4", *ports, "--tls", out / "s1", *queues) as switch:
        config = configure(tmp_path, switch, printed)
        check = CliRunner().invoke(app, ["check", str(config)])
        assert check.exit_code == 0, check.output
        daemon = Daemon(config)
        try:
            daemon.wait_event("leading")
            with Client(daemon.wait_listening()) as client:
                refused = f"refuses the certificate {out}/controller/certificate.pem"
                wait_problem(client, refused)

                # The same command, and nobody starts anything again.
                assert main(certificates) == 0
                assert "controller: renewed, since it ended on" in capsys.readouterr().out
                wait_problem(client, "")
        finally:
            daemon.kill()


def test_a_name_that_may_not_call_is_said_at_both_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "certificates"
    assert main(["certificates", "--out", str(out), "s1=127.0.0.1"]) == 0
    printed = capsys.readouterr().out
    clients = out / "s1" / "clients.txt"
    clients.write_text("another\n")

    with running("--no-p4", "--tls", out / "s1", "--priority-queues", "8") as switch:
        daemon = Daemon(configure(tmp_path, switch, printed))
        try:
            daemon.wait_event("leading")
            with Client(daemon.wait_listening()) as client:
                wait_problem(client, "does not take calls with the certificate of 'controller'")
        finally:
            daemon.kill()
        _, errors = switch.stop()
    line = errors.splitlines()[0]
    assert line.startswith("softswitch: a call of ipv4:127.0.0.1:")
    assert "the certificate of 'controller' was refused: no --allow-client names it" in line
