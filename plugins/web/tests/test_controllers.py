"""The page when controllers come and go: a standby, a leader that dies, a controller that is
started again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from echelon.controller.client import Client
from echelon.controller.service.api.tokens import new_token
from echelon.switches.processes import free_port
from plugins.web.tests.browser import Page
from tests.echelon.service.conftest import building
from tests.echelon.service.lab import LINE, PATIENCE_S, Daemon, Lab, ring, settle, until

pytestmark = pytest.mark.xdist_group("web")

OPERATOR = new_token("ops", "operator")
BUTTONS = {"Jobs": "Submit a job", "Policies": "Change the policy"}


@pytest.fixture
def lab(page: Page) -> Iterator[Lab]:
    """Return a switch for controllers that take the operator's token; skip without a browser."""
    with building() as build:
        lab = build(LINE)
        (lab.directory / "tokens.yaml").write_text(f"tokens:\n{OPERATOR.entry}")
        yield lab


def daemon(lab: Lab, name: str, port: int = 0) -> Daemon:
    api: dict[str, Any] = {"listen": f"127.0.0.1:{port}", "tokens": "tokens.yaml"}
    return lab.daemon(name, store="sqlite:state.db", api=api)


def client(of: Daemon) -> Client:
    return Client(of.wait_listening(), token=OPERATOR.token, timeout_s=PATIENCE_S)


def test_a_standby_says_so_and_changes_nothing_until_it_leads(page: Page, lab: Lab) -> None:
    first = daemon(lab, "first")
    first.wait_event("leading")
    second = daemon(lab, "second")
    with client(first) as leading:
        leading.register_job(ring("a", ["h1", "h2"]))
        settle(leading)
    with client(second) as standing_by:
        until(
            lambda: standing_by.status().leader is not None, "the standby does not know its leader"
        )
        page.open(second.wait_listening(), OPERATOR.token)
        page.wait(
            lambda: "This controller stands by." in page.text("#notices"),
            "the page does not say so",
        )
        leader = page.run("return document.querySelector('#notices a').href")
        assert leader.rstrip("/") == first.wait_listening()
        assert "Only the leader takes changes." in page.text("main .bar")
        for view, name in BUTTONS.items():
            page.show(view)
            assert page.button(name) == {"there": True, "enabled": False}, name
        assert not page.faults()
        assert page.console() == []
        first.kill()
        second.wait_event("leading")
        page.wait(
            lambda: "stands by" not in page.text("#notices"), "the page does not see that it leads"
        )
        for view, name in BUTTONS.items():
            page.show(view)
            page.wait(lambda: page.button(name)["enabled"], f"{name} stays disabled")  # noqa: B023
        page.show("Jobs")
        page.wait(lambda: page.row("All jobs", "a"), "the job is not shown")


def test_the_page_comes_back_when_the_controller_does(page: Page, lab: Lab) -> None:
    port = free_port()
    before = daemon(lab, "before", port)
    before.wait_event("leading")
    with client(before) as asked:
        asked.register_job(ring("a", ["h1", "h2"]))
        settle(asked)
    page.open(f"{before.wait_listening()}/#jobs", OPERATOR.token)
    page.wait(lambda: page.row("All jobs", "a"), "the job is not shown")
    assert page.text("#link-state") == "live"
    loaded_at = page.run("return performance.timeOrigin")
    before.kill()
    page.wait(
        lambda: page.text("#link-state").endswith("Trying again."), "the page does not see the loss"
    )
    assert page.row("All jobs", "a"), "what was known last is still shown"
    after = daemon(lab, "after", port)
    after.wait_event("leading")
    with client(after) as asked:
        asked.remove_job("a")
        asked.register_job(ring("b", ["h2", "h1"]))
        settle(asked)
    page.wait(lambda: page.text("#link-state") == "live", "the page does not come back")
    page.wait(
        lambda: page.row("All jobs", "b") and not page.row("All jobs", "a"),
        "the new state is not shown",
    )
    assert page.run("return performance.timeOrigin") == loaded_at, "nobody loaded it again"
    page.wait(lambda: page.button("Submit a job")["enabled"], "the button stays disabled")
