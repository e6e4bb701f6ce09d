"""The service over HTTP: JSON in and out, one shape of error, bearer tokens, TLS.

``create_app`` makes the application and ``server.ApiServer`` listens. Each noun has one module. Nothing here decides
anything about jobs: every request becomes one question to the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from echelon.service.api.settings import ApiSettings, Exchange

if TYPE_CHECKING:
    from fastapi import FastAPI

    from echelon.service.controller import ControllerService

__all__ = ["ApiSettings", "Exchange", "create_app"]


def create_app(
    service: ControllerService,
    settings: ApiSettings | None = None,
    metrics: Callable[[], tuple[bytes, str]] | None = None,
) -> FastAPI:
    """Return the application, to be served on the event loop that `service` lives on.

    `metrics` returns what GET /metrics answers, as bytes and content type; None: there are no metrics.
    """
    # FastAPI takes a third of a second to import; a command that only checks a tokens file need not wait for it.
    from echelon.service.api.app import build

    return build(service, settings or ApiSettings(), metrics)
