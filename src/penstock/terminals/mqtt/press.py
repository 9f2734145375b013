"""The press: messages as the packets that subscribers get, each set once and printed for many.

All subscribers of a message are served one after another, so remembering the last message is all
it takes to encode a fan-out once.
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


class Press:
    __slots__ = ("_properties", "_topics", "encoded", "message", "packet4", "packet5", "topic")

    def __init__(self) -> None:
        self._topics: dict[bytes, bytes] = {}
        self._properties: Properties | None = None
        self.message: Message | None = None  #: what is set
        self.topic = b""  #: empty when it has none that MQTT could name
        self.encoded = b""  #: its properties with their length, for 5.0
        self.packet4 = b""  #: at QoS 0; empty until printed
        self.packet5 = b""

    def set(self, message: Message) -> None:
        self.message = message
        self.packet4 = self.packet5 = b""
        self._properties = None
        topic = self._topics.get(message.route)
        self.topic = self._topic(message.route) if topic is None else topic
        if message.header[12:] in TAILS:
            self.encoded = NONE
        else:
            self._properties = properties_of(message)
            try:
                self.encoded = encode_properties(self._properties)
            except MqttError:  # they are an AMQP client's, and more than MQTT has room for
                self._properties = None
                self.encoded = NONE

    @property
    def properties(self) -> Properties:
        """Those of the message that is set."""
        return self._properties or {}

    def print4(self, message: Message) -> bytes:
        """At QoS 0, to a client of 3.1.1; empty when it cannot be."""
        if self.message is not message:
            self.set(message)
        if not self.packet4 and self.topic:
            first = 0x31 if message.flags & RECALLED else 0x30
            self.packet4 = publish(first, self.topic, 0, None, message.body)
        return self.packet4

    def print5(self, message: Message) -> bytes:
        """At QoS 0, to a client of 5.0; empty when it cannot be."""
        if self.message is not message:
            self.set(message)
        if not self.packet5 and self.topic:
            first = 0x31 if message.flags & RECALLED else 0x30
            self.packet5 = publish(first, self.topic, 0, self.encoded, message.body)
        return self.packet5

    def _topic(self, route: bytes) -> bytes:
        topic = to_topic(route[route[0] + 2 :])
        try:
            check_topic(text_of(topic))
        except MqttError:  # an AMQP client chose a key that is no topic
            topic = b""
        if len(self._topics) >= ROUTES:
            self._topics.clear()
        self._topics[route] = topic
        return topic
