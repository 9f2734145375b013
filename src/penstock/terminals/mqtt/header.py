"""How every MQTT packet begins: a byte for its kind and flags, and the length of what follows.

The reader's own pieces, set apart: they know nothing of a stream, only of the bytes they are given.
What is missing is reported, for more may come; what can come to nothing raises `MqttError`.
"""

from __future__ import annotations

from typing import Final

from penstock.terminals.mqtt.fields import (
    PUBLISH,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    malformed,
)
from penstock.terminals.mqtt.reasons import MqttError, Reason


def _kind_of(first: int) -> int:
    """The kind of a packet by its first byte, 0 if its flags are not legal."""
    kind, flags = first >> 4, first & 15
    if kind == PUBLISH:
        qos = flags >> 1 & 3
        return 0 if qos == 3 or (qos == 0 and flags & 8) else PUBLISH
    return kind if flags == (2 if kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE) else 0) else 0


#: What `_kind_of` says of every byte there is.
KINDS: Final[bytes] = bytes(map(_kind_of, range(256)))

#: MQTT 3.1 sends these again with DUP set.
REPEATED: Final = {kind << 4 | 8 | 2: kind for kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE)}


def read_length(data: bytes, pos: int, version: int) -> tuple[int, int]:
    """The length at `pos` and where it ends, which is 0 if there is more of it to come."""
    size = 0
    for shift in (0, 7, 14, 21):
        if pos >= len(data):
            return 0, 0
        byte = data[pos]
        pos += 1
        size |= (byte & 127) << shift
        if byte < 128:
            # Only 5.0 asks for the shortest form; small devices are fond of a fixed one.
            if not byte and shift and version == 5:
                raise malformed("a length has more bytes than it needs")
            return size, pos
    raise malformed("a length of more than four bytes")


def property_length(data: bytes, pos: int, after: int) -> tuple[int, int]:
    """As `read_length`, in a packet that ends at `after`."""
    window = data[pos : min(pos + 4, after)]
    length, used = read_length(window, 0, 5)
    if used:
        return length, pos + used
    if pos + len(window) == after:
        raise short_publish()
    return 0, 0


def illegal(first: int) -> MqttError:
    if first >> 4 == PUBLISH:
        return malformed("PUBLISH with QoS 3" if first & 6 == 6 else "PUBLISH with DUP at QoS 0")
    return malformed(f"no packet of this version begins with {first:#04x}")


def too_large(size: int, limit: int) -> MqttError:
    return MqttError(Reason.PACKET_TOO_LARGE, f"packet of {size} bytes, at most {limit}")


def short_publish() -> MqttError:
    return malformed("the fields of a PUBLISH run past its end")
