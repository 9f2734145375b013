"""The AMQP 0-9-1 terminal: one socket and its channels.

Bytes come in by `data_received` and are taken apart by `frames.py`; methods are answered by
`handshake.py` (until the connection is open) and `handlers/` (from then on). What goes out, and
what drivers ask for, is `writer.py`; when reading stops is `broker/flow_control.py`, who is still
alive
`terminal.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.connection_registry import (
    half_close,
    register_connection,
    unregister_connection,
)
from penstock.broker.flow_control import READ_BYTES, ReadFlowControl
from penstock.broker.host import Host
from penstock.core.errors import (
    ChannelError,
    CommandInvalid,
    ConnectionForced,
    PenstockError,
    UnexpectedFrame,
)
from penstock.core.logs import get_logger
from penstock.protocols.amqp091.channel import AmqpChannel
from penstock.protocols.amqp091.content import ContentAssembler
from penstock.protocols.amqp091.handlers import HANDLERS
from penstock.protocols.amqp091.handlers.connection import Amqp091Handshake
from penstock.protocols.amqp091.writer import WRITE_HIGH_WATER_BYTES, Amqp091Writer
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.errors import close_reason
from penstock.wire.amqp091.frames import HEARTBEAT_FRAME, Amqp091FrameReader
from penstock.wire.amqp091.methods import decode_method, encode_method_frame

if TYPE_CHECKING:
    from penstock.broker.users import AccessControl
    from penstock.broker.vhost import VirtualHost


#: How long a client may take to answer our close, or to close once all is said.
CLOSE_SECONDS: Final = 5.0

#: What an open connection may be asked as a whole.
CHANNEL_ZERO_METHODS: Final = (methods.CONNECTION_CLOSE, methods.CONNECTION_UPDATE_SECRET)

_log = get_logger("penstock.amqp091")


class Amqp091Terminal(asyncio.Protocol):
    __slots__ = (
        "_handshake",
        "_hung_up",
        "_permissions",
        "_write_batch",
        "access",
        "channel_max",
        "channels",
        "client_properties",
        "closing",
        "flow_control",
        "frame_max",
        "heartbeats",
        "host",
        "name",
        "opened",
        "peer",
        "published",
        "reader",
        "tls",
        "transport",
        "vhost",
        "writer",
    )

    def __init__(self, host: Host) -> None:
        self.host = host
        self._write_batch = host.kernel.write_batch
        self.transport: asyncio.Transport
        self.peer: tuple[Any, ...]  # address and port
        self.tls: bool
        self.vhost: VirtualHost
        self.access: AccessControl
        self.frame_max = host.kernel.settings.frame_max
        self.channel_max = host.kernel.settings.channel_max
        self.channels: dict[int, AmqpChannel] = {}
        self.reader = Amqp091FrameReader(self, self.frame_max, self.channels)
        self.flow_control = ReadFlowControl(self)
        self.writer: Amqp091Writer = Amqp091Writer(self)
        self.heartbeats = Amqp091Heartbeats(self)
        self.client_properties: dict[str, Any] = {}
        self.name = ""
        self.published = 0
        self.opened = False
        self.closing = False
        self._permissions = host.users.version
        self._handshake: Amqp091Handshake | None = Amqp091Handshake(self)
        self._hung_up = False  #: all is said: what still comes is discarded

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        register_connection(self, transport, WRITE_HIGH_WATER_BYTES)
        seconds = self.host.kernel.settings.handshake_timeout
        self.heartbeats.expect(seconds, self._handshake_expired)

    def data_received(self, data: bytes) -> None:
        if self._hung_up:
            return
        self.heartbeats.heard = True
        self._write_batch.reader = self.flow_control
        published = self.published
        if self._permissions != self.host.users.version:
            self._permissions_changed()
        try:
            if self._handshake is not None and not self._handshake.greeted:
                data = self._handshake.greet(data)
            self.reader.feed(data)
        except Exception as error:
            self.fail(error)
        writer = self.writer
        if writer.awaiting_credit:
            writer.request()
        metrics = self.host.kernel.metrics
        size = len(data)
        metrics.bytes_in += size
        if size >= READ_BYTES or self.flow_control.wide:
            self.flow_control.adapt(size)
        if self.published != published or self.flow_control.filling:
            metrics.published += self.published - published
            if self.flow_control.filling and self.flow_control.account.spent:
                self.post_partial_bucket()
            self.flow_control.look()
        if (writer.paused or writer.held) and self.flow_control.unread:
            self.flow_control.pause()
        self._write_batch.flush()

    def _permissions_changed(self) -> None:
        """What was allowed has to be asked for again."""
        self._permissions = self.host.users.version
        for channel in self.channels.values():
            channel.producers.clear()

    def post_partial_bucket(self) -> None:
        """What is here of large messages goes to where it is spooled."""
        for channel in self.channels.values():
            if channel.content is not None:
                channel.content.post_partial_bucket()

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()
        self.flow_control.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.heartbeats.stop()
        self.flow_control.end()
        self.closing = True
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
        self._end_channels()
        self.writer.out.clear()
        unregister_connection(self)
        # What refers back to us would keep us, and all that was read, until cycles are looked for.
        del self.reader, self.flow_control, self.writer, self.heartbeats

    def _end_channels(self) -> None:
        for channel in list(self.channels.values()):
            channel.end()
        self.channels.clear()
        self.writer.forget()
        if self.opened:
            self.vhost.release(self)

    # In: what the frame reader finds.

    def on_method(self, channel: int, payload: bytes) -> None:
        number = int.from_bytes(payload[:4], "big")
        if self.closing:
            if number == methods.CONNECTION_CLOSE and not channel:  # both at once
                self._send_close_ok()
            elif number == methods.CONNECTION_CLOSE_OK and not channel:
                self.transport.close()
            return
        if self._handshake is not None:
            self._handshake.on_method(channel, payload)
            return
        amqp = self.channels.get(channel)
        if amqp is not None and amqp.content is not None:
            raise amqp.content.unexpected("a method frame")
        method, args = decode_method(payload)
        if amqp is None and channel and number != methods.CHANNEL_OPEN:
            if number in (methods.CHANNEL_CLOSE, methods.CHANNEL_CLOSE_OK):
                return
            raise ChannelError("expected 'channel.open'")
        if amqp is not None and amqp.closing:
            if number == methods.CHANNEL_CLOSE:
                self.send(encode_method_frame(channel, methods.CHANNEL_CLOSE_OK))
            if number in (methods.CHANNEL_CLOSE, methods.CHANNEL_CLOSE_OK):
                del self.channels[channel]
            return
        if number == methods.BASIC_PUBLISH and amqp is not None:
            amqp.content = ContentAssembler(amqp, payload[6:-1], payload[-1])
            amqp.is_idle = False
            return
        if channel and method.name.startswith("connection."):
            raise CommandInvalid(f"unimplemented method '{method.name}' on a channel")
        if not channel and number not in CHANNEL_ZERO_METHODS:
            raise ChannelError(f"unexpected method in connection state running: '{method.name}'")
        HANDLERS[number](self, channel, args)
        self._write_batch.check_time()

    def on_header(self, channel: int, payload: bytes) -> None:
        content = self._content(channel)
        if content is not None:
            content.header(payload)

    def on_body(self, channel: int, payload: bytes | memoryview) -> None:
        content = self._content(channel)
        if content is not None:
            content.body(payload)

    def _content(self, channel: int) -> ContentAssembler | None:
        amqp = self.channels.get(channel)
        if self.closing or (amqp is not None and amqp.closing):
            return None
        if amqp is None or amqp.content is None:
            raise UnexpectedFrame("expected method frame, got non method frame instead")
        return amqp.content

    def on_error(self, channel: int, method: int, error: Exception) -> None:
        """A channel's own error closes the channel; anything else is the connection's."""
        amqp = self.channels.get(channel)
        if amqp is not None and amqp.content is not None:
            method = methods.BASIC_PUBLISH  # whatever came, it came in the middle of one
        if (
            amqp is None
            or not isinstance(error, PenstockError)
            or close_reason(error).closes_connection
        ):
            self.fail(error, method)
        else:
            self.close_channel(amqp, error, method)

    # Whether it is read from.

    @property
    def held(self) -> bool:
        return self.reader.held

    @held.setter
    def held(self, held: bool) -> None:
        self.reader.held = held

    @property
    def unread_bytes(self) -> int:
        waiting = self.writer.held
        if self.writer.paused:
            waiting += self.transport.get_write_buffer_size()
        return waiting

    def blocking(self, reason: str) -> None:
        if self.can("connection.blocked"):
            self.send(encode_method_frame(0, methods.CONNECTION_BLOCKED, reason=reason[:255]))

    def unblocking(self) -> None:
        if self.can("connection.blocked"):
            self.send(encode_method_frame(0, methods.CONNECTION_UNBLOCKED))

    # The client.

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.flow_control.alarms_changed()

    def send(self, frame: bytes) -> None:
        """A frame of the connection's own, or of a channel that is not open."""
        self.writer.send(frame)

    def can(self, capability: str) -> bool:
        """Whether the client said it understands something."""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    # The end.

    def open(self, vhost: VirtualHost, access: AccessControl, heartbeat: int) -> None:
        """The handshake is over."""
        self.vhost = vhost
        self.access = access
        self.opened = True
        self.host.connection_limiter.mark_authenticated(self.transport)
        self._handshake = None
        self.heartbeats.begin(heartbeat)

    def _handshake_expired(self) -> None:
        _log.info("client took too long to introduce itself", connection=self.name)
        self.transport.abort()

    def close_channel(self, amqp: AmqpChannel, error: Exception, method: int) -> None:
        answer = close_reason(error)
        amqp.end()
        self.send(
            encode_method_frame(
                amqp.number,
                methods.CHANNEL_CLOSE,
                reply_code=answer.code,
                reply_text=answer.text,
                class_id=method >> 16,
                method_id=method & 0xFFFF,
            )
        )
        _log.info("channel closed", connection=self.name, channel=amqp.number, reason=answer.text)

    def fail(self, error: Exception, method: int = 0) -> None:
        """Close the connection and say why."""
        if self.closing:
            return
        answer = close_reason(error)
        if answer.code == 541:
            _log.error("connection failed", connection=self.name, exc_info=error)
        else:
            _log.info("connection closed", connection=self.name, reason=answer.text)
        if self._handshake is not None and not self._handshake.may_explain(error):
            self.closing = True
            self._hang_up(told=False)
            return
        self.closing = True
        self._end_channels()
        self.send(
            encode_method_frame(
                0,
                methods.CONNECTION_CLOSE,
                reply_code=answer.code,
                reply_text=answer.text,
                class_id=method >> 16,
                method_id=method & 0xFFFF,
            )
        )
        self.writer.flush()
        self.flow_control.reopen()
        self.heartbeats.expect(CLOSE_SECONDS, self.transport.abort)

    def close_ok(self) -> None:
        """The client has asked to close."""
        self._end_channels()
        self.closing = True
        self._send_close_ok()

    def _send_close_ok(self) -> None:
        self.send(encode_method_frame(0, methods.CONNECTION_CLOSE_OK))
        self.writer.flush()
        self._hang_up(told=True)

    def _hang_up(self, *, told: bool) -> None:
        self._hung_up = self.held = True
        half_close(self, told=told)
        self.heartbeats.expect(CLOSE_SECONDS, self.transport.abort)

    def end(self, reason: str) -> None:
        self.fail(ConnectionForced(reason))
        self._write_batch.flush()

    def abort(self) -> None:
        self.transport.abort()

    # Management.

    def describe(self) -> dict[str, Any]:
        return describe_connection(self)

    def describe_channels(self) -> list[dict[str, Any]]:
        return [describe_channel(self, channel) for channel in self.channels.values()]

    def describe_consumers(self) -> list[dict[str, Any]]:
        return describe_consumers(self)


# AMQP 0-9-1 as one broker speaks it: its connections share nothing but the broker.


class Amqp091Protocol:
    __slots__ = ("_host",)

    def __init__(self, host: Host) -> None:
        self._host = host

    def terminal(self) -> asyncio.Protocol:
        """For a connection that has just been made."""
        return Amqp091Terminal(self._host)

    def close(self) -> None:
        """There is nothing to let go of."""


# Signs of life: a handshake in good time, then heartbeats both ways.

#: A client that was silent for this many half intervals is gone; RabbitMQ is as patient.
MISSED_HALF_INTERVALS: Final = 4


class Amqp091Heartbeats:
    __slots__ = ("_silent", "_terminal", "_timer", "heard", "interval", "said")

    def __init__(self, terminal: Amqp091Terminal) -> None:
        self._terminal = terminal
        self._timer: asyncio.TimerHandle | None = None
        self._silent = 0
        self.interval = 0  #: seconds, as negotiated; 0 for none
        self.heard = False  #: something came since the last look
        self.said = False  #: something was written since the last look

    def expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """Something is due within this time."""
        self.stop()
        self._timer = self._terminal.host.kernel.loop.call_later(seconds, otherwise)

    def begin(self, interval: int) -> None:
        """Heartbeats, from now on."""
        self.stop()
        self.interval = interval
        if interval:
            self._beat()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        """Every half interval: speak if nothing was said, and count how long nothing was heard."""
        terminal = self._terminal
        if not self.said and not terminal.writer.paused:
            terminal.transport.write(HEARTBEAT_FRAME)
        self.said = False
        # Who is not read from cannot be heard.
        self._silent = 0 if self.heard or not terminal.flow_control.reading else self._silent + 1
        self.heard = False
        if self._silent > MISSED_HALF_INTERVALS:
            _log.info("missed heartbeats from client", connection=terminal.name)
            terminal.transport.abort()
            return
        self._timer = terminal.host.kernel.loop.call_later(self.interval / 2, self._beat)


# A connection as management shows it, under RabbitMQ's field names.


def describe_connection(terminal: Amqp091Terminal) -> dict[str, Any]:
    opened = terminal.opened
    blocked = terminal.flow_control.blocked
    return {
        "name": terminal.name,
        "protocol": "AMQP 0-9-1",
        "user": terminal.access.user.name if opened else "",
        "vhost": terminal.vhost.name if opened else "",
        "peer_host": terminal.peer[0],
        "peer_port": terminal.peer[1],
        "ssl": terminal.tls,
        "channels": len(terminal.channels),
        "channel_max": terminal.channel_max,
        "frame_max": terminal.frame_max,
        "timeout": terminal.heartbeats.interval,
        "client_properties": terminal.client_properties,
        "state": "blocked" if blocked else "running" if opened else "starting",
    }


def describe_channel(terminal: Amqp091Terminal, channel: AmqpChannel) -> dict[str, Any]:
    return {
        "name": f"{terminal.name} ({channel.number})",
        "number": channel.number,
        "user": terminal.access.user.name,
        "vhost": terminal.vhost.name,
        "connection_details": {"name": terminal.name},
        "consumer_count": len(channel.consumers),
        "messages_unacknowledged": len(channel.unacked),
        "messages_unconfirmed": channel.confirms.outstanding(channel.published),
        "prefetch_count": channel.prefetch,
        "global_prefetch_count": channel.global_prefetch,
        "confirm": channel.confirm,
        "transactional": channel.transaction is not None,
        "state": "running",
    }


def describe_consumers(terminal: Amqp091Terminal) -> list[dict[str, Any]]:
    return [
        {
            "consumer_tag": consumer.tag,
            "queue": {"name": consumer.queue, "vhost": terminal.vhost.name},
            "channel_details": {"name": f"{terminal.name} ({number})", "number": number},
            "ack_required": not consumer.settled,
            "prefetch_count": consumer.prefetch,
            "exclusive": consumer.exclusive,
            "arguments": consumer.arguments,
        }
        for number, channel in terminal.channels.items()
        for consumer in channel.consumers.values()
    ]
