"""Role by endpoint, and owner by job, over every operation that the API says it has.

An operation without a line in the table fails: who adds one has to say who may call it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final, cast

import httpx
import pytest
from fastapi import FastAPI

from penstock_jobs.http.app import create_app
from penstock_jobs.http.guard import ApiLimits
from penstock_jobs.model import Fake
from penstock_jobs.users.repository import JobAuditEntry, JobRole, JobUser, UserRepository
from tests.jobs.http.conftest import URL
from tests.jobs.http.memory import MemoryJobs

#: method and path → who may call it: anyone, a user of any role, a submitter, or an operator.
TABLE: Final = """
POST /jobs                          submitter
GET /jobs                           user
GET /workers                        user
GET /counts                         user
GET /changes                        user
GET /jobs/{id}                      user
GET /jobs/{id}/progress             user
GET /jobs/{id}/events               user
GET /jobs/{id}/result               user
GET /jobs/{id}/output               user
POST /jobs/{id}/cancel              submitter
POST /jobs/{id}/retry               submitter
GET /dead-letters                   user
POST /dead-letters/replay           operator
POST /workflows                     submitter
GET /schedules                      operator
PUT /schedules/{id}                 operator
DELETE /schedules/{id}              operator
POST /schedules/{id}/pause          operator
POST /schedules/{id}/resume         operator
GET /audit                          operator
GET /matrices                       user
PUT /matrices/{name}                operator
DELETE /matrices/{name}             operator
POST /datasets/check                user
GET /datasets                       user
PUT /datasets/{name}                submitter
GET /datasets/{name}                user
DELETE /datasets/{name}             operator
GET /datasets/{name}/{version}      user
GET /schemas/{name}                 user
GET /health                         anyone
"""
LEVELS: Final[dict[JobRole | None, set[str]]] = {
    None: {"anyone"},
    JobRole.VIEWER: {"anyone", "user"},
    JobRole.SUBMITTER: {"anyone", "user", "submitter"},
    JobRole.OPERATOR: {"anyone", "user", "submitter", "operator"},
}
#: Bodies that are accepted, where one is needed before the role is looked at.
BODIES: Final[dict[tuple[str, str], Any]] = {
    ("POST", "/jobs"): {"type": "fake", "id": "new"},
    ("POST", "/workflows"): {"id": "w", "chain": [{"type": "fake", "duration": 0}]},
    ("PUT", "/schedules/{id}"): {"request": {"type": "fake", "duration": 0}, "every": 60},
    ("POST", "/dead-letters/replay"): {},
    ("PUT", "/matrices/{name}"): {"title": "River", "columns": ["CLASS", "FC"]},
    ("PUT", "/datasets/{name}"): {"matrix": "phages", "rows": [["P6-X01", "1", "2", "3"]]},
}


class Audit(UserRepository):
    """Of nobody's actions."""

    def __init__(self) -> None:
        pass

    def audit(self, size: int = 100, job: str | None = None) -> list[JobAuditEntry]:
        return []

    def log(self, *_: object, **__: object) -> None: ...


def lines() -> Iterator[tuple[tuple[str, str], str]]:
    for line in TABLE.strip().splitlines():
        method, path, level = line.split()
        yield (method, path), level


def application(backend: MemoryJobs) -> FastAPI:
    """The token of a user is the role."""

    async def find_user(token: str) -> JobUser | None:
        return JobUser(token, JobRole(token)) if token in set(JobRole) else None

    return create_app(backend, ApiLimits(token="the server's", find_user=find_user), Audit())


def operations(app: FastAPI) -> set[tuple[str, str]]:
    paths = app.openapi()["paths"]
    return {(method.upper(), path) for path, item in paths.items() for method in item}


async def call(app: FastAPI, where: tuple[str, str], role: JobRole | None) -> int:
    """The status, as soon as it is known: some answers do not end."""
    method, path = where
    client = httpx.Request(
        method,
        URL + path.format(id="hers", name="a", version="1"),
        headers={"Authorization": f"Bearer {role}"} if role else {},
        json=BODIES.get(where),
    )
    body = client.read()
    answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    requests = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if requests:
            return requests.pop()
        await answered
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answered.set_result(message["status"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": client.url.path,
        "raw_path": client.url.raw_path,
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "headers": [(name.lower(), value) for name, value in client.headers.raw],
    }
    running = asyncio.ensure_future(cast("Any", app(scope, receive, send)))
    await asyncio.wait((answered, running), return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return answered.result()


def test_every_operation_has_a_line() -> None:
    assert operations(application(MemoryJobs())) == {where for where, _ in lines()}


@pytest.mark.parametrize("role", LEVELS)
async def test_a_role_may_call_what_its_level_allows(role: JobRole | None) -> None:
    wrong = []
    for where, level in lines():
        backend = MemoryJobs()
        await backend.submit(Fake("hers"), owner=str(role))
        status = await call(application(backend), where, role)
        allowed = status not in (401, 403)
        if allowed != (level in LEVELS[role]) or (role is None and status == 403) or status >= 500:
            wrong.append((where, level, status))
    assert wrong == []


async def test_the_job_of_another_submitter_is_not_there() -> None:
    wrong = []
    paths = [where for where, _ in lines() if where[1].startswith("/jobs/{id}")]
    assert len(paths) > 5
    for where in paths:
        backend = MemoryJobs()
        await backend.submit(Fake("hers"), owner="ada")
        status = await call(application(backend), where, JobRole.SUBMITTER)
        if status != 404:
            wrong.append((where, status))
    assert wrong == []
