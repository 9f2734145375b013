"""A large message on its way back: mandatory, and nobody wanted it.

It comes back as it came, fragment by fragment from its spool, so that it never lies in memory
whole. `Returning` is the driver of that one message, and its only reader is the channel that sent
it: the message is drawn like any large delivery, only that it begins with `basic.return` and is
nobody's to acknowledge. The publisher's confirm follows at once behind it, as the standard asks.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.broker.sending import Sending
from penstock.core.errors import Unsupported
from penstock.terminals.amqp091 import methods
from penstock.terminals.amqp091.conversations import Consumer, Producer
from penstock.terminals.amqp091.methods import method_frame

#: What one that waits for its turn counts among unread answers (`intake.py`): it takes no memory
#: to speak of, but a file that is open.
WEIGHT: Final = 256 * 1024


def return_frame(channel: int, message: Message) -> bytes:
    return method_frame(
        channel,
        methods.BASIC_RETURN,
        reply_code=312,
        reply_text="NO_ROUTE",
        exchange=message.exchange,
        routing_key=message.routing_key,
    )


class Returning:
    __slots__ = ("_message", "_producer", "_receipt", "_sending")

    def __init__(self, producer: Producer, message: Message, receipt: int) -> None:
        self._producer = producer
        self._message = message
        self._receipt = receipt
        self._sending: Sending | None = None

    def begin(self) -> None:
        """Its channel is free for it."""
        amqp = self._producer.amqp
        reader = Consumer(amqp, self, queue="", tag="", settled=True, prefetch=0)
        reader.cancelled = True  # nothing comes after it
        kernel = amqp.connection.host.kernel
        self._sending = Sending(kernel, reader, Delivery(self._message, 0), lambda: None)
        amqp.outflow.write(amqp.number, return_frame(amqp.number, self._message), self._message)
        amqp.outflow.begin_large(reader)
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
