"""Tokens: who is known, what the file may say, and that no token is where it should not be."""

from __future__ import annotations

import logging
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.controller.service.api.tokens import (
    CHECK_INTERVAL_S,
    NewToken,
    Role,
    Tokens,
    TokensFile,
    TokenSpec,
    load_tokens,
    new_token,
)
from echelon.model.documents import DocumentError
from echelon.model.errors import Code
from tests.faults import coded
from tests.shared import refused

SHA = "ab" * 32


def write(path: Path, *tokens: NewToken) -> Path:
    path.write_text("tokens:\n" + "".join(token.entry for token in tokens))
    return path


def test_a_new_tokens_entry_is_an_item_of_the_file(tmp_path: Path) -> None:
    made = new_token("ci", "operator")
    (spec,) = load_tokens(write(tmp_path / "tokens.yaml", made)).tokens
    assert (spec.name, spec.role) == ("ci", "operator")
    assert spec.sha256 == sha256(made.token.encode()).hexdigest()
    assert made.token not in made.entry
    assert made.token not in repr(made)


def test_tokens_are_random_and_can_stand_in_a_header() -> None:
    made = {new_token("ci", "operator").token for _ in range(100)}
    assert len(made) == 100
    assert all(
        len(token) >= 40 and token.isascii() and token.isprintable() and " " not in token
        for token in made
    )


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20), st.sampled_from(["operator", "read-only"]), max_size=5
    ),
    st.text(max_size=20),
)
def test_known_tokens_and_no_others(known: dict[str, Role], other: str) -> None:
    tokens = Tokens(
        TokenSpec.model_validate(
            {"name": f"t{index}", "role": role, "sha256": sha256(token.encode()).hexdigest()}
        )
        for index, (token, role) in enumerate(known.items())
    )
    for index, (token, role) in enumerate(known.items()):
        principal = tokens.authenticate(token)
        assert principal is not None
        assert (principal.token, principal.role) == (f"t{index}", role)
    if other not in known:
        assert tokens.authenticate(other) is None


@pytest.mark.parametrize(
    ("content", "code", "path", "name"),
    [
        ("tokens: []", "wrong-length", "tokens", "0"),
        ("token: []", "unknown-key", "token", "'tokens'"),
        ("tokens: [{name: a, role: operator}]", "missing-key", "tokens[0].sha256", ""),
        (
            f"tokens: [{{name: a, role: root, sha256: {SHA}}}]",
            "not-allowed",
            "tokens[0].role",
            "'read-only'",
        ),
        (
            "tokens: [{name: a, role: operator, sha256: secret}]",
            "not-a-quantity",
            "tokens[0].sha256",
            "SHA-256",
        ),
        (
            f"tokens: [{{name: a b, role: operator, sha256: {SHA}}}]",
            "not-a-name",
            "tokens[0].name",
            "'a b'",
        ),
        (
            (
                f"tokens: [{{name: a, role: operator, sha256: {SHA}}}, {{name: a, role: operator,"
                f" sha256: {'cd' * 32}}}]"
            ),
            "duplicate",
            "tokens[1].name",
            "tokens[0]",
        ),
        (
            (
                f"tokens: [{{name: a, role: operator, sha256: {SHA}}}, {{name: b, role: operator,"
                f" sha256: {SHA.upper()}}}]"
            ),
            "duplicate",
            "tokens[1].sha256",
            "tokens[0]",
        ),
    ],
)
def test_faulty_files(tmp_path: Path, content: str, code: Code, path: str, name: str) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(content)
    faulty = coded(code, name, file=str(file), path=path)
    with pytest.raises(DocumentError, check=faulty):
        load_tokens(file)


def test_a_token_in_the_place_of_its_hash_is_not_repeated(tmp_path: Path) -> None:
    made = new_token("ci", "operator")
    file = tmp_path / "tokens.yaml"
    file.write_text(f"tokens: [{{name: ci, role: operator, sha256: {made.token}}}]")
    with refused("not-a-quantity", "tokens[0].sha256") as caught:
        load_tokens(file)
    assert made.token not in str(caught.value)


def test_a_file_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "tokens.yaml", new_token("ci", "operator"))
    file.chmod(0o666)
    writable = coded("invalid-value", f"chmod o-w {file}", file=str(file), path="")
    with pytest.raises(DocumentError, check=writable):
        load_tokens(file)


def test_changes_of_the_file_are_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "echelon.api")
    first, second = new_token("first", "operator"), new_token("second", "read-only")
    now = 0.0
    file = write(tmp_path / "tokens.yaml", first)
    tokens = TokensFile(file, clock=lambda: now)

    write(file, first, second)
    assert tokens.authenticate(second.token) is None  # not looked at yet
    now += CHECK_INTERVAL_S
    assert tokens.authenticate(second.token) is not None

    write(file, second)
    now += CHECK_INTERVAL_S
    assert tokens.authenticate(first.token) is None

    file.write_text("tokens: 7")
    now += CHECK_INTERVAL_S
    assert tokens.authenticate(second.token) is not None  # the last good ones hold
    file.unlink()
    now += CHECK_INTERVAL_S
    assert tokens.authenticate(second.token) is not None
    faults = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(faults) == 2
    assert all("the former tokens remain valid" in fault for fault in faults)

    write(file, first)
    now += CHECK_INTERVAL_S
    assert tokens.authenticate(first.token) is not None
    for token in (first.token, second.token):
        assert token not in caplog.text


def test_a_tokens_file_is_checked_without_the_web_framework() -> None:
    """Checking a tokens file or making a token does not load it."""
    code = (
        "import sys, echelon.controller.service.api.tokens, echelon.controller.service.hazards as"
        " _; print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "echelon.controller.service.api.tokens" in loaded
    assert not {"fastapi", "starlette", "uvicorn", "httpx", "grpc"} & set(loaded)


def test_the_jobs_of_an_agent_come_from_the_file_and_no_other_role_has_any(tmp_path: Path) -> None:
    made = new_token("agent", "agent", ["bert", "gpt"])
    principal = TokensFile(write(tmp_path / "tokens.yaml", made)).authenticate(made.token)
    assert principal is not None
    assert (principal.role, principal.only_jobs) == ("agent", {"bert", "gpt"})
    for role, jobs in (
        ("operator", ["bert"]),
        ("read-only", ["bert"]),
        ("agent", ["be rt"]),
        ("agent", ["a"] * 1001),
    ):
        with pytest.raises(DocumentError):
            new_token("agent", role, jobs)
