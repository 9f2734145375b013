"""`…/publish` and `…/get`: a message by hand, for tests and for looking into a queue."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
from dataclasses import asdict, fields
from functools import partial
from typing import Any, Final

from penstock.broker.contract import Delivery, Message
from penstock.broker.destinations import Queue
from penstock.broker.properties import flags_of
from penstock.core.errors import AccessRefused, PreconditionFailed
from penstock.core.properties import Properties, decode_header, encode_header, encode_route
from penstock.core.units import parse_count
from penstock.server.management.call import Call, Level, number_in, required, table_in, text_in
from penstock.server.management.errand import Fetching, Posting
from penstock.server.management.errors import bad_request
from penstock.server.management.http import Response, as_json
from penstock.server.management.routing import Route

_KINDS: Final[dict[str, type]] = {
    "headers": dict,
    "delivery_mode": int,
    "priority": int,
    "timestamp": int,
}
_PROPERTIES: Final = {field.name: _KINDS.get(field.name, str) for field in fields(Properties)}

#: How messages are answered once they have been shown: done with, or failed, and requeued or not.
_ANSWERS: Final[dict[str, tuple[bool, bool]]] = {
    "ack_requeue_true": (False, True),
    "ack_requeue_false": (True, False),
    "reject_requeue_true": (False, True),
    "reject_requeue_false": (False, False),
}

#: What of one large body is shown at most; `payload_bytes` says how much there is.
SHOWN_BYTES: Final = 16 << 20
#: What all bodies of one answer may take.
ANSWER_BYTES: Final = 64 << 20


async def publish(call: Call) -> Response:
    body = await call.body()
    given, key, payload, encoding = required(
        body, "properties", "routing_key", "payload", "payload_encoding"
    )
    exchange, access = call.exchange, call.access
    access.check("write", "exchange", exchange.name)
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal exchange '{exchange.name}'")
    check_topic = partial(access.check_topic, "write", exchange.name)
    if exchange.topical:
        check_topic(text_in(body, "routing_key"))
    content = _decoded(payload, encoding)
    header = encode_header(_properties(call, given), len(content))
    message = Message(encode_route(exchange.name, key), header, content, flags_of(header))
    routed = await Posting(call.broker.kernel, exchange, check_topic).post(message)
    return as_json({"routed": routed})


def _decoded(payload: Any, encoding: Any) -> bytes:
    if not isinstance(payload, str):
        raise bad_request("payload: a string is expected")
    if encoding == "string":
        return payload.encode("utf-8", "surrogatepass")
    if encoding != "base64":
        raise bad_request(f"unsupported encoding: {encoding}")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request("payload: this is no base64") from None


def _properties(call: Call, given: Any) -> Properties:
    if given == []:  # how some clients write an empty object
        given = {}
    values = table_in({"properties": given}, "properties")
    for name, value in values.items():
        kind = _PROPERTIES.get(name)
        if kind is None:
            raise bad_request(f"properties: there is no property {name!r}")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise bad_request(f"properties.{name}: expected a {kind.__name__}, not {value!r}")
    properties = Properties(**values)
    if properties.user_id not in (None, call.user.name):
        raise PreconditionFailed(
            f"user_id property set to '{properties.user_id}' but authenticated user was "
            f"'{call.user.name}'"
        )
    if properties.expiration is not None and parse_count(properties.expiration) is None:
        raise PreconditionFailed(f"invalid expiration '{properties.expiration}'")
    return properties


async def get(call: Call) -> Response:
    body = await call.body()
    _, ackmode, encoding = required(body, "count", "ackmode", "encoding")
    count = number_in(body, "count", 0)
    if ackmode not in _ANSWERS:
        raise bad_request(f"ackmode: {ackmode!r} is none of {', '.join(_ANSWERS)}")
    if encoding not in ("auto", "base64"):
        raise bad_request(f"unsupported encoding: {encoding}")
    call.access.check("read", "queue", call.name)
    queue = call.vhost.queue(call.name, call)
    limit = min(number_in(body, "truncate", SHOWN_BYTES), SHOWN_BYTES)
    fetching = Fetching(call.broker.kernel, queue)
    rows: list[dict[str, Any]] = []
    size = 0
    try:
        while len(rows) < count and size < ANSWER_BYTES:
            delivery = fetching.next()
            if delivery is None:
                break
            # What is shown is seen before it is answered: the count is what is left behind it.
            rows.append(await _row(queue, delivery, limit, encoding))
            size += len(rows[-1]["payload"])
    except BaseException:
        fetching.fail(requeue=True)  # nobody saw them
        raise
    done, requeue = _ANSWERS[ackmode]
    if done:
        fetching.confirm()
    else:
        fetching.fail(requeue)
    return as_json(rows)


async def _row(queue: Queue, delivery: Delivery, limit: int, encoding: str) -> dict[str, Any]:
    message, left = delivery.message, queue.message_count
    content = message.body[:limit]
    if message.spool is not None:
        content = await asyncio.to_thread(os.pread, message.spool.fileno(), limit, 0)
    payload, payload_encoding = _encoded(content, encoding)
    properties = asdict(decode_header(message.header))
    return {
        "payload_bytes": message.size,
        "redelivered": delivery.count > 0 or delivery.released,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "message_count": left,
        "properties": {key: value for key, value in properties.items() if value is not None},
        "payload": payload,
        "payload_encoding": payload_encoding,
    }


def _encoded(content: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return content.decode(), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(content).decode(), "base64"


routes: Final = (
    Route("POST", "/api/exchanges/{vhost}/{name}/publish", Level.MANAGEMENT, publish),
    Route("POST", "/api/queues/{vhost}/{name}/get", Level.MANAGEMENT, get),
)
