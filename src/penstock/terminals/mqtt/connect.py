"""CONNECT: who the client is, what it speaks and what is to be said when it is gone.

MQTT 5.0, 3.1.1 and 3.1 are read, told apart by the protocol's name and level. What cannot be
accepted raises `MqttError` with the level asked for in `version`, so that the refusal can be
worded in what the client understands. Whether the client may do as it wishes is the terminal's
to judge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.terminals.mqtt.fields import (
    CONNECT,
    malformed,
    read_binary,
    read_byte,
    read_short,
    read_text,
)
from penstock.terminals.mqtt.properties import WILL, Properties, Property, read_properties
from penstock.terminals.mqtt.reasons import MqttError, Reason
from penstock.terminals.mqtt.topics import check_topic

#: The protocol's name → its levels.
_LEVELS: Final = {b"MQTT": (4, 5), b"MQIsdp": (3,)}

# The bits of the connect flags.
RESERVED: Final = 0x01
CLEAN_START: Final = 0x02
HAS_WILL: Final = 0x04
WILL_QOS: Final = 0x18
WILL_RETAIN: Final = 0x20
HAS_PASSWORD: Final = 0x40
HAS_USERNAME: Final = 0x80


@dataclass(frozen=True, slots=True)
class Will:
    """What is to be published when the connection ends without a DISCONNECT."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Connect:
    version: int  #: 3 for MQTT 3.1, 4 for 3.1.1, 5 for 5.0
    client_id: str
    clean_start: bool  #: "clean session" before 5.0
    keep_alive: int  #: seconds; 0 for none
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = field(default_factory=dict)


def decode_connect(body: bytes) -> Connect:
    version, pos = _version(body)
    try:
        return _connect(body, pos, version)
    except MqttError as error:
        error.version = version
        raise


def _version(body: bytes) -> tuple[int, int]:
    name, pos = read_binary(body, 0)
    level, pos = read_byte(body, pos)
    if level not in _LEVELS.get(name, ()):
        error = MqttError(
            Reason.UNSUPPORTED_PROTOCOL_VERSION,
            f"protocol {name[:20]!r} level {level}: MQTT 3.1, 3.1.1 and 5.0 are spoken here",
        )
        error.version = level if name in _LEVELS else 0
        raise error
    return level, pos


def _connect(body: bytes, pos: int, version: int) -> Connect:
    flags, pos = read_byte(body, pos)
    _check_flags(flags, version)
    keep_alive, pos = read_short(body, pos)
    properties: Properties = {}
    if version == 5:
        properties, pos = read_properties(body, pos, CONNECT)
        _check_authentication(properties)
    client_id, pos = read_text(body, pos)
    _check_client_id(client_id, flags, version)
    will: Will | None = None
    if flags & HAS_WILL:
        will, pos = _will(body, pos, flags, version)
    username: str | None = None
    if flags & HAS_USERNAME:
        username, pos = read_text(body, pos)
    password: bytes | None = None
    if flags & HAS_PASSWORD:
        password, pos = read_binary(body, pos)
    if pos < len(body):
        raise malformed(f"{len(body) - pos} bytes after the end of CONNECT")
    clean_start = flags & CLEAN_START != 0
    return Connect(
        version, client_id, clean_start, keep_alive, username, password, will, properties
    )


def _will(body: bytes, pos: int, flags: int, version: int) -> tuple[Will, int]:
    properties: Properties = {}
    if version == 5:
        properties, pos = read_properties(body, pos, WILL)
    topic, pos = read_text(body, pos)
    check_topic(topic)
    payload, pos = read_binary(body, pos)
    qos, retain = (flags & WILL_QOS) >> 3, flags & WILL_RETAIN != 0
    return Will(topic, payload, qos, retain, properties), pos


def _check_flags(flags: int, version: int) -> None:
    # 3.1 says nothing of the bit that the others reserve.
    if flags & RESERVED and version > 3:
        raise malformed("the reserved connect flag is set")
    if flags & WILL_QOS == WILL_QOS:
        raise malformed("will with QoS 3")
    if flags & (WILL_QOS | WILL_RETAIN) and not flags & HAS_WILL:
        raise MqttError(Reason.PROTOCOL_ERROR, "QoS or retain flag of a will, but no will")
    if flags & HAS_PASSWORD and not flags & HAS_USERNAME and version < 5:
        raise MqttError(Reason.PROTOCOL_ERROR, "password without a user name")


def _check_authentication(properties: Properties) -> None:
    data, method = Property.AUTHENTICATION_DATA, Property.AUTHENTICATION_METHOD
    if data in properties and method not in properties:
        raise MqttError(Reason.PROTOCOL_ERROR, "authentication data without a method")


def _check_client_id(client_id: str, flags: int, version: int) -> None:
    """Who has no name is given one; before 5.0, only if no session is to be kept under it."""
    if client_id or version == 5 or (version == 4 and flags & CLEAN_START):
        return
    raise MqttError(
        Reason.CLIENT_IDENTIFIER_NOT_VALID, "a client that keeps its session must name itself"
    )
