"""The press: messages as the packets that subscribers get, each set once and printed for many.

All subscribers of a message are served one after another, so remembering the last packet is all it
takes to encode a fan-out once. Small packets without properties, which nearly all are, are put
together from three pieces: how they begin, the topic, the payload.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.contract import RECALLED, Message
from penstock.terminals.mqtt.encode import publish
from penstock.terminals.mqtt.fields import text_of
from penstock.terminals.mqtt.properties import Properties, encode_properties
from penstock.terminals.mqtt.reasons import MqttError
from penstock.terminals.mqtt.topics import check_topic, to_topic
from penstock.terminals.mqtt.translation import TAILS, properties_of

#: Routes whose topics are remembered.
ROUTES: Final = 8192

#: The length of no properties.
NONE: Final = b"\x00"

#: How a PUBLISH begins whose remaining length is one byte: at QoS 0, and at QoS 1.
STARTS_0: Final = tuple(bytes((0x30, rest)) for rest in range(128))
STARTS_1: Final = tuple(bytes((0x32, rest)) for rest in range(128))


class Press:
    __slots__ = (
        "_heads",
        "_packet4",
        "_packet5",
        "_printed4",
        "_printed5",
        "_properties",
        "encoded",
        "message",
        "topic",
    )

    def __init__(self) -> None:
        self._heads: dict[bytes, bytes] = {}  #: topics with their length; empty if MQTT has none
        self._properties: Properties | None = None
        self._printed4: Message | None = None
        self._printed5: Message | None = None
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
        self.encoded = NONE
        if message.header[12:] not in TAILS:
            self._properties = properties_of(message)
            try:
                self.encoded = encode_properties(self._properties)
            except MqttError:  # they are an AMQP client's, and more than MQTT has room for
                self._properties = None

    @property
    def properties(self) -> Properties:
        """Those of the message that is set."""
        return self._properties or {}

    def print4(self, message: Message) -> bytes:
        """At QoS 0, to a client of 3.1.1; empty when it cannot be."""
        if message is self._printed4:
            return self._packet4
        head = self._heads.get(message.route)
        rest = len(head) + len(message.body) if head else 128
        if head and rest < 128 and not message.flags & RECALLED:
            packet = STARTS_0[rest] + head + message.body
        else:
            packet = self._print(message, None)
        self._printed4 = message
        self._packet4 = packet
        return packet

    def print5(self, message: Message) -> bytes:
        """At QoS 0, to a client of 5.0; empty when it cannot be."""
        if message is self._printed5:
            return self._packet5
        head = self._heads.get(message.route)
        rest = len(head) + len(message.body) + 1 if head else 128
        if head and rest < 128 and message.header[12:] in TAILS and not message.flags & RECALLED:
            packet = STARTS_0[rest] + head + NONE + message.body
        else:
            self.set(message)
            packet = self._print(message, self.encoded)
        self._printed5 = message
        self._packet5 = packet
        return packet

    def _print(self, message: Message, properties: bytes | None) -> bytes:
        self.set(message)
        if not self.topic:
            return b""
        first = 0x31 if message.flags & RECALLED else 0x30
        return publish(first, self.topic, 0, properties, message.body)

    def numbered(self, message: Message, number: int, version: int) -> bytes:
        """A small one at QoS 1, sent for the first time; empty when it takes more than that."""
        head = self._heads.get(message.route)
        if not head or message.flags & RECALLED:
            return b""
        rest = len(head) + len(message.body) + (3 if version == 5 else 2)
        if rest > 127:
            return b""
        if version < 5:
            return STARTS_1[rest] + head + number.to_bytes(2, "big") + message.body
        if message.header[12:] not in TAILS:
            return b""
        return STARTS_1[rest] + head + (number << 8).to_bytes(3, "big") + message.body

    def _head(self, route: bytes) -> bytes:
        topic = to_topic(route[route[0] + 2 :])
        try:
            check_topic(text_of(topic))
            head = len(topic).to_bytes(2, "big") + topic
        except MqttError:  # an AMQP client chose a key that is no topic
            head = b""
        if len(self._heads) >= ROUTES:
            self._heads.clear()
        self._heads[route] = head
        return head
