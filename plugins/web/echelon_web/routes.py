"""The endpoints of the page and its files.

They need no token: every datum that the page shows needs one.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from echelon_web import assets
from echelon_web.assets import Asset, Source

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src"
    " 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The browser loads nothing from elsewhere, and runs nothing that stands in the page itself."""
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The browser asks each time whether the file is still the same: no old page meets a new
    # service.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


def router(source: Source) -> APIRouter:
    """Return the router of the page, which shows `source`."""
    pages = APIRouter()

    @pages.get("/", include_in_schema=False)
    async def show_page(request: Request) -> Response:
        """Return the page."""
        return _answer(request, assets.page(source))

    @pages.get(assets.ICON, include_in_schema=False)
    async def show_icon(request: Request) -> Response:
        """Return the icon."""
        return _answer(request, assets.asset("icon.svg"))

    @pages.get(assets.PREFIX + "{name:path}", include_in_schema=False)
    async def show_file(request: Request, name: str) -> Response:
        """Return a file of the page."""
        if name not in assets.names():
            return Response(status_code=404)
        return _answer(request, assets.asset(name))

    return pages


def _answer(request: Request, asset: Asset) -> Response:
    headers = {**_HEADERS, "ETag": asset.etag}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    content = asset.content
    encodings = request.headers.get("accept-encoding", "")
    if "gzip" in encodings:
        content = asset.compressed
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=asset.media_type, headers=headers)


class ServicePages:
    """The page that shows a running service, for `echelon.controller.service`."""

    @staticmethod
    def router() -> APIRouter:
        return router("service")

    @staticmethod
    def paths() -> frozenset[str]:
        return assets.paths()
