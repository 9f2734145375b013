"""`/`: a page for people, one file without a framework. It asks the API, as anybody may."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from penstock.server.management.call import Call, Level
from penstock.server.management.http import Response
from penstock.server.management.routing import Route

HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-cache",
    # Everything the page needs is in it; it talks to nobody but this broker.
    "content-security-policy": (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


async def page(call: Call) -> Response:
    return Response(200, files(__package__).joinpath("page.html").read_bytes(), HEADERS)


routes: Final = (Route("GET", "/", Level.ANYONE, page),)
