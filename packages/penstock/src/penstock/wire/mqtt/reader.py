"""The reader of MQTT packets, without I/O.

`PacketReader.feed` calls a `PacketHandler` for each packet. A PUBLISH that is complete, as nearly
all are, takes a fast path: a slice each for topic and payload, and no objects between. Its topic is
checked once and cached. A payload larger than `large` is passed on in pieces. Acknowledgements are
decoded here too; any other packet is passed on as its body, for `packets.py` to decode. Packets of
the same kind in a row, PUBLISH with the same topic or PUBACK, are passed on together.

The reader guarantees that packets are complete, within the limit, have valid flags, and that the
fields it reads are valid. It raises `MqttError`, and exceptions of the handler; after either it
cannot be fed again. The order of packets is checked by the handler.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Final, Protocol

from penstock.wire.mqtt.fields import (
    AUTH,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    malformed_packet,
    missing_packet_identifier,
    read_packet_identifier,
    read_varint,
)
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode
from penstock.wire.mqtt.topics import check_topic_name_bytes

#: The limit of what is buffered until it is complete: any packet but PUBLISH, and of PUBLISH the
#: part before the payload.
MAX_BUFFERED_BYTES: Final = 1 << 20

#: The cache of valid topics: at most about 100 KB per connection.
MAX_CACHED_TOPICS: Final = 512
MAX_CACHED_TOPIC_BYTES: Final = 128
#: Before the first PUBLISH. Many clients only subscribe, and an empty set has 200 bytes.
_NO_TOPICS: Final[frozenset[bytes]] = frozenset()


_PUBACK_REASON_CODES: Final = frozenset(
    {
        *(ReasonCode.SUCCESS, ReasonCode.NO_MATCHING_SUBSCRIBERS, ReasonCode.UNSPECIFIED_ERROR),
        *(
            ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
            ReasonCode.NOT_AUTHORIZED,
            ReasonCode.TOPIC_NAME_INVALID,
        ),
        *(
            ReasonCode.PACKET_IDENTIFIER_IN_USE,
            ReasonCode.QUOTA_EXCEEDED,
            ReasonCode.PAYLOAD_FORMAT_INVALID,
        ),
    }
)
_PUBREL_REASON_CODES: Final = frozenset(
    {ReasonCode.SUCCESS, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND}
)
_ACKNOWLEDGEMENT_REASON_CODES: Final[dict[int, frozenset[ReasonCode]]] = {
    PUBACK: _PUBACK_REASON_CODES,
    PUBREC: _PUBACK_REASON_CODES,
    PUBREL: _PUBREL_REASON_CODES,
    PUBCOMP: _PUBREL_REASON_CODES,
}


class PublicationHandler(Protocol):
    def on_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, payload: bytes
    ) -> None:
        """A complete PUBLISH: its first byte, and properties without their length.

        `number` is 0 at QoS 0. In MQTT 5.0 `topic` may be empty, if there is an alias.
        """

    def on_publish_run(
        self, first: int, topic: bytes, numbers: list[int], payloads: list[bytes]
    ) -> None:
        """Several complete PUBLISH in a row, with the same first byte and topic and no properties,
        neither retained nor sent again. At QoS 0 there are no numbers."""

    def on_large_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, size: int
    ) -> None:
        """The start of a PUBLISH whose payload of `size` bytes follows in `on_payload`."""

    def on_payload(self, piece: memoryview, more: bool) -> None:
        """`piece` is valid only during the call."""


class PacketHandler(PublicationHandler, Protocol):
    def on_acknowledgement(self, kind: int, number: int, reason: int, properties: bytes) -> None:
        """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    def on_pubacks(self, numbers: Sequence[int]) -> None:
        """Several PUBACK in a row."""

    def on_packet(self, kind: int, flags: int, body: bytes) -> None:
        """Any other packet, also one that only servers send."""


class PacketReader:
    __slots__ = (
        *("_handler", "_known", "_left", "_need", "_tail"),
        *("large", "limit", "publication_handler", "stopped", "version"),
    )

    def __init__(self, handler: PacketHandler, limit: int, large: int) -> None:
        self._handler = handler
        self._known: set[bytes] | frozenset[bytes] = _NO_TOPICS
        self._tail: bytearray | bytes = b""  # most connections never have one
        self._need = 0  # how long the tail has to be before it is read again
        self._left = 0  # bytes to come of a large payload
        #: The largest packet, and the largest payload that is passed on complete. A handler may
        #: change them and the version, for the packets after the one it is called for.
        self.limit = limit
        self.large = large
        #: A handler may pass PUBLISH packets on to another.
        self.publication_handler: PublicationHandler = handler
        self.version = 4
        #: While set, received bytes are buffered and not read; `feed(b"")` continues.
        self.stopped = False

    @property
    def waiting(self) -> int:
        """The number of buffered bytes."""
        return len(self._tail)

    def feed(self, data: bytes) -> None:
        """Read the packets that are complete now."""
        if self._tail or self.stopped:
            if self.stopped or len(self._tail) + len(data) < self._need:
                self._keep(data)
                return
            data = b"".join((self._tail, data))
            self._tail = b""
        self._need = 0
        pos = self._pass_payload(data, 0) if self._left else 0
        pos = self._packets(data, pos)
        if pos < len(data):
            self._keep(data[pos:])

    def _keep(self, data: bytes) -> None:
        if self._tail:
            self._tail += data
        elif data:
            self._tail = bytearray(data)

    def _packets(self, data: bytes, pos: int) -> int:
        """Read packets from `pos`; returns where the first incomplete one begins."""
        end = len(data)
        known = self._known
        on_publish = self.publication_handler.on_publish
        version, limit, large = self.version, self.limit, self.large
        while end - pos > 1 and not self.stopped:
            first = data[pos]
            kind = PACKET_TYPES[first]
            size = data[pos + 1]
            start = pos + 2
            if size > 127:
                high = data[start] if start < end else 0
                if 0 < high < 128:
                    size += (high << 7) - 128
                    start += 1
                else:
                    size, start = read_remaining_length(data, pos + 1, version)
                    if not start:
                        break
            after = start + size
            if after - pos > limit:
                raise packet_too_large(after - pos, limit)
            if kind == PUBLISH and size <= large:
                # The fast path; `_long_publish` does the same step by step.
                if after > end:
                    self._need = after - pos
                    break
                if size < 2:
                    raise truncated_publish()
                at = start + 2 + (data[start] << 8 | data[start + 1])
                topic = data[start + 2 : at]
                number = 0
                if first & 6:
                    at += 2
                    if at <= after:
                        number = data[at - 2] << 8 | data[at - 1]
                        if not number:
                            raise missing_packet_identifier()
                properties = b""
                if version == 5:
                    if at >= after:
                        raise truncated_publish()
                    length = data[at]
                    at += 1
                    if length:
                        if length > 127:
                            length, at = read_property_length(data, at - 1, after)
                        properties = data[at : at + length]
                        at += length
                if at > after:
                    raise truncated_publish()
                if topic not in known and (topic or version != 5):
                    self._learn(topic)
                    known = self._known
                pos = after
                payload = data[at:after]
                if first in RUN_FIRST_BYTES and after < end and data[after] == first:
                    payloads, numbers = [payload], [number]
                    if not properties and topic:
                        pos = self._read_run(data, after, topic, numbers, payloads)
                    if len(payloads) > 1:
                        self.publication_handler.on_publish_run(first, topic, numbers, payloads)
                        continue
                on_publish(first, topic, number, properties, payload)
            elif size == 2 and PUBACK <= kind <= PUBCOMP and after <= end:
                number = data[start] << 8 | data[start + 1]
                if not number:
                    raise missing_packet_identifier()
                if kind == PUBACK and end - after > 3:
                    acknowledged = read_pubacks(data, pos)
                    if acknowledged:
                        pos += 4 * len(acknowledged)
                        self._handler.on_pubacks(acknowledged)
                        continue
                pos = after
                self._handler.on_acknowledgement(kind, number, 0, b"")
            else:
                read = self._long_publish if kind == PUBLISH else self._other
                if not (done := read(data, pos, start, after)):
                    break
                pos = done
                version, limit, large = self.version, self.limit, self.large
        return pos

    def _read_run(
        self, data: bytes, pos: int, topic: bytes, numbers: list[int], payloads: list[bytes]
    ) -> int:
        """Read PUBLISH packets like the one before `pos`, as far as they are complete and valid;
        returns the position after them."""
        end = len(data)
        first = data[pos]
        head = len(topic).to_bytes(2, "big") + topic
        has_number, has_properties = first & 6 > 0, self.version == 5
        largest = min(self.large, self.limit - 5)
        for _ in range(MAX_RUN_PACKETS - 1):
            if end - pos < 4 or data[pos] != first:
                break
            size = data[pos + 1]
            start = pos + 2
            if size > 127:
                if not 0 < data[start] < 128:
                    break
                size += (data[start] << 7) - 128
                start += 1
            after = start + size
            if after > end or size > largest or not data.startswith(head, start):
                break
            at = start + len(head)
            number = 0
            if has_number:
                at += 2
                if at > after:
                    break
                number = data[at - 2] << 8 | data[at - 1]
                if not number:
                    break
            if has_properties:
                if at >= after or data[at]:
                    break
                at += 1
            if at > after:
                break
            numbers.append(number)
            payloads.append(data[at:after])
            pos = after
        return pos

    def _long_publish(self, data: bytes, pos: int, start: int, after: int) -> int:
        """Read a PUBLISH that may be incomplete; returns the position after it, or 0 to wait."""
        first, end = data[pos], len(data)
        at = start + 2
        if at > after:
            raise truncated_publish()
        if at > end:
            return self._wait(at - pos)
        at += data[start] << 8 | data[start + 1]
        topic = data[start + 2 : at]
        number = length = 0
        if first & 6:
            at += 2
        stop = at + 1 if self.version == 5 else at
        if stop > after:
            raise truncated_publish()
        if stop > end:
            return self._wait(stop - pos)
        if first & 6:
            number = data[at - 2] << 8 | data[at - 1]
            if not number:
                raise missing_packet_identifier()
        if self.version == 5:
            length, stop = read_property_length(data, at, after)
            if not stop:
                return self._wait(end - pos + 1)
            at = stop + length
            if at > after:
                raise truncated_publish()
            if at - start > MAX_BUFFERED_BYTES:
                raise packet_too_large(at - start, MAX_BUFFERED_BYTES)
            if at > end:
                return self._wait(at - pos)
        if topic not in self._known and (topic or self.version != 5):
            self._learn(topic)
        properties = data[at - length : at]
        if after - at > self.large:
            self._left = after - at
            self.publication_handler.on_large_publish(first, topic, number, properties, after - at)
            return at if self.stopped else self._pass_payload(data, at)
        if after > end:
            return self._wait(after - pos)
        self.publication_handler.on_publish(first, topic, number, properties, data[at:after])
        return after

    def _pass_payload(self, data: bytes, pos: int) -> int:
        """Pass on a piece of a large payload; returns the position after it."""
        stop = min(pos + self._left, len(data))
        if stop > pos:
            self._left -= stop - pos
            self.publication_handler.on_payload(memoryview(data)[pos:stop], self._left > 0)
        return stop

    def _other(self, data: bytes, pos: int, start: int, after: int) -> int:
        """Read any packet but PUBLISH; returns the position after it, or 0 to wait."""
        first, size = data[pos], after - start
        kind = PACKET_TYPES[first]
        if not kind and self.version == 3:
            kind = DUP_PACKET_TYPES.get(first, 0)
        if not kind or (kind == AUTH and self.version != 5):
            raise invalid_fixed_header(first)
        if size > MAX_BUFFERED_BYTES:
            raise packet_too_large(size, MAX_BUFFERED_BYTES)
        if size and kind in (PINGREQ, PINGRESP):
            raise malformed_packet(f"ping with a body of {size} bytes")
        if after > len(data):
            return self._wait(after - pos)
        body = data[start:after]
        if size == 2 and PUBACK <= kind <= PUBCOMP:
            self._handler.on_acknowledgement(kind, read_packet_identifier(body, 0)[0], 0, b"")
        elif PUBACK <= kind <= PUBCOMP:
            self._acknowledgement(kind, body)
        else:
            self._handler.on_packet(kind, first & 15, body)
        return after

    def _acknowledgement(self, kind: int, body: bytes) -> None:
        """Read an acknowledgement with more than a packet identifier."""
        number, at = read_packet_identifier(body, 0)
        if self.version != 5:
            raise malformed_packet(
                f"acknowledgement of {len(body)} bytes, before MQTT 5.0 it has 2"
            )
        reason = body[at]
        if reason not in _ACKNOWLEDGEMENT_REASON_CODES[kind]:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, f"acknowledgement with reason {reason:#x}")
        at += 1
        if at < len(body):
            length, at = read_varint(body, at)
            if at + length != len(body):
                raise malformed_packet(
                    "properties of an acknowledgement do not end with the packet"
                )
        self._handler.on_acknowledgement(kind, number, reason, body[at:])

    def _wait(self, need: int) -> int:
        self._need = need
        return 0

    def _learn(self, topic: bytes) -> None:
        check_topic_name_bytes(topic)
        if len(topic) <= MAX_CACHED_TOPIC_BYTES:
            if len(self._known) >= MAX_CACHED_TOPICS or not isinstance(self._known, set):
                self._known = set()
            self._known.add(topic)


def _packet_type(first: int) -> int:
    """The type of a packet by its first byte, or 0 if the flags are invalid."""
    kind, flags = first >> 4, first & 15
    if kind == PUBLISH:
        qos = flags >> 1 & 3
        return 0 if qos == 3 or (qos == 0 and flags & 8) else PUBLISH
    return kind if flags == (2 if kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE) else 0) else 0


#: Of PUBLISH at QoS 0 and 1, neither retained nor sent again.
RUN_FIRST_BYTES: Final = (0x30, 0x32)
#: Packets that are passed on together.
MAX_RUN_PACKETS: Final = 64
MAX_RUN_PUBACKS: Final = 1024

PACKET_TYPES: Final[bytes] = bytes(map(_packet_type, range(256)))

#: MQTT 3.1 resends these with DUP set.
DUP_PACKET_TYPES: Final = {kind << 4 | 8 | 2: kind for kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE)}


def read_pubacks(data: bytes, pos: int) -> Sequence[int]:
    """The numbers of the PUBACK packets from `pos`, if the data has nothing else; else none."""
    words = array("H", data[pos : pos + min(len(data) - pos & ~3, 4 * MAX_RUN_PUBACKS)])
    if sys.byteorder == "little":
        words.byteswap()
    numbers = words[1::2]
    return () if words[::2].count(PUBACK << 12 | 2) < len(numbers) or 0 in numbers else numbers


def read_remaining_length(data: bytes, pos: int, version: int) -> tuple[int, int]:
    """The length at `pos` and where it ends, or 0 if it is incomplete."""
    size = 0
    for shift in (0, 7, 14, 21):
        if pos >= len(data):
            return 0, 0
        byte = data[pos]
        pos += 1
        size |= (byte & 127) << shift
        if byte < 128:
            # Only MQTT 5.0 requires the shortest form; some devices use a fixed one.
            if not byte and shift and version == 5:
                raise malformed_packet("remaining length is not in its shortest form")
            return size, pos
    raise malformed_packet("remaining length of more than four bytes")


def read_property_length(data: bytes, pos: int, after: int) -> tuple[int, int]:
    """As `read_remaining_length`, in a packet that ends at `after`."""
    window = data[pos : min(pos + 4, after)]
    length, used = read_remaining_length(window, 0, 5)
    if used:
        return length, pos + used
    if pos + len(window) == after:
        raise truncated_publish()
    return 0, 0


def invalid_fixed_header(first: int) -> MqttError:
    if first >> 4 == PUBLISH:
        return malformed_packet(
            "PUBLISH with QoS 3" if first & 6 == 6 else "PUBLISH with DUP at QoS 0"
        )
    return malformed_packet(f"invalid first byte {first:#04x} of a packet")


def packet_too_large(size: int, limit: int) -> MqttError:
    return MqttError(ReasonCode.PACKET_TOO_LARGE, f"packet of {size} bytes, at most {limit}")


def truncated_publish() -> MqttError:
    return malformed_packet("the fields of a PUBLISH extend past its end")
