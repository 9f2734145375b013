"""`/api/exchanges`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.core.errors import NotFound
from penstock.server.management.bindings import describe as describe_binding
from penstock.server.management.bindings import leading_to
from penstock.server.management.call import Call, Level, flag_in, table_in, text_in
from penstock.server.management.http import CREATED, DONE, Response
from penstock.server.management.listing import Row, listed, shown
from penstock.server.management.routing import Route


def _rows(call: Call) -> Iterator[Row]:
    for vhost in call.vhosts():
        for exchange in list(vhost.exchanges.values()):
            yield {**exchange.describe(), "user_who_performed_action": ""}


async def list_exchanges(call: Call) -> Response:
    return await listed(call, _rows(call))


async def get_exchange(call: Call) -> Response:
    described = {**call.exchange.describe(), "user_who_performed_action": ""}
    return shown(call, {**described, "incoming": [], "outgoing": []})


async def put_exchange(call: Call) -> Response:
    body = await call.body()
    vhost, name, arguments = call.vhost, call.exchange_name, table_in(body, "arguments")
    call.access.check("configure", "exchange", name)
    if isinstance(alternate := arguments.get("alternate-exchange"), str):
        call.access.check("read", "exchange", name)
        call.access.check_forward(alternate)
    is_new = name not in vhost.exchanges
    vhost.declare_exchange(
        name,
        text_in(body, "type", "direct"),
        durable=flag_in(body, "durable"),
        auto_delete=flag_in(body, "auto_delete"),
        internal=flag_in(body, "internal"),
        arguments=arguments,
    )
    call.done()
    return CREATED if is_new else DONE


async def delete_exchange(call: Call) -> Response:
    vhost, name = call.vhost, call.exchange_name
    call.access.check("configure", "exchange", name)
    if name not in vhost.exchanges:
        raise NotFound(f"no exchange '{name}' in vhost '{vhost.name}'")
    vhost.delete_exchange(name, if_unused=call.flag("if-unused"))
    call.done()
    return DONE


async def bindings_from(call: Call) -> Response:
    vhost, exchange = call.vhost, call.exchange
    if not exchange.name:
        return await listed(
            call, (row for queue in vhost.queues.values() for row in leading_to(vhost, queue)[:1])
        )
    return await listed(
        call, (describe_binding(vhost.name, binding) for binding in list(exchange.bindings))
    )


async def bindings_to(call: Call) -> Response:
    return await listed(call, leading_to(call.vhost, call.exchange))


_PATH: Final = "/api/exchanges/{vhost}/{name}"

routes: Final = (
    Route("GET", "/api/exchanges", Level.MANAGEMENT, list_exchanges),
    Route("GET", "/api/exchanges/{vhost}", Level.MANAGEMENT, list_exchanges),
    Route("GET", _PATH, Level.MANAGEMENT, get_exchange),
    Route("PUT", _PATH, Level.MANAGEMENT, put_exchange),
    Route("DELETE", _PATH, Level.MANAGEMENT, delete_exchange),
    Route("GET", f"{_PATH}/bindings/source", Level.MANAGEMENT, bindings_from),
    Route("GET", f"{_PATH}/bindings/destination", Level.MANAGEMENT, bindings_to),
)
