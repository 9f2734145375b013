"""WebSocket as a transport: a terminal writes and receives bytes as on a plain socket.

`WebSocketConnection` answers the opening handshake and then connects its terminal to a
`WebSocketTransport`: each write is one binary frame, and the payload of the binary frames of one
read is passed to `data_received`. It answers pings and close frames itself, passes flow control
through in both directions and buffers no input. Until the handshake is complete it bounds time and
memory, afterwards the terminal does. A close waits for the client's close frame, so that the last
output arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from websockets.frames import CloseCode

from penstock.core.host_policy import HostPolicy
from penstock.core.logs import get_logger
from penstock.server.websocket_protocol import (
    WebSocketClose,
    WebSocketFrameReader,
    WebSocketHandshake,
    binary_frame,
    close_frame,
    pong_frame,
)

#: How long a client may take to answer a close frame.
CLOSE_SECONDS: Final = 5.0

_log = get_logger("penstock.websocket")


class WebSocketConnection(asyncio.Protocol):
    __slots__ = (
        "_frames",
        "_handshaking",
        "_max_bytes",
        "_opened",
        "_opening",
        "_paused",
        "_socket",
        "_terminal",
        "_timeout",
        "_timer",
        "closing",
    )

    def __init__(
        self,
        terminal: asyncio.Protocol,
        subprotocols: tuple[str, ...],
        paths: frozenset[str],
        max_bytes: int,
        timeout: float,
        policy: HostPolicy,
        handshaking: set[WebSocketConnection] | None = None,
    ) -> None:
        """The connection is in the set `handshaking` until its handshake is complete."""
        self._terminal = terminal
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._handshaking = handshaking
        self._socket: asyncio.Transport
        self._opening: WebSocketHandshake | None = WebSocketHandshake(subprotocols, paths, policy)
        self._frames: WebSocketFrameReader | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opened = False  # the terminal is connected
        self._paused = False  # the write buffer is full
        self.closing = False  #: the last frame was written

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        if self._handshaking is not None:
            self._handshaking.add(self)
        self._start_timer(self._timeout, self._handshake_timed_out)

    def data_received(self, data: bytes) -> None:
        if self._frames is not None:
            self._receive(self._frames, data)
        elif self._opening is not None:
            self._open(self._opening, data)
        # Otherwise it was refused, and input is discarded.

    def eof_received(self) -> bool | None:
        if self._opened and not self.closing:
            return self._terminal.eof_received()
        return None

    def pause_writing(self) -> None:
        self._paused = True
        if self._opened:
            self._terminal.pause_writing()

    def resume_writing(self) -> None:
        self._paused = False
        if self._frames is not None:
            self._pong(self._frames)
        if self._opened:
            self._terminal.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._end_handshake()
        self.closing = True
        self._opening = self._frames = None
        if self._opened:
            self._terminal.connection_lost(exc)

    # The opening handshake.

    def _open(self, opening: WebSocketHandshake, data: bytes) -> None:
        verdict = opening.feed(data)
        if verdict is None:
            return
        self._opening = None
        self._socket.write(verdict.response)
        if verdict.subprotocol is None:
            status = verdict.response.split(b"\r\n", 1)[0].decode()
            _log.info("websocket refused", peer=self._peer, answer=status)
            self._end_output()
            return
        self._stop_timer()
        self._end_handshake()
        self._opened = True
        self._frames = WebSocketFrameReader(self._max_bytes)
        transport = WebSocketTransport(self, self._socket, verdict.subprotocol)
        self._terminal.connection_made(transport)
        if verdict.rest:
            self._receive(self._frames, verdict.rest)

    def _handshake_timed_out(self) -> None:
        _log.info("websocket handshake timed out", peer=self._peer)
        self._socket.abort()

    def _end_handshake(self) -> None:
        if self._handshaking is not None:
            self._handshaking.discard(self)
            self._handshaking = None

    @property
    def _peer(self) -> str:
        return "{}:{}".format(*(self._socket.get_extra_info("peername") or ("", 0)))

    # Frames.

    def _receive(self, frames: WebSocketFrameReader, data: bytes) -> None:
        payload = frames.feed(data)
        if payload and not self.closing:
            self._terminal.data_received(payload)
        self._pong(frames)
        if frames.end is not None:
            self._end(frames.end)

    def _pong(self, frames: WebSocketFrameReader) -> None:
        """Answer the last ping, later if the write buffer is full."""
        if frames.ping is not None and not self._paused:
            if not self.closing:
                self._socket.write(pong_frame(frames.ping))
            frames.ping = None

    # Close.

    def _end(self, end: WebSocketClose) -> None:
        """The client has sent a close frame, or violated the protocol."""
        self._frames = None
        if end.by_client:
            if not self.closing:
                self._terminal.eof_received()
            self._send_close(end.code)
            self._socket.close()
        else:
            _log.info("websocket closed", peer=self._peer, reason=end.reason)
            self._send_close(end.code, end.reason)
            self._end_output()

    def close(self) -> None:
        """Send a close frame after the output; the client's close frame ends the connection."""
        if not self.closing:
            self._send_close(CloseCode.NORMAL_CLOSURE)
            self._socket.resume_reading()
            self._start_timer(CLOSE_SECONDS, self._socket.close)

    def abort(self) -> None:
        self.closing = True
        self._socket.abort()

    def _send_close(self, code: int, reason: str = "") -> None:
        if not self.closing:
            self.closing = True
            self._socket.write(close_frame(code, reason))

    def _end_output(self) -> None:
        """Close the writing half: closing a socket with unread input would reset it."""
        self.closing = True
        if self._socket.can_write_eof():
            self._socket.write_eof()
            self._socket.resume_reading()
            self._start_timer(CLOSE_SECONDS, self._socket.abort)
        else:  # TLS cannot be half-closed
            self._socket.close()

    def _start_timer(self, seconds: float, on_timeout: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


#: The default of asyncio.
READ_BYTES: Final = 256 * 1024


class WebSocketTransport(asyncio.Transport):
    """Writes become frames; reading and flow control are the socket's, closing the connection's."""

    __slots__ = ("_connection", "_socket", "_subprotocol")

    def __init__(
        self, connection: WebSocketConnection, socket: asyncio.Transport, subprotocol: str
    ) -> None:
        super().__init__()
        self._connection = connection
        self._socket = socket
        self._subprotocol = subprotocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`websocket` is the negotiated subprotocol; the rest is the socket's."""
        if name == "websocket":
            return self._subprotocol
        return self._socket.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if data and not self._connection.closing:
            self._socket.write(binary_frame(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """A WebSocket cannot be half-closed: its close handshake serves the same purpose."""
        self._connection.close()

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._connection.abort()

    def is_closing(self) -> bool:
        return self._connection.closing or self._socket.is_closing()

    # Flow control.

    def is_reading(self) -> bool:
        return self._socket.is_reading()

    def pause_reading(self) -> None:
        if not self._connection.closing:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._socket.get_write_buffer_limits()

    @property
    def max_size(self) -> int:
        """Bytes per read; TLS transports of asyncio ignore it."""
        return getattr(self._socket, "max_size", READ_BYTES)

    @max_size.setter
    def max_size(self, size: int) -> None:
        cast(Any, self._socket).max_size = size
