"""Real brokers in one process, closed when a test is over, and their clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from penstock.broker.users import Users
from penstock.core.config import BrokerSettings, OverlaySettings, TlsSettings
from penstock.overlay.router import OverlayRouter
from penstock.server import Broker
from tests.overlay.conversation import PATIENCE, Talker

#: The brokers of tests, which link and control one another unless a test says otherwise.
NAMES = [f"B{number}" for number in range(1, 10)]
TRUST: dict[str, Any] = {
    "user": "links",
    "password": "links",
    "accept_links_from": NAMES,
    "accept_commands_from": NAMES,
}


def allow_links(data: Path) -> None:
    """A user for links in a data directory whose broker has not been started yet."""
    data.mkdir(parents=True, exist_ok=True)
    users = Users(data / "users.json")
    users.load()
    if "links" not in {user.name for user in users.all()}:
        users.add("links", "links", ("overlay",))


class House:
    """Brokers that are closed at the end, and their clients."""

    def __init__(self, data: Path, stack: AsyncExitStack, tls: TlsSettings | None = None) -> None:
        self._data = data
        self._stack = stack
        self._tls = tls
        self._open: set[Broker] = set()
        self.told_to_stop = asyncio.Event()

    async def broker(self, name: str, *neighbours: str, port: int = 0, **more: Any) -> Broker:
        retrying: dict[str, Any] = {"retry_pause": 0.05, "retry_limit": 0}
        overlay = OverlaySettings(
            id=name, neighbours=list(neighbours), **{**retrying, **TRUST, **more}
        )
        scheme = "padres" if self._tls is None else "padress"
        settings = BrokerSettings(
            listen=[f"{scheme}://127.0.0.1:{port}", "padres://127.0.0.1:0"],
            overlay=overlay,
            drain_seconds=0.2,
            tls=self._tls or TlsSettings(),
        )
        allow_links(self._data / name)
        broker = Broker(settings, data=self._data / name, on_shutdown=self.told_to_stop.set)
        await broker.start()
        self._open.add(broker)
        self._stack.push_async_callback(self.close, broker)
        return broker

    async def close(self, broker: Broker) -> None:
        if broker in self._open:
            self._open.remove(broker)
            await broker.close()

    async def again(self, broker: Broker, *neighbours: str, **more: Any) -> Broker:
        """Close a broker and start it with the data and neighbours it had, at the same port."""
        await self.close(broker)
        before = broker.settings.overlay
        named = neighbours or before.neighbours
        return await self.broker(before.id, *named, port=port_of(broker), **more)

    async def talker(self, broker: Broker, name: str, durable: bool = False) -> Talker:
        plain = int(broker.addresses[1].rpartition(":")[2])
        talker = await Talker(name, durable).connect(plain)
        self._stack.push_async_callback(talker.close)
        return talker


def port_of(broker: Broker) -> int:
    return int(broker.addresses[0].rpartition(":")[2])


def uri_of(broker: Broker) -> str:
    return f"{broker.addresses[0]}/{broker.settings.overlay.id}"


def router_of(broker: Broker) -> OverlayRouter:
    return broker.overlay.routing("/")


async def becomes(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - brokers tell nobody
            await asyncio.sleep(0.01)


def up(broker: Broker, *names: str) -> bool:
    neighbours = router_of(broker).neighbours
    return set(neighbours) == set(names) and all(one.up for one in neighbours.values())


def holds(broker: Broker, hop: str, text: str) -> bool:
    """Whether a broker has a subscription from a hop."""
    wanted = router_of(broker).tables.subscriptions.values()
    return any(one.hop == hop and one.envelope.text == text for one in wanted)


async def pair(house: House) -> tuple[Broker, Broker]:
    first = await house.broker("B1")
    second = await house.broker("B2", uri_of(first))
    await becomes(lambda: up(first, "B2") and up(second, "B1"))
    return first, second
