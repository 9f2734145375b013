"""`/api/bindings`: the rules of exchanges, and the names they have among themselves.

Several bindings may lead from one exchange to one queue. A binding's `properties_key` tells it from
the others: its routing key as a path would have it, and a mark of its arguments if there are any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from penstock.broker.destinations import Binding, Exchange, Queue
from penstock.broker.vhost import VirtualHost
from penstock.core.errors import NotFound
from penstock.server.management.call import DEFAULT_EXCHANGE, Call, Level, table_in, text_in
from penstock.server.management.http import DONE, Response
from penstock.server.management.listing import Row, listed, shown
from penstock.server.management.routing import Route


def properties_key(binding: Binding) -> str:
    key = quote_plus(binding.key, errors="surrogateescape").replace("~", "%7E")
    if not binding.arguments:
        return key or "~"
    return f"{key}~{binding.properties_key.rpartition('~')[2]}"


def describe(vhost: str, binding: Binding) -> Row:
    return {
        "source": binding.source,
        "vhost": vhost,
        "destination": binding.destination.name,
        "destination_type": binding.destination.kind,
        "routing_key": binding.key,
        "arguments": binding.arguments,
        "properties_key": properties_key(binding),
    }


def leading_to(vhost: VirtualHost, destination: Queue | Exchange) -> list[Row]:
    """The bindings of a destination; a queue's first is the one it was born with."""
    rows = [describe(vhost.name, binding) for binding in vhost.bindings_of(destination)]
    if destination.kind == "queue":
        rows.insert(0, describe(vhost.name, Binding("", destination, destination.name)))
    return rows


def _rows(call: Call) -> Iterator[Row]:
    for vhost in call.vhosts():
        for queue in list(vhost.queues.values()):
            yield describe(vhost.name, Binding("", queue, queue.name))
        for binding in vhost.bindings():
            yield describe(vhost.name, binding)


async def list_bindings(call: Call) -> Response:
    return await listed(call, _rows(call))


def _ends(call: Call) -> tuple[str, Queue | Exchange]:
    """The exchange that a binding in the path begins at, and the destination it ends at."""
    vhost, source, name = call.vhost, call.names["source"], call.names["destination"]
    source = "" if source == DEFAULT_EXCHANGE else source
    vhost.exchange(source)
    if call.names["kind"] == "q":
        return source, vhost.queue(name)
    if call.names["kind"] == "e":
        return source, vhost.exchange(name)
    raise NotFound("a destination is q, a queue, or e, an exchange")


def _between(call: Call) -> list[Binding]:
    source, destination = _ends(call)
    if not source and destination.kind == "queue":
        return [Binding("", destination, destination.name)]
    every = call.vhost.bindings_of(destination)
    return [binding for binding in every if binding.source == source]


def _named(call: Call) -> Binding:
    wanted = call.names["properties"]
    found = {properties_key(binding): binding for binding in _between(call)}
    # A client may send the key as it is, or encode it once more, as a part of a path should be.
    for key, binding in found.items():
        if wanted in (key, unquote(key), unquote_plus(key)):
            return binding
    raise NotFound(f"no binding '{wanted}' here")


def _check(
    call: Call, source: str, destination: Queue | Exchange, key: str, arguments: dict[str, Any]
) -> None:
    access = call.access
    access.check("write", destination.kind, destination.name)
    if destination.kind == "exchange":
        access.check_forward(destination.name)
    access.check("read", "exchange", source)
    access.check_bind(call.vhost.exchange(source), key, arguments)


async def list_between(call: Call) -> Response:
    return await listed(call, (describe(call.vhost.name, binding) for binding in _between(call)))


async def post_binding(call: Call) -> Response:
    body = await call.body()
    source, destination = _ends(call)
    key, arguments = text_in(body, "routing_key"), table_in(body, "arguments")
    _check(call, source, destination, key, arguments)
    call.vhost.bind(source, destination, key, arguments)
    call.done()
    made = [
        binding
        for binding in _between(call)
        if binding.key == key and binding.arguments == arguments
    ]
    where = f"{quote(destination.name, safe='')}/{properties_key(made[0])}"
    return Response(201, b"", {"location": where})


async def get_binding(call: Call) -> Response:
    return shown(call, describe(call.vhost.name, _named(call)))


async def delete_binding(call: Call) -> Response:
    binding = _named(call)
    _check(call, binding.source, binding.destination, binding.key, binding.arguments)
    call.vhost.unbind(binding.source, binding.destination, binding.key, binding.arguments)
    call.done()
    return DONE


_ENDS: Final = "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"

routes: Final = (
    Route("GET", "/api/bindings", Level.MANAGEMENT, list_bindings),
    Route("GET", "/api/bindings/{vhost}", Level.MANAGEMENT, list_bindings),
    Route("GET", _ENDS, Level.MANAGEMENT, list_between),
    Route("POST", _ENDS, Level.MANAGEMENT, post_binding),
    Route("GET", f"{_ENDS}/{{properties}}", Level.MANAGEMENT, get_binding),
    Route("DELETE", f"{_ENDS}/{{properties}}", Level.MANAGEMENT, delete_binding),
)
