"""Favourites, recent hives and notification settings over HTTP."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from tests.hives.app.world import NOON, World


async def test_favourites_are_kept_and_let_go(world: World) -> None:
    business, who = await world.business(), await world.user()
    path = f"/me/favourites/{business.hive}"

    for _ in range(2):
        assert (await world.put(path, who)).status_code == 204
    assert [hive["id"] for hive in await world.read("/me/favourites", who)] == [business.hive]

    assert (await world.delete(path, who)).status_code == 204
    assert await world.read("/me/favourites", who) == []


async def test_a_hive_that_is_not_there_is_no_favourite(world: World) -> None:
    assert (await world.put("/me/favourites/999999", await world.user())).status_code == 404


async def test_recent_hives_are_told_the_last_first(world: World) -> None:
    one, two, who = await world.business(), await world.business(), await world.user()
    for minute, hive in enumerate((one.hive, two.hive, one.hive)):
        world.clock.now = NOON + timedelta(minutes=minute)
        assert (await world.put(f"/me/recent/{hive}", who)).status_code == 204

    assert [each["id"] for each in await world.read("/me/recent", who)] == [one.hive, two.hive]


async def threshold(world: World, who: str, hive: int, **values: object) -> dict[str, object]:
    body = {"kind": "occupancy_above", "hive_id": hive, "threshold": 80, "unit": "percent"}
    made: dict[str, object] = await world.make("/me/notification-settings", who, {**body, **values})
    return made


async def test_a_threshold_is_set_changed_and_taken_back(world: World) -> None:
    business, who = await world.business(), await world.user()
    made = await threshold(world, who, business.hive, quiet_from="22:00", quiet_to="07:00")
    path = f"/me/notification-settings/{made['id']}"

    answer = await world.patch(path, who, {"threshold": 60, "quiet_from": None, "quiet_to": None})

    assert answer.json()["threshold"] == 60
    assert answer.json()["quiet_from"] is None
    assert answer.json()["channels"] == ["inbox", "push"]
    assert (await world.delete(path, who)).status_code == 204
    assert await world.read("/me/notification-settings", who) == []


async def test_settings_that_could_never_be_told_are_refused(world: World) -> None:
    business, who = await world.business(), await world.user()
    body = {"kind": "occupancy_above", "hive_id": business.hive, "threshold": 80, "unit": "percent"}
    wrong: list[dict[str, object]] = [
        {"threshold": None},
        {"unit": None},
        {"hive_id": None},
        {"kind": "deal_new"},
        {"quiet_from": "22:00"},
        {"quiet_from": "22:00Z", "quiet_to": "07:00Z"},
        {"channels": []},
        {"channels": ["pigeon"]},
        {"threshold": 5000},
    ]

    for change in wrong:
        answer = await world.call("POST", "/me/notification-settings", who, json={**body, **change})
        assert answer.status_code == 422, change


async def test_a_plan_includes_so_many_alerts(world: World) -> None:
    business, who = await world.business(), await world.user()
    for _ in range(3):
        await threshold(world, who, business.hive)

    answer = await world.call(
        "POST", "/me/notification-settings", who, json={"kind": "favourite_deal"}
    )
    assert answer.status_code == 402
    assert answer.json()["plans"] == ["basic", "premium"]

    world.subscribe("basic", user=await world.number(who))
    await threshold(world, who, business.hive)


async def test_one_asks_to_be_told_of_new_deals_of_their_end_and_of_favourites(
    world: World,
) -> None:
    business, who = await world.business(), await world.user()
    wanted: list[dict[str, object]] = [
        {"kind": "deal_new", "hive_id": business.hive},
        {"kind": "deal_expiring", "hive_id": business.hive},
        {"kind": "favourite_deal"},
    ]
    for body in wanted:
        await world.make("/me/notification-settings", who, body)

    kept = await world.read("/me/notification-settings", who)
    assert [(each["kind"], each["hive_id"]) for each in kept] == [
        ("deal_new", business.hive),
        ("deal_expiring", business.hive),
        ("favourite_deal", None),
    ]


async def test_settings_of_others_are_not_there(world: World) -> None:
    business, who = await world.business(), await world.user()
    made = await threshold(world, who, business.hive)
    path, stranger = f"/me/notification-settings/{made['id']}", await world.user()

    assert (await world.get(path, stranger)).status_code == 404
    assert (await world.patch(path, stranger, {"enabled": False})).status_code == 404
    assert (await world.delete(path, stranger)).status_code == 404


async def test_whoever_listens_hears_of_a_change_at_once(world: World) -> None:
    business, who = await world.business(), await world.user()
    async with await psycopg.AsyncConnection.connect(
        world.database.url, autocommit=True
    ) as listening:
        await listening.execute("LISTEN notification_def")

        made = await threshold(world, who, business.hive)

        async for heard in listening.notifies(timeout=60, stop_after=1):
            assert heard.payload == str(made["id"])
            break
        else:
            pytest.fail("nobody said a word")
