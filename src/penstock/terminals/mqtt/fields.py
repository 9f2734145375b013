"""What MQTT packets are made of: their kinds, and types of fields, read and written side by side.

A reader takes the bytes and a position and gives the value and the position after it; a writer
gives the bytes. Both raise `MqttError` for what does not fit: reading, because the peer sent a
malformed packet; writing, because the value cannot be said in MQTT at all.
"""

from __future__ import annotations

from typing import Final

from penstock.terminals.mqtt.reasons import MqttError, Reason

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

#: The largest number four bytes of seven bits hold, and so the largest packet.
VARINT_MAX: Final = 268_435_455
#: Text and binary data have a length of two bytes.
LENGTH_MAX: Final = 65_535


def malformed(text: str) -> MqttError:
    return MqttError(Reason.MALFORMED_PACKET, text)


def truncated(what: str, pos: int) -> MqttError:
    return malformed(f"{what} at byte {pos} runs past the end of what holds it")


def no_number() -> MqttError:
    return MqttError(Reason.PROTOCOL_ERROR, "the packet identifier is 0")


def read_byte(data: bytes, pos: int) -> tuple[int, int]:
    if pos >= len(data):
        raise truncated("byte", pos)
    return data[pos], pos + 1


def read_short(data: bytes, pos: int) -> tuple[int, int]:
    after = pos + 2
    if after > len(data):
        raise truncated("two-byte integer", pos)
    return data[pos] << 8 | data[pos + 1], after


def read_long(data: bytes, pos: int) -> tuple[int, int]:
    after = pos + 4
    if after > len(data):
        raise truncated("four-byte integer", pos)
    return int.from_bytes(data[pos:after], "big"), after


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """A number of one to four bytes, seven bits each, spelled as shortly as it can be."""
    value = 0
    for shift in (0, 7, 14, 21):
        if pos >= len(data):
            raise truncated("variable byte integer", pos)
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if not byte and shift:
                raise malformed("a variable byte integer is longer than it needs to be")
            return value, pos
    raise malformed("a variable byte integer of more than four bytes")


def read_binary(data: bytes, pos: int) -> tuple[bytes, int]:
    length, start = read_short(data, pos)
    after = start + length
    if after > len(data):
        raise truncated("binary data", pos)
    return data[start:after], after


def read_text(data: bytes, pos: int) -> tuple[str, int]:
    content, after = read_binary(data, pos)
    return text_of(content), after


def text_of(content: bytes) -> str:
    """UTF-8 as MQTT has it: strictly, so without surrogates, and without U+0000."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"text is not UTF-8: {error.reason} at byte {error.start}") from None
    if "\0" in text:
        raise malformed("text has the character U+0000")
    return text


def read_number(data: bytes, pos: int) -> tuple[int, int]:
    """A packet identifier."""
    number, after = read_short(data, pos)
    if not number:
        raise no_number()
    return number, after


def write_byte(value: int) -> bytes:
    return _write(value, 1)


def write_short(value: int) -> bytes:
    return _write(value, 2)


def write_long(value: int) -> bytes:
    return _write(value, 4)


def varint(value: int) -> bytes:
    """A number of one to four bytes, as `read_varint` reads it."""
    if 0 <= value < 128:
        return bytes((value,))
    if not 0 <= value <= VARINT_MAX:
        raise malformed(f"{value} does not fit in a variable byte integer")
    content = bytearray()
    while value > 127:
        content.append(value & 127 | 128)
        value >>= 7
    content.append(value)
    return bytes(content)


def write_binary(value: bytes) -> bytes:
    if len(value) > LENGTH_MAX:
        raise malformed(f"{len(value)} bytes do not fit in a field of at most {LENGTH_MAX}")
    return len(value).to_bytes(2, "big") + value


def write_text(value: str) -> bytes:
    try:
        content = value.encode()
    except UnicodeEncodeError:
        raise malformed("text with a lone surrogate cannot be written as UTF-8") from None
    if b"\0" in content:
        raise malformed("text with the character U+0000 cannot be written")
    return write_binary(content)


def _write(value: int, size: int) -> bytes:
    try:
        return value.to_bytes(size, "big")
    except OverflowError:
        raise malformed(f"{value} does not fit in {size} bytes") from None
