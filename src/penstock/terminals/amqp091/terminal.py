"""The AMQP 0-9-1 terminal: one socket and its channels.

Bytes come in by `data_received` and are taken apart by `frames.py`; methods are answered by
`handshake.py` (until the connection is open) and `handlers/` (from then on). What goes out, and
what drivers ask for, is `outflow.py`; when reading stops is `broker/intake.py`, who is still alive
`lifesigns.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.host import Host
from penstock.broker.intake import READ_BYTES, Intake
from penstock.broker.presence import arrive, depart, hang_up
from penstock.core.errors import (
    ChannelError,
    CommandInvalid,
    ConnectionForced,
    PenstockError,
    UnexpectedFrame,
)
from penstock.core.logs import get_logger
from penstock.terminals.amqp091 import methods
from penstock.terminals.amqp091.channel import AmqpChannel
from penstock.terminals.amqp091.content import Content
from penstock.terminals.amqp091.description import (
    describe_channel,
    describe_connection,
    describe_consumers,
)
from penstock.terminals.amqp091.errors import reply
from penstock.terminals.amqp091.frames import FrameReader
from penstock.terminals.amqp091.handlers import HANDLERS
from penstock.terminals.amqp091.handshake import Handshake
from penstock.terminals.amqp091.lifesigns import Lifesigns
from penstock.terminals.amqp091.methods import decode_method, method_frame
from penstock.terminals.amqp091.outflow import CHOKE_BYTES, Outflow

if TYPE_CHECKING:
    from penstock.broker.access import Access
    from penstock.broker.vhost import VirtualHost

#: How long a client may take to answer our close, or to close once all is said.
CLOSE_SECONDS: Final = 5.0

#: What an open connection may be asked as a whole.
ON_CHANNEL_ZERO: Final = (methods.CONNECTION_CLOSE, methods.CONNECTION_UPDATE_SECRET)

_log = get_logger("penstock.amqp091")


class Amqp091Terminal(asyncio.Protocol):
    __slots__ = (
        "_handshake",
        "_hung_up",
        "_permissions",
        "_turn",
        "access",
        "channel_max",
        "channels",
        "client_properties",
        "closing",
        "frame_max",
        "host",
        "intake",
        "lifesigns",
        "name",
        "opened",
        "outflow",
        "peer",
        "published",
        "reader",
        "tls",
        "transport",
        "vhost",
    )

    def __init__(self, host: Host) -> None:
        self.host = host
        self._turn = host.kernel.turn
        self.transport: asyncio.Transport
        self.peer: tuple[Any, ...]  # address and port
        self.tls: bool
        self.vhost: VirtualHost
        self.access: Access
        self.frame_max = host.kernel.settings.frame_max
        self.channel_max = host.kernel.settings.channel_max
        self.channels: dict[int, AmqpChannel] = {}
        self.reader = FrameReader(self, self.frame_max, self.channels)
        self.intake = Intake(self)
        self.outflow: Outflow = Outflow(self)
        self.lifesigns = Lifesigns(self)
        self.client_properties: dict[str, Any] = {}
        self.name = ""
        self.published = 0
        self.opened = False
        self.closing = False
        self._permissions = host.users.version
        self._handshake: Handshake | None = Handshake(self)
        self._hung_up = False  #: all is said: what still comes is discarded

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        arrive(self, transport, CHOKE_BYTES)
        seconds = self.host.kernel.settings.handshake_timeout
        self.lifesigns.expect(seconds, self._handshake_expired)

    def data_received(self, data: bytes) -> None:
        if self._hung_up:
            return
        self.lifesigns.heard = True
        self._turn.reader = self.intake
        published = self.published
        if self._permissions != self.host.users.version:
            self._permissions_changed()
        try:
            if self._handshake is not None and not self._handshake.greeted:
                data = self._handshake.greet(data)
            self.reader.feed(data)
        except Exception as error:
            self.fail(error)
        outflow = self.outflow
        if outflow.thirsty:
            outflow.request()
        metrics = self.host.kernel.metrics
        size = len(data)
        metrics.bytes_in += size
        if size >= READ_BYTES or self.intake.wide:
            self.intake.adapt(size)
        if self.published != published or self.intake.filling:
            metrics.published += self.published - published
            if self.intake.filling and self.intake.account.spent:
                self.hand_over()
            self.intake.look()
        if (outflow.paused or outflow.held) and self.intake.unread:
            self.intake.pause()
        self._turn.end()

    def _permissions_changed(self) -> None:
        """What was allowed has to be asked for again."""
        self._permissions = self.host.users.version
        for channel in self.channels.values():
            channel.producers.clear()

    def hand_over(self) -> None:
        """What is here of large messages goes to where it is spooled."""
        for channel in self.channels.values():
            if channel.content is not None:
                channel.content.hand_over()

    def pause_writing(self) -> None:
        self.outflow.pause()

    def resume_writing(self) -> None:
        self.outflow.resume()
        self.intake.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lifesigns.stop()
        self.intake.end()
        self.closing = True
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
        self._end_channels()
        self.outflow.out.clear()
        depart(self)
        # What refers back to us would keep us, and all that was read, until cycles are looked for.
        del self.reader, self.intake, self.outflow, self.lifesigns

    def _end_channels(self) -> None:
        for channel in list(self.channels.values()):
            channel.end()
        self.channels.clear()
        self.outflow.forget()
        if self.opened:
            self.vhost.release(self)

    # In: what the frame reader finds.

    def on_method(self, channel: int, payload: bytes) -> None:
        number = int.from_bytes(payload[:4], "big")
        if self.closing:
            if number == methods.CONNECTION_CLOSE and not channel:  # both at once
                self._say_close_ok()
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
                self.send(method_frame(channel, methods.CHANNEL_CLOSE_OK))
            if number in (methods.CHANNEL_CLOSE, methods.CHANNEL_CLOSE_OK):
                del self.channels[channel]
            return
        if number == methods.BASIC_PUBLISH and amqp is not None:
            amqp.content = Content(amqp, payload[6:-1], payload[-1])
            amqp.at_rest = False
            return
        if channel and method.name.startswith("connection."):
            raise CommandInvalid(f"unimplemented method '{method.name}' on a channel")
        if not channel and number not in ON_CHANNEL_ZERO:
            raise ChannelError(f"unexpected method in connection state running: '{method.name}'")
        HANDLERS[number](self, channel, args)
        self._turn.spend()

    def on_header(self, channel: int, payload: bytes) -> None:
        content = self._content(channel)
        if content is not None:
            content.header(payload)

    def on_body(self, channel: int, payload: bytes | memoryview) -> None:
        content = self._content(channel)
        if content is not None:
            content.body(payload)

    def _content(self, channel: int) -> Content | None:
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
        if amqp is None or not isinstance(error, PenstockError) or reply(error).closes_connection:
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
        waiting = self.outflow.held
        if self.outflow.paused:
            waiting += self.transport.get_write_buffer_size()
        return waiting

    def blocking(self, reason: str) -> None:
        if self.can("connection.blocked"):
            self.send(method_frame(0, methods.CONNECTION_BLOCKED, reason=reason[:255]))

    def unblocking(self) -> None:
        if self.can("connection.blocked"):
            self.send(method_frame(0, methods.CONNECTION_UNBLOCKED))

    # The client.

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.intake.alarms_changed()

    def send(self, frame: bytes) -> None:
        """A frame of the connection's own, or of a channel that is not open."""
        self.outflow.send(frame)

    def can(self, capability: str) -> bool:
        """Whether the client said it understands something."""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    # The end.

    def open(self, vhost: VirtualHost, access: Access, heartbeat: int) -> None:
        """The handshake is over."""
        self.vhost = vhost
        self.access = access
        self.opened = True
        self.host.admission.admit(self.transport)
        self._handshake = None
        self.lifesigns.begin(heartbeat)

    def _handshake_expired(self) -> None:
        _log.info("client took too long to introduce itself", connection=self.name)
        self.transport.abort()

    def close_channel(self, amqp: AmqpChannel, error: Exception, method: int) -> None:
        answer = reply(error)
        amqp.end()
        self.send(
            method_frame(
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
        answer = reply(error)
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
            method_frame(
                0,
                methods.CONNECTION_CLOSE,
                reply_code=answer.code,
                reply_text=answer.text,
                class_id=method >> 16,
                method_id=method & 0xFFFF,
            )
        )
        self.outflow.flush()
        self.intake.reopen()
        self.lifesigns.expect(CLOSE_SECONDS, self.transport.abort)

    def close_ok(self) -> None:
        """The client has asked to close."""
        self._end_channels()
        self.closing = True
        self._say_close_ok()

    def _say_close_ok(self) -> None:
        self.send(method_frame(0, methods.CONNECTION_CLOSE_OK))
        self.outflow.flush()
        self._hang_up(told=True)

    def _hang_up(self, *, told: bool) -> None:
        self._hung_up = self.held = True
        hang_up(self, told=told)
        self.lifesigns.expect(CLOSE_SECONDS, self.transport.abort)

    def end(self, reason: str) -> None:
        self.fail(ConnectionForced(reason))
        self._turn.end()

    def abort(self) -> None:
        self.transport.abort()

    # Management.

    def describe(self) -> dict[str, Any]:
        return describe_connection(self)

    def describe_channels(self) -> list[dict[str, Any]]:
        return [describe_channel(self, channel) for channel in self.channels.values()]

    def describe_consumers(self) -> list[dict[str, Any]]:
        return describe_consumers(self)
