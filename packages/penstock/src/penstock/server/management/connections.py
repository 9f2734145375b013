"""`/api/connections`, `/api/channels`, `/api/consumers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from penstock.broker.connection_registry import SocketTerminal, connection_traffic
from penstock.broker.host import ClientConnection
from penstock.core.errors import NotFound
from penstock.core.units import parse_count
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute
from penstock.server.management.http import NO_CONTENT, HttpResponse
from penstock.server.management.list_query import (
    Row,
    is_wanted,
    item_response,
    list_response,
)
from penstock.server.management.overview import node_name

#: What the parameter `name` of lists is looked for in.
CONNECTION_NAMES: Final = ("name", "user", "client_properties.connection_name")
CHANNEL_NAMES: Final = ("name", "user")
CONSUMER_NAMES: Final = ("consumer_tag", "queue.name", "channel_details.connection_name")


def describe_connection(call: ApiCall, client: ClientConnection) -> Row:
    described = client.describe()
    host, _, port = client.name.rpartition(" -> ")[2].rpartition(":")
    received, sent = connection_traffic(cast(SocketTerminal, client))
    return {
        "node": node_name(call.broker),
        "type": "network",
        "host": host,
        "port": parse_count(port) or 0,
        "user_who_performed_action": described["user"],
        "connected_at": int(call.broker.clients.get(client, 0) * 1000),
        "recv_oct": received,
        "send_oct": sent,
        **described,
    }


def _is_visible(call: ApiCall, client: ClientConnection, vhost: str | None = None) -> bool:
    described = client.describe()
    own = described["user"] == call.user.name
    return (own or call.allows(AccessLevel.MONITORING)) and vhost in (None, described["vhost"])


def clients(call: ApiCall, vhost: str | None = None) -> Iterator[ClientConnection]:
    """All connections for users with the tag `monitoring`, otherwise the user's own."""
    return (one for one in list(call.broker.clients) if _is_visible(call, one, vhost))


def client_named(call: ApiCall) -> ClientConnection:
    for client in list(call.broker.clients):
        if client.name == call.name and _is_visible(call, client):
            return client
    raise NotFound(f"no connection '{call.name}'")


def _peer(client: ClientConnection) -> dict[str, Any]:
    described = client.describe()
    return {key: described[key] for key in ("name", "peer_host", "peer_port")}


def channels_of(call: ApiCall, client: ClientConnection) -> Iterator[Row]:
    node = node_name(call.broker)
    for channel in client.describe_channels():
        yield {"node": node, **channel, "connection_details": _peer(client)}


def consumers_of(
    call: ApiCall, client: ClientConnection, is_asked: Callable[[Row], bool] = lambda _: True
) -> Iterator[Row]:
    """Connections without such consumers are not described."""
    consumers = [row for row in client.describe_consumers() if is_asked(row)]
    described = client.describe() if consumers else {}
    for consumer in consumers:
        details = {
            "number": 0,  # MQTT and PADRES have no channels
            **consumer["channel_details"],
            "connection_name": client.name,
            "node": node_name(call.broker),
            "peer_host": described["peer_host"],
            "peer_port": described["peer_port"],
            "user": described["user"],
        }
        yield {"active": True, "activity_status": "up", **consumer, "channel_details": details}


async def list_connections(call: ApiCall) -> HttpResponse:
    """List open connections: all, or those of a virtual host."""
    vhost = call.vhost.name if "vhost" in call.names else None
    rows = (describe_connection(call, client) for client in clients(call, vhost))
    return await list_response(call, rows, CONNECTION_NAMES)


async def get_connection(call: ApiCall) -> HttpResponse:
    """Describe a connection."""
    return item_response(call, describe_connection(call, client_named(call)))


async def delete_connection(call: ApiCall) -> HttpResponse:
    """Close a connection; the header `X-Reason` gives the reason that the client receives."""
    reason = call.request.headers.get("x-reason", "Closed via management plugin")
    client_named(call).end(reason)
    call.done()
    return NO_CONTENT


def _of_user(call: ApiCall) -> list[ClientConnection]:
    name = call.names["user"]
    return [client for client in clients(call) if client.describe()["user"] == name]


async def list_connections_of_user(call: ApiCall) -> HttpResponse:
    """List the open connections of a user."""
    rows = (describe_connection(call, client) for client in _of_user(call))
    return await list_response(call, rows, CONNECTION_NAMES)


async def delete_connections_of_user(call: ApiCall) -> HttpResponse:
    """Close all connections of a user."""
    reason = call.request.headers.get("x-reason", "Closed via management plugin")
    for client in _of_user(call):
        client.end(reason)
    call.done()
    return NO_CONTENT


async def list_channels_of(call: ApiCall) -> HttpResponse:
    """List the channels of a connection."""
    return await list_response(call, channels_of(call, client_named(call)), CHANNEL_NAMES)


async def list_channels(call: ApiCall) -> HttpResponse:
    """List open channels: all, or those of a virtual host."""
    vhost = call.vhost.name if "vhost" in call.names else None
    every = (row for client in clients(call, vhost) for row in channels_of(call, client))
    return await list_response(call, every, CHANNEL_NAMES)


def _channel(call: ApiCall) -> tuple[ClientConnection, Row]:
    for client in list(call.broker.clients):
        if not (call.name.startswith(client.name) and _is_visible(call, client)):
            continue
        for channel in channels_of(call, client):
            if channel["name"] == call.name:
                return client, channel
    raise NotFound(f"no channel '{call.name}'")


def _consumers_of_channel(call: ApiCall, client: ClientConnection) -> Iterator[Row]:
    return consumers_of(call, client, lambda row: bool(row["channel_details"]["name"] == call.name))


async def get_channel(call: ApiCall) -> HttpResponse:
    """Describe a channel and its consumers."""
    client, channel = _channel(call)
    if is_wanted(call, "consumer_details"):
        channel["consumer_details"] = list(_consumers_of_channel(call, client))
    return item_response(call, channel)


async def list_consumers_of_channel(call: ApiCall) -> HttpResponse:
    """List the consumers of a channel."""
    client, _ = _channel(call)
    return await list_response(call, _consumers_of_channel(call, client), CONSUMER_NAMES)


async def list_consumers_of_connection(call: ApiCall) -> HttpResponse:
    """List the consumers of a connection."""
    return await list_response(call, consumers_of(call, client_named(call)), CONSUMER_NAMES)


async def list_consumers(call: ApiCall) -> HttpResponse:
    """List consumers: all, or those of a virtual host."""
    allowed = {vhost.name for vhost in call.vhosts()}
    every = (
        row
        for client in list(call.broker.clients)
        for row in consumers_of(call, client, lambda row: row["queue"]["vhost"] in allowed)
    )
    return await list_response(call, every, CONSUMER_NAMES)


routes: Final = (
    ApiRoute("GET", "/api/connections", list_connections),
    ApiRoute("GET", "/api/connections/{name}", get_connection),
    ApiRoute("DELETE", "/api/connections/{name}", delete_connection),
    ApiRoute("GET", "/api/connections/{name}/channels", list_channels_of),
    ApiRoute("GET", "/api/connections/{name}/consumers", list_consumers_of_connection),
    ApiRoute("GET", "/api/connections/username/{user}", list_connections_of_user),
    ApiRoute("DELETE", "/api/connections/username/{user}", delete_connections_of_user),
    ApiRoute("GET", "/api/vhosts/{vhost}/connections", list_connections),
    ApiRoute("GET", "/api/channels", list_channels),
    ApiRoute("GET", "/api/channels/{name}", get_channel),
    ApiRoute("GET", "/api/channels/{name}/consumers", list_consumers_of_channel),
    ApiRoute("GET", "/api/vhosts/{vhost}/channels", list_channels),
    ApiRoute("GET", "/api/consumers", list_consumers),
    ApiRoute("GET", "/api/consumers/{vhost}", list_consumers),
)
