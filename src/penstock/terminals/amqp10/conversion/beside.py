"""What travels beside a message because AMQP 0-9-1 cannot say it, and whether it still holds.

A section that came by AMQP 1.0 and would not come back exact is kept in a header. Between then and
the delivery somebody may have changed the message: a relay that speaks 0-9-1, a dead-letter
exchange. So what was kept is believed only as far as converting it again gives what the message
now says.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.core.errors import WireSyntaxError
from penstock.core.tables import decode_table
from penstock.terminals.amqp10.conversion.basic import Basic
from penstock.terminals.amqp10.conversion.headers import (
    BROKERS,
    CC,
    CLUSTER_ID,
    COMPLEX,
    TYPE,
    application_name,
    carried_name,
)
from penstock.terminals.amqp10.conversion.properties import (
    CORRELATION_ID,
    MESSAGE_ID,
    REPLY_TO_TOPIC,
    carry_in,
)
from penstock.terminals.amqp10.conversion.sealing import SEAL
from penstock.terminals.amqp10.conversion.tables import ARRAY, LONG, TABLE, fields, is_text, string
from penstock.terminals.amqp10.conversion.values import plain
from penstock.wire.amqp10.codec import decode_whole
from penstock.wire.amqp10.encoding import compound, encode, sized
from penstock.wire.amqp10.errors import DecodeError, EncodeError
from penstock.wire.amqp10.message import PROPERTY_FIELDS, read_list
from penstock.wire.amqp10.sections import (
    APPLICATION_PROPERTIES,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    section,
)

PROPERTIES_BESIDE: Final = b"x-amqp-1.0-properties"
APPLICATION: Final = b"x-amqp-1.0-app-properties"
ANNOTATIONS: Final = b"x-amqp-1.0-message-annotations"
FOOTER_BESIDE: Final = b"x-amqp-1.0-footer"
VALUE_KIND: Final = b"x-amqp-1.0-value"
#: The type of a body that is sections of AMQP 1.0, as RabbitMQ has it.
ENCODED: Final = b"\x08amqp-1.0"

_KEPT: Final = {
    PROPERTIES_BESIDE: PROPERTIES,
    APPLICATION: APPLICATION_PROPERTIES,
    ANNOTATIONS: MESSAGE_ANNOTATIONS,
    FOOTER_BESIDE: FOOTER,
}
_EXTRA: Final = {name.encode(): name for name in (MESSAGE_ID, CORRELATION_ID, REPLY_TO_TOPIC)}
_OFFSET: Final = b"x-stream-offset"
#: MQTT's own, and what exchanges take off.
_SILENT: Final = frozenset({b"x-mqtt-properties", b"BCC", SEAL})

#: Annotations that are made of something else.
_TOLD: Final = BROKERS | {CC, TYPE, CLUSTER_ID}

_COMPARED: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "message_id",
    "timestamp",
    "user_id",
    "app_id",
)


class Beside:
    """What was found among the headers that is not a header of its own."""

    __slots__ = ("extra", "footer", "kind", "properties")

    def __init__(self) -> None:
        self.properties = b""  #: the section as it came, if it still holds
        self.footer = b""
        self.kind: str | None = None  #: of a value that is the body
        self.extra: dict[str, bytes] = {}  #: ids and addresses that did not fit elsewhere


def sort_fields(basic: Basic, beside: Beside) -> tuple[bytes, dict[bytes, bytes]]:
    """Application properties, encoded; and annotations, by encoded name."""
    annotations: dict[bytes, bytes] = {}
    application: dict[bytes, bytes] = {}
    kept: dict[int, bytes] = {}
    for name, letter, encoded in fields(basic.table or b""):
        if name[:2] == b"x-":
            if name in _KEPT:
                kept[_KEPT[name]] = _content(encoded)
            elif name in _EXTRA:
                beside.extra[_EXTRA[name]] = encoded
            elif name == VALUE_KIND:
                beside.kind = _content(encoded).decode("ascii", "replace")
            elif name == _OFFSET and letter == LONG:
                annotations[sized(0xA3, name)] = b"\x80" + encoded[1:]  # offsets are ulongs
            elif name in _SILENT:
                continue
            elif name.isascii():
                annotations.setdefault(sized(0xA3, name), encoded)
        elif name == b"CC":
            annotations.setdefault(encode_symbol(CC), encoded)
        elif letter in (TABLE, ARRAY):
            if name.isascii():
                annotations.setdefault(sized(0xA3, COMPLEX.encode() + name), encoded)
        elif name not in _SILENT and is_text(name):
            application.setdefault(string(name), encoded)
    if basic.type is not None and basic.type != ENCODED:
        annotations[encode_symbol(TYPE)] = string(basic.type[1:])
    if basic.cluster_id is not None:
        annotations[encode_symbol(CLUSTER_ID)] = string(basic.cluster_id[1:])
    if not kept:
        return _map(application), annotations
    return _with_kept(kept, basic, beside, application, annotations)


def encode_symbol(name: str) -> bytes:
    return sized(0xA3, name.encode())


def _content(encoded: bytes) -> bytes:
    """What a text or a binary holds; of other values, nothing that could be a section."""
    if encoded[0] in (0xA0, 0xA1):
        return encoded[2:]
    return encoded[5:] if encoded[0] in (0xB0, 0xB1) else b""


def _map(pairs: dict[bytes, bytes]) -> bytes:
    if not pairs:
        return b""
    return compound(
        0xC1, 2 * len(pairs), b"".join([part for pair in pairs.items() for part in pair])
    )


def _with_kept(
    kept: dict[int, bytes],
    basic: Basic,
    beside: Beside,
    application: dict[bytes, bytes],
    annotations: dict[bytes, bytes],
) -> tuple[bytes, dict[bytes, bytes]]:
    values: dict[int, Any] = {}
    for code, whole in kept.items():
        if whole.startswith(section(code)):
            try:
                values[code] = decode_whole(whole[3:])
            except DecodeError:
                continue
    if PROPERTIES in values and _properties_hold(kept[PROPERTIES][3:], basic, beside.extra):
        beside.properties = kept[PROPERTIES]
    if isinstance(values.get(FOOTER), dict):
        beside.footer = kept[FOOTER]
    now = _headers(basic)
    told = values.get(APPLICATION_PROPERTIES)
    encoded = _map(application)
    if isinstance(told, dict) and _application_holds(told, now):
        encoded = kept[APPLICATION_PROPERTIES][3:]
        for name in told:
            annotations.pop(encode_symbol(name) if name.isascii() else b"", None)
    noted = values.get(MESSAGE_ANNOTATIONS)
    if isinstance(noted, dict):
        _restore(noted, now, annotations)
    return encoded, annotations


def _headers(basic: Basic) -> dict[str, Any]:
    table = basic.table or b""
    try:
        return decode_table(len(table).to_bytes(4, "big") + table)[0]
    except WireSyntaxError:
        return {}


def _properties_hold(encoded: bytes, basic: Basic, extra: dict[str, bytes]) -> bool:
    again = Basic()
    headers: dict[str, Any] = {}
    try:
        carry_in(read_list(encoded, PROPERTY_FIELDS), again, headers)
    except (DecodeError, EncodeError):
        return False
    if {name: encode(plain(value)) for name, value in headers.items()} != extra:
        return False
    return all(getattr(again, name) == getattr(basic, name) for name in _COMPARED)


def _application_holds(told: dict[Any, Any], now: dict[str, Any]) -> bool:
    """Whether the headers are what these properties became, and no others."""
    names: set[str] = set()
    for name, value in told.items():
        if not isinstance(name, str):
            return False
        if not application_name(name):
            continue
        try:
            became = plain(value)
        except EncodeError:
            continue
        if name not in now or now[name] != became:
            return False
        names.add(name)
    return all(
        name in names or name[:2] == "x-" or name == "CC" or isinstance(value, list | dict)
        for name, value in now.items()
    )


def _restore(noted: dict[Any, Any], now: dict[str, Any], annotations: dict[bytes, bytes]) -> None:
    """Put annotations back as they came where the headers do not say otherwise."""
    for key, value in noted.items():
        name = carried_name(key, value)
        encoded = encode(key)
        if name is None:
            if encoded not in annotations and key not in _TOLD:
                annotations[encoded] = encode(value)
            continue
        try:
            became = plain(value)
        except EncodeError:  # it never was a header
            annotations[encoded] = encode(value)
            continue
        if name in now and now[name] == became:
            annotations[encoded] = encode(value)
