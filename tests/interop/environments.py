"""Virtual environments of other people's clients, one each: their requirements contradict each other's and ours."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / ".venv-interop"


def python_with(name: str, requirement: str) -> Path:
    """The Python of an environment with `requirement` installed; made once, and again when the requirement changes.

    Skips the test where pip cannot install it, as without a package index.
    """
    ROOT.mkdir(exist_ok=True)
    home = ROOT / name
    python = home / "bin" / "python"
    installed = home / "INSTALLED"
    wanted = f"{requirement}\n{sys.version}\n"
    with (ROOT / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if installed.exists() and installed.read_text() == wanted:
            return python
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
        done = subprocess.run([*pip, "install", "--quiet", requirement], capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            pytest.skip(f"pip cannot install {requirement}: {reason}")
        installed.write_text(wanted)
    return python
