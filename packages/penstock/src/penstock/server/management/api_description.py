"""Descriptions for programs: this API as OpenAPI, channels of a virtual host as AsyncAPI."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import penstock
from penstock.broker.contract import Exchange
from penstock.broker.vhost import VirtualHost
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute
from penstock.server.management.http import HttpResponse, json_response

OPENAPI_VERSION: Final = "3.1.0"
ASYNCAPI_VERSION: Final = "3.0.0"

#: Schemes of listeners → protocols of AsyncAPI.
_PROTOCOLS: Final = {
    "amqp": "amqp",
    "amqps": "amqps",
    "mqtt": "mqtt",
    "mqtts": "secure-mqtt",
    "ws": "ws",
    "wss": "wss",
}


def openapi_document(api: Iterable[ApiRoute]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in api:
        if route.path.startswith("/api/"):
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "Penstock management", "version": penstock.__version__},
        "paths": dict(sorted(paths.items())),
        "components": {"securitySchemes": {"basic": {"type": "http", "scheme": "basic"}}},
        "security": [{"basic": []}],
    }


def _operation(route: ApiRoute) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", route.path)
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-z]+', '_', route.path)}".rstrip("_"),
        "summary": route.summary,
        "tags": [route.path.split("/")[2]],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ],
        "responses": {
            "200" if route.method == "GET" else "2XX": {"description": "Done."},
            "4XX": {"description": "Refused, with `error` and `reason`."},
        },
        "x-level": route.level.name.lower(),
    }
    if route.level is AccessLevel.ANYONE:
        operation["security"] = []
    if route.method in ("PUT", "POST"):
        content = {"application/json": {"schema": {"type": "object"}}}
        operation["requestBody"] = {"content": content}
    return operation


def asyncapi_document(vhost: VirtualHost, addresses: Iterable[str]) -> dict[str, Any]:
    """Queues, streams, and the routing keys and topics that are bound to exchanges."""
    channels: dict[str, Any] = {}
    for queue in vhost.queues.values():
        if queue.owner is None:
            channels[_identifier("queue", queue.name)] = _queue_channel(queue.describe())
    for exchange in vhost.exchanges.values():
        for binding in exchange.bindings:
            if binding.key and exchange.name:
                name = _identifier("exchange", exchange.name, binding.key)
                channels[name] = _exchange_channel(exchange, binding.key)
    servers = {}
    for address in addresses:
        scheme, _, host = address.partition("://")
        if scheme in _PROTOCOLS:
            servers[_identifier(scheme, host)] = {"host": host, "protocol": _PROTOCOLS[scheme]}
    return {
        "asyncapi": ASYNCAPI_VERSION,
        "info": {"title": f"Virtual host {vhost.name}", "version": penstock.__version__},
        "servers": servers,
        "channels": channels,
        "operations": {
            f"{action}-{name}": {"action": action, "channel": {"$ref": f"#/channels/{name}"}}
            for name in channels
            for action in ("send", "receive")
        },
    }


def _queue_channel(described: dict[str, Any]) -> dict[str, Any]:
    queue = {key: described[key] for key in ("name", "durable", "exclusive")}
    queue["autoDelete"] = described["auto_delete"]
    return {
        "address": described["name"],
        "messages": _ANY_MESSAGE,
        "bindings": {"amqp": {"is": "queue", "queue": queue, "bindingVersion": "0.3.0"}},
        "x-queue-type": described["type"],
    }


def _exchange_channel(exchange: Exchange, key: str) -> dict[str, Any]:
    described = {
        "name": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "autoDelete": exchange.auto_delete,
    }
    return {
        "address": key,
        "messages": _ANY_MESSAGE,
        "bindings": {
            "amqp": {"is": "routingKey", "exchange": described, "bindingVersion": "0.3.0"}
        },
    }


_ANY_MESSAGE: Final = {"message": {"payload": {"schemaFormat": "application/octet-stream"}}}


def _identifier(*parts: str) -> str:
    """A key of AsyncAPI: letters, digits, dot, hyphen and underscore."""
    return "-".join(re.sub(r"[^\w.-]+", "_", part, flags=re.ASCII) for part in parts)


async def show_asyncapi(call: ApiCall) -> HttpResponse:
    """The queues, streams and bound routing keys of a virtual host, as AsyncAPI."""
    return json_response(asyncapi_document(call.vhost, call.broker.addresses))


routes: Final = (ApiRoute("GET", "/api/asyncapi/{vhost}", show_asyncapi),)
