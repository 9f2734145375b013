"""An AMQP 0-9-1 client that can misbehave: frames by hand on a plain socket.

The frames are pika's, so that nothing of Penstock's own codec vouches for itself. Nothing happens
by itself either: no heartbeats, no negotiation that a test did not ask for.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Final, Self

import pika
from pika import amqp_object, frame, spec

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
FRAME_END: Final = b"\xce"


def frame_bytes(kind: int, channel: int, payload: bytes, end: bytes = FRAME_END) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def method_bytes(channel: int, method: amqp_object.Method) -> bytes:
    marshalled: bytes = frame.Method(channel, method).marshal()
    return marshalled


def header_bytes(channel: int, size: int, properties: pika.BasicProperties | None = None) -> bytes:
    marshalled: bytes = frame.Header(channel, size, properties or pika.BasicProperties()).marshal()
    return marshalled


def message_bytes(
    channel: int,
    body: bytes,
    *,
    exchange: str = "",
    routing_key: str = "",
    properties: pika.BasicProperties | None = None,
    mandatory: bool = False,
) -> bytes:
    """A whole publish whose body fits into one frame."""
    publish = spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
    content = frame_bytes(BODY, channel, body) if body else b""
    return method_bytes(channel, publish) + header_bytes(channel, len(body), properties) + content


class Wire:
    """A connection to a broker; what arrives is read frame by frame."""

    def __init__(self, port: int, timeout: float = 20.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def call(self, channel: int, method: amqp_object.Method) -> Any:
        """Send a method and return the next one that arrives."""
        self.send(method_bytes(channel, method))
        return self.receive_method()

    def receive(self) -> Any:
        """The next frame, or None when the broker has closed the connection."""
        while True:
            if len(self._received) >= 7:
                size = int.from_bytes(self._received[3:7], "big") + 8
                if len(self._received) >= size:
                    _, decoded = frame.decode_frame(bytes(self._received[:size]))
                    del self._received[:size]
                    return decoded
            if not self._fill():
                return None

    def receive_method(self) -> Any:
        """The next method, past any heartbeats; None when the broker has closed."""
        while True:
            arrived = self.receive()
            if arrived is None:
                return None
            if isinstance(arrived, frame.Method):
                return arrived.method

    def receive_close(self) -> Any:
        """How the broker ends the connection: its Close, or None for a closed socket."""
        while True:
            method = self.receive_method()
            if method is None or isinstance(method, spec.Connection.Close):
                return method

    def receive_rest(self) -> bytes:
        """Everything until the broker closes the connection."""
        while self._fill():
            pass
        return bytes(self._received)

    def receive_until(self, ending: bytes) -> bytes:
        """Everything up to and including these bytes."""
        while ending not in self._received:
            assert self._fill(), f"closed before {ending!r}: {bytes(self._received)!r}"
        return bytes(self._received)

    def receive_some(self) -> bytes:
        """Whatever is here, or comes next; empty when the broker has closed the connection."""
        if not self._received:
            self._fill()
        data = bytes(self._received)
        self._received.clear()
        return data

    def _fill(self) -> bool:
        try:
            data = self.socket.recv(262144)
        except ConnectionResetError:
            return False
        self._received += data
        return bool(data)

    def negotiate(
        self,
        *,
        heartbeat: int = 0,
        frame_max: int = 131072,
        channel_max: int = 0,
        host: str = "/",
        user: str = "guest",
        password: str = "guest",
        capabilities: dict[str, bool] | None = None,
    ) -> spec.Connection.Tune:
        """Open the connection; returns what the broker proposed."""
        self.send(PROTOCOL_HEADER)
        start = self.receive_method()
        assert isinstance(start, spec.Connection.Start), start
        tune = self.call(
            0,
            spec.Connection.StartOk(
                client_properties={"capabilities": capabilities or {}},
                mechanism="PLAIN",
                response=f"\0{user}\0{password}",
                locale="en_US",
            ),
        )
        assert isinstance(tune, spec.Connection.Tune), tune
        tune_ok = spec.Connection.TuneOk(
            channel_max=channel_max or tune.channel_max, frame_max=frame_max, heartbeat=heartbeat
        )
        self.send(method_bytes(0, tune_ok))
        opened = self.call(0, spec.Connection.Open(virtual_host=host))
        assert isinstance(opened, spec.Connection.OpenOk), opened
        return tune

    def open_channel(self, channel: int = 1) -> None:
        opened = self.call(channel, spec.Channel.Open())
        assert isinstance(opened, spec.Channel.OpenOk), opened

    def ping(self, channel: int = 1) -> None:
        """A round trip, to show that the connection and the channel still serve."""
        answer = self.call(channel, spec.Basic.Qos(prefetch_count=0))
        assert isinstance(answer, spec.Basic.QosOk), answer
