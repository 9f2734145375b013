"""The AMQP 0-9-1 terminal: one socket and its channels.

The frame reader (`wire/amqp091`) takes received bytes apart and calls the terminal. Until the
connection is open, methods go to `Amqp091Handshake`, afterwards to `handlers/`; publishes and
acknowledgements go directly to the channel. Output, and the contract with drivers, is `writer.py`.
An error closes the channel or the connection, as the standard says (`wire/amqp091/errors.py`).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.connection_registry import (
    connection_name,
    half_close,
    register_connection,
    unregister_connection,
)
from penstock.broker.flow_control import ReadFlowControl
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
from penstock.protocols.amqp091.writer import Amqp091Writer
from penstock.protocols.connection import (
    CLOSE_SECONDS,
    abort_handshake,
    describe_channel,
    describe_connection,
    describe_consumer,
    finish_read,
    renewed_user,
)
from penstock.protocols.heartbeats import HeartbeatTimer
from penstock.protocols.socket_writer import WRITE_HIGH_WATER_BYTES
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.errors import close_reason
from penstock.wire.amqp091.frames import HEARTBEAT_FRAME, Amqp091FrameReader
from penstock.wire.amqp091.methods import decode_method, encode_method_frame

if TYPE_CHECKING:
    from penstock.broker.users import AccessControl
    from penstock.broker.vhost import VirtualHost


#: Half intervals without data after which the client is gone, as in RabbitMQ.
MISSED_HALF_INTERVALS: Final = 4

#: Methods of an open connection on channel 0.
CHANNEL_ZERO_METHODS: Final = (methods.CONNECTION_CLOSE, methods.CONNECTION_UPDATE_SECRET)

_log = get_logger("penstock.amqp091")


class Amqp091Protocol:
    """Connections of AMQP 0-9-1 share nothing but the broker."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def terminal(self) -> asyncio.Protocol:
        return Amqp091Terminal(self._host)

    def close(self) -> None:
        """There is nothing to release."""


class Amqp091Terminal(asyncio.Protocol):
    __slots__ = (
        "_discarding",
        "_handshake",
        "_permissions",
        "_renewal",
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
        "opened",
        "output",
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
        self.output = self.writer.output
        self.heartbeats = HeartbeatTimer(self, HEARTBEAT_FRAME, MISSED_HALF_INTERVALS)
        self.client_properties: dict[str, Any] = {}
        self.published = 0
        self.opened = False
        self.closing = False
        self._permissions = host.users.version
        self._handshake: Amqp091Handshake | None = Amqp091Handshake(self)
        self._renewal: asyncio.Task[None] | None = None  #: of the credentials
        self._discarding = False  #: input is discarded until the client closes the socket

    @property
    def name(self) -> str:
        return connection_name(self)

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        register_connection(self, transport, WRITE_HIGH_WATER_BYTES)
        seconds = self.host.kernel.settings.handshake_timeout
        self.heartbeats.expect(seconds, partial(abort_handshake, self))

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        self.heartbeats.received = True
        self._write_batch.reader = self.flow_control
        published = self.published
        if self._permissions != self.host.users.version:
            self._permissions = self.host.users.version
            for channel in self.channels.values():
                channel.forget_permissions()
        try:
            if self._handshake is not None and not self._handshake.has_protocol_header:
                data = self._handshake.read_protocol_header(data)
            self.reader.feed(data)
        except Exception as error:
            self.fail(error)
        if self.writer.awaiting_credit:
            self.writer.request()
        finish_read(self, len(data), published)
        self._write_batch.flush()

    def post_partial_buckets(self) -> None:
        for channel in self.channels.values():
            if channel.content is not None:
                channel.content.post_partial_bucket()

    def pause_writing(self) -> None:
        self.output.pause()

    def resume_writing(self) -> None:
        self.output.resume()
        self.flow_control.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.heartbeats.close()
        self.flow_control.end()
        self.closing = True
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
        if self._renewal is not None:
            self._renewal.cancel()
        self._end_channels()
        self.output.close()
        unregister_connection(self)
        # Reference cycles would keep the terminal until the next garbage collection.
        del self.reader, self.flow_control, self.writer

    def _end_channels(self) -> None:
        for channel in list(self.channels.values()):
            channel.end()
        self.channels.clear()
        self.writer.reset()
        if self.opened:
            self.vhost.release(self)

    # Calls of the frame reader.

    def on_method(self, number: int, payload: bytes) -> None:
        method_id = int.from_bytes(payload[:4], "big")
        if self.closing:
            if method_id == methods.CONNECTION_CLOSE and not number:  # both sides close at once
                self._send_close_ok()
            elif method_id == methods.CONNECTION_CLOSE_OK and not number:
                self.transport.close()
            return
        if self._handshake is not None:
            self._handshake.on_method(number, payload)
            return
        channel = self.channels.get(number)
        if channel is not None and channel.content is not None:
            raise channel.content.unexpected("a method frame")
        method, args = decode_method(payload)
        if channel is None and number and method_id != methods.CHANNEL_OPEN:
            if method_id in (methods.CHANNEL_CLOSE, methods.CHANNEL_CLOSE_OK):
                return
            raise ChannelError("expected 'channel.open'")
        if channel is not None and channel.closing:
            if method_id == methods.CHANNEL_CLOSE:
                self.send(encode_method_frame(number, methods.CHANNEL_CLOSE_OK))
            if method_id in (methods.CHANNEL_CLOSE, methods.CHANNEL_CLOSE_OK):
                del self.channels[number]
            return
        if method_id == methods.BASIC_PUBLISH and channel is not None:
            channel.content = ContentAssembler(channel, payload[6:-1], payload[-1])
            channel.is_idle = False
            return
        if number and method.name.startswith("connection."):
            raise CommandInvalid(f"unimplemented method '{method.name}' on a channel")
        if not number and method_id not in CHANNEL_ZERO_METHODS:
            raise ChannelError(f"unexpected method in connection state running: '{method.name}'")
        HANDLERS[method_id](self, number, args)
        self._write_batch.check_time()

    def on_header(self, number: int, payload: bytes) -> None:
        content = self._content(number)
        if content is not None:
            content.header(payload)

    def on_body(self, number: int, payload: bytes | memoryview) -> None:
        content = self._content(number)
        if content is not None:
            content.body(payload)

    def _content(self, number: int) -> ContentAssembler | None:
        channel = self.channels.get(number)
        if self.closing or (channel is not None and channel.closing):
            return None
        if channel is None or channel.content is None:
            raise UnexpectedFrame("expected method frame, got non method frame instead")
        return channel.content

    def on_error(self, number: int, method_id: int, error: Exception) -> None:
        """Close the channel, or the connection if the error is not limited to the channel."""
        channel = self.channels.get(number)
        if channel is not None and channel.content is not None:
            method_id = methods.BASIC_PUBLISH  # any frame in the middle of a content belongs to it
        if (
            channel is None
            or not isinstance(error, PenstockError)
            or close_reason(error).closes_connection
        ):
            self.fail(error, method_id)
        else:
            self.close_channel(channel, error, method_id)

    # Flow control.

    @property
    def held(self) -> bool:
        return self.reader.held

    @held.setter
    def held(self, held: bool) -> None:
        self.reader.held = held

    @property
    def unread_bytes(self) -> int:
        return self.output.unread_bytes

    def blocking(self, reason: str) -> None:
        if self.can("connection.blocked"):
            self.send(encode_method_frame(0, methods.CONNECTION_BLOCKED, reason=reason[:255]))

    def unblocking(self) -> None:
        if self.can("connection.blocked"):
            self.send(encode_method_frame(0, methods.CONNECTION_UNBLOCKED))

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.flow_control.alarms_changed()

    # The connection.

    def send(self, frame: bytes) -> None:
        """A frame of channel 0, or of a channel that is not open."""
        self.output.send(frame)

    def can(self, capability: str) -> bool:
        """Whether the client announced a capability."""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    def open(self, vhost: VirtualHost, access: AccessControl, heartbeat: int) -> None:
        """The handshake is complete."""
        self.vhost = vhost
        self.access = access
        self.opened = True
        self.host.connection_limiter.mark_authenticated(self.transport)
        self._handshake = None
        self.host.credential_expiry.watch(self, access.user, self.host.kernel.loop)
        half = heartbeat / 2
        self.heartbeats.start(heartbeat, send_every=half, check_every=half)

    def close_channel(self, channel: AmqpChannel, error: Exception, method_id: int) -> None:
        channel.end()
        reason = self._send_close(channel.number, methods.CHANNEL_CLOSE, error, method_id)
        _log.info("channel closed", connection=self.name, channel=channel.number, reason=reason)

    def _send_close(self, number: int, close: int, error: Exception, method_id: int) -> str:
        reason = close_reason(error)
        self.send(
            encode_method_frame(
                number,
                close,
                reply_code=reason.code,
                reply_text=reason.text,
                class_id=method_id >> 16,
                method_id=method_id & 0xFFFF,
            )
        )
        return reason.text

    def fail(self, error: Exception, method_id: int = 0) -> None:
        """Close the connection with the reason."""
        if self.closing:
            return
        reason = close_reason(error)
        if reason.code == 541:
            _log.error("connection failed", connection=self.name, exc_info=error)
        else:
            _log.info("connection closed", connection=self.name, reason=reason.text)
        self.closing = True
        if self._handshake is not None and not self._handshake.may_explain(error):
            self._end_output(told=False)
            return
        self._end_channels()
        self._send_close(0, methods.CONNECTION_CLOSE, error, method_id)
        self.writer.flush()
        self.flow_control.reopen()
        self.heartbeats.expect(CLOSE_SECONDS, self.transport.abort)

    def close_ok(self) -> None:
        """The client closes the connection."""
        self._end_channels()
        self.closing = True
        self._send_close_ok()

    def _send_close_ok(self) -> None:
        self.send(encode_method_frame(0, methods.CONNECTION_CLOSE_OK))
        self.writer.flush()
        self._end_output(told=True)

    def _end_output(self, *, told: bool) -> None:
        self._discarding = self.held = True
        half_close(self, reason_sent=told)
        self.heartbeats.expect(CLOSE_SECONDS, self.transport.abort)

    def end(self, reason: str) -> None:
        self.fail(ConnectionForced(reason))
        self._write_batch.flush()

    def abort(self) -> None:
        self.transport.abort()

    def credential_expired(self) -> None:
        self.end("credential expired")

    def renew_credential(self, secret: bytes) -> None:
        """Continue with the permissions of a new token."""
        self._renewal = self.host.kernel.loop.create_task(self._renew_credential(secret))

    async def _renew_credential(self, secret: bytes) -> None:
        try:
            self.access.user = await renewed_user(self, secret)
        except PenstockError as error:
            self.fail(error, methods.CONNECTION_UPDATE_SECRET)
        else:
            for channel in self.channels.values():
                channel.forget_permissions()
            self.send(encode_method_frame(0, methods.CONNECTION_UPDATE_SECRET_OK))
        self._renewal = None
        self._write_batch.flush()

    # Management.

    def describe(self) -> dict[str, Any]:
        return describe_connection(
            self,
            "AMQP 0-9-1",
            self.client_properties,
            channels=len(self.channels),
            channel_max=self.channel_max,
            frame_max=self.frame_max,
            timeout=self.heartbeats.interval,
        )

    def describe_channels(self) -> list[dict[str, Any]]:
        return [
            describe_channel(
                self,
                number,
                consumer_count=len(channel.consumers),
                messages_unacknowledged=len(channel.unacked),
                messages_unconfirmed=channel.confirms.outstanding(channel.published),
                prefetch_count=channel.prefetch,
                global_prefetch_count=channel.global_prefetch,
                confirm=channel.confirm,
                transactional=channel.transaction is not None,
            )
            for number, channel in self.channels.items()
        ]

    def describe_consumers(self) -> list[dict[str, Any]]:
        return [
            describe_consumer(
                self,
                consumer.tag,
                consumer.queue,
                channel=number,
                ack_required=not consumer.settled,
                prefetch=consumer.prefetch,
                exclusive=consumer.exclusive,
                arguments=consumer.arguments,
            )
            for number, channel in self.channels.items()
            for consumer in channel.consumers.values()
        ]
