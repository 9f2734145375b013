"""`/api/snapshots`: what `penstock backup` reads.

The broker's files contain the users' password hashes and all messages, so administrators only.
"""

from __future__ import annotations

from typing import Final

import penstock
from penstock.core.errors import PreconditionFailed
from penstock.core.units import parse_count
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute
from penstock.server.management.http import NO_CONTENT, HttpResponse, json_response


async def take(call: ApiCall) -> HttpResponse:
    """Take a snapshot of the broker's files, for a backup."""
    found = await call.broker.snapshots.take()
    return json_response(
        {
            "id": found.id,
            "time": found.time,
            "broker": found.broker,
            "version": penstock.__version__,
            "files": [one._asdict() for one in found.files],
        },
        201,
    )


async def read(call: ApiCall) -> HttpResponse:
    """Read a file of a snapshot; `from` is the first byte."""
    start = parse_count(call.request.query.get("from", "0"))
    if start is None or start < 0:
        raise PreconditionFailed("from: a whole number of bytes is expected")
    pieces = call.broker.snapshots.read(call.names["snapshot"], call.names["path"], start)
    return HttpResponse(200, pieces, {"content-type": "application/octet-stream"})


async def remove(call: ApiCall) -> HttpResponse:
    """Remove a snapshot."""
    await call.broker.snapshots.remove(call.names["snapshot"])
    return NO_CONTENT


routes: Final = (
    ApiRoute("POST", "/api/snapshots", take, AccessLevel.ADMINISTRATOR),
    ApiRoute("GET", "/api/snapshots/{snapshot}/{path}", read, AccessLevel.ADMINISTRATOR),
    ApiRoute("DELETE", "/api/snapshots/{snapshot}", remove, AccessLevel.ADMINISTRATOR),
)
