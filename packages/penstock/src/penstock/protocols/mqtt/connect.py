"""CONNECT: authentication, permissions, the session, and CONNACK.

CONNACK has the reason code of the client's version. Its properties name what differs from the
request: an assigned client id, a shorter session expiry, the limits of the server.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from penstock.broker.user import User
from penstock.core.addresses import is_loopback
from penstock.core.basic_properties import SHORTSTR_MAX
from penstock.core.client_certificate import certificate_login
from penstock.core.errors import AuthenticationFailed, NotAllowed
from penstock.protocols.connection import check_connection_limits
from penstock.protocols.mqtt.sessions import MqttAccess, WillMessage
from penstock.wire.mqtt.fields import VARINT_MAX
from penstock.wire.mqtt.packets import ConnectPacket, decode_connect, encode_connack
from penstock.wire.mqtt.properties import MqttProperties, MqttProperty
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode
from penstock.wire.mqtt.topics import topic_to_routing_key

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost
    from penstock.protocols.mqtt.terminal import MqttTerminal

#: Of a client that does not set it.
DEFAULT_RECEIVE_MAXIMUM: Final = 65535


class ConnectHandler:
    __slots__ = ("_task", "_terminal")

    def __init__(self, terminal: MqttTerminal) -> None:
        self._terminal = terminal
        self._task: asyncio.Task[None] | None = None

    def begin(self, body: bytes) -> None:
        terminal = self._terminal
        try:
            request = decode_connect(body)
        except MqttError as error:
            terminal.version = error.version or 4
            raise
        terminal.version = terminal.reader.version = request.version
        properties = request.properties
        terminal.writer.limit(properties.get(MqttProperty.MAXIMUM_PACKET_SIZE, 0))
        terminal.sends_reason_strings = bool(
            properties.get(MqttProperty.REQUEST_PROBLEM_INFORMATION, 1)
        )
        if MqttProperty.AUTHENTICATION_METHOD in properties:
            method = properties[MqttProperty.AUTHENTICATION_METHOD]
            raise MqttError(
                ReasonCode.BAD_AUTHENTICATION_METHOD,
                f"authentication method {method!r} is not supported",
            )
        terminal.flow_control.hold()
        loop = terminal.host.kernel.loop
        self._task = loop.create_task(self._authenticate(request))

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _authenticate(self, request: ConnectPacket) -> None:
        terminal = self._terminal
        try:
            vhost, user = await self._identify(request)
            self._task = None
            self._open(request, vhost, user)
        except AuthenticationFailed:
            terminal.host.kernel.metrics.refused += 1
            terminal.fail(
                MqttError(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "user name or password is wrong")
            )
        except Exception as error:
            terminal.fail(error)
        terminal.flow_control.resume()
        terminal.host.kernel.write_batch.flush()

    async def _identify(self, request: ConnectPacket) -> tuple[VirtualHost, User]:
        """The virtual host and the user; a user name may be `vhost:user`. Without a user name, the
        user is that of the client certificate, or anonymous."""
        host = self._terminal.host
        settings = host.kernel.settings
        address = self._terminal.peer[0]
        name, vhost = request.username, settings.default_vhost
        certified = certificate_login(self._terminal.transport, settings.tls)
        if name is None and certified:
            user = host.users.certified(certified, address=address)
        elif name is None:
            if not self._may_be_anonymous(address):
                raise MqttError(
                    ReasonCode.NOT_AUTHORIZED, "a user name and a password are required"
                )
            try:
                user = host.users.anonymous(settings.anonymous_user, address=address)
            except AuthenticationFailed as error:
                raise MqttError(ReasonCode.NOT_AUTHORIZED, str(error)) from None
        else:
            if ":" in name:
                vhost, name = name.split(":", 1)
            user = await host.users.authenticate(name, request.password or b"", address=address)
        if vhost not in host.vhosts:
            raise MqttError(ReasonCode.BAD_USER_NAME_OR_PASSWORD, f"no virtual host '{vhost}'")
        if not host.users.can_access_vhost(user, vhost):
            raise MqttError(
                ReasonCode.NOT_AUTHORIZED,
                f"access to vhost '{vhost}' refused for user '{user.name}'",
            )
        return host.vhosts[vhost], user

    def _may_be_anonymous(self, address: str) -> bool:
        terminal = self._terminal
        settings = terminal.host.kernel.settings.mqtt
        websocket = terminal.transport.get_extra_info("websocket") is not None
        allowed = settings.anonymous_websocket if websocket else settings.anonymous
        return allowed and is_loopback(address)

    def _open(self, request: ConnectPacket, vhost: VirtualHost, user: User) -> None:
        terminal = self._terminal
        host = terminal.host
        settings = host.kernel.settings
        if host.draining:
            raise MqttError(ReasonCode.SERVER_SHUTTING_DOWN, "the broker is shutting down")
        if settings.max_connections and len(host.clients) > settings.max_connections:
            raise MqttError(
                ReasonCode.QUOTA_EXCEEDED,
                f"the broker's limit of {settings.max_connections} connections is reached",
            )
        try:
            check_connection_limits(host, user, vhost.name)
        except NotAllowed as error:
            raise MqttError(ReasonCode.QUOTA_EXCEEDED, str(error)) from None
        if terminal.closing:
            return
        connack: MqttProperties = {}
        client_id = request.client_id
        if not client_id:
            client_id = "auto-" + secrets.token_urlsafe(16)
            connack[MqttProperty.ASSIGNED_CLIENT_IDENTIFIER] = client_id
        if not host.users.is_client_id_allowed(user, client_id):
            raise MqttError(
                ReasonCode.NOT_AUTHORIZED,
                f"user '{user.name}' may not use the client id {client_id!r}",
            )
        exchange = vhost.exchange(settings.mqtt.exchange)
        terminal.vhost = vhost
        terminal.access = MqttAccess(host.users, user, vhost.name, exchange.name, client_id)
        terminal.sessions = terminal.mqtt.sessions(vhost)
        terminal.client_id = client_id
        self._set_will(request, exchange.name)
        terminal.expiry = self._expiry(request, connack)
        terminal.keep_alive = self._keep_alive(request, connack)
        present = terminal.sessions.enter(terminal, request.clean_start)
        self._send_connack(request, present, connack)
        terminal.open(
            window=min(
                settings.mqtt.max_inflight,
                request.properties.get(MqttProperty.RECEIVE_MAXIMUM, DEFAULT_RECEIVE_MAXIMUM),
            ),
            aliases=request.properties.get(MqttProperty.TOPIC_ALIAS_MAXIMUM, 0),
        )

    def _set_will(self, request: ConnectPacket, exchange: str) -> None:
        if request.will is None:
            return
        terminal = self._terminal
        key = topic_to_routing_key(request.will.topic.encode()).decode()
        if len(key.encode()) > SHORTSTR_MAX:
            raise MqttError(
                ReasonCode.TOPIC_NAME_INVALID, "the topic of the will message is too long"
            )
        if key.startswith("$SYS") or not terminal.access.may_publish(key):
            raise MqttError(
                ReasonCode.NOT_AUTHORIZED, f"not allowed to publish a will to {request.will.topic}"
            )
        terminal.will = WillMessage.of(request.will, exchange)

    def _expiry(self, request: ConnectPacket, connack: MqttProperties) -> int:
        """The session expiry interval, in seconds."""
        limit = self._terminal.host.kernel.settings.mqtt.max_session_expiry
        if request.version < 5:
            return 0 if request.clean_start else limit
        requested: int = request.properties.get(MqttProperty.SESSION_EXPIRY, 0)
        if requested > limit:
            connack[MqttProperty.SESSION_EXPIRY] = limit
        return min(requested, limit)

    def _keep_alive(self, request: ConnectPacket, connack: MqttProperties) -> int:
        """In seconds; 0 for none."""
        limit = self._terminal.host.kernel.settings.mqtt.keep_alive
        requested = request.keep_alive
        if not limit or 0 < requested <= limit:
            return requested
        connack[MqttProperty.SERVER_KEEP_ALIVE] = limit
        return limit if request.version == 5 else requested

    def _send_connack(self, request: ConnectPacket, present: bool, connack: MqttProperties) -> None:
        terminal = self._terminal
        if request.version == 5:
            settings = terminal.host.kernel.settings.mqtt
            connack[MqttProperty.RECEIVE_MAXIMUM] = settings.receive_maximum
            if settings.topic_alias_maximum:
                connack[MqttProperty.TOPIC_ALIAS_MAXIMUM] = settings.topic_alias_maximum
            if settings.max_packet_bytes < VARINT_MAX + 5:
                connack[MqttProperty.MAXIMUM_PACKET_SIZE] = settings.max_packet_bytes
        packet = encode_connack(request.version, present, ReasonCode.SUCCESS, connack)
        if len(packet) > terminal.writer.largest:
            raise MqttError(
                ReasonCode.PACKET_TOO_LARGE,
                f"CONNACK has {len(packet)} bytes, the client accepts {terminal.writer.largest}",
            )
        terminal.send(packet)
