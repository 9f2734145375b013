"""The press: messages as the sections that receivers get, each set once and printed for many.

All receivers of a message are served one after another, so remembering the last one is all it
takes to convert a fan-out once.
"""

from __future__ import annotations

from penstock.broker.contract import Message
from penstock.terminals.amqp10.conversion import outgoing


class Press:
    __slots__ = ("_message", "_payload")

    def __init__(self) -> None:
        self._message: Message | None = None
        self._payload = b""

    def payload(self, message: Message, count: int, released: bool) -> bytes:
        """A small message that was delivered so many times before, or given back."""
        if count or released:
            before, after = outgoing(message, count, released)
            return before + message.body + after
        if message is not self._message:
            before, after = outgoing(message)
            self._payload = before + message.body + after
            self._message = message
        return self._payload
