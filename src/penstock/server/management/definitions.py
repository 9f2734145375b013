"""`/api/definitions`: all that was declared, out and in, in the form of RabbitMQ's export files.

What RabbitMQ exports can be imported here and the reverse; import is `importing.py`.

RabbitMQ cannot check an argon2 hash. A user who has one is exported with no password hash, which
RabbitMQ takes for a user whom no password lets in, and the hash beside it under a name of ours.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.destinations import Binding, Exchange, Queue
from penstock.broker.vhost import PREDECLARED, VirtualHost
from penstock.server.management.call import Call, Level, in_slices
from penstock.server.management.http import Response, as_json
from penstock.server.management.importing import ARGON2, Entry, import_all, import_vhost
from penstock.server.management.overview import RABBITMQ_VERSION
from penstock.server.management.routing import Route


def _queue(queue: Queue) -> Entry:
    return {
        "name": queue.name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": queue.arguments,
    }


def _exchange(exchange: Exchange) -> Entry:
    return {
        "name": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
    }


def _binding(binding: Binding) -> Entry:
    return {
        "source": binding.source,
        "destination": binding.destination.name,
        "destination_type": binding.destination.kind,
        "routing_key": binding.key,
        "arguments": binding.arguments,
    }


def _topology(vhost: VirtualHost) -> dict[str, list[Entry]]:
    """What is to be there again: durable queues, exchanges and the bindings between them."""
    queues = {queue.name for queue in vhost.queues.values() if queue.durable and not queue.owner}
    return {
        "queues": [_queue(vhost.queues[name]) for name in queues],
        "exchanges": [
            _exchange(exchange)
            for exchange in vhost.exchanges.values()
            if exchange.name not in PREDECLARED
        ],
        "bindings": [
            _binding(binding)
            for binding in vhost.bindings()
            if binding.destination.kind == "exchange" or binding.destination.name in queues
        ],
    }


def _portable(user: Entry) -> Entry:
    if not user["password_hash"].startswith("$argon2"):
        return user
    salted = {"password_hash": "", "hashing_algorithm": "rabbit_password_hashing_sha256"}
    return {**user, **salted, ARGON2: user["password_hash"]}


async def export_all(call: Call) -> Response:
    users = call.broker.users.export()
    document: dict[str, Any] = {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": call.broker.product["product"],
        "product_version": call.broker.product["version"],
        "users": [_portable(user) for user in users["users"]],
        "vhosts": [{"name": name} for name in call.broker.vhosts],
        "permissions": users["permissions"],
        "topic_permissions": users["topic_permissions"],
        "parameters": [],
        "global_parameters": [],
        "policies": [],
        "queues": [],
        "exchanges": [],
        "bindings": [],
    }
    async for vhost in in_slices(list(call.broker.vhosts.values()), 1):
        for section, entries in _topology(vhost).items():
            document[section] += [{**entry, "vhost": vhost.name} for entry in entries]
    return _file(call, document)


async def export_vhost(call: Call) -> Response:
    head = {"rabbit_version": RABBITMQ_VERSION, "parameters": [], "policies": []}
    return _file(call, {**head, **_topology(call.vhost)})


def _file(call: Call, document: dict[str, Any]) -> Response:
    response = as_json(document)
    name = call.request.query.get("download")
    if name is None:
        return response
    safe = "".join(letter for letter in name if letter.isalnum() or letter in "-_.")
    headers = {**response.headers, "content-disposition": f'attachment; filename="{safe}"'}
    return Response(200, response.body, headers)


routes: Final = (
    Route("GET", "/api/definitions", Level.ADMINISTRATOR, export_all),
    Route("POST", "/api/definitions", Level.ADMINISTRATOR, import_all),
    Route("GET", "/api/definitions/{vhost}", Level.ADMINISTRATOR, export_vhost),
    Route("POST", "/api/definitions/{vhost}", Level.ADMINISTRATOR, import_vhost),
)
