"""The people of the demonstration, whose password everybody knows, are nobody in production."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock_hives.demo_account import PASSWORD
from penstock_hives.demo_data import DEMO_UIDS, DEMO_USERS, create_demo_data
from penstock_store import Database
from tests.cli.command import environment, run
from tests.hives.app.calling import Called, called


def furnished(url: str) -> None:
    with Database(url) as database:
        create_demo_data(database, datetime.now(UTC))


@pytest.fixture
async def development(own_database: str, tmp_path: Path) -> AsyncIterator[Called]:
    await asyncio.to_thread(furnished, own_database)
    async with called(own_database, tmp_path) as application:
        yield application


@pytest.fixture
async def production(own_database: str, tmp_path: Path) -> AsyncIterator[Called]:
    """The same people, the same keys."""
    async with called(own_database, tmp_path, production=True) as application:
        yield application


@pytest.mark.parametrize("login", [person.login for person in DEMO_USERS])
async def test_their_password_signs_in_for_development_only(
    development: Called, production: Called, login: str
) -> None:
    who = {"login": login, "password": PASSWORD}
    held = await development.call("POST", "/v1/identity/sign-in", json=who)
    assert held.status_code == 200
    assert (await production.call("POST", "/v1/identity/sign-in", json=who)).status_code == 401
    token = {"refresh_token": held.json()["refresh_token"]}
    assert (await production.call("POST", "/v1/identity/refresh", json=token)).status_code == 401


@pytest.mark.parametrize("uid", sorted(DEMO_UIDS))
async def test_so_do_tokens_and_keys_from_before(
    development: Called, production: Called, uid: str
) -> None:
    made = await development.call("POST", "/v1/me/keys", uid, json={"name": "left over"})
    key = {"X-API-Key": made.json()["secret"]}
    for path in ("/v1/me", "/v1/hives"):
        assert (await development.call("GET", path, uid)).status_code == 200
        refused = await production.call("GET", path, uid)
        assert (refused.status_code, "demonstration" in refused.text) == (401, True)
    assert (await development.call("GET", "/v1/me", headers=key)).status_code == 200
    assert (await production.call("GET", "/v1/me", headers=key)).status_code == 401


def test_the_demonstration_does_not_enter_them(own_database: str, tmp_path: Path) -> None:
    env = environment(PENSTOCK_HIVES_PRODUCTION="true")
    said = run("demo", "--data", tmp_path, "--database", own_database, env=env)
    assert said.returncode == 2
    assert "PENSTOCK_HIVES_PRODUCTION is true" in said.stderr
