"""Changes of jobs as server-sent events: each has the revision as its id.

A browser that lost its connection comes back with the last id it saw, and is told what it missed.
In silence a comment goes out now and then, so that nobody on the way takes the stream for dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.responses import StreamingResponse

from penstock.core.errors import ConfigurationError
from penstock.core.units import parse_count
from penstock.jobs.history.records import JobRecord
from penstock.jobs.http.models import Job

Changes = AsyncIterator[JobRecord]

QUIET_SECONDS: Final = 15.0
#: How soon a browser comes back.
_AGAIN: Final = b"retry: 2000\n\n"
_ALIVE: Final = b": here\n\n"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def last_seen(header: str | None) -> int | None:
    """Of the header `Last-Event-ID`."""
    if header is None or not header.strip():
        return None
    number = parse_count(header.strip())
    if number is None:
        raise ConfigurationError(f"Last-Event-ID: {header!r} is no id of an event from here")
    return number


def streamed(changes: Changes, quiet: float = QUIET_SECONDS) -> StreamingResponse:
    return StreamingResponse(
        events(changes, quiet), media_type="text/event-stream", headers=_HEADERS
    )


async def events(changes: Changes, quiet: float) -> AsyncIterator[bytes]:
    yield _AGAIN
    # The next change is waited for by a task of its own: a time limit must not end the iterator.
    async with _closing(changes):
        coming = asyncio.ensure_future(anext(changes, None))
        try:
            while True:
                done, _ = await asyncio.wait([coming], timeout=quiet)
                if not done:
                    yield _ALIVE
                    continue
                record = coming.result()
                if record is None:
                    return
                yield _event(record)
                coming = asyncio.ensure_future(anext(changes, None))
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def _event(record: JobRecord) -> bytes:
    data = Job.of(record).model_dump_json()
    return f"id: {record.revision}\nevent: job\ndata: {data}\n\n".encode()


@asynccontextmanager
async def _closing(changes: Changes) -> AsyncIterator[None]:
    """Whoever watches for us is told that nobody does any more."""
    try:
        yield
    finally:
        if isinstance(changes, AsyncGenerator):
            await changes.aclose()
