"""The public page: an HTML file, a module and a style sheet, served from memory, without a build.

Browsers revalidate the files at each visit and get a 304 while they are unchanged.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from typing import Final

from penstock_hives.public.view import CachedPage
from penstock_hives.server.asgi import (
    AsgiApplication,
    Receive,
    Scope,
    Send,
    get_header,
    send_problem,
)

_TYPES: Final = {
    "index.html": b"text/html; charset=utf-8",
    "page.js": b"text/javascript; charset=utf-8",
    "style.css": b"text/css; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}
#: No other origins and no inline scripts.
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)
_SECURITY_HEADERS: Final = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"same-origin"),
    (b"permissions-policy", b"geolocation=(self), camera=(), microphone=()"),
)
INDEX: Final = "/index.html"


def read_files() -> dict[str, CachedPage]:
    """By path."""
    folder = files(__package__)
    made = datetime.now(UTC)
    return {
        f"/{name}": CachedPage(
            (folder / name).read_bytes(),
            made,
            content_type=kind,
            caching=b"no-cache",
            more=_SECURITY_HEADERS if name == "index.html" else (),
        )
        for name, kind in _TYPES.items()
    }


def static_files(pages: dict[str, CachedPage]) -> AsgiApplication:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        found = pages.get(scope["path"])
        if found is None:
            await send_problem(send, 404, "page not found")
        elif scope["method"] not in ("GET", "HEAD"):
            await send_problem(send, 405, "use GET or HEAD", [(b"allow", b"GET, HEAD")])
        else:
            zipped = b"gzip" in (get_header(scope, b"accept-encoding") or b"")
            await found.send(send, get_header(scope, b"if-none-match"), zipped)

    return application
