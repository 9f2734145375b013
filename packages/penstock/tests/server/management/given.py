"""What tests of the management API begin with."""

from __future__ import annotations

from typing import Any

import httpx

TEXT = {"properties": {}, "payload_encoding": "string"}
TAKE = {"ackmode": "ack_requeue_false", "encoding": "auto"}


async def publish(
    api: httpx.AsyncClient, key: str, payload: str = "hello", exchange: str = "amq.default"
) -> bool:
    """Whether a queue took it."""
    body = {**TEXT, "routing_key": key, "payload": payload}
    answer = await api.post(f"/exchanges/%2F/{exchange}/publish", json=body)
    assert answer.status_code == 200, answer.text
    routed: bool = answer.json()["routed"]
    return routed


async def take(api: httpx.AsyncClient, queue: str, count: int = 1, **how: Any) -> list[Any]:
    answer = await api.post(f"/queues/%2F/{queue}/get", json={**TAKE, "count": count, **how})
    assert answer.status_code == 200, answer.text
    messages: list[Any] = answer.json()
    return messages


async def queue(api: httpx.AsyncClient, name: str, **settings: Any) -> None:
    assert (await api.put(f"/queues/%2F/{name}", json=settings)).status_code == 201


async def user(api: httpx.AsyncClient, name: str, *tags: str, vhost: str | None = "%2F") -> None:
    """A user whose password is their name, with all permissions in the virtual host."""
    made = await api.put(f"/users/{name}", json={"password": name, "tags": ",".join(tags)})
    assert made.status_code == 201
    if vhost is not None:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        granted = await api.put(f"/permissions/{vhost}/{name}", json=everything)
        assert granted.status_code == 201
