"""Packet types and field types of MQTT.

A reader takes bytes and a position and returns the value and the position after it; a writer
returns bytes. Both raise `MqttError`: reading a malformed packet, or writing a value that MQTT
cannot represent.
"""

from __future__ import annotations

from typing import Final

from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

#: The largest variable byte integer, and so the largest packet.
VARINT_MAX: Final = 268_435_455
STRING_MAX_BYTES: Final = 65_535


def malformed_packet(text: str) -> MqttError:
    return MqttError(ReasonCode.MALFORMED_PACKET, text)


def truncated_field(what: str, pos: int) -> MqttError:
    return malformed_packet(f"{what} at byte {pos} extends past the end of its container")


def missing_packet_identifier() -> MqttError:
    return MqttError(ReasonCode.PROTOCOL_ERROR, "the packet identifier is 0")


def read_byte(data: bytes, pos: int) -> tuple[int, int]:
    if pos >= len(data):
        raise truncated_field("byte", pos)
    return data[pos], pos + 1


def read_two_byte_integer(data: bytes, pos: int) -> tuple[int, int]:
    after = pos + 2
    if after > len(data):
        raise truncated_field("two-byte integer", pos)
    return data[pos] << 8 | data[pos + 1], after


def read_four_byte_integer(data: bytes, pos: int) -> tuple[int, int]:
    after = pos + 4
    if after > len(data):
        raise truncated_field("four-byte integer", pos)
    return int.from_bytes(data[pos:after], "big"), after


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """A variable byte integer in its shortest form."""
    value = 0
    for shift in (0, 7, 14, 21):
        if pos >= len(data):
            raise truncated_field("variable byte integer", pos)
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if not byte and shift:
                raise malformed_packet("variable byte integer is not in its shortest form")
            return value, pos
    raise malformed_packet("variable byte integer of more than four bytes")


def read_binary(data: bytes, pos: int) -> tuple[bytes, int]:
    length, start = read_two_byte_integer(data, pos)
    after = start + length
    if after > len(data):
        raise truncated_field("binary data", pos)
    return data[start:after], after


def read_utf8_string(data: bytes, pos: int) -> tuple[str, int]:
    content, after = read_binary(data, pos)
    return decode_utf8_string(content), after


def decode_utf8_string(content: bytes) -> str:
    """Strict UTF-8, without U+0000."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise malformed_packet(f"text is not UTF-8: {error.reason} at byte {error.start}") from None
    if "\0" in text:
        raise malformed_packet("text contains U+0000")
    return text


def read_packet_identifier(data: bytes, pos: int) -> tuple[int, int]:
    number, after = read_two_byte_integer(data, pos)
    if not number:
        raise missing_packet_identifier()
    return number, after


def write_byte(value: int) -> bytes:
    return _write(value, 1)


def write_two_byte_integer(value: int) -> bytes:
    return _write(value, 2)


def write_four_byte_integer(value: int) -> bytes:
    return _write(value, 4)


def write_varint(value: int) -> bytes:
    if 0 <= value < 128:
        return bytes((value,))
    if not 0 <= value <= VARINT_MAX:
        raise malformed_packet(f"{value} does not fit in a variable byte integer")
    content = bytearray()
    while value > 127:
        content.append(value & 127 | 128)
        value >>= 7
    content.append(value)
    return bytes(content)


def write_binary(value: bytes) -> bytes:
    if len(value) > STRING_MAX_BYTES:
        raise malformed_packet(
            f"{len(value)} bytes do not fit in a field of at most {STRING_MAX_BYTES}"
        )
    return len(value).to_bytes(2, "big") + value


def write_utf8_string(value: str) -> bytes:
    try:
        content = value.encode()
    except UnicodeEncodeError:
        raise malformed_packet("text with a lone surrogate cannot be written as UTF-8") from None
    if b"\0" in content:
        raise malformed_packet("text with U+0000 cannot be written")
    return write_binary(content)


def _write(value: int, size: int) -> bytes:
    try:
        return value.to_bytes(size, "big")
    except OverflowError:
        raise malformed_packet(f"{value} does not fit in {size} bytes") from None
