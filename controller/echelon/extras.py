"""The extras of the package: which one brings what a command imports and the base installation does not have."""

from __future__ import annotations

_SERVICE = ("fastapi", "httpx", "prometheus_client", "pyroute2", "starlette", "structlog", "uvicorn")

EXTRAS = {
    **dict.fromkeys(_SERVICE, "service"),
    "matplotlib": "plot",
    "numpy": "plot",
    "pandas": "pandas",
    "distributed": "cluster",
    "aetcd": "etcd",
    "thriftpy2": "bmv2",
    "torch": "torch",
}
"""The extra that has a package, by the name under which it is imported."""


def how_to_install(error: ImportError) -> str | None:
    """Return the line that says what is missing and how to install it; None: it is in no extra."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return f"{package} is not installed (run: pip install 'echelon-p4[{EXTRAS[package]}]')"
