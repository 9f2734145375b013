"""A broker that speaks PADRES, and clients of it that say what they got and what they did not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from penstock.client.padres import PadresClient, ReceivedPublication
from tests.peers import Penstock, free_port

#: Long enough for a busy machine; nothing is waited for that does not come.
SECONDS = 60
BROKER = "Broker1"
#: Subscribed to by every client, so that it can tell when it has got all there was.
MARK = "[class,eq,mark],[to,eq,{id}]"


class PadresBroker:
    """`penstock broker` with a PADRES listener."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.port = free_port()
        listen = ("--listen", f"padres://127.0.0.1:{self.port}")
        self.server = Penstock(folder, *listen, *arguments, mqtt=True)

    @property
    def url(self) -> str:
        return f"padres://127.0.0.1:{self.port}/{BROKER}"

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()


class Watcher:
    """A client that can say what has come so far, and thereby what has not."""

    def __init__(self, client: PadresClient) -> None:
        self.client = client
        self._marks = 0

    @classmethod
    async def of(cls, client: PadresClient) -> Self:
        await client.subscribe(MARK.format(id=client.id))
        await client.advertise("[class,eq,mark],[to,isPresent,''],[n,isPresent,0]")
        return cls(client)

    async def got(self) -> list[ReceivedPublication]:
        """All that was published before this was asked: a mark comes behind it."""
        self._marks += 1
        await self.client.publish(f"[class,mark],[to,{self.client.id}],[n,{self._marks}]")
        found: list[ReceivedPublication] = []
        async with asyncio.timeout(SECONDS):
            while True:
                received = await self.client.receive()
                if received.class_name == "mark":
                    assert received["n"] == self._marks
                    return found
                found.append(received)

    async def texts(self) -> list[str]:
        return [one.text for one in await self.got()]


@asynccontextmanager
async def watching(url: str, id: str = "") -> AsyncIterator[Watcher]:  # noqa: A002
    async with PadresClient(url, id=id) as client:
        yield await Watcher.of(client)
