"""docs/service.md and docs/reference/service.md: what they show is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import typer
import yaml

import echelon.controller.service.config as config
from echelon.cli import app
from echelon.model.documents import parse_document
from echelon.model.jobs.spec import JobSpec

DOCS = Path(__file__).parents[3] / "docs"
PAGES = (DOCS / "service.md", DOCS / "reference" / "service.md")
PAGE = "".join(page.read_text(encoding="utf-8") for page in PAGES)


def test_the_configuration_is_that_of_the_module() -> None:
    example = (config.__doc__ or "").split("```yaml\n")[1].split("```")[0]
    assert example in PAGE


def test_every_command_and_option_of_the_table_exists_and_every_command_is_there() -> None:
    root = typer.main.get_command(app)
    rows = re.findall(r"^\| `echelon (.*?)` \|", PAGE, re.MULTILINE)
    named = set()
    for text in (part for row in rows for part in row.replace("\\|", "/").split("`, `")):
        command, path = root, []
        for word in text.split():
            if word not in getattr(command, "commands", {}):
                break
            command = command.commands[word]  # type: ignore[attr-defined]
            path.append(word)
        assert path, text
        named.add(" ".join(path))
        options = {name for parameter in command.params for name in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", text)) <= options, text
    leaves = {
        " ".join((name, inner)).strip()
        for name, command in root.commands.items()  # type: ignore[attr-defined]
        for inner in (getattr(command, "commands", None) or [""])
    }
    # Those of experiments and files are not the service's.
    assert {leaf.split()[0] for leaf in leaves - named - {"job new"}} <= {
        "advise",
        "aggregation",
        "capture",
        "init",
        "examples",
        "run",
        "view",
        "plot",
        "policies",
        "sweep",
        "place",
        "import",
        "show",
        "fabric",
        "traffic",
        "evaluate",
        "topology",
    }


def test_the_jobs_in_it_are_good() -> None:
    found = [json.loads(text) for text in re.findall(r"-d '(\{\s*\"job\".*?\})'", PAGE, re.DOTALL)]
    assert len(found) == 2
    parse_document(JobSpec, found[0], "docs/service.md")
    quick = yaml.safe_load(PAGE.split("$ cat job.yaml\n")[1].split("$ echelon")[0])
    recognition = yaml.safe_load(re.findall(r"^recognition: .*$", PAGE, re.MULTILINE)[0])
    parse_document(JobSpec, quick | recognition, "docs/service.md")


def test_the_quick_start_is_good(tmp_path: Path) -> None:
    texts = [
        text
        for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
        if text.startswith(("service:", "fabric:"))
    ]
    (tmp_path / "echelon.yaml").write_text(texts[0])
    (tmp_path / "fabric.yaml").write_text(texts[1])
    assert list(config.load_service_config(tmp_path / "echelon.yaml").switches) == ["s1"]
