"""`/api/delayed-messages`: messages that wait, and their cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from penstock.broker.vhost import VirtualHost
from penstock.core.basic_properties import decode_header
from penstock.core.errors import NotFound
from penstock.core.units import parse_count
from penstock.destinations.delayed import DelayedMessages
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute
from penstock.server.management.http import NO_CONTENT, HttpResponse, bad_request, json_response
from penstock.server.management.list_query import Row

#: Messages in one answer.
MAX_ROWS: Final = 1000


def _stores(vhost: VirtualHost) -> Iterator[tuple[str, DelayedMessages]]:
    """The suffix of message ids, and the store."""
    if vhost.has_delayed and isinstance(vhost.delayed, DelayedMessages):
        yield "", vhost.delayed
    for exchange in vhost.exchanges.values():
        storage = getattr(exchange, "storage", None)
        if isinstance(storage, DelayedMessages):
            yield f"@{exchange.name}", storage


async def list_delayed(call: ApiCall) -> HttpResponse:
    """The number of delayed messages that wait, and the oldest of them."""
    limit = parse_count(call.request.query.get("limit", str(MAX_ROWS)))
    if limit is None or limit > MAX_ROWS:
        raise bad_request(f"limit: a number up to {MAX_ROWS} is expected")
    message_id = call.request.query.get("message_id")
    rows: list[Row] = []
    waiting = 0
    for suffix, store in _stores(call.vhost):
        waiting += len(store)
        for found in store.find(message_id):
            if len(rows) >= limit:
                break
            if found is None:
                await asyncio.sleep(0)
                continue
            due, record = found
            message = record.message
            rows.append(
                {
                    "id": f"{record.offset}{suffix}",
                    "due": due / 1000,
                    "exchange": message.exchange,
                    "routing_key": message.routing_key,
                    "message_id": decode_header(message.header).message_id,
                    "payload_bytes": message.size,
                }
            )
    return json_response({"waiting": waiting, "messages": rows})


async def cancel_delayed(call: ApiCall) -> HttpResponse:
    """Cancel a delayed message."""
    number, at, name = call.names["id"].partition("@")
    offset = parse_count(number)
    for suffix, store in _stores(call.vhost):
        if offset is not None and suffix == at + name:
            store.cancel(offset)
            call.done()
            return NO_CONTENT
    raise NotFound(f"no delayed message '{call.names['id']}' in vhost '{call.vhost.name}'")


async def cancel_by_message_id(call: ApiCall) -> HttpResponse:
    """Cancel the delayed messages whose property `message_id` is the query parameter."""
    message_id = call.request.query.get("message_id")
    if not message_id:
        raise bad_request("message_id: the id of the messages to cancel is missing")
    cancelled = 0
    for _, store in _stores(call.vhost):
        for found in store.find(message_id):
            if found is None:
                await asyncio.sleep(0)
            else:
                store.cancel(found[1].offset)
                cancelled += 1
    call.done()
    if not cancelled:
        raise NotFound(f"no delayed message with message id '{message_id}'")
    return json_response({"cancelled": cancelled})


_PATH: Final = "/api/delayed-messages/{vhost}"
_ADMINISTRATOR: Final = AccessLevel.ADMINISTRATOR

routes: Final = (
    ApiRoute("GET", _PATH, list_delayed, _ADMINISTRATOR),
    ApiRoute("DELETE", _PATH, cancel_by_message_id, _ADMINISTRATOR),
    ApiRoute("DELETE", f"{_PATH}/{{id}}", cancel_delayed, _ADMINISTRATOR),
)
