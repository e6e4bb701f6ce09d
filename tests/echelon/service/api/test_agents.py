"""Reports of agents over HTTP: kept over a kill of the service, and refused with one line where
they are wrong.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from echelon.controller.client import Client, ClientError
from echelon.controller.service.api.tokens import new_token
from tests.drawing import examples
from tests.echelon.service.api.test_malformed import STAR
from tests.echelon.service.lab import Daemon, Lab, ring, settle

pytestmark = pytest.mark.xdist_group("daemon")
AGENT = {"recognition": {"by": "agent", "idle_gap": "50 ms"}}
HOST_AGENT = new_token("h1-agent", "agent", ["a"])
OPERATOR, READER = new_token("agent", "operator"), new_token("eyes", "read-only")
SEEN = [("10.0.0.1", 41000 + number, "10.0.0.2", 29500) for number in range(3)]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with TemporaryDirectory(prefix="lab-") as directory:
        (Path(directory) / "tokens.yaml").write_text(
            f"tokens:\n{OPERATOR.entry}{READER.entry}{HOST_AGENT.entry}"
        )
        made = Lab(Path(directory), STAR, api={"listen": "127.0.0.1:0", "tokens": "tokens.yaml"})
        made.start()
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def daemon(lab: Lab) -> Iterator[Daemon]:
    started = lab.daemon()
    started.wait_event("leading")
    with Client(started.wait_listening(), OPERATOR.token) as client:
        client.register_job({**ring("a", ["h1", "h2"]), **AGENT})
    yield started
    started.kill()


def recognised(lab: Lab) -> int:
    return sum(1 for entry in lab.switches["s1"].entries() if len(entry.match) == 4)


def test_a_report_survives_a_kill_of_the_service(lab: Lab, daemon: Daemon) -> None:
    with Client(daemon.wait_listening(), OPERATOR.token) as client:
        known = client.connections("a")
        assert (known.by, known.idle_gap_s) == ("agent", 0.05)
        assert known.addresses == {"h1": "10.0.0.1", "h2": "10.0.0.2"}
        client.report_connections("a", "h1", SEEN)
        daemon.kill()
    again = lab.daemon()
    again.wait_event("leading")
    with Client(again.wait_listening(), OPERATOR.token) as client:
        (kept,) = client.connections("a").connections.values()
        assert [(*one.local, *one.remote) for one in kept] == SEEN
        settle(client)
        assert client.job("a").state == "installed"
        assert recognised(lab) == 2 * len(SEEN)
        client.report_connections("a", "h1", [])
        assert client.job("a", wait_s=30).state == "installed"
        assert recognised(lab) == 0
    again.kill()


def test_a_token_that_may_only_read_reports_nothing(daemon: Daemon) -> None:
    with Client(daemon.wait_listening(), READER.token) as client:
        assert client.connections("a").job == "a"
        with pytest.raises(ClientError) as caught:
            client.report_connections("a", "h1", SEEN)
        assert caught.value.code == "forbidden"


ENDPOINTS = (
    None, 7, True, "", "10.0.0.1", "10.0.0.1:", ":1", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.256:1",
    "10.0.0.01:1", "10.0.0.1:1\n", "[::1]:1", "10.0.0.1:1:1", "h1:1", "10.0.0.1:٣", "10.0.0.1:1e3", ["10.0.0.1", 1], {},
    "\x1b[2J10.0.0.1:1", "x" * 5000,
)  # fmt: skip
FOREIGN = ("10.0.0.3:1", "0.0.0.0:1", "255.255.255.255:1", "127.0.0.1:1", "8.8.8.8:53")
GOOD = {"local": "10.0.0.1:41000", "remote": "10.0.0.2:29500"}


def damaged(rng: random.Random) -> object:
    """Return the body of a report that is wrong in a way of its own."""
    one: dict[str, Any] = dict(GOOD)
    end = rng.choice(("local", "remote"))
    ways: tuple[Callable[[], object], ...] = (
        lambda: {
            "connections": [
                *[GOOD] * rng.randrange(3),
                {**one, end: rng.choice((*ENDPOINTS, *FOREIGN))},
            ]
        },
        lambda: {"connections": [{key: value for key, value in one.items() if key != end}]},
        lambda: {"connections": [{**one, rng.choice(("port", "Local", "", "job")): "10.0.0.1:1"}]},
        lambda: {
            "connections": rng.choice(
                (None, 3, "all", {}, {"local": 1}, [None], [[]], ["10.0.0.1:1"], [[[]]])
            )
        },
        lambda: {"connections": [one], rng.choice(("job", "host", "Connections")): "a"},
        lambda: rng.choice(([], {}, None, "x", 1, [one])),
        lambda: {"connections": [{"local": one["remote"], "remote": one["local"]}]},
        lambda: {"connections": [{**one, "local": f"10.0.0.1:{port}"} for port in range(1, 4098)]},
    )
    return rng.choice(ways)()


DURATIONS = (
    None,
    7,
    True,
    "",
    "0 s",
    "-1 s",
    "1",
    "1e400 s",
    "5 MB",
    "nan s",
    "9" * 400 + " s",
    ["1 s"],
    {},
)
SIZES = (
    None,
    7,
    True,
    "",
    "0 B",
    "-1 B",
    "1",
    "1e400 MB",
    "5 s",
    "9" * 400 + " B",
    ["1 B"],
    {},
    "\x1b[2J1 B",
)
HOSTS = ("", "h1", "h3", "h9", "h 2", "\x1b[2J", "h2\n", "x" * 5000, "10.0.0.2", "../h2")
MEASURED: dict[str, Any] = {
    "duration": "200 ms",
    "sent": {"h2": "1 MB"},
    "retransmitted": "3 kB",
    "stalled": "5 ms",
}


def mismeasured(rng: random.Random) -> object:
    """Return the body of a report of iterations that is wrong in a way of its own."""
    key = rng.choice(("retransmitted", "stalled"))
    ways: tuple[Callable[[], object], ...] = (
        lambda: {"iterations": [MEASURED, {**MEASURED, "duration": rng.choice(DURATIONS)}]},
        lambda: {"iterations": [{**MEASURED, "sent": {"h2": rng.choice(SIZES)}}]},
        lambda: {"iterations": [{**MEASURED, "sent": {rng.choice(HOSTS): "1 MB"}}]},
        lambda: {
            "iterations": [{**MEASURED, "sent": rng.choice(([], "h2", 7, None, [["h2", "1 MB"]]))}]
        },
        lambda: {
            "iterations": [{**MEASURED, key: rng.choice((7, True, "", "-1", "1 parsec", [], {}))}]
        },
        lambda: {"iterations": [{**MEASURED, rng.choice(("job", "", "Sent")): "1 MB"}]},
        lambda: {
            "iterations": [{name: value for name, value in MEASURED.items() if name != "duration"}]
        },
        lambda: {
            "iterations": rng.choice((None, 3, "all", {}, MEASURED, [None], [[]], [[MEASURED]]))
        },
        lambda: {"iterations": [MEASURED] * rng.randrange(17, 100)},
        lambda: {"iterations": [{**MEASURED, "sent": {"h2": f"{rng.randrange(10**9, 10**12)} B"}}]},
        lambda: {"iterations": [{**MEASURED, "duration": "1 ns", "retransmitted": "1 GB"}]},
        lambda: {"iterations": [], rng.choice(("job", "host", "connections")): "a"},
        lambda: rng.choice(([], {}, None, "x", 1, [MEASURED])),
    )
    return rng.choice(ways)()


def test_wrong_measurements_are_refused_with_one_line_and_change_nothing(daemon: Daemon) -> None:
    rng = random.Random(18)
    headers = {"Authorization": f"Bearer {HOST_AGENT.token}", "Content-Type": "application/json"}
    with (
        httpx.Client(
            base_url=daemon.wait_listening(), headers=headers, timeout=60, trust_env=False
        ) as http,
        Client(daemon.wait_listening(), READER.token) as reader,
    ):
        assert http.put("/jobs/a/iterations/h1", json={"iterations": [MEASURED]}).status_code == 200
        before = reader.job("a").measurements
        assert before[0].sent_bytes == {"h2": 1_000_000}
        codes = set()
        for _ in range(examples(800)):
            answer = http.put(
                "/jobs/a/iterations/h1", content=json.dumps(mismeasured(rng)).encode()
            )
            assert answer.status_code in (400, 404, 413, 422), answer.text
            error = answer.json()["error"]
            assert error["reason"].isprintable()
            assert error["path"].isprintable()
            assert error["reason"].endswith(")"), error
            assert len(error["reason"]) < 600
            codes.add(error["code"])
        assert http.put("/jobs/a/iterations/h1", content=b" " * (2 << 20)).status_code == 413
        for host, status in (("h3", 404), ("h9", 404), ("%00", 404), ("h1%2Fh2", 403)):
            assert (
                http.put(f"/jobs/a/iterations/{host}", json={"iterations": []}).status_code
                == status
            )
        assert http.put("/jobs/nobody/iterations/h1", json={"iterations": []}).status_code == 403
        assert http.get("/jobs/a").status_code == 403
        assert reader.job("a").measurements == before
    assert {
        "out-of-range",
        "limit-reached",
        "missing-key",
        "unknown-key",
        "unknown-unit",
        "unknown-host",
    } <= codes
    assert not daemon.events("fault")


def test_wrong_reports_are_refused_with_one_line_and_change_nothing(
    lab: Lab, daemon: Daemon
) -> None:
    rng = random.Random(17)
    headers = {"Authorization": f"Bearer {OPERATOR.token}", "Content-Type": "application/json"}
    with httpx.Client(
        base_url=daemon.wait_listening(), headers=headers, timeout=60, trust_env=False
    ) as http:
        assert http.put("/jobs/a/connections/h1", json={"connections": [GOOD]}).status_code == 200
        before = http.get("/jobs/a/connections").json()
        codes = set()
        for _ in range(examples(800)):
            body = json.dumps(damaged(rng))
            answer = http.put("/jobs/a/connections/h1", content=body.encode())
            assert answer.status_code in (400, 413, 422), (body[:200], answer.text)
            error = answer.json()["error"]
            assert error["reason"].isprintable()
            assert error["reason"].endswith(")"), error
            assert len(error["reason"]) < 600
            codes.add(error["code"])
        for host, status in (("h3", 404), ("h9", 404), ("%00", 404), ("h1%2Fh2", 404)):
            assert (
                http.put(f"/jobs/a/connections/{host}", json={"connections": []}).status_code
                == status
            )
        assert http.put("/jobs/nobody/connections/h1", json={"connections": []}).status_code == 404
        assert http.get("/jobs/a/connections").json() == before
    assert {
        "not-an-address",
        "not-allowed",
        "out-of-range",
        "missing-key",
        "unknown-key",
        "limit-reached",
    } <= codes
    assert not daemon.events("fault")
