"""What the API says of itself is complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.hives.app.domain.roles import Permission
from tests.hives.app.world import World


@pytest.fixture
async def document(world: World) -> dict[str, Any]:
    found: dict[str, Any] = await world.read("/openapi.json")
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            yield f"{verb.upper()} {path}", operation


async def test_every_call_tells_its_errors_as_problems(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        told = operation["responses"]
        assert {"422", "429", "503"} <= set(told), name
        for status, response in told.items():
            if status >= "4":
                assert "application/problem+json" in response["content"], (name, status)


async def test_every_call_that_needs_one_to_sign_in_says_so(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        if operation.get("x-permission") not in (None, "public.read", "activity.record"):
            assert operation["security"], name
            assert {"401", "403"} <= set(operation["responses"]), name


async def test_every_permission_there_is_opens_something(document: dict[str, Any]) -> None:
    asked = {operation.get("x-permission") for _, operation in operations(document)}

    assert {each.value for each in Permission} <= asked


async def test_every_body_of_ours_has_an_example(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {})
        reference = content.get("application/json", {}).get("schema", {}).get("$ref")
        if reference is None or set(operation["tags"]) & {"identity", "push", "payments"}:
            continue
        assert schemas[reference.rpartition("/")[2]].get("examples"), name


async def test_every_call_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(document)]

    assert len(names) == len(set(names))
