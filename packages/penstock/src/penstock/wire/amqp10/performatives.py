"""Delivery states, sources and targets, and the performatives that are not frequent, also of SASL.

Transfer, flow and disposition are in `transfers.py`. A delivery state of an extension stays a
`Described` value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from penstock.wire.amqp10.codec import decode
from penstock.wire.amqp10.composites import (
    ANY,
    BINARY,
    BOOLEAN,
    MAP,
    STRING,
    SYMBOL_FIELD,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    CompositeType,
    CompositeTypes,
)
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.frames import AMQP_FRAME, SASL_FRAME, encode_frame
from penstock.wire.amqp10.values import Described


@dataclass(frozen=True, slots=True)
class Amqp10Error:
    condition: str
    description: str | None = None
    info: dict[Any, Any] | None = None


@dataclass(frozen=True, slots=True)
class ReceivedState:
    """How much of an interrupted delivery was received."""

    section_number: int
    section_offset: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """The receiver has taken the message."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The message is invalid and is not to be redelivered."""

    error: Amqp10Error | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """The message was not processed and is to be redelivered unchanged."""


@dataclass(frozen=True, slots=True)
class Modified:
    """The message was not processed and is to be changed before its redelivery."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: dict[Any, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Declared:
    """A transaction has begun."""

    txn_id: bytes


@dataclass(frozen=True, slots=True)
class TransactionalState:
    """The outcome, once the transaction is committed."""

    txn_id: bytes
    outcome: Any = None


DeliveryState = (
    ReceivedState
    | Accepted
    | Rejected
    | Released
    | Modified
    | Declared
    | TransactionalState
    | Described
)

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

ERROR: Final = CompositeType(0x1D, "amqp:error:list", Amqp10Error, (SYMBOL_FIELD, STRING, MAP))
ERRORS: Final = CompositeTypes((ERROR,))

_OUTCOME_TYPES: Final = (
    CompositeType(0x24, "amqp:accepted:list", Accepted, ()),
    CompositeType(0x25, "amqp:rejected:list", Rejected, (ERRORS.kind("error"),)),
    CompositeType(0x26, "amqp:released:list", Released, ()),
    CompositeType(0x27, "amqp:modified:list", Modified, (BOOLEAN, BOOLEAN, MAP)),
)
_OUTCOME_FIELD: Final = CompositeTypes(_OUTCOME_TYPES).kind("an outcome")
DELIVERY_STATES: Final = CompositeTypes(
    (
        CompositeType(0x23, "amqp:received:list", ReceivedState, (UINT, ULONG)),
        *_OUTCOME_TYPES,
        CompositeType(0x33, "amqp:declared:list", Declared, (BINARY,)),
        CompositeType(
            0x34, "amqp:transactional-state:list", TransactionalState, (BINARY, _OUTCOME_FIELD)
        ),
    )
)

#: The terminal states.
OUTCOMES: Final = (Accepted, Rejected, Released, Modified, Declared)

OUTCOME_NAMES: Final = (
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
)

_ENCODED_STATES: Final = {ACCEPTED: b"\x00\x53\x24\x45", RELEASED: b"\x00\x53\x26\x45"}


def encode_delivery_state(state: DeliveryState | None) -> bytes:
    if state is None:
        return b"\x40"
    if isinstance(state, Accepted | Released):
        return _ENCODED_STATES[state]
    return DELIVERY_STATES.encode(state)


# Terminus durability: what survives the link.
NOT_DURABLE: Final = 0
CONFIGURATION: Final = 1  #: its existence
UNSETTLED_STATE: Final = 2  #: and its unsettled deliveries

# When the timeout of a terminus begins.
LINK_DETACH: Final = "link-detach"
SESSION_END: Final = "session-end"
CONNECTION_CLOSE: Final = "connection-close"
NEVER: Final = "never"
EXPIRY_POLICIES: Final = (LINK_DETACH, SESSION_END, CONNECTION_CLOSE, NEVER)

# Distribution modes.
MOVE: Final = "move"
COPY: Final = "copy"


@dataclass(slots=True)
class LinkSource:
    address: Any = None
    durable: int = NOT_DURABLE
    expiry_policy: str = SESSION_END
    timeout: int = 0  #: seconds from the event of the expiry policy
    dynamic: bool = False
    dynamic_node_properties: dict[Any, Any] | None = None
    distribution_mode: str | None = None
    filter: dict[Any, Any] | None = None
    default_outcome: DeliveryState | None = None
    outcomes: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()


@dataclass(slots=True)
class LinkTarget:
    address: Any = None
    durable: int = NOT_DURABLE
    expiry_policy: str = SESSION_END
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: dict[Any, Any] | None = None
    capabilities: tuple[str, ...] = ()


@dataclass(slots=True)
class TransactionCoordinator:
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Declare:
    """Begin a transaction."""

    global_id: Any = None  #: of a distributed transaction


@dataclass(frozen=True, slots=True)
class Discharge:
    """End a transaction: commit it, or with `fail` roll it back."""

    txn_id: bytes
    fail: bool = False


#: What a client sends to the coordinator.
TRANSACTION_REQUESTS: Final = CompositeTypes(
    (
        CompositeType(0x31, "amqp:declare:list", Declare, (ANY,)),
        CompositeType(0x32, "amqp:discharge:list", Discharge, (BINARY, BOOLEAN)),
    )
)


@dataclass(frozen=True, slots=True)
class DeleteOnClose:
    """A dynamic node is deleted with the link that created it."""


@dataclass(frozen=True, slots=True)
class DeleteOnNoLinks:
    """It is deleted when no link uses it."""


@dataclass(frozen=True, slots=True)
class DeleteOnNoMessages:
    """It is deleted with the link that created it, once it is empty."""


@dataclass(frozen=True, slots=True)
class DeleteOnNoLinksOrMessages:
    """It is deleted when no link uses it and it is empty."""


LIFETIME_POLICIES: Final = CompositeTypes(
    (
        CompositeType(0x2B, "amqp:delete-on-close:list", DeleteOnClose, ()),
        CompositeType(0x2C, "amqp:delete-on-no-links:list", DeleteOnNoLinks, ()),
        CompositeType(0x2D, "amqp:delete-on-no-messages:list", DeleteOnNoMessages, ()),
        CompositeType(
            0x2E, "amqp:delete-on-no-links-or-messages:list", DeleteOnNoLinksOrMessages, ()
        ),
    )
)

_SOURCE_FIELDS: Final = (
    *(ANY, UINT, SYMBOL_FIELD, UINT, BOOLEAN, MAP, SYMBOL_FIELD, MAP),
    *(DELIVERY_STATES.kind("an outcome", others=True), SYMBOLS, SYMBOLS),
)
SOURCES: Final = CompositeTypes(
    (CompositeType(0x28, "amqp:source:list", LinkSource, _SOURCE_FIELDS),)
)

_TARGET_FIELDS: Final = (ANY, UINT, SYMBOL_FIELD, UINT, BOOLEAN, MAP, SYMBOLS)
TARGETS: Final = CompositeTypes(
    (
        CompositeType(0x29, "amqp:target:list", LinkTarget, _TARGET_FIELDS),
        CompositeType(0x30, "amqp:coordinator:list", TransactionCoordinator, (SYMBOLS,)),
    )
)


# The roles of a link's endpoint.
SENDER: Final = False
RECEIVER: Final = True

# Sender settle modes.
UNSETTLED: Final = 0
SETTLED: Final = 1
MIXED: Final = 2

# Receiver settle modes.
FIRST: Final = 0  #: settles a delivery at once
SECOND: Final = 1  #: settles after the sender

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
    remote_channel: int | None = None  #: of the begin that this answers
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
    source: LinkSource | None = None
    target: LinkTarget | TransactionCoordinator | None = None
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
    error: Amqp10Error | None = None


@dataclass(slots=True)
class End:
    error: Amqp10Error | None = None


@dataclass(slots=True)
class Close:
    error: Amqp10Error | None = None


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


_ERROR_FIELD: Final = ERRORS.kind("error")

_OPEN_FIELDS: Final = (
    *(STRING, STRING, UINT, USHORT, UINT),
    *(SYMBOLS, SYMBOLS, SYMBOLS, SYMBOLS, MAP),
)
_BEGIN_FIELDS: Final = (USHORT, UINT, UINT, UINT, UINT, SYMBOLS, SYMBOLS, MAP)
_ATTACH_FIELDS: Final = (
    *(STRING, UINT, BOOLEAN, UBYTE, UBYTE, SOURCES.kind("a source"), TARGETS.kind("a target")),
    *(MAP, BOOLEAN, UINT, ULONG, SYMBOLS, SYMBOLS, MAP),
)
PERFORMATIVES: Final = CompositeTypes(
    (
        CompositeType(0x10, "amqp:open:list", Open, _OPEN_FIELDS),
        CompositeType(0x11, "amqp:begin:list", Begin, _BEGIN_FIELDS),
        CompositeType(0x12, "amqp:attach:list", Attach, _ATTACH_FIELDS),
        CompositeType(0x16, "amqp:detach:list", Detach, (UINT, BOOLEAN, _ERROR_FIELD)),
        CompositeType(0x17, "amqp:end:list", End, (_ERROR_FIELD,)),
        CompositeType(0x18, "amqp:close:list", Close, (_ERROR_FIELD,)),
    )
)

SASL_PERFORMATIVES: Final = CompositeTypes(
    (
        CompositeType(0x40, "amqp:sasl-mechanisms:list", SaslMechanisms, (SYMBOLS,)),
        CompositeType(0x41, "amqp:sasl-init:list", SaslInit, (SYMBOL_FIELD, BINARY, STRING)),
        CompositeType(0x42, "amqp:sasl-challenge:list", SaslChallenge, (BINARY,)),
        CompositeType(0x43, "amqp:sasl-response:list", SaslResponse, (BINARY,)),
        CompositeType(0x44, "amqp:sasl-outcome:list", SaslOutcome, (UBYTE, BINARY)),
    )
)


def decode_performative(known: CompositeTypes, data: bytes, at: int, stop: int) -> Any:
    """The performative in a frame's body."""
    value, after = decode(data, at, stop)
    composite = known.find(value.descriptor) if isinstance(value, Described) else None
    if composite is None:
        raise DecodeError("unknown performative")
    if after != stop:
        raise DecodeError(f"{stop - after} bytes after {composite.symbol}")
    return composite.read(value.value)


def encode_performative_frame(channel: int, performative: Any) -> bytes:
    return encode_frame(channel, PERFORMATIVES.encode(performative), AMQP_FRAME)


def encode_sasl_frame(performative: Any) -> bytes:
    return encode_frame(0, SASL_PERFORMATIVES.encode(performative), SASL_FRAME)
