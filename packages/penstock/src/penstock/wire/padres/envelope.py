"""A message of the content language with its metadata, as frames carry it.

The text is in the content language (or the id of what is undone); a broker can pass it on unparsed.
The first broker assigns the id and the time. The fields after `source` are exchanged between
brokers only. Encoded, a message is its kind, the flags of the fields that are present, the text and
these fields; fields with default values are omitted.
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

UNLIMITED_TTL: Final = -1
#: Lower numbers are sent first.
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
    id: str = ""  #: B1-M7; empty until the first broker assigns one
    payload: bytes = b""  #: of a publication
    priority: int = DEFAULT_PRIORITY
    ttl: int = UNLIMITED_TTL  #: how many more links it may cross
    time: float = 0.0  #: seconds since 1970
    trace: str = ""  #: the id under which its route is traced
    durable: bool = True  #: a confirmed publication survives a crash
    options: tuple[tuple[str, str], ...] = ()  #: of a subscription: policy, size, seconds…
    source: str = ""  #: the client that published it, as B1-ada

    tree: str = ""  #: the advertisement whose tree it follows, where brokers form cycles
    target_brokers: tuple[str, ...] = ()  #: the brokers this copy is for; empty for all on the tree
    tree_changes: int = 0  #: how often it has changed trees


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
        raise WireSyntaxError(f"unknown message kind {number}")
    present, pos = decode_unsigned(data, pos)
    text, pos = decode_text(data, pos)
    if not present:
        return PadresEnvelope(kind, text), pos
    if present & ~_ALL_FIELDS:
        raise WireSyntaxError(f"unknown fields in an envelope: {present & ~_ALL_FIELDS:#x}")
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
        *(kind, text, id_, payload, priority, ttl, time, trace, durable),
        *(options, source, tree, target_brokers, tree_changes),
    ), pos


def _decode_texts(data: bytes, pos: int) -> tuple[tuple[str, ...], int]:
    count, pos = decode_unsigned(data, pos)
    found = []
    for _ in range(min(count, len(data))):
        one, pos = decode_text(data, pos)
        found.append(one)
    if len(found) != count:
        raise WireSyntaxError(f"{count} texts announced, {len(found)} present")
    return tuple(found), pos


def _decode_options(data: bytes, pos: int) -> tuple[tuple[tuple[str, str], ...], int]:
    count, pos = decode_unsigned(data, pos)
    found = []
    for _ in range(min(count, len(data))):
        name, pos = decode_text(data, pos)
        value, pos = decode_text(data, pos)
        found.append((name, value))
    if len(found) != count:
        raise WireSyntaxError(f"{count} options announced, {len(found)} present")
    return tuple(found), pos
