"""The clients and sessions of one virtual host: who is here, who may come back, and until when.

A session whose client is away waits for it until it expires. Of those that outlive a connection
there is a record in the topology: whose it is, how long it lasts, when its client left, which
groups it shares in and its will. The messages are the session's own business (`drivers/session`).
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.contract import RETAIN, Message, SessionQueue, TopicSubscription
from penstock.broker.declarations import SESSION_QUEUE_TYPE
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
#: Where the broker's own figures are published, apart from what clients say.
SYS_EXCHANGE: Final = "mqtt.sys"
#: A session that does not expire.
NO_EXPIRY: Final = 0xFFFFFFFF

_log = get_logger("penstock.mqtt")


class MqttSessionRegistry:
    __slots__ = ("_expiries", "_members", "_records", "_users", "_wills", "clients", "vhost")

    def __init__(self, vhost: VirtualHost, users: Users) -> None:
        self.vhost = vhost
        self._users = users
        self.clients: dict[str, MqttTerminal] = {}
        self._records: dict[str, dict[str, Any]] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        self._wills: dict[str, tuple[WillMessage, asyncio.TimerHandle]] = {}
        self._members: dict[str, set[str]] = {}  #: of a group's queue, the client ids
        self._recover()

    def __len__(self) -> int:
        """Sessions, of clients here and away."""
        away = sum(client_id not in self.clients for client_id in self._records)
        return len(self.clients) + away

    # Coming and going.

    def enter(self, terminal: MqttTerminal, clean_start: bool) -> bool:
        """A client is let in; whether it finds a session."""
        client_id = terminal.client_id
        record = self._records.get(client_id)
        if record is not None and record["user"] != terminal.access.user.name:
            raise MqttError(
                ReasonCode.NOT_AUTHORIZED,
                f"client id {client_id!r} has a session of another user's",
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
        self._stop_waiting(client_id)
        session = self._session(client_id)
        if clean_start or session is None:  # an operator may have deleted it
            self._end(client_id)
            session = None
        elif client_id in self._wills:
            self._wills.pop(client_id)[1].cancel()
        terminal.session = session
        if terminal.expiry and session is None:
            terminal.session = self._declare(client_id, durable=True)
        if terminal.expiry or session is not None:
            will = terminal.will.packed() if terminal.will is not None else None
            user = terminal.access.user.name
            self._put(client_id, user=user, expiry=terminal.expiry, left=None, will=will)
        self.clients[client_id] = terminal
        return session is not None

    def rejoin(self, terminal: MqttTerminal) -> None:
        """A session that was found takes up its shares again."""
        session = terminal.session
        for name, wanted in self._records.get(terminal.client_id, {}).get("shares", {}).items():
            queue = self.vhost.queues.get(name)
            if session is not None and queue is not None:
                session.join(queue, TopicSubscription(*wanted))

    def need(self, terminal: MqttTerminal) -> SessionQueue:
        """The session of a client that has only now a use for one."""
        if terminal.session is None:
            terminal.session = self._declare(terminal.client_id, durable=terminal.expiry > 0)
        return terminal.session

    def leave(self, terminal: MqttTerminal) -> None:
        """A connection has ended, and with it perhaps the session."""
        client_id = terminal.client_id
        if self.clients.get(client_id) is terminal:
            del self.clients[client_id]
        will = terminal.will
        if not terminal.expiry:
            if will is not None:
                self._publish_will(client_id, terminal.access.user.name, will)
            self._end(client_id)
            return
        self._put(client_id, left=time.time(), expiry=terminal.expiry)
        self._await(client_id, terminal.expiry, will)

    def _await(self, client_id: str, expiry: float, will: WillMessage | None) -> None:
        """The client may come back."""
        kernel = self.vhost.kernel
        now = kernel.loop.time()
        if expiry < NO_EXPIRY:
            when = now + expiry
            self._expiries[client_id] = kernel.write_batch.call_at(
                when, lambda: self._end(client_id)
            )
        if will is not None and will.delay and expiry:
            say: Callable[[], None] = lambda: self._say(client_id)  # noqa: E731
            when = now + min(will.delay, expiry)
            self._wills[client_id] = (will, kernel.write_batch.call_at(when, say))
        else:
            self._put(client_id, will=None)
            if will is not None:
                self._publish_will(client_id, self._records[client_id]["user"], will)

    def _say(self, client_id: str) -> None:
        waiting = self._wills.pop(client_id, None)
        if waiting is not None:
            will, timer = waiting
            timer.cancel()
            self._put(client_id, will=None)
            self._publish_will(client_id, self._records[client_id]["user"], will)

    def _publish_will(self, client_id: str, user: str, will: WillMessage) -> None:
        """If its user may still publish there: it was asked when the client connected, and what a
        user may do has perhaps changed since."""
        exchange, key = will.message.exchange, will.message.routing_key
        access = MqttAccess(self._users, User(user), self.vhost.name, exchange, client_id)
        if access.may_publish(key):
            will.publish(self.vhost)
        else:
            _log.warning("will not published", client_id=client_id, user=user, routing_key=key)

    def _stop_waiting(self, client_id: str) -> None:
        timer = self._expiries.pop(client_id, None)
        if timer is not None:
            timer.cancel()

    def _end(self, client_id: str) -> None:
        """The session is over, and whatever waited for it."""
        self._stop_waiting(client_id)
        self._say(client_id)
        session = self._session(client_id)
        if session is not None:
            self.vhost.delete_queue(session.name)
        for name in [name for name, members in self._members.items() if client_id in members]:
            self._quit(client_id, name)
        self._records.pop(client_id, None)
        self.vhost.topology.drop(("session", self.vhost.name, client_id))

    def forget_client(self, terminal: MqttTerminal) -> None:
        """One that did not get all the way in."""
        if self.clients.get(terminal.client_id) is terminal:
            del self.clients[terminal.client_id]
            if self._session(terminal.client_id) is not None:
                self._await(terminal.client_id, terminal.expiry, None)

    def forget(self, terminal: MqttTerminal) -> None:
        """An operator has deleted the session's queue."""
        terminal.session = None
        terminal.expiry = 0

    # Records.

    def _session(self, client_id: str) -> SessionQueue | None:
        queue = self.vhost.queues.get(SESSION_QUEUE_PREFIX + client_id)
        return (
            cast(SessionQueue, queue)
            if queue is not None and queue.type == SESSION_QUEUE_TYPE
            else None
        )

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
        """After a start every client is away: as long as it has been, or from now on."""
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
            elif expiry < NO_EXPIRY:  # whatever the clock did meanwhile
                expiry = min(expiry, max(0.0, expiry - (time.time() - left)))
            will = record.get("will")
            self._await(client_id, expiry, WillMessage.unpacked(will) if will else None)
        for name in [name for name, members in self._members.items() if not members]:
            self.vhost.delete_queue(name)
            del self._members[name]

    # Shared subscriptions.

    def join(self, terminal: MqttTerminal, group: str, subscription: TopicSubscription) -> None:
        """Compete with the rest of a group for what a filter matches."""
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
        """Whether the client was a member."""
        name = f"{SHARED_QUEUE_PREFIX}{group}/{pattern}"
        if client_id not in self._members.get(name, ()):
            return False
        session.leave(name)
        record = self._records.get(client_id)
        if record is not None:
            self._put(client_id, shares=_without_share(record.get("shares", {}), name))
        self._quit(client_id, name)
        return True

    def _quit(self, client_id: str, name: str) -> None:
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


def _without_share(shares: dict[str, Any], name: str) -> dict[str, Any]:
    return {other: wanted for other, wanted in shares.items() if other != name}


# What the user of a connection may do, in the permissions that AMQP has too.
#
# Publishing asks to write to the exchange and with the key; subscribing to read from the exchange
# and by the filter's key. The session's queue is the client's own: a client id may be tied to a
# user
# (`Users.may_use_client_id`), but needs no permission to configure.


class MqttAccess:
    __slots__ = ("_client_id", "_exchange", "_users", "_vhost", "user")

    def __init__(self, users: Users, user: User, vhost: str, exchange: str, client_id: str) -> None:
        self._users = users
        self.user = user
        self._vhost = vhost
        self._exchange = exchange
        self._client_id = client_id

    def may_publish(self, key: str) -> bool:
        users, user, vhost, exchange = self._users, self.user, self._vhost, self._exchange
        return users.is_allowed(user, vhost, "write", exchange) and users.is_topic_allowed(
            user, vhost, exchange, "write", key, self._client_id
        )

    def may_subscribe(self, key: str) -> bool:
        users, user, vhost, exchange = self._users, self.user, self._vhost, self._exchange
        return users.is_allowed(user, vhost, "read", exchange) and users.is_topic_allowed(
            user, vhost, exchange, "read", key, self._client_id
        )


# Wills: what a client wants said when it is gone without a word.


@dataclass(frozen=True, slots=True)
class WillMessage:
    message: Message
    delay: int  #: seconds that the client may take to come back

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
            vhost.retained.keep(message)
        exchange = vhost.exchanges.get(message.exchange)
        if exchange is not None:
            exchange.accept(message)

    def packed(self) -> dict[str, Any]:
        """As JSON has it: the will of a durable session survives the broker."""
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
