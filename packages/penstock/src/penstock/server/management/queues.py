"""`/api/queues`, including streams; and `/api/streams`, with ranges as an Arrow IPC stream.

A range is encoded and sent batch by batch, at the speed of the reader and in bounded memory. It
ends at the last offset on disk; `X-Next-Offset` is where to continue. Read permission on the stream
is enough: this is a way to consume. Arrow is loaded with the first range.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import Queue
from penstock.broker.log.segment import SegmentNotLocal
from penstock.broker.vhost import VirtualHost
from penstock.core.errors import NotFound, Unsupported
from penstock.core.logs import get_logger
from penstock.core.units import parse_count
from penstock.destinations.stream import Stream
from penstock.server.management.api_call import (
    AccessLevel,
    ApiCall,
    ApiRoute,
    flag_field,
    iterate_in_slices,
    table_field,
    text_field,
)
from penstock.server.management.connections import CONSUMER_NAMES, consumers_of
from penstock.server.management.exchanges import list_bindings_to
from penstock.server.management.http import CREATED, NO_CONTENT, ApiError, HttpResponse, bad_request
from penstock.server.management.list_query import (
    Row,
    is_wanted,
    item_response,
    list_response,
    named_list_response,
)
from penstock.server.management.overview import node_name

if TYPE_CHECKING:
    from penstock.broker.log.log import Log

_log = get_logger("penstock.management")

ARROW: Final = "application/vnd.apache.arrow.stream"
_RANGE: Final = ("from", "to", "timestamp")

#: Defaults of fields that RabbitMQ has for every queue.
_DEFAULTS: Final[dict[str, Any]] = {
    "policy": None,
    "operator_policy": None,
    "effective_policy_definition": {},
    "exclusive_consumer_tag": None,
    "single_active_consumer_tag": None,
    "head_message_timestamp": None,
    "consumer_utilisation": 0,
    "memory": 0,
}


def describe_queue(call: ApiCall, queue: Queue) -> Row:
    described = queue.describe()
    if "message_stats" in described:
        described["message_stats"] = call.rates.of_queue(queue, described["message_stats"])
    ready = described.get("message_bytes_ready", described.get("message_bytes", 0))
    return {
        "node": node_name(call.broker),
        **_DEFAULTS,
        "message_bytes": ready,
        "message_bytes_ready": ready,
        **described,
    }


async def list_queues(call: ApiCall) -> HttpResponse:
    """List queues and streams: all, or those of a virtual host."""
    queues = [queue for vhost in call.vhosts() for queue in vhost.queues.values()]
    return await named_list_response(call, queues, partial(describe_queue, call))


async def get_queue(call: ApiCall) -> HttpResponse:
    """Describe a queue or stream and its consumers."""
    row = {**describe_queue(call, call.queue), "incoming": [], "deliveries": []}
    if is_wanted(call, "consumer_details"):
        row["consumer_details"] = [row async for row in iterate_in_slices(_consumers(call))]
    return item_response(call, row)


def _consumers(call: ApiCall) -> Iterator[Row]:
    queue = {"name": call.queue.name, "vhost": call.vhost.name}
    for client in list(call.broker.clients):
        yield from consumers_of(call, client, lambda row: bool(row["queue"] == queue))


async def list_queue_consumers(call: ApiCall) -> HttpResponse:
    """List the consumers of a queue or stream."""
    return await list_response(call, _consumers(call), CONSUMER_NAMES)


async def put_queue(call: ApiCall) -> HttpResponse:
    """Declare a queue or stream: `durable`, `auto_delete`, `arguments`."""
    body = await call.body()
    vhost, name, arguments = call.vhost, call.name, table_field(body, "arguments")
    call.access.check("configure", "queue", name)
    call.access.check_dead_letters(vhost, name, arguments)
    is_new = name not in vhost.queues
    vhost.declare_queue(
        name,
        durable=flag_field(body, "durable"),
        owner=call,
        auto_delete=flag_field(body, "auto_delete"),
        arguments=arguments,
    )
    call.done()
    return CREATED if is_new else NO_CONTENT


async def delete_queue(call: ApiCall) -> HttpResponse:
    """Delete a queue or stream; with `if-empty=true`, `if-unused=true` only then."""
    vhost, name = call.vhost, call.name
    call.access.check("configure", "queue", name)
    _existing(vhost, name)
    unused, empty = call.flag("if-unused"), call.flag("if-empty")
    vhost.delete_queue(name, owner=call, if_unused=unused, if_empty=empty)
    call.done()
    return NO_CONTENT


def _existing(vhost: VirtualHost, name: str) -> None:
    if name not in vhost.queues:
        raise NotFound(f"no queue '{name}' in vhost '{vhost.name}'")


async def queue_action(call: ApiCall) -> HttpResponse:
    """Accept RabbitMQ's `sync` and `cancel_sync` of mirrors, which queues do not have here."""
    _existing(call.vhost, call.name)
    action = text_field(await call.body(), "action")
    if action not in ("sync", "cancel_sync"):
        raise bad_request(f"unsupported action {action!r}: sync or cancel_sync")
    return NO_CONTENT


async def purge_queue(call: ApiCall) -> HttpResponse:
    """Purge a queue: delete its ready messages."""
    call.access.check("read", "queue", call.name)
    call.vhost.queue(call.name, call).purge()
    call.done()
    return NO_CONTENT


async def list_queue_bindings(call: ApiCall) -> HttpResponse:
    """List the bindings of a queue."""
    return await list_bindings_to(call, call.queue)


def describe_stream(stream: Stream) -> Row:
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


def _stream_rows(call: ApiCall) -> Iterator[Row]:
    for vhost in call.vhosts():
        for queue in list(vhost.queues.values()):
            if isinstance(queue, Stream) and _may_read(call, queue):
                yield describe_stream(queue)


def _may_read(call: ApiCall, stream: Stream) -> bool:
    return call.broker.users.is_allowed(call.user, stream.vhost.name, "read", stream.name)


async def list_streams(call: ApiCall) -> HttpResponse:
    """List the streams that the user may read, with their offsets."""
    if "vhost" in call.request.query:
        call = call.within(call.request.query["vhost"])
    return await list_response(call, _stream_rows(call))


async def get_stream(call: ApiCall) -> HttpResponse:
    """Describe a stream; with `from`, `to` or `timestamp`, its messages as an Arrow IPC stream."""
    query = call.request.query
    call = call.within(query.get("vhost", call.broker.settings.default_vhost))
    call.access.check("read", "queue", call.name)
    stream = call.queue
    if not isinstance(stream, Stream):
        raise NotFound(f"'{call.name}' in vhost '{call.vhost.name}' is a queue, not a stream")
    if not any(key in query for key in _RANGE):
        return item_response(call, describe_stream(stream))
    start, stop = _range(call, stream.log)
    if "max_bytes" in query and stop > start:
        stop = stream.limit(start, stop, _offset("max_bytes", query["max_bytes"]))
    headers = {
        "content-type": ARROW,
        "x-first-offset": str(start),
        "x-next-offset": str(stop),
        "x-committed-offset": str(stream.log.synced_offset),
    }
    await _load_arrow()
    await stream.tier.fetch(start, stop)  # an error of the object store becomes the answer
    return HttpResponse(200, _arrow(stream, start, stop), headers)


async def _load_arrow() -> None:
    """In a thread, because it takes a fifth of a second."""
    try:
        await asyncio.to_thread(import_module, "penstock.broker.log.arrow")
    except ImportError:
        raise Unsupported("ranges of streams need pyarrow: install penstock[arrow]") from None


def _range(call: ApiCall, log: Log) -> tuple[int, int]:
    """The first offset and the end, within what is committed."""
    query = call.request.query
    committed = log.synced_offset
    start = _start(query, log)
    stop = min(_offset("to", query["to"]), committed) if "to" in query else committed
    bounds = {"first_offset": log.first_offset, "next_offset": committed}
    if start < log.first_offset:
        reason = f"offset {start} was deleted: the first is {log.first_offset}"
        raise ApiError(410, "gone", reason, **bounds)
    if start > committed:
        reason = f"offset {start} does not exist yet: the next is {committed}"
        raise ApiError(416, "range_not_satisfiable", reason, **bounds)
    if "to" in query and int(query["to"]) < start:
        raise bad_request(f"to={query['to']} is before from={start}")
    return start, max(start, stop)


def _start(query: Any, log: Log) -> int:
    if "timestamp" in query:
        if "from" in query:
            raise bad_request("use either from or timestamp")
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
    at = start
    with pa.ipc.new_stream(out, arrow.ARROW_SCHEMA) as writer:
        for piece in out.take():
            yield piece
        while at < stop:
            end = await stream.tier.fetch(at, stop)
            with contextlib.suppress(SegmentNotLocal):  # the client was slow: fetch it again
                for batch in arrow.record_batches(stream.log, at, end, stream.load):
                    if stream.log.first_offset > at:
                        _log.warning("offset out of range", stream=stream.name, offset=at)
                        raise ConnectionAbortedError(f"offset {at} was deleted")
                    writer.write_batch(batch)
                    at = batch.column(0)[-1].as_py() + 1
                    for piece in out.take():
                        yield piece
                    await asyncio.sleep(0)
                at = end
    for piece in out.take():
        yield piece


class _Pieces:
    """The sink of the Arrow writer."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[memoryview] = []

    def write(self, data: Any) -> int:
        piece = memoryview(data)  # Arrow's buffers keep their memory
        self._pieces.append(piece)
        return len(piece)

    def flush(self) -> None:
        """`take` returns everything."""

    def close(self) -> None:
        """`take` returns the rest."""

    def take(self) -> list[bytes | memoryview]:
        """Large pieces as they are, small ones joined."""
        taken: list[bytes | memoryview] = []
        small: list[memoryview] = []
        for piece in self._pieces:
            if len(piece) < _SMALL_PIECE_BYTES:
                small.append(piece)
                continue
            if small:
                taken.append(b"".join(small))
                small = []
            taken.append(piece)
        if small:
            taken.append(b"".join(small))
        self._pieces = []
        return taken


#: Joining such pieces costs less than a write for each.
_SMALL_PIECE_BYTES: Final = 65_536


_PATH: Final = "/api/queues/{vhost}/{name}"

routes: Final = (
    ApiRoute("GET", "/api/queues", list_queues),
    ApiRoute("GET", "/api/queues/{vhost}", list_queues),
    ApiRoute("GET", _PATH, get_queue),
    ApiRoute("PUT", _PATH, put_queue),
    ApiRoute("DELETE", _PATH, delete_queue),
    ApiRoute("DELETE", f"{_PATH}/contents", purge_queue),
    ApiRoute("POST", f"{_PATH}/actions", queue_action),
    ApiRoute("GET", f"{_PATH}/bindings", list_queue_bindings),
    ApiRoute("GET", f"{_PATH}/consumers", list_queue_consumers),
    ApiRoute("GET", "/api/streams", list_streams, AccessLevel.USER),
    ApiRoute("GET", "/api/streams/{name}", get_stream, AccessLevel.USER),
)
