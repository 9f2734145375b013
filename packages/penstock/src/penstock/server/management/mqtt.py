"""`/api/mqtt`: sessions of MQTT clients with their subscriptions, and retained messages.

Users with the tag `monitoring` see all sessions, others their own. Retained messages are read and
removed with the permissions of a client: on the MQTT exchange and on the topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.broker.contract import LOGGED, Queue, TopicSubscription
from penstock.broker.declarations import SESSION_QUEUE_TYPE
from penstock.broker.vhost import VirtualHost
from penstock.core.errors import NotFound
from penstock.protocols.mqtt.sessions import NO_EXPIRY, SESSION_QUEUE_PREFIX, SHARED_QUEUE_PREFIX
from penstock.server.management.api_call import (
    AccessLevel,
    ApiCall,
    ApiRoute,
    committed,
    iterate_in_slices,
)
from penstock.server.management.http import NO_CONTENT, HttpResponse, json_response
from penstock.server.management.list_query import Row, list_response, named_list_response
from penstock.server.management.messages import describe_message
from penstock.wire.mqtt.topics import routing_key_to_topic, topic_to_routing_key

if TYPE_CHECKING:
    from penstock.broker.host import ClientConnection

#: The part of a retained message that is shown.
SHOWN_BYTES: Final = 10_000


def _session_rows(call: ApiCall) -> Iterator[Row]:
    for vhost in call.vhosts():
        clients = _clients(call, vhost)
        records = {
            key[2]: record
            for key, record in call.broker.topology.all("session")
            if key[1] == vhost.name
        }
        queues = {
            name.removeprefix(SESSION_QUEUE_PREFIX): queue
            for name, queue in vhost.queues.items()
            if queue.type == SESSION_QUEUE_TYPE
        }
        for client_id in dict.fromkeys((*clients, *queues)):
            client, record = clients.get(client_id), records.get(client_id, {})
            row = _describe(vhost, client_id, client, record, queues.get(client_id))
            if call.allows(AccessLevel.MONITORING) or row["user"] == call.user.name:
                yield row


def _clients(call: ApiCall, vhost: VirtualHost) -> dict[str, dict[str, Any]]:
    """Descriptions of connected clients by client id."""

    def described(client: ClientConnection) -> dict[str, Any]:
        return client.describe()

    found = map(described, list(call.broker.clients))
    return {
        one["variable_map"]["client_id"]: one
        for one in found
        if one["vhost"] == vhost.name and "variable_map" in one
    }


def _describe(
    vhost: VirtualHost,
    client_id: str,
    client: dict[str, Any] | None,
    record: dict[str, Any],
    queue: Queue | None,
) -> Row:
    expiry = record.get("expiry", 0)
    counts = {} if queue is None else queue.describe()
    return {
        "name": client_id,
        "vhost": vhost.name,
        "user": client["user"] if client else record.get("user", ""),
        "connected": client is not None,
        "connection": client["name"] if client else None,
        "protocol": client["protocol"] if client else None,
        "disconnected_at": record.get("left"),
        "expiry_interval": None if expiry == NO_EXPIRY else expiry,
        "never_expires": expiry == NO_EXPIRY,
        "queue": None if queue is None else queue.name,
        "messages_waiting": counts.get("messages_ready", 0),
        "messages_in_flight": counts.get("messages_unacknowledged", 0),
        "subscriptions": [] if queue is None else _subscriptions(vhost, queue, record),
    }


def _subscriptions(vhost: VirtualHost, queue: Queue, record: dict[str, Any]) -> list[Row]:
    found = [
        TopicSubscription.of(binding.key, binding.arguments) for binding in vhost.bindings_of(queue)
    ]
    own = [
        {
            "filter": one.content or _topic(one.pattern),
            "qos": one.qos,
            "identifier": one.identifier or None,
            "no_local": one.no_local,
            "retain_as_published": one.as_published,
        }
        for one in found
    ]
    shared = [
        {"filter": f"$share/{_share(name)}/{_topic(stored[0])}", "qos": stored[1]}
        for name, stored in record.get("shares", {}).items()
    ]
    return own + shared


def _share(queue: str) -> str:
    return queue.removeprefix(SHARED_QUEUE_PREFIX).partition("/")[0]


def _topic(key: str) -> str:
    return routing_key_to_topic(key.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")


def _key(topic: str) -> str:
    return topic_to_routing_key(topic.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")


async def list_sessions(call: ApiCall) -> HttpResponse:
    """List MQTT sessions with their subscriptions: all, or those of a virtual host."""
    return await list_response(call, _session_rows(call))


class RetainedTopic(NamedTuple):
    name: str
    vhost: str
    key: bytes


def _may(call: ApiCall, kind: str, topic: str) -> bool:
    exchange = call.broker.settings.mqtt.exchange
    users, vhost = call.broker.users, call.vhost.name
    permission: Any = kind
    return users.is_allowed(call.user, vhost, permission, exchange) and users.is_topic_allowed(
        call.user, vhost, exchange, permission, _key(topic)
    )


async def list_retained(call: ApiCall) -> HttpResponse:
    """List the topics with a retained message that match the query parameter `filter`."""
    vhost = call.vhost
    call.access.check("read", "exchange", call.broker.settings.mqtt.exchange)
    pattern = topic_to_routing_key(call.request.query.get("filter", "#").encode())
    topics = [
        RetainedTopic(routing_key_to_topic(key).decode("utf-8", "replace"), vhost.name, key)
        async for key in iterate_in_slices(vhost.retained.matching(pattern))
    ]
    allowed = [one for one in topics if _may(call, "read", one.name)]

    def describe(topic: RetainedTopic) -> Row:
        message = vhost.retained.get(topic.key)
        size = None if message is None else message.size
        return {"name": topic.name, "vhost": topic.vhost, "payload_bytes": size}

    return await named_list_response(call, allowed, describe)


async def get_retained(call: ApiCall) -> HttpResponse:
    """The retained message of a topic."""
    call.access.check("read", "exchange", call.broker.settings.mqtt.exchange)
    message = None
    if _may(call, "read", call.names["topic"]):
        message = call.vhost.retained.get(topic_to_routing_key(call.names["topic"].encode()))
    if message is None:
        raise NotFound(f"no retained message on topic '{call.names['topic']}'")
    return json_response(await describe_message(message, SHOWN_BYTES, "auto"))


async def delete_retained(call: ApiCall) -> HttpResponse:
    """Delete the retained message of a topic."""
    exchange, topic = call.broker.settings.mqtt.exchange, call.names["topic"]
    call.access.check("write", "exchange", exchange)
    call.access.check_topic("write", exchange, _key(topic))
    key = topic_to_routing_key(topic.encode())
    if call.vhost.retained.get(key) is None:
        raise NotFound(f"no retained message on topic '{topic}'")
    if call.vhost.retained.remove(key) & LOGGED:
        await committed(call)
    return NO_CONTENT


_RETAINED: Final = "/api/mqtt/retained/{vhost}"

routes: Final = (
    ApiRoute("GET", "/api/mqtt/sessions", list_sessions),
    ApiRoute("GET", "/api/mqtt/sessions/{vhost}", list_sessions),
    ApiRoute("GET", _RETAINED, list_retained),
    ApiRoute("GET", f"{_RETAINED}/{{topic}}", get_retained),
    ApiRoute("DELETE", f"{_RETAINED}/{{topic}}", delete_retained),
)
