"""The built site: every link of it leads somewhere, and its search finds the page that answers a
question.
"""

from __future__ import annotations

import os
import posixpath
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import mean
from urllib.parse import unquote, urlsplit

import pytest

from plugins.web.tests.browser import Page, browsing
from tests.docs.pages import ROOT

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("site")]

QUESTIONS = {
    # A platform engineer.
    "which policy should I take": "policies",
    "describe my model": "jobs reference/jobs",
    "will it help my cluster": "concepts/when-not on-my-cluster start/engineer",
    "capture pytorch training": "torch",
    "import chakra trace": "importing",
    "install with systemd": "deployment upgrade install",
    "prometheus alerts": "observability reference/metrics",
    "upgrade without downtime": "upgrade",
    "fat tree fabric": "scenarios reference/scenarios reference/commands",
    "zero fsdp job": "jobs reference/jobs",
    "two controllers failover": "service reference/service",
    # A student.
    "write my own policy": "extending tutorial/your-own start/student",
    "plot results": "scenarios reference/scenarios",
    "what is tardiness": "concepts/index",
    "coflow scheduling": "policies reference/policies concepts/related",
    "published experiments": "study",
    "random scenarios": "evaluation notebook/random-scenarios",
    "python api": "reference/python",
    "new paradigm": "extending",
    "how exact is the simulation": "results reference/scenarios scenarios evaluation notebook/policies",
    # A network engineer.
    "match action tables": "data-plane reference/data-plane reference/p4",
    "tofino resources": "tofino running-on-tofino results",
    "bmv2 throughput": "testbed softswitch notebook/softswitch",
    "follow a packet": "softswitch reference/softswitch data-plane",
    "drain a link": "service reference/service reference/commands",
    "add a switch to the configuration": "service reference/service",
    "priority queues": "data-plane softswitch reference/data-plane reference/softswitch",
    "packet reordering tcp": "data-plane reference/data-plane testbed",
    "p4runtime shell": "reference/service",
    "tokens and tls": "service reference/service security",
    # A lecturer.
    "mininet class": "tutorial/class testbed start/lecturer",
    "exercises for students": "tutorial/class",
    "solutions of the tasks": "tutorial/class tutorial/teacher",
    "arrangement function": "concepts/index",
    "timeline picture": "scenarios",
    "error messages": "errors command-line",
}
"""The questions of each of the four, and the pages that answer them."""


class Links(HTMLParser):
    """Collects what a page links to, and the places in it to which others can."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.targets: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.places.add(value or "")
            elif name in ("href", "src"):
                self.targets.add(value or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, and return its folder."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", out]
    subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True, timeout=600
    )
    return out


def test_every_link_leads_to_a_place_of_the_site(site: Path) -> None:
    pages = {str(path.relative_to(site)): Links(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > 100
    broken = []
    for name, page in pages.items():
        for target in page.targets:
            url = urlsplit(target)
            if url.scheme or url.netloc:
                continue
            # Only the page for what is not found, which may be shown anywhere, has links from the
            # root.
            path = posixpath.normpath(
                posixpath.join("/", posixpath.dirname(name), unquote(url.path))
            )[1:]
            place = (
                name
                if not url.path
                else path
                if (site / path).is_file()
                else posixpath.join(path, "index.html")
            )
            if not (site / place).is_file() or (
                url.fragment and place in pages and unquote(url.fragment) not in pages[place].places
            ):
                broken.append((name, target))
    assert broken == []


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """Return the address of the site."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


ASK = """
const [question, done] = arguments;
const list = document.querySelector(".md-search-result__list"), input = document.querySelector(".md-search__input");
document.querySelector("#__search").checked = true;
input.focus();
input.value = question;
const found = () => [...list.querySelectorAll(".md-search-result__item")].map(
  item => item.querySelector("a").href);
// The answer is complete when nothing has changed for a while.
let timer;
const watcher = new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(finish, 500); });
const finish = () => { watcher.disconnect(); done(found()); };
watcher.observe(list.parentElement, {childList: true, subtree: true, characterData: true});
input.dispatchEvent(new Event("keyup", {bubbles: true}));
input.dispatchEvent(new Event("input", {bubbles: true}));
"""


def test_the_search_has_the_page_that_answers(
    served: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = {}
    with browsing() as page:
        page.look()
        page.open(served)
        for question, answers in QUESTIONS.items():
            ranks[question] = rank(page, question, set(answers.split()))
    with capsys.disabled():
        print()
        for question, place in ranks.items():
            print(f"{place or '-':>3}  {question}")
        first = sum(place == 1 for place in ranks.values())
        print(
            f"first: {first} of {len(ranks)}, mean of 1/rank:"
            f" {mean(1 / p if p else 0 for p in ranks.values()):.2f}"
        )
    assert all(ranks.values())
    assert first >= 0.75 * len(ranks)


def rank(page: Page, question: str, answers: set[str]) -> int | None:
    """Return the place of the first page that answers among those that the search lists; None: it
    lists none.
    """
    pages = [
        urlsplit(url).path.strip("/").removesuffix(".html") for url in page.run_async(ASK, question)
    ]
    return next((place for place, one in enumerate(pages, 1) if one in answers), None)
