"""A fresh environment with Echelon and the example plugins installed from this source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "examples" / "plugins"
DISTRIBUTIONS = [
    ROOT,
    ROOT / "ctoolchain",
    ROOT / "lab",
    ROOT / "softswitch",
    *(file.parent for file in ROOT.glob("plugins/*/pyproject.toml")),
]
TIMEOUT_S = 300


@dataclass(frozen=True)
class Installed:
    """An environment made by `install`."""

    home: Path

    def command(self, name: str, *arguments: str | Path) -> list[str]:
        return [str(self.home / "bin" / name), *map(str, arguments)]

    def run(
        self, name: str, *arguments: str | Path, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment to its end, whatever its exit status."""
        return subprocess.run(
            self.command(name, *arguments),
            cwd=self.home,
            env=environment(**variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )


def environment(**more: str) -> dict[str, str]:
    """Return the environment variables of this process, without those that would show it this
    source tree.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    return {**kept, "NO_COLOR": "1", **more}


def install(home: Path) -> Installed:
    """Make the environment.

    It asks no package index: what Echelon depends on is that of the running environment.
    """
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", home], check=True, timeout=TIMEOUT_S
    )
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    # Behind the environment's own packages. Files like this one in those directories are not read,
    # so the source tree that an editable installation points to stays invisible.
    running = [path for path in map(Path, sys.path) if any(path.glob("*.dist-info"))]
    (packages / "running.pth").write_text("".join(f"{path}\n" for path in running))
    installed = Installed(home)
    # Without --ignore-installed, pip would remove the editable installation that it finds in the
    # running environment.
    options = (
        "--quiet",
        "--disable-pip-version-check",
        "--ignore-installed",
        "--no-deps",
        "--no-index",
    )
    done = installed.run(
        "python", "-m", "pip", "install", *options, "--no-build-isolation", *DISTRIBUTIONS, PLUGINS
    )
    assert done.returncode == 0, done.stderr
    return installed
