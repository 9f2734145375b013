"""A line to a broker that a test may cut: a relay on a port of its own.

`cut` ends all connections over it at once, as a restarted broker or a broken network would, and
lets new ones through; `down` cuts and refuses new ones until `up`. `hold` lets what the clients
send through but keeps back what the broker says until `release`, so that a test can cut before the
word arrives. `stop_after` has it take so many bytes more from the clients, say something to them
and read on at `go_on`, as a broker does that is short of memory.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Line:
    def __init__(self, port: int, scheme: str = "amqp") -> None:
        self._port = port
        self._scheme = scheme
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self._speaking = asyncio.Event()
        self._speaking.set()
        self.port = 0
        self._reading = asyncio.Event()
        self._reading.set()
        self._last: tuple[int, bytes] | None = None  # how far to read, and what to say there
        self.accepted = 0  #: connections
        self.passed = 0  #: bytes from the clients since the last `hold`
        self._moved = asyncio.Event()

    @property
    def url(self) -> str:
        return f"{self._scheme}://guest:guest@127.0.0.1:{self.port}/%2F"

    @property
    def mqtt_url(self) -> str:
        return f"mqtt://guest:guest@127.0.0.1:{self.port}"

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._speaking.set()

    def hold(self) -> None:
        self._speaking.clear()
        self.passed = 0

    def release(self) -> None:
        self._speaking.set()

    def stop_after(self, count: int, frame: bytes) -> None:
        self.passed = 0
        self._last = (count, frame)

    def go_on(self) -> None:
        self._reading.set()

    async def stopped(self) -> None:
        while self._reading.is_set():
            self._moved.clear()
            await self._moved.wait()

    def tell(self, frame: bytes) -> None:
        """Say something to the clients in the broker's name."""
        for writer in self._clients:
            writer.write(frame)

    async def wait_for_bytes(self, count: int) -> None:
        while self.passed < count:
            self._moved.clear()
            await self._moved.wait()

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.down()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.accepted += 1
        self._writers |= {writer, broker_writer}
        self._clients.add(writer)
        for relay in (
            self._relay(reader, broker_writer, from_client=True),
            self._relay(broker_reader, writer, from_client=False),
        ):
            task = asyncio.create_task(relay)
            self._relays.add(task)
            task.add_done_callback(self._relays.discard)

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_client: bool
    ) -> None:
        try:
            while data := await reader.read(65536):
                if from_client:
                    self.passed += len(data)
                    if self._last is not None and self.passed >= self._last[0]:
                        self._reading.clear()
                        self.tell(self._last[1])
                        self._last = None
                    self._moved.set()
                    await self._reading.wait()
                else:
                    await self._speaking.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            self._clients.discard(writer)
            writer.transport.abort()
