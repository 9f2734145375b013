"""`/api/connections`, `/api/channels`, `/api/consumers`: who is connected, and what they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.broker.host import Client
from penstock.core.errors import NotFound
from penstock.core.units import parse_count
from penstock.server.management.call import Call, Level
from penstock.server.management.http import DONE, Response
from penstock.server.management.listing import Row, listed, shown
from penstock.server.management.overview import node_name
from penstock.server.management.routing import Route


def describe(call: Call, client: Client) -> Row:
    described = client.describe()
    host, _, port = client.name.rpartition(" -> ")[2].rpartition(":")
    return {
        "node": node_name(call.broker),
        "type": "network",
        "host": host,
        "port": parse_count(port) or 0,
        "user_who_performed_action": described["user"],
        **described,
    }


def clients(call: Call, vhost: str | None = None) -> Iterator[Client]:
    """Everybody's connections for who monitors, else the user's own."""
    for client in list(call.broker.clients):
        described = client.describe()
        seen = call.allows(Level.MONITORING) or described["user"] == call.user.name
        if seen and vhost in (None, described["vhost"]):
            yield client


def client_named(call: Call) -> Client:
    for client in clients(call):
        if client.name == call.name:
            return client
    raise NotFound(f"no connection '{call.name}'")


def _peer(client: Client) -> dict[str, Any]:
    described = client.describe()
    return {key: described[key] for key in ("name", "peer_host", "peer_port")}


def channels_of(call: Call, client: Client) -> Iterator[Row]:
    node = node_name(call.broker)
    for channel in client.describe_channels():
        yield {"node": node, **channel, "connection_details": _peer(client)}


def consumers_of(call: Call, client: Client) -> Iterator[Row]:
    described = client.describe()
    for consumer in client.describe_consumers():
        details = {
            "number": 0,  # MQTT and PADRES have no channels
            **consumer["channel_details"],
            "connection_name": client.name,
            "node": node_name(call.broker),
            "peer_host": described["peer_host"],
            "peer_port": described["peer_port"],
            "user": described["user"],
        }
        yield {
            "active": True,
            "activity_status": "up",
            **consumer,
            "channel_details": details,
        }


async def list_connections(call: Call) -> Response:
    vhost = call.vhost.name if "vhost" in call.names else None
    return await listed(call, (describe(call, client) for client in clients(call, vhost)))


async def get_connection(call: Call) -> Response:
    return shown(call, describe(call, client_named(call)))


async def delete_connection(call: Call) -> Response:
    reason = call.request.headers.get("x-reason", "Closed via management plugin")
    client_named(call).end(reason)
    call.done()
    return DONE


async def list_channels_of(call: Call) -> Response:
    return await listed(call, channels_of(call, client_named(call)))


async def list_channels(call: Call) -> Response:
    vhost = call.vhost.name if "vhost" in call.names else None
    every = (row for client in clients(call, vhost) for row in channels_of(call, client))
    return await listed(call, every)


async def get_channel(call: Call) -> Response:
    for client in clients(call):
        if not call.name.startswith(client.name):
            continue
        for channel in channels_of(call, client):
            if channel["name"] == call.name:
                consumers = [
                    row
                    for row in consumers_of(call, client)
                    if row["channel_details"]["name"] == call.name
                ]
                return shown(call, {**channel, "consumer_details": consumers})
    raise NotFound(f"no channel '{call.name}'")


async def list_consumers(call: Call) -> Response:
    allowed = {vhost.name for vhost in call.vhosts()}
    every = (
        row
        for client in list(call.broker.clients)
        for row in consumers_of(call, client)
        if row["queue"]["vhost"] in allowed
    )
    return await listed(call, every)


routes: Final = (
    Route("GET", "/api/connections", Level.MANAGEMENT, list_connections),
    Route("GET", "/api/connections/{name}", Level.MANAGEMENT, get_connection),
    Route("DELETE", "/api/connections/{name}", Level.MANAGEMENT, delete_connection),
    Route("GET", "/api/connections/{name}/channels", Level.MANAGEMENT, list_channels_of),
    Route("GET", "/api/vhosts/{vhost}/connections", Level.MANAGEMENT, list_connections),
    Route("GET", "/api/channels", Level.MANAGEMENT, list_channels),
    Route("GET", "/api/channels/{name}", Level.MANAGEMENT, get_channel),
    Route("GET", "/api/vhosts/{vhost}/channels", Level.MANAGEMENT, list_channels),
    Route("GET", "/api/consumers", Level.MANAGEMENT, list_consumers),
    Route("GET", "/api/consumers/{vhost}", Level.MANAGEMENT, list_consumers),
)
