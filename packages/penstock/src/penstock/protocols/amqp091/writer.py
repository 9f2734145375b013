"""The writer of an AMQP 0-9-1 connection: the side of the terminal that drivers see.

Deliveries, confirms and returns collect in the `SocketWriter` and leave at the end of the write
batch. A large message is sent one fragment at a time, the next when the previous one was flushed.
Until its end no other frame may be sent on its channel (`AmqpChannel.after_large`); other channels
are not affected.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.broker.fragments import FragmentSender
from penstock.broker.message_run import MessageRun
from penstock.core.errors import ConnectionForced, NoRoute, PreconditionFailed, Unsupported
from penstock.protocols.amqp091.channel import Amqp091Consumer, Amqp091Producer
from penstock.protocols.socket_writer import WRITE_HIGH_WATER_BYTES, SocketWriter
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.frames import FRAME_OVERHEAD, write_body_frames, write_content_frames
from penstock.wire.amqp091.methods import encode_method_frame

if TYPE_CHECKING:
    from penstock.protocols.amqp091.channel import ChannelConfirms
    from penstock.protocols.amqp091.terminal import Amqp091Terminal


#: What a waiting large return counts for among unread bytes: it holds a file open.
LARGE_RETURN_WEIGHT: Final = 256 * 1024


class Amqp091Writer:
    __slots__ = (
        "_confirming",
        "_loop",
        "_metrics",
        "_next_channel",
        "_terminal",
        "_write_batch",
        "acknowledged",
        "awaiting_credit",
        "output",
    )

    def __init__(self, terminal: Amqp091Terminal) -> None:
        kernel = terminal.host.kernel
        self._terminal = terminal
        self._write_batch = kernel.write_batch
        self._loop = kernel.loop
        self._metrics = kernel.metrics
        self.output = SocketWriter(terminal, self)
        self.awaiting_credit: dict[Amqp091Consumer, None] = {}  #: since a delivery was settled
        self.acknowledged = 0
        self._next_channel = 0  #: the first to request; rotates, because it may fill the socket
        self._confirming: list[ChannelConfirms] = []

    # The contract.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        consumer = cast(Amqp091Consumer, channel)
        if type(fragment) is not Message or fragment.more:
            self._forward_large(consumer, fragment, delivery)
            return
        amqp = consumer.channel
        amqp.tag = tag = amqp.tag + 1
        redelivered = False
        if delivery is not None:
            if delivery.count or delivery.released:
                redelivered = True
                self._metrics.redelivered += 1
            if not consumer.settled:
                amqp.unacked[tag] = (consumer, delivery)
                consumer.unacked += 1
                if amqp.global_prefetch and len(amqp.unacked) >= amqp.global_prefetch:
                    amqp.request_all()
        output = self.output
        if not output.scheduled:
            output.schedule()
        if consumer.method_encoder is None:
            consumer.deliver_writer.write(
                output.out, tag, redelivered, fragment.route, fragment.header, fragment.body
            )
        else:
            self.write(amqp.number, consumer.method_encoder(tag, redelivered, fragment), fragment)
        output.delivered += 1
        output.bytes += len(fragment.body) + 64
        if output.bytes > WRITE_HIGH_WATER_BYTES and not output.write_blocked:
            output.block()

    def forward_run(
        self, channel: Channel, run: MessageRun, deliveries: list[Delivery] | None, packet_id: int
    ) -> bool:
        consumer = cast(Amqp091Consumer, channel)
        amqp = consumer.channel
        if amqp.global_prefetch:  # each delivery may use up the credit of other consumers
            return False
        first, count = amqp.tag + 1, len(run)
        amqp.tag += count
        if deliveries is not None:
            unacked = [(consumer, delivery) for delivery in deliveries]
            amqp.unacked.update(zip(range(first, first + count), unacked, strict=True))
            consumer.unacked += count
        output = self.output
        if not output.scheduled:
            output.schedule()
        consumer.deliver_writer.write_run(output.out, first, run.route, run.headers, run.bodies)
        output.delivered += count
        output.bytes += sum(map(len, run.bodies)) + 64 * count
        if output.bytes > WRITE_HIGH_WATER_BYTES and not output.write_blocked:
            output.block()
        return True

    def confirm_run(self, channel: Channel, receipts: Sequence[int]) -> None:
        confirms = cast(Amqp091Producer, channel).confirms
        if not confirms.receipts:
            self._confirming.append(confirms)
            self.output.schedule()
        confirms.receipts += receipts

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        confirms = cast(Amqp091Producer, channel).confirms
        if not confirms.receipts:
            self._confirming.append(confirms)
            self.output.schedule()
        confirms.receipts.append(receipt)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if isinstance(channel, Amqp091Consumer):
            if isinstance(error, PreconditionFailed):
                self._terminal.close_channel(channel.channel, error, methods.BASIC_CONSUME)
            else:
                self._consumer_ended(channel, error)
            return
        producer = cast(Amqp091Producer, channel)
        if isinstance(error, NoRoute):
            self._return(producer, error.args[0], receipt)
        elif receipt:
            producer.confirms.refuse(receipt)
        else:
            producer.channel.forget_producer(producer)

    def _return(self, producer: Amqp091Producer, message: Message, receipt: int) -> None:
        amqp = producer.channel
        if amqp.closing:
            return
        self._metrics.returned += 1
        if message.spool is not None:
            amqp.after_large(LargeReturn(producer, message, receipt).begin, LARGE_RETURN_WEIGHT)
            return
        pieces: list[bytes] = []
        frame_max = self._terminal.frame_max
        method = encode_basic_return(amqp.number, message)
        write_content_frames(pieces, amqp.number, method, message.header, message.body, frame_max)
        amqp.send(b"".join(pieces))
        if receipt:
            amqp.after_large(partial(self.channel_confirm, producer, receipt), 0)

    def _consumer_ended(self, consumer: Amqp091Consumer, error: Exception) -> None:
        """The queue was deleted: cancel the consumer, if the client supports it."""
        amqp = consumer.channel
        amqp.consumers.pop(consumer.tag, None)
        self.awaiting_credit.pop(consumer, None)
        if amqp.sending is consumer:
            self._terminal.fail(ConnectionForced(f"delivery of a large message failed: {error}"))
        elif self._terminal.can("consumer_cancel_notify"):
            amqp.reply(methods.BASIC_CANCEL, consumer_tag=consumer.tag, no_wait=True)

    # Large messages.

    def _forward_large(
        self, consumer: Amqp091Consumer, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        amqp = consumer.channel
        if self._terminal.closing or amqp.closing:
            if isinstance(fragment, Fragment):
                fragment.bucket.release()
            return
        if isinstance(fragment, Message):
            fragment.more = False
            self.channel_forward(consumer, fragment, delivery)
            self.begin_large(consumer)
            return
        self.output.schedule()
        frame_max = self._terminal.frame_max
        write_body_frames(self.output.out, amqp.number, fragment.body, frame_max - FRAME_OVERHEAD)
        self.output.bytes += len(fragment.body)
        self.output.hold_bucket(fragment.bucket)
        if fragment.more:
            self._request_fragment_soon(consumer)
            return
        if consumer.cancelled:
            consumer.driver.channel_close(consumer)
        amqp.end_large()

    def begin_large(self, consumer: Amqp091Consumer) -> None:
        """The method and header are written: the channel now sends nothing but this body."""
        consumer.channel.sending = consumer
        consumer.channel.request_all()  # none for its other consumers
        self._request_fragment_soon(consumer)

    def _request_fragment_soon(self, consumer: Amqp091Consumer) -> None:
        if not self.output.write_blocked:
            self._loop.call_soon(self._request_fragment, consumer)

    def _request_fragment(self, consumer: Amqp091Consumer) -> None:
        blocked = self.output.write_blocked or self._terminal.closing
        if consumer.channel.sending is consumer and not blocked:
            consumer.request()
            self._write_batch.flush()

    # Output.

    def write(self, number: int, method: bytes, message: Message) -> None:
        """A method with content, as far as the body is in memory."""
        self.output.schedule()
        frame_max = self._terminal.frame_max
        out = self.output.out
        write_content_frames(out, number, method, message.header, message.body, frame_max)

    def flush(self) -> None:
        if self._confirming:
            confirming, self._confirming = self._confirming, []
            for confirms in confirming:
                confirms.write()
        self.output.flush()

    def reset(self) -> None:
        """The channels have ended."""
        self.awaiting_credit.clear()
        self._confirming.clear()
        self.output.release_buckets()

    # Credit.

    def request_all(self) -> None:
        channels = list(self._terminal.channels.values())
        if not self.output.write_blocked:
            self._next_channel = (self._next_channel + 1) % max(1, len(channels))
        for channel in channels[self._next_channel :] + channels[: self._next_channel]:
            channel.request_all()

    def request(self) -> None:
        """Request messages for consumers whose deliveries were settled."""
        awaiting_credit, self.awaiting_credit = self.awaiting_credit, {}
        self._metrics.acknowledged += self.acknowledged
        self.acknowledged = 0
        for consumer in awaiting_credit:
            if consumer.channel.consumers.get(consumer.tag) is consumer:
                if consumer.channel.global_prefetch:
                    consumer.channel.request_all()
                else:
                    consumer.request()


def encode_basic_return(channel: int, message: Message) -> bytes:
    return encode_method_frame(
        channel,
        methods.BASIC_RETURN,
        reply_code=312,
        reply_text="NO_ROUTE",
        exchange=message.exchange,
        routing_key=message.routing_key,
    )


class LargeReturn:
    """Returns an unroutable mandatory message from its spool, one fragment at a time.

    It is the driver of that one message, with the publishing channel as its only consumer: the
    message is sent like a large delivery, but begins with `basic.return` and is not acknowledged.
    The publisher's confirm follows immediately, as the standard requires.
    """

    __slots__ = ("_message", "_producer", "_receipt", "_sending")

    def __init__(self, producer: Amqp091Producer, message: Message, receipt: int) -> None:
        self._producer = producer
        self._message = message
        self._receipt = receipt
        self._sending: FragmentSender | None = None

    def begin(self) -> None:
        amqp = self._producer.channel
        reader = Amqp091Consumer(amqp, self, queue="", tag="", settled=True, prefetch=0)
        reader.cancelled = True  # it ends with this message
        kernel = amqp.connection.host.kernel
        self._sending = FragmentSender(kernel, reader, Delivery(self._message, 0), lambda: None)
        amqp.writer.write(
            amqp.number, encode_basic_return(amqp.number, self._message), self._message
        )
        amqp.writer.begin_large(reader)
        if self._receipt:
            amqp.next_after_large(self._confirm)

    def _confirm(self) -> None:
        confirms = self._producer.confirms
        confirms.receipts.append(self._receipt)
        confirms.write()

    # The contract.

    def channel_request(self, channel: Channel, credit: int) -> None:
        if self._sending is not None and credit > 0:
            self._sending.draw()

    def channel_close(self, channel: Channel) -> None:
        if self._sending is not None:
            self._sending.cancel()

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        raise Unsupported("a returned message has exactly one consumer")

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        raise Unsupported("cannot publish to a returned message")

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        """A returned message is settled."""

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        """A returned message is settled."""
