"""Role by endpoint, over everything the API says it has: who may, may; who may not, is refused."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio
from fastapi.routing import APIRoute

from penstock_hives.api.openapi import permission_of
from penstock_hives.people.permissions import GRANTS, AppPermission, UserRole
from tests.hives.app.calling import Called, empty

pytestmark = pytest.mark.asyncio(loop_scope="module")

_PARAMETER = re.compile(r"\{[^}]+\}")
_VERBS = {"get", "post", "put", "patch", "delete"}


@pytest_asyncio.fixture(loop_scope="module")
async def hives(serving: Called) -> Called:
    await empty(serving.resources.pool)
    await serving.resources.pool.execute("INSERT INTO account (id, name) VALUES (1, 'Bees Ltd')")
    return serving


def operations(hives: Called) -> dict[tuple[str, str], APIRoute]:
    """Everything in the OpenAPI document, and the route that answers it."""
    routes = hives.routes()
    document = hives.app.openapi()
    found = [
        (verb, path) for path, item in document["paths"].items() for verb in item if verb in _VERBS
    ]
    return {each: routes[each] for each in found}


async def test_what_changes_or_tells_anything_asks_for_a_permission(hives: Called) -> None:
    free = [where for where, route in operations(hives).items() if permission_of(route) is None]
    assert free in ([], [("get", "/v1/roles")])  # who may do what is no secret
    assert len(operations(hives)) > 60


@pytest.mark.parametrize("role", UserRole)
async def test_a_role_may_call_what_it_is_granted_and_nothing_else(
    hives: Called, role: UserRole
) -> None:
    wrong = []
    for (verb, path), route in operations(hives).items():
        permission = permission_of(route) or AppPermission.READ_PUBLIC
        uid = await hives.enter(role)  # anew each time: some calls are how people leave
        where = _PARAMETER.sub("999999999", path)
        response = await hives.call(verb, where, uid)
        detail = response.json().get("detail", "") if response.status_code in (401, 403) else ""
        at_the_gate = response.status_code in (401, 403) and (
            detail in ("sign in first", f"this needs the permission {permission}")
        )
        if at_the_gate == (permission in GRANTS[role]):
            wrong.append((verb, path, response.status_code, detail))
        expected = 401 if role is UserRole.ANONYMOUS else 403
        if at_the_gate and response.status_code != expected:
            wrong.append((verb, path, response.status_code, detail))
        if response.status_code >= 500 and response.status_code not in (501, 503):
            wrong.append((verb, path, response.status_code, detail))
    assert wrong == []


@pytest.mark.parametrize("token", ["x", "a.b.c", "Bearer", ""])
async def test_what_does_not_hold_is_refused_and_never_taken_for_anonymous(
    hives: Called, token: str
) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    response = await hives.client.get("/v1/hives", headers=headers)
    assert response.status_code == 401
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["www-authenticate"] == "Bearer"


async def test_a_member_may_do_nothing_in_another_account(hives: Called) -> None:
    await hives.resources.pool.execute("INSERT INTO account (id, name) VALUES (2, 'Wasps Ltd')")
    uid = await hives.enter(UserRole.ACCOUNT_ADMIN)
    assert (await hives.call("GET", "/v1/accounts/1", uid)).status_code == 200
    assert (await hives.call("GET", "/v1/accounts/2", uid)).status_code in (403, 404)
    bought = {"plan": "business", "account_id": 2}
    response = await hives.call("POST", "/v1/payments/test/purchase", uid, json=bought)
    assert response.status_code == 403
