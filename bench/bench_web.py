"""The web page in Chromium: loading it with many jobs, and panning a timeline of many flows.

The service is that of `bench_registered` with 1,000 jobs on 32 switches. The time counts from the
navigation to the moment at which the list of jobs is on the screen. The timeline is of 10,000 flows
of 16 jobs, each frame moves it; all of it is in sight first, then a tenth.
"""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.bench_registered import job
from bench.service import served
from echelon.controller.client import Client
from plugins.web.tests.browser import Page, browsing
from plugins.web.tests.test_view import viewed
from tests.echelon.service.lab import PATIENCE_S, settle

JOBS = 1000
FLOWS = 10_000
LOADS = 7
PAN_S = 4

_LISTED = """const found = document.querySelector("main .bar [role=status]")?.textContent;
if (found === undefined || !found.startsWith(arguments[0])) return null;
return performance.now()"""
_PAN = """const [seconds, part, done] = arguments;
const chart = echarts.getInstanceByDom(document.querySelector("main .picture"));
let frames = 0;
let begin = null;
const step = (now) => {
  begin ??= now;
  const at = (now - begin) / 1000;
  if (at > seconds) return done(frames / at);
  frames += 1;
  const start = (100 - part) * (0.5 + 0.5 * Math.sin(at * 2));
  chart.dispatchAction({type: "dataZoom", dataZoomIndex: 0, start, end: start + part});
  requestAnimationFrame(step);
};
requestAnimationFrame(step);"""


def bench() -> list[tuple[str, float, str]]:
    with browsing() as page, TemporaryDirectory() as directory:
        return [*_load(page), *_pan(page, Path(directory))]


def _load(page: Page) -> list[tuple[str, float, str]]:
    with served(map(job, range(JOBS))) as daemon:
        with Client(daemon.wait_listening(), timeout_s=10 * PATIENCE_S) as client:
            daemon.wait_event("leading")
            settle(client)
        took_ms = []
        began = set()
        for _ in range(LOADS):
            page.open(f"{daemon.wait_listening()}/#jobs")
            took_ms.append(
                page.wait(lambda: page.run(_LISTED, f"{JOBS:,} jobs"), "no jobs are listed")
            )
            began.add(page.run("return performance.timeOrigin"))
        assert len(began) == LOADS, "the page was shown again, and not loaded"
    return [
        (f"page with {JOBS:,} jobs and 32 switches, first load", took_ms[0], "ms"),
        ("later loads, median", statistics.median(took_ms[1:]), "ms"),
    ]


def _pan(page: Page, folder: Path) -> list[tuple[str, float, str]]:
    rng = random.Random(1)
    jobs = {}
    for number in range(16):
        start_s = 0.0
        flows = []
        for iteration in range(FLOWS // 16):
            start_s += rng.uniform(0.1, 0.3)
            lasts = rng.uniform(0.05, 0.5)
            late = rng.uniform(-0.1, 0.2)
            flow = {
                "name": f"f{iteration % 8}",
                "iteration": iteration // 8 + 1,
                "src": "h1",
                "dst": "h2",
                "bytes": 1000,
                "start_s": start_s,
                "finish_s": start_s + lasts,
                "tardiness_s": late,
            }
            flows.append(flow)
        times = {"iteration_times_s": [1.0], "alone_iteration_s": 1.0, "mean_slowdown": 1.0}
        jobs[f"job{number}"] = {**times, "flows": flows}
    results = {"scenario": "many", "target": "made", "results": {"fair": {"jobs": jobs}}}
    (folder / "results.json").write_text(json.dumps(results))
    with viewed(folder) as url:
        page.open(f"{url}/#timeline")
        page.wait(lambda: page.rows("Flows in sight"), "no flow is shown")
        rows = []
        for part in (99, 10):
            label = f"timeline of {FLOWS:,} flows panned, {part} % in sight"
            frames_per_s = page.run_async(_PAN, PAN_S, part)
            rows.append((label, frames_per_s, "frames/s"))
        return rows
