"""One service for all tests of the commands, with its switches: real processes, and tokens as on a
real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon.controller.client import Client
from echelon.controller.service.api.tokens import new_token
from tests.echelon.service.lab import PATIENCE_S, TWO_BY_TWO, Lab, reset
from tests.shared import Shared

JOB = """\
job: bert
parallelism: pipeline
workers: [h1, h3]
pipeline: {micro_batches: 3, forward: 10 ms, backward: 20 ms, activation: 100 kB}
"""


@dataclass(frozen=True)
class Operated:
    """A running service, and the command line aimed at it."""

    lab: Lab
    url: str
    tokens: dict[str, Path]
    """File of a token by its role."""

    def run(
        self,
        *arguments: str | Path,
        role: str | None = "operator",
        stdin: str | None = None,
        **environment: str,
    ) -> Result:
        where = {
            "ECHELON_URL": self.url,
            "ECHELON_TOKEN_FILE": str(self.tokens[role]) if role else None,
        }
        return CliRunner().invoke(
            app,
            [str(argument) for argument in arguments],
            input=stdin,
            env={**where, **environment},
        )

    def good(self, *arguments: str | Path, stdin: str | None = None, **environment: str) -> str:
        """Return the standard output of a command that succeeds."""
        result = self.run(*arguments, stdin=stdin, **environment)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return result.stdout

    def bad(self, *arguments: str | Path, status: int = 2, role: str | None = "operator") -> str:
        """Return the one line on standard error of a command that fails."""
        result = self.run(*arguments, role=role)
        assert result.exit_code == status, result.output
        [line] = result.stderr.splitlines()
        return line

    def pictured(self, *arguments: str | Path, width: int) -> list[str]:
        """Return the output on a terminal of so many columns, without colours."""
        return self.good(
            *arguments, COLUMNS=str(width), FORCE_COLOR="1", NO_COLOR="1", TERM="dumb"
        ).splitlines()

    def client(self) -> Client:
        return Client(
            self.url, token=self.tokens["operator"].read_text().strip(), timeout_s=PATIENCE_S
        )

    def file(self, text: str = JOB, **replacements: str) -> Path:
        """Return a job file."""
        for old, new in replacements.items():
            text = text.replace(old, new)
        path = self.lab.directory / f"job-{len(list(self.lab.directory.iterdir()))}.yaml"
        path.write_text(text)
        return path


@contextmanager
def operating() -> Iterator[Operated]:
    with TemporaryDirectory(prefix="cli-") as name:
        directory = Path(name)
        made = {role: new_token(role, role) for role in ("operator", "read-only")}
        tokens = {role: directory / f"{role}.token" for role in made}
        for role, file in tokens.items():
            file.write_text(made[role].token)
            file.chmod(0o600)
        (directory / "tokens.yaml").write_text(
            "tokens:\n" + "".join(token.entry for token in made.values())
        )
        lab = Lab(directory, TWO_BY_TWO, audit="1 h")
        try:
            lab.start()
            daemon = lab.daemon(api={"listen": "127.0.0.1:0", "tokens": "tokens.yaml"})
            daemon.wait_event("leading")
            yield Operated(lab, daemon.wait_listening(), tokens)
        finally:
            lab.stop()


_operated = Shared(operating)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    _operated.end_unless(nextitem, Path(__file__).parent)


@pytest.fixture
def service() -> Operated:
    """Return the service without jobs, under the default policy, with all links up."""
    found = _operated()
    with found.client() as client:
        reset(client)
    return found
