"""Debian's Mininet, from whatever Python this is: it is a package of Debian's own Python, and of no other."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import warnings
from pathlib import Path
from types import ModuleType

from echelon.scenarios.results import RunError

INSTALL = "apt-get install --no-install-recommends mininet iputils-ping bridge-utils ethtool"
_PACKAGE = Path("/usr/lib/python3/dist-packages/mininet")
_COMMANDS = ("mnexec", "ifconfig")


def missing() -> str | None:
    """Why there is no Mininet here, with what to do, in one line; None: there is."""
    for command in _COMMANDS:
        if shutil.which(command) is None:
            return f"{command} is not installed ({INSTALL})"
    if _found() is None:
        return f"Mininet's Python package is not in {_PACKAGE} ({INSTALL})"
    return None


def load_mininet() -> None:
    """From now on `import mininet.net` works. Of Debian's other packages none comes with it. Raises `RunError`."""
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
        warnings.simplefilter("ignore")  # it is of another time
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
    """Python 3.12 has it no more. Mininet compares versions of Open vSwitch with it, which none of ours is."""
    package, version = ModuleType("distutils"), ModuleType("distutils.version")
    version.StrictVersion = tuple  # type: ignore[attr-defined]
    package.version = version  # type: ignore[attr-defined]
    sys.modules |= {"distutils": package, "distutils.version": version}
