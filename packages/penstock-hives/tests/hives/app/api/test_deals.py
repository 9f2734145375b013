"""Deals over HTTP: found, used, made."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.hives.app.world import NOON, Business, World, deal


@pytest.fixture
async def business(world: World) -> Business:
    return await world.business()


async def made(world: World, business: Business, **values: object) -> int:
    body = deal(**values)
    path = f"/hives/{business.hive}/deals"
    return int((await world.make(path, business.member, body))["id"])


async def test_active_deals_are_listed_the_first_to_end_first(
    world: World, business: Business
) -> None:
    later = await made(world, business)
    sooner = await made(world, business, expires_at=(NOON + timedelta(hours=1)).isoformat())
    await made(world, business, status="draft")
    await made(world, business, starts_at=(NOON + timedelta(hours=1)).isoformat())

    found = (await world.read(f"/hives/{business.hive}/deals"))["items"]

    assert [each["id"] for each in found] == [sooner, later]
    assert found[0]["hive_name"] == "The Comb"


async def test_deals_about_to_end_are_told(world: World, business: Business) -> None:
    soon = await made(world, business, expires_at=(NOON + timedelta(hours=2)).isoformat())
    later = await made(world, business)

    found = (await world.read("/deals?expiring_within_h=24&limit=100"))["items"]

    ids = [each["id"] for each in found]
    assert soon in ids
    assert later not in ids


async def test_daily_deals_are_for_a_day(world: World, business: Business) -> None:
    body = deal(kind="daily")
    answer = await world.call("POST", f"/hives/{business.hive}/deals", business.member, json=body)
    assert answer.status_code == 422

    today = await made(
        world, business, kind="daily", expires_at=(NOON + timedelta(hours=1)).isoformat()
    )

    assert today in [each["id"] for each in (await world.read("/deals/daily"))["items"]]


async def test_pages_of_deals_have_each_once(world: World, business: Business) -> None:
    ids = [await made(world, business) for _ in range(5)]  # all end at the same moment
    seen: list[int] = []
    cursor = ""
    while True:
        page = await world.read(f"/hives/{business.hive}/deals?limit=2{cursor}")
        seen += [each["id"] for each in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"

    assert seen == ids


async def test_a_deal_is_edited_and_withdrawn_by_its_business(
    world: World, business: Business
) -> None:
    number = await made(world, business)
    path = f"/deals/{number}"
    seen = (await world.get(f"{path}/settings", business.member)).headers["etag"]

    answer = await world.patch(path, business.member, {"terms": "Until six."}, seen)
    assert answer.json()["terms"] == "Until six."
    assert (await world.patch(path, business.member, {"terms": "No"}, seen)).status_code == 412
    assert (await world.delete(path, business.member)).status_code == 204

    assert (await world.get(path)).status_code == 404
    own = (await world.read(f"/hives/{business.hive}/all-deals", business.member))["items"]
    assert own[0]["status"] == "withdrawn"


async def test_deals_of_others_cannot_be_touched(world: World, business: Business) -> None:
    number, rival = await made(world, business), await world.business()

    assert (await world.patch(f"/deals/{number}", rival.admin, {"title": "x"})).status_code == 404
    assert (await world.delete(f"/deals/{number}", await world.user())).status_code == 403
    answer = await world.call("POST", f"/hives/{business.hive}/deals", rival.admin, json=deal())
    assert answer.status_code == 404


async def test_a_deal_is_redeemed_once_by_each(world: World, business: Business) -> None:
    number, who = await made(world, business), await world.user()
    path = f"/deals/{number}/redeem"

    assert (await world.call("POST", path, who)).status_code == 201
    assert (await world.call("POST", path, who)).status_code == 409
    assert (await world.read(f"/deals/{number}"))["redemptions"] == 1


async def test_a_deal_is_not_redeemed_more_often_than_it_allows(
    world: World, business: Business
) -> None:
    number = await made(world, business, max_redemptions=3)
    callers = [await world.user() for _ in range(6)]

    answers = await asyncio.gather(
        *(world.call("POST", f"/deals/{number}/redeem", who) for who in callers)
    )

    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [409] * 3
    assert (await world.get(f"/deals/{number}")).status_code == 404  # nothing is left of it


async def test_the_business_verifies_the_code_of_a_redeemed_deal_once(
    world: World, business: Business
) -> None:
    number, who = await made(world, business), await world.user()
    code = (await world.make(f"/deals/{number}/redeem", who))["code"]
    assert [each["code"] for each in await world.read("/me/redemptions", who)] == [code]
    stranger = (await world.business()).admin
    path = f"/redemptions/{code[:4].lower()}-{code[4:]}/verify"

    assert (await world.call("POST", path, who)).status_code == 403
    assert (await world.call("POST", path, stranger)).status_code == 404
    assert (await world.call("POST", "/redemptions/ZZZZZZZZ/verify", stranger)).status_code == 404
    verified = await world.make(path, business.member)
    assert (verified["deal_id"], verified["verified_at"]) == (number, "2026-03-02T11:00:00Z")
    again = await world.call("POST", path, business.member)
    assert again.status_code == 409
    assert "was used on 2026-03-02 12:00" in again.json()["detail"]


async def test_a_code_is_not_valid_after_the_end_of_its_deal(
    world: World, business: Business
) -> None:
    number, who = await made(world, business), await world.user()
    code = (await world.make(f"/deals/{number}/redeem", who))["code"]
    world.clock.now += timedelta(days=3)

    refused = await world.call("POST", f"/redemptions/{code}/verify", business.member)

    assert refused.status_code == 409
    assert "has ended" in refused.json()["detail"]


async def test_deals_of_favourite_hives_are_found(world: World, business: Business) -> None:
    number, who = await made(world, business), await world.user()
    assert (await world.read("/me/deals/favourites", who))["items"] == []

    await world.put(f"/me/favourites/{business.hive}", who)

    found = (await world.read("/me/deals/favourites", who))["items"]
    assert [each["id"] for each in found] == [number]


async def test_deals_chosen_by_the_nights_come_first_and_until_then_what_fits(
    world: World, business: Business
) -> None:
    liked, other, who = await made(world, business), await made(world, business), await world.user()
    preference = {"kinds": ["promotion"], "hive_types": ["bar"]}
    assert (await world.put("/me/deal-preferences", who, preference)).status_code == 200
    await world.put(f"/me/favourites/{business.hive}", who)
    world.subscribe("premium", user=await world.number(who))

    fitting = await world.read("/me/deals/recommended", who)
    assert fitting[0]["reason"] == "at a favourite hive"

    world.rows(
        "INSERT INTO deal_recommendation VALUES (%s, %s, 0.9, 'like what you redeemed', %s)",
        *(await world.number(who), other, NOON),
    )
    chosen = await world.read("/me/deals/recommended", who)
    assert [each["deal"]["id"] for each in chosen] == [other]
    assert liked != other


async def test_preferences_are_kept_as_given(world: World) -> None:
    who = await world.user()
    wanted = {
        "kinds": ["daily"],
        "hive_types": ["bar"],
        "within_km": 5.0,
        "lat": 52.5,
        "lon": 13.4,
        "expiry_hours": [12],
    }

    await world.put("/me/deal-preferences", who, wanted)

    assert await world.read("/me/deal-preferences", who) == wanted
    answer = await world.put("/me/deal-preferences", who, {"within_km": 5})
    assert answer.status_code == 422


async def test_the_effect_of_a_deal_is_what_people_did_and_what_the_nights_found(
    world: World, business: Business
) -> None:
    number, who = await made(world, business), await world.user()
    await world.make(f"/deals/{number}/events", None, {"action": "shown"})
    await world.make(f"/deals/{number}/events", who, {"action": "opened"})
    await world.make(f"/deals/{number}/redeem", who)

    effect = await world.read(f"/deals/{number}/effect", business.member)

    assert (effect["shown"], effect["opened"], effect["redeemed"]) == (1, 1, 1)
    assert (effect["days"], effect["lift"]) == (0, None)  # no night has seen it yet

    world.rows(
        "INSERT INTO deal_effect VALUES (%s, '2026-03-01', 1, 175, 140, 0.25, 1, 1, %s)",
        *(number, NOON),
    )
    effect = await world.read(f"/deals/{number}/effect", business.member)
    assert (effect["visits_a_day"], effect["expected_a_day"]) == (175.0, 140.0)
    assert (effect["lift"], effect["day"]) == (0.25, "2026-03-01")
