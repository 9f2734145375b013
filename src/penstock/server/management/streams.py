"""`/api/streams`: what streams there are, and ranges of one as an Arrow IPC stream.

A range is made and sent batch by batch: as fast as the reader takes it, in bounded memory, and
others have their turn between batches. It ends where the log is safely on disk; `X-Next-Offset`
says where to go on. Arrow itself is loaded when the first range is asked for.

Any user who may read the stream may read a range of it: this is a way to consume, not to manage.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import NotFound, Unsupported
from penstock.core.logs import get_logger
from penstock.core.units import parse_count
from penstock.drivers.stream import Stream
from penstock.server.management.call import Call, Level
from penstock.server.management.errors import Refusal, bad_request
from penstock.server.management.http import Response
from penstock.server.management.listing import Row, listed, shown
from penstock.server.management.routing import Route

if TYPE_CHECKING:
    from penstock.broker.log.log import Log

_log = get_logger("penstock.management")

ARROW: Final = "application/vnd.apache.arrow.stream"
_RANGE: Final = ("from", "to", "timestamp")


def describe(stream: Stream) -> Row:
    log = stream.log
    return {
        "name": stream.name,
        "vhost": stream.vhost.name,
        "first_offset": log.first_offset,
        "next_offset": log.next_offset,
        "committed_offset": log.synced_offset,
        "messages": log.next_offset - log.first_offset,
        "segments": len(log._segments),
        "bytes": log.bytes,
        "consumers": stream.consumer_count,
        "arguments": stream.arguments,
    }


def _rows(call: Call) -> Iterator[Row]:
    for vhost in call.vhosts():
        for queue in list(vhost.queues.values()):
            if isinstance(queue, Stream) and _may_read(call, queue):
                yield describe(queue)


def _may_read(call: Call, stream: Stream) -> bool:
    return call.broker.users.may(call.user, stream.vhost.name, "read", stream.name)


async def list_streams(call: Call) -> Response:
    if "vhost" in call.request.query:
        call = call.within(call.request.query["vhost"])
    return await listed(call, _rows(call))


async def get_stream(call: Call) -> Response:
    query = call.request.query
    call = call.within(query.get("vhost", call.broker.settings.default_vhost))
    call.access.check("read", "queue", call.name)
    stream = call.queue
    if not isinstance(stream, Stream):
        raise NotFound(f"'{call.name}' in vhost '{call.vhost.name}' is a queue and no stream")
    if not any(key in query for key in _RANGE):
        return shown(call, describe(stream))
    start, stop = _range(call, stream.log)
    headers = {
        "content-type": ARROW,
        "x-first-offset": str(start),
        "x-next-offset": str(stop),
        "x-committed-offset": str(stream.log.synced_offset),
    }
    await _load_arrow()
    return Response(200, _arrow(stream, start, stop), headers)


async def _load_arrow() -> None:
    """Loading takes a fifth of a second, once: in a thread, so that the broker goes on."""
    try:
        await asyncio.to_thread(import_module, "penstock.broker.log.arrow")
    except ImportError:
        raise Unsupported("ranges of streams need pyarrow: install penstock[arrow]") from None


def _range(call: Call, log: Log) -> tuple[int, int]:
    """From which offset to before which, as far as there is anything committed."""
    query = call.request.query
    committed = log.synced_offset
    start = _start(query, log)
    stop = min(_offset("to", query["to"]), committed) if "to" in query else committed
    bounds = {"first_offset": log.first_offset, "next_offset": committed}
    if start < log.first_offset:
        why = f"offset {start} is no longer kept: the first is {log.first_offset}"
        raise Refusal(410, "gone", why, **bounds)
    if start > committed:
        why = f"offset {start} is not there yet: the next is {committed}"
        raise Refusal(416, "range_not_satisfiable", why, **bounds)
    if "to" in query and int(query["to"]) < start:
        raise bad_request(f"to={query['to']} is before from={start}")
    return start, max(start, stop)


def _start(query: Any, log: Log) -> int:
    if "timestamp" in query:
        if "from" in query:
            raise bad_request("from and timestamp: one of them says where to begin")
        return min(log.find(_offset("timestamp", query["timestamp"])), log.synced_offset)
    match query.get("from", "first"):
        case "first":
            return log.first_offset
        case "last":
            return min(log.last_chunk_offset(), log.synced_offset)
        case "next":
            return log.synced_offset
        case number:
            return _offset("from", number)


def _offset(name: str, text: str) -> int:
    offset = parse_count(text)
    if offset is None:
        raise bad_request(f"{name}={text}: a number is expected, or from=first, last or next")
    return offset


async def _arrow(stream: Stream, start: int, stop: int) -> AsyncIterator[bytes | memoryview]:
    import pyarrow as pa

    from penstock.broker.log import arrow

    out = _Pieces()
    expected = start
    with pa.ipc.new_stream(out, arrow.schema) as writer:
        for piece in out.take():
            yield piece
        for batch in arrow.batches(stream.log, start, stop, stream.load):
            if stream.log.first_offset > expected:
                _log.warning("retention overtook a reader", stream=stream.name, offset=expected)
                raise ConnectionAbortedError(f"offset {expected} is no longer kept")
            writer.write_batch(batch)
            expected = batch.column(0)[-1].as_py() + 1
            for piece in out.take():
                yield piece
            await asyncio.sleep(0)
    for piece in out.take():
        yield piece


class _Pieces:
    """Where Arrow writes: pieces to be sent on, small ones joined."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        """Whoever reads takes what is left."""

    def take(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        return [b"".join(pieces)] if pieces else []


routes: Final = (
    Route("GET", "/api/streams", Level.USER, list_streams),
    Route("GET", "/api/streams/{name}", Level.USER, get_stream),
)
