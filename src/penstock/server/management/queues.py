"""`/api/queues`, streams included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.broker.destinations import Queue
from penstock.broker.vhost import VirtualHost
from penstock.core.errors import NotFound
from penstock.server.management.bindings import leading_to
from penstock.server.management.call import Call, Level, flag_in, table_in
from penstock.server.management.connections import consumers_of
from penstock.server.management.http import CREATED, DONE, Response
from penstock.server.management.listing import Row, listed, shown
from penstock.server.management.overview import node_name
from penstock.server.management.routing import Route

#: Fields RabbitMQ has of every queue, where a queue of ours says nothing else.
_USUAL: Final[dict[str, Any]] = {
    "policy": None,
    "operator_policy": None,
    "effective_policy_definition": {},
    "exclusive_consumer_tag": None,
    "single_active_consumer_tag": None,
    "head_message_timestamp": None,
    "consumer_utilisation": 0,
    "memory": 0,
}


def describe(node: str, queue: Queue) -> Row:
    described = queue.describe()
    ready = described.get("message_bytes_ready", described.get("message_bytes", 0))
    return {
        "node": node,
        **_USUAL,
        "message_bytes": ready,
        "message_bytes_ready": ready,
        **described,
    }


def _rows(call: Call) -> Iterator[Row]:
    node = node_name(call.broker)
    for vhost in call.vhosts():
        for queue in list(vhost.queues.values()):
            yield describe(node, queue)


async def list_queues(call: Call) -> Response:
    return await listed(call, _rows(call))


async def get_queue(call: Call) -> Response:
    queue = call.queue
    consumers = [
        row
        for client in list(call.broker.clients)
        for row in consumers_of(call, client)
        if row["queue"] == {"name": queue.name, "vhost": call.vhost.name}
    ]
    row = describe(node_name(call.broker), queue)
    return shown(call, {**row, "consumer_details": consumers, "incoming": [], "deliveries": []})


async def put_queue(call: Call) -> Response:
    body = await call.body()
    vhost, name, arguments = call.vhost, call.name, table_in(body, "arguments")
    call.access.check("configure", "queue", name)
    call.access.check_dead_letters(vhost, name, arguments)
    is_new = name not in vhost.queues
    vhost.declare_queue(
        name,
        durable=flag_in(body, "durable"),
        owner=call,
        auto_delete=flag_in(body, "auto_delete"),
        arguments=arguments,
    )
    call.done()
    return CREATED if is_new else DONE


async def delete_queue(call: Call) -> Response:
    vhost, name = call.vhost, call.name
    call.access.check("configure", "queue", name)
    _existing(vhost, name)
    unused, empty = call.flag("if-unused"), call.flag("if-empty")
    vhost.delete_queue(name, owner=call, if_unused=unused, if_empty=empty)
    call.done()
    return DONE


def _existing(vhost: VirtualHost, name: str) -> None:
    if name not in vhost.queues:
        raise NotFound(f"no queue '{name}' in vhost '{vhost.name}'")


async def purge_queue(call: Call) -> Response:
    call.access.check("read", "queue", call.name)
    call.vhost.queue(call.name, call).purge()
    call.done()
    return DONE


async def list_bindings(call: Call) -> Response:
    return await listed(call, leading_to(call.vhost, call.queue))


_PATH: Final = "/api/queues/{vhost}/{name}"

routes: Final = (
    Route("GET", "/api/queues", Level.MANAGEMENT, list_queues),
    Route("GET", "/api/queues/{vhost}", Level.MANAGEMENT, list_queues),
    Route("GET", _PATH, Level.MANAGEMENT, get_queue),
    Route("PUT", _PATH, Level.MANAGEMENT, put_queue),
    Route("DELETE", _PATH, Level.MANAGEMENT, delete_queue),
    Route("DELETE", f"{_PATH}/contents", Level.MANAGEMENT, purge_queue),
    Route("GET", f"{_PATH}/bindings", Level.MANAGEMENT, list_bindings),
)
