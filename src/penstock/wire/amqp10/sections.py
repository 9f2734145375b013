"""Where the sections of a message lie in its bytes.

A message is a run of described values in a fixed order: what the sender says of it (the *head*),
then its body, then perhaps a footer. Finding them costs a look at each section's size; nothing is
decoded until somebody asks (`message.py` has the values). The head of a message that is still
arriving is read as soon as it is whole, however long the body will be.
"""

from __future__ import annotations

from typing import Final

from penstock.wire.amqp10.decoding import decode, skip, skip_plain
from penstock.wire.amqp10.errors import DecodeError, Truncated
from penstock.wire.amqp10.primitives import Buffer
from penstock.wire.amqp10.values import Symbol

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_SYMBOLS: Final = {
    Symbol("amqp:header:list"): HEADER,
    Symbol("amqp:delivery-annotations:map"): DELIVERY_ANNOTATIONS,
    Symbol("amqp:message-annotations:map"): MESSAGE_ANNOTATIONS,
    Symbol("amqp:properties:list"): PROPERTIES,
    Symbol("amqp:application-properties:map"): APPLICATION_PROPERTIES,
    Symbol("amqp:data:binary"): DATA,
    Symbol("amqp:amqp-sequence:list"): SEQUENCE,
    Symbol("amqp:amqp-value:*"): VALUE,
    Symbol("amqp:footer:map"): FOOTER,
}

_LISTS: Final = frozenset({0x45, 0xC0, 0xD0})
_MAPS: Final = frozenset({0xC1, 0xD1})

#: The constructors a section's value may have; a value may have any.
_CONSTRUCTORS: Final = {
    HEADER: _LISTS,
    DELIVERY_ANNOTATIONS: _MAPS,
    MESSAGE_ANNOTATIONS: _MAPS,
    PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS,
    DATA: frozenset({0xA0, 0xB0}),
    SEQUENCE: _LISTS,
    VALUE: None,
    FOOTER: _MAPS,
}


def section(code: int) -> bytes:
    """What stands before the value of a section."""
    return bytes((0x00, 0x53, code))


class Head:
    """What comes before the body: each section as its encoded value, or None."""

    __slots__ = (
        "application_properties",
        "body_at",
        "delivery_annotations",
        "header",
        "kind",
        "message_annotations",
        "properties",
    )

    def __init__(self) -> None:
        self.header: bytes | None = None
        self.delivery_annotations: bytes | None = None
        self.message_annotations: bytes | None = None
        self.properties: bytes | None = None
        self.application_properties: bytes | None = None
        self.kind = DATA  #: the kind of the body's sections
        self.body_at = 0  #: where they begin


_PLACES: Final = {
    HEADER: "header",
    DELIVERY_ANNOTATIONS: "delivery_annotations",
    MESSAGE_ANNOTATIONS: "message_annotations",
    PROPERTIES: "properties",
    APPLICATION_PROPERTIES: "application_properties",
}


def read_head(buffer: Buffer, *, whole: bool = True) -> Head | None:
    """The head of a message; None while it has not all arrived, unless the bytes are the whole."""
    head = Head()
    at, end, last = 0, len(buffer), 0
    try:
        while at < end:
            code, start = section_at(buffer, at, end)
            if code >= DATA:
                head.kind = code if code < FOOTER else DATA
                break
            if code <= last:
                raise DecodeError(f"section 0x{code:02x} at byte {at} is out of order")
            at = skip_plain(buffer, start, end)
            setattr(head, _PLACES[code], bytes(buffer[start:at]))
            last = code
        else:
            if not whole:
                return None
    except Truncated:
        if whole:
            raise
        return None
    head.body_at = at
    return head


class Body:
    """The sections of a body: where the value of each lies, and the footer."""

    __slots__ = ("end", "extents", "footer", "kind", "start")

    def __init__(self, start: int, kind: int) -> None:
        self.start = start
        self.end = start  #: where the last section ends and the footer begins
        self.kind = kind
        self.extents: list[tuple[int, int]] = []
        self.footer: bytes | None = None


def read_body(buffer: Buffer, head: Head) -> Body:
    """What follows the head of a whole message."""
    at, end = head.body_at, len(buffer)
    body = Body(at, head.kind)
    while at < end:
        code, start = section_at(buffer, at, end)
        stop = skip(buffer, start, end)
        if code == FOOTER:
            if stop != end:
                raise DecodeError(f"{end - stop} bytes after the footer")
            body.footer = bytes(buffer[start:stop])
            break
        if code != head.kind or (code == VALUE and body.extents):
            raise DecodeError(f"section 0x{code:02x} at byte {at} is out of order")
        body.extents.append((start, stop))
        at = body.end = stop
    return body


def data_of(buffer: Buffer, extents: list[tuple[int, int]]) -> bytes:
    """The bytes that data sections hold, one after the other."""
    if len(extents) == 1:
        start, stop = extents[0]
        return bytes(buffer[start + (2 if buffer[start] == 0xA0 else 5) : stop])
    return b"".join(
        [bytes(buffer[at + (2 if buffer[at] == 0xA0 else 5) : stop]) for at, stop in extents]
    )


def section_at(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    """Which section begins here, and where its value does."""
    start = at + 3
    if start < end and buffer[at] == 0 and buffer[at + 1] == 0x53:
        code = buffer[at + 2]
    else:
        code, start = _descriptor_at(buffer, at, end)
    if code not in _CONSTRUCTORS:
        raise DecodeError(f"no section of a message is 0x{code:02x}, at byte {at}")
    allowed = _CONSTRUCTORS[code]
    if allowed is not None and buffer[start] not in allowed:
        raise DecodeError(f"section 0x{code:02x} holds a 0x{buffer[start]:02x}, at byte {start}")
    return code, start


def _descriptor_at(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    """The same, for descriptors that are written in full, or as symbols."""
    if buffer[at] != 0:
        raise DecodeError(f"a message has sections, not a 0x{buffer[at]:02x}, at byte {at}")
    descriptor, start = decode(buffer, at + 1, end)
    if start >= end:
        raise Truncated(f"section at byte {at} ends after its descriptor")
    if isinstance(descriptor, str):
        return _SYMBOLS.get(Symbol(descriptor), 0), start
    return descriptor if isinstance(descriptor, int) else 0, start
