"""A blocking connection to a broker, and the calls made on it.

It has no thread: what the broker sends is read when somebody waits for something. Heartbeats are
off, because a worker may compute for minutes between two reads; TCP's own keep-alive notices a
peer that vanished. Whatever the broker closes for is raised as the error it means.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from pamqp import commands
from pamqp.base import Frame as Method

from penstock.client.errors import BrokerUnreachable
from penstock.core.errors import AuthenticationFailed, ConfigurationError, NotAllowed, NotFound
from penstock.pipeline.amqp.address import BrokerAddress
from penstock.pipeline.amqp.faults import closed_for
from penstock.pipeline.amqp.frames import (
    METHOD,
    PROTOCOL_HEADER,
    Frame,
    Frames,
    method,
    read_method,
)

CONNECT_SECONDS: Final = 10.0
#: How long an answer to a call may take; a broker that recovers or waits for a disk is slow.
CALL_SECONDS: Final = 60.0
READ_BYTES: Final = 1 << 18
_RECEIVE_BUFFER: Final = 1 << 20

_CAPABILITIES: Final = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}

_Reply = TypeVar("_Reply", bound=Method)


class Connection:
    """Opened by the constructor, closed by `close` or the end of a `with`."""

    def __init__(self, address: BrokerAddress, purpose: str = "penstock spark") -> None:
        self.address = address
        self._frames = Frames()
        self._channels = 0
        self._free: list[int] = []
        self.blocked = False  #: the broker has asked publishers to wait
        self._socket = open_socket(address)
        try:
            self.greeting = self._greet()
            self.frame_max = self._log_in(purpose)
        except BaseException:
            self.abandon()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close() if error is None else self.abandon()

    # Calls.

    def open_channel(self) -> int:
        if not self._free:
            self._channels += 1
            self._free.append(self._channels)
        channel = self._free.pop()
        self.call(channel, commands.Channel.Open(), commands.Channel.OpenOk)
        return channel

    def close_channel(self, channel: int) -> None:
        goodbye = commands.Channel.Close(200, "", 0, 0)
        self.call(channel, goodbye, commands.Channel.CloseOk)
        self._free.append(channel)

    def accept_close(self, channel: int) -> None:
        """The broker has closed the channel, and that was to be expected."""
        self.send(method(channel, commands.Channel.CloseOk()))
        self._free.append(channel)

    def call(self, channel: int, request: Method, answer: type[_Reply]) -> _Reply:
        """Send a method and wait for the answer to it; what else comes meanwhile is passed over."""
        self.send(method(channel, request))
        deadline = time.monotonic() + CALL_SECONDS
        found: _Reply | None = None
        while found is None:
            for frame in self.receive(deadline - time.monotonic()):
                if frame.channel == channel and frame.kind == METHOD:
                    value = self.check(frame)
                    if isinstance(value, answer):
                        found = value
        return found

    def check(self, frame: Frame) -> Method | None:
        """The method in a frame; raises when it is the broker's last word."""
        if frame.kind != METHOD:
            return None
        value = read_method(frame.payload)
        if isinstance(value, commands.Connection.Close | commands.Channel.Close):
            raise closed_for(value.reply_code or 0, value.reply_text or "", self.address)
        if isinstance(value, commands.Connection.Blocked | commands.Connection.Unblocked):
            self.blocked = isinstance(value, commands.Connection.Blocked)
        return value

    # Bytes.

    def send(self, data: bytes) -> None:
        self._socket.settimeout(CALL_SECONDS)
        self._socket.sendall(data)

    def receive(self, seconds: float) -> list[Frame]:
        """The frames that have come; waits for some. A connection that closes is an error."""
        frames = self._frames.feed(self.receive_bytes(seconds))
        for frame in frames:
            if not frame.channel:
                self.check(frame)
        return frames

    def receive_bytes(self, seconds: float) -> bytes:
        if seconds <= 0:
            raise TimeoutError(f"{self.address} does not answer")
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise TimeoutError(f"{self.address} does not answer") from None
        if not data:
            raise ConnectionResetError(f"{self.address} has closed the connection")
        return data

    def has_input(self) -> bool:
        """Whether something has come that was not read yet."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def take_rest(self) -> bytes:
        """What was received and not yet read, for one who goes on with `receive_bytes`."""
        return self._frames.take()

    # The end.

    def close(self) -> None:
        """Say goodbye; it makes no difference whether that is heard."""
        try:
            goodbye = commands.Connection.Close(200, "", 0, 0)
            self._socket.settimeout(CONNECT_SECONDS)
            self._socket.sendall(method(0, goodbye))
        except OSError:
            pass
        finally:
            self.abandon()

    def abandon(self) -> None:
        self._socket.close()

    # The beginning.

    def _greet(self) -> dict[str, Any]:
        self.send(PROTOCOL_HEADER)
        start = self._await(commands.Connection.Start)
        return dict(start.server_properties or {})

    def _log_in(self, purpose: str) -> int:
        address = self.address
        properties: dict[str, Any] = {
            "product": "Penstock for Spark",
            "connection_name": purpose,
            "capabilities": dict(_CAPABILITIES),
        }
        answer = f"\0{address.user}\0{address.password}"
        self.send(method(0, commands.Connection.StartOk(properties, "PLAIN", answer, "en_US")))
        try:
            tune = self._await(commands.Connection.Tune)
        except (AuthenticationFailed, ConnectionResetError) as error:
            told = self.greeting.get("capabilities", {}).get("authentication_failure_close")
            if told and isinstance(error, ConnectionResetError):
                raise  # this broker would have said so
            raise AuthenticationFailed(
                f"{address} does not let {address.user!r} in: "
                "wrong name or password, or a user that may not connect from here"
            ) from error
        frame_max = tune.frame_max or 1 << 17
        self.send(
            method(0, commands.Connection.TuneOk(tune.channel_max or 0, frame_max, 0))
            + method(0, commands.Connection.Open(address.vhost))
        )
        try:
            self._await(commands.Connection.OpenOk)
        except NotAllowed as error:
            raise NotFound(
                f"{address} refused the virtual host {address.vhost!r}: {error}"
            ) from error
        return frame_max

    def _await(self, answer: type[_Reply]) -> _Reply:
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            for frame in self._frames.feed(self.receive_bytes(deadline - time.monotonic())):
                value = read_method(frame.payload)
                if isinstance(value, commands.Connection.Close):
                    if value.reply_code == 403:
                        raise AuthenticationFailed(value.reply_text or "")
                    raise closed_for(value.reply_code or 0, value.reply_text or "", self.address)
                if isinstance(value, answer):
                    return value


def open_socket(address: BrokerAddress, patience: float = CONNECT_SECONDS) -> socket.socket:
    try:
        plain = socket.create_connection((address.host, address.port), patience)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BrokerUnreachable(address.host, address.port, reason) from None
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    if not address.tls:
        return plain
    try:
        return address.tls_context().wrap_socket(plain, server_hostname=address.host)
    except ssl.SSLError as error:
        plain.close()
        raise ConfigurationError(
            f"{address}: TLS failed: {error.reason or error}; tlsCaFile names whom to trust"
        ) from None
    except BaseException:
        plain.close()
        raise
