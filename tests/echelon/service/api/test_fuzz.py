"""The daemon's API under schemathesis: requests made from its own OpenAPI document, right ones and
wrong ones, with a token of either role and with none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from echelon.controller.client import Client
from echelon.controller.service.api.tokens import new_token
from tests.echelon.service.api.test_malformed import STAR
from tests.echelon.service.lab import Lab, ring
from tests.needs import needs

EXAMPLES = 5
FEW = 1
LONG_EXAMPLES = 50
TIMEOUT_S = 90
OPEN_PATHS = ("/healthz", "/readyz")


Operation = Any

NAME = "s1"
"""The name of the switch, and of a job."""


@dataclass(frozen=True)
class Fuzzed:
    url: str
    operator: str
    reader: str
    requests: Sequence[st.SearchStrategy[Any]]
    """The strategies for right and for wrong requests of each operation."""


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Fuzzed]:
    operator, reader = new_token("ops", "operator"), new_token("eyes", "read-only")
    with TemporaryDirectory(prefix="lab-") as directory:
        (Path(directory) / "tokens.yaml").write_text(f"tokens:\n{operator.entry}{reader.entry}")
        api = {"listen": "127.0.0.1:0", "tokens": "tokens.yaml"}
        lab = Lab(Path(directory), STAR, api=api, log={"format": "json", "level": "warning"})
        lab.start()
        try:
            daemon = lab.daemon(log={"format": "json"})
            daemon.wait_event("leading")
            url = daemon.wait_listening()
            with Client(url, operator.token) as client:
                client.register_job(ring(NAME, ["h1", "h2"]))
            made = [
                requests_of(one, mode)
                for one in operations(url, operator.token)
                for mode in modes(one)
            ]
            yield Fuzzed(url, operator.token, reader.token, made)
            assert not daemon.events("fault")
            assert daemon.alive
        finally:
            lab.stop()


def operations(url: str, token: str) -> Sequence[Operation]:
    config = SchemathesisConfig.from_dict(
        {
            # Tokens are ours to choose.
            "generation": {"with-security-parameters": False},
            "checks": {
                # A schema cannot say which hosts there are, how long lists must be and which
                # section goes with what.
                "positive_data_acceptance": {"expected-statuses": ["2xx", "404", "409", "422"]},
            },
        }
    )
    schema = schemathesis.openapi.from_url(
        f"{url}/openapi.json", headers={"Authorization": f"Bearer {token}"}, config=config
    )
    found = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
    # A stream does not end (test_stream.py).
    return [one for one in found if one.path != "/stream"]


Judge = Callable[[Any, Any], None]
"""The check of a request (schemathesis's case) and its answer."""


def as_documented(case: Any, response: Any) -> None:
    """Run all of schemathesis's checks: no fault; status, content and headers as documented; wrong
    data refused.
    """
    case.validate_response(response)
    if response.status_code >= 400:
        error = response.json()["error"]
        assert error["reason"].isprintable(), error
        assert error["path"].isprintable(), error


def as_reader(case: Any, response: Any) -> None:
    if case.operation.method.upper() == "GET":
        as_documented(case, response)
    else:
        assert response.status_code == 403, (case.as_curl_command(), response.text)


def as_stranger(case: Any, response: Any) -> None:
    status = 200 if case.operation.path in OPEN_PATHS else 401
    assert response.status_code == status, (case.as_curl_command(), response.text)


def modes(operation: Operation) -> Sequence[GenerationMode]:
    """Return the modes of generation: names in paths may be anything, so only bodies and queries
    can be wrong.
    """
    definition = operation.definition.raw
    takes = {parameter["in"] for parameter in definition.get("parameters", ())}
    return (
        list(GenerationMode)
        if "requestBody" in definition or "query" in takes
        else [GenerationMode.POSITIVE]
    )


def requests_of(operation: Operation, mode: GenerationMode) -> Any:
    """Return a strategy for requests of an operation."""
    anywhere = operation.as_strategy(mode)
    if "{" not in operation.path:
        return anywhere | anywhere.map(fit) if mode is GenerationMode.POSITIVE else anywhere
    names = {word.strip("{}") for word in operation.path.split("/") if word.startswith("{")}
    there = {name: {"a": "h1", "b": "s1"}.get(name, NAME) for name in names}
    here = operation.as_strategy(mode, path_parameters=there)
    return anywhere | here.map(fit) if mode is GenerationMode.POSITIVE else anywhere | here


def fit(case: Any) -> Any:
    """Turn the case into a job of this fabric, the only kind that passes the check of its hosts."""
    if isinstance(case.body, dict) and {"job", "workers"} <= set(case.body):
        case.body["job"] = NAME
        case.body["workers"] = ["h1", "h2", "h3"][: 2 + len(case.body["workers"]) % 2]
    return case


def fuzz(fuzzed: Fuzzed, token: str | None, judge: Judge, examples: int) -> int:
    """Send to every operation `examples` requests made to be right, and as many made to be wrong.

    Return the number sent.
    """
    sent = 0
    limited = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )
    with requests.Session() as session:
        session.trust_env = False
        if token is not None:
            session.headers["Authorization"] = f"Bearer {token}"

        def ask(case: Any) -> None:
            nonlocal sent
            sent += 1
            judge(case, case.call(base_url=fuzzed.url, session=session, timeout=TIMEOUT_S))

        for strategy in fuzzed.requests:
            limited(given(case=strategy)(ask))()
    return sent


@pytest.mark.wide
def test_an_operator_gets_no_fault_and_what_the_document_says(fuzzed: Fuzzed) -> None:
    assert fuzz(fuzzed, fuzzed.operator, as_documented, EXAMPLES) > 100


def test_a_reader_changes_nothing(fuzzed: Fuzzed) -> None:
    fuzz(fuzzed, fuzzed.reader, as_reader, FEW)


def test_without_a_token_nothing_is_told(fuzzed: Fuzzed) -> None:
    fuzz(fuzzed, None, as_stranger, FEW)


@pytest.mark.long
@needs("all examples")
def test_at_length(fuzzed: Fuzzed) -> None:
    fuzz(fuzzed, fuzzed.operator, as_documented, LONG_EXAMPLES)
    fuzz(fuzzed, fuzzed.reader, as_reader, LONG_EXAMPLES // 4)
    fuzz(fuzzed, None, as_stranger, LONG_EXAMPLES // 4)
