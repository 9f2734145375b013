"""The transport a terminal has behind a WebSocket: asyncio's, as far as terminals use it.

What is written becomes frames here; reading, pressure and facts about the connection are the
socket's, and closing is the gate's (`websocket.py`), which agrees on it with the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.server.websocket_frames import binary_frame

if TYPE_CHECKING:
    from penstock.server.websocket import WebSocketGate

#: What asyncio reads at a time unless it is told otherwise.
READ_BYTES: Final = 256 * 1024


class WebSocketTransport(asyncio.Transport):
    __slots__ = ("_gate", "_socket", "_subprotocol")

    def __init__(self, gate: WebSocketGate, socket: asyncio.Transport, subprotocol: str) -> None:
        super().__init__()
        self._gate = gate
        self._socket = socket
        self._subprotocol = subprotocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The socket's; `websocket` is the subprotocol that was agreed on."""
        if name == "websocket":
            return self._subprotocol
        return self._socket.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """One binary frame."""
        if data and not self._gate.closing:
            self._socket.write(binary_frame(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """A WebSocket has no halves either, but an end that both sides agree on."""
        self._gate.close()

    def close(self) -> None:
        self._gate.close()

    def abort(self) -> None:
        self._gate.abort()

    def is_closing(self) -> bool:
        return self._gate.closing or self._socket.is_closing()

    # Pressure is the socket's.

    def is_reading(self) -> bool:
        return self._socket.is_reading()

    def pause_reading(self) -> None:
        if not self._gate.closing:
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
