"""MQTT clients of QoS 2, byte by byte, that keep a session: one reuses a packet id at once."""

from __future__ import annotations

import socket
from typing import Final, NamedTuple, Self

PUBLISHER: Final = "publisher of once"
SUBSCRIBER: Final = "subscriber of once"
TOPIC: Final = "once"
_PUBLISH, _PUBREC, _PUBREL, _PUBCOMP = 0x34, b"\x50\x02", b"\x62\x02", b"\x70\x02"
#: The only packet id of the publisher.
_ID = b"\x00\x01"


class MqttArrival(NamedTuple):
    kind: int
    body: str  #: of a PUBLISH
    packet_id: bytes


class ExactlyOnceClient:
    def __init__(self, port: int, name: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._reader = self._socket.makefile("rb")
        login = b"".join(_text(word) for word in (name, "guest", "guest"))
        body = _text("MQTT") + b"\x04\xc0\x00\x00" + login  # 3.1.1, not clean, no keep alive
        self._send(b"\x10" + bytes((len(body),)) + body)
        assert self._packet()[0] == 0x20

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._socket.close()

    def subscribe(self) -> None:
        body = b"\x00\x09" + _text(TOPIC) + b"\x02"
        self._send(b"\x82" + bytes((len(body),)) + body)
        assert self._packet() == (0x90, b"\x00\x09\x02")

    def publish(self, body: str) -> None:
        """Until PUBREC."""
        content = _text(TOPIC) + _ID + body.encode()
        self._send(bytes((_PUBLISH, len(content))) + content)
        assert self._packet() == (_PUBREC[0], _ID)

    def release(self) -> None:
        self._send(_PUBREL + _ID)
        assert self._packet() == (_PUBCOMP[0], _ID)

    def receive(self) -> MqttArrival:
        kind, content = self._packet()
        if kind & 0xF0 != 0x30:
            return MqttArrival(kind, "", content)
        size = 2 + int.from_bytes(content[:2], "big")
        after = size + 2 if kind & 6 else size
        return MqttArrival(0x30, content[after:].decode(), content[size:after])

    def has(self, arrival: MqttArrival) -> None:
        """PUBREC for a PUBLISH, PUBCOMP for a PUBREL."""
        answer = _PUBREC if arrival.kind == 0x30 else _PUBCOMP
        self._send(answer + arrival.packet_id)

    def stop(self) -> None:
        """Whoever receives gets EOFError."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _packet(self) -> tuple[int, bytes]:
        head = self._reader.read(2)
        if len(head) < 2:
            raise EOFError
        assert head[1] < 0x80, "a packet of more than 127 bytes"
        return head[0], self._reader.read(head[1])


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def check_exactly_once(
    port: int, *, is_id_free: bool, confirmed: set[str], taken: set[str], released: set[str]
) -> list[str]:
    """After a power cut: the publisher uses its packet id again if it may, and the subscriber gets
    what it does not have. Messages were confirmed to the publisher; taken by the subscriber, maybe;
    and released to it. Returns the bodies that were published here."""
    after = {PUBLISHER: "after", "another": "the end"}
    if not is_id_free:  # a message that was not answered may have it
        del after[PUBLISHER]
    for name, body in after.items():
        with ExactlyOnceClient(port, name) as publisher:
            publisher.publish(body)
            publisher.release()
    arrived: set[str] = set()
    with ExactlyOnceClient(port, SUBSCRIBER) as subscriber:
        while after["another"] not in arrived:
            arrival = subscriber.receive()
            arrived.add(arrival.body)
            subscriber.has(arrival)
    again = arrived & released
    assert not again, f"once: received twice: {sorted(again)[:5]}"
    lost = (confirmed | set(after.values())) - arrived - taken
    assert not lost, f"once: not received: {sorted(lost)[:5]}"
    return list(after.values())
