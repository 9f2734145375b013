"""The writing side of a connection: what drivers forward, confirm and fail, on its way out.

This is the terminal that drivers know (`broker/contract.py`). Packets gather in a list and leave
in one write when the turn ends. A socket that does not take them is *choked*: the session is asked
to wait until it has caught up. A large message leaves a piece at a time, and nothing may come
between its pieces: answers wait behind it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from penstock.broker.buckets import Bucket
from penstock.broker.contract import (
    EXPIRES,
    FROM_RETAINED,
    RETAIN,
    UNLIMITED_CREDIT,
    Channel,
    Delivery,
    Fragment,
    InflightMessage,
    Message,
)
from penstock.core.basic_properties import MINIMAL_HEADER_TAILS
from penstock.protocols.mqtt.conversion import message_properties
from penstock.wire.mqtt.fields import PUBREL, VARINT_MAX, decode_utf8_string
from penstock.wire.mqtt.packets import encode_acknowledgement, encode_publish, encode_publish_start
from penstock.wire.mqtt.properties import MqttProperties, MqttProperty, encode_properties
from penstock.wire.mqtt.reason_codes import MqttError
from penstock.wire.mqtt.topics import check_topic_name, routing_key_to_topic

if TYPE_CHECKING:
    from penstock.protocols.mqtt.terminal import MqttTerminal


#: Output that may gather for one socket before its session is asked to wait.
WRITE_HIGH_WATER_BYTES: Final = 256 * 1024

#: As large as packets get.
_NO_LIMIT: Final = VARINT_MAX + 5


class MqttWriter:
    __slots__ = (
        "_buckets",
        "_bytes",
        "_deferred",
        "_delivered",
        "_encode",
        "_flush_scheduled",
        "_gone",
        "_introduced",
        "_large",
        "_metrics",
        "_packet_cache",
        "_terminal",
        "_write_batch",
        "aliases",
        "channel",
        "largest",
        "most_aliases",
        "out",
        "paused",
        "write_blocked",
    )

    def __init__(self, terminal: MqttTerminal) -> None:
        kernel = terminal.host.kernel
        self._terminal = terminal
        self._write_batch = kernel.write_batch
        self._metrics = kernel.metrics
        self._packet_cache = terminal.mqtt.packet_cache
        self._encode = self._packet_cache.encode_v4
        self.out: list[bytes | memoryview] = []
        self.channel: Channel | None = None  #: to the session
        self.largest = _NO_LIMIT  #: the largest packet the client takes
        self.most_aliases = 0
        self.aliases: dict[bytes, int] | None = None  #: short names for topics
        self.write_blocked = False  #: the session sends nothing until the socket has caught up
        self.paused = False  #: the transport's buffer is full
        self._bytes = 0
        self._delivered = 0
        self._flush_scheduled = False
        self._gone = False
        self._introduced = b""  #: the topic that the packet at hand gives a short name
        self._large: InflightMessage | None = None  #: a large message that is on its way
        self._deferred: list[bytes] = []
        self._buckets: list[Bucket] | None = None

    def limit(self, largest: int) -> None:
        """The client takes no larger packets; 0 if it did not say."""
        self.largest = largest or _NO_LIMIT

    def begin(self, version: int, aliases: int) -> None:
        """What the client speaks is known."""
        if version == 5:
            self._encode = self._packet_cache.encode_v5
        self.most_aliases = aliases
        if aliases:
            self.aliases = {}

    # What drivers ask for.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        if delivery is not None or self.aliases is not None:
            self._forward(channel, fragment, delivery)
            return
        packet = self._encode(fragment)  # type: ignore[arg-type]  # small ones come whole
        size = len(packet)
        if not size or size > self.largest:
            self._metrics.dropped += 1
            return
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._write_batch.to_flush.append(self)
        self.out.append(packet)
        self._delivered += 1
        self._bytes += size
        if self._bytes > WRITE_HIGH_WATER_BYTES and not self.write_blocked:
            self._block_writes()

    def _forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        if isinstance(fragment, Fragment):
            self._forward_piece(channel, fragment)
            return
        entry = delivery if isinstance(delivery, InflightMessage) else None
        if entry is not None and entry.qos == 1 and self._forward_plain(fragment, entry):
            return
        if entry is not None and entry.released:
            packet = encode_acknowledgement(PUBREL, entry.packet_id, version=self._terminal.version)
            self.send(packet)
            return
        opening = self._opening(fragment, entry)
        size = len(opening) + (fragment.size if fragment.more else len(fragment.body))
        if not opening or size > self.largest:
            self._metrics.dropped += 1
            if self.aliases is not None and self._introduced:
                del self.aliases[self._introduced]  # the client never heard of it
            if entry is not None:
                channel.driver.channel_failure(channel, entry, False)
            return
        self.schedule_flush()
        self.out.append(opening)
        if fragment.more:
            self._large = entry
            self._request_fragment_soon(channel)
        elif fragment.body:
            self.out.append(fragment.body)
        if entry is not None and entry.count:
            self._metrics.redelivered += 1
        self._delivered += 1
        self._bytes += size if not fragment.more else len(opening)
        if self._bytes > WRITE_HIGH_WATER_BYTES and not self.write_blocked:
            self._block_writes()

    def _forward_plain(self, message: Message, entry: InflightMessage) -> bool:
        """The short way of QoS 1, if there is nothing to say but the message."""
        if entry.count or entry.expires or not entry.subscription.plain or self.aliases is not None:
            return False
        if message.more:
            return False
        packet = self._packet_cache.encode_qos1(message, entry.packet_id, self._terminal.version)
        if not packet or len(packet) > self.largest:
            return False
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._write_batch.to_flush.append(self)
        self.out.append(packet)
        self._delivered += 1
        self._bytes += len(packet)
        if self._bytes > WRITE_HIGH_WATER_BYTES and not self.write_blocked:
            self._block_writes()
        return True

    def _opening(self, message: Message, entry: InflightMessage | None) -> bytes:
        """A PUBLISH up to its payload; empty when the client cannot be told of it."""
        packet_cache = self._packet_cache
        packet_cache.set(message)
        topic = packet_cache.topic
        if not topic:
            return b""
        first = 0x30
        number = 0
        identifiers: tuple[int, ...] = ()
        retain = message.flags & FROM_RETAINED
        if entry is not None:
            first |= entry.qos << 1
            number = entry.packet_id
            if entry.count and entry.qos:
                first |= 8
            identifiers = entry.subscription.identifiers
            retain |= entry.subscription.as_published and message.flags & RETAIN
        if retain:
            first |= 1
        encoded: bytes | None = None
        if self._terminal.version == 5:
            encoded = packet_cache.encoded
            alias, topic = self._alias(topic)
            waited = entry is not None and entry.expires and message.flags & EXPIRES
            if alias or identifiers or waited:
                properties = dict(packet_cache.properties)
                if alias:
                    properties[MqttProperty.TOPIC_ALIAS] = alias
                if identifiers:
                    properties[MqttProperty.SUBSCRIPTION_IDENTIFIER] = list(identifiers)
                if waited and entry is not None:
                    left = entry.expires - self._write_batch.loop.time()
                    properties[MqttProperty.MESSAGE_EXPIRY] = max(0, math.ceil(left))
                encoded = encode_properties(properties) if properties else NO_PROPERTIES
        if message.size + len(topic) + len(encoded or b"") + 9 > VARINT_MAX:
            return b""
        if message.more:
            return encode_publish_start(first, topic, number, encoded, message.size)
        return encode_publish_start(first, topic, number, encoded, len(message.body))

    def _alias(self, topic: bytes) -> tuple[int, bytes]:
        """The short name of a topic, and what of the topic must still be said."""
        aliases = self.aliases
        self._introduced = b""
        if aliases is None:
            return 0, topic
        alias = aliases.get(topic)
        if alias is not None:
            return alias, b""
        if len(aliases) >= self.most_aliases:
            return 0, topic
        aliases[topic] = alias = len(aliases) + 1
        self._introduced = topic
        return alias, topic

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        self._terminal.publish_handler.acknowledgements.confirmed(receipt)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if self._gone and not receipt:
            return
        if channel is not self.channel:
            self._terminal.publish_handler.acknowledgements.failed(receipt, error)
        elif isinstance(error, OSError):  # half a message is out, and the rest cannot be read
            entry, self._large = self._large, None
            if entry is not None:
                channel.driver.channel_failure(channel, entry, False)
            self._terminal.fail(error)
        else:
            self._terminal.session_ended()

    # Large messages.

    def _forward_piece(self, channel: Channel, fragment: Fragment) -> None:
        if self._terminal.closing:
            fragment.bucket.release()
            return
        self.schedule_flush()
        self.out.append(fragment.body)
        self._bytes += len(fragment.body)
        if self._buckets is None:
            self._buckets = []
        self._buckets.append(fragment.bucket)
        if fragment.more:
            self._request_fragment_soon(channel)
            return
        self._large = None
        self.out += self._deferred
        self._deferred.clear()

    def _request_fragment_soon(self, channel: Channel) -> None:
        if not self.write_blocked:
            self._write_batch.loop.call_soon(self._request_fragment, channel)

    def _request_fragment(self, channel: Channel) -> None:
        """Ask for the next piece of a large message, if the socket has room for it."""
        if channel is self.channel and not self.write_blocked and not self._terminal.closing:
            channel.driver.channel_request(channel, UNLIMITED_CREDIT)
            self._write_batch.flush()

    @property
    def held(self) -> int:
        """Bytes of answers that wait behind a large message."""
        return sum(map(len, self._deferred)) if self._deferred else 0

    # Writing.

    def schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._write_batch.to_flush.append(self)

    def send(self, packet: bytes) -> None:
        if self._gone:  # a receipt may come when the client has left
            return
        if self._large is not None:
            self._deferred.append(packet)
            return
        self.schedule_flush()
        self.out.append(packet)

    def flush(self) -> None:
        self._flush_scheduled = False
        out = self.out
        if not out:
            return
        data = b"".join(out)
        out.clear()
        self._bytes = 0
        self._metrics.bytes_out += len(data)
        self._metrics.delivered += self._delivered
        self._delivered = 0
        self._terminal.transport.write(data)
        if self._buckets:
            self._release()
        if self.write_blocked and not self.paused:
            self._write_batch.loop.call_soon(self._unblock_writes)

    def _release(self) -> None:
        for bucket in self._buckets or ():
            bucket.release()
        self._buckets = None

    # Credit.

    def open(self, channel: Channel) -> None:
        """A session sends from now on."""
        self.channel = channel
        if not self.write_blocked:
            channel.driver.channel_request(channel, UNLIMITED_CREDIT)

    def pause(self) -> None:
        self.paused = True
        self._block_writes()

    def resume(self) -> None:
        self.paused = False
        self._unblock_writes()

    def _block_writes(self) -> None:
        """The socket is behind: nothing more until it has caught up."""
        self.write_blocked = True
        if self.channel is not None:
            self.channel.driver.channel_request(self.channel, 0)

    def _unblock_writes(self) -> None:
        if self.write_blocked and not self.paused and not self._terminal.closing:
            self.write_blocked = False
            if self.channel is not None:
                self.channel.driver.channel_request(self.channel, UNLIMITED_CREDIT)
            self._write_batch.flush()

    def forget(self) -> None:
        """The connection has ended."""
        self._gone = True
        self.out.clear()
        self._deferred.clear()
        self._release()
        self.channel = None


# The press: messages as the packets that subscribers get, each set once and printed for many.
#
# All subscribers of a message are served one after another, so remembering the last packet is all
# it takes to encode a fan-out once. Small packets without properties, which nearly all are, are put
# together from three pieces: how they begin, the topic, the payload.

#: Routes whose topics are remembered.
MAX_CACHED_TOPICS: Final = 8192

#: The length of no properties.
NO_PROPERTIES: Final = b"\x00"

#: How a PUBLISH begins whose remaining length is one byte: at QoS 0, and at QoS 1.
QOS0_FIXED_HEADERS: Final = tuple(bytes((0x30, rest)) for rest in range(128))
QOS1_FIXED_HEADERS: Final = tuple(bytes((0x32, rest)) for rest in range(128))


class EncodedPacketCache:
    __slots__ = (
        "_encoded_v4",
        "_encoded_v5",
        "_heads",
        "_packet4",
        "_packet5",
        "_properties",
        "encoded",
        "message",
        "topic",
    )

    def __init__(self) -> None:
        self._heads: dict[bytes, bytes] = {}  #: topics with their length; empty if MQTT has none
        self._properties: MqttProperties | None = None
        self._encoded_v4: Message | None = None
        self._encoded_v5: Message | None = None
        self._packet4 = b""
        self._packet5 = b""
        self.message: Message | None = None  #: what is set
        self.topic = b""  #: empty when it has none that MQTT could name
        self.encoded = b""  #: its properties with their length, for 5.0

    def set(self, message: Message) -> None:
        """Have the parts of a message at hand."""
        if self.message is message:
            return
        self.message = message
        self._properties = None
        head = self._heads.get(message.route)
        self.topic = (self._head(message.route) if head is None else head)[2:]
        self.encoded = NO_PROPERTIES
        if message.header[12:] not in MINIMAL_HEADER_TAILS:
            self._properties = message_properties(message)
            try:
                self.encoded = encode_properties(self._properties)
            except MqttError:  # they are an AMQP client's, and more than MQTT has room for
                self._properties = None

    @property
    def properties(self) -> MqttProperties:
        """Those of the message that is set."""
        return self._properties or {}

    def encode_v4(self, message: Message) -> bytes:
        """At QoS 0, to a client of 3.1.1; empty when it cannot be."""
        if message is self._encoded_v4:
            return self._packet4
        head = self._heads.get(message.route)
        rest = len(head) + len(message.body) if head else 128
        if head and rest < 128 and not message.flags & FROM_RETAINED:
            packet = QOS0_FIXED_HEADERS[rest] + head + message.body
        else:
            packet = self._encode(message, None)
        self._encoded_v4 = message
        self._packet4 = packet
        return packet

    def encode_v5(self, message: Message) -> bytes:
        """At QoS 0, to a client of 5.0; empty when it cannot be."""
        if message is self._encoded_v5:
            return self._packet5
        head = self._heads.get(message.route)
        rest = len(head) + len(message.body) + 1 if head else 128
        if (
            head
            and rest < 128
            and message.header[12:] in MINIMAL_HEADER_TAILS
            and not message.flags & FROM_RETAINED
        ):
            packet = QOS0_FIXED_HEADERS[rest] + head + NO_PROPERTIES + message.body
        else:
            self.set(message)
            packet = self._encode(message, self.encoded)
        self._encoded_v5 = message
        self._packet5 = packet
        return packet

    def _encode(self, message: Message, properties: bytes | None) -> bytes:
        self.set(message)
        if not self.topic:
            return b""
        first = 0x31 if message.flags & FROM_RETAINED else 0x30
        return encode_publish(first, self.topic, 0, properties, message.body)

    def encode_qos1(self, message: Message, number: int, version: int) -> bytes:
        """A small one at QoS 1, sent for the first time; empty when it takes more than that."""
        head = self._heads.get(message.route)
        if not head or message.flags & FROM_RETAINED:
            return b""
        rest = len(head) + len(message.body) + (3 if version == 5 else 2)
        if rest > 127:
            return b""
        if version < 5:
            return QOS1_FIXED_HEADERS[rest] + head + number.to_bytes(2, "big") + message.body
        if message.header[12:] not in MINIMAL_HEADER_TAILS:
            return b""
        return QOS1_FIXED_HEADERS[rest] + head + (number << 8).to_bytes(3, "big") + message.body

    def _head(self, route: bytes) -> bytes:
        topic = routing_key_to_topic(route[route[0] + 2 :])
        try:
            check_topic_name(decode_utf8_string(topic))
            head = len(topic).to_bytes(2, "big") + topic
        except MqttError:  # an AMQP client chose a key that is no topic
            head = b""
        if len(self._heads) >= MAX_CACHED_TOPICS:
            self._heads.clear()
        self._heads[route] = head
        return head
