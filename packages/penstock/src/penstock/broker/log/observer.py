"""What a replica needs to know: every change of a file below the data directory, in order.

Logs, journals and bodies of large messages report their changes to the committer's observer, if it
has one. A broker without followers has none and pays for one check per write.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.broker.contract import Channel


class StorageObserver(Protocol):
    """Changes since the last `seal` are a batch with a sequence number."""

    @property
    def refuses(self) -> bool:
        """Too few members are in sync: queues that need them reject publishes."""

    def append(self, path: Path, position: int, data: bytes) -> None:
        """`data` was written at that position of a file, which may be new."""

    def truncate(self, path: Path, size: int) -> None: ...

    def replace(self, path: Path, fd: int, size: int) -> None:
        """The file now has the first `size` bytes of the open file `fd`: it was renamed or linked.

        These bytes never change.
        """

    def delete(self, path: Path) -> None:
        """A file, or a directory with everything in it."""

    def seal(self) -> int:
        """End the batch; returns its sequence number."""

    def when_replicated(self, sequence: int, waiters: CommitWaiters) -> None:
        """Everything up to the batch is on the local disk: confirm the waiters when the in-sync
        members have it, too."""

    def fail(self, cause: OSError) -> None:
        """The broker closes: fail all waiters."""


class CommitWaiters:
    """Receipts of publishers and callbacks of the broker. Errors in one do not affect others."""

    __slots__ = ("callbacks", "local", "receipts")

    def __init__(self) -> None:
        #: Receipts, or those of a run; confirmed when their messages are on the local disk …
        self.local: list[tuple[Channel, int | Sequence[int]]] = []
        #: … and on that of every in-sync member.
        self.receipts: list[tuple[Channel, int | Sequence[int]]] = []
        self.callbacks: list[tuple[Callable[[], None], Callable[[OSError], None] | None]] = []

    def __bool__(self) -> bool:
        return bool(self.local or self.receipts or self.callbacks)

    def merge(self, other: CommitWaiters) -> None:
        self.local += other.local
        self.receipts += other.receipts
        self.callbacks += other.callbacks
        other.local, other.receipts, other.callbacks = [], [], []

    def confirm(self, report: Callable[[Exception], None]) -> None:
        for receipts in (self.local, self.receipts):
            for channel, receipt in receipts:
                try:
                    confirm_all(channel, receipt)
                except Exception as error:
                    report(error)
        for callback, _ in self.callbacks:
            try:
                callback()
            except Exception as error:
                report(error)

    def fail(self, report: Callable[[Exception], None], cause: OSError) -> None:
        for receipts in (self.local, self.receipts):
            for channel, receipt in receipts:
                try:
                    for one in (receipt,) if isinstance(receipt, int) else receipt:
                        channel.terminal.channel_failure(channel, one, cause)
                except Exception as error:
                    report(error)
        for _, failed in self.callbacks:
            try:
                if failed is not None:
                    failed(cause)
            except Exception as error:
                report(error)


def confirm_all(channel: Channel, receipts: int | Sequence[int]) -> None:
    """Confirm a receipt, or those of a run."""
    if isinstance(receipts, int):
        channel.terminal.channel_confirm(channel, receipts)
    elif channel.confirm_run is not None:
        channel.confirm_run(channel, receipts)
    else:
        for receipt in receipts:
            channel.terminal.channel_confirm(channel, receipt)


def remove_tree(directory: Path, observer: StorageObserver | None) -> None:
    """Delete a directory with everything in it, if it exists."""
    shutil.rmtree(directory, ignore_errors=True)
    if observer is not None:
        observer.delete(directory)
