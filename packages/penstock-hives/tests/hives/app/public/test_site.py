"""The site whole: what the public is told is what the database says, and the rest is the API's."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from penstock_hives.api.app import create_app
from penstock_hives.resources import open_resources
from penstock_hives.settings import HivesSettings
from penstock_store import Database
from tests.hives.app.sites import HIVES, site


class Nobody:
    """Vouches for nobody."""

    async def verify(self, token: str) -> Any:
        raise AssertionError("nobody shows a token here")


#: Set at the moment of asking: not a matter of where the answer comes from.
_OF_THE_MOMENT = ("updated_at", "changes_at", "open_now", "as_of")


def told(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: told(each) for key, each in value.items() if key not in _OF_THE_MOMENT}
    return [told(each) for each in value] if isinstance(value, list) else value


PATHS = (
    "/v1/hives",
    "/v1/hives?limit=2",
    "/v1/hives?name=amber",
    "/v1/hives?near=51.5,-0.12&limit=3",
    "/v1/hives?sort=quiet",
    "/v1/hives/1",
    "/v1/hives/1/occupancy",
    "/v1/hives/1/typical-week",
    "/v1/hives/1/forecast",
    "/v1/hives/1/forecast?day=2020-02-02",
    "/v1/hives/1/images",
    "/v1/hives/1/deals",
    "/v1/hives/1/navigation?from=51.5,0",
    "/v1/deals",
    "/v1/deals?limit=1",
    "/v1/deals/daily",
    "/v1/hive-types",
    "/v1/plans",
    "/v1/map?bbox=-180,-90,180,90",
    "/v1/popular",
    "/v1/popular?window_days=30&limit=2",
    "/v1/popular?window_days=8",
    "/v1/popular?by=searches",
    "/v1/popular?by=luck",
    "/v1/hives/999",
    "/v1/hives/6/occupancy",
    "/v1/hives?limit=0",
    "/v1/hives?near=nowhere",
    "/v1/hives?within_km=3",
    "/v1/map",
)


async def test_the_public_is_told_what_the_database_says(furnished: str, tmp_path: Path) -> None:
    settings = HivesSettings(database=furnished, images=tmp_path)
    async with open_resources(settings, Nobody()) as resources, site(tmp_path, furnished) as public:
        transport = httpx.ASGITransport(app=create_app(resources))
        async with httpx.AsyncClient(transport=transport, base_url="http://fresh") as database:
            for path in PATHS:
                fresh, cached = await database.get(path), await public.get(path)
                assert (path, cached.status_code) == (path, fresh.status_code)
                if fresh.is_success:
                    assert (path, told(cached.json())) == (path, told(fresh.json()))


async def test_the_page_and_its_files_are_served(furnished: str, tmp_path: Path) -> None:
    async with site(tmp_path, furnished) as client:
        page = await client.get("/")
        files = [await client.get(name) for name in ("/page.js", "/style.css", "/icon.svg")]
        lost = await client.get("/../../etc/passwd")
    assert "<main" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert all(file.status_code == 200 for file in files)
    assert lost.status_code == 404


async def test_a_read_of_ones_own_needs_a_token(furnished: str, tmp_path: Path) -> None:
    async with site(tmp_path, furnished) as client:
        assert (await client.get("/v1/me")).status_code == 401
        forged = await client.get("/v1/hives/1", headers={"authorization": "Bearer x.y.z"})
        assert forged.status_code == 401


async def test_a_name_that_is_not_the_sites_is_not_answered(furnished: str, tmp_path: Path) -> None:
    rebound = {"host": "rebound.example"}
    async with site(tmp_path, furnished) as client:
        answers = [await client.get(path, headers=rebound) for path in ("/", "/v1/hives", "/v1/me")]
    assert [answer.status_code for answer in answers] == [403, 403, 403]
    assert "hosts in [site]" in answers[0].json()["detail"]


async def test_the_api_describes_itself(furnished: str, tmp_path: Path) -> None:
    async with site(tmp_path, furnished) as client:
        described = await client.get("/v1/openapi.json")
        docs = await client.get("/v1/docs")
    assert "/v1/hives" in described.json()["paths"]
    assert docs.status_code == 200
    assert "<code>/v1/hives</code>" in docs.text


async def test_live_begins_with_all_hives_that_were_heard_of(
    furnished: str, tmp_path: Path
) -> None:
    async with site(tmp_path, furnished) as client:
        figures = (await client.get("/v1/live")).json()["figures"]
    assert {figure["hive_id"] for figure in figures} == set(range(1, HIVES))
    assert datetime.fromisoformat(figures[0]["as_of"]) <= datetime.now(UTC)


async def test_who_signs_in_and_does_not_pay_is_answered_from_the_cache_too(
    furnished: str, tmp_path: Path
) -> None:
    async with site(tmp_path, furnished) as client:
        eve, ada = [await _sign_up(client) for _ in range(2)]
        await asyncio.to_thread(_employ, furnished, ada["uid"])
        free = await client.get("/v1/hives/1", headers=_token(eve))
        fresh = await client.get("/v1/hives/1", headers=_token(ada))
    assert free.headers["x-as-of"]
    assert "x-as-of" not in fresh.headers  # from the database, for who works for a business
    assert told(free.json()) == told(fresh.json())


async def _sign_up(client: httpx.AsyncClient) -> dict[str, str]:
    given = {"login": f"{uuid4()}@example.org", "password": "a long enough password"}
    session: dict[str, str] = (await client.post("/v1/identity/sign-up", json=given)).json()
    return session


def _token(session: dict[str, str]) -> dict[str, str]:
    return {"authorization": f"Bearer {session['id_token']}"}


def _employ(url: str, uid: str) -> None:
    with Database(url) as database:
        database.execute(
            """
            WITH seen AS (INSERT INTO app_user (firebase_uid) VALUES (%s) RETURNING id)
            INSERT INTO account_member (account_id, user_id) SELECT 1, id FROM seen
            """,
            (uid,),
        )
