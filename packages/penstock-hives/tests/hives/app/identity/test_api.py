"""Signing in over HTTP."""

from __future__ import annotations

import pytest

from penstock_hives.api.rate_limiter import RateLimiter
from penstock_hives.people.permissions import UserRole
from tests.hives.app.calling import Called

pytestmark = pytest.mark.asyncio(loop_scope="module")

WHO = {"login": "ada@bees.example", "password": "nine green bottles"}


async def test_who_signs_up_is_known_to_the_whole_application(hives: Called) -> None:
    made = await hives.call("POST", "/v1/identity/sign-up", json=WHO)
    assert made.status_code == 201
    headers = {"Authorization": f"Bearer {made.json()['id_token']}"}
    assert (await hives.client.get("/v1/inbox", headers=headers)).status_code == 200


async def test_sign_in_refresh_and_sign_out(hives: Called) -> None:
    await hives.call("POST", "/v1/identity/sign-up", json=WHO)
    session = (await hives.call("POST", "/v1/identity/sign-in", json=WHO)).json()
    held = {"refresh_token": session["refresh_token"]}
    again = await hives.call("POST", "/v1/identity/refresh", json=held)
    assert again.status_code == 200
    held = {"refresh_token": again.json()["refresh_token"]}
    assert (await hives.call("POST", "/v1/identity/sign-out", json=held)).status_code == 204
    assert (await hives.call("POST", "/v1/identity/refresh", json=held)).status_code == 401


async def test_sign_ups_and_mails_of_an_address_are_limited(
    hives: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hives.resources, "limits", RateLimiter(1e6, 1e6, 10, accounts=2))
    calls = (("sign-up", WHO), ("password/forgotten", {"login": WHO["login"]}))
    for expected in ({201, 202}, {429}):
        for path, body in calls:
            answer = await hives.call("POST", f"/v1/identity/{path}", json=body)
            assert answer.status_code in expected, answer.text
    assert int(answer.headers["retry-after"]) > 1700


async def test_a_wrong_password_is_a_problem(hives: Called) -> None:
    await hives.call("POST", "/v1/identity/sign-up", json=WHO)
    wrong = {**WHO, "password": "nine red bottles"}
    refused = await hives.call("POST", "/v1/identity/sign-in", json=wrong)
    assert refused.status_code == 401
    assert refused.headers["content-type"] == "application/problem+json"


async def test_a_forgotten_password_reads_the_same_for_everyone(hives: Called) -> None:
    for login in ("ada@bees.example", "nobody@bees.example"):
        asked = await hives.call("POST", "/v1/identity/password/forgotten", json={"login": login})
        assert (asked.status_code, asked.content) == (202, b"null")


async def test_a_login_that_is_no_address_gets_no_letter(hives: Called) -> None:
    asked = await hives.call("POST", "/v1/identity/password/forgotten", json={"login": "a b c"})
    assert asked.status_code == 422


async def test_a_link_that_does_not_hold_is_refused(hives: Called) -> None:
    given = {"token": "guessed", "password": "ten green bottles"}
    refused = await hives.call("POST", "/v1/identity/password/reset", json=given)
    assert refused.status_code == 401


async def test_the_issuers_keys_verify_its_tokens(hives: Called) -> None:
    (key,) = (await hives.call("GET", "/v1/identity/keys")).json()["keys"]
    assert key["kid"] == hives.issuer.issuer.keys.current[0]
    assert not {"d", "p", "q"} & key.keys()  # nothing private
    assert (await hives.call("GET", "/v1/identity")).json() == {"issuer": "local"}


@pytest.mark.parametrize("body", [{}, {"login": 7}, {**WHO, "role": "admin"}, [], "x"])
async def test_a_body_that_is_not_as_it_should_be_is_refused(hives: Called, body: object) -> None:
    assert (await hives.call("POST", "/v1/identity/sign-up", json=body)).status_code == 422


async def test_a_session_is_never_kept_for_who_asks_again(hives: Called) -> None:
    await hives.enter(UserRole.USER)
    headers = {"Idempotency-Key": "one"}
    first = await hives.call("POST", "/v1/identity/sign-up", json=WHO, headers=headers)
    again = await hives.call("POST", "/v1/identity/sign-up", json=WHO, headers=headers)
    assert (first.status_code, again.status_code) == (201, 409)
