"""What two ends of a PADRES connection say to each other, as values.

Each begins with eight bytes that name the protocol and its version, and an `Open`. Then messages
of the language travel as `Note`s, either way. A note with a receipt is answered by one `Confirm`
(with the id the message got; of a publication, when it is where it must be) or one `Failed`.
Receipts are for who gives them out to choose, and mean nothing to the other; those of a broker to
a client count up, and the client's confirm is of all up to that one. Each says a `Beat`
when it has said nothing for as long as it announced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeAlias

from penstock.wire.padres.envelope import Envelope

#: How either side begins: the name of the protocol and its version.
VERSION: Final = 1
PREFACE: Final = b"PADRES\x00" + bytes((VERSION,))

#: The largest frame of somebody who is not known yet.
STRANGER: Final = 64 * 1024
#: The largest that a client and a neighbour take: the most that brokers can be set to take from
#: clients, and what they say beside it when they pass it on.
LARGEST: Final = 64 * 1024 * 1024 + 4 * STRANGER


class Role(IntEnum):
    CLIENT = 1
    BROKER = 2


@dataclass(frozen=True, slots=True)
class Open:
    """Who one is. A broker answers a client's with its own, in which `id` is the broker's."""

    role: Role
    id: str
    uri: str = ""  #: where a broker can be reached
    store: str = ""  #: which data a broker has, or which run of a program a client is
    user: str = ""
    password: str = field(default="", repr=False)
    vhost: str = ""  #: empty for the broker's own choice
    wanted: str = ""  #: the id of the broker one means to talk to; empty for any
    heartbeat: int = 0  #: the longest silence of who says this, in seconds; 0 for any
    largest: int = LARGEST  #: the largest frame one takes
    lasting: bool = False  #: what a client asks for outlives its connection; in answer, it has
    software: str = ""
    attentive: bool = False  #: a client that wants to see who subscribes to what it advertises


@dataclass(frozen=True, slots=True)
class Note:
    """A message of the language."""

    envelope: Envelope
    receipt: int = 0  #: to be answered by, unless 0


@dataclass(frozen=True, slots=True)
class Confirm:
    receipt: int
    id: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """What was noted is refused."""

    receipt: int
    code: int  #: see `conditions.py`
    text: str
    position: int = -1  #: of the mistake in the text of the message, from 0; -1 for none


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life."""


@dataclass(frozen=True, slots=True)
class Close:
    """The last word."""

    code: int = 0  #: 0 for an end that was wished for
    reason: str = ""


Frame: TypeAlias = Open | Note | Confirm | Failed | Beat | Close
