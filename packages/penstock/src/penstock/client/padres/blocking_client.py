"""The PADRES client without `async`: the same names, with `with` and `for`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

from penstock.client.blocking_client import BlockingClient, EventLoopThread
from penstock.client.errors import FabricClosed
from penstock.client.padres.client import PadresClient
from penstock.client.padres.inbox import PublicationInbox, ReceivedPublication


class BlockingInbox:
    def __init__(
        self, loop: EventLoopThread, inbox: PublicationInbox[ReceivedPublication] | PadresClient
    ) -> None:
        self._loop = loop
        self._inbox = inbox

    def receive(self, timeout: float | None = None) -> ReceivedPublication:
        """The next publication; raises `TimeoutError` if none arrives in time."""
        return self._loop.wait(asyncio.wait_for(self._inbox.receive(), timeout))

    def __iter__(self) -> Iterator[ReceivedPublication]:
        while True:
            try:
                yield self.receive()
            except FabricClosed:
                return


class BlockingPadresClient(BlockingClient[PadresClient]):
    def __init__(
        self,
        *urls: str,
        id: str = "",  # noqa: A002 - the term of PADRES
        lasting: bool = False,
        tls: ssl.SSLContext | None = None,
        retry_seconds: float = 0.0,
    ) -> None:
        super().__init__(
            lambda: PadresClient(
                *urls, id=id, lasting=lasting, tls=tls, retry_seconds=retry_seconds
            )
        )
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
        return BlockingInbox(self._loop, self._loop.call(lambda: self._client.inbox(*filters)))

    def receive(self, timeout: float | None = None) -> ReceivedPublication:
        return self._inbox.receive(timeout)

    def __iter__(self) -> Iterator[ReceivedPublication]:
        return iter(self._inbox)
