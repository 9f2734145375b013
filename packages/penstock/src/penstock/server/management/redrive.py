"""`/api/queues/…/redrive` and `…/discard`: move or remove selected messages of a queue.

A message leaves its queue when the broker has confirmed it at its destination: after a crash it is
in one of them, or in both. Dead letters return to the queue in which they first died, with the
exchange and routing key they had there. Messages of a stream are copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.content_header import message_flags
from penstock.broker.contract import (
    IN_SYNC,
    LOGGED,
    MANDATORY,
    REJECTED,
    Channel,
    Delivery,
    Fragment,
    Message,
    Queue,
)
from penstock.core.basic_properties import decode_header, encode_header, encode_route
from penstock.core.errors import (
    AccessRefused,
    NoRoute,
    PenstockError,
    PreconditionFailed,
    QueueFull,
    ResourceLocked,
)
from penstock.destinations.backlog import message_id
from penstock.destinations.message_store import BrowsedMessage
from penstock.destinations.queue import ClassicQueue
from penstock.destinations.stream import Stream
from penstock.server.management.api_call import (
    DEFAULT_EXCHANGE,
    ApiCall,
    ApiRoute,
    iterate_in_slices,
    number_field,
    table_field,
    text_field,
)
from penstock.server.management.http import HttpResponse, bad_request, json_response
from penstock.server.management.message_browser import MessageScan, readable_queue
from penstock.server.management.message_filter import MessageFilter
from penstock.server.management.messages import decode_payload, message_properties

if TYPE_CHECKING:
    from penstock.broker.contract import Exchange
    from penstock.broker.kernel import Kernel

#: Messages that are on the way at a time.
BATCH: Final = 64
#: Failures that a response lists; then the call ends.
MAX_FAILURES: Final = 100


class Transfer:
    """One message on its way to a queue or an exchange; a terminal of the contract.

    The source is settled when the outcome is known, even if the HTTP client is gone.
    """

    def __init__(
        self, kernel: Kernel, source: ClassicQueue | None, delivery: Delivery | None
    ) -> None:
        self._kernel = kernel
        self._source = source
        self._delivery = delivery
        self.outcome: asyncio.Future[Exception | None] = kernel.loop.create_future()

    def to_queue(self, queue: Queue, message: Message) -> None:
        outcome = queue.push(message)
        if outcome & REJECTED:
            self._end(QueueFull(f"queue '{queue.name}' does not accept the message"))
        elif outcome & LOGGED:
            self._kernel.committer.wait(Channel(self, queue), 1, outcome & IN_SYNC)
        else:
            self._end(None)

    def to_exchange(
        self, exchange: Exchange, message: Message, check_topic: Callable[[str], None]
    ) -> None:
        message.flags |= MANDATORY
        channel = Channel(self, exchange)
        channel.check_topic = check_topic
        exchange.channel_open(channel, {})
        exchange.channel_post(channel, message, 1)
        exchange.channel_close(channel)

    def fail(self, error: Exception) -> None:
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if self.outcome.done():
            return
        self.outcome.set_result(error)
        if self._source is not None and self._delivery is not None:
            self._source.settle(self._delivery, put_back=error is not None)

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        raise AssertionError("nothing is consumed")

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        self._end(None)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        self._end(error)


class Redrive:
    """Where messages go, and what is changed."""

    def __init__(self, call: ApiCall, body: dict[str, Any]) -> None:
        self._call = call
        self._vhost = call.vhost
        self._edits = table_field(body, "edit")
        target = table_field(body, "to")
        unknown = set(target) - {"queue", "exchange", "routing_key"}
        if unknown or ("queue" in target and len(target) > 1):
            raise bad_request('to: {"queue": …} or {"exchange": …, "routing_key": …} is expected')
        self._queue: Queue | None = None
        self._exchange: Exchange | None = None
        self._key = text_field(target, "routing_key") if "routing_key" in target else None
        if "queue" in target:
            self._queue = self._target(text_field(target, "queue"))
        elif target:
            name = text_field(target, "exchange")
            self._exchange = self._vhost.exchange("" if name == DEFAULT_EXCHANGE else name)
            call.access.check("write", "exchange", self._exchange.name)
            if self._exchange.internal:
                raise AccessRefused(f"cannot publish to internal exchange '{name}'")

    def _target(self, name: str) -> Queue:
        self._call.access.check("write", "exchange", "")
        return self._vhost.queue(name, self._call)

    def send(self, transfer: Transfer, name: str, message: Message) -> None:
        try:
            self._send(transfer, self._edited(name, message))
        except PenstockError as error:
            transfer.fail(error)

    def _send(self, transfer: Transfer, message: Message) -> None:
        if self._exchange is not None:
            key = message.routing_key if self._key is None else self._key
            message.route = encode_route(self._exchange.name, key)
            check = partial(self._call.access.check_topic, "write", self._exchange.name)
            if self._exchange.uses_topic_permissions:
                check(key)
            transfer.to_exchange(self._exchange, message, check)
        elif self._queue is not None:
            transfer.to_queue(self._queue, message)
        else:
            name, exchange, key = _origin(message)
            message.route = encode_route(exchange, key)
            transfer.to_queue(self._target(name), message)

    def _edited(self, name: str, message: Message) -> Message:
        """A copy, with the changes for this message."""
        copy = Message(message.route, message.header, message.body, message.flags)
        edit = table_field(self._edits, name)
        if message.spool is not None:
            if "payload" in edit:
                raise PreconditionFailed("the body is too large to be edited")
            copy.spool = self._vhost.kernel.spools.relink(message.spool)
        if "payload" in edit:
            copy.body = decode_payload(edit["payload"], edit.get("payload_encoding", "string"))
        if "properties" in edit:
            properties = message_properties(self._call, edit["properties"])
        else:
            properties = decode_header(message.header)
        if edit:
            copy.header = encode_header(properties, copy.size)
            copy.flags = message_flags(copy.header)
        if "routing_key" in edit:
            copy.route = encode_route(copy.exchange, text_field(edit, "routing_key"))
        return copy


def _origin(message: Message) -> tuple[str, str, str]:
    """The queue in which it first died, and its exchange and routing key there."""
    headers = decode_header(message.header).headers or {}
    deaths = [one for one in headers.get("x-death") or [] if isinstance(one, dict)]
    name = headers.get("x-first-death-queue") or (deaths[-1].get("queue") if deaths else None)
    if not isinstance(name, str):
        raise PreconditionFailed("not a dead letter: name a queue or an exchange in 'to'")
    for death in reversed(deaths):
        keys = death.get("routing-keys")
        if death.get("queue") == name and isinstance(keys, list) and keys:
            return name, str(death.get("exchange", "")), str(keys[0])
    return name, "", name


class Selection:
    """The messages that a call selects: by their ids, or by a filter."""

    def __init__(self, queue: Queue, body: dict[str, Any]) -> None:
        ids = body.get("ids")
        if ids is not None and (
            not isinstance(ids, list) or not all(isinstance(one, str) for one in ids)
        ):
            raise bad_request("ids: a list of ids is expected")
        self._ids = None if ids is None else set(ids)
        self._scan = MessageScan(queue, MessageFilter(table_field(body, "filter")))
        self._limit = number_field(body, "count", 0)

    def __iter__(self) -> Iterator[BrowsedMessage | None]:
        """None between messages that are not selected."""
        found = 0
        for one in self._scan:
            wanted = one is not None and (self._ids is None or one.id in self._ids)
            yield one if wanted else None
            found += wanted
            if (self._limit and found == self._limit) or found == len(self._ids or ()) > 0:
                return


async def redrive(call: ApiCall) -> HttpResponse:
    """Move messages of a queue, or copy those of a stream. Dead letters return to their queue."""
    body = await call.body()
    source = readable_queue(call)
    if not isinstance(source, ClassicQueue | Stream):
        raise ResourceLocked(f"'{source.name}' is the session of an MQTT client")
    target = Redrive(call, body)
    if isinstance(source, Stream) and not table_field(body, "to"):
        raise bad_request("to: messages of a stream are copied; name a queue or an exchange")
    moved, failures = 0, []
    batch: list[BrowsedMessage] = []

    async def move() -> int:
        sent = _send_batch(call, source, target, batch)
        batch.clear()
        call.done()
        done = 0
        for name, transfer in sent:
            error = await transfer.outcome
            done += error is None
            if error is not None:
                failures.append({"id": name, "reason": _reason(error)})
        return done

    async for found in iterate_in_slices(Selection(source, body)):
        if found is not None:
            batch.append(found)
        if len(batch) == BATCH:
            moved += await move()
            if len(failures) >= MAX_FAILURES:
                break
    moved += await move()
    call.done()
    return json_response({"moved": moved, "failed": failures})


def _send_batch(
    call: ApiCall, source: ClassicQueue | Stream, target: Redrive, batch: list[BrowsedMessage]
) -> list[tuple[str, Transfer]]:
    kernel = call.broker.kernel
    sent: list[tuple[str, Transfer]] = []
    if isinstance(source, Stream):
        for found in batch:
            transfer = Transfer(kernel, None, None)
            target.send(transfer, found.id, found.message)
            sent.append((found.id, transfer))
        return sent
    taken = {message_id(one): one for one in source.take(found.id for found in batch)}
    for found in batch:
        delivery = taken.get(found.id)
        if delivery is not None:  # else a consumer has it
            transfer = Transfer(kernel, source, delivery)
            target.send(transfer, found.id, delivery.message)
            sent.append((found.id, transfer))
    return sent


def _reason(error: Exception) -> str:
    return "no queue is bound with this key" if isinstance(error, NoRoute) else str(error)


async def discard(call: ApiCall) -> HttpResponse:
    """Delete the messages of a queue that `ids` or `filter` select."""
    body = await call.body()
    source = readable_queue(call)
    if not isinstance(source, ClassicQueue):
        raise bad_request("only messages of queues can be discarded")
    discarded = 0
    batch: list[str] = []

    def remove() -> int:
        taken = source.take(batch)
        batch.clear()
        for delivery in taken:
            source.settle(delivery, put_back=False)
        return len(taken)

    async for found in iterate_in_slices(Selection(source, body)):
        if found is not None:
            batch.append(found.id)
        if len(batch) == BATCH:
            discarded += remove()
    discarded += remove()
    call.done()
    return json_response({"discarded": discarded})


routes: Final = (
    ApiRoute("POST", "/api/queues/{vhost}/{name}/redrive", redrive),
    ApiRoute("POST", "/api/queues/{vhost}/{name}/discard", discard),
)
