"""The properties section of AMQP 1.0 and the properties of class basic, both ways.

    message-id, correlation-id   message-id, correlation-id: a uuid as urn:uuid:…, a ulong as its
                                 digits, a binary as the text it is; what is no short text goes
                                 into the header x-message-id or x-correlation-id
    user-id                      user-id
    reply-to                     reply-to: the address of a queue as its name, of a topic as the
                                 header x-reply-to-topic, which MQTT reads
    content-type, -encoding      content-type, -encoding; a symbol or a string
    creation-time                timestamp, in seconds
    group-id                     app-id

The others (to, subject, absolute-expiry-time, group-sequence, reply-to-group-id) have no
counterpart. Whoever calls keeps the section beside the message where it would not come back exact.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from penstock.broker.paths import TOPIC_EXCHANGE
from penstock.terminals.amqp10.addresses import parse_address, queue_address
from penstock.terminals.amqp10.conversion.basic import Basic
from penstock.terminals.amqp10.conversion.tables import is_text, string, timestamp
from penstock.wire.amqp10.conditions import LinkFault
from penstock.wire.amqp10.encoding import compound, encode
from penstock.wire.amqp10.sections import PROPERTIES, section

SHORT: Final = 255
MESSAGE_ID: Final = "x-message-id"
CORRELATION_ID: Final = "x-correlation-id"
REPLY_TO_TOPIC: Final = "x-reply-to-topic"

_SECTION: Final = section(PROPERTIES)
_NULL: Final = b"\x40"
_URN: Final = "urn:uuid:"


def carry_in(fields: list[Any], basic: Basic, headers: dict[str, Any]) -> bool:
    """Put the fields of a section where AMQP 0-9-1 has them; says whether they come back exact."""
    (
        message_id,
        user_id,
        to,
        subject,
        reply_to,
        correlation_id,
        content_type,
        content_encoding,
        absolute_expiry,
        creation_time,
        group_id,
        group_sequence,
        reply_to_group,
    ) = fields + [None] * (13 - len(fields))
    exact = (to, subject, absolute_expiry, group_sequence, reply_to_group).count(None) == 5
    if message_id is not None:
        basic.message_id, same = _id_in(message_id, MESSAGE_ID, headers)
        exact &= same
    if correlation_id is not None:
        basic.correlation_id, same = _id_in(correlation_id, CORRELATION_ID, headers)
        exact &= same
    if user_id is not None:
        basic.user_id = _short(user_id)
        exact &= basic.user_id is not None
    if reply_to is not None:
        exact &= _reply_in(reply_to, basic, headers)
    if content_type is not None:
        basic.content_type = _short(content_type.encode())
        exact &= basic.content_type is not None and content_type.isascii()
    if content_encoding is not None:
        basic.content_encoding = _short(content_encoding.encode())
        exact &= basic.content_encoding is not None and content_encoding.isascii()
    if creation_time is not None:
        if creation_time >= 0:
            basic.timestamp = creation_time // 1000
        exact &= creation_time >= 0 and creation_time % 1000 == 0
    if group_id is not None:
        basic.app_id = _short(group_id.encode())
        exact &= basic.app_id is not None
    return exact


def _short(content: bytes) -> bytes | None:
    """A short string, if it is one."""
    if len(content) > SHORT or not is_text(content):
        return None
    return bytes((len(content),)) + content


def _id_in(value: Any, name: str, headers: dict[str, Any]) -> tuple[bytes | None, bool]:
    if isinstance(value, UUID):
        content, exact = value.urn.encode(), True
    elif isinstance(value, bytes):
        content, exact = value, False
    elif isinstance(value, str):
        content, exact = value.encode(), not value.startswith(_URN)
    else:
        content, exact = str(int(value)).encode(), False
    if len(content) > SHORT or 0 in content or not is_text(content):
        headers[name] = value
        return None, True
    return bytes((len(content),)) + content, exact


def _reply_in(address: str, basic: Basic, headers: dict[str, Any]) -> bool:
    try:
        place = parse_address(address)
    except LinkFault:
        basic.reply_to = _short(address.encode())
        return basic.reply_to is not None and address.startswith("/")
    if place.kind == "queue":
        basic.reply_to = _short(place.name.encode())
        return basic.reply_to is not None and address == _queue_address(place.name)
    if place.kind == "exchange" and place.name == TOPIC_EXCHANGE and place.key:
        headers[REPLY_TO_TOPIC] = place.key
        return address == _topic_address(place.key)
    basic.reply_to = _short(address.encode())
    return basic.reply_to is not None


def _queue_address(name: str) -> str:
    return name if name.startswith("/") else queue_address(name)


def _topic_address(key: str) -> str:
    return "/topic/" + key.replace("%", "%25").replace("/", "%2F")


def carry_out(basic: Basic, extra: dict[str, bytes]) -> bytes:
    """The section, from basic properties and the encoded values of the headers named above."""
    fields = [
        _id_out(basic.message_id, extra.get(MESSAGE_ID)),
        _NULL if basic.user_id is None else b"\xa0" + basic.user_id,
        _NULL,
        _NULL,
        _reply_out(basic.reply_to, extra.get(REPLY_TO_TOPIC)),
        _id_out(basic.correlation_id, extra.get(CORRELATION_ID)),
        _symbol(basic.content_type),
        _symbol(basic.content_encoding),
        _NULL,
        _NULL if basic.timestamp is None else _moment(basic.timestamp),
        _NULL if basic.app_id is None else string(basic.app_id[1:]),
    ]
    if fields[10] != _NULL and fields[10][0] == 0xA0:
        fields[10] = _NULL  # a group is named by a text, and this is none
    while fields and fields[-1] == _NULL:
        fields.pop()
    return _SECTION + compound(0xC0, len(fields), b"".join(fields)) if fields else b""


def _id_out(short: bytes | None, beside: bytes | None) -> bytes:
    if short is None:
        return _NULL if beside is None or beside[0] not in _IDS else beside
    if short.startswith(b"urn:uuid:", 1) and len(short) == 46:
        text = short[1:].decode("ascii", "replace")
        try:
            value = UUID(text)
        except ValueError:
            return string(short[1:])
        if value.urn == text:
            return encode(value)
    return string(short[1:])


#: The constructors that an id may have: strings, binaries, a uuid, a ulong.
_IDS: Final = frozenset({0xA0, 0xA1, 0xB0, 0xB1, 0x98, 0x80})


def _reply_out(short: bytes | None, topic: bytes | None) -> bytes:
    if short is not None:
        return encode(_queue_address(short[1:].decode("utf-8", "replace")))
    if topic is None or topic[0] not in (0xA1, 0xB1):
        return _NULL
    return encode(_topic_address(topic[2 if topic[0] == 0xA1 else 5 :].decode()))


def _symbol(short: bytes | None) -> bytes:
    return b"\xa3" + short if short is not None and short[1:].isascii() else _NULL


def _moment(seconds: int) -> bytes:
    """A moment that no calendar of 1.0 reaches is none."""
    encoded = timestamp(seconds) if seconds < 1 << 63 else _NULL
    return encoded if encoded[0] == 0x83 else _NULL
