"""Brokers in the test's own process, each with its management API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.client import connect
from penstock.core.config import BrokerSettings
from penstock.server import Broker

#: A busy machine gets time to spare.
PATIENCE_SECONDS = 120.0


async def eventually(condition: Callable[[], Awaitable[Any]]) -> Any:
    """The first true result."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := await condition()):  # noqa: ASYNC110 - of several brokers
            await asyncio.sleep(0.02)
        return found


@dataclass
class Node:
    broker: Broker
    api: httpx.AsyncClient

    @property
    def amqp(self) -> str:
        return self.broker.addresses[0].replace("://", "://guest:guest@")

    @property
    def amqp10(self) -> str:
        return self.amqp.replace("amqp://", "amqp+1.0://")

    @property
    def mqtt(self) -> str:
        return self.broker.addresses[2].replace("://", "://guest:guest@")

    async def shovel(self, name: str, **value: Any) -> None:
        """Underscores are hyphens."""
        value.setdefault("reconnect_delay", 0)
        body = {"value": {key.replace("_", "-"): each for key, each in value.items()}}
        answer = await self.api.put(f"/parameters/shovel/%2F/{name}", json=body)
        assert answer.status_code == 201, answer.text

    async def parameter(self, component: str, name: str, value: Any) -> None:
        answer = await self.api.put(f"/parameters/{component}/%2F/{name}", json={"value": value})
        assert answer.status_code == 201, answer.text

    async def policy(self, name: str, pattern: str, **definition: Any) -> None:
        body = {
            "pattern": pattern,
            "definition": {key.replace("_", "-"): each for key, each in definition.items()},
        }
        answer = await self.api.put(f"/policies/%2F/{name}", json=body)
        assert answer.is_success, answer.text

    async def running(self, name: str) -> Any:
        async def state() -> Any:
            answer = await self.api.get(f"/shovels/vhost/%2F/{name}")
            row = answer.json()
            return row if row.get("state") == "running" else None

        return await eventually(state)

    async def gone(self, name: str) -> None:
        async def deleted() -> bool:
            answer = await self.api.get(f"/parameters/shovel/%2F/{name}")
            return answer.status_code == 404

        await eventually(deleted)

    async def link(self) -> Any:
        async def running() -> Any:
            rows = (await self.api.get("/federation-links")).json()
            return rows[0] if rows and all(row["status"] == "running" for row in rows) else None

        return await eventually(running)

    def length(self, queue: str) -> int:
        found = self.broker.vhosts["/"].queues.get(queue)
        return 0 if found is None else found.message_count

    async def filled(self, queue: str, count: int) -> None:
        async def there() -> bool:
            return self.length(queue) >= count

        await eventually(there)

    async def push(self, queue: str, *bodies: str) -> None:
        async with connect(self.amqp) as fabric:
            for body in bodies:
                await fabric.push(queue).send(body)

    async def take(self, queue: str, count: int = 100) -> list[Any]:
        body = {"count": count, "ackmode": "ack_requeue_false", "encoding": "auto"}
        answer = await self.api.post(f"/queues/%2F/{queue}/get", json=body)
        assert answer.status_code == 200, answer.text
        rows: list[Any] = answer.json()
        return rows


NewNode = Callable[..., Awaitable[Node]]


@pytest.fixture
async def new_node(tmp_path: Path) -> AsyncIterator[NewNode]:
    opened: list[Node] = []

    async def start(**settings: Any) -> Node:
        listen = [f"{scheme}://127.0.0.1:0" for scheme in ("amqp", "http", "mqtt")]
        data = tmp_path / f"node-{len(opened)}"
        broker = Broker(BrokerSettings(listen=listen, **settings), data=data)
        await broker.start()
        url = f"{broker.addresses[1]}/api"
        node = Node(broker, httpx.AsyncClient(base_url=url, auth=("guest", "guest"), timeout=60))
        opened.append(node)
        return node

    yield start
    for node in opened:
        await node.api.aclose()
        await node.broker.close()


@pytest.fixture
async def node(new_node: NewNode) -> Node:
    return await new_node()


@pytest.fixture
async def other(new_node: NewNode) -> Node:
    return await new_node()
