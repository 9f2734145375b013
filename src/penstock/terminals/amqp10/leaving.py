"""A large message on its way out: its fragments become transfers of one delivery.

A body that is too long for the size of a data section, which has four bytes, is cut into several
sections as it passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.contract import Message
from penstock.terminals.amqp10.conversion import outgoing

if TYPE_CHECKING:
    from penstock.wire.amqp10.links import Outgoing, Sender

#: The longest section there may be, and how long they get if there must be several.
LONGEST: Final = 0xFFFF_FFFF
SECTION: Final = 1 << 30

_DATA: Final = b"\x00\x53\x75\xb0"


class Leaving:
    __slots__ = ("_after", "_left", "_section", "delivery")

    def __init__(self, delivery: Outgoing) -> None:
        self.delivery = delivery
        self._after = b""  #: what follows the body
        self._left = 0  #: of a body in several sections, beyond the one it is in
        self._section = 0  #: of that section

    def begin(self, link: Sender, opening: Message, count: int, released: bool) -> None:
        """What comes before the body; it was delivered so many times before, or given back."""
        if opening.size > LONGEST:  # begin with an empty section, and go on with others
            self._left = opening.size
            opening.header = opening.header[:4] + bytes(8) + opening.header[12:]
        before, self._after = outgoing(opening, count, released)
        link.send(self.delivery, before, more=True)

    def send(self, link: Sender, body: memoryview, more: bool) -> None:
        """The next piece of the body."""
        while self._left and len(body) > self._section:
            if self._section:
                link.send(self.delivery, body[: self._section], more=True)
                body = body[self._section :]
            self._section = min(self._left, SECTION)
            self._left -= self._section
            link.send(self.delivery, _DATA + self._section.to_bytes(4, "big"), more=True)
        self._section -= len(body)
        last = not more and not self._after
        link.send(self.delivery, body, more=not last)
        if not more and not last:
            link.send(self.delivery, self._after)
