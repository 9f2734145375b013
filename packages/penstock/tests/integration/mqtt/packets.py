"""MQTT's packets, properties and options, as the conformance tests name them.

This and its neighbours `building` and `parsing` are written from the standard and not from
`penstock.protocols.mqtt`, so that a mistake there cannot vouch for itself here. Version 4 is
MQTT 3.1.1, version 5 is MQTT 5.0, as in the byte that a CONNECT has for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

MQTT_3: Final = 4
MQTT_5: Final = 5

#: Options of a subscription that can be added to its QoS.
NO_LOCAL: Final = 4
RETAIN_AS_PUBLISHED: Final = 8
RETAINED_IF_NEW: Final = 0x10
RETAINED_NEVER: Final = 0x20


class Kind(IntEnum):
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Property(IntEnum):
    PAYLOAD_FORMAT = 1
    MESSAGE_EXPIRY = 2
    CONTENT_TYPE = 3
    RESPONSE_TOPIC = 8
    CORRELATION_DATA = 9
    SUBSCRIPTION_IDENTIFIER = 11
    SESSION_EXPIRY = 17
    ASSIGNED_CLIENT_IDENTIFIER = 18
    SERVER_KEEP_ALIVE = 19
    AUTHENTICATION_METHOD = 21
    AUTHENTICATION_DATA = 22
    REQUEST_PROBLEM_INFORMATION = 23
    WILL_DELAY = 24
    REQUEST_RESPONSE_INFORMATION = 25
    RESPONSE_INFORMATION = 26
    SERVER_REFERENCE = 28
    REASON_STRING = 31
    RECEIVE_MAXIMUM = 33
    TOPIC_ALIAS_MAXIMUM = 34
    TOPIC_ALIAS = 35
    MAXIMUM_QOS = 36
    RETAIN_AVAILABLE = 37
    USER_PROPERTY = 38
    MAXIMUM_PACKET_SIZE = 39
    WILDCARD_SUBSCRIPTION_AVAILABLE = 40
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 41
    SHARED_SUBSCRIPTION_AVAILABLE = 42


#: Pairs in the order they have on the wire; a user property's value is a pair of strings.
Properties = Sequence[tuple[Property, Any]]

#: The form of each property: a number of so many bytes, or a letter for the rest.
FORMS: Final[dict[Property, int | str]] = {
    Property.PAYLOAD_FORMAT: 1,
    Property.MESSAGE_EXPIRY: 4,
    Property.CONTENT_TYPE: "string",
    Property.RESPONSE_TOPIC: "string",
    Property.CORRELATION_DATA: "binary",
    Property.SUBSCRIPTION_IDENTIFIER: "varint",
    Property.SESSION_EXPIRY: 4,
    Property.ASSIGNED_CLIENT_IDENTIFIER: "string",
    Property.SERVER_KEEP_ALIVE: 2,
    Property.AUTHENTICATION_METHOD: "string",
    Property.AUTHENTICATION_DATA: "binary",
    Property.REQUEST_PROBLEM_INFORMATION: 1,
    Property.WILL_DELAY: 4,
    Property.REQUEST_RESPONSE_INFORMATION: 1,
    Property.RESPONSE_INFORMATION: "string",
    Property.SERVER_REFERENCE: "string",
    Property.REASON_STRING: "string",
    Property.RECEIVE_MAXIMUM: 2,
    Property.TOPIC_ALIAS_MAXIMUM: 2,
    Property.TOPIC_ALIAS: 2,
    Property.MAXIMUM_QOS: 1,
    Property.RETAIN_AVAILABLE: 1,
    Property.USER_PROPERTY: "pair",
    Property.MAXIMUM_PACKET_SIZE: 4,
    Property.WILDCARD_SUBSCRIPTION_AVAILABLE: 1,
    Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE: 1,
    Property.SHARED_SUBSCRIPTION_AVAILABLE: 1,
}


@dataclass(frozen=True)
class Packet:
    """What a server sent; fields that the kind of packet does not have keep their defaults."""

    kind: Kind
    flags: int
    size: int
    number: int = 0
    present: bool = False
    reasons: tuple[int, ...] = ()
    properties: Properties = ()
    topic: str = ""
    payload: bytes = b""

    @property
    def reason(self) -> int:
        return self.reasons[0]

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)

    def get(self, wanted: Property) -> Any:
        """The property's value, or None; it may be there once."""
        values = self.all(wanted)
        assert len(values) <= 1, values
        return values[0] if values else None

    def all(self, wanted: Property) -> list[Any]:
        return [value for name, value in self.properties if name is wanted]


@dataclass(frozen=True)
class Will:
    topic: str
    payload: bytes = b"gone"
    qos: int = 0
    retain: bool = False
    properties: Properties = ()
