"""WebSocket as a transport: a terminal behind it writes and is fed bytes, as on a plain socket.

`WebSocketConnection` is the protocol of a connection. It answers the opening handshake, and then
gives its terminal a `WebSocketTransport`: each write is one binary frame, what binary frames carry
comes in by `data_received`, one piece for each read. Pings and close frames are the gate's own
affair; pressure goes through it both ways, and it keeps nothing that is on its way in.

Until the gate is open the terminal does not know of the connection, so the time and the memory a
stranger takes are bounded here; after that both are the terminal's to bound. A gate that closes
waits a little for the client to agree, so that what was said last is heard.
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

#: How long a client may take to answer our close.
CLOSE_SECONDS: Final = 5.0

_log = get_logger("penstock.websocket")


class WebSocketConnection(asyncio.Protocol):
    """One connection, from its opening handshake to its end."""

    __slots__ = (
        "_choked",
        "_frames",
        "_handshaking",
        "_max_bytes",
        "_opened",
        "_opening",
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
        """A gate is among the `handshaking` until it is open: those a server ends by itself."""
        self._terminal = terminal
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._handshaking = handshaking
        self._socket: asyncio.Transport
        self._opening: WebSocketHandshake | None = WebSocketHandshake(subprotocols, paths, policy)
        self._frames: WebSocketFrameReader | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opened = False  # the terminal knows of the connection
        self._choked = False  # the client does not read
        self.closing = False  #: our last word is said

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        if self._handshaking is not None:
            self._handshaking.add(self)
        self._expect(self._timeout, self._dawdled)

    def data_received(self, data: bytes) -> None:
        if self._frames is not None:
            self._receive(self._frames, data)
        elif self._opening is not None:
            self._open(self._opening, data)
        # Otherwise it was refused, and whatever still comes is of no interest.

    def eof_received(self) -> bool | None:
        if self._opened and not self.closing:
            return self._terminal.eof_received()
        return None

    def pause_writing(self) -> None:
        self._choked = True
        if self._opened:
            self._terminal.pause_writing()

    def resume_writing(self) -> None:
        self._choked = False
        if self._frames is not None:
            self._pong(self._frames)
        if self._opened:
            self._terminal.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
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
            self._hang_up()
            return
        self._expect_nothing()
        self._end_handshake()
        self._opened = True
        self._frames = WebSocketFrameReader(self._max_bytes)
        transport = WebSocketTransport(self, self._socket, verdict.subprotocol)
        self._terminal.connection_made(transport)
        if verdict.rest:
            self._receive(self._frames, verdict.rest)

    def _dawdled(self) -> None:
        _log.info("client took too long to open a websocket", peer=self._peer)
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
        """Answer the last ping, unless the client is behind with its reading: then later."""
        if frames.ping is not None and not self._choked:
            if not self.closing:
                self._socket.write(pong_frame(frames.ping))
            frames.ping = None

    # The end.

    def _end(self, end: WebSocketClose) -> None:
        """The client has closed, or left the rules: nothing more of it is read."""
        self._frames = None
        if end.theirs:
            if not self.closing:
                self._terminal.eof_received()
            self._say_goodbye(end.code)
            self._socket.close()
        else:
            _log.info("websocket closed", peer=self._peer, reason=end.reason)
            self._say_goodbye(end.code, end.reason)
            self._hang_up()

    def close(self) -> None:
        """Say so, after all that was written; the socket goes when the client has answered."""
        if not self.closing:
            self._say_goodbye(CloseCode.NORMAL_CLOSURE)
            self._socket.resume_reading()
            self._expect(CLOSE_SECONDS, self._socket.close)

    def abort(self) -> None:
        self.closing = True
        self._socket.abort()

    def _say_goodbye(self, code: int, reason: str = "") -> None:
        if not self.closing:
            self.closing = True
            self._socket.write(close_frame(code, reason))

    def _hang_up(self) -> None:
        """Close so that what was said is heard: with bytes unread, a socket is reset instead."""
        self.closing = True
        if self._socket.can_write_eof():
            self._socket.write_eof()
            self._socket.resume_reading()
            self._expect(CLOSE_SECONDS, self._socket.abort)
        else:  # TLS has no half of a connection
            self._socket.close()

    # Time.

    def _expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        self._expect_nothing()
        self._timer = asyncio.get_running_loop().call_later(seconds, otherwise)

    def _expect_nothing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


# The transport a terminal has behind a WebSocket: asyncio's, as far as terminals use it.
#
# What is written becomes frames here; reading, pressure and facts about the connection are the
# socket's, and closing is the gate's (`websocket.py`), which agrees on it with the client.

#: What asyncio reads at a time unless it is told otherwise.
READ_BYTES: Final = 256 * 1024


class WebSocketTransport(asyncio.Transport):
    __slots__ = ("_connection", "_socket", "_subprotocol")

    def __init__(
        self, gate: WebSocketConnection, socket: asyncio.Transport, subprotocol: str
    ) -> None:
        super().__init__()
        self._connection = gate
        self._socket = socket
        self._subprotocol = subprotocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The socket's; `websocket` is the subprotocol that was agreed on."""
        if name == "websocket":
            return self._subprotocol
        return self._socket.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """One binary frame."""
        if data and not self._connection.closing:
            self._socket.write(binary_frame(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """A WebSocket has no halves either, but an end that both sides agree on."""
        self._connection.close()

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._connection.abort()

    def is_closing(self) -> bool:
        return self._connection.closing or self._socket.is_closing()

    # Pressure is the socket's.

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
        """What asyncio reads from the socket at a time; one with TLS keeps its own counsel."""
        return getattr(self._socket, "max_size", READ_BYTES)

    @max_size.setter
    def max_size(self, size: int) -> None:
        cast(Any, self._socket).max_size = size
