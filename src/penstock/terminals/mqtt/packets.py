"""The packets a client sends now and then, as values: SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH.

Each decoder takes a whole body, as the reader's `on_packet` gives it, and either accounts for every
byte of it or raises `MqttError` with the reason the standard asks for. CONNECT, which settles what
version the others are in, has `connect.py`; what comes by the million, `reader.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.terminals.mqtt.fields import AUTH as AUTH
from penstock.terminals.mqtt.fields import CONNACK as CONNACK
from penstock.terminals.mqtt.fields import CONNECT as CONNECT
from penstock.terminals.mqtt.fields import DISCONNECT as DISCONNECT
from penstock.terminals.mqtt.fields import PINGREQ as PINGREQ
from penstock.terminals.mqtt.fields import PINGRESP as PINGRESP
from penstock.terminals.mqtt.fields import PUBACK as PUBACK
from penstock.terminals.mqtt.fields import PUBCOMP as PUBCOMP
from penstock.terminals.mqtt.fields import PUBLISH as PUBLISH
from penstock.terminals.mqtt.fields import PUBREC as PUBREC
from penstock.terminals.mqtt.fields import PUBREL as PUBREL
from penstock.terminals.mqtt.fields import SUBACK as SUBACK
from penstock.terminals.mqtt.fields import SUBSCRIBE as SUBSCRIBE
from penstock.terminals.mqtt.fields import UNSUBACK as UNSUBACK
from penstock.terminals.mqtt.fields import UNSUBSCRIBE as UNSUBSCRIBE
from penstock.terminals.mqtt.fields import malformed, read_byte, read_number, read_text
from penstock.terminals.mqtt.properties import Properties, Property, read_properties
from penstock.terminals.mqtt.reasons import MqttError, Reason
from penstock.terminals.mqtt.topics import check_filter, split_share

#: What a DISCONNECT may say, from either side.
_FAREWELLS: Final = frozenset(
    {
        *(Reason.SUCCESS, Reason.DISCONNECT_WITH_WILL_MESSAGE),
        *(Reason.UNSPECIFIED_ERROR, Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR),
        *(Reason.IMPLEMENTATION_SPECIFIC_ERROR, Reason.NOT_AUTHORIZED, Reason.SERVER_BUSY),
        *(Reason.SERVER_SHUTTING_DOWN, Reason.BAD_AUTHENTICATION_METHOD),
        *(Reason.KEEP_ALIVE_TIMEOUT, Reason.SESSION_TAKEN_OVER),
        *(Reason.TOPIC_FILTER_INVALID, Reason.TOPIC_NAME_INVALID),
        *(Reason(number) for number in range(0x93, 0xA3)),
    }
)
_STEPS: Final = frozenset({Reason.SUCCESS, Reason.CONTINUE_AUTHENTICATION, Reason.RE_AUTHENTICATE})


@dataclass(frozen=True, slots=True)
class Subscription:
    """One filter of a SUBSCRIBE. What 3.1.1 cannot ask for is as if it had not been asked."""

    filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


def decode_subscribe(body: bytes, version: int) -> tuple[int, Properties, list[Subscription]]:
    number, properties, pos = _opening(body, version, SUBSCRIBE)
    subscriptions: list[Subscription] = []
    while pos < len(body):
        filter_, pos = read_text(body, pos)
        options, pos = read_byte(body, pos)
        subscriptions.append(_subscription(filter_, options, version))
    if not subscriptions:
        raise MqttError(Reason.PROTOCOL_ERROR, "SUBSCRIBE without a topic filter")
    return number, properties, subscriptions


def decode_unsubscribe(body: bytes, version: int) -> tuple[int, Properties, list[str]]:
    number, properties, pos = _opening(body, version, UNSUBSCRIBE)
    filters: list[str] = []
    while pos < len(body):
        filter_, pos = read_text(body, pos)
        check_filter(split_share(filter_)[1])
        filters.append(filter_)
    if not filters:
        raise MqttError(Reason.PROTOCOL_ERROR, "UNSUBSCRIBE without a topic filter")
    return number, properties, filters


def decode_disconnect(body: bytes, version: int) -> tuple[Reason, Properties]:
    if version < 5 and body:
        raise malformed(f"DISCONNECT with {len(body)} bytes, none are allowed before MQTT 5.0")
    return _statement(body, DISCONNECT, _FAREWELLS)


def decode_auth(body: bytes) -> tuple[Reason, Properties]:
    reason, properties = _statement(body, AUTH, _STEPS)
    if body and Property.AUTHENTICATION_METHOD not in properties:
        raise MqttError(Reason.PROTOCOL_ERROR, "AUTH without an authentication method")
    return reason, properties


def _opening(body: bytes, version: int, kind: int) -> tuple[int, Properties, int]:
    """The packet identifier and the properties that come before filters."""
    number, pos = read_number(body, 0)
    if version < 5:
        return number, {}, pos
    properties, pos = read_properties(body, pos, kind)
    return number, properties, pos


def _subscription(filter: str, options: int, version: int) -> Subscription:  # noqa: A002
    group, plain = split_share(filter)
    check_filter(plain)
    if options & (0b1100_0000 if version == 5 else 0b1111_1100):
        raise malformed(f"reserved bits in the subscription options {options:#x}")
    qos, handling = options & 3, options >> 4 & 3
    if qos == 3:
        reason = Reason.PROTOCOL_ERROR if version == 5 else Reason.MALFORMED_PACKET
        raise MqttError(reason, "subscription with QoS 3")
    if handling == 3:
        raise MqttError(Reason.PROTOCOL_ERROR, "subscription with retain handling 3")
    no_local = options & 4 != 0
    if no_local and group is not None:
        raise MqttError(Reason.PROTOCOL_ERROR, "shared subscription with the no-local option")
    return Subscription(filter, qos, no_local, options & 8 != 0, handling)


def _statement(body: bytes, kind: int, legal: frozenset[Reason]) -> tuple[Reason, Properties]:
    """A reason and properties, either of which may be left out from the end."""
    if not body:
        return Reason.SUCCESS, {}
    if body[0] not in legal:
        raise MqttError(Reason.PROTOCOL_ERROR, f"reason {body[0]:#x} has no place in this packet")
    properties, pos = read_properties(body, 1, kind) if len(body) > 1 else ({}, 1)
    if pos < len(body):
        raise malformed(f"{len(body) - pos} bytes after the end of the properties")
    return Reason(body[0]), properties
