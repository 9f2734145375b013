"""`…/publish` and `…/get`: publish a message, get messages from a queue.

`HttpPublisher` and `HttpFetcher` are terminals of the contract without a socket.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
from dataclasses import asdict, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.content_header import message_flags
from penstock.broker.contract import MANDATORY, Channel, Delivery, Fragment, Message, Queue
from penstock.core.basic_properties import (
    BasicProperties,
    decode_header,
    encode_header,
    encode_route,
)
from penstock.core.errors import AccessRefused, NoRoute, PreconditionFailed
from penstock.core.units import parse_count
from penstock.server.management.api_call import (
    ApiCall,
    ApiRoute,
    number_field,
    required_fields,
    table_field,
    text_field,
)
from penstock.server.management.http import HttpResponse, bad_request, json_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.contract import Exchange, Queue
    from penstock.broker.kernel import Kernel


_KINDS: Final[dict[str, type]] = {
    "headers": dict,
    "delivery_mode": int,
    "priority": int,
    "timestamp": int,
}
_PROPERTIES: Final = {field.name: _KINDS.get(field.name, str) for field in fields(BasicProperties)}

#: The acknowledgement modes: whether to confirm, otherwise whether to requeue.
_ACK_MODES: Final[dict[str, tuple[bool, bool]]] = {
    "ack_requeue_true": (False, True),
    "ack_requeue_false": (True, False),
    "reject_requeue_true": (False, True),
    "reject_requeue_false": (False, False),
}

#: The largest part of a body in a response; `payload_bytes` is its full size.
MAX_SHOWN_BYTES: Final = 16 << 20
#: The limit of all bodies in one response.
MAX_RESPONSE_BYTES: Final = 64 << 20


async def publish(call: ApiCall) -> HttpResponse:
    """Publish a message: `properties`, `routing_key`, `payload`, `payload_encoding`."""
    body = await call.body()
    given, key, payload, encoding = required_fields(
        body, "properties", "routing_key", "payload", "payload_encoding"
    )
    exchange, access = call.exchange, call.access
    access.check("write", "exchange", exchange.name)
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal exchange '{exchange.name}'")
    check_topic = partial(access.check_topic, "write", exchange.name)
    if exchange.uses_topic_permissions:
        check_topic(text_field(body, "routing_key"))
    content = decode_payload(payload, encoding)
    header = encode_header(message_properties(call, given), len(content))
    message = Message(encode_route(exchange.name, key), header, content, message_flags(header))
    routed = await HttpPublisher(call.broker.kernel, exchange, check_topic).post(message)
    return json_response({"routed": routed})


def decode_payload(payload: Any, encoding: Any) -> bytes:
    if not isinstance(payload, str):
        raise bad_request("payload: a string is expected")
    if encoding == "string":
        return payload.encode("utf-8", "surrogatepass")
    if encoding != "base64":
        raise bad_request(f"unsupported encoding: {encoding}")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request("payload: invalid base64") from None


def message_properties(call: ApiCall, given: Any) -> BasicProperties:
    if given == []:  # an empty object of some clients
        given = {}
    values = table_field({"properties": given}, "properties")
    for name, value in values.items():
        kind = _PROPERTIES.get(name)
        if kind is None:
            raise bad_request(f"properties: unknown property {name!r}")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise bad_request(f"properties.{name}: expected a {kind.__name__}, not {value!r}")
    properties = BasicProperties(**values)
    if properties.user_id not in (None, call.user.name):
        raise PreconditionFailed(
            f"user_id property set to '{properties.user_id}' but authenticated user was "
            f"'{call.user.name}'"
        )
    if properties.expiration is not None and parse_count(properties.expiration) is None:
        raise PreconditionFailed(f"invalid expiration '{properties.expiration}'")
    return properties


async def get(call: ApiCall) -> HttpResponse:
    """Get messages from a queue: `count`, `ackmode`, `encoding`, `truncate`."""
    body = await call.body()
    _, ackmode, encoding = required_fields(body, "count", "ackmode", "encoding")
    count = number_field(body, "count", 0)
    if ackmode not in _ACK_MODES:
        raise bad_request(f"ackmode: {ackmode!r} is not one of {', '.join(_ACK_MODES)}")
    if encoding not in ("auto", "base64"):
        raise bad_request(f"unsupported encoding: {encoding}")
    call.access.check("read", "queue", call.name)
    queue = call.vhost.queue(call.name, call)
    limit = min(number_field(body, "truncate", MAX_SHOWN_BYTES), MAX_SHOWN_BYTES)
    fetching = HttpFetcher(call.broker.kernel, queue)
    rows: list[dict[str, Any]] = []
    size = 0
    try:
        while len(rows) < count and size < MAX_RESPONSE_BYTES:
            delivery = fetching.next()
            if delivery is None:
                break
            # Not acknowledged yet: the message count is that of the messages behind it.
            rows.append(await _row(queue, delivery, limit, encoding))
            size += len(rows[-1]["payload"])
    except BaseException:
        fetching.fail(requeue=True)  # they were not sent
        raise
    confirm, requeue = _ACK_MODES[ackmode]
    if confirm:
        fetching.confirm()
    else:
        fetching.fail(requeue)
    return json_response(rows)


async def _row(queue: Queue, delivery: Delivery, limit: int, encoding: str) -> dict[str, Any]:
    left = queue.message_count
    return {
        "redelivered": delivery.count > 0 or delivery.released,
        "message_count": left,
        **await describe_message(delivery.message, limit, encoding),
    }


async def describe_message(message: Message, limit: int, encoding: str) -> dict[str, Any]:
    """With at most `limit` bytes of the body."""
    content = message.body[:limit]
    if message.spool is not None:
        content = await asyncio.to_thread(os.pread, message.spool.fileno(), limit, 0)
    payload, payload_encoding = _encoded(content, encoding, len(content) < message.size)
    properties = asdict(decode_header(message.header))
    return {
        "payload_bytes": message.size,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "properties": {key: value for key, value in properties.items() if value is not None},
        "payload": payload,
        "payload_encoding": payload_encoding,
    }


def _encoded(content: bytes, encoding: str, truncated: bool) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return content.decode(), "string"
        except UnicodeDecodeError as error:
            if truncated and error.end == len(content):  # within a character
                return content[: error.start].decode(), "string"
    return base64.b64encode(content).decode(), "base64"


routes: Final = (
    ApiRoute("POST", "/api/exchanges/{vhost}/{name}/publish", publish),
    ApiRoute("POST", "/api/queues/{vhost}/{name}/get", get),
)


class HttpPublisher:
    """Posts a message and waits for its confirm."""

    def __init__(
        self, kernel: Kernel, exchange: Exchange, check_topic: Callable[[str], None] | None = None
    ) -> None:
        self._kernel = kernel
        self._exchange = exchange
        self._check_topic = check_topic
        self._outcome: asyncio.Future[bool] = kernel.loop.create_future()

    async def post(self, message: Message) -> bool:
        """Returns whether it was routed; raises if it was refused."""
        message.flags |= MANDATORY
        channel = Channel(self, self._exchange)
        channel.check_topic = self._check_topic
        self._exchange.channel_open(channel, {})
        try:
            self._exchange.channel_post(channel, message, 1)
            self._kernel.metrics.published += 1
            self._kernel.write_batch.flush()
            return await self._outcome
        finally:
            self._exchange.channel_close(channel)

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        raise AssertionError("exchanges do not forward")

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        if not self._outcome.done():
            self._outcome.set_result(True)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if self._outcome.done():
            return
        if isinstance(error, NoRoute):
            self._outcome.set_result(False)
        else:
            self._outcome.set_exception(error)


class HttpFetcher:
    """Gets messages one at a time, and confirms or fails all of them."""

    def __init__(self, kernel: Kernel, queue: Queue) -> None:
        self._kernel = kernel
        self._queue = queue
        self._received: list[Delivery] = []
        self._unsettled: list[tuple[Channel, Delivery]] = []

    def next(self) -> Delivery | None:
        """None if the queue is empty."""
        channel = Channel(self, self._queue)
        self._queue.channel_open(channel, {"pull": True})
        self._queue.channel_request(channel, 1)
        # Of a large message only the opening is forwarded; its body is read from the spool.
        self._queue.channel_close(channel)
        if not self._received:
            return None
        self._kernel.metrics.delivered += 1
        delivery = self._received.pop()
        self._unsettled.append((channel, delivery))
        return delivery

    def confirm(self) -> None:
        for channel, delivery in self._unsettled:
            self._queue.channel_confirm(channel, delivery)
        self._kernel.metrics.acknowledged += len(self._unsettled)
        self._end()

    def fail(self, requeue: bool) -> None:
        for channel, delivery in self._unsettled:
            self._queue.channel_failure(channel, delivery, requeue)
        self._end()

    def _end(self) -> None:
        self._unsettled.clear()
        self._kernel.write_batch.flush()

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        if isinstance(fragment, Fragment):
            fragment.bucket.release()
        elif delivery is not None:
            self._received.append(delivery)

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        raise AssertionError("nothing was posted")

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        """The queue was deleted: `next` returns None."""
