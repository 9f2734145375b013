"""Run a test on the broker's own loop, beside a plain socket as the peer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import wraps
from types import SimpleNamespace
from typing import Any, cast

from penstock.broker.host import ConnectionLimiter, Host
from penstock.core.addresses import ListenAddress
from penstock.core.config import BrokerSettings
from penstock.server.event_loop import BrokerEventLoop
from penstock.server.listener import SocketListener, bind_listener

Test = Callable[..., Coroutine[Any, Any, None]]


def on_broker_loop(test: Test) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        with asyncio.Runner(loop_factory=BrokerEventLoop) as runner:
            runner.run(asyncio.wait_for(test(*arguments, **named), 30))

    return run


def this_loop() -> BrokerEventLoop:
    return cast(BrokerEventLoop, asyncio.get_running_loop())


class Recorder(asyncio.Protocol):
    """A terminal that writes down what it is told."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.received = bytearray()
        self.said: list[str] = []
        self.changed = asyncio.Event()
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._note("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.changed.set()

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")

    def eof_received(self) -> bool | None:
        self._note("eof")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self._note("lost")

    def _note(self, what: str) -> None:
        self.said.append(what)
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.changed.clear()
            await self.changed.wait()

    async def until_lost(self) -> None:
        await self.until(lambda: "lost" in self.said)


async def passes_until(holds: Callable[[], object]) -> None:
    """Let the loop go round until it is so."""
    while not holds():  # noqa: ASYNC110 - it is the passes of the loop that are looked at
        await asyncio.sleep(0)


def anybody() -> ConnectionLimiter:
    """An admission that turns nobody away."""
    return ConnectionLimiter(1 << 20, 1 << 20)


async def open_recorder(
    made: Callable[[], Recorder] = Recorder,
) -> tuple[SocketListener, list[Recorder]]:
    """A door that gives every visitor a recorder of its own."""
    recorders: list[Recorder] = []

    def recorder() -> Recorder:
        recorders.append(made())
        return recorders[-1]

    listener, _ = await bind_listener(host(), ListenAddress("mqtt", "127.0.0.1", 0), recorder, None)
    return listener, recorders


def host() -> Host:
    """As far as a listener needs one."""
    kernel = SimpleNamespace(loop=this_loop(), settings=BrokerSettings())
    return cast(Host, SimpleNamespace(kernel=kernel, connection_limiter=anybody()))


async def visit(door: SocketListener) -> socket.socket:
    peer = socket.socket()
    peer.setblocking(False)
    await this_loop().sock_connect(peer, door.sockets[0].getsockname())
    return peer


async def meet(made: Callable[[], Recorder] = Recorder) -> tuple[Recorder, socket.socket]:
    """A recorder and the socket at its other end; nobody else comes in."""
    door, recorders = await open_recorder(made)
    peer = await visit(door)
    await passes_until(lambda: recorders)
    door.close()
    return recorders[0], peer
