"""The writing side of a connection: what drivers forward, confirm and fail, on its way out.

This is the terminal that drivers know (`broker/contract.py`). What is to be written gathers in a
list and leaves in one write when the turn ends. A socket that does not take it is *choked*: its
consumers' credit is withdrawn until it has caught up. A large message leaves one fragment at a
time, each asked for when the one before has left; on its own channel nothing may come between
them, which `channel.py` sees to, while other channels go on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.buckets import Bucket
from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.broker.fragments import FragmentSender
from penstock.core.errors import ConnectionForced, NoRoute, PreconditionFailed, Unsupported
from penstock.protocols.amqp091.channel import Amqp091Consumer, Amqp091Producer
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.frames import (
    FRAME_OVERHEAD,
    write_body_frames,
    write_content_frames,
)
from penstock.wire.amqp091.methods import encode_method_frame

if TYPE_CHECKING:
    from penstock.protocols.amqp091.channel import ChannelConfirms
    from penstock.protocols.amqp091.terminal import Amqp091Terminal


#: Output that may gather for one socket before its consumers are asked to wait.
WRITE_HIGH_WATER_BYTES: Final = 256 * 1024


class Amqp091Writer:
    __slots__ = (
        "_buckets",
        "_bytes",
        "_confirming",
        "_delivered",
        "_first",
        "_flush_scheduled",
        "_loop",
        "_metrics",
        "_terminal",
        "_write_batch",
        "acknowledged",
        "awaiting_credit",
        "held",
        "out",
        "paused",
        "write_blocked",
    )

    def __init__(self, terminal: Amqp091Terminal) -> None:
        kernel = terminal.host.kernel
        self._terminal = terminal
        self._write_batch = kernel.write_batch
        self._loop = kernel.loop
        self._metrics = kernel.metrics
        self.out: list[bytes] = []
        self.held = 0  #: bytes of answers that wait behind large messages
        self.awaiting_credit: dict[
            Amqp091Consumer, None
        ] = {}  #: consumers with new credit to ask for
        self.acknowledged = 0
        self.write_blocked = False  #: consumers get nothing until the socket has caught up
        self.paused = False  #: the transport's buffer is full
        self._bytes = 0
        self._delivered = 0
        self._flush_scheduled = False
        self._first = 0  #: which channel is asked for first
        self._confirming: list[ChannelConfirms] = []
        self._buckets: list[Bucket] = []

    # What drivers ask for.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        consumer = cast(Amqp091Consumer, channel)
        if type(fragment) is not Message or fragment.more:
            self._forward_large(consumer, fragment, delivery)
            return
        amqp = consumer.amqp
        amqp.tag = tag = amqp.tag + 1
        again = False
        if delivery is not None:
            if delivery.count or delivery.released:
                again = True
                self._metrics.redelivered += 1
            if not consumer.settled:
                amqp.unacked[tag] = (consumer, delivery)
                consumer.unacked += 1
                if amqp.global_prefetch and len(amqp.unacked) >= amqp.global_prefetch:
                    amqp.request_all()
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._write_batch.to_flush.append(self)
        if consumer.opening is None:
            consumer.deliver_writer.write(
                self.out, tag, again, fragment.route, fragment.header, fragment.body
            )
        else:
            self.write(amqp.number, consumer.opening(tag, again, fragment), fragment)
        self._delivered += 1
        self._bytes += len(fragment.body) + 64
        if self._bytes > WRITE_HIGH_WATER_BYTES and not self.write_blocked:
            self._block_writes()

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        confirms = cast(Amqp091Producer, channel).confirms
        if not confirms.receipts:
            self._confirming.append(confirms)
            self.schedule_flush()
        confirms.receipts.append(receipt)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if isinstance(channel, Amqp091Consumer):
            if isinstance(error, PreconditionFailed):
                self._terminal.close_channel(channel.amqp, error, methods.BASIC_CONSUME)
            else:
                self._consumer_ended(channel, error)
            return
        producer = cast(Amqp091Producer, channel)
        if isinstance(error, NoRoute):
            self._return(producer, error.args[0], receipt)
        elif receipt:
            producer.confirms.refuse(receipt)
        else:
            producer.amqp.forget_producer(producer)

    def _return(self, producer: Amqp091Producer, message: Message, receipt: int) -> None:
        amqp = producer.amqp
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
        """Its queue is gone: tell the client, if it wants to be told."""
        amqp = consumer.amqp
        amqp.consumers.pop(consumer.tag, None)
        self.awaiting_credit.pop(consumer, None)
        if amqp.sending is consumer:
            self._terminal.fail(ConnectionForced(f"delivery was cut short: {error}"))
        elif self._terminal.can("consumer_cancel_notify"):
            amqp.reply(methods.BASIC_CANCEL, consumer_tag=consumer.tag, no_wait=True)

    # Large messages.

    def _forward_large(
        self, consumer: Amqp091Consumer, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        amqp = consumer.amqp
        if self._terminal.closing or amqp.closing:
            if isinstance(fragment, Fragment):
                fragment.bucket.release()
            return
        if isinstance(fragment, Message):
            fragment.more = False
            self.channel_forward(consumer, fragment, delivery)
            self.begin_large(consumer)
            return
        self.schedule_flush()
        write_body_frames(
            self.out, amqp.number, fragment.body, self._terminal.frame_max - FRAME_OVERHEAD
        )
        self._bytes += len(fragment.body)
        self._buckets.append(fragment.bucket)
        if fragment.more:
            self._request_fragment_soon(consumer)
            return
        if consumer.cancelled:
            consumer.driver.channel_close(consumer)
        amqp.end_large()

    def begin_large(self, consumer: Amqp091Consumer) -> None:
        """The opening of a large message is written: from now on its channel is its own."""
        consumer.amqp.sending = consumer
        consumer.amqp.request_all()  # the channel's other consumers wait
        self._request_fragment_soon(consumer)

    def _request_fragment_soon(self, consumer: Amqp091Consumer) -> None:
        if not self.write_blocked:
            self._loop.call_soon(self._request_fragment, consumer)

    def _request_fragment(self, consumer: Amqp091Consumer) -> None:
        """Ask for the next fragment of a large message, if the socket has room for it."""
        if (
            consumer.amqp.sending is consumer
            and not self.write_blocked
            and not self._terminal.closing
        ):
            consumer.request()
            self._write_batch.flush()

    # Writing.

    def schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._write_batch.to_flush.append(self)

    def send(self, frame: bytes) -> None:
        self.schedule_flush()
        self.out.append(frame)

    def write(self, number: int, method: bytes, message: Message) -> None:
        """A method that carries content, and what is here of its content."""
        self.schedule_flush()
        frame_max = self._terminal.frame_max
        write_content_frames(self.out, number, method, message.header, message.body, frame_max)

    def flush(self) -> None:
        if self._confirming:
            confirming, self._confirming = self._confirming, []
            for confirms in confirming:
                confirms.write()
        self._flush_scheduled = False
        out = self.out
        if not out:
            return
        data = b"".join(out)
        out.clear()
        self._bytes = 0
        self._metrics.bytes_out += len(data)
        self._metrics.delivered += self._delivered
        self._delivered = 0
        self._terminal.heartbeats.said = True
        self._terminal.transport.write(data)
        if self._buckets:
            self._release()
        if self.write_blocked and not self.paused:
            self._loop.call_soon(self._unblock_writes)

    def _release(self) -> None:
        for bucket in self._buckets:
            bucket.release()
        self._buckets.clear()

    # Credit.

    def pause(self) -> None:
        self.paused = True
        self._block_writes()

    def resume(self) -> None:
        self.paused = False
        self._unblock_writes()

    def _block_writes(self) -> None:
        """The socket is behind: consumers get nothing more until it has caught up."""
        self.write_blocked = True
        self._request_all()

    def _unblock_writes(self) -> None:
        if self.write_blocked and not self.paused and not self._terminal.closing:
            self.write_blocked = False
            self._request_all()
            self._write_batch.flush()

    def _request_all(self) -> None:
        """Ask for every consumer; whoever is asked for first may fill the socket: take turns."""
        channels = list(self._terminal.channels.values())
        if not self.write_blocked:
            self._first = (self._first + 1) % max(1, len(channels))
        for channel in channels[self._first :] + channels[: self._first]:
            channel.request_all()

    def request(self) -> None:
        """Ask for those whose deliveries were answered."""
        awaiting_credit, self.awaiting_credit = self.awaiting_credit, {}
        self._metrics.acknowledged += self.acknowledged
        self.acknowledged = 0
        for consumer in awaiting_credit:
            if consumer.amqp.consumers.get(consumer.tag) is consumer:
                if consumer.amqp.global_prefetch:
                    consumer.amqp.request_all()
                else:
                    consumer.request()

    # The end.

    def forget(self) -> None:
        """The channels have ended: nobody is owed what they had under way."""
        self.awaiting_credit.clear()
        self._confirming.clear()
        self._release()


# A large message on its way back: mandatory, and nobody wanted it.
#
# It comes back as it came, fragment by fragment from its spool, so that it never lies in memory
# whole. `LargeReturn` is the driver of that one message, and its only reader is the channel that
# sent it: the message is drawn like any large delivery, only that it begins with `basic.return` and
# is nobody's to acknowledge. The publisher's confirm follows at once behind it, as the standard
# asks.

#: What one that waits for its turn counts among unread answers (`flow_control.py`): it takes no
#: memory
#: to speak of, but a file that is open.
LARGE_RETURN_WEIGHT: Final = 256 * 1024


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
    __slots__ = ("_message", "_producer", "_receipt", "_sending")

    def __init__(self, producer: Amqp091Producer, message: Message, receipt: int) -> None:
        self._producer = producer
        self._message = message
        self._receipt = receipt
        self._sending: FragmentSender | None = None

    def begin(self) -> None:
        """Its channel is free for it."""
        amqp = self._producer.amqp
        reader = Amqp091Consumer(amqp, self, queue="", tag="", settled=True, prefetch=0)
        reader.cancelled = True  # nothing comes after it
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
        raise Unsupported("a returned message has one reader, and has it already")

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        raise Unsupported("a returned message is not a place to publish to")

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        """What is returned is settled."""

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        """What is returned is settled."""
