"""Debian's Mininet, imported by any Python: Debian packages it for its own Python only."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import warnings
from pathlib import Path
from types import ModuleType

from echelon.errors import RunError

INSTALL = "apt-get install --no-install-recommends mininet iputils-ping bridge-utils ethtool"
_PACKAGE = Path("/usr/lib/python3/dist-packages/mininet")
_COMMANDS = ("mnexec", "ifconfig")


def missing() -> str | None:
    """Return why Mininet cannot be used here, in one line with what to do, or None if it can."""
    for command in _COMMANDS:
        if shutil.which(command) is None:
            return f"{command} is not installed ({INSTALL})"
    if _found() is None:
        return f"Mininet's Python package is not in {_PACKAGE} ({INSTALL})"
    return None


def load_mininet() -> None:
    """Make `import mininet.net` work, without the rest of Debian's Python packages. Raises `RunError`."""
    if "mininet.net" in sys.modules:
        return
    reason = missing()
    if reason is not None:
        raise RunError(f"no Mininet: {reason}")
    spec = _found()
    assert spec is not None
    assert spec.loader is not None
    if "mininet" not in sys.modules:
        module = importlib.util.module_from_spec(spec)
        sys.modules["mininet"] = module
        spec.loader.exec_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Mininet is older than these warnings
        if importlib.util.find_spec("distutils") is None:
            _replace_distutils()
        importlib.import_module("mininet.net")


def _found() -> importlib.machinery.ModuleSpec | None:
    return importlib.util.find_spec("mininet") or (
        importlib.util.spec_from_file_location(
            "mininet", _PACKAGE / "__init__.py", submodule_search_locations=[str(_PACKAGE)]
        )
        if (_PACKAGE / "__init__.py").exists()
        else None
    )


def _replace_distutils() -> None:
    """Put a stand-in for distutils, which Python 3.12 removed. Mininet compares versions of Open vSwitch with it."""
    package, version = ModuleType("distutils"), ModuleType("distutils.version")
    version.StrictVersion = tuple  # type: ignore[attr-defined]
    package.version = version  # type: ignore[attr-defined]
    sys.modules |= {"distutils": package, "distutils.version": version}
