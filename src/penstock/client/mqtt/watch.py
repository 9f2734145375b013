"""The event loop's eye on paho's socket.

paho says when it has a socket, when it has something to write and when it is done; the loop says
when there is something to read. Some of it paho says in the thread that connects, and waits there
until the loop knows. Reading can be stopped, which holds up the broker.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

from paho.mqtt.client import Client

#: How often paho looks whether it is time for a ping.
TICK_SECONDS: Final = 1.0
#: A loop that has stopped will not answer.
HANDOVER_SECONDS: Final = 3.0


class Watch:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: int | None = None  #: the descriptor the loop watches
        self._reading = True
        self._tick: asyncio.TimerHandle | None = None
        client.on_socket_open = self._relay(self._opened)
        client.on_socket_close = self._relay(self._closed)
        client.on_socket_register_write = self._relay(self._want_to_write)
        client.on_socket_unregister_write = self._relay(self._have_written)

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def read(self, on: bool) -> None:
        """Whether to take what the broker sends; pings wait as well, which it bears for a while."""
        if on is self._reading:
            return
        self._reading = on
        if self._socket is None or self._loop is None:
            return
        if on:
            self._loop.add_reader(self._socket, self._readable)
            self._loop.call_soon(self._read_ahead)
        else:
            self._loop.remove_reader(self._socket)

    def _relay(self, change: Callable[[asyncio.AbstractEventLoop, int], None]) -> Any:
        """A callback of paho's that has the change made in the loop's own thread."""

        def changed(_client: Client, _data: object, sock: Any) -> None:
            loop = self._loop
            assert loop is not None
            descriptor: int = sock.fileno()
            if _running() is loop:
                change(loop, descriptor)
                return
            done = threading.Event()

            def there() -> None:
                change(loop, descriptor)
                done.set()

            loop.call_soon_threadsafe(there)
            done.wait(HANDOVER_SECONDS)

        return changed

    def _opened(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        self._socket = descriptor
        self._reading = True
        loop.add_reader(descriptor, self._readable)
        self._tick = loop.call_later(TICK_SECONDS, self._ticked, loop)

    def _closed(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        self._socket = None
        if self._tick is not None:
            self._tick.cancel()
        if descriptor >= 0:
            loop.remove_reader(descriptor)
            loop.remove_writer(descriptor)

    def _want_to_write(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        loop.add_writer(descriptor, self._client.loop_write)

    def _have_written(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        if descriptor >= 0:
            loop.remove_writer(descriptor)

    def _readable(self) -> None:
        self._client.loop_read()
        self._read_ahead()

    def _read_ahead(self) -> None:
        """What TLS or the WebSocket has taken from the socket already, the loop cannot see."""
        while self._reading and self._socket is not None:
            pending = getattr(self._client.socket(), "pending", None)
            if pending is None or not pending():
                return
            self._client.loop_read()

    def _ticked(self, loop: asyncio.AbstractEventLoop) -> None:
        self._tick = loop.call_later(TICK_SECONDS, self._ticked, loop)
        if self._reading:  # else the answer to a ping could not be seen
            self._client.loop_misc()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
