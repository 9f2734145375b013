"""A message on its way to many queues: a slice of them a turn, others having theirs between.

Until it has reached all of them, its sender is not read from, and what the sender posted behind it
waits, so that nothing overtakes it. The sender is answered when the last queue has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.contract import Fragment, Message
from penstock.broker.destinations import Sink
from penstock.broker.turn import Turn, Yielding

#: How many queues a message is pushed to between two looks at the clock.
SLICE: Final = 64

#: What the queues made of a message, and what was posted behind it.
Finish = Callable[[int, list[tuple[Message | Fragment, int]]], None]


class FanOut:
    __slots__ = ("_at", "_behind", "_finish", "_message", "_outcome", "_reader", "_sinks", "_turn")

    def __init__(
        self, turn: Turn, reader: Yielding, message: Message, sinks: tuple[Sink, ...],
        finish: Finish,
    ) -> None:  # fmt: skip
        self._turn = turn
        self._reader = reader
        self._message = message
        self._sinks = sinks
        self._finish = finish
        self._at = 0
        self._outcome = 0
        self._behind: list[tuple[Message | Fragment, int]] = []

    def run(self) -> bool:
        """Push on until the turn is over; whether all queues have it."""
        sinks, message = self._sinks, self._message
        while self._at < len(sinks):
            for sink in sinks[self._at : self._at + SLICE]:
                if not getattr(sink, "deleted", False):  # since the last turn
                    self._outcome |= sink.push(message)
            self._at += SLICE
            if self._turn.over():
                break
        return self._at >= len(sinks)

    @property
    def outcome(self) -> int:
        return self._outcome

    def put_off(self) -> None:
        """The turn is over: go on later, and hold the sender back until it is done."""
        self._reader.hold()
        self._turn.reader = None
        self._turn.later(self._go_on)

    def _go_on(self) -> None:
        if not self.run():
            self._turn.later(self._go_on)
            return
        behind, self._behind = self._behind, []
        self._finish(self._outcome, behind)
        self._turn.later(self._reader.resume)

    # What an exchange asks of what a channel is in the middle of.

    def add(self, fragment: Message | Fragment, receipt: int) -> None:
        self._behind.append((fragment, receipt))

    def cancel(self) -> None:
        """The sender has gone. The message was taken, and reaches all queues all the same."""
        for fragment, _ in self._behind:
            if isinstance(fragment, Fragment):
                fragment.bucket.release()
        self._behind.clear()
