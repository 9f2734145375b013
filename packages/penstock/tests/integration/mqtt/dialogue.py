"""An MQTT client on a plain socket that does what a test says and nothing else.

It acknowledges nothing by itself, sends no pings and keeps no session, so that a test decides
every byte. Nothing here sleeps to wait: `receive` waits for a packet, `settle` for the answer to
a ping sent after everything else. A broker answers a client in order, so what has not arrived by
then was not sent.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from tests.integration.mqtt.building import (
    PINGREQ,
    answer_bytes,
    connect_bytes,
    ending_bytes,
    publish_bytes,
    subscribe_bytes,
    unsubscribe_bytes,
)
from tests.integration.mqtt.packets import MQTT_3, MQTT_5, Kind, Packet, Properties, Property
from tests.integration.mqtt.parsing import parse

#: Long enough for a busy machine; a test that works never waits this long.
PATIENCE: Final = 60.0
#: Who comes without another name; mosquitto lets anyone in.
GUEST: Final[dict[str, Any]] = {"user": "guest", "password": b"guest"}


class Closed(Exception):
    """The broker closed the connection where the test wanted a packet."""


class Client:
    """A connection to a broker; what arrives is read packet by packet.

    `exact` holds the broker to the reasons it gives as well.
    """

    def __init__(
        self, port: int, version: int = MQTT_5, client_id: str = "", *, exact: bool = True
    ) -> None:
        self.version = version
        self.client_id = client_id
        self.exact = exact
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connack: Packet | None = None
        self._received = bytearray()
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Go without a word, as when the network fails."""
        self.socket.close()

    # Bytes and packets

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, kind: Kind | None = None) -> Packet:
        """The next packet, which has to be of this kind."""
        while (packet := self._next()) is None:
            if not self._fill():
                raise Closed(f"the broker closed; left over: {bytes(self._received)!r}")
        assert kind is None or packet.kind is kind, packet
        return packet

    def receive_or_none(self) -> Packet | None:
        """The next packet, or None when the broker closes instead."""
        try:
            return self.receive()
        except Closed:
            return None

    def receive_many(self, count: int, kind: Kind = Kind.PUBLISH) -> list[Packet]:
        return [self.receive(kind) for _ in range(count)]

    def end(self) -> Packet | None:
        """Wait until the broker has closed: its last word, or None when it said nothing."""
        last = None
        while (packet := self.receive_or_none()) is not None:
            last = packet
        return last

    def receive_rest(self) -> bytes:
        """The bytes until the broker closes, whatever they mean."""
        while self._fill():
            pass
        return bytes(self._received)

    def expect_refusal(self, *reasons: int) -> None:
        """The broker ends the connection, and tells a client of version 5 one of these reasons.

        The standard asks for the closing and recommends the reason: of a peer only the former
        is asked.
        """
        last = self.end()
        if self.version == MQTT_3:
            assert last is None, last
        elif self.exact:
            assert last is not None
            assert (last.kind, last.reason in reasons) == (Kind.DISCONNECT, True), last
        else:
            assert last is None or last.reason >= 0x80, last

    def settle(self) -> list[Packet]:
        """What has arrived when the broker has nothing more to send for now."""
        self.send(PINGREQ)
        arrived: list[Packet] = []
        while (packet := self.receive()).kind is not Kind.PINGRESP:
            arrived.append(packet)
        return arrived

    def payloads_until(self, last: bytes) -> list[bytes]:
        """The payloads of what is published, up to this one.

        For a filter that others' retained messages match: they may come a few at a time.
        """
        payloads = [self.receive(Kind.PUBLISH).payload]
        while payloads[-1] != last:
            payloads.append(self.receive(Kind.PUBLISH).payload)
        return payloads

    def stay_silent(self, seconds: float) -> None:
        """Let time pass in which nothing may arrive."""
        self.socket.settimeout(seconds)
        try:
            unexpected = self.receive()
        except TimeoutError:
            self.socket.settimeout(PATIENCE)
        else:
            raise AssertionError(unexpected)

    def _next(self) -> Packet | None:
        size = position = 0
        while True:
            position += 1
            if len(self._received) <= position:
                return None
            byte = self._received[position]
            size |= (byte & 127) << 7 * (position - 1)
            if byte < 128:
                break
            assert position < 4, "a length of five bytes"
        end = position + 1 + size
        if len(self._received) < end:
            return None
        body = bytes(self._received[position + 1 : end])
        first = self._received[0]
        del self._received[:end]
        return parse(first, body, end, self.version)

    def _fill(self) -> bool:
        # A broker that sends small packets one by one would wait for the acknowledgement of each.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        try:
            data = self.socket.recv(262144)
        except (ConnectionResetError, BrokenPipeError):
            return False
        self._received += data
        return bool(data)

    # What clients say

    def connect(self, **fields: Any) -> Packet:
        """Send a CONNECT with these fields; the CONNACK."""
        self.send(connect_bytes(self.client_id, version=self.version, **{**GUEST, **fields}))
        self.connack = self.receive(Kind.CONNACK)
        return self.connack

    def subscribe(self, *filters: str, options: int = 0, properties: Properties = ()) -> Packet:
        """Subscribe to filters, all with the same options; the SUBACK."""
        return self.call(
            subscribe_bytes(
                self.next_number(),
                [(one, options) for one in filters],
                version=self.version,
                properties=properties,
            ),
            Kind.SUBACK,
        )

    def unsubscribe(self, *filters: str) -> Packet:
        number = self.next_number()
        return self.call(unsubscribe_bytes(number, filters, version=self.version), Kind.UNSUBACK)

    def publish(self, topic: str, payload: bytes = b"", qos: int = 1, **fields: Any) -> Packet:
        """Publish and see it through; the last answer, or what QoS 0 has instead: a ping's."""
        number = fields.pop("number", None) or (self.next_number() if qos else None)
        data = publish_bytes(topic, payload, qos=qos, number=number, version=self.version, **fields)
        if qos == 0:
            return self.call(data + PINGREQ, Kind.PINGRESP)
        if qos == 1:
            return self.call(data, Kind.PUBACK)
        assert number is not None
        self.call(data, Kind.PUBREC)
        return self.call(answer_bytes(Kind.PUBREL, number), Kind.PUBCOMP)

    def answer(self, kind: Kind, packet: Packet | int, reason: int | None = None) -> None:
        """Send a PUBACK, PUBREC, PUBREL or PUBCOMP for a packet, or for a number."""
        number = packet if isinstance(packet, int) else packet.number
        self.send(answer_bytes(kind, number, reason))

    def take(self, qos: int = 1) -> Packet:
        """Receive a PUBLISH of this QoS and acknowledge it to the end."""
        packet = self.receive(Kind.PUBLISH)
        assert packet.qos == qos, packet
        if qos == 1:
            self.answer(Kind.PUBACK, packet)
        elif qos == 2:
            self.answer(Kind.PUBREC, packet)
            assert self.receive(Kind.PUBREL).number == packet.number
            self.answer(Kind.PUBCOMP, packet)
        return packet

    def disconnect(self, reason: int | None = None, properties: Properties | None = None) -> None:
        """Take leave, and wait until the broker has closed: it has dealt with it all then."""
        self.send(ending_bytes(Kind.DISCONNECT, reason, properties))
        assert self.end() is None
        self.close()

    def call(self, data: bytes, answer: Kind) -> Packet:
        """Send a packet; the answer has to be the next thing that comes."""
        self.send(data)
        return self.receive(answer)

    def next_number(self) -> int:
        self._number += 1
        return self._number


#: Opens a connection; see the fixtures `dial` and `connect`.
Connect = Callable[..., Client]


def lasting(version: int, seconds: int = 60, **fields: Any) -> dict[str, Any]:
    """Fields of a CONNECT that resumes its session or begins one that outlives the connection."""
    if version == MQTT_5:
        expiry = (Property.SESSION_EXPIRY, seconds)
        fields["properties"] = [expiry, *fields.get("properties", ())]
    return {"clean": False, **fields}
