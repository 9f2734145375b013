"""A large message on its way in: fragments go to a spool, and when it has come whole it is posted.

What the same sender posts behind it waits until then, so that nothing overtakes it on its way to
the disk.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.contract import Fragment, Message
from penstock.broker.spool import Spool, Spools

#: Takes a message that has come whole, with its receipt.
Post = Callable[[Message, int], None]


class Assembly:
    __slots__ = ("_behind", "_ended", "_message", "_post", "_receipt", "_reception")

    def __init__(self, opening: Message, spools: Spools, post: Post) -> None:
        self._message = opening
        self._post = post
        self._receipt = 0
        self._ended = False
        self._behind: list[tuple[Message | Fragment, int]] = []
        self._reception = spools.receive(self._complete)

    def add(self, fragment: Message | Fragment, receipt: int) -> None:
        if self._ended or isinstance(fragment, Message):
            self._behind.append((fragment, receipt))
            return
        self._receipt = receipt
        self._ended = not fragment.more
        self._reception.append(fragment.bucket, last=self._ended)

    def _complete(self, spool: Spool) -> None:
        message = self._message
        message.more = False
        message.spool = spool
        self._post(message, self._receipt)

    def take_behind(self) -> list[tuple[Message | Fragment, int]]:
        """What has been waiting, no longer this one's."""
        behind, self._behind = self._behind, []
        return behind

    def cancel(self) -> None:
        self._reception.cancel()
        for fragment, _ in self.take_behind():
            if isinstance(fragment, Fragment):
                fragment.bucket.release()
