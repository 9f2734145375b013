"""The writing side of a connection: what drivers forward, confirm and fail, on its way out.

This is the terminal that drivers know (`broker/contract.py`). What is to be written gathers in a
list and leaves in one write when the turn ends. A socket that does not take it is *choked*: its
consumers' credit is withdrawn until it has caught up. A large message leaves one fragment at a
time, each asked for when the one before has left; on its own channel nothing may come between
them, which `channel.py` sees to, while other channels go on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast

from penstock.broker.buckets import Bucket
from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.core.errors import ConnectionForced, NoRoute, PreconditionFailed
from penstock.terminals.amqp091 import methods
from penstock.terminals.amqp091.conversations import Consumer, Producer
from penstock.terminals.amqp091.frames import OVERHEAD, write_body, write_content
from penstock.terminals.amqp091.returning import WEIGHT, Returning, return_frame

if TYPE_CHECKING:
    from penstock.terminals.amqp091.confirms import Confirms
    from penstock.terminals.amqp091.terminal import Amqp091Terminal

#: Output that may gather for one socket before its consumers are asked to wait.
CHOKE_BYTES: Final = 256 * 1024


class Outflow:
    __slots__ = (
        "_buckets",
        "_bytes",
        "_confirming",
        "_delivered",
        "_first",
        "_loop",
        "_metrics",
        "_terminal",
        "_touched",
        "_turn",
        "acknowledged",
        "choked",
        "held",
        "out",
        "paused",
        "thirsty",
    )

    def __init__(self, terminal: Amqp091Terminal) -> None:
        kernel = terminal.host.kernel
        self._terminal = terminal
        self._turn = kernel.turn
        self._loop = kernel.loop
        self._metrics = kernel.metrics
        self.out: list[bytes] = []
        self.held = 0  #: bytes of answers that wait behind large messages
        self.thirsty: dict[Consumer, None] = {}  #: consumers with new credit to ask for
        self.acknowledged = 0
        self.choked = False  #: consumers get nothing until the socket has caught up
        self.paused = False  #: the transport's buffer is full
        self._bytes = 0
        self._delivered = 0
        self._touched = False
        self._first = 0  #: which channel is asked for first
        self._confirming: list[Confirms] = []
        self._buckets: list[Bucket] = []

    # What drivers ask for.

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
            if delivery.count or delivery.released:
                again = True
                self._metrics.redelivered += 1
            if not consumer.settled:
                amqp.unanswered[tag] = (consumer, delivery)
                consumer.unanswered += 1
                if amqp.global_prefetch and len(amqp.unanswered) >= amqp.global_prefetch:
                    amqp.request_all()
        if not self._touched:
            self._touched = True
            self._turn.touched.append(self)
        if consumer.opening is None:
            consumer.writer.write(
                self.out, tag, again, fragment.route, fragment.header, fragment.body
            )
        else:
            self.write(amqp.number, consumer.opening(tag, again, fragment), fragment)
        self._delivered += 1
        self._bytes += len(fragment.body) + 64
        if self._bytes > CHOKE_BYTES and not self.choked:
            self._choke()

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        confirms = cast(Producer, channel).confirms
        if not confirms.receipts:
            self._confirming.append(confirms)
            self.touch()
        confirms.receipts.append(receipt)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if isinstance(channel, Consumer):
            if isinstance(error, PreconditionFailed):
                self._terminal.close_channel(channel.amqp, error, methods.BASIC_CONSUME)
            else:
                self._consumer_ended(channel, error)
            return
        producer = cast(Producer, channel)
        if isinstance(error, NoRoute):
            self._return(producer, error.args[0], receipt)
        elif receipt:
            producer.confirms.refuse(receipt)
        else:
            producer.amqp.forget_producer(producer)

    def _return(self, producer: Producer, message: Message, receipt: int) -> None:
        amqp = producer.amqp
        if amqp.closing:
            return
        self._metrics.returned += 1
        if message.spool is not None:
            amqp.after_large(Returning(producer, message, receipt).begin, WEIGHT)
            return
        pieces: list[bytes] = []
        frame_max = self._terminal.frame_max
        method = return_frame(amqp.number, message)
        write_content(pieces, amqp.number, method, message.header, message.body, frame_max)
        amqp.send(b"".join(pieces))
        if receipt:
            amqp.after_large(partial(self.channel_confirm, producer, receipt), 0)

    def _consumer_ended(self, consumer: Consumer, error: Exception) -> None:
        """Its queue is gone: tell the client, if it wants to be told."""
        amqp = consumer.amqp
        amqp.consumers.pop(consumer.tag, None)
        self.thirsty.pop(consumer, None)
        if amqp.sending is consumer:
            self._terminal.fail(ConnectionForced(f"delivery was cut short: {error}"))
        elif self._terminal.can("consumer_cancel_notify"):
            amqp.reply(methods.BASIC_CANCEL, consumer_tag=consumer.tag, no_wait=True)

    # Large messages.

    def _forward_large(
        self, consumer: Consumer, fragment: Message | Fragment, delivery: Delivery | None
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
        self.touch()
        write_body(self.out, amqp.number, fragment.body, self._terminal.frame_max - OVERHEAD)
        self._bytes += len(fragment.body)
        self._buckets.append(fragment.bucket)
        if fragment.more:
            self._draw_soon(consumer)
            return
        if consumer.cancelled:
            consumer.driver.channel_close(consumer)
        amqp.end_large()

    def begin_large(self, consumer: Consumer) -> None:
        """The opening of a large message is written: from now on its channel is its own."""
        consumer.amqp.sending = consumer
        consumer.amqp.request_all()  # the channel's other consumers wait
        self._draw_soon(consumer)

    def _draw_soon(self, consumer: Consumer) -> None:
        if not self.choked:
            self._loop.call_soon(self._draw, consumer)

    def _draw(self, consumer: Consumer) -> None:
        """Ask for the next fragment of a large message, if the socket has room for it."""
        if consumer.amqp.sending is consumer and not self.choked and not self._terminal.closing:
            consumer.request()
            self._turn.end()

    # Writing.

    def touch(self) -> None:
        if not self._touched:
            self._touched = True
            self._turn.touched.append(self)

    def send(self, frame: bytes) -> None:
        self.touch()
        self.out.append(frame)

    def write(self, number: int, method: bytes, message: Message) -> None:
        """A method that carries content, and what is here of its content."""
        self.touch()
        frame_max = self._terminal.frame_max
        write_content(self.out, number, method, message.header, message.body, frame_max)

    def flush(self) -> None:
        if self._confirming:
            confirming, self._confirming = self._confirming, []
            for confirms in confirming:
                confirms.write()
        self._touched = False
        out = self.out
        if not out:
            return
        data = b"".join(out)
        out.clear()
        self._bytes = 0
        self._metrics.bytes_out += len(data)
        self._metrics.delivered += self._delivered
        self._delivered = 0
        self._terminal.lifesigns.said = True
        self._terminal.transport.write(data)
        if self._buckets:
            self._release()
        if self.choked and not self.paused:
            self._loop.call_soon(self._unchoke)

    def _release(self) -> None:
        for bucket in self._buckets:
            bucket.release()
        self._buckets.clear()

    # Credit.

    def pause(self) -> None:
        self.paused = True
        self._choke()

    def resume(self) -> None:
        self.paused = False
        self._unchoke()

    def _choke(self) -> None:
        """The socket is behind: consumers get nothing more until it has caught up."""
        self.choked = True
        self._request_all()

    def _unchoke(self) -> None:
        if self.choked and not self.paused and not self._terminal.closing:
            self.choked = False
            self._request_all()
            self._turn.end()

    def _request_all(self) -> None:
        """Ask for every consumer; whoever is asked for first may fill the socket: take turns."""
        channels = list(self._terminal.channels.values())
        if not self.choked:
            self._first = (self._first + 1) % max(1, len(channels))
        for channel in channels[self._first :] + channels[: self._first]:
            channel.request_all()

    def request(self) -> None:
        """Ask for those whose deliveries were answered."""
        thirsty, self.thirsty = self.thirsty, {}
        self._metrics.acknowledged += self.acknowledged
        self.acknowledged = 0
        for consumer in thirsty:
            if consumer.amqp.consumers.get(consumer.tag) is consumer:
                if consumer.amqp.global_prefetch:
                    consumer.amqp.request_all()
                else:
                    consumer.request()

    # The end.

    def forget(self) -> None:
        """The channels have ended: nobody is owed what they had under way."""
        self.thirsty.clear()
        self._confirming.clear()
        self._release()
