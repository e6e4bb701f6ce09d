"""Completion in real shells, with names from a running service."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.echelon.cli.conftest import JOB, Operated
from tests.needs import needs

pytestmark = pytest.mark.xdist_group("cli-service")

BIN = Path(sys.executable).parent
BASH = """
source <(echelon completion bash)
COMP_WORDS=({words})
COMP_CWORD=$(({count} - 1))
_echelon_completion echelon
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ function=$1; }}
_arguments() {{ print -l -- ${{(P)${{@[-1]##*\\(}}}}; }}
eval "$(echelon completion zsh)"
words=({words}); CURRENT={count}
env _TYPER_COMPLETE_ARGS="${{words[1,$CURRENT]}}" _ECHELON_COMPLETE=complete_zsh echelon
print -- $function
"""
FISH = "echelon completion fish | source; complete --do-complete='{line}'"


def run(shell: str, script: str, service: Operated | None, url: str | None = None) -> list[str]:
    """Return what a shell without configuration prints.

    Without a service there is nobody to ask for names.
    """
    options = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    if service is not None:
        environment |= {
            "ECHELON_URL": url or service.url,
            "ECHELON_TOKEN_FILE": str(service.tokens["read-only"]),
        }
    done = subprocess.run(
        [shell, *options, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.stderr == "", done.stderr
    return done.stdout.splitlines()


def in_bash(line: str, service: Operated | None = None, url: str | None = None) -> list[str]:
    words = [*line.split(), *([""] if line.endswith(" ") else [])]
    quoted = " ".join(f"'{word}'" for word in words)
    return run("bash", BASH.format(words=quoted, count=len(words)), service, url)


@needs("bash")
def test_commands_and_options_in_bash() -> None:
    assert in_bash("echelon policy") == ["policy"]
    assert {"submit", "list", "show", "remove"} <= set(in_bash("echelon job "))
    assert in_bash("echelon job submit --dry") == ["--dry-run"]
    assert in_bash("echelon --completion z") == ["zsh"]


@needs("bash")
@pytest.mark.wide
def test_names_in_bash(service: Operated) -> None:
    for name in ("bert", "bert2", "alice"):
        service.good("job", "submit", service.file(JOB.replace("bert", name)))
    assert in_bash("echelon job show b", service) == ["bert", "bert2"]
    assert in_bash("echelon job remove bert a", service) == ["alice"]
    assert in_bash("echelon plan show --job bert2", service) == ["bert2"]
    assert in_bash("echelon switch show sp", service) == ["spine1", "spine2"]
    assert in_bash("echelon link drain leaf1 s", service) == ["spine1", "spine2"]
    assert "echelon" in in_bash("echelon policy set e", service)


@needs("bash")
def test_a_service_that_does_not_answer_offers_nothing(service: Operated) -> None:
    assert in_bash("echelon job show b", service, url="http://127.0.0.1:9") == [""]


@needs("zsh")
def test_zsh(service: Operated) -> None:
    service.good("job", "submit", service.file())
    shown = run("zsh", ZSH.format(words="echelon job show b", count=4), service)
    assert any("bert" in line for line in shown)
    assert shown[-1] == "_echelon_completion"


@needs("fish")
def test_fish(service: Operated) -> None:
    service.good("job", "submit", service.file())
    assert run("fish", FISH.format(line="echelon job show b"), service) == ["bert"]
    offered = {
        line.partition("\t")[0] for line in run("fish", FISH.format(line="echelon job "), service)
    }
    assert {"submit", "list", "show", "remove"} <= offered
