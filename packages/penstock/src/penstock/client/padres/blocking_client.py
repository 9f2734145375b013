"""The PADRES client without `async`: the same names, with `with` and `for`.

It runs on an event loop in a thread of its own, so its connections live while the program is busy
elsewhere; any thread may use it. Ctrl-C ends a wait at once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from penstock.client.blocking_client import EventLoopThread
from penstock.client.errors import FabricClosed
from penstock.client.padres import client as asynchronous
from penstock.client.padres.inbox import PublicationInbox as AsynchronousInbox
from penstock.client.padres.inbox import ReceivedPublication

#: Where publications can be had from.
Source = AsynchronousInbox[ReceivedPublication] | asynchronous.PadresClient


class BlockingInbox:
    def __init__(self, loop: EventLoopThread, inbox: Source) -> None:
        self._loop = loop
        self._inbox = inbox

    def receive(self, timeout: float | None = None) -> ReceivedPublication:
        """The next publication; `TimeoutError` if none comes in as many seconds."""

        async def receive() -> ReceivedPublication:
            async with asyncio.timeout(timeout):
                return await self._inbox.receive()

        return self._loop.wait(receive())

    def __iter__(self) -> Iterator[ReceivedPublication]:
        while True:
            try:
                yield self.receive()
            except FabricClosed:
                return


class BlockingPadresClient:
    def __init__(
        self,
        *urls: str,
        id: str = "",  # noqa: A002 - PADRES' word
        lasting: bool = False,
        tls: ssl.SSLContext | None = None,
        retry_seconds: float = 0.0,
    ) -> None:
        self._loop = EventLoopThread()

        async def build() -> asynchronous.PadresClient:
            return asynchronous.PadresClient(
                *urls, id=id, lasting=lasting, tls=tls, retry_seconds=retry_seconds
            )

        self._client = self._loop.begin(build())
        self._inbox = BlockingInbox(self._loop, self._client)

    @property
    def id(self) -> str:
        return self._client.id

    def connect(self, url: str) -> str:
        return self._loop.wait(self._client.connect(url))

    def disconnect(self, broker: str = "") -> None:
        self._loop.wait(self._client.disconnect(broker))

    def advertise(self, text: str, **options: Any) -> str:
        return self._loop.wait(self._client.advertise(text, **options))

    def subscribe(self, text: str, **options: Any) -> str:
        return self._loop.wait(self._client.subscribe(text, **options))

    def withdraw(self, id_: str) -> None:
        self._loop.wait(self._client.withdraw(id_))

    def publish(self, text: str, payload: bytes = b"", **options: Any) -> str:
        return self._loop.wait(self._client.publish(text, payload, **options))

    def inbox(self, *filters: str) -> BlockingInbox:
        async def build() -> AsynchronousInbox[ReceivedPublication]:
            return self._client.inbox(*filters)

        return BlockingInbox(self._loop, self._loop.wait(build()))

    def receive(self, timeout: float | None = None) -> ReceivedPublication:
        return self._inbox.receive(timeout)

    def __iter__(self) -> Iterator[ReceivedPublication]:
        return iter(self._inbox)

    def open(self) -> Self:
        self._loop.begin(self._client.open())
        return self

    def close(self) -> None:
        self._loop.end(self._client.close())

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
