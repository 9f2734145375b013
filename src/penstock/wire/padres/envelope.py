"""A message of the content language with what travels beside it, as frames carry it.

The text is in the language (or the id of what is undone); nobody has to read it to pass it on. The
first broker gives a message its id and its time. What stands behind `source` is between brokers
alone: clients neither set it nor see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

#: A message that may go as far as there are brokers.
UNLIMITED_TTL: Final = -1
#: What has no priority of its own; less goes first.
PRIORITY: Final = 4


class Kind(IntEnum):
    ADVERTISE = 1
    SUBSCRIBE = 2
    COMPOSITE = 3  #: a subscription to several publications together
    PUBLISH = 4
    UNADVERTISE = 5  #: the text is the id
    UNSUBSCRIBE = 6
    UNCOMPOSITE = 7


@dataclass(frozen=True, slots=True)
class Envelope:
    kind: Kind
    text: str
    id: str = ""  #: B1-M7; empty until the first broker has given it one
    payload: bytes = b""  #: of a publication; not looked at
    priority: int = PRIORITY
    ttl: int = UNLIMITED_TTL  #: how many links it may still cross
    time: float = 0.0  #: seconds since 1970
    trace: str = ""  #: under which id its way is told
    durable: bool = True  #: a publication that a confirm is to outlive a crash
    options: tuple[tuple[str, str], ...] = ()  #: of a subscription: policy, size, seconds…
    source: str = ""  #: who sent it to its first broker, as B1-ada

    tree: str = ""  #: the advertisement whose tree it follows, where brokers form cycles
    only: tuple[str, ...] = ()  #: the brokers this copy is for; empty for all on the tree
    turns: int = 0  #: how often it has changed trees
