"""A blocking AMQP 0-9-1 connection.

It has no thread: input is read during calls only. Heartbeats are off, because a program may compute
for minutes between two calls; TCP keep-alive detects a dead peer. If the broker closes the
connection or a channel, the calls raise its error.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from contextlib import suppress
from typing import Any, Final, Self

from penstock.client.errors import BrokerUnreachable, connect_error
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

CONNECT_SECONDS: Final = 10.0
#: A broker that recovers or waits for a disk answers late.
CALL_TIMEOUT_SECONDS: Final = 60.0
READ_BYTES: Final = 1 << 18
_RECEIVE_BUFFER: Final = 1 << 20


class BlockingConnection:
    """Opened by the constructor, closed by `close` or the end of a `with`."""

    def __init__(self, address: AmqpAddress, name: str = "penstock") -> None:
        self.address = address
        self._zero = ChannelZero(address, name, heartbeat=0)
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
        """The server properties."""
        return self._zero.greeting

    @property
    def frame_max(self) -> int:
        return self._zero.frame_max

    @property
    def blocked(self) -> bool:
        """Whether the broker has blocked publishers, by the input read so far."""
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
        """Answer `channel.close` of the broker, where that is expected."""
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
        """Returns how many bytes were sent within the time; 0 if the broker does not read."""
        self._socket.settimeout(seconds)
        try:
            return self._socket.send(data)
        except TimeoutError:
            return 0

    def receive(self, seconds: float | None) -> list[AmqpFrame]:
        """Waits for frames; raises if the connection is closed."""
        frames = self._frames.feed(self.receive_bytes(seconds))
        for frame in frames:
            if not frame.channel:
                self.check(frame)
        return frames

    def receive_bytes(self, seconds: float | None) -> bytes:
        if seconds is not None and seconds <= 0:
            raise TimeoutError(f"no answer from {self.address}")
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise TimeoutError(f"no answer from {self.address}") from None
        except OSError as error:
            raise self._zero.connection_lost_error(error.strerror or str(error)) from None
        if not data:
            raise self._zero.connection_lost_error()
        return data

    def has_input(self) -> bool:
        """Whether there is unread input."""
        ahead = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        return ahead or bool(select.select([self._socket], [], [], 0)[0])

    def take_rest(self) -> bytes:
        """The received bytes of an incomplete frame, to continue with `receive_bytes`."""
        return self._frames.take()

    def close(self) -> None:
        """Sends `connection.close` and does not wait for the answer."""
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


def open_socket(address: AmqpAddress, timeout: float = CONNECT_SECONDS) -> socket.socket:
    """A connected socket, with TLS if the address has it, and with TCP keep-alive."""
    *others, last = address.candidates()
    for candidate in others:
        with suppress(BrokerUnreachable):
            return _open_socket(candidate, timeout)
    return _open_socket(last, timeout)


def _open_socket(address: AmqpAddress, timeout: float) -> socket.socket:
    context = create_tls_context(address.authorities) if address.tls else None
    try:
        plain = socket.create_connection((address.host, address.port), timeout)
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
