"""What most messages say, from bytes to bytes.

Properties that are short texts, and application properties that are texts, numbers and booleans,
differ between AMQP 1.0 and 0-9-1 by a letter and a length. What has anything else in it is left to
the long way (None), which decides what is wrong with it, if something is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.protocols.amqp10.conversion.properties import RawBasicProperties
from penstock.protocols.amqp10.conversion.values import is_utf8

if TYPE_CHECKING:
    from penstock.protocols.amqp10.conversion.incoming import ConvertedMessage

_LIST8: Final = 0xC0
_MAP8: Final = 0xC1
_STRING8: Final = 0xA1
_SYMBOL8: Final = 0xA3
_NULL: Final = 0x40
_TIMESTAMP: Final = 0x83

#: The fields that are short texts on both sides, by their place.
_SHORT_STRING_FIELDS: Final = {
    0: "message_id",
    5: "correlation_id",
    6: "content_type",
    7: "content_encoding",
    10: "app_id",
}
_TO: Final = 2
_SUBJECT: Final = 3
_CREATION_TIME: Final = 9
#: Those that are looked at here; the ones after them are rare.
_FAST_FIELDS: Final = 11

#: Values that are the same octets behind another letter: by code, the letter and the width.
_FIXED_WIDTH: Final = {
    0x71: (b"I", 4),
    0x82: (b"d", 8),
}


def convert_data_message(payload: bytes) -> tuple[bytes | None, bytes] | None:
    """The header and the body of a message that is one section of data, with a header or none."""
    at = 0
    header = None
    if payload.startswith(b"\x00\x53\x70\xc0") and len(payload) > 4:
        at = 5 + payload[4]
        header = payload[3:at]
    if payload.startswith(b"\x00\x53\x75\xa0", at):
        start = at + 5
        size = payload[at + 4] if start <= len(payload) else -1
    elif payload.startswith(b"\x00\x53\x75\xb0", at):
        start = at + 8
        size = int.from_bytes(payload[at + 4 : start], "big")
    else:
        return None
    return (header, payload[start:]) if start + size == len(payload) else None


def convert_properties(
    encoded: bytes, basic: RawBasicProperties, found: ConvertedMessage
) -> bool | None:
    """Whether they come back exact; where the message wants to go is noted on the way."""
    if len(encoded) < 3 or encoded[0] != _LIST8 or encoded[2] > _FAST_FIELDS:
        return None
    at, end = 3, len(encoded)
    exact = True
    for place in range(encoded[2]):
        if at + 1 >= end:
            if at >= end or encoded[at] != _NULL:
                return None
            at += 1
            continue
        code = encoded[at]
        if code == _NULL:
            at += 1
        elif code in (_STRING8, _SYMBOL8):
            start = at + 1
            at = start + 1 + encoded[start]
            short = encoded[start:at]
            if at > end or not short.isascii() or b"urn:uuid:" in short or 0 in short[1:]:
                return None
            name = _SHORT_STRING_FIELDS.get(place)
            if name is not None:
                setattr(basic, name, short)
            elif place in (_TO, _SUBJECT):
                exact = False
                setattr(found, "to" if place == _TO else "subject", short[1:].decode())
            else:
                return None
        elif place == _CREATION_TIME and code == _TIMESTAMP and at + 9 <= end:
            milliseconds = int.from_bytes(encoded[at + 1 : at + 9], "big", signed=True)
            if milliseconds < 0:
                return None
            basic.timestamp = milliseconds // 1000
            exact &= not milliseconds % 1000
            at += 9
        else:
            return None
    return exact if at == end else None


def convert_application_properties(encoded: bytes) -> tuple[bytes, bool] | None:
    """The table they are, without its length; and whether they come back exact."""
    if len(encoded) < 3 or encoded[0] != _MAP8 or encoded[2] & 1:
        return None
    at, end = 3, len(encoded)
    parts: list[bytes] = []
    names: set[bytes] = set()
    exact = True
    for _ in range(encoded[2] // 2):
        if at + 2 >= end or encoded[at] != _STRING8:
            return None
        start = at + 1
        at = start + 1 + encoded[start]
        name = encoded[start:at]
        if at >= end or not name.isascii() or name[1:3] == b"x-":
            return None
        code = encoded[at]
        if code == _STRING8 and at + 2 <= end:
            start = at + 2
            at = start + encoded[start - 1]
            text = encoded[start:at]
            if at > end or not is_utf8(text):
                return None
            field = b"S" + len(text).to_bytes(4, "big") + text
        elif code in (0x41, 0x42):
            field = b"t\x01" if code == 0x41 else b"t\x00"
            at += 1
        else:
            found = _convert_number(encoded, at, end)
            if found is None:
                return None
            field, at, same = found
            exact &= same
        names.add(name)
        parts += (name, field)
    if at != end or len(names) * 2 != len(parts):
        return None
    if b"\x02CC" in names or b"\x03BCC" in names:  # all other names that mean something have x-
        return None
    return b"".join(parts), exact


def _convert_number(encoded: bytes, at: int, end: int) -> tuple[bytes, int, bool] | None:
    """A number as a field, where it ends, and whether it keeps its type."""
    code = encoded[at]
    fixed = _FIXED_WIDTH.get(code)
    if fixed is not None:
        letter, width = fixed
        after = at + 1 + width
        return (letter + encoded[at + 1 : after], after, True) if after <= end else None
    if code in (0x52, 0x54, 0x55):  # an unsigned, an integer or a long, in one octet
        if at + 2 > end:
            return None
        value = encoded[at + 1]
        if code != 0x52 and value > 127:
            value -= 256
        return b"I" + value.to_bytes(4, "big", signed=True), at + 2, code == 0x54
    return None
