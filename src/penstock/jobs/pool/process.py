"""One process of the pool as the worker sees it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

from penstock.jobs.pool.parcels import Parcels, pack
from penstock.jobs.shells.reaper import reaped


class PoolProcess(asyncio.Protocol):
    """Started by `start`, below a reaper: all it has started ends with it."""

    def __init__(
        self,
        heard: Callable[[PoolProcess, tuple[Any, ...]], None],
        gone: Callable[[PoolProcess], None],
    ) -> None:
        self.ready = False
        self.long = False  #: it is at something that takes long
        self.begun = 0  #: how many pieces of work it was given in its life
        self._heard = heard
        self._gone = gone
        self._parcels = Parcels()
        self._transport: asyncio.Transport | None = None
        self._orders: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reaper: socket.socket | None = None  # closed, it ends the process
        self._out: list[tuple[Any, ...]] = []
        self._gathering = False  # something was written in this turn of the loop

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, master: str = "") -> None:
        """Raises OSError where the system has no room for another process."""
        line, their_line = socket.socketpair()
        orders, their_orders = socket.socketpair()
        self._reaper, their_reaper = socket.socketpair()
        theirs = their_line.fileno(), their_orders.fileno()
        command = [sys.executable, "-m", "penstock.jobs.pool.child", *map(str, theirs), master]
        try:
            with their_line, their_orders, their_reaper:
                # Not asyncio's, which waits for processes in ways of its own: ours end with their
                # line.
                self._process = subprocess.Popen(  # noqa: ASYNC220
                    reaped(command, their_reaper.fileno(), *theirs),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(their_reaper.fileno(), *theirs),
                    start_new_session=True,
                )
        except OSError:
            for ours in (line, orders, self._reaper):
                ours.close()
            raise
        loop = asyncio.get_running_loop()
        self._orders, _ = await loop.create_unix_connection(asyncio.Protocol, sock=orders)
        await loop.create_unix_connection(lambda: self, sock=line)

    def order(self, verb: str, number: int = 0) -> None:
        """Heard although it is at work."""
        if self._orders is not None and not self._orders.is_closing():
            self._orders.write(pack([(verb, number)]))

    def send(self, item: tuple[Any, ...]) -> None:
        """Work: the first at once, for the process may have nothing else to do; what follows in
        this turn of the loop together."""
        if self._gathering:
            self._out.append(item)
            return
        self._gathering = True
        self._write([item])
        asyncio.get_running_loop().call_soon(self._flush)

    def end(self) -> None:
        """At once, with everything it has started."""
        if self._reaper is not None:
            self._reaper.close()

    async def ended(self) -> None:
        """Returns when there is nothing left of it."""
        for line in (self._transport, self._orders):
            if line is not None:
                line.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)

    def _flush(self) -> None:
        self._gathering = False
        if self._out:
            out, self._out = self._out, []
            self._write(out)

    def _write(self, items: list[tuple[Any, ...]]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(pack(items))

    # The line.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for item in self._parcels.feed(data):
            self._heard(self, item)

    def connection_lost(self, error: Exception | None) -> None:
        self.end()  # what it has left behind
        self._gone(self)
