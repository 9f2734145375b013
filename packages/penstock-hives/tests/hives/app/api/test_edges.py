"""What holds for every call: problems, tags, keys, rates, sizes; and hostile input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from penstock_hives.api.app import create_app
from penstock_hives.api.idempotency import IdempotencyRepository
from penstock_hives.places.models import HiveSummary
from penstock_hives.public.view import CachedPage
from penstock_hives.resources import open_resources
from penstock_hives.settings import HivesSettings
from tests.hives.app.world import Names, World
from tests.peers import free_port

INJECTIONS = [
    "' OR 1=1 --",
    "'; DROP TABLE hive; --",
    '"; SELECT pg_sleep(60); --',
    "%",
    "\\",
    "${jndi:ldap://x}",
    "<script>alert(1)</script>",
    "../../../../etc/passwd",
    "{{7*7}}",
    "\u202e\ufeff😀",
]


async def test_a_problem_says_what_where_and_why(world: World) -> None:
    answer = await world.call("POST", "/accounts", await world.user(), json={"name": ""})

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["title"] == "Invalid request"
    assert problem["type"] == "urn:penstock:problem:invalid-request"
    assert problem["errors"][0]["field"] == "body.name"


@pytest.mark.parametrize(
    ("verb", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("PUT", "/hives", 405),
        ("GET", "/hives/0", 422),
        ("GET", f"/hives/{1 << 63}", 422),
        ("GET", "/hives/x", 422),
        ("GET", "/hives/7%00", 422),
        ("GET", "/me", 401),
    ],
)
async def test_every_refusal_is_a_problem(world: World, verb: str, path: str, status: int) -> None:
    answer = await world.call(verb, path)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status


async def test_what_one_has_is_not_sent_again(world: World) -> None:
    first = await world.get("/plans")

    again = await world.get(
        "/plans", headers={"If-None-Match": f'"other", {first.headers["etag"]}'}
    )

    assert again.status_code == 304
    assert again.content == b""


async def test_the_same_key_gets_the_same_answer_and_nothing_is_done_twice(world: World) -> None:
    who = await world.user()
    key = {"headers": {"Idempotency-Key": "one"}}

    first = await world.call("POST", "/accounts", who, json={"name": "Once"}, **key)
    again = await world.call("POST", "/accounts", who, json={"name": "Once"}, **key)

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert len((await world.read("/accounts", who))["items"]) == 1


async def test_a_key_belongs_to_one_request_of_one_caller(world: World) -> None:
    one, two = await world.user(), await world.user()
    key = {"headers": {"Idempotency-Key": "two"}}
    await world.make("/accounts", one, {"name": "One"}, **key)

    other = await world.call("POST", "/accounts", one, json={"name": "Other"}, **key)
    assert other.status_code == 422
    assert (await world.make("/accounts", two, {"name": "One"}, **key))["name"] == "One"


async def test_a_request_that_failed_may_be_tried_again_with_its_key(world: World) -> None:
    who, business = await world.user(), await world.business()
    key = {"headers": {"Idempotency-Key": "three"}}
    body = {"kind": "occupancy_above", "hive_id": 999_999, "threshold": 1, "unit": "count"}
    path = "/me/notification-settings"
    assert (await world.call("POST", path, who, json=body, **key)).status_code == 404

    body["hive_id"] = business.hive

    assert (await world.call("POST", path, who, json=body, **key)).status_code == 201


async def test_of_two_at_once_with_one_key_one_is_done(world: World) -> None:
    who = await world.user()
    key = {"headers": {"Idempotency-Key": "four"}}

    answers = await asyncio.gather(
        *(world.call("POST", "/accounts", who, json={"name": "X"}, **key) for _ in range(5))
    )

    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len((await world.read("/accounts", who))["items"]) == 1


@pytest.mark.parametrize("when", ["before the answer is kept", "before it is committed"])
async def test_a_write_whose_connection_dies_is_done_once_when_it_is_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    who = await world.user()
    store = IdempotencyRepository.store

    async def cut_off(self: IdempotencyRepository, *given: object) -> None:
        monkeypatch.undo()
        if when == "before it is committed":
            await store(self, *given)  # type: ignore[arg-type]
        await self._connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(IdempotencyRepository, "store", cut_off)
    sent = {"json": {"name": "Once"}, "headers": {"Idempotency-Key": "six"}}
    assert (await world.call("POST", "/accounts", who, **sent)).status_code == 503
    assert (await world.read("/accounts", who))["items"] == []

    again = await world.call("POST", "/accounts", who, **sent)

    assert again.status_code == 201
    assert "idempotency-replayed" not in again.headers
    assert len((await world.read("/accounts", who))["items"]) == 1


async def test_nothing_is_told_to_a_sensor_that_is_not_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    business = await world.business()
    body = {"serial": "told-when-kept", "protocol": "v2"}
    sensor = (await world.make(f"/hives/{business.hive}/sensors", business.admin, body))["id"]
    path = f"/sensors/{sensor}/configuration"
    sent = {"json": {"report_interval_min": 7}, "headers": {"Idempotency-Key": "seven"}}

    async def cut_off(self: IdempotencyRepository, *given: object) -> None:
        monkeypatch.undo()
        assert world.post.retained == {}
        await self._connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(IdempotencyRepository, "store", cut_off)
    assert (await world.call("PUT", path, business.admin, **sent)).status_code == 503
    assert world.post.retained == {}

    assert (await world.call("PUT", path, business.admin, **sent)).is_success
    assert list(world.post.retained) == ["commands/sensor/told-when-kept"]
    [command] = await world.read(path, business.admin)
    assert command["state"] == "sent"


async def test_answers_with_a_secret_are_not_kept(world: World) -> None:
    who = await world.user()
    key = {"headers": {"Idempotency-Key": "five"}}

    first = await world.make("/me/keys", who, {"name": "x"}, **key)
    second = await world.make("/me/keys", who, {"name": "x"}, **key)

    assert first["secret"] != second["secret"]


async def test_what_is_searched_for_is_only_text(world: World) -> None:
    for text in INJECTIONS:
        answer = await world.get("/hives", params={"name": text, "zip": text})
        assert answer.status_code == 200, text
        for name in ("type", "near", "cursor", "sort"):
            assert (await world.get("/hives", params={name: text})).status_code == 422, text


async def test_what_is_said_comes_back_as_it_was(world: World) -> None:
    business, who = await world.business(), await world.user()
    path = f"/hives/{business.hive}"

    for text in INJECTIONS:
        await world.patch(path, business.admin, {"name": text, "description": text})
        body = {"type": "feedback", "content": text, "hive_id": business.hive}
        message = await world.make("/messages", who, body)

        assert (await world.read(path))["name"] == text
        answer = await world.get(f"/messages/{message['id']}", who)
        assert answer.json()["content"] == text
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "path", ["..%2f..%2fetc%2fpasswd", "1%2f..%2f2", "%2e%2e", "1;ls", "-1", "1e3", "0x1"]
)
async def test_pictures_are_named_by_numbers_only(world: World, path: str) -> None:
    assert (await world.client.get(f"/v1/images/{path}")).status_code in (404, 422)


async def test_a_body_over_the_limit_is_refused_before_it_is_read(world: World) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 65536
            yield bytes(65536)

    answer = await world.call(
        "POST", "/events", content=endless(), headers={"Content-Type": "application/json"}
    )

    assert answer.status_code == 413
    assert sent < 10 * 65536


async def test_json_that_is_none_is_refused(world: World) -> None:
    for content in (b"{", b"[" * 5000, b"\xff\xfe", b'{"name": "\\ud800"}', b'{"name": 1e999}'):
        answer = await world.call(
            "POST",
            "/accounts",
            "ada",
            content=content,
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code in (400, 422), content


async def served(
    settings: HivesSettings, public: object = None
) -> AsyncIterator[httpx.AsyncClient]:
    async with open_resources(settings, Names(), public=public) as resources:  # type: ignore[arg-type]
        transport = httpx.ASGITransport(create_app(resources), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://hives/v1") as client:
            yield client


async def test_who_asks_too_much_is_told_to_wait(settings: HivesSettings) -> None:
    few = replace(settings, rate_anonymous=0.001, rate_burst=3000.0)
    async for client in served(few):
        answers = [await client.get("/plans") for _ in range(5)]

        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
        assert int(answers[-1].headers["retry-after"]) >= 1
        guess = {"Authorization": "Bearer guess.ed"}
        assert (await client.get("/plans", headers=guess)).status_code == 429
        token = {"Authorization": "Bearer patient"}
        assert (await client.get("/plans", headers=token)).status_code == 200


async def test_without_a_database_calls_are_told_to_come_again(tmp_path: Path) -> None:
    away = HivesSettings(
        database=f"postgresql://nobody@127.0.0.1:{free_port()}/none",
        images=tmp_path,
        pool_wait=0.2,
    )
    async for client in served(away):
        for path, token in (("/hives", None), ("/me", "ada")):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            answer = await client.get(path, headers=headers)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) > 0
            assert answer.headers["content-type"] == "application/problem+json"


class Shelf:
    """Has one answer for everything."""

    def find(self, path: str, query: str) -> CachedPage:
        return CachedPage(b'"from the cache"', datetime.now(UTC))

    def summaries(self) -> list[HiveSummary]:
        return []


async def test_anonymous_and_free_callers_never_reach_the_database(
    settings: HivesSettings, world: World
) -> None:
    free, paying = await world.user(), await world.user()
    world.subscribe("basic", user=await world.number(paying))
    paths = ["/hives", "/hives/1", "/hives/1/occupancy", "/hives/1/typical-week", "/plans"]
    paths += ["/hives/1/forecast", "/hives/1/images", "/hives/1/deals", "/deals", "/deals/daily"]
    paths += ["/deals/1", "/hive-types", "/map?bbox=1,1,2,2", "/images/1", "/hives/1/navigation"]
    async for client in served(settings, Shelf()):
        for path in paths:
            for token in (None, free):
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                assert (await client.get(path, headers=headers)).text == '"from the cache"', path
            headers = {"Authorization": f"Bearer {paying}"}
            assert (await client.get(path, headers=headers)).text != '"from the cache"', path
