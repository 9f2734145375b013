"""Direct reply-to: a reply goes straight to the channel that asked, through no queue."""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.broker.destinations import TAKEN
from penstock.broker.kernel import Kernel
from penstock.broker.sending import Sending
from penstock.core.errors import Unsupported


class ReplyChannel:
    """The destination behind the routing key that a requester gave out."""

    __slots__ = ("_channel", "_kernel", "_sending", "_waiting", "name")

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.name = name
        self._kernel = kernel
        self._channel: Channel | None = None
        self._sending: Sending | None = None
        self._waiting: list[Message] = []

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        self._channel = channel

    def channel_request(self, channel: Channel, credit: int) -> None:
        channel.credit = credit
        if self._sending is not None and credit > 0:
            self._sending.draw()

    def channel_close(self, channel: Channel) -> None:
        self._channel = None
        if self._sending is not None:
            self._sending.cancel()

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        raise Unsupported("replies are published to the default exchange")

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        """Replies are settled as they are sent."""

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        """Replies are settled as they are sent."""

    def push(self, message: Message) -> int:
        if self._sending is not None:
            self._waiting.append(message)
        elif self._channel is not None:
            if message.spool is None:
                self._channel.terminal.channel_forward(self._channel, message, None)
            else:
                delivery = Delivery(message, 0)
                self._sending = Sending(self._kernel, self._channel, delivery, self._sent)
                self._sending.open()
        return TAKEN

    def _sent(self) -> None:
        self._sending = None
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self._kernel.turn.soon(partial(self._push_later, message))

    def _push_later(self, message: Message) -> None:
        self.push(message)
