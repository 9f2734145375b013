"""How far a delivery has got: the outcomes a receiver gives, and `received` before there is one.

Outcomes that carry nothing are common and are here as bytes already; the rest goes by the tables.
A state of an extension (transactions) is kept as the described value it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from penstock.wire.amqp10.composites import (
    BOOLEAN,
    MAP,
    STRING,
    SYMBOL_,
    UINT,
    ULONG,
    Composite,
    Composites,
)
from penstock.wire.amqp10.values import Described


@dataclass(frozen=True, slots=True)
class Error:
    """Why something ended or was refused: a condition for programs, a description for people."""

    condition: str
    description: str | None = None
    info: dict[Any, Any] | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """So much of it is there, after a delivery was interrupted."""

    section_number: int
    section_offset: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """The receiver has it, and it is the receiver's."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """It is invalid, and nobody should try again."""

    error: Error | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """It was not looked at, and is as it was."""


@dataclass(frozen=True, slots=True)
class Modified:
    """It was not taken, and is to be changed before it is offered again."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: dict[Any, Any] | None = field(default=None, hash=False)


State = Received | Accepted | Rejected | Released | Modified | Described

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

ERROR: Final = Composite(0x1D, "amqp:error:list", Error, (SYMBOL_, STRING, MAP))
ERRORS: Final = Composites((ERROR,))

STATES: Final = Composites(
    (
        Composite(0x23, "amqp:received:list", Received, (UINT, ULONG)),
        Composite(0x24, "amqp:accepted:list", Accepted, ()),
        Composite(0x25, "amqp:rejected:list", Rejected, (ERRORS.kind("error"),)),
        Composite(0x26, "amqp:released:list", Released, ()),
        Composite(0x27, "amqp:modified:list", Modified, (BOOLEAN, BOOLEAN, MAP)),
    )
)

#: What ends a delivery. `received` does not.
OUTCOMES: Final = (Accepted, Rejected, Released, Modified)

#: The names of the outcomes, as a source offers them.
OUTCOME_NAMES: Final = (
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
)

_BYTES: Final = {ACCEPTED: b"\x00\x53\x24\x45", RELEASED: b"\x00\x53\x26\x45"}


def encode_state(state: State | None) -> bytes:
    if state is None:
        return b"\x40"
    if isinstance(state, Accepted | Released):
        return _BYTES[state]
    return STATES.encode(state)
