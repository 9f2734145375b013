"""Direct reply-to: a reply goes straight to the channel that asked, through no queue.

A requester that does not read its replies has no credit; they wait for it, in memory and within
bounds. Beyond them the oldest are dropped, and the log says how many: replies promise no more
than their requester's attention, and nobody else may pay for its lack.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from penstock.broker.contract import ACCEPTED, Channel, Delivery, Fragment, Message
from penstock.broker.fragments import FragmentSender
from penstock.broker.kernel import Kernel
from penstock.core.errors import Unsupported
from penstock.core.logs import get_logger

#: What may wait for one requester, in bytes.
MAX_WAITING_BYTES: Final = 4 * 1024 * 1024
#: What a waiting reply counts beside its body; of a large one the body is on disk.
MESSAGE_OVERHEAD_BYTES: Final = 400
LARGE: Final = 256 * 1024

_log = get_logger("penstock.reply")


class ReplyChannel:
    """The destination behind the routing key that a requester gave out."""

    __slots__ = ("_bytes", "_channel", "_dropped", "_kernel", "_sending", "_waiting", "name")

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.name = name
        self._kernel = kernel
        self._channel: Channel | None = None
        self._sending: FragmentSender | None = None
        self._waiting: deque[Message] = deque()
        self._bytes = 0  #: of what waits
        self._dropped = 0  #: since it last had to wait

    # The contract.

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        self._channel = channel

    def channel_request(self, channel: Channel, credit: int) -> None:
        channel.credit = credit
        if self._sending is None:
            self._go_on()
        elif credit > 0:
            self._sending.draw()

    def channel_close(self, channel: Channel) -> None:
        self._channel = None
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        while self._waiting:
            self._pop()
        if self._dropped:
            self._tell_dropped()

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        raise Unsupported("replies are published to the default exchange")

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        """Replies are settled as they are sent."""

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        """Replies are settled as they are sent."""

    # In.

    def push(self, message: Message) -> int:
        channel = self._channel
        if channel is not None:
            if channel.credit > 0 and self._sending is None and not self._waiting:
                self._forward(channel, message)
            else:
                self._wait(message)
        return ACCEPTED

    def _wait(self, message: Message) -> None:
        self._waiting.append(message)
        size = _size(message)
        self._bytes += size
        self._kernel.pool.charge(size)
        while self._bytes > MAX_WAITING_BYTES and len(self._waiting) > 1:
            self._pop()
            if not self._dropped:
                _log.warning("replies dropped: the requester does not read them")
            self._dropped += 1

    def _tell_dropped(self) -> None:
        # Not by name: who knows it may reply.
        _log.warning("a requester missed replies that it did not read", dropped=self._dropped)
        self._dropped = 0

    # Out.

    def _pop(self) -> Message:
        message = self._waiting.popleft()
        size = _size(message)
        self._bytes -= size
        self._kernel.pool.discharge(size)
        return message

    def _go_on(self) -> None:
        """Forward what waits, as long as it is taken."""
        while self._waiting and self._sending is None:
            channel = self._channel
            if channel is None or channel.credit <= 0:
                return
            self._forward(channel, self._pop())
        if self._dropped and not self._waiting:
            self._tell_dropped()

    def _forward(self, channel: Channel, message: Message) -> None:
        channel.credit -= 1
        if message.spool is None:
            channel.terminal.channel_forward(channel, message, None)
        else:
            self._sending = FragmentSender(self._kernel, channel, Delivery(message, 0), self._sent)
            self._sending.open()

    def _sent(self) -> None:
        self._sending = None
        self._go_on()


def _size(message: Message) -> int:
    return MESSAGE_OVERHEAD_BYTES + (len(message.body) if message.spool is None else LARGE)
