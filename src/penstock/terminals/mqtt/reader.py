"""MQTT packets out of what reads bring: the hot path, bytes in and calls out, no sockets.

`PacketReader.feed` calls a `Handler` for each packet. A PUBLISH that is whole, as nearly all are,
is cut out in one go: a slice each for topic and payload, and no objects between. Its topic is
checked once and remembered. A payload over `large` is handed on as it comes. Acknowledgements
are read here too; any other packet comes as its body, for `connect.py` and `packets.py` to read.

What it promises: packets are whole, within the limit, with legal flags, and the fields of those it
reads are as the standard wants them; how the bytes were cut into reads makes no difference. It
raises `MqttError`, and lets through what a handler raises; after either it is not to be fed again.
Whether a packet may come now is the handler's to judge.
"""

from __future__ import annotations

from typing import Final, Protocol

from penstock.terminals.mqtt.fields import (
    AUTH,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    malformed,
    no_number,
    read_number,
    read_varint,
)
from penstock.terminals.mqtt.header import (
    KINDS,
    REPEATED,
    illegal,
    property_length,
    read_length,
    short_publish,
    too_large,
)
from penstock.terminals.mqtt.reasons import MqttError, Reason
from penstock.terminals.mqtt.topics import read_topic

#: What has to be held until it is whole, whatever the limit on packets: any packet but PUBLISH, and
#: of PUBLISH what comes before the payload. More has no honest use.
HELD_MAX: Final = 1 << 20

#: So many topics are remembered as good, none longer than this: some 100 KB for a connection that
#: does its worst.
KNOWN_MAX: Final = 512
KNOWN_LENGTH: Final = 128


_RECEIVED: Final = frozenset(
    {
        *(Reason.SUCCESS, Reason.NO_MATCHING_SUBSCRIBERS, Reason.UNSPECIFIED_ERROR),
        *(Reason.IMPLEMENTATION_SPECIFIC_ERROR, Reason.NOT_AUTHORIZED, Reason.TOPIC_NAME_INVALID),
        *(Reason.PACKET_IDENTIFIER_IN_USE, Reason.QUOTA_EXCEEDED, Reason.PAYLOAD_FORMAT_INVALID),
    }
)
_RELEASED: Final = frozenset({Reason.SUCCESS, Reason.PACKET_IDENTIFIER_NOT_FOUND})
#: What an acknowledgement may say, by its kind.
_ANSWERS: Final[dict[int, frozenset[Reason]]] = {
    PUBACK: _RECEIVED,
    PUBREC: _RECEIVED,
    PUBREL: _RELEASED,
    PUBCOMP: _RELEASED,
}


class Handler(Protocol):
    def on_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, payload: bytes
    ) -> None:
        """A whole PUBLISH: its first byte, and properties without their length.

        `number` is 0 at QoS 0. In MQTT 5.0 `topic` may be empty, for an alias to say.
        """

    def on_large_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, size: int
    ) -> None:
        """The start of a PUBLISH whose payload of `size` bytes follows in `on_payload`."""

    def on_payload(self, piece: memoryview, more: bool) -> None:
        """`piece` is valid during the call."""

    def on_acknowledgement(self, kind: int, number: int, reason: int, properties: bytes) -> None:
        """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    def on_packet(self, kind: int, flags: int, body: bytes) -> None:
        """Any other packet, also one that only servers send."""


class PacketReader:
    __slots__ = (
        *("_handler", "_known", "_left", "_need", "_tail"),
        *("large", "limit", "stopped", "version"),
    )

    def __init__(self, handler: Handler, limit: int, large: int) -> None:
        self._handler = handler
        self._known: set[bytes] = set()
        self._tail = bytearray()
        self._need = 0  # how long the tail has to be before there is a point in looking at it
        self._left = 0  # of a large payload
        #: The largest packet, and the largest payload that comes whole. A handler may change them
        #: as it may the version, for the packets after the one it is called for.
        self.limit = limit
        self.large = large
        self.version = 4
        #: While set, what arrives is kept and not looked at; `feed(b"")` goes on.
        self.stopped = False

    @property
    def waiting(self) -> int:
        """How many bytes are kept."""
        return len(self._tail)

    def feed(self, data: bytes) -> None:
        """Everything complete in `data`, and in what was left over before."""
        if self._tail or self.stopped:
            if self.stopped or len(self._tail) + len(data) < self._need:
                self._tail += data
                return
            data = b"".join((self._tail, data))
            self._tail.clear()
        self._need = 0
        pos = self._pour(data, 0) if self._left else 0
        pos = self._packets(data, pos)
        if pos < len(data):
            self._tail += data[pos:]

    def _packets(self, data: bytes, pos: int) -> int:
        """The packets from `pos`; returns where the first begins that is not done with."""
        end = len(data)
        known = self._known
        on_publish = self._handler.on_publish
        version, limit, large = self.version, self.limit, self.large
        while end - pos > 1 and not self.stopped:
            first = data[pos]
            kind = KINDS[first]
            size = data[pos + 1]
            start = pos + 2
            if size > 127:
                high = data[start] if start < end else 0
                if 0 < high < 128:
                    size += (high << 7) - 128
                    start += 1
                else:
                    size, start = read_length(data, pos + 1, version)
                    if not start:
                        break
            after = start + size
            if after - pos > limit:
                raise too_large(after - pos, limit)
            if kind == PUBLISH and size <= large:
                # The short way; `_long_publish` goes the same one step by step.
                if after > end:
                    self._need = after - pos
                    break
                if size < 2:
                    raise short_publish()
                at = start + 2 + (data[start] << 8 | data[start + 1])
                topic = data[start + 2 : at]
                number = 0
                if first & 6:
                    at += 2
                    if at <= after:
                        number = data[at - 2] << 8 | data[at - 1]
                        if not number:
                            raise no_number()
                properties = b""
                if version == 5:
                    if at >= after:
                        raise short_publish()
                    length = data[at]
                    at += 1
                    if length:
                        if length > 127:
                            length, at = property_length(data, at - 1, after)
                        properties = data[at : at + length]
                        at += length
                if at > after:
                    raise short_publish()
                if topic not in known and (topic or version != 5):
                    self._learn(topic)
                pos = after
                on_publish(first, topic, number, properties, data[at:after])
            elif size == 2 and PUBACK <= kind <= PUBCOMP and after <= end:
                number = data[start] << 8 | data[start + 1]
                if not number:
                    raise no_number()
                pos = after
                self._handler.on_acknowledgement(kind, number, 0, b"")
            else:
                read = self._long_publish if kind == PUBLISH else self._other
                if not (done := read(data, pos, start, after)):
                    break
                pos = done
                version, limit, large = self.version, self.limit, self.large
        return pos

    def _long_publish(self, data: bytes, pos: int, start: int, after: int) -> int:
        """A PUBLISH that need not be here as a whole; returns how far it was read, 0 to wait."""
        first, end = data[pos], len(data)
        at = start + 2
        if at > after:
            raise short_publish()
        if at > end:
            return self._wait(at - pos)
        at += data[start] << 8 | data[start + 1]
        topic = data[start + 2 : at]
        number = length = 0
        if first & 6:
            at += 2
        stop = at + 1 if self.version == 5 else at
        if stop > after:
            raise short_publish()
        if stop > end:
            return self._wait(stop - pos)
        if first & 6:
            number = data[at - 2] << 8 | data[at - 1]
            if not number:
                raise no_number()
        if self.version == 5:
            length, stop = property_length(data, at, after)
            if not stop:
                return self._wait(end - pos + 1)
            at = stop + length
            if at > after:
                raise short_publish()
            if at - start > HELD_MAX:
                raise too_large(at - start, HELD_MAX)
            if at > end:
                return self._wait(at - pos)
        if topic not in self._known and (topic or self.version != 5):
            self._learn(topic)
        properties = data[at - length : at]
        if after - at > self.large:
            self._left = after - at
            self._handler.on_large_publish(first, topic, number, properties, after - at)
            return at if self.stopped else self._pour(data, at)
        if after > end:
            return self._wait(after - pos)
        self._handler.on_publish(first, topic, number, properties, data[at:after])
        return after

    def _pour(self, data: bytes, pos: int) -> int:
        """What is here of a large payload, from `pos`; returns how far that reaches."""
        stop = min(pos + self._left, len(data))
        if stop > pos:
            self._left -= stop - pos
            self._handler.on_payload(memoryview(data)[pos:stop], self._left > 0)
        return stop

    def _other(self, data: bytes, pos: int, start: int, after: int) -> int:
        """Any packet but PUBLISH; returns where it ends, 0 to wait."""
        first, size = data[pos], after - start
        kind = KINDS[first]
        if not kind and self.version == 3:
            kind = REPEATED.get(first, 0)
        if not kind or (kind == AUTH and self.version != 5):
            raise illegal(first)
        if size > HELD_MAX:
            raise too_large(size, HELD_MAX)
        if size and kind in (PINGREQ, PINGRESP):
            raise malformed(f"a ping with {size} bytes, none are allowed")
        if after > len(data):
            return self._wait(after - pos)
        body = data[start:after]
        if size == 2 and PUBACK <= kind <= PUBCOMP:
            self._handler.on_acknowledgement(kind, read_number(body, 0)[0], 0, b"")
        elif PUBACK <= kind <= PUBCOMP:
            self._acknowledgement(kind, body)
        else:
            self._handler.on_packet(kind, first & 15, body)
        return after

    def _acknowledgement(self, kind: int, body: bytes) -> None:
        """An acknowledgement that says more than its number."""
        number, at = read_number(body, 0)
        if self.version != 5:
            raise malformed(f"acknowledgement of {len(body)} bytes, before MQTT 5.0 it has 2")
        reason = body[at]
        if reason not in _ANSWERS[kind]:
            raise MqttError(Reason.PROTOCOL_ERROR, f"acknowledgement with reason {reason:#x}")
        at += 1
        if at < len(body):
            length, at = read_varint(body, at)
            if at + length != len(body):
                raise malformed("the properties do not end where the acknowledgement does")
        self._handler.on_acknowledgement(kind, number, reason, body[at:])

    def _wait(self, need: int) -> int:
        self._need = need
        return 0

    def _learn(self, topic: bytes) -> None:
        read_topic(topic)
        if len(topic) <= KNOWN_LENGTH:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known.add(topic)
