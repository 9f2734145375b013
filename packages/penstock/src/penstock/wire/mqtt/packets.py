"""MQTT packets as values: decoders for the broker, encoders for the packets it sends.

A decoder takes a whole body, as `PacketReader` passes it to `on_packet`, and either consumes every
byte or raises `MqttError` with the reason code of the standard. PUBLISH and acknowledgements are
read in `reader.py`. Encoders omit what the client's protocol version has no field for; they do not
check whether a packet is allowed now or fits the client's maximum packet size.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import Final

from penstock.wire.mqtt.fields import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    VARINT_MAX,
    malformed_packet,
    read_binary,
    read_byte,
    read_packet_identifier,
    read_two_byte_integer,
    read_utf8_string,
    write_varint,
)
from penstock.wire.mqtt.properties import (
    WILL_PROPERTIES,
    MqttProperties,
    MqttProperty,
    encode_properties,
    read_properties,
)
from penstock.wire.mqtt.reason_codes import CONNACK_RETURN_CODES, MqttError, ReasonCode
from penstock.wire.mqtt.topics import check_topic_filter, check_topic_name, split_shared_filter

#: Valid in a DISCONNECT of either side.
_DISCONNECT_REASON_CODES: Final = frozenset(
    {
        *(ReasonCode.SUCCESS, ReasonCode.DISCONNECT_WITH_WILL_MESSAGE),
        *(ReasonCode.UNSPECIFIED_ERROR, ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR),
        *(
            ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
            ReasonCode.NOT_AUTHORIZED,
            ReasonCode.SERVER_BUSY,
        ),
        *(ReasonCode.SERVER_SHUTTING_DOWN, ReasonCode.BAD_AUTHENTICATION_METHOD),
        *(ReasonCode.KEEP_ALIVE_TIMEOUT, ReasonCode.SESSION_TAKEN_OVER),
        *(ReasonCode.TOPIC_FILTER_INVALID, ReasonCode.TOPIC_NAME_INVALID),
        *(ReasonCode(number) for number in range(0x93, 0xA3)),
    }
)
_AUTH_REASON_CODES: Final = frozenset(
    {ReasonCode.SUCCESS, ReasonCode.CONTINUE_AUTHENTICATION, ReasonCode.RE_AUTHENTICATE}
)


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """One filter of a SUBSCRIBE; options that 3.1.1 lacks have their defaults."""

    filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


def decode_subscribe(
    body: bytes, version: int
) -> tuple[int, MqttProperties, list[SubscriptionRequest]]:
    number, properties, pos = _decode_identifier_and_properties(body, version, SUBSCRIBE)
    subscriptions: list[SubscriptionRequest] = []
    while pos < len(body):
        filter_, pos = read_utf8_string(body, pos)
        options, pos = read_byte(body, pos)
        subscriptions.append(_decode_subscription(filter_, options, version))
    if not subscriptions:
        raise MqttError(ReasonCode.PROTOCOL_ERROR, "SUBSCRIBE without a topic filter")
    return number, properties, subscriptions


def decode_unsubscribe(body: bytes, version: int) -> tuple[int, MqttProperties, list[str]]:
    number, properties, pos = _decode_identifier_and_properties(body, version, UNSUBSCRIBE)
    filters: list[str] = []
    while pos < len(body):
        filter_, pos = read_utf8_string(body, pos)
        check_topic_filter(split_shared_filter(filter_)[1])
        filters.append(filter_)
    if not filters:
        raise MqttError(ReasonCode.PROTOCOL_ERROR, "UNSUBSCRIBE without a topic filter")
    return number, properties, filters


def decode_disconnect(body: bytes, version: int) -> tuple[ReasonCode, MqttProperties]:
    if version < 5 and body:
        raise malformed_packet(
            f"DISCONNECT with {len(body)} bytes, none are allowed before MQTT 5.0"
        )
    return _decode_reason_and_properties(body, DISCONNECT, _DISCONNECT_REASON_CODES)


def decode_auth(body: bytes) -> tuple[ReasonCode, MqttProperties]:
    reason, properties = _decode_reason_and_properties(body, AUTH, _AUTH_REASON_CODES)
    if body and MqttProperty.AUTHENTICATION_METHOD not in properties:
        raise MqttError(ReasonCode.PROTOCOL_ERROR, "AUTH without an authentication method")
    return reason, properties


def _decode_identifier_and_properties(
    body: bytes, version: int, kind: int
) -> tuple[int, MqttProperties, int]:
    number, pos = read_packet_identifier(body, 0)
    if version < 5:
        return number, {}, pos
    properties, pos = read_properties(body, pos, kind)
    return number, properties, pos


def _decode_subscription(filter: str, options: int, version: int) -> SubscriptionRequest:  # noqa: A002
    group, plain = split_shared_filter(filter)
    check_topic_filter(plain)
    if options & (0b1100_0000 if version == 5 else 0b1111_1100):
        raise malformed_packet(f"reserved bits in the subscription options {options:#x}")
    qos, handling = options & 3, options >> 4 & 3
    if qos == 3:
        reason = ReasonCode.PROTOCOL_ERROR if version == 5 else ReasonCode.MALFORMED_PACKET
        raise MqttError(reason, "subscription with QoS 3")
    if handling == 3:
        raise MqttError(ReasonCode.PROTOCOL_ERROR, "subscription with retain handling 3")
    no_local = options & 4 != 0
    if no_local and group is not None:
        raise MqttError(ReasonCode.PROTOCOL_ERROR, "shared subscription with the no-local option")
    return SubscriptionRequest(filter, qos, no_local, options & 8 != 0, handling)


def _decode_reason_and_properties(
    body: bytes, kind: int, legal: frozenset[ReasonCode]
) -> tuple[ReasonCode, MqttProperties]:
    """A reason and properties; both may be omitted from the end."""
    if not body:
        return ReasonCode.SUCCESS, {}
    if body[0] not in legal:
        raise MqttError(
            ReasonCode.PROTOCOL_ERROR, f"reason code {body[0]:#x} is not allowed in this packet"
        )
    properties, pos = read_properties(body, 1, kind) if len(body) > 1 else ({}, 1)
    if pos < len(body):
        raise malformed_packet(f"{len(body) - pos} bytes after the end of the properties")
    return ReasonCode(body[0]), properties


#: The levels of each protocol name: MQTT 3.1.1 and 5.0, and 3.1.
_PROTOCOL_LEVELS: Final = {b"MQTT": (4, 5), b"MQIsdp": (3,)}

# Connect flags.
RESERVED_FLAG: Final = 0x01
CLEAN_START_FLAG: Final = 0x02
WILL_FLAG: Final = 0x04
WILL_QOS_BITS: Final = 0x18
WILL_RETAIN_FLAG: Final = 0x20
PASSWORD_FLAG: Final = 0x40
USERNAME_FLAG: Final = 0x80


@dataclass(frozen=True, slots=True)
class ConnectWill:
    """Published when the connection ends without a DISCONNECT."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: MqttProperties = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConnectPacket:
    version: int  #: 3 for MQTT 3.1, 4 for 3.1.1, 5 for 5.0
    client_id: str
    clean_start: bool  #: "clean session" before 5.0
    keep_alive: int  #: seconds; 0 for none
    username: str | None = None
    password: bytes | None = None
    will: ConnectWill | None = None
    properties: MqttProperties = field(default_factory=dict)


def decode_connect(body: bytes) -> ConnectPacket:
    """An `MqttError` has the requested level in `version`, so that the answer can be in it."""
    version, pos = _decode_version(body)
    try:
        return _decode_connect(body, pos, version)
    except MqttError as error:
        error.version = version
        raise


def _decode_version(body: bytes) -> tuple[int, int]:
    name, pos = read_binary(body, 0)
    level, pos = read_byte(body, pos)
    if level not in _PROTOCOL_LEVELS.get(name, ()):
        error = MqttError(
            ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
            f"protocol {name[:20]!r} level {level}: only MQTT 3.1, 3.1.1 and 5.0 are supported",
        )
        error.version = level if name in _PROTOCOL_LEVELS else 0
        raise error
    return level, pos


def _decode_connect(body: bytes, pos: int, version: int) -> ConnectPacket:
    flags, pos = read_byte(body, pos)
    _check_flags(flags, version)
    keep_alive, pos = read_two_byte_integer(body, pos)
    properties: MqttProperties = {}
    if version == 5:
        properties, pos = read_properties(body, pos, CONNECT)
        _check_authentication(properties)
    client_id, pos = read_utf8_string(body, pos)
    _check_client_id(client_id, flags, version)
    will: ConnectWill | None = None
    if flags & WILL_FLAG:
        will, pos = _decode_will(body, pos, flags, version)
    username: str | None = None
    if flags & USERNAME_FLAG:
        username, pos = read_utf8_string(body, pos)
    password: bytes | None = None
    if flags & PASSWORD_FLAG:
        password, pos = read_binary(body, pos)
    if pos < len(body):
        raise malformed_packet(f"{len(body) - pos} bytes after the end of CONNECT")
    clean_start = flags & CLEAN_START_FLAG != 0
    return ConnectPacket(
        version, client_id, clean_start, keep_alive, username, password, will, properties
    )


def _decode_will(body: bytes, pos: int, flags: int, version: int) -> tuple[ConnectWill, int]:
    properties: MqttProperties = {}
    if version == 5:
        properties, pos = read_properties(body, pos, WILL_PROPERTIES)
    topic, pos = read_utf8_string(body, pos)
    check_topic_name(topic)
    payload, pos = read_binary(body, pos)
    qos, retain = (flags & WILL_QOS_BITS) >> 3, flags & WILL_RETAIN_FLAG != 0
    return ConnectWill(topic, payload, qos, retain, properties), pos


def _check_flags(flags: int, version: int) -> None:
    # MQTT 3.1 does not reserve this bit.
    if flags & RESERVED_FLAG and version > 3:
        raise malformed_packet("reserved connect flag is set")
    if flags & WILL_QOS_BITS == WILL_QOS_BITS:
        raise malformed_packet("will with QoS 3")
    if flags & (WILL_QOS_BITS | WILL_RETAIN_FLAG) and not flags & WILL_FLAG:
        raise MqttError(ReasonCode.PROTOCOL_ERROR, "will QoS or will retain without a will")
    if flags & PASSWORD_FLAG and not flags & USERNAME_FLAG and version < 5:
        raise MqttError(ReasonCode.PROTOCOL_ERROR, "password without a user name")


def _check_authentication(properties: MqttProperties) -> None:
    data, method = MqttProperty.AUTHENTICATION_DATA, MqttProperty.AUTHENTICATION_METHOD
    if data in properties and method not in properties:
        raise MqttError(ReasonCode.PROTOCOL_ERROR, "authentication data without a method")


def _check_client_id(client_id: str, flags: int, version: int) -> None:
    """An empty identifier is replaced by the broker; before 5.0, only for a clean session."""
    if client_id or version == 5 or (version == 4 and flags & CLEAN_START_FLAG):
        return
    raise MqttError(
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        "client identifier is empty and clean session is not set",
    )


PINGRESP_PACKET: Final = b"\xd0\x00"

_pack_short = Struct(">H").pack
_pack_small = Struct(">BBH").pack
_pack_medium = Struct(">BBBH").pack
_pack_acknowledgement = Struct(">BBH").pack


def encode_publish(
    first: int, topic: bytes, number: int, properties: bytes | None, payload: bytes
) -> bytes:
    return encode_publish_start(first, topic, number, properties, len(payload)) + payload


def encode_publish_start(
    first: int, topic: bytes, number: int, properties: bytes | None, size: int
) -> bytes:
    """A PUBLISH up to its payload of `size` bytes.

    `first` is 0x30 with its flags; `number` is written for QoS 1 and 2; `properties` include their
    length, and are None before MQTT 5.0.
    """
    length = len(topic)
    rest = length + size + 2
    if properties is None:
        properties = b""
    else:
        rest += len(properties)
    if first & 6:
        properties = _pack_short(number) + properties
        rest += 2
    try:
        if rest < 128:
            return _pack_small(first, rest, length) + topic + properties
        if rest < 16_384:
            return _pack_medium(first, rest & 127 | 128, rest >> 7, length) + topic + properties
        if rest > VARINT_MAX:
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, f"{rest} bytes do not fit in a packet")
        return bytes((first,)) + write_varint(rest) + _pack_short(length) + topic + properties
    except StructError:
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, f"topic of {length} bytes") from None


def encode_acknowledgement(
    kind: int,
    number: int,
    reason: int = 0,
    properties: MqttProperties | None = None,
    version: int = 4,
) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""
    first = kind << 4 | (2 if kind == PUBREL else 0)
    if version < 5 or not (reason or properties):
        return _pack_acknowledgement(first, 2, number)
    body = _pack_short(number) + bytes((reason,))
    if properties:
        body += encode_properties(properties)
    return bytes((first,)) + write_varint(len(body)) + body


#: As fast one by one as by columns.
FEW_PUBACKS: Final = 12


def encode_pubacks(numbers: Sequence[int]) -> bytes:
    """PUBACK for each packet identifier, without a reason."""
    if len(numbers) < FEW_PUBACKS:
        return b"".join([_pack_acknowledgement(PUBACK << 4, 2, number) for number in numbers])
    words = array("H", bytes(4 * len(numbers)))
    words[::2] = array("H", (PUBACK << 12 | 2,)) * len(numbers)
    words[1::2] = array("H", numbers)
    if sys.byteorder == "little":
        words.byteswap()
    return words.tobytes()


def encode_connack(
    version: int, present: bool, reason: ReasonCode, properties: MqttProperties | None = None
) -> bytes:
    """`present`: a session was resumed; not sent in MQTT 3.1 and in a refusal."""
    flags = int(present and not reason and version > 3)
    if version < 5:
        # Reasons that these versions lack become 3, "server unavailable".
        return bytes((CONNACK << 4, 2, flags, CONNACK_RETURN_CODES.get(reason, 3)))
    return _encode_packet(CONNACK, bytes((flags, reason)) + encode_properties(properties or {}))


def encode_suback(
    version: int, number: int, reasons: Iterable[int], properties: MqttProperties | None = None
) -> bytes:
    if version < 5:
        # Before MQTT 5.0 there is one failure code.
        answers = bytes(reason if reason < 3 else 0x80 for reason in reasons)
        return _encode_packet(SUBACK, _pack_short(number) + answers)
    return _encode_reason_list(SUBACK, number, reasons, properties)


def encode_unsuback(
    version: int, number: int, reasons: Iterable[int], properties: MqttProperties | None = None
) -> bytes:
    if version < 5:
        return _encode_packet(UNSUBACK, _pack_short(number))
    return _encode_reason_list(UNSUBACK, number, reasons, properties)


def encode_disconnect(reason: int, properties: MqttProperties | None = None) -> bytes:
    """MQTT 5.0 only: before, servers do not send it."""
    return _encode_packet(DISCONNECT, _encode_reason_and_properties(reason, properties))


def encode_auth(reason: int, properties: MqttProperties | None = None) -> bytes:
    return _encode_packet(AUTH, _encode_reason_and_properties(reason, properties))


def _encode_packet(kind: int, body: bytes) -> bytes:
    return bytes((kind << 4,)) + write_varint(len(body)) + body


def _encode_reason_list(
    kind: int, number: int, reasons: Iterable[int], properties: MqttProperties | None
) -> bytes:
    opening = _pack_short(number) + encode_properties(properties or {})
    return _encode_packet(kind, opening + bytes(reasons))


def _encode_reason_and_properties(reason: int, properties: MqttProperties | None) -> bytes:
    if properties:
        return bytes((reason,)) + encode_properties(properties)
    return bytes((reason,)) if reason else b""
