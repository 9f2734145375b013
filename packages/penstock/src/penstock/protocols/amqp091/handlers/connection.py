"""`connection.*`: the handshake, and the methods of an open connection.

The handshake is a sequence: protocol header, start, tune, open; only the expected method is
accepted. As in RabbitMQ, a peer that violates it is disconnected without an explanation, unless it
has authenticated or announced that it understands one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.users import AccessControl
from penstock.core.client_certificate import certificate_login
from penstock.core.errors import (
    AuthenticationFailed,
    CommandInvalid,
    FrameError,
    NotAllowed,
    PenstockError,
    WireSyntaxError,
)
from penstock.core.field_table import decode_table
from penstock.core.logs import get_logger
from penstock.protocols.connection import check_admission
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.frames import FRAME_MIN_SIZE, PROTOCOL_HEADER
from penstock.wire.amqp091.methods import MethodArguments, decode_method, encode_method_frame

if TYPE_CHECKING:
    from penstock.broker.user import User
    from penstock.protocols.amqp091.terminal import Amqp091Terminal


def connection_close(terminal: Amqp091Terminal, number: int, args: MethodArguments) -> None:
    terminal.close_ok()


def connection_update_secret(terminal: Amqp091Terminal, number: int, args: MethodArguments) -> None:
    """A new token, before the old one expires."""
    terminal.renew_credential(args.new_secret)


_log = get_logger("penstock.amqp091")

CAPABILITIES: Final = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


class Amqp091Handshake:
    __slots__ = (
        "_expected",
        "_heartbeat",
        "_received",
        "_task",
        "_terminal",
        "has_protocol_header",
    )

    def __init__(self, terminal: Amqp091Terminal) -> None:
        self._terminal = terminal
        self._received = b""
        self._expected = 0
        self._heartbeat = 0
        self._task: asyncio.Task[None] | None = None
        self.has_protocol_header = False

    def read_protocol_header(self, data: bytes) -> bytes:
        """Returns what follows the eight bytes of the header."""
        data = self._received + data
        if len(data) < 8 and PROTOCOL_HEADER.startswith(data):
            self._received = data
            return b""
        if not data.startswith(PROTOCOL_HEADER):
            self._terminal.transport.write(PROTOCOL_HEADER)
            raise FrameError(f"not an AMQP 0-9-1 client: it sent {data[:8]!r} as protocol header")
        self.has_protocol_header = True
        self._received = b""
        self._send_method(
            methods.CONNECTION_START,
            version_major=0,
            version_minor=9,
            server_properties={**self._terminal.host.product, "capabilities": CAPABILITIES},
            mechanisms=" ".join(self._mechanisms()).encode(),
            locales=b"en_US",
        )
        self._expected = methods.CONNECTION_START_OK
        return data[8:]

    def _mechanisms(self) -> list[str]:
        offered = ["PLAIN", "AMQPLAIN"]
        settings = self._terminal.host.kernel.settings
        if settings.anonymous:
            offered.append("ANONYMOUS")
        if certificate_login(self._terminal.transport, settings.tls):
            offered.append("EXTERNAL")
        return offered

    def on_method(self, channel: int, payload: bytes) -> None:
        method, args = decode_method(payload)
        number = int.from_bytes(payload[:4], "big")
        if channel or number != self._expected:
            raise CommandInvalid(f"'{method.name}' before the connection is open")
        HANDSHAKE_METHODS[number](self, args)

    def may_explain(self, error: Exception) -> bool:
        """Whether the peer is sent a close with the reason."""
        if isinstance(error, AuthenticationFailed):
            return self._terminal.can("authentication_failure_close")
        return self._expected == methods.CONNECTION_OPEN

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _send_method(self, number: int, **values: Any) -> None:
        self._terminal.send(encode_method_frame(0, number, **values))

    def start_ok(self, args: MethodArguments) -> None:
        terminal = self._terminal
        terminal.client_properties = args.client_properties
        credentials = read_credentials(args.mechanism, args.response, self._mechanisms())
        self._expected = 0
        terminal.flow_control.hold()
        loop = terminal.host.kernel.loop
        self._task = loop.create_task(self._authenticate(args.mechanism, *credentials))

    async def _authenticate(self, mechanism: str, name: str, password: bytes) -> None:
        terminal = self._terminal
        users = terminal.host.users
        try:
            address = terminal.peer[0]
            if mechanism == "ANONYMOUS":
                name = terminal.host.kernel.settings.anonymous_user
                user = users.anonymous(name, address=address)
            elif mechanism == "EXTERNAL":
                tls = terminal.host.kernel.settings.tls
                user = users.certified(certificate_login(terminal.transport, tls), address=address)
            else:
                user = await users.authenticate(name, password, address=address)
        except PenstockError as error:
            _log.info(
                "login refused", connection=terminal.name, mechanism=mechanism, reason=str(error)
            )
            terminal.host.kernel.metrics.refused += 1
            terminal.fail(
                AuthenticationFailed(
                    f"Login was refused using authentication mechanism {mechanism}. "
                    "For details see the broker logfile."
                )
            )
            return
        self._tune(user)

    def _tune(self, user: User) -> None:
        terminal = self._terminal
        settings = terminal.host.kernel.settings
        terminal.access = AccessControl(terminal.host.users, user, "")
        self._send_method(
            methods.CONNECTION_TUNE,
            channel_max=settings.channel_max,
            frame_max=settings.frame_max,
            heartbeat=settings.heartbeat,
        )
        self._expected = methods.CONNECTION_TUNE_OK
        terminal.flow_control.resume()
        terminal.host.kernel.write_batch.flush()

    def tune_ok(self, args: MethodArguments) -> None:
        terminal = self._terminal
        offered = terminal.host.kernel.settings.frame_max
        if args.frame_max and not FRAME_MIN_SIZE <= args.frame_max <= offered:
            raise NotAllowed(
                f"frame_max={args.frame_max} is not between {FRAME_MIN_SIZE} and {offered}"
            )
        limit = terminal.host.kernel.settings.channel_max
        if args.channel_max > limit:
            raise NotAllowed(f"channel_max={args.channel_max} is larger than the offered {limit}")
        terminal.frame_max = terminal.reader.frame_max = args.frame_max or offered
        terminal.channel_max = args.channel_max or limit
        self._heartbeat = args.heartbeat
        self._expected = methods.CONNECTION_OPEN

    def open(self, args: MethodArguments) -> None:
        terminal = self._terminal
        host = terminal.host
        user = terminal.access.user
        vhost = host.vhosts.get(args.virtual_host)
        if vhost is None:
            raise NotAllowed(f"vhost {args.virtual_host} not found")
        check_admission(host, user, vhost.name)
        self._send_method(methods.CONNECTION_OPEN_OK)
        terminal.open(vhost, AccessControl(host.users, user, vhost.name), self._heartbeat)


HANDSHAKE_METHODS: Final[dict[int, Callable[[Amqp091Handshake, MethodArguments], None]]] = {
    methods.CONNECTION_START_OK: Amqp091Handshake.start_ok,
    methods.CONNECTION_TUNE_OK: Amqp091Handshake.tune_ok,
    methods.CONNECTION_OPEN: Amqp091Handshake.open,
}


def read_credentials(mechanism: str, response: bytes, offered: list[str]) -> tuple[str, bytes]:
    """The user name and the password in a response of the mechanism."""
    if mechanism not in offered:
        raise CommandInvalid(f"authentication mechanism {mechanism!r} is not offered")
    if mechanism == "PLAIN":
        parts = response.split(b"\0")
        if len(parts) == 3:
            return parts[1].decode("utf-8", "replace"), parts[2]
    elif mechanism == "AMQPLAIN":
        table, _ = decode_table(len(response).to_bytes(4, "big") + response, 0)
        name, password = table.get("LOGIN"), table.get("PASSWORD")
        if isinstance(name, str) and isinstance(password, str | bytes):
            return name, password if isinstance(password, bytes) else password.encode()
    else:  # ANONYMOUS, EXTERNAL
        return "", b""
    raise WireSyntaxError(f"invalid response for authentication mechanism {mechanism}")
