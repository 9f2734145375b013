"""Those who wait for data to be safe: publishers' receipts, and callbacks of the broker's own.

Telling one of them never keeps the others from being told: what a waiter raises goes to the
loop's exception handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from penstock.broker.contract import Channel


class Waiters:
    __slots__ = ("callbacks", "receipts")

    def __init__(self) -> None:
        self.receipts: list[tuple[Channel, int]] = []
        self.callbacks: list[tuple[Callable[[], None], Callable[[OSError], None] | None]] = []

    def __bool__(self) -> bool:
        return bool(self.receipts or self.callbacks)

    def take(self, other: Waiters) -> None:
        """All of `other` wait here from now on."""
        self.receipts += other.receipts
        self.callbacks += other.callbacks
        other.receipts, other.callbacks = [], []

    def confirm(self, loop: asyncio.AbstractEventLoop) -> None:
        for channel, receipt in self.receipts:
            try:
                channel.terminal.channel_confirm(channel, receipt)
            except Exception as error:
                _complain(loop, error)
        for callback, _ in self.callbacks:
            try:
                callback()
            except Exception as error:
                _complain(loop, error)

    def fail(self, loop: asyncio.AbstractEventLoop, cause: OSError) -> None:
        for channel, receipt in self.receipts:
            try:
                channel.terminal.channel_failure(channel, receipt, cause)
            except Exception as error:
                _complain(loop, error)
        for _, failed in self.callbacks:
            try:
                if failed is not None:
                    failed(cause)
            except Exception as error:
                _complain(loop, error)


def _complain(loop: asyncio.AbstractEventLoop, error: Exception) -> None:
    message = "a waiter raised when it was told about its data"
    loop.call_exception_handler({"message": message, "exception": error})
