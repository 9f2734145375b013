"""What lies in a stream of RabbitMQ, into record batches, without touching single messages.

RabbitMQ keeps what was published over AMQP 0-9-1 as messages of AMQP 1.0: exchange and routing key
as annotations, properties and headers in their sections, the body as data. All before the body is
the *head*; there are few different ones in a stream, or at least parts of them are few, so each is
translated once. The result is what the broker itself makes of it for a consumer over AMQP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from struct import Struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.amqp.octets import Octets, Places
from penstock.pipeline.brokers.contract import MESSAGES, Range
from penstock.pipeline.rabbitmq.chunks import Block, Unusual
from penstock.wire.amqp10.decoding import decode_whole
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.message import Properties, read_properties
from penstock.wire.amqp10.sections import DATA, HEADER, Head, read_head
from penstock.wire.amqp10.values import Timestamp

#: The sections that may stand before the body.
_SECTIONS: Final = 5
#: What stands before the value of a section: a sign, a small number, which.
_DESCRIBED: Final = 0x0053
#: By constructor, whether a value has its size in one byte, or in four; and one that has none.
_SMALL: Final = np.isin(np.arange(256), (0xA0, 0xC0, 0xC1))
_LARGE: Final = np.isin(np.arange(256), (0xB0, 0xD0, 0xD1))
_NOTHING: Final = 0x45
_BASIC: Final = b"\x00\x3c\x00\x00"
_LONG: Final = Struct(">q")
_DOUBLE: Final = Struct(">d")
_HEADS: Final = 16_384
#: So that a size may be read behind the last message.
_MARGIN: Final = bytes(8)


def batch_of(block: Block, wanted: Range) -> pa.RecordBatch | None:
    """The messages of a block that are wanted; none are.

    Raises `Unusual` for a message that did not come over AMQP 0-9-1 and is not like one.
    """
    first, last = np.searchsorted(block.offsets, (wanted.start, wanted.stop))
    if first >= last:
        return None
    starts, stops = block.starts[first:last], block.stops[first:last]
    heads, bodies = _bodies(Octets(block.data + _MARGIN), starts, stops)
    encoded = _binary(block.data, starts, heads).dictionary_encode()
    found = [_translated(head) for head in encoded.dictionary.to_pylist()]
    columns = [
        pa.array(block.offsets[first:last]),
        pa.array(block.moments_ms[first:last]).cast(MESSAGES.field("timestamp").type),
        _names(encoded.indices, [each.exchange for each in found]),
        _names(encoded.indices, [each.routing_key for each in found]),
        _properties(encoded.indices, [each.properties for each in found], stops - bodies),
        _binary(block.data, bodies, stops),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MESSAGES)


def _bodies(octets: Octets, starts: Places, stops: Places) -> tuple[Places, Places]:
    """Where the head of each message ends, and where its body begins, which ends the message."""
    u8, u16 = octets.u8, octets.u16
    at = starts
    for _ in range(_SECTIONS):
        kind = u8[at + 2]
        head = (u16[at] == _DESCRIBED) & (kind >= HEADER) & (kind < DATA)
        if not head.any():
            break
        at = np.where(head, np.minimum(_ends(octets, at), stops), at)
    if ((u16[at] != _DESCRIBED) | (u8[at + 2] != DATA)).any():
        raise Unusual("a body that is no data")
    if (_ends(octets, at) != stops).any():
        raise Unusual("a body of several parts")
    return at, at + np.where(_SMALL[u8[at + 3]], 5, 8)


def _ends(octets: Octets, at: Places) -> Places:
    """Where the sections end that begin there; nowhere if their form is unknown."""
    form = octets.u8[at + 3]
    small = at + 5 + octets.u8[at + 4].astype(np.int64)
    large = at + 8 + octets.u32[at + 4].astype(np.int64)
    return np.select(
        [_SMALL[form], _LARGE[form], form == _NOTHING], [small, large, at + 4], default=-1
    )


def _binary(data: bytes, starts: Places, stops: Places) -> pa.Array:
    """The bytes between those places; what lies between two of them is every second value."""
    places = np.empty(len(starts) * 2, np.int32)
    places[0::2], places[1::2] = starts, stops
    buffers = [None, pa.py_buffer(places), pa.py_buffer(data)]
    taking_turns = pa.Array.from_buffers(pa.binary(), len(places) - 1, buffers)
    return taking_turns.take(pa.array(np.arange(len(starts)) * 2))


def _names(indices: pa.Array, words: list[str]) -> pa.Array:
    """Text that comes again and again; different heads may have the same."""
    found = pa.array(words, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(found.indices.take(indices), found.dictionary)


def _properties(indices: pa.Array, found: list[bytes], sizes: Places) -> pa.Array:
    """The content headers, of which each has the size of the body in its midst."""
    size = sizes.astype(">i8").view(np.uint8)
    places = np.arange(0, len(sizes) * 8 + 1, 8, dtype=np.int32)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(size)]
    numbers = pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
    behind = pa.array(found, pa.binary()).take(indices)
    return pc.binary_join_element_wise(pa.scalar(_BASIC, pa.binary()), numbers, behind, b"")


@dataclass(frozen=True, slots=True)
class _Translated:
    exchange: str
    routing_key: str
    properties: bytes  #: the content header of AMQP 0-9-1, from its flags on


@lru_cache(_HEADS)
def _translated(head: bytes) -> _Translated:
    try:
        sections = read_head(head)
        assert sections is not None  # it is whole
        return _translate(sections)
    except DecodeError as error:
        raise Unusual(f"a message that cannot be read: {error}") from None


def _translate(head: Head) -> _Translated:
    notes = decode_whole(head.message_annotations) if head.message_annotations else {}
    values = decode_whole(head.application_properties) if head.application_properties else {}
    told = read_properties(head.properties) if head.properties else Properties()
    kind, application = values.pop("x-basic-type", None), values.pop("x-basic-app-id", None)
    user = None if told.user_id is None else told.user_id.decode("utf-8", "replace")
    # In the order of the flags, from the highest bit down.
    fields = (
        _short(told.content_type),
        _short(told.content_encoding),
        _table(values) if values else None,
        _octet(notes.get("x-basic-delivery-mode")),
        _octet(notes.get("x-basic-priority")),
        _short(told.correlation_id),
        _short(told.reply_to),
        _short(notes.get("x-basic-expiration")),
        _short(told.message_id),
        None if told.creation_time is None else _LONG.pack(told.creation_time // 1000),
        _short(kind),
        _short(user),
        _short(application),
    )
    flags = sum(0x8000 >> place for place, field in enumerate(fields) if field is not None)
    properties = flags.to_bytes(2, "big") + b"".join(filter(None, fields))
    return _Translated(
        str(notes.get("x-exchange", "")), str(notes.get("x-routing-key", "")), properties
    )


def _table(values: Mapping[Any, Any]) -> bytes:
    named = sorted(
        ((str(name), value) for name, value in values.items()), key=itemgetter(0)
    )  # as RabbitMQ has them
    entries = b"".join(_required(name) + _field(value) for name, value in named)
    return len(entries).to_bytes(4, "big") + entries


def _field(value: Any) -> bytes:
    """A header's value as a field of AMQP 0-9-1: a letter and what it stands for."""
    match value:
        case None:
            return b"V"
        case bool():
            return b"t" + value.to_bytes(1, "big")
        case bytes():
            return b"x" + len(value).to_bytes(4, "big") + value
        case Timestamp():
            return b"T" + _LONG.pack(value // 1000)
        case str():
            content = value.encode()
            return b"S" + len(content).to_bytes(4, "big") + content
        case int() if -(1 << 63) <= value < 1 << 63:
            return b"l" + _LONG.pack(value)
        case float():
            return b"d" + _DOUBLE.pack(value)
    raise Unusual(f"a header of type {type(value).__name__}")


def _short(value: Any) -> bytes | None:
    return None if value is None else _required(value)


def _required(value: Any) -> bytes:
    if not isinstance(value, str) or len(content := value.encode()) > 255:
        raise Unusual(f"{type(value).__name__} where a short text is expected")
    return bytes((len(content),)) + content


def _octet(value: Any) -> bytes | None:
    return None if value is None else bytes((value,))
