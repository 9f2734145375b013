"""The AMQP 0-9-1 terminal: one socket, its channels, and both sides of the contract.

Bytes come in by `data_received` and are taken apart by `frames.py`; methods are answered by
`handshake.py` (until the connection is open) and `handlers/` (from then on). Drivers hand over
messages by `channel_forward`; what is to be written gathers in a list and leaves in one write when
the turn ends. A socket that does not take it is *choked*: its consumers' credit is withdrawn until
it drains. When reading stops is `intake.py`, who is still alive `lifesigns.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.buckets import Bucket
from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.broker.host import Host
from penstock.core.errors import (
    ChannelError,
    CommandInvalid,
    ConnectionForced,
    NoRoute,
    PenstockError,
    PreconditionFailed,
    UnexpectedFrame,
)
from penstock.core.logs import get_logger
from penstock.terminals.amqp091 import methods
from penstock.terminals.amqp091.channel import AmqpChannel, Consumer, Producer
from penstock.terminals.amqp091.content import Content
from penstock.terminals.amqp091.description import (
    describe_channel,
    describe_connection,
    describe_consumers,
)
from penstock.terminals.amqp091.errors import reply
from penstock.terminals.amqp091.frames import (
    OVERHEAD,
    FrameReader,
    write_body,
    write_content,
)
from penstock.terminals.amqp091.handlers import HANDLERS
from penstock.terminals.amqp091.handshake import Handshake
from penstock.terminals.amqp091.intake import Intake
from penstock.terminals.amqp091.lifesigns import Lifesigns
from penstock.terminals.amqp091.methods import decode_method, method_frame

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost
    from penstock.terminals.amqp091.access import Access

#: Output that may gather for one socket before its consumers are asked to wait.
CHOKE_BYTES: Final = 256 * 1024
#: How long a client may take to answer our close.
CLOSE_SECONDS: Final = 5.0

#: What an open connection may be asked as a whole.
ON_CHANNEL_ZERO: Final = (methods.CONNECTION_CLOSE, methods.CONNECTION_UPDATE_SECRET)

_log = get_logger("penstock.amqp091")


class Amqp091Terminal(asyncio.Protocol):
    __slots__ = (
        "_buckets",
        "_confirming",
        "_first",
        "_handshake",
        "_out_bytes",
        "_touched",
        "_turn",
        "access",
        "acknowledged",
        "channel_max",
        "channels",
        "choked",
        "client_properties",
        "closing",
        "delivered",
        "frame_max",
        "host",
        "intake",
        "lifesigns",
        "name",
        "opened",
        "out",
        "paused",
        "peer",
        "published",
        "reader",
        "thirsty",
        "tls",
        "transport",
        "vhost",
    )

    def __init__(self, host: Host) -> None:
        self.host = host
        self._turn = host.kernel.turn
        self.transport: asyncio.Transport
        self.vhost: VirtualHost
        self.access: Access
        self.frame_max = host.kernel.settings.frame_max
        self.channel_max = host.kernel.settings.channel_max
        self.channels: dict[int, AmqpChannel] = {}
        self.reader = FrameReader(self, self.frame_max, self.channels)
        self.intake = Intake(self)
        self.lifesigns = Lifesigns(self)
        self.client_properties: dict[str, Any] = {}
        self.name = ""
        self.out: list[bytes] = []
        self.thirsty: dict[Consumer, None] = {}  #: consumers with new credit to ask for
        self.published = 0
        self.delivered = 0
        self.acknowledged = 0
        self.choked = False  #: consumers get nothing until the socket has caught up
        self.paused = False  #: the transport's buffer is full
        self.opened = False
        self.closing = False
        self._out_bytes = 0
        self._first = 0
        self._touched = False
        self._confirming: list[AmqpChannel] = []
        self._buckets: list[Bucket] = []
        self._handshake: Handshake | None = Handshake(self)

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=CHOKE_BYTES)
        self.peer = transport.get_extra_info("peername") or ("", 0)
        here = transport.get_extra_info("sockname") or ("", 0)
        self.tls = transport.get_extra_info("ssl_object") is not None
        self.name = f"{self.peer[0]}:{self.peer[1]} -> {here[0]}:{here[1]}"
        self.host.clients[self] = None
        self.host.kernel.metrics.connections_opened += 1
        seconds = self.host.kernel.settings.handshake_timeout
        self.lifesigns.expect(seconds, self._handshake_expired)

    def data_received(self, data: bytes) -> None:
        self.lifesigns.heard = True
        published = self.published
        try:
            if self._handshake is not None and not self._handshake.greeted:
                data = self._handshake.greet(data)
            self.reader.feed(data)
        except Exception as error:
            self.fail(error)
        if self.thirsty:
            self._request()
        metrics = self.host.kernel.metrics
        metrics.bytes_in += len(data)
        if self.published != published or self.intake.filling:
            metrics.published += self.published - published
            self.intake.look()
        if self.paused and self.intake.unread:
            self.intake.pause()
        self._turn.end()

    def pause_writing(self) -> None:
        self.paused = True
        self._choke()

    def resume_writing(self) -> None:
        self.paused = False
        self._unchoke()
        self.intake.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lifesigns.stop()
        self.intake.end()
        self.closing = True
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
        self._end_channels()
        self.out.clear()
        self.host.client_left(self)
        self.host.kernel.metrics.connections_closed += 1
        self._turn.end()

    def _end_channels(self) -> None:
        for channel in list(self.channels.values()):
            channel.end()
        self.channels.clear()
        self.thirsty.clear()
        for bucket in self._buckets:
            bucket.release()
        self._buckets.clear()
        if self.opened:
            self.vhost.release(self)

    # In: what the frame reader finds.

    def on_method(self, channel: int, payload: bytes) -> None:
        number = int.from_bytes(payload[:4], "big")
        if self.closing:
            if number in (methods.CONNECTION_CLOSE, methods.CONNECTION_CLOSE_OK) and not channel:
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

    def on_header(self, channel: int, payload: bytes) -> None:
        content = self._content(channel)
        if content is not None:
            content.header(payload)

    def on_body(self, channel: int, payload: bytes) -> None:
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

    # Out: what drivers ask for.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        consumer = cast(Consumer, channel)
        if type(fragment) is not Message or fragment.more:
            self._forward_large(consumer, fragment, delivery)
            return
        amqp = consumer.amqp
        amqp.tag = tag = amqp.tag + 1
        again = False
        if delivery is not None:
            if delivery.count:
                again = True
                self.host.kernel.metrics.redelivered += 1
            if not consumer.settled:
                amqp.unanswered[tag] = (consumer, delivery)
                consumer.unanswered += 1
                if amqp.global_prefetch and len(amqp.unanswered) >= amqp.global_prefetch:
                    amqp.request_all()
        if not self._touched:
            self._touched = True
            self._turn.touched.append(self)
        if consumer.got is None:
            consumer.writer.write(
                self.out, tag, again, fragment.route, fragment.header, fragment.body
            )
        else:
            self._get_ok(consumer, tag, again, fragment)
        self.delivered += 1
        self._out_bytes += len(fragment.body) + 64
        if self._out_bytes > CHOKE_BYTES and not self.choked:
            self._choke()

    def _get_ok(self, consumer: Consumer, tag: int, again: bool, message: Message) -> None:
        consumer.got = True
        method = method_frame(
            consumer.amqp.number,
            methods.BASIC_GET_OK,
            delivery_tag=tag,
            redelivered=again,
            exchange=message.exchange,
            routing_key=message.routing_key,
            message_count=self.vhost.queue(consumer.queue).message_count,
        )
        number = consumer.amqp.number
        write_content(self.out, number, method, message.header, message.body, self.frame_max)

    def _forward_large(
        self, consumer: Consumer, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        amqp = consumer.amqp
        if self.closing or amqp.closing:
            if isinstance(fragment, Fragment):
                fragment.bucket.release()
            return
        self.touch()
        if isinstance(fragment, Message):
            fragment.more = False
            self.channel_forward(consumer, fragment, delivery)
            amqp.sending = consumer
            amqp.request_all()  # the channel's other consumers wait
        else:
            write_body(self.out, amqp.number, fragment.bucket.content, self.frame_max - OVERHEAD)
            self._out_bytes += fragment.bucket.filled
            self._buckets.append(fragment.bucket)
            if not fragment.more:
                amqp.sending = None
                self.out += amqp.held
                amqp.held.clear()
                if consumer.cancelled:
                    consumer.driver.channel_close(consumer)
                amqp.request_all()
                return
        if not self.choked:
            self.host.kernel.loop.call_soon(self._draw, consumer)

    def _draw(self, consumer: Consumer) -> None:
        """Ask for the next fragment of a large message, if the socket has room for it."""
        if consumer.amqp.sending is consumer and not self.choked and not self.closing:
            consumer.request()
            self._turn.end()

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        amqp = cast(Producer, channel).amqp
        if not amqp.receipts:
            self._confirming.append(amqp)
            self.touch()
        amqp.receipts.append(receipt)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if isinstance(channel, Consumer):
            if isinstance(error, PreconditionFailed):
                self.close_channel(channel.amqp, error, methods.BASIC_CONSUME)
            else:
                self._consumer_ended(channel, error)
            return
        producer = cast(Producer, channel)
        amqp = producer.amqp
        if isinstance(error, NoRoute):
            self._return(amqp, error.args[0])
            if receipt:
                self.channel_confirm(channel, receipt)
        elif receipt:
            amqp.refuse(receipt)
        else:
            amqp.forget_producer(producer)

    def _return(self, amqp: AmqpChannel, message: Message) -> None:
        self.host.kernel.metrics.returned += 1
        method = method_frame(
            amqp.number,
            methods.BASIC_RETURN,
            reply_code=312,
            reply_text="NO_ROUTE",
            exchange=message.exchange,
            routing_key=message.routing_key,
        )
        body = message.body if message.spool is None else message.spool.read()
        pieces: list[bytes] = []
        write_content(pieces, amqp.number, method, message.header, body, self.frame_max)
        amqp.send(b"".join(pieces))

    def _consumer_ended(self, consumer: Consumer, error: Exception) -> None:
        """Its queue is gone: tell the client, if it wants to be told."""
        amqp = consumer.amqp
        amqp.consumers.pop(consumer.tag, None)
        self.thirsty.pop(consumer, None)
        if amqp.sending is consumer:
            self.fail(ConnectionForced(f"delivery was cut short: {error}"))
        elif self.can("consumer_cancel_notify"):
            amqp.reply(methods.BASIC_CANCEL, consumer_tag=consumer.tag, no_wait=True)

    # Writing.

    def touch(self) -> None:
        if not self._touched:
            self._touched = True
            self._turn.touched.append(self)

    def send(self, frame: bytes) -> None:
        self.touch()
        self.out.append(frame)

    def flush(self) -> None:
        self._touched = False
        if self._confirming:
            confirming, self._confirming = self._confirming, []
            for amqp in confirming:
                amqp.write_confirms()
            self._touched = False
            if self._turn.touched and self._turn.touched[-1] is self:
                self._turn.touched.pop()
        out = self.out
        if not out:
            return
        data = b"".join(out)
        out.clear()
        self._out_bytes = 0
        self.lifesigns.said = True
        metrics = self.host.kernel.metrics
        metrics.bytes_out += len(data)
        metrics.delivered += self.delivered
        metrics.acknowledged += self.acknowledged
        self.delivered = self.acknowledged = 0
        self.transport.write(data)
        for bucket in self._buckets:
            bucket.release()
        self._buckets.clear()
        if self.choked and not self.paused:
            self.host.kernel.loop.call_soon(self._unchoke)

    def _choke(self) -> None:
        """The socket is behind: consumers get nothing more until it has caught up."""
        self.choked = True
        self._request_all()

    def _unchoke(self) -> None:
        if self.choked and not self.paused and not self.closing:
            self.choked = False
            self._request_all()
            self._turn.end()

    def _request_all(self) -> None:
        """Ask for every consumer; whoever is asked for first may fill the socket: take turns."""
        channels = list(self.channels.values())
        if not self.choked:
            self._first = (self._first + 1) % max(1, len(channels))
        for channel in channels[self._first :] + channels[: self._first]:
            channel.request_all()

    def _request(self) -> None:
        thirsty, self.thirsty = self.thirsty, {}
        for consumer in thirsty:
            if consumer.got is None and consumer.tag in consumer.amqp.consumers:
                if consumer.amqp.global_prefetch:
                    consumer.amqp.request_all()
                else:
                    consumer.request()

    # The client.

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.intake.alarms_changed()

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
            self.transport.close()
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
        self.flush()
        self.intake.reopen()
        self.lifesigns.expect(CLOSE_SECONDS, self.transport.abort)

    def close_ok(self) -> None:
        """The client has asked to close."""
        self._end_channels()
        self.send(method_frame(0, methods.CONNECTION_CLOSE_OK))
        self.flush()
        self.closing = True
        self.transport.close()

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
