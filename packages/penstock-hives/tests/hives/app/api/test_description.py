"""What the API says of itself is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from penstock_hives.api.app import create_app
from penstock_hives.people.permissions import AppPermission
from penstock_hives.resources import open_resources
from penstock_hives.settings import HivesSettings
from tests.hives.app.world import Names

#: Parts that describe themselves, in the fields of their bodies.
THEIRS = {"identity", "push", "payments", "alerts"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Nothing needs to be there for it."""

    async def described() -> dict[str, Any]:
        async with open_resources(HivesSettings(), Names()) as resources:
            return create_app(resources).openapi()

    return asyncio.run(described())


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            yield f"{verb.upper()} {path}", operation


def test_every_call_tells_its_errors_as_problems(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        told = operation["responses"]
        assert {"422", "429", "503"} <= set(told), name
        for status, response in told.items():
            if status >= "4":
                assert "application/problem+json" in response["content"], (name, status)


def test_every_call_that_needs_one_to_sign_in_says_so(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        if operation.get("x-permission") not in (None, "public.read", "activity.record"):
            assert operation["security"], name
            assert {"401", "403"} <= set(operation["responses"]), name


def test_every_permission_there_is_opens_something(document: dict[str, Any]) -> None:
    asked = {operation.get("x-permission") for _, operation in operations(document)}

    assert {each.value for each in AppPermission} <= asked


def test_every_body_of_ours_has_an_example(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {})
        reference = content.get("application/json", {}).get("schema", {}).get("$ref")
        if reference is None or set(operation["tags"]) & THEIRS:
            continue
        assert schemas[reference.rpartition("/")[2]].get("examples"), name


def test_every_answer_of_ours_has_an_example(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, operation in operations(document):
        if set(operation["tags"]) & THEIRS:
            continue
        for status, response in operation["responses"].items():
            shape = response.get("content", {}).get("application/json", {}).get("schema")
            if status < "3" and shape is not None:
                assert exemplified(shape, schemas), name


def exemplified(shape: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """Whether it, or what it is a list or a page of, has an example."""
    if "$ref" in shape:
        named = schemas[shape["$ref"].rpartition("/")[2]]
        inner = named.get("properties", {}).get("items") or named.get("properties", {}).get(
            "features"
        )
        return bool(named.get("examples")) or (inner is not None and exemplified(inner, schemas))
    return shape.get("type") != "array" or exemplified(shape["items"], schemas)


def test_every_example_is_one(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    checked = 0
    for name, schema in schemas.items():
        for example in schema.get("examples", ()):
            whole = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
            jsonschema.Draft202012Validator(whole).validate(example)
            checked += 1
    assert checked, "there is no example to check"


def test_every_call_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(document)]

    assert len(names) == len(set(names))
