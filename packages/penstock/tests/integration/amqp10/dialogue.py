"""A client of AMQP 1.0 that says what it is told, byte by byte, and reads what comes back."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from penstock.wire.amqp10.codec import decode, encode
from penstock.wire.amqp10.values import Described, Symbol, UInt, ULong

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

OPEN, BEGIN, ATTACH, FLOW, TRANSFER = 0x10, 0x11, 0x12, 0x13, 0x14
DISPOSITION, DETACH, END, CLOSE = 0x15, 0x16, 0x17, 0x18
MECHANISMS, INIT, OUTCOME = 0x40, 0x41, 0x44
SOURCE, TARGET, ACCEPTED = 0x28, 0x29, 0x24

#: A loaded machine gets time to spare.
SECONDS = 30


@dataclass
class Frame:
    kind: int
    channel: int
    code: int  #: of the performative; 0 for an empty frame
    fields: list[Any]
    payload: bytes

    @property
    def condition(self) -> str:
        """Of a detach, an end or a close that has an error."""
        error = self.fields[-1] if self.fields else None
        return str(error.value[0]) if isinstance(error, Described) else ""


def frame(code: int, *fields: Any, channel: int = 0, kind: int = 0, payload: bytes = b"") -> bytes:
    body = encode(Described(ULong(code), list(fields))) + payload
    return raw_frame(body, channel, kind)


def raw_frame(body: bytes, channel: int = 0, kind: int = 0, offset: int = 2) -> bytes:
    size = (8 + len(body)).to_bytes(4, "big")
    return size + bytes((offset, kind)) + channel.to_bytes(2, "big") + body


class Dialogue:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self._socket.settimeout(SECONDS)
        self._rest = b""

    def say(self, *words: bytes) -> None:
        self._socket.sendall(b"".join(words))

    def bytes(self, count: int) -> bytes:
        while len(self._rest) < count:
            data = self._socket.recv(65536)
            if not data:
                raise EOFError(f"the broker has closed the connection after {self._rest!r}")
            self._rest += data
        found, self._rest = self._rest[:count], self._rest[count:]
        return found

    def frame(self) -> Frame:
        size = int.from_bytes(self.bytes(4), "big")
        head, body = self.bytes(4), self.bytes(size - 8)
        if not body:
            return Frame(head[1], int.from_bytes(head[2:], "big"), 0, [], b"")
        value, at = decode(body, 0, len(body))
        return Frame(
            head[1], int.from_bytes(head[2:], "big"), value.descriptor, value.value, body[at:]
        )

    def expect(self, code: int) -> Frame:
        """The next frame of this performative; flows and heartbeats before it are passed over."""
        while True:
            found = self.frame()
            if found.code == code:
                return found
            assert found.code in (0, FLOW), f"{found} instead of 0x{code:02x}"

    def ended(self) -> bool:
        """Whether the broker closes the connection, whatever it says before."""
        try:
            while True:
                self.bytes(1)
        except (EOFError, ConnectionError):
            return True

    def log_in(self) -> None:
        self.say(SASL_HEADER)
        assert self.bytes(8) == SASL_HEADER
        assert self.frame().code == MECHANISMS
        self.say(frame(INIT, Symbol("PLAIN"), b"\0guest\0guest", kind=1))
        assert self.frame().fields[0] == 0
        self.say(AMQP_HEADER)
        assert self.bytes(8) == AMQP_HEADER

    def open(self, *more: Any) -> Frame:
        self.log_in()
        self.say(frame(OPEN, "test", *more))
        return self.expect(OPEN)

    def begin(self) -> Frame:
        self.open()
        self.say(frame(BEGIN, None, UInt(0), UInt(1000), UInt(1000)))
        return self.expect(BEGIN)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
