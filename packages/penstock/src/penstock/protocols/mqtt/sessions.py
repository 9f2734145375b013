"""MQTT sessions of one virtual host: clients, session expiry, shared subscriptions, wills.

A session that outlives its connection has a record in the topology: user, expiry interval, time of
the disconnect, shares and will. Its subscriptions and messages are in its queue
(`destinations/session`).
"""

from __future__ import annotations

import asyncio
import base64
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.contract import RETAIN, Message, SessionQueue, TopicSubscription
from penstock.broker.declarations import SESSION_QUEUE_TYPE
from penstock.broker.permissions import TopicPermissionKind
from penstock.broker.user import User
from penstock.broker.users import Users
from penstock.broker.vhost import VirtualHost
from penstock.core.basic_properties import encode_route
from penstock.core.logs import get_logger
from penstock.protocols.mqtt.conversion import encode_content_header, message_flags
from penstock.wire.mqtt import packets
from penstock.wire.mqtt.properties import MqttProperty
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode
from penstock.wire.mqtt.topics import topic_to_routing_key

if TYPE_CHECKING:
    from penstock.protocols.mqtt.terminal import MqttTerminal


SESSION_QUEUE_PREFIX: Final = "mqtt-subscription-"
SHARED_QUEUE_PREFIX: Final = "mqtt-shared-"
#: The exchange of `$SYS` topics.
SYS_EXCHANGE: Final = "mqtt.sys"
#: The expiry interval of a session that does not expire.
NO_EXPIRY: Final = 0xFFFFFFFF

_log = get_logger("penstock.mqtt")


class MqttAccess:
    """Permissions of a client on one exchange: write to publish, read to subscribe, each on the
    exchange and on the routing key. The session's queue needs no permission."""

    __slots__ = ("_client_id", "_exchange", "_users", "_vhost", "user")

    def __init__(self, users: Users, user: User, vhost: str, exchange: str, client_id: str) -> None:
        self._users = users
        self.user = user
        self._vhost = vhost
        self._exchange = exchange
        self._client_id = client_id

    def may_publish(self, key: str) -> bool:
        return self._is_allowed("write", key)

    def may_subscribe(self, key: str) -> bool:
        return self._is_allowed("read", key)

    def _is_allowed(self, kind: TopicPermissionKind, key: str) -> bool:
        users, user, vhost, exchange = self._users, self.user, self._vhost, self._exchange
        return users.is_allowed(user, vhost, kind, exchange) and users.is_topic_allowed(
            user, vhost, exchange, kind, key, self._client_id
        )


@dataclass(frozen=True, slots=True)
class WillMessage:
    message: Message
    delay: int  #: seconds after the disconnect

    @classmethod
    def of(cls, will: packets.ConnectWill, exchange: str) -> WillMessage:
        properties = dict(will.properties)
        delay = properties.pop(MqttProperty.WILL_DELAY, 0)
        flags = message_flags(will.qos, properties) | (RETAIN if will.retain else 0)
        header = encode_content_header(properties, will.qos, len(will.payload))
        route = encode_route(exchange, topic_to_routing_key(will.topic.encode()).decode())
        return cls(Message(route, header, will.payload, flags), delay)

    def publish(self, vhost: VirtualHost) -> None:
        message = self.message
        if message.flags & RETAIN:
            vhost.retained.retain(message)
        exchange = vhost.exchanges.get(message.exchange)
        if exchange is not None:
            exchange.accept(message)

    def packed(self) -> dict[str, Any]:
        """As JSON, for the topology."""
        message = self.message
        parts = (message.route, message.header, message.body)
        return {
            "parts": [base64.b64encode(part).decode() for part in parts],
            "flags": message.flags,
            "delay": self.delay,
        }

    @classmethod
    def unpacked(cls, packed: dict[str, Any]) -> WillMessage:
        route, header, body = (base64.b64decode(part) for part in packed["parts"])
        return cls(Message(route, header, body, packed["flags"]), packed["delay"])


class MqttSessionRegistry:
    def __init__(self, vhost: VirtualHost, users: Users) -> None:
        self.vhost = vhost
        self._users = users
        self.clients: dict[str, MqttTerminal] = {}
        self._records: dict[str, dict[str, Any]] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        self._wills: dict[str, tuple[WillMessage, asyncio.TimerHandle]] = {}
        self._members: dict[str, set[str]] = {}  #: client ids by the queue of a shared subscription
        self._recover()

    def __len__(self) -> int:
        """Sessions of connected and of disconnected clients."""
        return len(self.clients.keys() | self._records.keys())

    # Connect and disconnect.

    def enter(self, terminal: MqttTerminal, clean_start: bool) -> bool:
        """CONNECT of a client; returns whether a session is present."""
        client_id = terminal.client_id
        record = self._records.get(client_id)
        if record is not None and record["user"] != terminal.access.user.name:
            raise MqttError(
                ReasonCode.NOT_AUTHORIZED, f"client id {client_id!r} has a session of another user"
            )
        before = self.clients.get(client_id)
        if before is not None:
            if before.access.user.name != terminal.access.user.name:
                raise MqttError(
                    ReasonCode.NOT_AUTHORIZED, f"client id {client_id!r} is in use by another user"
                )
            before.fail(
                MqttError(ReasonCode.SESSION_TAKEN_OVER, "another client has this client id")
            )
        self._stop_expiry(client_id)
        session = self._session(client_id)
        if clean_start or session is None:  # an operator can delete it
            self._end(client_id)
            session = None
        elif client_id in self._wills:
            self._wills.pop(client_id)[1].cancel()
        terminal.session = session
        if terminal.expiry and session is None:
            terminal.session = self._declare(client_id, durable=True)
        if terminal.expiry or session is not None:
            will = terminal.will.packed() if terminal.will is not None else None
            user = terminal.access.user
            origin = {"origin": user.origin} if user.origin else {}
            self._put(
                client_id,
                user=user.name,
                expiry=terminal.expiry,
                left=None,
                will=will,
                **origin,
            )
        self.clients[client_id] = terminal
        return session is not None

    def rejoin(self, terminal: MqttTerminal) -> None:
        """Join the shared subscriptions of a present session again."""
        session = terminal.session
        for name, stored in self._records.get(terminal.client_id, {}).get("shares", {}).items():
            queue = self.vhost.queues.get(name)
            if session is not None and queue is not None:
                session.join(queue, TopicSubscription(*stored))

    def need(self, terminal: MqttTerminal) -> SessionQueue:
        if terminal.session is None:
            terminal.session = self._declare(terminal.client_id, durable=terminal.expiry > 0)
        return terminal.session

    def leave(self, terminal: MqttTerminal) -> None:
        """The connection has ended, and the session if it has no expiry interval."""
        client_id = terminal.client_id
        if self.clients.get(client_id) is terminal:
            del self.clients[client_id]
        will = terminal.will
        if not terminal.expiry:
            if will is not None:
                self._publish_will(client_id, terminal.access.user, will)
            self._end(client_id)
            return
        self._put(client_id, left=time.time(), expiry=terminal.expiry)
        self._start_expiry(client_id, terminal.expiry, will)

    def _start_expiry(self, client_id: str, expiry: float, will: WillMessage | None) -> None:
        kernel = self.vhost.kernel
        now = kernel.loop.time()
        if expiry < NO_EXPIRY:
            when = now + expiry
            self._expiries[client_id] = kernel.write_batch.call_at(
                when, partial(self._end, client_id)
            )
        if will is not None and will.delay and expiry:
            when = now + min(will.delay, expiry)
            timer = kernel.write_batch.call_at(when, partial(self._publish_delayed, client_id))
            self._wills[client_id] = (will, timer)
        else:
            self._put(client_id, will=None)
            if will is not None:
                self._publish_will(client_id, self._owner(client_id), will)

    def _publish_delayed(self, client_id: str) -> None:
        waiting = self._wills.pop(client_id, None)
        if waiting is not None:
            will, timer = waiting
            timer.cancel()
            self._put(client_id, will=None)
            self._publish_will(client_id, self._owner(client_id), will)

    def _owner(self, client_id: str) -> User:
        record = self._records[client_id]
        return User(record["user"], origin=record.get("origin", ""))

    def _publish_will(self, client_id: str, user: User, will: WillMessage) -> None:
        """Publish, if the permissions of the user still allow it. Those of a user that is not in
        the users file were checked by CONNECT, and are not known any more."""
        exchange, key = will.message.exchange, will.message.routing_key
        access = MqttAccess(self._users, user, self.vhost.name, exchange, client_id)
        if user.origin or access.may_publish(key):
            will.publish(self.vhost)
        else:
            _log.warning(
                "will message refused", client_id=client_id, user=user.name, routing_key=key
            )

    def _stop_expiry(self, client_id: str) -> None:
        timer = self._expiries.pop(client_id, None)
        if timer is not None:
            timer.cancel()

    def _end(self, client_id: str) -> None:
        """The session has expired, or ends with its connection."""
        self._stop_expiry(client_id)
        self._publish_delayed(client_id)
        session = self._session(client_id)
        if session is not None:
            self.vhost.delete_queue(session.name)
        for name in [name for name, members in self._members.items() if client_id in members]:
            self._remove_member(client_id, name)
        self._records.pop(client_id, None)
        self.vhost.topology.drop(("session", self.vhost.name, client_id))

    def forget_client(self, terminal: MqttTerminal) -> None:
        """The connection ended before CONNACK."""
        if self.clients.get(terminal.client_id) is terminal:
            del self.clients[terminal.client_id]
            if self._session(terminal.client_id) is not None:
                self._start_expiry(terminal.client_id, terminal.expiry, None)

    def forget(self, terminal: MqttTerminal) -> None:
        """The session's queue was deleted."""
        terminal.session = None
        terminal.expiry = 0

    # Records.

    def _session(self, client_id: str) -> SessionQueue | None:
        queue = self.vhost.queues.get(SESSION_QUEUE_PREFIX + client_id)
        if queue is None or queue.type != SESSION_QUEUE_TYPE:
            return None
        return cast(SessionQueue, queue)

    def _declare(self, client_id: str, durable: bool) -> SessionQueue:
        queue = self.vhost.declare_queue(
            SESSION_QUEUE_PREFIX + client_id,
            durable=durable,
            arguments={"x-queue-type": SESSION_QUEUE_TYPE},
        )
        return cast(SessionQueue, queue)

    def _put(self, client_id: str, **facts: Any) -> None:
        record = {**self._records.get(client_id, {}), **facts}
        self._records[client_id] = record
        self.vhost.topology.put(("session", self.vhost.name, client_id), record)

    def _recover(self) -> None:
        """After a start all clients are disconnected: since the recorded time, or since now."""
        for (_, vhost, client_id), record in self.vhost.topology.all("session"):
            if vhost == self.vhost.name:
                self._records[client_id] = record
        for name, queue in list(self.vhost.queues.items()):
            if (
                queue.type == SESSION_QUEUE_TYPE
                and name.removeprefix(SESSION_QUEUE_PREFIX) not in self._records
            ):
                self.vhost.delete_queue(name)
            if name.startswith(SHARED_QUEUE_PREFIX) and queue.type != SESSION_QUEUE_TYPE:
                self._members[name] = set()
        for client_id, record in list(self._records.items()):
            for name in record.get("shares", ()):
                self._members.setdefault(name, set()).add(client_id)
            left = record.get("left")
            expiry = float(record["expiry"])
            if not expiry:
                self._end(client_id)
                continue
            if left is None:
                self._put(client_id, left=time.time())
            elif expiry < NO_EXPIRY:  # also if the clock was set back
                expiry = min(expiry, max(0.0, expiry - (time.time() - left)))
            will = record.get("will")
            self._start_expiry(client_id, expiry, WillMessage.unpacked(will) if will else None)
        for name in [name for name, members in self._members.items() if not members]:
            self.vhost.delete_queue(name)
            del self._members[name]

    # Shared subscriptions.

    def join(self, terminal: MqttTerminal, group: str, subscription: TopicSubscription) -> None:
        """Subscribe a client to a shared subscription."""
        session = terminal.need_session()
        name = f"{SHARED_QUEUE_PREFIX}{group}/{subscription.pattern}"
        settings = self.vhost.kernel.settings.mqtt
        limit = {"x-max-length": settings.max_queued} if settings.max_queued else {}
        queue = self.vhost.queues.get(name) or self.vhost.declare_queue(
            name, durable=True, arguments=limit
        )
        exchange = settings.exchange
        if subscription.pattern.startswith("$SYS"):
            self.need_sys_exchange()
            exchange = SYS_EXCHANGE
        self.vhost.bind(exchange, queue, subscription.pattern)
        self._members.setdefault(name, set()).add(terminal.client_id)
        if terminal.expiry:
            shares = dict(self._records[terminal.client_id].get("shares", {}))
            shares[name] = [
                subscription.pattern,
                subscription.qos,
                subscription.identifier,
                subscription.no_local,
                subscription.as_published,
            ]
            self._put(terminal.client_id, shares=shares)
        session.join(queue, subscription)

    def leave_share(self, client_id: str, session: SessionQueue, group: str, pattern: str) -> bool:
        """Returns whether the client was a member."""
        name = f"{SHARED_QUEUE_PREFIX}{group}/{pattern}"
        if client_id not in self._members.get(name, ()):
            return False
        session.leave(name)
        record = self._records.get(client_id)
        if record is not None:
            shares = {**record.get("shares", {})}
            shares.pop(name, None)
            self._put(client_id, shares=shares)
        self._remove_member(client_id, name)
        return True

    def _remove_member(self, client_id: str, name: str) -> None:
        members = self._members[name]
        members.discard(client_id)
        if not members:
            del self._members[name]
            self.vhost.delete_queue(name)

    def need_sys_exchange(self) -> None:
        if SYS_EXCHANGE not in self.vhost.exchanges:
            self.vhost.declare_exchange(SYS_EXCHANGE, "topic", durable=True, internal=True)

    def close(self) -> None:
        for timer in self._expiries.values():
            timer.cancel()
        for _, timer in self._wills.values():
            timer.cancel()
