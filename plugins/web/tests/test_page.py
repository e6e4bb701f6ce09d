"""The page in a real browser: the real daemon behind it, with real switches."""

from __future__ import annotations

import re
from typing import Any

import pytest

from echelon.controller.client import Client
from plugins.web.tests.browser import Page
from plugins.web.tests.conftest import Watched
from plugins.web.tests.training import Trained, training
from tests.echelon.service.lab import ring, settle, until

pytestmark = pytest.mark.xdist_group("web")

VIEWS = ("Fabric", "Jobs", "Last hour", "Timeline", "Waits", "Plan", "Policies", "Events")
LOOKS = (("light", 1280, False), ("dark", 1280, True), ("narrow", 360, False))
BERT = ring("bert", ["h1", "h5"], "100 kB", "100 ms")
GPT = ring("gpt", ["h2", "h6"], "100 kB", "150 ms")
YAML = (
    "{job: bert, parallelism: data, workers: [h1, h5], data: {compute: 100 ms, gradient: 100 kB}}"
)
DIALOG = "#change-dialog button"


def submitted(client: Client, *jobs: dict[str, Any]) -> None:
    for job in jobs:
        client.register_job(job)
    settle(client)


def test_no_view_has_a_fault(page: Page, watched: Watched) -> None:
    """Neither an error on the console, nor something that the policy blocked, nor a fault that axe
    calls serious.
    """
    with watched.client() as client:
        submitted(client, BERT, GPT)
        with training(watched.lab, client, [Trained("bert", 0.1), Trained("gpt", 0.1)]):
            page.open(watched.url, watched.operator)
            until(lambda: client.job("bert").iteration_times_s, "nothing was timed")
            for view in VIEWS:
                page.look()
                page.show(view)
                if view == "Jobs":
                    page.press("bert")
                    page.wait(
                        lambda: page.rows("EchelonFlows"), "the details of the job do not come"
                    )
                if view == "Last hour":
                    page.wait(lambda: page.row("Slowest jobs", "bert"), "the hour has no job")
                elif view == "Plan":
                    page.wait(lambda: page.rows("What was simulated"), "nothing was simulated")
                elif view not in ("Policies", "Events"):
                    page.wait(lambda: page.run(_DRAWN), f"{view}: no picture")
                in_each_look(page, view)
            page.show("Jobs")
            page.press("Submit a job")
            in_each_look(page, "the dialog")
    assert page.console() == []


_DRAWN = "return document.querySelector('main canvas') !== null"
_BEYOND = """const width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth <= width) return [];
return ["the page", ...[...document.querySelectorAll("body *")]
  .filter((one) => one.getBoundingClientRect().right > width + 1 && one.closest(".table-box") === null)
  .map((one) => `${one.tagName} ${one.className}`)]"""


def in_each_look(page: Page, what: str) -> None:
    """Check the page as it is in light and dark, and in a narrow window."""
    for look, width, dark in LOOKS:
        page.look(width, dark=dark)
        assert not page.faults(), f"{what}, {look}"
        assert page.run(_BEYOND) == [], f"{what}, {look}: this is wider than the window"


def test_without_a_token_nothing_is_shown(page: Page, watched: Watched) -> None:
    with watched.client() as client:
        submitted(client, BERT)
    page.open(watched.url)
    page.wait(lambda: page.text("#token-title") == "Token", "the page does not ask for a token")
    assert page.rows("Switches") == []
    assert "bert" not in page.text("body")
    page.choose("Token", "echelon_wrong")
    page.press("Use this token")
    page.wait(
        lambda: "unknown token" in page.text("#token-problem"), "the wrong token is not refused"
    )
    page.choose("Token", watched.operator)
    page.press("Use this token")
    page.wait(lambda: page.row("Switches", "leaf1"), "the token is not taken")
    assert page.run("return localStorage.length + document.cookie.length") == 0
    page.press("Token")
    page.press("Forget the token")
    page.wait(lambda: page.text("#token-title") == "Token", "the token is not forgotten")
    assert page.run("return sessionStorage.length") == 0


def test_a_job_is_tried_submitted_seen_and_removed(page: Page, watched: Watched) -> None:
    page.open(watched.url, watched.operator)
    page.show("Jobs")
    # What the page shows is up to a second old, and another test may have removed its job just now.
    page.wait(lambda: not page.row("All jobs", "bert"), "the page shows a job that is gone")
    with watched.client() as client:
        page.press("Submit a job")
        page.choose("or its text", YAML)
        page.press("See what it would do")
        page.wait(lambda: page.rows("What would be written"), "the dry run does not come")
        assert page.row("Slowdown of jobs", "bert")[:2] == ["bert", "-"]
        assert client.jobs() == [], "a dry run changes nothing"
        page.press("Submit", DIALOG)
        page.wait(
            lambda: page.row("All jobs", "bert")[1:2] == ["installed"],
            "the job is not shown as installed",
        )
        assert client.job("bert").spec["workers"] == ["h1", "h5"]

        page.press("Remove the job bert")
        page.wait(lambda: page.rows("What would be written"), "the dry run does not come")
        page.press("Cancel", DIALOG)
        assert [job.name for job in client.jobs()] == ["bert"]
        page.press("Remove the job bert")
        page.press("Remove", DIALOG)
        page.wait(lambda: not page.row("All jobs", "bert"), "the job does not go")
        assert client.jobs() == []
        page.show("Events")
        page.wait(lambda: len(page.rows("Changes")) >= 2, "the changes are not listed")
        assert [row[1:4] for row in page.rows("Changes")[:2]] == [
            ["remove job", "bert", "ops"],
            ["register job", "bert", "ops"],
        ]


def test_a_faulty_job_is_refused_in_the_words_of_the_service(page: Page, watched: Watched) -> None:
    page.open(watched.url, watched.operator)
    page.show("Jobs")
    page.press("Submit a job")
    page.choose("or its text", YAML.replace("100 ms", "100 parsec"))
    page.press("See what it would do")
    page.wait(
        lambda: "data.compute: 'parsec' is not a unit" in page.text("#change-dialog .problem"),
        "no reason is shown",
    )
    assert not page.button("Submit", DIALOG)["enabled"]
    page.press("Cancel", DIALOG)


def test_a_link_is_drained_and_one_that_jobs_need_only_by_force(
    page: Page, watched: Watched
) -> None:
    with watched.client() as client:
        submitted(client, BERT)
        state = lambda: {(link.a, link.b): link.state for link in client.links()}  # noqa: E731
        page.open(watched.url, watched.operator)
        page.press("Drain the link leaf1 - spine1")
        page.wait(
            lambda: page.text("#change-dialog h3, #change-dialog caption"),
            "the dry run does not come",
        )
        assert state()["leaf1", "spine1"] == "up", "a dry run changes nothing"
        page.press("Drain", DIALOG)
        page.wait(
            lambda: page.row("Links", "leaf1 - spine1")[3:4] == ["drained"],
            "the link is not shown as drained",
        )
        assert state()["leaf1", "spine1"] == "drained"

        page.press("Drain the link leaf1 - spine2")
        page.wait(
            lambda: "bert" in page.text("#change-dialog .problem"),
            "the job that would be stranded is not named",
        )
        assert not page.button("Drain", DIALOG)["enabled"]
        page.choose("Drain it all the same", "on")
        page.wait(lambda: page.button("Drain", DIALOG)["enabled"], "force is not offered")
        assert state()["leaf1", "spine2"] == "up"
        page.press("Drain", DIALOG)
        page.wait(
            lambda: "cannot be planned" in page.text("#notices"), "the stranded job is not told of"
        )
        assert state()["leaf1", "spine2"] == "drained"

        for spine in ("spine1", "spine2"):
            page.press(f"Restore the link leaf1 - {spine}")
            page.press("Restore", DIALOG)
            page.wait(
                lambda: page.row("Links", f"leaf1 - {spine}")[3:4] == ["up"],  # noqa: B023
                "the link is not restored",
            )
        page.wait(lambda: page.text("#notices") == "", "the notice stays")


def test_links_of_a_switch_that_died_are_down_and_their_reason_is_shown(
    page: Page, watched: Watched
) -> None:
    spine = watched.lab.switches["spine1"]
    with watched.client() as client:
        page.open(watched.url, watched.operator)
        page.wait(
            lambda: page.row("Links", "leaf1 - spine1")[3:4] == ["up"], "the link is not shown"
        )
        spine.kill()
        try:
            shown = "down: switch spine1 does not answer"
            page.wait(
                lambda: page.row("Links", "leaf1 - spine1")[3:4] == [shown],
                "it is not shown as down",
            )
            assert page.row("Links", "leaf1 - spine2")[3:4] == ["up"]
        finally:
            spine.start()
        page.wait(
            lambda: page.row("Links", "leaf1 - spine1")[3:4] == ["up"],
            "it is not shown as up again",
        )
        settle(client)


def test_why_a_job_is_planned_stands_in_its_row(page: Page, watched: Watched) -> None:
    """Its only leaf is dead: the row names it.

    What the picture says of it is inside the picture, wide and narrow.
    """
    leaf = watched.lab.switches["leaf2"]
    with watched.client() as client:
        submitted(client, BERT)
        page.open(watched.url, watched.operator)
        page.show("Jobs")
        page.wait(
            lambda: page.row("All jobs", "bert")[1:2] == ["installed"],
            "the job is not shown as installed",
        )
        leaf.kill()
        try:
            page.wait(
                lambda: "switch leaf2 does not answer" in page.row("All jobs", "bert")[1],
                "no reason",
            )
            assert page.row("All jobs", "bert")[1].startswith("planned: ")
            assert [job.waiting_for for job in client.jobs()] == [("leaf2",)]
            page.show("Fabric")
            page.wait(
                lambda: page.row("Switches", "leaf2")[1].startswith("away: "), "no reason is shown"
            )
            page.wait(
                lambda: page.row("Links", "h5 - leaf2")[3].startswith("down: "),
                "a host's link is not down",
            )
        finally:
            leaf.start()
        page.wait(
            lambda: page.row("Links", "h5 - leaf2")[3:4] == ["up"],
            "the switch that is back is not seen",
        )
        settle(client)
        assert [job.waiting_for for job in client.jobs()] == [()]


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("name", ["leaf1", "spine1", "spine2"])
def test_the_label_of_a_switch_in_trouble_is_inside_the_picture(
    page: Page, watched: Watched, name: str, width: int
) -> None:
    switch = watched.lab.switches[name]
    with watched.client() as client:
        page.look(width)
        page.open(watched.url, watched.operator)
        switch.kill()
        try:
            found = page.wait(
                lambda: page.run(_LABEL, f"{name}\naway"),
                "the picture does not say that it is away",
            )
        finally:
            switch.start()
        left, top, right, bottom, wide, high = found
        assert 0 <= left < right <= wide
        assert 0 <= top < bottom <= high
        until(lambda: {link.state for link in client.links()} == {"up"}, "links stay down")
        settle(client)


_LABEL = """const instance = window.echarts?.getInstanceByDom(document.querySelector("main .picture"));
if (!instance) return null;
const text = instance.getZr().storage.getDisplayList(true).map((one) => one.parent)
  .find((one) => one?.type === "text" && one.style.text === arguments[0]);
if (!text) return null;
const box = text.getBoundingRect().clone();
box.applyTransform(text.getComputedTransform());
return [box.x, box.y, box.x + box.width, box.y + box.height, instance.getWidth(), instance.getHeight()]"""


def test_tardiness_and_alerts_have_thresholds_that_mean_something(
    page: Page, watched: Watched
) -> None:
    """A job that is as late as alone is in order; one that is later by 5 % of an iteration alone is
    not.
    """
    page.open(watched.url, watched.operator)

    def job(name: str, late_s: float | None, alone_s: float | None = 0.4) -> dict[str, Any]:
        return {"name": name, "state": "installed", "last_tardiness_s": late_s, "alone_tardiness_s": alone_s,
                "alone_iteration_s": 2.0}  # fmt: skip

    jobs = [job("a", 0.4), job("b", 0.49), job("c", 0.51), job("d", 0.79), job("e", 0.82), job("f", 1.4),
            job("g", None), job("h", 9.0, None), job("i", -0.2)]  # fmt: skip
    tones = page.run(
        "const jobs = arguments[0]; return import('/web/js/jobs.js').then(({ late }) =>"
        " jobs.map(late))",
        jobs,
    )
    assert tones == ["", "", "warn", "warn", "bad", "bad", "", "", ""]
    waiting = {"problem": None, "waiting_for": ["s1", "s2", "s3", "s4", "s5"]}
    reasons = page.run(
        """const jobs = arguments[0];
           const store = { get: (_, name) => name === "s1" ? { state: "away" } : { state: "writing" } };
           return import('/web/js/jobs.js').then(({ why }) => jobs.map((one) => why(one, store)))""",
        [waiting, {**waiting, "problem": "no room"}, {**waiting, "waiting_for": []}],
    )
    assert reasons == ["waits for s1 (away), s2 (writing), s3 (writing), 2 more", "no room", ""]
    parts = {
        "jobs": [*jobs, {**job("z", None), "state": "unplanned"}],
        "switches": [{"name": "s1", "foreign_entries": 2}, {"name": "s2", "foreign_entries": 0}],
        "ports": [
            {"switch": "s1", "to": "h1", "drops_per_s": 12.34},
            {"switch": "s1", "to": "h2", "drops_per_s": 0},
        ],
    }
    found = page.run(
        """const parts = arguments[0];
           const store = { get: () => ({ problems: ["plan: none"] }), all: (name) => [...parts[name]] };
           return import('/web/js/alerts.js').then(({ alerts }) => alerts(store))""",
        parts,
    )
    assert [(one["text"], one["view"]) for one in found] == [
        ("plan: none", None),
        ("1 job cannot be planned: z.", "Jobs"),
        ("2 jobs late by 20 % of an iteration or more: f (50 %), e (21 %).", "Jobs"),
        ("1 switch with entries of others: s1 (2).", "Fabric"),
        ("1 port dropping packets: s1 to h1 (12.3 a second).", "Fabric"),
    ]


def test_policies_are_compared_and_changed(page: Page, watched: Watched) -> None:
    with watched.client() as client:
        submitted(client, BERT, GPT)
        page.open(watched.url, watched.operator)
        page.show("Policies")
        page.press("Compare all policies")
        page.wait(lambda: page.row("Slowdown of each job", "bert"), "the policies are not compared")
        choices = client.policy().choices
        assert len(page.row("Slowdown of each job", "bert")) == 1 + len(choices)
        assert client.policy().name == "echelon"
        page.choose("Policy", "varys")
        page.press("Change the policy")
        page.wait(lambda: page.button("Change", DIALOG)["enabled"], "the dry run does not come")
        assert client.policy().name == "echelon", "a dry run changes nothing"
        page.press("Change", DIALOG)
        page.wait(lambda: "varys" in page.text("#facts"), "the new policy is not shown")
        assert client.policy().name == "varys"
        page.choose("Policy", "echelon")
        page.choose("order", "setf")
        page.press("Change the policy")
        page.press("Change", DIALOG)
        until(
            lambda: client.policy().parameters == {"order": "setf"}, "the parameter was not taken"
        )


def test_a_reader_can_change_nothing(page: Page, watched: Watched) -> None:
    with watched.client() as client:
        submitted(client, BERT)
        before = (client.jobs(), client.links(), client.policy(), len(client.events()))
        page.open(watched.url, watched.reader)
        page.wait(
            lambda: "only read" in page.text("main .bar"),
            "the page does not say that the token may only read",
        )
        asking = {
            "Fabric": ["Drain the link leaf1 - spine1"],
            "Jobs": ["Submit a job", "Remove the job bert"],
            "Policies": ["Change the policy", "Compare all policies"],
        }
        for view, buttons in asking.items():
            page.show(view)
            for name in buttons:
                page.wait(lambda: page.button(name)["there"], f"there is no button '{name}'")  # noqa: B023
                assert not page.button(name)["enabled"], name
        # The page only shows what the service enforces.
        statuses = page.run(
            """const headers = {Authorization: `Bearer ${sessionStorage.getItem("echelon-token")}`,
                 "Content-Type": "application/json"};
               const tried = [["POST", "jobs", arguments[0]], ["PUT", "jobs/bert", arguments[0]],
                 ["DELETE", "jobs/bert"], ["PUT", "policy", {name: "fair"}],
                 ["PUT", "links/leaf1/spine1", {state: "drained", force: true}]];
               return Promise.all(tried.flatMap(([method, path, body]) => ["", "?dry_run=true"].map((query) =>
                 fetch(path + query, {method, headers, body: JSON.stringify(body)})
                   .then((answer) => answer.status))))""",
            GPT,
        )
        assert statuses == [403] * 10
        assert (client.jobs(), client.links(), client.policy(), len(client.events())) == before


def test_what_happens_elsewhere_is_seen_at_once(page: Page, watched: Watched) -> None:
    page.open(watched.url, watched.reader)
    page.wait(
        lambda: page.row("Switches", "spine1")[1:2] == ["ready"], "the switches are not shown"
    )
    with watched.client() as client:
        submitted(client, BERT)
        page.wait(
            lambda: "1 installed" in page.text("#facts"), "a job of another client is not seen"
        )
        with training(watched.lab, client, [Trained("bert", 0.05)]):
            page.wait(
                lambda: any(row[3] != "-" for row in page.rows("Ports")), "no port is seen to send"
            )
        spine = watched.lab.switches["spine1"]
        spine.kill()
        page.wait(
            lambda: page.row("Switches", "spine1")[1].startswith(("away", "connecting")),
            "a dead switch is not seen",
        )
        page.wait(lambda: "spine1" in page.text("#notices"), "a dead switch is not told of")
        spine.start()
        page.wait(
            lambda: page.row("Switches", "spine1")[1:2] == ["ready"],
            "the switch that is back is not seen",
        )
        settle(client)


def test_the_timeline_moves(page: Page, watched: Watched) -> None:
    with watched.client() as client:
        submitted(client, BERT)
        page.open(watched.url, watched.reader)
        with training(watched.lab, client, [Trained("bert", 0.02)]):
            until(lambda: len(client.job("bert").iteration_times_s) > 20, "nothing was timed")
        page.show("Timeline")
        page.wait(lambda: page.rows("Flows in sight"), "no flow is shown")
        page.choose("Hold still", "on")
        page.press("Show all of it")
        status = lambda: page.text("main .bar [role=status]")  # noqa: E731
        page.wait(lambda: page.run(_ALL_SHOWN, status()), "not all flows are shown")
        all_of_it = status()
        page.press("Zoom in")
        page.wait(lambda: status() != all_of_it, "it does not zoom in")
        # As many flows may be in sight afterwards, but not the same.
        nearer = status(), page.rows("Flows in sight")
        page.press("Later")
        page.wait(lambda: (status(), page.rows("Flows in sight")) != nearer, "it does not move")
        page.press("Earlier")
        page.press("Zoom out")
        page.press("Show all of it")
        page.wait(lambda: status() == all_of_it, "it does not show all again")
        late = [row[6] for row in page.rows("Flows in sight")]
        assert all(one.endswith("s") for one in late), "each flow has its tardiness"


_ALL_SHOWN = (
    "const found = arguments[0].match(/^([\\d,]+) flows of ([\\d,]+) /); return found && found[1]"
    " === found[2]"
)


def test_the_last_hour_has_jobs_and_ports(page: Page, watched: Watched) -> None:
    """Figures and pictures of it come, whether or not anyone has looked at the page meanwhile."""
    with watched.client() as client:
        submitted(client, BERT)
        with training(watched.lab, client, [Trained("bert", 0.05)]):
            page.open(watched.url, watched.reader)
            page.show("Last hour")
            found = page.wait(lambda: page.row("Slowest jobs", "bert"), "the job is not shown")
            assert all(
                figure.endswith("s")
                for figure in (found[2], found[3], found[4], found[6], found[7])
            )
            # Two readings of all switches are some 20 s apart.
            busiest = lambda: [  # noqa: E731
                row for row in page.rows("Busiest ports") if row[1] == "h5" and row[4] != "-"
            ]
            page.wait(busiest, "the port of the receiver is not shown")
        assert page.run("return document.querySelectorAll('.hour .value').length") >= 2
        assert page.run("return document.querySelectorAll('.hour .q').length") >= 1
    assert page.console() == []


def test_the_last_hour_is_drawn_to_scale(page: Page, watched: Watched) -> None:
    """Each point of the pictures is where its value and its time are, by the lowest and the highest
    value.
    """
    page.open(watched.url, watched.reader)
    steps, first, low, high = 41, 1, -1.0, 3.0
    values: list[float | None] = [None] * steps
    for at, value in ((1, 0.0), (2, 3.0), (5, -1.0), (9, 2.0), (40, 1.0)):
        values[at] = value
    stack = [[0.25 if 3 <= at <= 5 else 0.0 for at in range(steps)], [0.5] * steps]
    line, level, *areas = page.run(
        """const [values, stack, axis, low, high] = arguments;
           return import('/web/js/hour_picture.js').then(({ drawHour, hourPicture }) => {
             const at = (names, more) => {
               const element = hourPicture();
               drawHour(element, "a label", axis, more);
               return names.map((name) => element.querySelector(name).getAttribute("d"));
             };
             const lines = [{ name: "value", values }];
             return [...at([".value", ".level"], { low, high, lines, levels: [{ name: "level", value: 1 }] }),
               ...at([".q0", ".q1"], { high: 1, stack })];
           })""",
        values,
        stack,
        {"first": first, "steps": steps, "from": 0, "step": 20},
        low,
        high,
    )
    wide, lowest, highest = 360, 42, 2
    x = lambda at: (at - first) / (steps - 1 - first) * wide  # noqa: E731
    y = lambda value, low, high: lowest + (value - low) / (high - low) * (highest - lowest)  # noqa: E731
    runs = [[(1, 0.0), (2, 3.0), (5, -1.0)], [(9, 2.0)], [(40, 1.0)]]
    expected = [[(x(at), y(value, low, high)) for at, value in run] for run in runs]
    assert points(line) == [[pytest.approx(point, abs=0.06) for point in run] for run in expected]
    assert points(level) == [[pytest.approx((0, y(1.0, low, high)), abs=0.06)]]
    upper = [(x(at), y(0.5 + stack[0][at], 0, 1)) for at in range(steps)]
    between = [(x(at), y(0.5, 0, 1)) for at in range(steps)]
    floor = [(x(at), y(0, 0, 1)) for at in range(steps)]
    for found, top, bottom in ((areas[0], upper, between), (areas[1], between, floor)):
        assert points(found) == [
            [pytest.approx(point, abs=0.06) for point in [*top, *reversed(bottom)]]
        ]


def points(path: str) -> list[list[tuple[float, float]]]:
    """Return the points of each part of a path."""
    parts = [
        re.sub(r"[Zh].*", "", part).partition("H")[0].split("L") for part in path.split("M")[1:]
    ]
    return [
        [(float(point.split()[0]), float(point.split()[1])) for point in part] for part in parts
    ]


@pytest.mark.parametrize("width", [1280, 1000, 360])
def test_the_buttons_of_rows_are_in_sight_beside_a_job_in_detail(
    page: Page, watched: Watched, width: int
) -> None:
    with watched.client() as client:
        name = "a-job-whose-name-is-quite-long"
        submitted(client, {**BERT, "job": name})
        page.look(width)
        page.open(watched.url, watched.operator)
        page.show("Jobs")
        page.press(name)
        page.wait(
            lambda: page.text("main [aria-label='Details of a job'] h2") == name, "no details"
        )
        left, right, of_left, of_right, hit = page.run(
            """const button = document.querySelector("main td button[aria-label^='Remove the job']");
               button.scrollIntoView({ block: "center", inline: "nearest" });
               button.closest(".table-box").scrollLeft = 0;
               const [box, of] = [button.getBoundingClientRect(), button.closest(".table-box").getBoundingClientRect()];
               const hit = document.elementFromPoint(box.x + box.width - 3, box.y + box.height / 2) === button;
               return [box.left, box.right, of.left, of.right, hit]"""
        )
        assert of_left <= left < right <= of_right + 0.5
        assert hit, "something is above the button"


def test_the_keyboard_reaches_everything(page: Page, watched: Watched) -> None:
    """Each button and link can be focused, in the order of the page, and a dialog gives the focus
    back.
    """
    page.open(watched.url, watched.operator)
    page.wait(lambda: page.row("Links", "leaf1 - spine1"), "the links are not shown")
    assert (
        page.run(
            "return"
            ' document.querySelectorAll(\'[tabindex]:not([tabindex="0"]):not([tabindex="-1"])\').length'
        )
        == 0
    )
    assert page.run("return document.querySelector('a').textContent") == "Skip to the content"
    page.run(
        """const button = [...document.querySelectorAll("main button")].find((one) => one.textContent === "Drain");
                button.focus(); button.click()"""
    )
    focused = lambda: page.run("return document.activeElement.textContent")  # noqa: E731
    page.wait(lambda: focused() == "Cancel", "the dialog does not take the focus")
    page.press("Cancel", DIALOG)
    page.wait(lambda: focused() == "Drain", "the focus is not given back")
    page.show("Jobs")
    page.wait(
        lambda: page.run("return document.activeElement.tagName") == "H1",
        "a new view does not take the focus",
    )
