"""A connection to RabbitMQ's stream plugin that reads one stream, chunk by chunk.

It has no thread, and several can be waited for at once. Heartbeats are declined. `backend.py`
decides on credit.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from penstock.client.amqp091.blocking_connection import (
    CALL_TIMEOUT_SECONDS,
    CONNECT_SECONDS,
    READ_BYTES,
    open_socket,
)
from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    ConnectionForced,
    FrameError,
    NotFound,
    PenstockError,
    ProtocolError,
)
from penstock.wire.amqp091.address import AmqpAddress
from penstock_spark.rabbitmq.frames import (
    REASONS,
    RESPONSE_OK,
    SIZE,
    StreamCommand,
    command_code,
    decode_response,
    decode_tune,
    encode_bytes,
    encode_frame,
    encode_string,
)

_MAX_FRAME_BYTES: Final = 1 << 30
#: The timeout of a probe.
_PROBE_SECONDS: Final = 2.0
_FROM_OFFSET: Final = (4).to_bytes(2, "big")
_SUBSCRIPTION: Final = b"\x01"
#: Command, version and subscription.
_DELIVER_HEADER_BYTES: Final = 5

_ERRORS: Final[dict[int, type[PenstockError]]] = {
    2: NotFound,
    6: ConnectionForced,
    8: AuthenticationFailed,
    12: NotFound,
    16: AccessRefused,
}


class StreamConnection:
    """Opened by the constructor, closed by `close` or the end of a `with`."""

    def __init__(
        self,
        address: AmqpAddress,
        port: int,
        purpose: str = "penstock spark",
        timeout: float = CONNECT_SECONDS,
    ) -> None:
        self._address = replace(address, port=port)
        self.received = 0  #: bytes
        self._requests = 0
        self._frames: deque[bytes] = deque()
        self._rest = bytearray()  # the beginning of a frame
        self._socket = open_socket(self._address, timeout)
        try:
            self._log_in(purpose)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def subscribe(self, stream: str, offset: int, credit: int) -> None:
        """Request the chunks of a stream, from the one with that offset on."""
        where = _FROM_OFFSET + offset.to_bytes(8, "big") + credit.to_bytes(2, "big")
        self._call(StreamCommand.SUBSCRIBE, _SUBSCRIPTION, encode_string(stream), where)

    def add_credit(self, credit: int) -> None:
        self._send(encode_frame(StreamCommand.CREDIT, _SUBSCRIPTION, credit.to_bytes(2, "big")))

    def wait_for(self, size: int) -> None:
        """Become ready only after that many bytes: a hint, which some systems ignore."""
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    @property
    def ready(self) -> bool:
        """Whether there is input that waiting for the socket does not show."""
        hidden = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        return hidden or bool(self._frames)

    def chunks(self) -> list[bytes]:
        """The received chunks, without waiting."""
        with suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._read(0.0)
        found = []
        while self._frames:
            content = self._frames.popleft()
            command = command_code(content)
            if command == StreamCommand.DELIVER:
                found.append(content[_DELIVER_HEADER_BYTES:])
            elif command not in (StreamCommand.HEARTBEAT, StreamCommand.CREDIT):
                raise ConnectionResetError(
                    f"{self._address} ended the subscription (0x{command:04x})"
                )
        return found

    def close(self) -> None:
        self._socket.close()

    def _log_in(self, purpose: str) -> None:
        address = self._address
        named = (
            encode_string("product")
            + encode_string("Penstock for Spark")
            + encode_string("connection_name")
        )
        self._call(
            StreamCommand.PEER_PROPERTIES, (2).to_bytes(4, "big"), named, encode_string(purpose)
        )
        self._call(StreamCommand.SASL_HANDSHAKE)
        secret = f"\0{address.user}\0{address.password}".encode()
        self._call(StreamCommand.SASL_AUTHENTICATE, encode_string("PLAIN"), encode_bytes(secret))
        tune = self._receive(CALL_TIMEOUT_SECONDS)
        if command_code(tune) != StreamCommand.TUNE:
            raise FrameError(f"{address}: command 0x{command_code(tune):04x} instead of a tune")
        frame_max, _ = decode_tune(tune)
        self._send(encode_frame(StreamCommand.TUNE, frame_max.to_bytes(4, "big"), bytes(4)))
        self._call(StreamCommand.OPEN, encode_string(address.vhost))

    def _call(self, command: StreamCommand, *fields: bytes) -> None:
        """Send a request and wait for its response."""
        self._requests += 1
        self._send(encode_frame(command, self._requests.to_bytes(4, "big"), *fields))
        while True:
            content = self._receive(CALL_TIMEOUT_SECONDS)
            if command_code(content) == StreamCommand.HEARTBEAT:
                continue
            if command_code(content) == StreamCommand.CLOSE:
                raise ConnectionForced(f"{self._address} has closed the connection")
            number, code = decode_response(content)
            if number != self._requests:
                raise FrameError(f"{self._address}: unexpected response to request {number}")
            if code != RESPONSE_OK:
                reason = REASONS.get(code, f"refused with code 0x{code:02x}")
                kind = _ERRORS.get(code, ProtocolError)
                raise kind(f"{self._address}: {command.name.lower()}: {reason}")
            return

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(CALL_TIMEOUT_SECONDS)
        self._socket.sendall(data)

    def _receive(self, seconds: float) -> bytes:
        """The content of the next frame."""
        while not self._frames:
            try:
                self._read(seconds)
            except TimeoutError:
                raise TimeoutError(f"{self._address} does not answer") from None
        return self._frames.popleft()

    def _read(self, seconds: float) -> None:
        self._socket.settimeout(seconds)
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError(f"{self._address} has closed the connection")
        self.received += len(data)
        self._rest += data
        self._cut()

    def _cut(self) -> None:
        rest, at = self._rest, 0
        while at + SIZE.size <= len(rest):
            size = SIZE.unpack_from(rest, at)[0]
            if size < 4 or size > _MAX_FRAME_BYTES:
                raise FrameError(f"{self._address}: invalid frame size {size}")
            begin, end = at + SIZE.size, at + SIZE.size + size
            if end > len(rest):
                break
            self._frames.append(bytes(rest[begin:end]))
            at = end
        del rest[:at]


def is_stream_plugin_available(address: AmqpAddress, port: int) -> bool:
    """Whether the stream plugin is there and accepts our login."""
    try:
        StreamConnection(address, port, timeout=_PROBE_SECONDS).close()
    except (OSError, PenstockError):
        return False
    return True
