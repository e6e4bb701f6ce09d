"""Records as they are printed: by a process of its own where that matters, read back as JSON."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import subprocess
import sys
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from echelon.controller.client import Client
from echelon.controller.service import logs
from tests.drawing import examples

pytestmark = pytest.mark.usefixtures("logging_as_before")


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def records(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_record_has_what_every_record_has(out: io.StringIO) -> None:
    logs.configure("json", "info", out)
    before = datetime.now(UTC)
    with logs.context(switch="s1", term=7):
        logs.get("echelon.test").info("session opened", entries=12, plan=3)
    logs.get("echelon.test").warning("later", job="j")
    opened, later = records(out)
    assert before <= datetime.fromisoformat(opened.pop("time")) <= datetime.now(UTC)
    assert opened == {
        "level": "info",
        "logger": "echelon.test",
        "event": "session opened",
        "switch": "s1",
        "term": 7,
        "plan": 3,
        "entries": 12,
    }
    assert list(opened)[:2] == ["level", "logger"]
    assert "switch" not in later
    assert later["job"] == "j"


async def test_context_reaches_tasks_and_the_standard_library(out: io.StringIO) -> None:
    import asyncio

    logs.configure("json", "info", out)

    async def work() -> None:
        logging.getLogger("elsewhere").warning("plain %s", "words", extra={"port": 3})

    with logs.context(switch="s2"):
        task = asyncio.create_task(work())
    await task
    (record,) = records(out)
    assert (record["event"], record["switch"], record["port"], record["logger"]) == (
        "plain words",
        "s2",
        3,
        "elsewhere",
    )
    assert record["level"] == "warning"


@pytest.mark.parametrize(
    ("level", "expected"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)]
)
def test_levels(out: io.StringIO, level: logs.Level, expected: int) -> None:
    logs.configure("json", level, out)
    log = logs.get("x")
    for name in ("debug", "info", "warning", "error"):
        getattr(log, name)(name)
    assert len(records(out)) == expected


def test_configured_again_there_is_one_handler(out: io.StringIO) -> None:
    first = io.StringIO()
    logs.configure("json", "debug", first)
    log = logs.get("x")
    log.info("one")
    logs.configure("json", "info", out)
    logs.configure("json", "info", out)
    log.info("two")
    log.debug("nobody asked")
    assert [one["event"] for one in records(first)] == ["one"]
    assert [one["event"] for one in records(out)] == ["two"]


def test_libraries_speak_through_us_once(out: io.StringIO) -> None:
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "grpc"):
        logging.getLogger(name).addHandler(logging.StreamHandler(out))
    logs.configure("json", "info", out)
    for name in ("uvicorn.error", "grpc"):
        logging.getLogger(name).error("from %s", name)
        logging.getLogger(name).info("what the service says itself")
    logging.getLogger("uvicorn.access").info("GET / with Authorization")
    assert [one["event"] for one in records(out)] == ["from uvicorn.error", "from grpc"]
    logs.configure("json", "debug", out)
    logging.getLogger("grpc").info("told")
    assert records(out)[-1]["event"] == "told"


def test_warnings_are_records(out: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logs.configure("json", "info", out)
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    (record,) = records(out)
    assert "old thing" in record["event"]
    assert record["level"] == "warning"


def fail() -> None:
    token = "local-variable-value"  # noqa: F841 - it must not be printed
    try:
        raise ValueError("the cause")
    except ValueError as error:
        raise RuntimeError("it broke") from error


def test_exceptions_are_fields(out: io.StringIO) -> None:
    logs.configure("json", "info", out)
    try:
        fail()
    except RuntimeError:
        logs.get("x").exception("planning failed", plan=3)
    (record,) = records(out)
    assert (record["event"], record["level"], record["plan"]) == ("planning failed", "error", 3)
    first, cause = record["exception"]
    assert (first["exc_type"], first["exc_value"]) == ("RuntimeError", "it broke")
    assert (cause["exc_type"], cause["exc_value"]) == ("ValueError", "the cause")
    assert first["frames"][-1]["name"] == "fail"
    assert "local-variable-value" not in out.getvalue()


def test_an_exception_may_be_handed_on(out: io.StringIO) -> None:
    logs.configure("json", "info", out)
    logs.get("x").warning("a task ended", exc_info=ValueError("the reason"))
    (record,) = records(out)
    assert [(one["exc_type"], one["exc_value"]) for one in record["exception"]] == [
        ("ValueError", "the reason")
    ]
    assert "exc_info" not in record


def test_exceptions_in_text_keep_their_lines(out: io.StringIO) -> None:
    logs.configure("text", "info", out)
    try:
        fail()
    except RuntimeError:
        logs.get("x").exception("planning failed", plan=3)
    first, *rest = out.getvalue().splitlines()
    assert "planning failed" in first
    assert "plan=3" in first
    assert rest[-1] == "RuntimeError: it broke"
    assert "ValueError: the cause" in rest


SECRET = "s3cr3t-Value_0123456789"


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_record_does_not_show_what_holds_a_secret(out: io.StringIO, style: logs.Format) -> None:
    holders = (
        SecretStr(SECRET),
        Client("http://127.0.0.1:1", token=SECRET),
        {"nested": [SecretStr(SECRET)]},
    )
    assert_hidden(holders, style, out)


def assert_hidden(holders: Sequence[object], style: logs.Format, out: io.StringIO) -> None:
    """Assert that records of things that hold `SECRET` do not show it."""
    logs.configure(style, "debug", out)
    for holder in holders:
        logs.get("x").info("request", holder=holder)
        logging.getLogger("library").warning("request %r", holder)
    assert len(out.getvalue().splitlines()) == 2 * len(holders)
    assert SECRET not in out.getvalue()


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize("style", ["json", "text"])
@settings(max_examples=examples(50), deadline=None)
@given(value=words, event=words)
def test_a_record_is_one_line(style: logs.Format, value: str, event: str) -> None:
    """The record neither looks like another one nor moves the cursor, whatever a name holds."""
    out = io.StringIO()
    logs.configure(style, "info", out)
    logs.get("x").info(event, name=value)
    text = out.getvalue()
    assert text.endswith("\n")
    assert len(text.splitlines()) == 1 or style == "json"
    assert text.count("\n") == 1
    assert not any(ord(one) < 32 or 127 <= ord(one) < 160 for one in text[:-1])
    if style == "json":
        record = json.loads(text)
        assert record["event"] == event


SCRIPT = """
from echelon.controller.service import logs
logs.configure()
logs.get("x").info("hello", switch="s1")
"""


def test_json_where_nobody_watches_and_text_on_a_terminal() -> None:
    piped = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert piped.stdout == ""
    assert json.loads(piped.stderr)["switch"] == "s1"
    main, terminal = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", SCRIPT], stderr=terminal, check=True, timeout=60)
        shown = os.read(main, 10_000).decode()
    finally:
        os.close(main)
        os.close(terminal)
    assert "hello" in shown
    assert "\x1b[" in shown, "in colours"
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize("records", [1, 3000])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_process_outlives_the_reader_of_its_log(records: int, unbuffered: str) -> None:
    """No buffer is left over that the interpreter would try, and fail, to flush at exit."""
    script = SCRIPT + f"for _ in range({records}): logs.get('x').info('hello')\nprint('done')\n"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=writing,
            check=False,
            timeout=60,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stdout) == (0, b"done\n")


def test_without_configure_nothing_is_printed_on_standard_output() -> None:
    """Parts of the service are used by commands too."""
    script = (
        "from echelon.controller.service import"
        " logs\nlogs.get('x').info('hello')\nlogs.get('x').error('broken')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == ""
    assert "hello" not in done.stderr
    assert "broken" in done.stderr
