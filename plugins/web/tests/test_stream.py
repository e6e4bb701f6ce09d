"""The stream of the page's events, in Node with a service that answers as it is told and a clock
that jumps.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from tests.needs import needs

SCRIPT = """
import { follow } from "./stream.js";

const ended = new AbortController();
const seen = { pauses: [], states: [], events: [] };
const answers = JSON.parse(process.argv[2]);
globalThis.sessionStorage = { getItem: () => null };
globalThis.setTimeout = (action, ms) => {
  seen.pauses.push(ms);
  queueMicrotask(action);
};
globalThis.fetch = async () => {
  const answer = answers.shift();
  if (answer === undefined) {
    ended.abort();
    throw new DOMException("", "AbortError");
  }
  if (answer === 0) throw new TypeError("nobody listens");
  return new Response("event: hello\\ndata: 1\\n\\n", { status: answer });
};
const event = (name, data) => seen.events.push([name, data]);
await follow("stream", event, (state) => seen.states.push(state), ended.signal);
console.log(JSON.stringify(seen));
"""
ENDS, SILENT, BROKEN, UNKNOWN = 200, 0, 500, 401
"""A stream that ends well, no answer, a fault of the service, and a token that it does not know."""


@needs("node")
@pytest.mark.parametrize(
    ("answers", "pauses_ms", "states"),
    [
        ([ENDS, ENDS], [500, 500], ["live", "lost", "live", "lost"]),
        ([SILENT, BROKEN, SILENT], [500, 1000, 2000], ["lost", "lost", "lost"]),
        ([SILENT] * 6, [500, 1000, 2000, 4000, 8000, 8000], ["lost"] * 6),
        (
            [SILENT, SILENT, ENDS, SILENT],
            [500, 1000, 500, 1000],
            ["lost", "lost", "live", "lost", "lost"],
        ),
        ([ENDS, UNKNOWN, ENDS], [500], ["live", "lost", "refused"]),
    ],
)
def test_every_stream_is_opened_again_after_a_pause(
    tmp_path: Path, answers: list[int], pauses_ms: list[int], states: list[str]
) -> None:
    with as_file(files("echelon_web") / "assets" / "js") as modules:
        shutil.copytree(modules, tmp_path, dirs_exist_ok=True)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "followed.js").write_text(SCRIPT)
    command = ["node", "followed.js", json.dumps(answers)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert seen["pauses"] == pauses_ms
    assert seen["states"] == states
    assert seen["events"] == [["hello", 1]] * states.count("live")
