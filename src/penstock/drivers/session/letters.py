"""Messages become letters: at which quality, and with which number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.broker.contract import ONCE, PERSISTENT, Delivery, Message
from penstock.broker.sessions import NUMBERS, Grant, Letter
from penstock.drivers.session.grants import AS_PUBLISHED

#: Stands for what the client has already: only its number is still spoken of.
_FORGOTTEN: Final = Message(b"", b"", b"")


def qos_of(message: Message, grant: Grant) -> int:
    if not message.flags & PERSISTENT:
        return 0
    published = 2 if message.flags & ONCE else 1
    return min(published, grant.qos)


def number_of(offset: int) -> int:
    """The number of what is logged: the same after a restart."""
    return offset % NUMBERS + 1


def letter_of(delivery: Delivery, grant: Grant) -> Letter:
    """What comes from where it waited, as it is to be delivered today."""
    letter = Letter(delivery.message, delivery.position, grant, qos_of(delivery.message, grant))
    letter.offset = delivery.offset
    letter.count = delivery.count
    letter.expires = delivery.expires
    return letter


def released(offsets: Iterable[int]) -> Iterator[Letter]:
    """What was in the middle of being delivered once, in order: it goes on where it was."""
    for offset in sorted(offsets):
        letter = Letter(_FORGOTTEN, 0, AS_PUBLISHED, 2)
        letter.offset = offset
        letter.number = number_of(offset)
        letter.released = True
        yield letter
