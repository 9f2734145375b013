"""`/api/queues/…/messages`: browse the messages of a queue or stream without consuming them;
`/api/dead-letters`: queues with dead letters.

Nothing is delivered, marked or moved. Messages are read in slices, from memory and from the log, so
that a long queue does not block other clients. Large bodies are not loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol, cast

from penstock.broker.contract import Queue
from penstock.core.basic_properties import decode_header
from penstock.core.errors import Unsupported
from penstock.core.units import parse_count
from penstock.destinations.message_store import BrowsedMessage
from penstock.destinations.queue import ClassicQueue
from penstock.destinations.stream import Stream
from penstock.server.management.api_call import ApiCall, ApiRoute, iterate_in_slices
from penstock.server.management.http import HttpResponse, bad_request, json_response
from penstock.server.management.list_query import Row, list_response
from penstock.server.management.message_filter import MessageFilter
from penstock.server.management.messages import describe_message
from penstock.server.management.queues import describe_queue

DEFAULT_COUNT: Final = 50
MAX_COUNT: Final = 500
#: The part of a body that is shown.
SHOWN_BYTES: Final = 10_000
#: Messages that one call looks at; the response says where to continue.
MAX_SCANNED: Final = 100_000


class Browsable(Protocol):
    """Queues and MQTT sessions."""

    def browse(self) -> Iterator[BrowsedMessage]: ...

    def timestamp(self, message_id: str) -> int | None: ...


class MessageScan:
    """Messages of a queue from a position on, or of a stream from an offset on, that a filter
    selects."""

    def __init__(self, queue: Queue, wanted: MessageFilter, start: str = "") -> None:
        self._queue = queue
        self._wanted = wanted
        self._messages: Iterator[BrowsedMessage]
        if isinstance(queue, Stream):
            self.next = _stream_start(queue, wanted, start)
            self._messages = queue.browse(self.next)
        elif hasattr(queue, "browse"):
            self.next = _number("offset", start or "0")
            self._messages = cast(Browsable, queue).browse()
        else:
            raise Unsupported(f"'{queue.name}' cannot be browsed")
        self._skip = 0 if isinstance(queue, Stream) else self.next
        self.scanned = 0

    def __iter__(self) -> Iterator[BrowsedMessage | None]:
        """None for a message that is not selected, so that the caller can pause."""
        for found in self._messages:
            if self._skip:
                self._skip -= 1
                yield None
                continue
            self.scanned += 1
            is_stream = isinstance(self._queue, Stream)
            self.next = int(found.id) + 1 if is_stream else self.next + 1
            yield self._selected(found)

    def _selected(self, found: BrowsedMessage) -> BrowsedMessage | None:
        if self._wanted.is_timed:
            found = found._replace(timestamp=self.timestamp(found))
            if not self._wanted.matches_time(found.timestamp):
                return None
        return found if self._wanted.matches(found.message) else None

    def timestamp(self, found: BrowsedMessage) -> int | None:
        """When it was stored, or else the publisher's timestamp."""
        if found.timestamp is not None:
            return found.timestamp
        stored = cast(Browsable, self._queue).timestamp(found.id)
        if stored is not None:
            return stored
        stated = decode_header(found.message.header).timestamp
        return None if stated is None else int(stated) * 1000


def _stream_start(stream: Stream, wanted: MessageFilter, start: str) -> int:
    log = stream.log
    match start:
        case "" if wanted.start is not None:
            return log.find(wanted.start)
        case "" | "first":
            return log.first_offset
        case "last":
            return max(log.first_offset, log.synced_offset - DEFAULT_COUNT)
        case number:
            return max(log.first_offset, _number("offset", number))


def _number(name: str, text: str, most: int | None = None) -> int:
    number = parse_count(text)
    if number is None or (most is not None and not 0 < number <= most):
        limit = "" if most is None else f" from 1 to {most}"
        raise bad_request(f"{name}={text}: a whole number{limit} is expected")
    return number


def readable_queue(call: ApiCall) -> Queue:
    call.access.check("read", "queue", call.name)
    return call.vhost.queue(call.name, call)


async def browse(call: ApiCall) -> HttpResponse:
    """Read messages of a queue, stream or MQTT session without consuming them."""
    query: Mapping[str, str] = call.request.query
    count = _number("count", query.get("count", str(DEFAULT_COUNT)), MAX_COUNT)
    limit = _number("truncate", query.get("truncate", str(SHOWN_BYTES)))
    queue = readable_queue(call)
    one = query.get("id")
    start = one if one is not None and isinstance(queue, Stream) else query.get("offset", "")
    scan = MessageScan(queue, MessageFilter(query), start)
    if isinstance(queue, Stream):
        await queue.tier.fetch(scan.next, queue.log.synced_offset)
    rows: list[dict[str, Any]] = []
    more = False
    async for found in iterate_in_slices(scan):
        if one is not None and rows:
            break
        if len(rows) == count or (one is None and scan.scanned > MAX_SCANNED):
            more = True
            break
        if found is not None and one in (None, found.id):
            row = await describe_message(found.message, limit, "auto")
            timestamp = scan.timestamp(found)
            rows.append(
                {"id": found.id, "timestamp": timestamp, "redelivered": found.redelivered, **row}
            )
    following = scan.next - 1 if more else None
    if not more and isinstance(queue, Stream) and scan.next < queue.log.synced_offset:
        following = scan.next  # the rest is in tiered storage
    return json_response({"messages": rows, "scanned": scan.scanned, "next": following})


def _dead_letter_rows(call: ApiCall) -> Iterator[Row]:
    """Queues with a dead letter at their head. One that has returned to the queue in which it first
    died, by a redrive or for a retry, is none."""
    users = call.broker.users
    for vhost in call.vhosts():
        for queue in list(vhost.queues.values()):
            head = queue.head if isinstance(queue, ClassicQueue) else None
            if head is None or b"x-first-death-queue" not in head.header:
                continue
            if users.is_allowed(call.user, vhost.name, "read", queue.name):
                headers = decode_header(head.header).headers or {}
                first = {
                    kind: headers.get(f"x-first-death-{kind}")
                    for kind in ("queue", "reason", "exchange")
                }
                if first["queue"] != queue.name:
                    yield {**describe_queue(call, queue), "first_death": first}


async def list_dead_letters(call: ApiCall) -> HttpResponse:
    """List queues with a dead letter at their head: all, or those of a virtual host."""
    return await list_response(call, _dead_letter_rows(call))


routes: Final = (
    ApiRoute("GET", "/api/queues/{vhost}/{name}/messages", browse),
    ApiRoute("GET", "/api/dead-letters", list_dead_letters),
    ApiRoute("GET", "/api/dead-letters/{vhost}", list_dead_letters),
)
