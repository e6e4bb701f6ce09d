"""A real Chromium, driven by Selenium: what the tests of the page do with it, in the page's own
words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin

from tests.needs import path_of, require

PATIENCE_S = 60.0
WIDTH, HEIGHT = 1280, 900
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
BINARIES = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("chromedriver", "chromium-driver")

T = TypeVar("T")


class Page:
    """A browser and the page that it shows."""

    def __init__(self) -> None:
        require("a browser")
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = str(path_of(*BINARIES))
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(path_of(*DRIVERS))
        self._driver = webdriver.Chrome(options=options, service=service)
        self._driver.set_script_timeout(PATIENCE_S)
        self.look()

    def close(self) -> None:
        self._driver.quit()

    def leave(self) -> None:
        """Show nothing, which takes no processor."""
        self._driver.get("about:blank")

    def look(self, width: int = WIDTH, height: int = HEIGHT, *, dark: bool = False) -> None:
        """Change the size of the window and the colours that its user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, url: str, token: str | None = None) -> None:
        """Load a page anew, in a tab that remembers nothing but this token."""
        # From another document: going to another fragment of the same one loads nothing.
        self._driver.get(urljoin(url, "/web/icon.svg"))
        self.run(
            "sessionStorage.clear(); if (arguments[0]) sessionStorage.setItem('echelon-token',"
            " arguments[0])",
            token,
        )
        self.console()
        self._driver.get(url)

    def show(self, view: str) -> None:
        """Follow the link to a view."""
        self.press(view, "#views a")
        self.wait(lambda: self.text("main h1") == view, f"the view {view} does not come")

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script in the page; a promise that it returns is awaited."""
        return self._driver.execute_script(script, *arguments)

    def run_async(self, script: str, *arguments: object) -> Any:
        """Run a script in the page, which calls its last argument with what is returned."""
        return self._driver.execute_async_script(script, *arguments)

    def console(self) -> list[str]:
        """Return what the browser has complained about since the last call: errors, and what the
        policy blocked.
        """
        found = self._driver.get_log("browser")
        return [one["message"] for one in found if one["level"] in ("SEVERE", "WARNING")]

    def text(self, selector: str) -> str:
        """Return the text of the first such element; empty: there is none, or it is hidden."""
        return str(
            self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        ).strip()

    def rows(self, caption: str) -> list[list[str]]:
        """Return the cells of the visible table with that caption; empty: there is none."""
        found: list[list[str]] = self.run(
            """const table = [...document.querySelectorAll("table")].find((one) => one.checkVisibility()
                 && one.caption?.textContent.startsWith(arguments[0]));
               return [...(table?.tBodies[0].rows ?? [])]
                 .map((row) => [...row.cells].map((cell) => cell.innerText.trim()))""",
            caption,
        )
        return found

    def row(self, caption: str, first: str) -> list[str]:
        """Return the row of a table that begins with a text; empty: there is none."""
        return next((row for row in self.rows(caption) if row[0] == first), [])

    def button(self, name: str, within: str = "button") -> dict[str, Any]:
        """Return whether the button (or link) of that name, as assistive technology reads it, is
        there and enabled.
        """
        found: dict[str, Any] = self.run(
            _FIND + "return {there: Boolean(found), enabled: found?.disabled === false}",
            name,
            within,
        )
        return found

    def press(self, name: str, within: str = "button") -> None:
        """Press the button (or link) of that name as soon as it is enabled."""
        self.wait(
            lambda: self.run(
                _FIND + "if (!found || found.disabled) return false; found.click(); return true",
                name,
                within,
            ),
            f"there is no button '{name}' that can be pressed",
        )

    def choose(self, label: str, value: str) -> None:
        """Put a value into the field of that label."""
        self.wait(lambda: self.run(_FILL, label, value), f"there is no field '{label}'")

    def wait(self, condition: Callable[[], T], what: str) -> T:
        """Wait until the condition holds, and return what it returned.

        Fails, saying `what`, if it does not.
        """
        give_up_at = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            assert time.monotonic() < give_up_at, f"{what}\n{self.text('body')}\n{self.console()}"
            time.sleep(0.05)
        return found

    def faults(self) -> Sequence[str]:
        """Return the serious faults of accessibility that axe finds on the page as it is."""
        self._driver.execute_script(AXE.read_text())
        found = self.run_async("""const done = arguments[0];
               const of = (node) => node.html + node.failureSummary;
               axe.run(document, {resultTypes: ["violations"]}).then((result) => done(result.violations
                 .filter((one) => ["serious", "critical"].includes(one.impact))
                 .map((one) => `${one.id}: ${one.nodes.map(of).slice(0, 3)}`)))""")
        return list(found)

    def picture(self, file: Path) -> None:
        """Write what the window shows."""
        assert self._driver.save_screenshot(str(file))


@contextmanager
def browsing() -> Iterator[Page]:
    page = Page()
    try:
        yield page
    finally:
        page.close()


_FIND = """
const named = (one) => (one.getAttribute("aria-label") ?? one.textContent).trim() === arguments[0];
const found = [...document.querySelectorAll(arguments[1])].find((one) => named(one) && one.checkVisibility());
"""
_FILL = """
const label = [...document.querySelectorAll("label")].find((one) => one.textContent.trim().startsWith(arguments[0])
  && one.checkVisibility());
if (!label) return false;
const field = document.getElementById(label.htmlFor);
if (field.type === "checkbox") field.checked = arguments[1] === "on";
else field.value = arguments[1];
for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, {bubbles: true}));
return true;
"""
