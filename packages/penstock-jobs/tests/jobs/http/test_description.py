"""The API's description: complete, valid, and true of what the API does."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import checks
from schemathesis.generation import GenerationMode

from penstock_jobs.formats import read_request
from penstock_jobs.http.app import create_app
from penstock_jobs.http.guard import ApiLimits
from tests.jobs.http.memory import MemoryJobs

DESCRIPTION = create_app(MemoryJobs()).openapi()
OPERATIONS = [
    (path, method) for path, methods in DESCRIPTION["paths"].items() for method in methods
]
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
#: Those that are answered at once, not as long as somebody listens.
ANSWERED = [each for each in OPERATIONS if each[0] not in ("/changes", "/jobs/{id}/progress")]


@pytest.fixture(scope="module")
def described() -> schemathesis.BaseSchema:
    limits = ApiLimits(hosts=frozenset({"testserver"}))
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(MemoryJobs(), limits))


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "components": DESCRIPTION["components"]}


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_operation_says_what_it_does_and_what_may_go_wrong(path: str, method: str) -> None:
    operation = DESCRIPTION["paths"][path][method]
    assert operation["description"]
    assert operation["tags"]
    problems = [status for status in operation["responses"] if status >= "400"]
    assert problems or path == "/health"
    for status in problems:
        assert "application/problem+json" in operation["responses"][status]["content"]


def test_the_examples_of_requests_are_requests() -> None:
    body = DESCRIPTION["paths"]["/jobs"]["post"]["requestBody"]["content"]
    for example in body["application/json"]["examples"].values():
        jsonschema.validate(example["value"], resolved(body["application/json"]["schema"]))
    request, _ = read_request(body["text/xml"]["example"].encode())
    assert request.id == "trial-1"


async def test_a_job_looks_as_described(api: httpx.AsyncClient) -> None:
    job = (await api.post("/jobs", json={"type": "fake", "id": "a1"})).json()
    jsonschema.validate(job, resolved({"$ref": "#/components/schemas/Job"}))


@pytest.mark.parametrize(("path", "method"), ANSWERED)
def test_answers_to_made_up_requests_are_as_described(
    described: schemathesis.BaseSchema, path: str, method: str
) -> None:
    operation = described[path][method]
    requests = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(case=st.one_of(*requests))
    def holds(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(checks=CHECKS)

    holds()
