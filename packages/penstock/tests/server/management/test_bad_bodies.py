"""Bodies and queries of the wrong types are the caller's mistake, each with its reason."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

DEEP = "[" * 20_000


@pytest.mark.parametrize(
    ("section", "entry"),
    [
        ("queues", {"name": "a", "vhost": []}),
        ("parameters", {"component": [], "name": "a", "vhost": "/"}),
        ("users", {"name": "a", "password_hash": "x", "tags": "", "hashing_algorithm": []}),
        ("policies", {"name": "a", "vhost": "/", "pattern": "a", "apply-to": []}),
    ],
)
async def test_definitions_of_the_wrong_types_are_refused(
    api: httpx.AsyncClient, section: str, entry: dict[str, Any]
) -> None:
    answer = await api.post("/definitions", json={section: [entry]})

    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/users/bulk-delete", {"users": [{}]}),
        ("PUT", "/parameters/federation-upstream/%2F/a", {"value": {"uri": "amqp://["}}),
        ("PUT", "/parameters/schema/%2F/a", {"value": {"type": [], "schema": {}}}),
        ("GET", f"/queues/%2F/q/messages?headers={DEEP}", None),
        ("GET", "/queues?page=1&name=[z-a]&use_regex=true", None),
    ],
    ids=["names", "uri", "schema", "headers", "pattern"],
)
async def test_values_of_the_wrong_types_are_refused(
    api: httpx.AsyncClient, method: str, path: str, body: Any
) -> None:
    await api.put("/queues/%2F/q", json={})

    answer = await api.request(method, path, json=body)

    assert answer.status_code == 400, answer.text
