"""A message of the content language with what travels beside it, as frames carry it.

The text is in the language (or the id of what is undone); nobody has to read it to pass it on. The
first broker gives a message its id and its time. What stands behind `source` is between brokers
alone: clients neither set it nor see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from penstock.core.errors import WireSyntaxError
from penstock.wire.padres.fields import (
    decode_bytes,
    decode_double,
    decode_octet,
    decode_signed,
    decode_text,
    decode_unsigned,
    encode_bytes,
    encode_double,
    encode_signed,
    encode_text,
    encode_unsigned,
)

#: A message that may go as far as there are brokers.
UNLIMITED_TTL: Final = -1
#: What has no priority of its own; less goes first.
DEFAULT_PRIORITY: Final = 4


class EnvelopeKind(IntEnum):
    ADVERTISE = 1
    SUBSCRIBE = 2
    COMPOSITE = 3  #: a subscription to several publications together
    PUBLISH = 4
    UNADVERTISE = 5  #: the text is the id
    UNSUBSCRIBE = 6
    UNCOMPOSITE = 7


@dataclass(frozen=True, slots=True)
class PadresEnvelope:
    kind: EnvelopeKind
    text: str
    id: str = ""  #: B1-M7; empty until the first broker has given it one
    payload: bytes = b""  #: of a publication; not looked at
    priority: int = DEFAULT_PRIORITY
    ttl: int = UNLIMITED_TTL  #: how many links it may still cross
    time: float = 0.0  #: seconds since 1970
    trace: str = ""  #: under which id its way is told
    durable: bool = True  #: a publication that a confirm is to outlive a crash
    options: tuple[tuple[str, str], ...] = ()  #: of a subscription: policy, size, seconds…
    source: str = ""  #: who sent it to its first broker, as B1-ada

    tree: str = ""  #: the advertisement whose tree it follows, where brokers form cycles
    target_brokers: tuple[str, ...] = ()  #: the brokers this copy is for; empty for all on the tree
    tree_changes: int = 0  #: how often it has changed trees


# Envelopes as bytes: the kind, which of the fields follow, the text, and these fields.
#
# What has its usual value is left out, so that a publication costs three bytes beside its text.

_ID: Final = 0x001
_PAYLOAD: Final = 0x002
_PRIORITY: Final = 0x004
_TTL: Final = 0x008
_TIME: Final = 0x010
_TRACE: Final = 0x020
_TRANSIENT: Final = 0x040
_OPTIONS: Final = 0x080
_SOURCE: Final = 0x100
_TREE: Final = 0x200
_ONLY: Final = 0x400
_TURNS: Final = 0x800
_ALL_FIELDS: Final = 0xFFF

_KINDS: Final = {int(kind): kind for kind in EnvelopeKind}


def encode_envelope(envelope: PadresEnvelope) -> bytes:
    present = 0
    parts = [encode_text(envelope.text)]
    if envelope.id:
        present |= _ID
        parts.append(encode_text(envelope.id))
    if envelope.payload:
        present |= _PAYLOAD
        parts.append(encode_bytes(envelope.payload))
    if envelope.priority != DEFAULT_PRIORITY:
        present |= _PRIORITY
        parts.append(encode_signed(envelope.priority))
    if envelope.ttl != UNLIMITED_TTL:
        present |= _TTL
        parts.append(encode_signed(envelope.ttl))
    if envelope.time:
        present |= _TIME
        parts.append(encode_double(envelope.time))
    if envelope.trace:
        present |= _TRACE
        parts.append(encode_text(envelope.trace))
    if not envelope.durable:
        present |= _TRANSIENT
    if envelope.options:
        present |= _OPTIONS
        parts.append(encode_unsigned(len(envelope.options)))
        parts += [encode_text(name) + encode_text(value) for name, value in envelope.options]
    if envelope.source:
        present |= _SOURCE
        parts.append(encode_text(envelope.source))
    if envelope.tree or envelope.target_brokers or envelope.tree_changes:
        present |= _encode_routing_fields(envelope, parts)
    return bytes((envelope.kind,)) + encode_unsigned(present) + b"".join(parts)


def _encode_routing_fields(envelope: PadresEnvelope, parts: list[bytes]) -> int:
    """What brokers say to each other of the way it takes."""
    present = 0
    if envelope.tree:
        present |= _TREE
        parts.append(encode_text(envelope.tree))
    if envelope.target_brokers:
        present |= _ONLY
        parts.append(encode_unsigned(len(envelope.target_brokers)))
        parts += map(encode_text, envelope.target_brokers)
    if envelope.tree_changes:
        present |= _TURNS
        parts.append(encode_unsigned(envelope.tree_changes))
    return present


def decode_envelope(data: bytes, pos: int) -> tuple[PadresEnvelope, int]:
    number, pos = decode_octet(data, pos)
    kind = _KINDS.get(number)
    if kind is None:
        raise WireSyntaxError(f"there is no message of kind {number}")
    present, pos = decode_unsigned(data, pos)
    said, pos = decode_text(data, pos)
    if not present:
        return PadresEnvelope(kind, said), pos
    if present & ~_ALL_FIELDS:
        raise WireSyntaxError(f"an envelope has fields nobody knows: {present & ~_ALL_FIELDS:#x}")
    id_ = trace = source = tree = ""
    payload = b""
    priority, ttl, time, tree_changes = DEFAULT_PRIORITY, UNLIMITED_TTL, 0.0, 0
    options: tuple[tuple[str, str], ...] = ()
    target_brokers: tuple[str, ...] = ()
    if present & _ID:
        id_, pos = decode_text(data, pos)
    if present & _PAYLOAD:
        payload, pos = decode_bytes(data, pos)
    if present & _PRIORITY:
        priority, pos = decode_signed(data, pos)
    if present & _TTL:
        ttl, pos = decode_signed(data, pos)
    if present & _TIME:
        time, pos = decode_double(data, pos)
    if present & _TRACE:
        trace, pos = decode_text(data, pos)
    if present & _OPTIONS:
        options, pos = _decode_options(data, pos)
    if present & _SOURCE:
        source, pos = decode_text(data, pos)
    if present & _TREE:
        tree, pos = decode_text(data, pos)
    if present & _ONLY:
        target_brokers, pos = _decode_texts(data, pos)
    if present & _TURNS:
        tree_changes, pos = decode_unsigned(data, pos)
    durable = not present & _TRANSIENT
    return PadresEnvelope(
        *(kind, said, id_, payload, priority, ttl, time, trace, durable),
        *(options, source, tree, target_brokers, tree_changes),
    ), pos


def _decode_texts(data: bytes, pos: int) -> tuple[tuple[str, ...], int]:
    count, pos = decode_unsigned(data, pos)
    found = []
    for _ in range(min(count, len(data))):
        one, pos = decode_text(data, pos)
        found.append(one)
    if len(found) != count:
        raise WireSyntaxError(f"{count} texts are announced, and not there")
    return tuple(found), pos


def _decode_options(data: bytes, pos: int) -> tuple[tuple[tuple[str, str], ...], int]:
    count, pos = decode_unsigned(data, pos)
    found = []
    for _ in range(min(count, len(data))):
        name, pos = decode_text(data, pos)
        value, pos = decode_text(data, pos)
        found.append((name, value))
    if len(found) != count:
        raise WireSyntaxError(f"{count} options are announced, and not there")
    return tuple(found), pos
