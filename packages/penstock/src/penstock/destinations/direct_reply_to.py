"""Direct reply-to: replies go to the requester's channel without a queue.

Replies to a requester without credit wait in memory, within a limit. Beyond it the oldest are
dropped and logged.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from penstock.broker.buckets import BUCKET_BYTES, MESSAGE_OVERHEAD_BYTES
from penstock.broker.contract import ACCEPTED, Channel, Delivery, Fragment, Message
from penstock.broker.fragments import FragmentSender
from penstock.broker.kernel import Kernel
from penstock.core.errors import Unsupported
from penstock.core.logs import get_logger

MAX_WAITING_BYTES: Final = 4 * 1024 * 1024

_log = get_logger("penstock.reply")


class ReplyChannel:
    """The destination of a requester's reply-to address."""

    __slots__ = ("_bytes", "_channel", "_dropped", "_kernel", "_sending", "_waiting", "name")

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.name = name
        self._kernel = kernel
        self._channel: Channel | None = None
        self._sending: FragmentSender | None = None
        self._waiting: deque[Message] = deque()
        self._bytes = 0  #: of waiting replies
        self._dropped = 0  #: since replies last waited

    # The contract.

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        self._channel = channel

    def channel_request(self, channel: Channel, credit: int) -> None:
        channel.credit = credit
        if self._sending is None:
            self._drain()
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
            self._log_dropped()

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        raise Unsupported("replies are published to the default exchange")

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        """Replies are settled as they are sent."""

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        """Replies are settled as they are sent."""

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
                _log.warning("replies dropped", reason="the requester does not read them")
            self._dropped += 1

    def _log_dropped(self) -> None:
        # Without the name: anybody who knows it could reply.
        _log.warning("replies dropped", dropped=self._dropped)
        self._dropped = 0

    def _pop(self) -> Message:
        message = self._waiting.popleft()
        size = _size(message)
        self._bytes -= size
        self._kernel.pool.discharge(size)
        return message

    def _drain(self) -> None:
        """Forward waiting replies while there is credit."""
        while self._waiting and self._sending is None:
            channel = self._channel
            if channel is None or channel.credit <= 0:
                return
            self._forward(channel, self._pop())
        if self._dropped and not self._waiting:
            self._log_dropped()

    def _forward(self, channel: Channel, message: Message) -> None:
        channel.credit -= 1
        if message.spool is None:
            channel.terminal.channel_forward(channel, message, None)
        else:
            self._sending = FragmentSender(self._kernel, channel, Delivery(message, 0), self._sent)
            self._sending.open()

    def _sent(self) -> None:
        self._sending = None
        self._drain()


def _size(message: Message) -> int:
    return MESSAGE_OVERHEAD_BYTES + (len(message.body) if message.spool is None else BUCKET_BYTES)
