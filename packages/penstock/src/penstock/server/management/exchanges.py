"""`/api/exchanges` and `/api/bindings`.

There may be several bindings between an exchange and a queue. The `properties_key` identifies one:
its encoded routing key, and a hash of its arguments if it has any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from penstock.broker.contract import Binding, Exchange, Queue
from penstock.core.errors import NotFound
from penstock.server.management.api_call import (
    DEFAULT_EXCHANGE,
    ApiCall,
    ApiRoute,
    flag_field,
    table_field,
    text_field,
)
from penstock.server.management.http import CREATED, NO_CONTENT, HttpResponse
from penstock.server.management.list_query import (
    Row,
    item_response,
    list_response,
    named_list_response,
)

#: What the parameter `name` of lists of bindings is looked for in.
BINDING_NAMES: Final = ("source", "routing_key", "destination")


def _describe(exchange: Exchange) -> Row:
    return {**exchange.describe(), "user_who_performed_action": ""}


async def list_exchanges(call: ApiCall) -> HttpResponse:
    """List exchanges: all, or those of a virtual host."""
    exchanges = [one for vhost in call.vhosts() for one in vhost.exchanges.values()]
    return await named_list_response(call, exchanges, _describe)


async def get_exchange(call: ApiCall) -> HttpResponse:
    """Describe an exchange."""
    return item_response(call, {**_describe(call.exchange), "incoming": [], "outgoing": []})


async def put_exchange(call: ApiCall) -> HttpResponse:
    """Declare an exchange: `type`, `durable`, `auto_delete`, `internal`, `arguments`."""
    body = await call.body()
    vhost, name, arguments = call.vhost, call.exchange_name, table_field(body, "arguments")
    call.access.check("configure", "exchange", name)
    if isinstance(alternate := arguments.get("alternate-exchange"), str):
        call.access.check("read", "exchange", name)
        call.access.check_forward(alternate)
    is_new = name not in vhost.exchanges
    vhost.declare_exchange(
        name,
        text_field(body, "type", "direct"),
        durable=flag_field(body, "durable"),
        auto_delete=flag_field(body, "auto_delete"),
        internal=flag_field(body, "internal"),
        arguments=arguments,
    )
    call.done()
    return CREATED if is_new else NO_CONTENT


async def delete_exchange(call: ApiCall) -> HttpResponse:
    """Delete an exchange; with `if-unused=true` only if it has no bindings."""
    vhost, name = call.vhost, call.exchange_name
    call.access.check("configure", "exchange", name)
    if name not in vhost.exchanges:
        raise NotFound(f"no exchange '{name}' in vhost '{vhost.name}'")
    vhost.delete_exchange(name, if_unused=call.flag("if-unused"))
    call.done()
    return NO_CONTENT


async def bindings_from(call: ApiCall) -> HttpResponse:
    """List the bindings of which an exchange is the source."""
    vhost, exchange = call.vhost, call.exchange
    bindings = (
        list(exchange.bindings)
        if exchange.name
        else [Binding("", queue, queue.name) for queue in vhost.queues.values()]
    )
    rows = (describe_binding(vhost.name, binding) for binding in bindings)
    return await list_response(call, rows, BINDING_NAMES)


async def bindings_to(call: ApiCall) -> HttpResponse:
    """List the bindings of which an exchange is the destination."""
    return await list_bindings_to(call, call.exchange)


def properties_key(binding: Binding) -> str:
    key = quote_plus(binding.key, errors="surrogateescape").replace("~", "%7E")
    if not binding.arguments:
        return key or "~"
    return f"{key}~{binding.properties_key.rpartition('~')[2]}"


def describe_binding(vhost: str, binding: Binding) -> Row:
    return {
        "source": binding.source,
        "vhost": vhost,
        "destination": binding.destination.name,
        "destination_type": binding.destination.kind,
        "routing_key": binding.key,
        "arguments": binding.arguments,
        "properties_key": properties_key(binding),
    }


async def list_bindings_to(call: ApiCall, destination: Queue | Exchange) -> HttpResponse:
    """A queue's first is the one it was born with."""
    bindings = call.vhost.bindings_of(destination)
    if destination.kind == "queue":
        bindings.insert(0, Binding("", destination, destination.name))
    rows = (describe_binding(call.vhost.name, binding) for binding in bindings)
    return await list_response(call, rows, BINDING_NAMES)


def _binding_rows(call: ApiCall) -> Iterator[Row]:
    for vhost in call.vhosts():
        for queue in list(vhost.queues.values()):
            yield describe_binding(vhost.name, Binding("", queue, queue.name))
        for binding in vhost.bindings():
            yield describe_binding(vhost.name, binding)


async def list_bindings(call: ApiCall) -> HttpResponse:
    """List bindings: all, or those of a virtual host."""
    return await list_response(call, _binding_rows(call), BINDING_NAMES)


def _ends(call: ApiCall) -> tuple[str, Queue | Exchange]:
    """The source and the destination in the path."""
    vhost, source, name = call.vhost, call.names["source"], call.names["destination"]
    source = "" if source == DEFAULT_EXCHANGE else source
    vhost.exchange(source)
    if call.names["kind"] == "q":
        return source, vhost.queue(name)
    if call.names["kind"] == "e":
        return source, vhost.exchange(name)
    raise NotFound("the destination type is q (queue) or e (exchange)")


def _between(call: ApiCall) -> list[Binding]:
    source, destination = _ends(call)
    if not source and destination.kind == "queue":
        return [Binding("", destination, destination.name)]
    every = call.vhost.bindings_of(destination)
    return [binding for binding in every if binding.source == source]


def _named(call: ApiCall) -> Binding:
    wanted = call.names["properties"]
    found = {properties_key(binding): binding for binding in _between(call)}
    # Clients send the key as it is, or percent-encoded once more.
    for key, binding in found.items():
        if wanted in (key, unquote(key), unquote_plus(key)):
            return binding
    raise NotFound(f"no binding '{wanted}'")


def _check(
    call: ApiCall, source: str, destination: Queue | Exchange, key: str, arguments: dict[str, Any]
) -> None:
    access = call.access
    access.check("write", destination.kind, destination.name)
    if destination.kind == "exchange":
        access.check_forward(destination.name)
    access.check("read", "exchange", source)
    access.check_bind(call.vhost.exchange(source), key, arguments)


async def list_between(call: ApiCall) -> HttpResponse:
    """List the bindings between an exchange and a queue (`q`) or an exchange (`e`)."""
    return await list_response(
        call, (describe_binding(call.vhost.name, binding) for binding in _between(call))
    )


async def post_binding(call: ApiCall) -> HttpResponse:
    """Bind a queue or an exchange: `routing_key`, `arguments`."""
    body = await call.body()
    source, destination = _ends(call)
    key, arguments = text_field(body, "routing_key"), table_field(body, "arguments")
    _check(call, source, destination, key, arguments)
    call.vhost.bind(source, destination, key, arguments)
    call.done()
    made = [
        binding
        for binding in _between(call)
        if binding.key == key and binding.arguments == arguments
    ]
    where = f"{quote(destination.name, safe='')}/{properties_key(made[0])}"
    return HttpResponse(201, b"", {"location": where})


async def get_binding(call: ApiCall) -> HttpResponse:
    """Describe a binding; `properties` is its `properties_key`."""
    return item_response(call, describe_binding(call.vhost.name, _named(call)))


async def delete_binding(call: ApiCall) -> HttpResponse:
    """Remove a binding."""
    binding = _named(call)
    _check(call, binding.source, binding.destination, binding.key, binding.arguments)
    call.vhost.unbind(binding.source, binding.destination, binding.key, binding.arguments)
    call.done()
    return NO_CONTENT


_ENDS: Final = "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"

_PATH: Final = "/api/exchanges/{vhost}/{name}"

routes: Final = (
    ApiRoute("GET", "/api/exchanges", list_exchanges),
    ApiRoute("GET", "/api/exchanges/{vhost}", list_exchanges),
    ApiRoute("GET", _PATH, get_exchange),
    ApiRoute("PUT", _PATH, put_exchange),
    ApiRoute("DELETE", _PATH, delete_exchange),
    ApiRoute("GET", f"{_PATH}/bindings/source", bindings_from),
    ApiRoute("GET", f"{_PATH}/bindings/destination", bindings_to),
    ApiRoute("GET", "/api/bindings", list_bindings),
    ApiRoute("GET", "/api/bindings/{vhost}", list_bindings),
    ApiRoute("GET", _ENDS, list_between),
    ApiRoute("POST", _ENDS, post_binding),
    ApiRoute("GET", f"{_ENDS}/{{properties}}", get_binding),
    ApiRoute("DELETE", f"{_ENDS}/{{properties}}", delete_binding),
)
