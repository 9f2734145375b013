"""The writer of an MQTT connection: the side of the terminal that drivers see.

Packets collect in the `SocketWriter` and leave at the end of the write batch. A large message is
sent one fragment at a time; acknowledgements wait behind it. `EncodedPacketCache` encodes a message
once for all its subscribers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import chain, repeat
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

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
from penstock.broker.message_run import MessageRun
from penstock.core.basic_properties import MINIMAL_HEADER_TAILS
from penstock.protocols.mqtt.conversion import message_properties
from penstock.protocols.socket_writer import WRITE_HIGH_WATER_BYTES, SocketWriter
from penstock.wire.mqtt.fields import PUBREL, VARINT_MAX, decode_utf8_string, write_varint
from penstock.wire.mqtt.packets import encode_acknowledgement, encode_publish, encode_publish_start
from penstock.wire.mqtt.properties import MqttProperties, MqttProperty, encode_properties
from penstock.wire.mqtt.reason_codes import MqttError
from penstock.wire.mqtt.topics import check_topic_name, routing_key_to_topic

if TYPE_CHECKING:
    from penstock.protocols.mqtt.terminal import MqttTerminal


#: The largest packet of the protocol.
_NO_LIMIT: Final = VARINT_MAX + 5


class MqttWriter:
    __slots__ = (
        "_closed",
        "_deferred",
        "_encode",
        "_large",
        "_metrics",
        "_new_alias",
        "_packet_cache",
        "_terminal",
        "_write_batch",
        "aliases",
        "channel",
        "largest",
        "max_aliases",
        "output",
    )

    def __init__(self, terminal: MqttTerminal) -> None:
        kernel = terminal.host.kernel
        self._terminal = terminal
        self._write_batch = kernel.write_batch
        self._metrics = kernel.metrics
        self._packet_cache = terminal.mqtt.packet_cache
        self._encode = self._packet_cache.encoders[4]
        self.output = SocketWriter(terminal, self)
        self.channel: Channel | None = None  #: to the session
        self.largest = _NO_LIMIT  #: the largest packet that the client accepts
        self.max_aliases = 0
        self.aliases: dict[bytes, int] | None = None  #: of topics
        self._closed = False
        self._new_alias = b""  #: the topic whose alias the current packet sets
        self._large: InflightMessage | None = None  #: the large message that is being sent
        self._deferred: list[bytes] | None = None  #: packets behind it

    def limit(self, largest: int) -> None:
        """The client's maximum packet size; 0 for none."""
        self.largest = largest or _NO_LIMIT

    def begin(self, version: int, max_aliases: int) -> None:
        if version == 5:
            self._encode = self._packet_cache.encoders[5]
        self.max_aliases = max_aliases
        if max_aliases:
            self.aliases = {}

    # The contract.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        if delivery is not None or self.aliases is not None:
            self._forward(channel, fragment, delivery)
            return
        packet = self._encode(fragment)  # type: ignore[arg-type]  # fragments have a delivery
        size = len(packet)
        if not size or size > self.largest:
            self._metrics.dropped += 1
            return
        output = self.output
        if not output.scheduled:
            output.schedule()
        output.out.append(packet)
        output.delivered += 1
        output.bytes += size
        if output.bytes > WRITE_HIGH_WATER_BYTES and not output.write_blocked:
            output.block()

    @property
    def takes_runs(self) -> bool:
        """Whether packets depend on nothing but the message and the packet id."""
        return self.aliases is None and self.largest == _NO_LIMIT

    def forward_run(
        self, channel: Channel, run: MessageRun, deliveries: list[Delivery] | None, packet_id: int
    ) -> bool:
        packets = self._packet_cache.encode_run(run, packet_id, self._terminal.version)
        if not packets:
            return False
        output = self.output
        if not output.scheduled:
            output.schedule()
        output.out.append(packets)
        output.delivered += len(run)
        output.bytes += len(packets)
        if output.bytes > WRITE_HIGH_WATER_BYTES and not output.write_blocked:
            output.block()
        return True

    def _forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        if isinstance(fragment, Fragment):
            self._forward_fragment(channel, fragment)
            return
        entry = delivery if isinstance(delivery, InflightMessage) else None
        if entry is not None and entry.qos == 1 and self._forward_plain(fragment, entry):
            return
        if entry is not None and entry.released:
            packet = encode_acknowledgement(PUBREL, entry.packet_id, version=self._terminal.version)
            self._terminal.send_stored(packet)
            return
        opening = self._opening(fragment, entry)
        size = len(opening) + (fragment.size if fragment.more else len(fragment.body))
        if not opening or size > self.largest:
            self._metrics.dropped += 1
            if self.aliases is not None and self._new_alias:
                del self.aliases[self._new_alias]  # it was not sent
            if entry is not None:
                channel.driver.channel_failure(channel, entry, False)
            return
        output = self.output
        output.send(opening)
        if fragment.more:
            self._large = entry
            self._request_fragment_soon(channel)
        elif fragment.body:
            output.out.append(fragment.body)
        if entry is not None and entry.count:
            self._metrics.redelivered += 1
        output.delivered += 1
        output.bytes += size if not fragment.more else len(opening)
        if output.bytes > WRITE_HIGH_WATER_BYTES and not output.write_blocked:
            output.block()

    def _forward_plain(self, message: Message, entry: InflightMessage) -> bool:
        """The fast path of QoS 1; returns whether the message qualifies for it."""
        if entry.count or entry.expires or not entry.subscription.plain or self.aliases is not None:
            return False
        if message.more:
            return False
        packet = self._packet_cache.encode_qos1(message, entry.packet_id, self._terminal.version)
        if not packet or len(packet) > self.largest:
            return False
        output = self.output
        if not output.scheduled:
            output.schedule()
        output.out.append(packet)
        output.delivered += 1
        output.bytes += len(packet)
        if output.bytes > WRITE_HIGH_WATER_BYTES and not output.write_blocked:
            output.block()
        return True

    def _opening(self, message: Message, entry: InflightMessage | None) -> bytes:
        """A PUBLISH up to its payload; empty if MQTT cannot represent it."""
        packet_cache = self._packet_cache
        packet_cache.load(message)
        topic = packet_cache.topic
        if not topic:
            return b""
        first = 0x30
        packet_id = 0
        identifiers: tuple[int, ...] = ()
        retain = message.flags & FROM_RETAINED
        if entry is not None:
            first |= entry.qos << 1
            packet_id = entry.packet_id
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
            expires = entry is not None and entry.expires and message.flags & EXPIRES
            if alias or identifiers or expires:
                properties = dict(packet_cache.properties)
                if alias:
                    properties[MqttProperty.TOPIC_ALIAS] = alias
                if identifiers:
                    properties[MqttProperty.SUBSCRIPTION_IDENTIFIER] = list(identifiers)
                if expires and entry is not None:
                    left = entry.expires - self._write_batch.loop.time()
                    properties[MqttProperty.MESSAGE_EXPIRY] = max(0, math.ceil(left))
                encoded = encode_properties(properties) if properties else NO_PROPERTIES
        if message.size + len(topic) + len(encoded or b"") + 9 > VARINT_MAX:
            return b""
        size = message.size if message.more else len(message.body)
        return encode_publish_start(first, topic, packet_id, encoded, size)

    def _alias(self, topic: bytes) -> tuple[int, bytes]:
        """The alias of a topic, and the topic to send with it."""
        aliases = self.aliases
        self._new_alias = b""
        if aliases is None:
            return 0, topic
        alias = aliases.get(topic)
        if alias is not None:
            return alias, b""
        if len(aliases) >= self.max_aliases:
            return 0, topic
        aliases[topic] = alias = len(aliases) + 1
        self._new_alias = topic
        return alias, topic

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        self._terminal.need_publish_handler().acknowledgements.confirmed(receipt)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if self._closed and not receipt:
            return
        if channel is not self.channel:
            self._terminal.need_publish_handler().acknowledgements.failed(receipt, error)
        elif isinstance(error, OSError):  # a large message was sent in part
            entry, self._large = self._large, None
            if entry is not None:
                channel.driver.channel_failure(channel, entry, False)
            self._terminal.fail(error)
        else:
            self._terminal.session_ended()

    # Large messages.

    def _forward_fragment(self, channel: Channel, fragment: Fragment) -> None:
        if self._terminal.closing:
            fragment.bucket.release()
            return
        output = self.output
        output.send(cast(bytes, fragment.body))
        output.bytes += len(fragment.body)
        output.hold_bucket(fragment.bucket)
        if fragment.more:
            self._request_fragment_soon(channel)
            return
        self._large = None
        output.out += self._deferred or ()
        self._deferred = None
        output.deferred_bytes = 0

    def _request_fragment_soon(self, channel: Channel) -> None:
        if not self.output.write_blocked:
            self._write_batch.loop.call_soon(self._request_fragment, channel)

    def _request_fragment(self, channel: Channel) -> None:
        blocked = self.output.write_blocked or self._terminal.closing
        if channel is self.channel and not blocked:
            self.request_all()
            self._write_batch.flush()

    # Output.

    def send(self, packet: bytes) -> None:
        if self._large is not None:
            if self._deferred is None:
                self._deferred = []
            self._deferred.append(packet)
            self.output.deferred_bytes += len(packet)
        elif not self._closed:  # a receipt may arrive after the client has disconnected
            self.output.send(packet)

    def flush(self) -> None:
        self.output.flush()

    def close(self) -> None:
        self._closed = True
        self._deferred = None
        self.output.close()
        self.channel = None

    # Credit.

    def open(self, channel: Channel) -> None:
        """Deliver the messages of a session."""
        self.channel = channel
        if not self.output.write_blocked:
            self.request_all()

    def request_all(self) -> None:
        channel = self.channel
        if channel is not None:
            credit = 0 if self.output.write_blocked else UNLIMITED_CREDIT
            channel.driver.channel_request(channel, credit)


#: Routes whose topics are cached.
MAX_CACHED_TOPICS: Final = 8192

_pack_short = Struct(">H").pack

#: As fast one by one as together.
FEW_MESSAGES: Final = 4

#: Empty properties: their length.
NO_PROPERTIES: Final = b"\x00"

#: Fixed headers of PUBLISH packets with a remaining length of one byte, at QoS 0 and 1.
QOS0_FIXED_HEADERS: Final = tuple(bytes((0x30, rest)) for rest in range(128))
QOS1_FIXED_HEADERS: Final = tuple(bytes((0x32, rest)) for rest in range(128))
#: The same of retained messages at QoS 0.
RETAINED_FIXED_HEADERS: Final = tuple(bytes((0x31, rest)) for rest in range(128))

#: Topics that are valid at sight: printable ASCII without wildcards.
PLAIN_TOPIC: Final = re.compile(rb"[ !\"$-*,-~]+")


def encode_topic(route: bytes) -> bytes:
    """The topic of a route with its length; empty if it is not valid in MQTT."""
    topic = routing_key_to_topic(route[route[0] + 2 :])
    if not PLAIN_TOPIC.fullmatch(topic):
        try:
            check_topic_name(decode_utf8_string(topic))
        except MqttError:  # a routing key of an AMQP client
            return b""
    return len(topic).to_bytes(2, "big") + topic


class EncodedPacketCache:
    """Caches the packets of the last message: all subscribers of a fan-out are served in a row.

    Small packets without properties, which nearly all are, are concatenated from the fixed header,
    the cached topic and the payload.
    """

    def __init__(self) -> None:
        self._topics: dict[bytes, bytes] = {}  #: with their length; empty if not valid in MQTT
        self._properties: MqttProperties | None = None
        self._encoded_v4: Message | None = None
        self._encoded_v5: Message | None = None
        self._packet4 = b""
        self._packet5 = b""
        self.message: Message | None = None  #: the loaded message
        self.topic = b""  #: empty if it is not valid in MQTT
        self.encoded = b""  #: its properties with their length, for 5.0
        #: At QoS 0, by version: one bound method for all connections.
        self.encoders = {4: self.encode_v4, 5: self.encode_v5}

    def load(self, message: Message) -> None:
        """Set `topic`, `properties` and `encoded`."""
        if self.message is message:
            return
        self.message = message
        self._properties = None
        head = self._topics.get(message.route)
        self.topic = (self._encode_topic(message.route) if head is None else head)[2:]
        self.encoded = NO_PROPERTIES
        if message.header[12:] not in MINIMAL_HEADER_TAILS:
            self._properties = message_properties(message)
            try:
                self.encoded = encode_properties(self._properties)
            except MqttError:  # of an AMQP client, and too large for MQTT
                self._properties = None

    @property
    def properties(self) -> MqttProperties:
        return self._properties or {}

    def encode_v4(self, message: Message) -> bytes:
        """At QoS 0, for 3.1.1; empty if MQTT cannot represent it."""
        if message is self._encoded_v4:
            return self._packet4
        fixed_headers = QOS0_FIXED_HEADERS
        if message.flags & FROM_RETAINED:  # each topic once: they would replace the cached ones
            fixed_headers = RETAINED_FIXED_HEADERS
            head = encode_topic(message.route)
        else:
            cached = self._topics.get(message.route)
            head = self._encode_topic(message.route) if cached is None else cached
        rest = len(head) + len(message.body) if head else 128
        if rest < 128:
            packet = fixed_headers[rest] + head + message.body
        else:
            packet = self._encode(message, None)
        self._encoded_v4 = message
        self._packet4 = packet
        return packet

    def encode_v5(self, message: Message) -> bytes:
        """At QoS 0, for 5.0; empty if MQTT cannot represent it."""
        if message is self._encoded_v5:
            return self._packet5
        head = self._topics.get(message.route)
        rest = len(head) + len(message.body) + 1 if head else 128
        if (
            head
            and rest < 128
            and message.header[12:] in MINIMAL_HEADER_TAILS
            and not message.flags & FROM_RETAINED
        ):
            packet = QOS0_FIXED_HEADERS[rest] + head + NO_PROPERTIES + message.body
        else:
            self.load(message)
            packet = self._encode(message, self.encoded)
        self._encoded_v5 = message
        self._packet5 = packet
        return packet

    def _encode(self, message: Message, properties: bytes | None) -> bytes:
        self.load(message)
        if not self.topic:
            return b""
        first = 0x31 if message.flags & FROM_RETAINED else 0x30
        return encode_publish(first, self.topic, 0, properties, message.body)

    def encode_run(self, run: MessageRun, packet_id: int, version: int) -> bytes:
        """The packets of a run, at QoS 1 with packet ids from `packet_id`, at QoS 0 without; empty
        if MQTT cannot represent them. All subscribers with these packet ids share them."""
        key = (packet_id, version == 5)
        packets = run.encoded.get(key)
        if packets is None:
            is_alike = len(run.bodies) > FEW_MESSAGES and run.has_one_header
            encode = self._encode_alike if is_alike else self._encode_run
            packets = run.encoded[key] = encode(run, packet_id, version)
        return packets

    def _encode_alike(self, run: MessageRun, packet_id: int, version: int) -> bytes:
        """A run with one header: the packets differ in their packet ids and payloads only."""
        head = self._topics.get(run.route)
        if head is None:
            head = self._encode_topic(run.route)
        if not head:
            return b""
        properties = b""
        if version == 5:
            self.load(run.messages[0])
            properties = self.encoded
        bodies = run.bodies
        rest = len(head) + (2 if packet_id else 0) + len(properties) + len(bodies[0])
        if rest < 128:
            fixed = (QOS1_FIXED_HEADERS if packet_id else QOS0_FIXED_HEADERS)[rest]
        else:
            fixed = (b"\x32" if packet_id else b"\x30") + write_varint(rest)
        start = fixed + head
        if not packet_id:
            start += properties
            return start + start.join(bodies)
        packet_ids = map(_pack_short, range(packet_id, packet_id + len(bodies)))
        pieces = zip(repeat(start), packet_ids, repeat(properties), bodies, strict=False)
        return b"".join(chain.from_iterable(pieces))

    def _encode_run(self, run: MessageRun, packet_id: int, version: int) -> bytes:
        return b"".join(self._pieces(run, packet_id, version))

    def _pieces(self, run: MessageRun, packet_id: int, version: int) -> Iterator[bytes]:
        head = self._topics.get(run.route)
        if head is None:
            head = self._encode_topic(run.route)
        if not head:
            return
        first = 0x32 if packet_id else 0x30
        fixed_headers = QOS1_FIXED_HEADERS if packet_id else QOS0_FIXED_HEADERS
        identifier = properties = b""
        for number, body in enumerate(run.bodies, packet_id):
            if packet_id:
                identifier = number.to_bytes(2, "big")
            if version == 5:
                self.load(run.messages[number - packet_id])
                properties = self.encoded
            rest = len(head) + len(identifier) + len(properties) + len(body)
            yield fixed_headers[rest] if rest < 128 else bytes((first,)) + write_varint(rest)
            yield head
            yield identifier
            yield properties
            yield body

    def encode_qos1(self, message: Message, packet_id: int, version: int) -> bytes:
        """A small message at QoS 1, sent for the first time; empty for any other."""
        head = self._topics.get(message.route)
        if not head or message.flags & FROM_RETAINED:
            return b""
        rest = len(head) + len(message.body) + (3 if version == 5 else 2)
        if rest > 127:
            return b""
        if version < 5:
            return QOS1_FIXED_HEADERS[rest] + head + packet_id.to_bytes(2, "big") + message.body
        if message.header[12:] not in MINIMAL_HEADER_TAILS:
            return b""
        return QOS1_FIXED_HEADERS[rest] + head + (packet_id << 8).to_bytes(3, "big") + message.body

    def _encode_topic(self, route: bytes) -> bytes:
        head = encode_topic(route)
        if len(self._topics) >= MAX_CACHED_TOPICS:
            self._topics.clear()
        self._topics[route] = head
        return head
