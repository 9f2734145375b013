"""Runs: small messages that a client has published in a row, with the same route and flags.

A read of a busy socket has many messages, and most are followed by others like them. A run is
routed once, encoded once for all receivers that can share the bytes, and entered into tables as a
whole. Drivers and terminals that cannot use a run get its messages one by one.

    terminal → exchange      channel_post_run
    exchange → sink          push_run, if the sink `takes_runs`
    driver → terminal        `Channel.forward_run`, if the terminal has set it
    exchange → terminal      `Channel.confirm_run`, if the terminal has set it
    terminal → driver        channel_confirm_run, if the driver is a `RunDriver`
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Final, Protocol, runtime_checkable

from penstock.broker.contract import MAX_PACKET_ID, Channel, Delivery, Message, Sink

#: The longest run to many receivers: with it, a hundred of them stay within a write batch.
MAX_RUN_MESSAGES: Final = 64


class MessageRun:
    __slots__ = ("_messages", "bodies", "encoded", "flags", "headers", "packet_id", "route")

    def __init__(
        self,
        route: bytes,
        flags: int,
        headers: Sequence[bytes],
        bodies: Sequence[bytes],
        messages: list[Message] | None = None,
    ) -> None:
        """All messages have this route and these flags, and their bodies are in memory."""
        self.route = route
        self.flags = flags
        self.headers = headers
        self.bodies = bodies
        self._messages = messages
        #: The packet id of the first message, for sessions in which the ids are free; others follow
        #: it. The sessions of a run share it, so that they share the encoded packets.
        self.packet_id = 0
        self.encoded: dict[tuple[int, int], bytes] = {}  #: terminals share what they have encoded

    @classmethod
    def of(cls, messages: list[Message]) -> MessageRun:
        headers = [message.header for message in messages]
        bodies = [message.body for message in messages]
        return cls(messages[0].route, messages[0].flags, headers, bodies, messages)

    def part(self, start: int, stop: int) -> MessageRun:
        """Some of the messages, as a run of its own."""
        messages = None if self._messages is None else self._messages[start:stop]
        headers, bodies = self.headers[start:stop], self.bodies[start:stop]
        return MessageRun(self.route, self.flags, headers, bodies, messages)

    def __len__(self) -> int:
        return len(self.bodies)

    @property
    def messages(self) -> list[Message]:
        """Created for the first one who needs them: those who only pass a run on do not."""
        if self._messages is None:
            found = map(Message, repeat(self.route), self.headers, self.bodies, repeat(self.flags))
            self._messages = list(found)
        return self._messages

    @property
    def has_one_header(self) -> bool:
        """Whether all messages have the same header, so that their bodies have the same size."""
        return self.headers.count(self.headers[0]) == len(self.headers)

    def number(self, sequence: int) -> None:
        """Set the packet id from the number of messages that the exchange had posted before."""
        first = sequence % MAX_PACKET_ID + 1
        self.packet_id = first if first + len(self.bodies) <= MAX_PACKET_ID else 1


@runtime_checkable
class RunSink(Sink, Protocol):
    """A sink that accepts a run as a whole, while it `takes_runs`."""

    @property
    def takes_runs(self) -> bool:
        """Whether it will store or send every message: else each has its own outcome."""

    def push_run(self, run: MessageRun) -> int:
        """Returns ACCEPTED or LOGGED."""


@runtime_checkable
class RunDriver(Protocol):
    """A driver that takes many acknowledgements of one channel together."""

    def channel_confirm_run(self, channel: Channel, deliveries: list[Delivery]) -> None:
        """As `channel_confirm` for each."""
