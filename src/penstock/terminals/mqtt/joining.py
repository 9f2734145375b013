"""From CONNECT to CONNACK: who is this client, and may it come in?

A refusal is worded for the version the client speaks. What the server does differently from what
was asked (a client id it chose, a shorter session, its own limits) is said in the CONNACK.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from penstock.broker.user import User
from penstock.core.addresses import is_loopback
from penstock.core.errors import AuthenticationFailed
from penstock.terminals.mqtt.access import Access
from penstock.terminals.mqtt.connect import Connect, decode_connect
from penstock.terminals.mqtt.encode import connack
from penstock.terminals.mqtt.fields import VARINT_MAX
from penstock.terminals.mqtt.properties import Properties, Property
from penstock.terminals.mqtt.reasons import MqttError, Reason
from penstock.terminals.mqtt.topics import to_key
from penstock.terminals.mqtt.translation import SHORT
from penstock.terminals.mqtt.wills import Will

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost
    from penstock.terminals.mqtt.terminal import MqttTerminal

#: What a client has that says nothing of how much it takes.
RECEIVE_MAXIMUM: Final = 65535


class Joining:
    __slots__ = ("_task", "_terminal")

    def __init__(self, terminal: MqttTerminal) -> None:
        self._terminal = terminal
        self._task: asyncio.Task[None] | None = None

    def begin(self, body: bytes) -> None:
        """The first packet, which must be CONNECT."""
        terminal = self._terminal
        try:
            request = decode_connect(body)
        except MqttError as error:
            terminal.version = error.version or 4
            raise
        terminal.version = terminal.reader.version = request.version
        properties = request.properties
        terminal.outflow.limit(properties.get(Property.MAXIMUM_PACKET_SIZE, 0))
        terminal.explains = bool(properties.get(Property.REQUEST_PROBLEM_INFORMATION, 1))
        if Property.AUTHENTICATION_METHOD in properties:
            method = properties[Property.AUTHENTICATION_METHOD]
            raise MqttError(
                Reason.BAD_AUTHENTICATION_METHOD, f"authentication method {method!r}: none is known"
            )
        terminal.intake.hold()
        loop = terminal.host.kernel.loop
        self._task = loop.create_task(self._authenticate(request))

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _authenticate(self, request: Connect) -> None:
        terminal = self._terminal
        try:
            vhost, user = await self._identify(request)
            self._task = None
            self._enter(request, vhost, user)
        except AuthenticationFailed:
            terminal.host.kernel.metrics.refused += 1
            terminal.fail(
                MqttError(Reason.BAD_USER_NAME_OR_PASSWORD, "user name or password is wrong")
            )
        except Exception as error:
            terminal.fail(error)
        terminal.intake.resume()
        terminal.host.kernel.turn.end()

    async def _identify(self, request: Connect) -> tuple[VirtualHost, User]:
        """The user, and the virtual host: the user name may begin with it, as `vhost:user`."""
        host = self._terminal.host
        settings = host.kernel.settings
        address = self._terminal.peer[0]
        name, vhost = request.username, settings.default_vhost
        if name is None:
            if not self._may_be_anonymous(address):
                raise MqttError(Reason.NOT_AUTHORIZED, "a user name and a password are needed")
            try:
                user = host.users.anonymous(settings.anonymous_user, address=address)
            except AuthenticationFailed as error:
                raise MqttError(Reason.NOT_AUTHORIZED, str(error)) from None
        else:
            if ":" in name:
                vhost, name = name.split(":", 1)
            user = await host.users.authenticate(name, request.password or b"", address=address)
        if vhost not in host.vhosts:
            raise MqttError(Reason.BAD_USER_NAME_OR_PASSWORD, f"no virtual host '{vhost}'")
        if not host.users.may_enter(user, vhost):
            raise MqttError(
                Reason.NOT_AUTHORIZED, f"access to vhost '{vhost}' refused for user '{user.name}'"
            )
        return host.vhosts[vhost], user

    def _may_be_anonymous(self, address: str) -> bool:
        terminal = self._terminal
        settings = terminal.host.kernel.settings.mqtt
        websocket = terminal.transport.get_extra_info("websocket") is not None
        allowed = settings.anonymous_websocket if websocket else settings.anonymous
        return allowed and is_loopback(address)

    def _enter(self, request: Connect, vhost: VirtualHost, user: User) -> None:
        terminal = self._terminal
        host = terminal.host
        settings = host.kernel.settings
        if host.draining:
            raise MqttError(Reason.SERVER_SHUTTING_DOWN, "the broker is shutting down")
        if settings.max_connections and len(host.clients) > settings.max_connections:
            raise MqttError(
                Reason.QUOTA_EXCEEDED,
                f"the broker's limit of {settings.max_connections} connections is reached",
            )
        if terminal.closing:
            return
        told: Properties = {}
        client_id = request.client_id
        if not client_id:
            client_id = "auto-" + secrets.token_urlsafe(16)
            told[Property.ASSIGNED_CLIENT_IDENTIFIER] = client_id
        if not host.users.may_use_client_id(user, client_id):
            raise MqttError(
                Reason.NOT_AUTHORIZED,
                f"user '{user.name}' may not use the client id {client_id!r}",
            )
        exchange = vhost.exchange(settings.mqtt.exchange)
        terminal.vhost = vhost
        terminal.access = Access(host.users, user, vhost.name, exchange.name, client_id)
        terminal.sessions = terminal.mqtt.sessions(vhost)
        terminal.client_id = client_id
        self._take_will(request, exchange.name)
        terminal.expiry = self._expiry(request, told)
        terminal.keep_alive = self._keep_alive(request, told)
        present = terminal.sessions.enter(terminal, request.clean_start)
        self._welcome(request, present, told)
        terminal.open(
            exchange,
            window=min(
                settings.mqtt.max_inflight,
                request.properties.get(Property.RECEIVE_MAXIMUM, RECEIVE_MAXIMUM),
            ),
            aliases=request.properties.get(Property.TOPIC_ALIAS_MAXIMUM, 0),
        )

    def _take_will(self, request: Connect, exchange: str) -> None:
        if request.will is None:
            return
        terminal = self._terminal
        key = to_key(request.will.topic.encode()).decode()
        if len(key.encode()) > SHORT:
            raise MqttError(Reason.TOPIC_NAME_INVALID, "the topic of the will is too long")
        if key.startswith("$SYS") or not terminal.access.may_publish(key):
            raise MqttError(
                Reason.NOT_AUTHORIZED, f"not allowed to publish a will to {request.will.topic}"
            )
        terminal.will = Will.of(request.will, exchange)

    def _expiry(self, request: Connect, told: Properties) -> int:
        """How long the session outlives the connection, in seconds."""
        most = self._terminal.host.kernel.settings.mqtt.max_session_expiry
        if request.version < 5:
            return 0 if request.clean_start else most
        asked: int = request.properties.get(Property.SESSION_EXPIRY, 0)
        if asked > most:
            told[Property.SESSION_EXPIRY] = most
        return min(asked, most)

    def _keep_alive(self, request: Connect, told: Properties) -> int:
        """How long the client may be silent, in seconds; 0 for any time."""
        most = self._terminal.host.kernel.settings.mqtt.keep_alive
        asked = request.keep_alive
        if not most or 0 < asked <= most:
            return asked
        told[Property.SERVER_KEEP_ALIVE] = most
        return most if request.version == 5 else asked

    def _welcome(self, request: Connect, present: bool, told: Properties) -> None:
        terminal = self._terminal
        if request.version == 5:
            settings = terminal.host.kernel.settings.mqtt
            told[Property.RECEIVE_MAXIMUM] = settings.receive_maximum
            if settings.topic_alias_maximum:
                told[Property.TOPIC_ALIAS_MAXIMUM] = settings.topic_alias_maximum
            if settings.max_packet_bytes < VARINT_MAX + 5:
                told[Property.MAXIMUM_PACKET_SIZE] = settings.max_packet_bytes
        packet = connack(request.version, present, Reason.SUCCESS, told)
        if len(packet) > terminal.outflow.largest:
            raise MqttError(
                Reason.PACKET_TOO_LARGE, "the client takes no packet as large as CONNACK"
            )
        terminal.send(packet)
