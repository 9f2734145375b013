"""`connection.*` once it is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.users import AccessControl
from penstock.core.errors import (
    AuthenticationFailed,
    CommandInvalid,
    FrameError,
    NotAllowed,
    PenstockError,
    WireSyntaxError,
)
from penstock.core.field_table import decode_table
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.frames import FRAME_MIN_SIZE
from penstock.wire.amqp091.methods import MethodArguments, decode_method, encode_method_frame

if TYPE_CHECKING:
    from penstock.broker.user import User
    from penstock.protocols.amqp091.terminal import Amqp091Terminal


def connection_close(terminal: Amqp091Terminal, number: int, args: MethodArguments) -> None:
    terminal.close_ok()


def connection_update_secret(terminal: Amqp091Terminal, number: int, args: MethodArguments) -> None:
    """Passwords are checked at the start and do not run out: the new one is for the next time."""
    terminal.send(encode_method_frame(0, methods.CONNECTION_UPDATE_SECRET_OK))


# From the first byte to an open connection: header, start, tune, open.
#
# What may come when is a table. Nobody is told much before they have said who they are: a peer that
# breaks the rules here is cut off without a word, as RabbitMQ does it, unless it has shown that it
# understands an explanation.

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

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
    __slots__ = ("_expected", "_first", "_heartbeat", "_task", "_terminal", "greeted")

    def __init__(self, terminal: Amqp091Terminal) -> None:
        self._terminal = terminal
        self._first = b""
        self._expected = 0
        self._heartbeat = 0
        self._task: asyncio.Task[None] | None = None
        self.greeted = False

    def greet(self, data: bytes) -> bytes:
        """The protocol header, eight bytes; returns what came behind it."""
        data = self._first + data
        if len(data) < 8 and PROTOCOL_HEADER.startswith(data):
            self._first = data
            return b""
        if not data.startswith(PROTOCOL_HEADER):
            self._terminal.transport.write(PROTOCOL_HEADER)
            raise FrameError(f"not an AMQP 0-9-1 client: it began with {data[:8]!r}")
        self.greeted = True
        self._first = b""
        mechanisms = b"PLAIN AMQPLAIN"
        if self._terminal.host.kernel.settings.anonymous:
            mechanisms += b" ANONYMOUS"
        self._send_method(
            methods.CONNECTION_START,
            version_major=0,
            version_minor=9,
            server_properties={**self._terminal.host.product, "capabilities": CAPABILITIES},
            mechanisms=mechanisms,
            locales=b"en_US",
        )
        self._expected = methods.CONNECTION_START_OK
        return data[8:]

    def on_method(self, channel: int, payload: bytes) -> None:
        method, args = decode_method(payload)
        number = int.from_bytes(payload[:4], "big")
        if channel or number != self._expected:
            raise CommandInvalid(f"'{method.name}' before the connection is open")
        HANDSHAKE_METHODS[number](self, args)

    def may_explain(self, error: Exception) -> bool:
        """Whether this peer, at this stage, is sent a close with the reason."""
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
        credentials = read_credentials(
            args.mechanism, args.response, terminal.host.kernel.settings.anonymous
        )
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
            else:
                user = await users.authenticate(name, password, address=address)
        except PenstockError:
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
                f"frame_max={args.frame_max}: offered were {FRAME_MIN_SIZE} to {offered}"
            )
        most = terminal.host.kernel.settings.channel_max
        if args.channel_max > most:
            raise NotAllowed(f"channel_max={args.channel_max}: offered were up to {most}")
        terminal.frame_max = terminal.reader.frame_max = args.frame_max or offered
        terminal.channel_max = args.channel_max or terminal.host.kernel.settings.channel_max
        self._heartbeat = args.heartbeat
        self._expected = methods.CONNECTION_OPEN

    def open(self, args: MethodArguments) -> None:
        terminal = self._terminal
        host = terminal.host
        user = terminal.access.user
        vhost = host.vhosts.get(args.virtual_host)
        if vhost is None:
            raise NotAllowed(f"vhost {args.virtual_host} not found")
        if not host.users.may_enter(user, vhost.name):
            raise NotAllowed(f"access to vhost '{vhost.name}' refused for user '{user.name}'")
        limit = host.kernel.settings.max_connections
        if limit and len(host.clients) > limit:
            raise NotAllowed(f"the broker's limit of {limit} connections is reached")
        if host.draining:
            raise NotAllowed("the broker is shutting down")
        self._send_method(methods.CONNECTION_OPEN_OK)
        terminal.open(vhost, AccessControl(host.users, user, vhost.name), self._heartbeat)


#: What may come, and what becomes of it; only the one that is expected is let through.
HANDSHAKE_METHODS: Final[dict[int, Callable[[Amqp091Handshake, MethodArguments], None]]] = {
    methods.CONNECTION_START_OK: Amqp091Handshake.start_ok,
    methods.CONNECTION_TUNE_OK: Amqp091Handshake.tune_ok,
    methods.CONNECTION_OPEN: Amqp091Handshake.open,
}


def read_credentials(mechanism: str, response: bytes, anonymous: bool) -> tuple[str, bytes]:
    """Who a client says it is, and the password it says it with."""
    if mechanism == "PLAIN":
        parts = response.split(b"\0")
        if len(parts) == 3:
            return parts[1].decode("utf-8", "replace"), parts[2]
    elif mechanism == "AMQPLAIN":
        table, _ = decode_table(len(response).to_bytes(4, "big") + response, 0)
        name, password = table.get("LOGIN"), table.get("PASSWORD")
        if isinstance(name, str) and isinstance(password, str | bytes):
            return name, password if isinstance(password, bytes) else password.encode()
    elif mechanism == "ANONYMOUS" and anonymous:
        return "", b""
    else:
        raise CommandInvalid(f"authentication mechanism {mechanism!r} is not offered")
    raise WireSyntaxError(f"this is no response of mechanism {mechanism}")
