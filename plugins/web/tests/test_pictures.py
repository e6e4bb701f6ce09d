"""The pictures of docs/observability.md: written where ECHELON_SCREENSHOTS names a directory (`make
screenshots`).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx
import pytest

import echelon
from plugins.web.tests.browser import Page
from plugins.web.tests.conftest import Watched
from plugins.web.tests.test_view import SCENARIO, viewed
from plugins.web.tests.training import Trained, training
from tests.echelon.service.lab import ring, settle, until
from tests.needs import needs

OUT = os.environ.get("ECHELON_SCREENSHOTS")

pytestmark = [
    pytest.mark.xdist_group("web"),
    needs("a folder for screenshots"),
]
PIPELINE = {
    "job": "gpipe",
    "parallelism": "pipeline",
    "workers": ["h1", "h5"],
    "pipeline": {"micro_batches": 4, "forward": "40 ms", "activation": "40 kB"},
}
RINGS = [ring("bert", ["h2", "h6"], "80 kB", "200 ms"), ring("gpt", ["h3", "h4"], "100 kB", "250 ms"),
         ring("resnet", ["h7", "h8"], "60 kB", "150 ms")]  # fmt: skip
STEPS = 9
"""The least number of steps that a picture of the last hour has."""
RUNS = [
    Trained("gpipe", 0.1, 0.04),
    Trained("bert", 0.2),
    Trained("gpt", 0.25),
    Trained("resnet", 0.15),
]


def picture(page: Page, name: str) -> None:
    page.picture(Path(str(OUT)) / f"web_{name}.png")


def known_steps(watched: Watched) -> int:
    """Return for how many steps of the last hour it is known what the busiest port sent."""
    headers = {"Authorization": f"Bearer {watched.reader}"}
    ports = httpx.get(f"{watched.url}/history", headers=headers, trust_env=False).json()["ports"]
    return len([one for one in ports[0]["queues"][0] if one is not None]) if ports else 0


def test_pictures_of_a_service(page: Page, watched: Watched) -> None:
    with watched.client() as client:
        for job in (PIPELINE, *RINGS):
            client.register_job(job)
        client.set_link("leaf2", "spine2", "drained")
        settle(client)
        with training(watched.lab, client, RUNS):
            while known_steps(watched) < STEPS:
                time.sleep(1)
            page.look(1280, 800)
            page.open(watched.url, watched.operator)
            page.show("Last hour")
            page.wait(lambda: page.rows("Busiest ports"), "no port is shown")
            picture(page, "hour")
            page.look(360, 900)
            picture(page, "hour_narrow")
            page.look(1280, 800)
            page.show("Fabric")
            page.wait(
                lambda: any(row[3] != "-" for row in page.rows("Ports")), "no port is seen to send"
            )
            picture(page, "fabric")
            page.look(1280, 640)
            page.press("Drain the link leaf1 - spine1")
            page.wait(lambda: "bert" in page.text("#change-dialog .problem"), "nothing is refused")
            picture(page, "refusal")
            page.press("Cancel", "#change-dialog button")
            page.look(1280, 800, dark=True)
            page.show("Timeline")
            page.wait(lambda: page.rows("Flows in sight"), "no flow is shown")
            picture(page, "timeline")
            # Then only jobs inside of a leaf can be planned.
            client.set_link("leaf2", "spine1", "drained", force=True)
            until(
                lambda: client.job("bert").state == "unplanned" and client.status().settled,
                "bert is planned",
            )
            page.look(360, 900)
            page.show("Jobs")
            page.wait(
                lambda: page.row("All jobs", "bert")[1].startswith("unplanned: "),
                "bert is shown as planned",
            )
            page.wait(lambda: "4 ready" in page.text("#facts"), "a switch is not shown as ready")
            picture(page, "jobs_narrow")
            page.look(1280, 720)
            page.press("resnet")
            page.wait(lambda: page.rows("EchelonFlows"), "the details of the job do not come")
            page.wait(
                lambda: page.run("return document.querySelectorAll('main canvas').length") == 2,
                "no picture",
            )
            picture(page, "jobs")


def test_pictures_of_a_run(page: Page, tmp_path: Path) -> None:
    echelon.simulate(SCENARIO, target="fluid", policies=["fifo", "fair", "varys", "echelon"]).write(
        tmp_path
    )
    page.look(1280, 640)
    with viewed(tmp_path) as url:
        page.open(url)
        page.wait(lambda: page.row("Slowdown of each job", "data1"), "the policies are not shown")
        page.wait(
            lambda: page.run("return document.querySelectorAll('main canvas').length") == 2,
            "no picture",
        )
        picture(page, "results")
