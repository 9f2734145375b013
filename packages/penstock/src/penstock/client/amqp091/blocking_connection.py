"""A blocking connection to a broker, and the calls made on it.

It has no thread: what the broker sends is read when somebody waits for something. Heartbeats are
off, because whoever uses it may compute for minutes between two reads; TCP's own keep-alive notices
a peer that vanished. Whatever the broker closes for is raised as the error it means.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from typing import Any, Final, Self

from penstock.client.errors import connect_error
from penstock.client.url import create_tls_context
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.channel_zero import ChannelZero, ClientConnectionState
from penstock.wire.amqp091.errors import error_from_close
from penstock.wire.amqp091.frames import (
    FRAME_METHOD,
    PROTOCOL_HEADER,
    AmqpFrame,
    FrameSplitter,
)
from penstock.wire.amqp091.methods import (
    MethodArguments,
    ReceivedMethod,
    decode_method,
    encode_method_frame,
    reply_id,
)

#: How long an answer to a call may take; a broker that recovers or waits for a disk is slow.
CALL_TIMEOUT_SECONDS: Final = 60.0
READ_BYTES: Final = 1 << 18


class BlockingConnection:
    """Opened by the constructor, closed by `close` or the end of a `with`."""

    def __init__(self, address: AmqpAddress, purpose: str = "penstock") -> None:
        self.address = address
        self._zero = ChannelZero(address, purpose, heartbeat=0)
        self._frames = FrameSplitter()
        self._channels = 0
        self._free: list[int] = []
        self._socket = open_socket(address)
        try:
            self._open()
        except BaseException:
            self.abandon()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close() if kind is None else self.abandon()

    @property
    def greeting(self) -> dict[str, Any]:
        """What the broker says of itself."""
        return self._zero.greeting

    @property
    def frame_max(self) -> int:
        return self._zero.frame_max

    @property
    def blocked(self) -> bool:
        """Whether the broker has asked senders to wait, as far as was read."""
        return self._zero.blocked

    # Calls.

    def open_channel(self) -> int:
        if not self._free:
            self._channels += 1
            self._free.append(self._channels)
        channel = self._free.pop()
        self.call(channel, methods.CHANNEL_OPEN)
        return channel

    def close_channel(self, channel: int) -> None:
        self.call(channel, methods.CHANNEL_CLOSE, reply_code=200)
        self._free.append(channel)

    def accept_close(self, channel: int) -> None:
        """The broker has closed the channel, and that was to be expected."""
        self.send(encode_method_frame(channel, methods.CHANNEL_CLOSE_OK))
        self._free.append(channel)

    def call(self, channel: int, request: int, /, **arguments: Any) -> MethodArguments:
        """Send a method and wait for its `-ok`; other methods received meanwhile are ignored."""
        self.send(encode_method_frame(channel, request, **arguments))
        reply = reply_id(request)
        deadline = time.monotonic() + CALL_TIMEOUT_SECONDS
        found: MethodArguments | None = None
        while found is None:
            for frame in self.receive(deadline - time.monotonic()):
                if frame.channel == channel and frame.kind == FRAME_METHOD:
                    method = self.check(frame)
                    if method is not None and method.id == reply:
                        found = method.arguments
        return found

    def check(self, frame: AmqpFrame) -> ReceivedMethod | None:
        """The method in a frame; raises if it closes the connection or the channel."""
        if frame.kind != FRAME_METHOD:
            return None
        method = decode_method(frame.payload)
        if not frame.channel:
            if answer := self._zero.on_method(method):
                self.send(answer)
            if self._zero.ended is not None:
                raise self._zero.ended
        elif method.id == methods.CHANNEL_CLOSE:
            close = method.arguments
            raise error_from_close(close.reply_code, close.reply_text, self.address)
        return method

    # Bytes.

    def send(self, data: bytes) -> None:
        self._socket.settimeout(CALL_TIMEOUT_SECONDS)
        self._socket.sendall(data)

    def send_some(self, data: memoryview, seconds: float) -> int:
        """How much of it went within that time: nothing, if the broker does not read."""
        self._socket.settimeout(seconds)
        try:
            return self._socket.send(data)
        except TimeoutError:
            return 0

    def receive(self, seconds: float | None) -> list[AmqpFrame]:
        """The frames that have come; waits for some. A connection that closes is an error."""
        frames = self._frames.feed(self.receive_bytes(seconds))
        for frame in frames:
            if not frame.channel:
                self.check(frame)
        return frames

    def receive_bytes(self, seconds: float | None) -> bytes:
        """Waits for some, so long at most."""
        if seconds is not None and seconds <= 0:
            raise TimeoutError(f"{self.address} does not answer")
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise TimeoutError(f"{self.address} does not answer") from None
        except OSError as error:
            raise self._zero.connection_lost_error(error.strerror or str(error)) from None
        if not data:
            raise self._zero.connection_lost_error()
        return data

    def has_input(self) -> bool:
        """Whether something has come that was not read yet."""
        ahead = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        return ahead or bool(select.select([self._socket], [], [], 0)[0])

    def take_rest(self) -> bytes:
        """What was received and not yet read, for one who goes on with `receive_bytes`."""
        return self._frames.take()

    # The end, and the beginning.

    def close(self) -> None:
        """Say goodbye; it makes no difference whether that is heard."""
        try:
            self._socket.settimeout(CONNECT_SECONDS)
            self._socket.sendall(self._zero.close())
        except OSError:
            pass
        finally:
            self.abandon()

    def abandon(self) -> None:
        self._socket.close()

    def _open(self) -> None:
        self.send(PROTOCOL_HEADER)
        deadline = time.monotonic() + CONNECT_SECONDS
        while self._zero.stage is not ClientConnectionState.OPEN:
            self.receive(deadline - time.monotonic())


# A blocking socket to a broker.

CONNECT_SECONDS: Final = 10.0
_RECEIVE_BUFFER: Final = 1 << 20


def open_socket(address: AmqpAddress, patience: float = CONNECT_SECONDS) -> socket.socket:
    """Connected, and over TLS if the address says so. TCP's own keep-alive is on."""
    context = create_tls_context(address.authorities) if address.tls else None
    try:
        plain = socket.create_connection((address.host, address.port), patience)
    except OSError as error:
        raise connect_error(address.host, address.port, error) from None
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    if context is None:
        return plain
    try:
        return context.wrap_socket(plain, server_hostname=address.host)
    except ssl.SSLError as error:
        plain.close()
        raise connect_error(address.host, address.port, error) from None
    except BaseException:
        plain.close()
        raise
