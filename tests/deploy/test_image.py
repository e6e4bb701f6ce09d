"""The container's image, which has the core, the switch and plug-ins."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from echelon_web import assets
from tests.echelon.service.test_deploy import DEPLOY, PATIENCE_S, ROOT, instructions
from tests.needs import require

CLEAN = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
"""Only what is installed is found."""


@pytest.mark.long
def test_the_image_is_built_of_steps_that_work(tmp_path: Path) -> None:
    """The first stage's commands run without a container engine, in a directory that holds what it
    copies.
    """
    require("a package index")
    source, programs = tmp_path / "src", tmp_path / "opt/echelon/bin"
    for name, text in instructions():
        if name == "COPY" and "--from" not in text:
            *sources, to = text.split()
            for one in sources:
                if (ROOT / one).is_dir():
                    shutil.copytree(
                        ROOT / one, source / to, ignore=shutil.ignore_patterns("__pycache__")
                    )
                else:
                    (source / to).mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / one, source / to)
    for step in [text for name, text in instructions() if name == "RUN" and "pip" in text]:
        here = re.sub(r"(?<=\s)/(?=opt/|wheels)", f"{tmp_path}/", f" {step}").replace(
            "python -m", f"{sys.executable} -m"
        )
        subprocess.run(["sh", "-ec", here], cwd=source, check=True, timeout=600, env=CLEAN)
    for command in (["echelon", "check", DEPLOY / "echelon.yaml"], ["softswitch", "--version"]):
        started = [programs / command[0], *command[1:]]
        subprocess.run(started, cwd=tmp_path, check=True, timeout=PATIENCE_S, env=CLEAN)
    page = (
        "from echelon_web import assets; print(*assets.names(), sep='\\n'); assets.page('service')"
    )
    started = [programs / "python", "-c", page]
    shown = subprocess.run(
        started, cwd=tmp_path, check=True, timeout=PATIENCE_S, stdout=subprocess.PIPE, env=CLEAN
    )
    assert set(shown.stdout.decode().split()) == set(assets.names())
