"""Envelopes as bytes: the kind, which of the fields follow, the text, and these fields.

What has its usual value is left out, so that a publication costs three bytes beside its text.
"""

from __future__ import annotations

from typing import Final

from penstock.core.errors import WireSyntaxError
from penstock.wire.padres.envelope import PRIORITY, UNLIMITED_TTL, Envelope, Kind
from penstock.wire.padres.fields import (
    double,
    integer,
    natural,
    octet,
    octets,
    read_double,
    read_integer,
    read_natural,
    read_octets,
    read_text,
    text,
)

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
_KNOWN: Final = 0xFFF

_KINDS: Final = {int(kind): kind for kind in Kind}


def encode_envelope(envelope: Envelope) -> bytes:
    present = 0
    parts = [text(envelope.text)]
    if envelope.id:
        present |= _ID
        parts.append(text(envelope.id))
    if envelope.payload:
        present |= _PAYLOAD
        parts.append(octets(envelope.payload))
    if envelope.priority != PRIORITY:
        present |= _PRIORITY
        parts.append(integer(envelope.priority))
    if envelope.ttl != UNLIMITED_TTL:
        present |= _TTL
        parts.append(integer(envelope.ttl))
    if envelope.time:
        present |= _TIME
        parts.append(double(envelope.time))
    if envelope.trace:
        present |= _TRACE
        parts.append(text(envelope.trace))
    if not envelope.durable:
        present |= _TRANSIENT
    if envelope.options:
        present |= _OPTIONS
        parts.append(natural(len(envelope.options)))
        parts += [text(name) + text(value) for name, value in envelope.options]
    if envelope.source:
        present |= _SOURCE
        parts.append(text(envelope.source))
    if envelope.tree or envelope.only or envelope.turns:
        present |= _encode_course(envelope, parts)
    return bytes((envelope.kind,)) + natural(present) + b"".join(parts)


def _encode_course(envelope: Envelope, parts: list[bytes]) -> int:
    """What brokers say to each other of the way it takes."""
    present = 0
    if envelope.tree:
        present |= _TREE
        parts.append(text(envelope.tree))
    if envelope.only:
        present |= _ONLY
        parts.append(natural(len(envelope.only)))
        parts += map(text, envelope.only)
    if envelope.turns:
        present |= _TURNS
        parts.append(natural(envelope.turns))
    return present


def read_envelope(data: bytes, pos: int) -> tuple[Envelope, int]:
    number, pos = octet(data, pos)
    kind = _KINDS.get(number)
    if kind is None:
        raise WireSyntaxError(f"there is no message of kind {number}")
    present, pos = read_natural(data, pos)
    said, pos = read_text(data, pos)
    if not present:
        return Envelope(kind, said), pos
    if present & ~_KNOWN:
        raise WireSyntaxError(f"an envelope has fields nobody knows: {present & ~_KNOWN:#x}")
    id_ = trace = source = tree = ""
    payload = b""
    priority, ttl, time, turns = PRIORITY, UNLIMITED_TTL, 0.0, 0
    options: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] = ()
    if present & _ID:
        id_, pos = read_text(data, pos)
    if present & _PAYLOAD:
        payload, pos = read_octets(data, pos)
    if present & _PRIORITY:
        priority, pos = read_integer(data, pos)
    if present & _TTL:
        ttl, pos = read_integer(data, pos)
    if present & _TIME:
        time, pos = read_double(data, pos)
    if present & _TRACE:
        trace, pos = read_text(data, pos)
    if present & _OPTIONS:
        options, pos = _read_options(data, pos)
    if present & _SOURCE:
        source, pos = read_text(data, pos)
    if present & _TREE:
        tree, pos = read_text(data, pos)
    if present & _ONLY:
        only, pos = _read_texts(data, pos)
    if present & _TURNS:
        turns, pos = read_natural(data, pos)
    durable = not present & _TRANSIENT
    return Envelope(
        *(kind, said, id_, payload, priority, ttl, time, trace, durable),
        *(options, source, tree, only, turns),
    ), pos


def _read_texts(data: bytes, pos: int) -> tuple[tuple[str, ...], int]:
    count, pos = read_natural(data, pos)
    found = []
    for _ in range(min(count, len(data))):
        one, pos = read_text(data, pos)
        found.append(one)
    if len(found) != count:
        raise WireSyntaxError(f"{count} texts are announced, and not there")
    return tuple(found), pos


def _read_options(data: bytes, pos: int) -> tuple[tuple[tuple[str, str], ...], int]:
    count, pos = read_natural(data, pos)
    found = []
    for _ in range(min(count, len(data))):
        name, pos = read_text(data, pos)
        value, pos = read_text(data, pos)
        found.append((name, value))
    if len(found) != count:
        raise WireSyntaxError(f"{count} options are announced, and not there")
    return tuple(found), pos
