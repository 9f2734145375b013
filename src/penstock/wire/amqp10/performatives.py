"""The performatives that come rarely: open, begin, attach and their ends; and those of SASL.

Transfer, flow and disposition come with every message and are in `transfers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.wire.amqp10.codec import decode
from penstock.wire.amqp10.composites import (
    BINARY,
    BOOLEAN,
    MAP,
    STRING,
    SYMBOL_,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    Composite,
    Composites,
)
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.frames import AMQP, SASL, frame
from penstock.wire.amqp10.states import ERRORS, Error
from penstock.wire.amqp10.termini import SOURCES, TARGETS, Coordinator, Source, Target
from penstock.wire.amqp10.values import Described

#: Who a performative's sender is on a link.
SENDER: Final = False
RECEIVER: Final = True

# Sender settle modes.
UNSETTLED: Final = 0
SETTLED: Final = 1
MIXED: Final = 2

# Receiver settle modes.
FIRST: Final = 0  #: it settles what it has taken at once
SECOND: Final = 1  #: it settles after the sender has

UINT_MAX: Final = 0xFFFFFFFF

Fields = dict[Any, Any] | None
Symbols = tuple[str, ...]


@dataclass(slots=True)
class Open:
    container_id: str
    hostname: str | None = None
    max_frame_size: int = UINT_MAX
    channel_max: int = 0xFFFF
    idle_time_out: int | None = None  #: milliseconds
    outgoing_locales: Symbols = ()
    incoming_locales: Symbols = ()
    offered_capabilities: Symbols = ()
    desired_capabilities: Symbols = ()
    properties: Fields = None


@dataclass(slots=True, kw_only=True)
class Begin:
    remote_channel: int | None = None  #: of the begin that this one answers
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = UINT_MAX
    offered_capabilities: Symbols = ()
    desired_capabilities: Symbols = ()
    properties: Fields = None


@dataclass(slots=True)
class Attach:
    name: str
    handle: int
    role: bool
    snd_settle_mode: int = MIXED
    rcv_settle_mode: int = FIRST
    source: Source | None = None
    target: Target | Coordinator | None = None
    unsettled: Fields = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: Symbols = ()
    desired_capabilities: Symbols = ()
    properties: Fields = None


@dataclass(slots=True)
class Detach:
    handle: int
    closed: bool = False
    error: Error | None = None


@dataclass(slots=True)
class End:
    error: Error | None = None


@dataclass(slots=True)
class Close:
    error: Error | None = None


@dataclass(slots=True)
class SaslMechanisms:
    mechanisms: Symbols


@dataclass(slots=True)
class SaslInit:
    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@dataclass(slots=True)
class SaslChallenge:
    challenge: bytes


@dataclass(slots=True)
class SaslResponse:
    response: bytes


@dataclass(slots=True)
class SaslOutcome:
    code: int
    additional_data: bytes | None = None


_ERROR: Final = ERRORS.kind("error")

_OPEN: Final = (
    STRING,
    STRING,
    UINT,
    USHORT,
    UINT,
    SYMBOLS,
    SYMBOLS,
    SYMBOLS,
    SYMBOLS,
    MAP,
)
_BEGIN: Final = (USHORT, UINT, UINT, UINT, UINT, SYMBOLS, SYMBOLS, MAP)
_ATTACH: Final = (
    STRING,
    UINT,
    BOOLEAN,
    UBYTE,
    UBYTE,
    SOURCES.kind("a source"),
    TARGETS.kind("a target"),
    MAP,
    BOOLEAN,
    UINT,
    ULONG,
    SYMBOLS,
    SYMBOLS,
    MAP,
)

PERFORMATIVES: Final = Composites(
    (
        Composite(0x10, "amqp:open:list", Open, _OPEN),
        Composite(0x11, "amqp:begin:list", Begin, _BEGIN),
        Composite(0x12, "amqp:attach:list", Attach, _ATTACH),
        Composite(0x16, "amqp:detach:list", Detach, (UINT, BOOLEAN, _ERROR)),
        Composite(0x17, "amqp:end:list", End, (_ERROR,)),
        Composite(0x18, "amqp:close:list", Close, (_ERROR,)),
    )
)

SASL_PERFORMATIVES: Final = Composites(
    (
        Composite(0x40, "amqp:sasl-mechanisms:list", SaslMechanisms, (SYMBOLS,)),
        Composite(0x41, "amqp:sasl-init:list", SaslInit, (SYMBOL_, BINARY, STRING)),
        Composite(0x42, "amqp:sasl-challenge:list", SaslChallenge, (BINARY,)),
        Composite(0x43, "amqp:sasl-response:list", SaslResponse, (BINARY,)),
        Composite(0x44, "amqp:sasl-outcome:list", SaslOutcome, (UBYTE, BINARY)),
    )
)


def read_performative(known: Composites, data: bytes, at: int, stop: int) -> Any:
    """The performative that is all of a frame's body."""
    value, after = decode(data, at, stop)
    composite = known.find(value.descriptor) if isinstance(value, Described) else None
    if composite is None:
        raise DecodeError("a frame without a performative that is known")
    if after != stop:
        raise DecodeError(f"{stop - after} bytes behind {composite.symbol}")
    return composite.read(value.value)


def performative_frame(channel: int, performative: Any) -> bytes:
    return frame(channel, PERFORMATIVES.encode(performative), AMQP)


def sasl_frame(performative: Any) -> bytes:
    return frame(0, SASL_PERFORMATIVES.encode(performative), SASL)
