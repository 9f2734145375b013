"""`/api/mqtt`: sessions of MQTT clients, their subscriptions, and retained messages.

Users with the tag `monitoring` see all sessions and subscriptions, others their own. Retained
messages are read and removed with the permissions of a client: on the MQTT exchange and on the
topic.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

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
from penstock.server.management.list_query import (
    Row,
    is_wanted,
    item_response,
    list_response,
    named_list_response,
)
from penstock.server.management.messages import describe_message
from penstock.wire.mqtt.topics import routing_key_to_topic, topic_to_routing_key

#: The part of a retained message that is shown.
SHOWN_BYTES: Final = 10_000


class ListedSession(NamedTuple):
    """What a session is described from; only those of a page are described."""

    name: str  #: the client id
    vhost: VirtualHost
    client: dict[str, Any] | None  #: the description of the connection, if there is one
    record: dict[str, Any]
    queue: Queue | None

    @property
    def user(self) -> str:
        return str(self.client["user"] if self.client else self.record.get("user", ""))


async def _sessions(call: ApiCall) -> list[ListedSession]:
    vhosts = call.vhosts()
    clients: dict[str, dict[str, dict[str, Any]]] = {vhost.name: {} for vhost in vhosts}
    async for client in iterate_in_slices(list(call.broker.clients)):
        described = client.describe()
        if "variable_map" in described and described["vhost"] in clients:
            clients[described["vhost"]][described["variable_map"]["client_id"]] = described
    records = {
        key[1:]: record
        async for key, record in iterate_in_slices(call.broker.topology.all("session"))
    }
    found = []
    for vhost in vhosts:
        queues = {
            name.removeprefix(SESSION_QUEUE_PREFIX): queue
            async for name, queue in iterate_in_slices(list(vhost.queues.items()))
            if queue.type == SESSION_QUEUE_TYPE
        }
        connected = clients[vhost.name]
        async for name in iterate_in_slices(dict.fromkeys((*connected, *queues))):
            record = records.get((vhost.name, name), {})
            one = ListedSession(name, vhost, connected.get(name), record, queues.get(name))
            if call.allows(AccessLevel.MONITORING) or one.user == call.user.name:
                found.append(one)
    return found


def _describe(session: ListedSession, *, with_subscriptions: bool) -> Row:
    _, vhost, client, record, queue = session
    expiry = record.get("expiry", 0)
    counts = {} if queue is None else queue.describe()
    bound = 0 if queue is None else len(vhost.bindings_of(queue))
    row = {
        "name": session.name,
        "vhost": vhost.name,
        "user": session.user,
        "connected": client is not None,
        "connection": client["name"] if client else None,
        "protocol": client["protocol"] if client else None,
        "disconnected_at": record.get("left"),
        "expiry_interval": None if expiry == NO_EXPIRY else expiry,
        "never_expires": expiry == NO_EXPIRY,
        "queue": None if queue is None else queue.name,
        "messages_waiting": counts.get("messages_ready", 0),
        "messages_in_flight": counts.get("messages_unacknowledged", 0),
        "subscription_count": bound + len(record.get("shares", {})),
    }
    return {**row, "subscriptions": _subscriptions(session)} if with_subscriptions else row


def _subscriptions(session: ListedSession) -> list[Row]:
    if session.queue is None:
        return []
    found = [
        TopicSubscription.of(binding.key, binding.arguments)
        for binding in session.vhost.bindings_of(session.queue)
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
        for name, stored in session.record.get("shares", {}).items()
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
    describe = partial(_describe, with_subscriptions=is_wanted(call, "subscriptions"))
    return await named_list_response(call, await _sessions(call), describe)


async def get_session(call: ApiCall) -> HttpResponse:
    """Describe the MQTT session of a client id, with its subscriptions."""
    for session in await _sessions(call):
        if session.name == call.name:
            with_subscriptions = is_wanted(call, "subscriptions")
            return item_response(call, _describe(session, with_subscriptions=with_subscriptions))
    raise NotFound(f"no MQTT session '{call.name}' in vhost '{call.vhost.name}'")


async def list_subscriptions(call: ApiCall) -> HttpResponse:
    """List the subscriptions of MQTT clients, or of the `client_id` in the query."""
    client_id = call.request.query.get("client_id")
    sessions = await _sessions(call)
    rows = (
        {"client_id": one.name, "user": one.user, "vhost": one.vhost.name, **subscription}
        for one in sessions
        if client_id in (None, one.name)
        for subscription in _subscriptions(one)
    )
    return await list_response(call, rows, ("filter", "client_id"))


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
    allowed = [one async for one in iterate_in_slices(topics) if _may(call, "read", one.name)]

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
    ApiRoute("GET", "/api/mqtt/sessions/{vhost}/{name}", get_session),
    ApiRoute("GET", "/api/mqtt/subscriptions", list_subscriptions),
    ApiRoute("GET", "/api/mqtt/subscriptions/{vhost}", list_subscriptions),
    ApiRoute("GET", _RETAINED, list_retained),
    ApiRoute("GET", f"{_RETAINED}/{{topic}}", get_retained),
    ApiRoute("DELETE", f"{_RETAINED}/{{topic}}", delete_retained),
)
