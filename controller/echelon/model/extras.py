"""The parts that come with the package or beside it.

An extra brings what a command imports, or a plug-in that the base does not have. `shipped` has the
files beside the code: examples, topologies, P4 sources and the compiled programs. `cached` is where
commands keep what can be made again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

EXTRAS = {
    "matplotlib": "plot",
    "numpy": "plot",
    "pandas": "pandas",
    "distributed": "cluster",
    "aetcd": "etcd",
    "thriftpy2": "bmv2",
    "torch": "torch",
    "echelon_lab": "lab",
    "softswitch": "lab",
}
"""The extra that has a package, by the name under which it is imported."""

_LAB = (
    "advise",
    "evaluate",
    "job.new",
    "lab",
    "place",
    "plot",
    "run",
    "sweep",
    "traffic",
    "traffic.receive",
    "traffic.send",
)
PLUG_INS = {
    "echelon.commands": {
        **dict.fromkeys(_LAB, "lab"),
        **dict.fromkeys(("agent", "capture", "run-job"), "torch"),
        "aggregation": "aggregation",
        "import": "importers",
        **dict.fromkeys(("slurm", "switch-config"), "site"),
        "topology": "topoopt",
        "view": "web",
    },
    "echelon.files": dict.fromkeys(
        ("coflows", "results", "rows", "scenario", "sizes", "start_us", "started_s", "sweep"), "lab"
    ),
    "echelon.judges": {"packets": "lab"},
    "echelon.pictures": dict.fromkeys(("fabric", "job"), "lab"),
    "echelon.programs": {"aggregation": "aggregation"},
    "echelon.plots": {"sweep.slowdowns": "lab"},
    "echelon.stores": {"etcd": "etcd"},
    "echelon.targets": {"tofino": "tofino"},
    "echelon.workers": {"program": "torch"},
}
"""The extra that brings a plug-in, by entry-point group and name."""


def plug_in(group: str, name: str) -> str | None:
    """Return how to install a plug-in of an entry-point group, in one line; None: unknown."""
    extra = PLUG_INS[group].get(name)
    if extra is None:
        return None
    return (
        f"'{name.replace('.', ' ')}' is in the plug-in echelon-{extra} (run: pip install"
        f" 'echelon-p4[{extra}]')"
    )


def how_to_install(error: ImportError) -> str | None:
    """Return the line that says what is missing and how to install it; None: it is in no extra."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return f"{package} is not installed (run: pip install 'echelon-p4[{EXTRAS[package]}]')"


def origin(entry: EntryPoint) -> str:
    """Return the distribution and the object of a plug-in, as messages name them."""
    name = entry.dist.name if entry.dist else "an unknown distribution"
    return f"{name} ({entry.value})"


_PACKAGE = Path(__file__).parents[1]


def shipped() -> Path:
    """Return the directory of `examples`, `topologies` and `p4src`, also in a checkout."""
    installed = _PACKAGE / "_shipped"
    if installed.is_dir():
        return installed
    return _PACKAGE.parent.parent


def cached() -> Path:
    """Return the folder for files that can be made again: echelon in ~/.cache or XDG_CACHE_HOME."""
    return Path.home() / ".cache" / os.environ.get("XDG_CACHE_HOME", "") / "echelon"
