"""Acknowledgements of one channel: a word for all that are done up to one, as often as can be.

Posts are done in about the order in which they came, and many in one turn of the loop. What is done
while an earlier one is not is acknowledged by itself, so that nothing waits for what takes long.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Acknowledging(Protocol):
    """A channel, as it is seen from here."""

    def ack(self, tag: int, *, multiple: bool = False) -> None: ...


class Settling:
    def __init__(self, channel: Acknowledging) -> None:
        self._channel = channel
        self._open: dict[int, None] = {}  #: tags in order
        self._done: set[int] = set()  #: in this turn

    def took(self, tag: int) -> None:
        self._open[tag] = None

    def done(self, tag: int) -> None:
        """Told at the end of the loop's turn, with all others that are."""
        if not self._done:
            asyncio.get_running_loop().call_soon(self._tell)
        self._done.add(tag)

    def _tell(self) -> None:
        done, self._done = self._done, set()
        row: list[int] = []
        for tag in self._open:
            if tag not in done:
                break
            row.append(tag)
        if row:
            self._channel.ack(row[-1], multiple=True)
        for tag in sorted(done.difference(row)):
            self._channel.ack(tag)
        for tag in done:
            self._open.pop(tag, None)
