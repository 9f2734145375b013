"""Hives over HTTP: found, looked at, edited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from penstock.core.errors import NotFound
from tests.hives.app.world import HOURS, NOON, World, deal, png

BERLIN = {"zip": "10178", "city": "Berlin", "country": "DE", "lat": 52.5219, "lon": 13.4132}
POTSDAM = {"zip": "14467", "city": "Potsdam", "country": "DE", "lat": 52.3989, "lon": 13.0657}


async def names(world: World, query: str) -> list[str]:
    found = await world.read(f"/hives?{query}")
    return [hive["name"] for hive in found["items"]]


@pytest.fixture
async def places(world: World) -> AsyncIterator[World]:
    """Three hives that nobody else's search finds: their names end in this test's own word."""
    business = await world.business(name="Amber Café", address=BERLIN, opening_hours=HOURS)
    evenings = {day: [["18:00", "23:00"]] for day in HOURS}
    for name, kind, where, hours in (
        ("Blue Bar 100%", "bar", POTSDAM, evenings),
        ("Comb_Store", "store", None, {}),  # whose hours nobody knows
    ):
        given = {"name": name, "type": kind, "address": where, "opening_hours": hours}
        await world.hive(business.admin, business.account, **given)
    yield world
    world.rows("UPDATE hive SET public = false WHERE account_id = %s", business.account)


async def test_hives_are_listed_by_name_with_type_capacity_and_last_update(places: World) -> None:
    found = (await places.read("/hives"))["items"]

    assert [hive["name"] for hive in found] == ["Amber Café", "Blue Bar 100%", "Comb_Store"]
    assert found[0]["type"] == "bar"
    assert found[0]["capacity"] is None
    assert found[0]["updated_at"] is not None
    assert found[0]["distance_km"] is None  # from nowhere in particular


async def test_hives_are_found_by_name_type_zip_opening_hours_and_distance(places: World) -> None:
    for query, expected in (
        ("name=bar", ["Blue Bar 100%"]),
        ("name=BLUE 100%25", ["Blue Bar 100%"]),
        ("name=b_r", []),  # signs of LIKE mean themselves
        ("name=comb_", ["Comb_Store"]),
        ("type=store", ["Comb_Store"]),
        ("zip=10178", ["Amber Café"]),
        ("zip=14", ["Blue Bar 100%"]),
        ("open_now=true", ["Amber Café", "Comb_Store"]),
        ("open_now=false", ["Blue Bar 100%"]),
        ("near=52.52,13.41&within_km=5", ["Amber Café"]),
        ("near=52.39,13.06", ["Blue Bar 100%", "Amber Café", "Comb_Store"]),
    ):
        assert (query, await names(places, query)) == (query, expected)


async def test_distances_are_told(places: World) -> None:
    [hive] = (await places.read("/hives?near=52.3989,13.0657&within_km=30&type=bar"))["items"][1:]

    assert 26 < hive["distance_km"] < 28


async def test_a_distance_needs_somewhere_to_be_measured_from(world: World) -> None:
    answer = await world.get("/hives?within_km=5")

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "near"


@pytest.mark.parametrize("sort", ["name", "quiet", "distance&near=50,10"])
async def test_pages_have_every_hive_once(world: World, sort: str) -> None:
    business = await world.business()
    word = f"paged{business.hive}"
    made = [
        await world.hive(business.admin, business.account, name=f"{word} {n % 3}") for n in range(7)
    ]
    for n, hive in enumerate(made[:4]):
        world.status(hive, n, percent=float(n % 2))
    seen: list[int] = []
    cursor = ""
    while True:
        page = await world.read(f"/hives?name={word}&limit=3&sort={sort}{cursor}")
        seen += [hive["id"] for hive in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"

    assert sorted(seen) == made


async def test_a_hive_shows_its_pictures_its_deals_and_its_hours(world: World) -> None:
    business = await world.business(opening_hours=HOURS)
    path = f"/hives/{business.hive}"
    offered = await world.make(f"{path}/deals", business.member, deal())
    await world.make(f"{path}/deals", business.member, deal(status="draft"))
    shown = await world.call(
        "POST", f"{path}/images", business.member, files={"file": ("front.png", png())}
    )

    hive = await world.read(path)

    assert hive["open_now"] is True
    assert hive["changes_at"] == "2026-03-02T17:00:00Z"
    assert hive["opening_hours"]["mon"] == [["09:00", "18:00"]]
    assert [each["id"] for each in hive["deals"]] == [offered["id"]]
    assert [each["url"] for each in hive["images"]] == [shown.json()["url"]]


async def test_live_occupancy_is_compared_with_what_is_usual(world: World) -> None:
    business = await world.business(capacity=100)
    world.status(business.hive, 20, percent=20.0, trend="rising")
    world.rows("INSERT INTO typical_week VALUES (%s, 0, 12, 30, 60, 6, %s)", business.hive, NOON)

    found = await world.read(f"/hives/{business.hive}/occupancy")

    assert (found["occupancy"], found["level"], found["trend"]) == (20, "quiet", "rising")
    assert found["usual"] == {"occupancy": 60.0, "weeks": 6, "relation": "quieter"}
    assert found["as_of"] == "2026-03-02T11:00:00Z"


async def test_a_stale_hive_reads_stale_and_not_empty(world: World) -> None:
    business = await world.business(capacity=100)
    world.status(business.hive, 17, percent=17.0, level=None, quality="stale")

    found = await world.read(f"/hives/{business.hive}/occupancy")

    assert (found["occupancy"], found["quality"]) == (17, "stale")
    assert found["level"] is None
    assert found["usual"] is None


async def test_of_a_hive_nothing_was_counted_at_there_is_nothing_yet(world: World) -> None:
    business = await world.business()

    answer = await world.get(f"/hives/{business.hive}/occupancy")

    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0


async def test_a_typical_week_is_told_by_local_hours(world: World) -> None:
    business = await world.business()
    world.rows("INSERT INTO typical_week VALUES (%s, 4, 20, 9, 31.5, 8, %s)", business.hive, NOON)

    week = await world.read(f"/hives/{business.hive}/typical-week")

    assert week["hours"] == [
        {"weekday": 4, "hour": 20, "entries": 9.0, "occupancy": 31.5, "weeks": 8}
    ]


async def test_a_forecast_is_the_last_one_made_of_the_local_day(world: World) -> None:
    business = await world.business()
    midnight = NOON - timedelta(hours=12)  # in Berlin
    for made, expected in ((NOON - timedelta(days=1), 5.0), (NOON, 7.0)):
        world.rows(
            "INSERT INTO forecast VALUES (%s, %s, 'm', %s, %s, 20)",
            *(business.hive, midnight, made, expected),
        )
    world.rows(
        "INSERT INTO forecast_peak VALUES (%s, '2026-03-02', 'm', %s, %s, %s)",
        *(business.hive, NOON, NOON, NOON + timedelta(hours=2)),
    )

    today = await world.read(f"/hives/{business.hive}/forecast")
    tomorrow = await world.read(f"/hives/{business.hive}/forecast?day=2026-03-03", business.admin)

    assert today["hours"] == [{"slot": "2026-03-01T23:00:00Z", "p50": 7.0, "p90": 20.0}]
    assert today["peak"]["starts_at"] == "2026-03-02T11:00:00Z"
    assert tomorrow["hours"] == []


async def test_today_is_what_was_counted_since_local_midnight(world: World) -> None:
    hive = (await world.business()).hive  # in Berlin, an hour ahead
    midnight = NOON.replace(hour=23) - timedelta(days=1)
    for hours, entries in ((-1, 9), (0, 2), (10, 31)):
        world.rows(
            "INSERT INTO occupancy_hour (hive_id, slot, entries, peak) VALUES (%s, %s, %s, %s)",
            *(hive, midnight + timedelta(hours=hours), entries, 2 * entries),
        )

    day = await world.read(f"/hives/{hive}/today")

    assert day["day"] == "2026-03-02"
    assert [(each["entries"], each["peak"]) for each in day["hours"]] == [(2, 4), (31, 62)]


async def test_a_map_has_what_lies_within_a_box(places: World) -> None:
    found = await places.read("/map?bbox=13.3,52.4,13.6,52.6")

    assert [each["properties"]["name"] for each in found["features"]] == ["Amber Café"]
    assert found["features"][0]["geometry"]["coordinates"] == [13.4132, 52.5219]


async def test_navigation_tells_how_far_and_in_which_direction(world: World) -> None:
    business = await world.business(address=BERLIN)

    way = await world.read(f"/hives/{business.hive}/navigation?from=52.3989,13.0657")

    assert way["geo_uri"] == "geo:52.521900,13.413200"
    assert 26 < way["distance_km"] < 28
    assert 55 < way["bearing"] < 65


async def test_a_business_edits_what_it_names_and_the_rest_stays(world: World) -> None:
    business = await world.business(capacity=100, address=BERLIN)

    answer = await world.patch(
        f"/hives/{business.hive}", business.admin, {"capacity": None, "address": {"city": "Bonn"}}
    )

    assert answer.status_code == 200, answer.text
    assert answer.json()["capacity"] is None
    assert answer.json()["name"] == "The Comb"
    assert answer.json()["address"] == {**BERLIN, "street": "", "city": "Bonn"}


async def test_a_change_based_on_an_older_version_is_refused(world: World) -> None:
    business = await world.business()
    path = f"/hives/{business.hive}"
    seen = (await world.get(f"{path}/settings", business.admin)).headers["etag"]
    assert (await world.patch(path, business.admin, {"name": "One"}, seen)).status_code == 200

    late = await world.patch(path, business.admin, {"name": "Two"}, seen)

    assert late.status_code == 412
    assert (await world.read(f"{path}/settings", business.admin))["name"] == "One"


async def test_what_cannot_be_meant_is_refused_by_field(world: World) -> None:
    business = await world.business()
    wrong: list[object] = [
        {"opening_hours": {"mon": [["9", "17"]]}},
        {"opening_hours": {"mon": [["24:00", "17:00"]]}},
        {"opening_hours": {"someday": []}},
        {"time_zone": "Mars/Olympus"},
        {"time_zone": "../../etc/passwd"},
        {"type": "no_such_type"},
        {"capacity": 0},
        {"name": None},
        {"name": "nul \0"},
        {"address": {"lat": 10}},
        {"colour": "red"},
    ]

    for body in wrong:
        answer = await world.patch(f"/hives/{business.hive}", business.admin, body)
        assert answer.status_code == 422, body
        assert answer.headers["content-type"] == "application/problem+json"


async def test_hives_of_others_are_not_there(world: World) -> None:
    business, stranger = await world.business(), await world.business()

    for answer in (
        await world.get(f"/hives/{business.hive}/settings", stranger.admin),
        await world.patch(f"/hives/{business.hive}", stranger.admin, {"name": "Mine"}),
        await world.delete(f"/hives/{business.hive}", stranger.admin),
    ):
        assert answer.status_code == 404


async def test_a_member_may_look_at_settings_and_not_change_them(world: World) -> None:
    business = await world.business()

    assert (await world.get(f"/hives/{business.hive}/settings", business.member)).status_code == 200
    answer = await world.patch(f"/hives/{business.hive}", business.member, {"name": "Mine"})
    assert answer.status_code == 403


async def test_a_plan_includes_so_many_hives(world: World) -> None:
    business = await world.business(plan=None)
    body = {"name": "Another", "type": "bar", "time_zone": "UTC"}

    answer = await world.call(
        "POST", f"/accounts/{business.account}/hives", business.admin, json=body
    )

    assert answer.status_code == 402
    assert "includes 1 hives: choose the plan business" in answer.json()["detail"]


async def test_a_closed_hive_is_seen_by_its_business_only(world: World) -> None:
    business = await world.business()
    assert (await world.delete(f"/hives/{business.hive}", business.admin)).status_code == 204

    assert (await world.get(f"/hives/{business.hive}")).status_code == 404
    [own] = (await world.read(f"/accounts/{business.account}/hives", business.admin))["items"]
    assert own["status"] == "closed"


async def test_figures_of_a_hidden_hive_are_for_those_who_look_after_it(world: World) -> None:
    business, rival = await world.business(public=False), await world.business()
    world.status(business.hive, 20)
    services = world.resources.services
    member = await services.users.caller(business.member)

    assert (await services.occupancy.live(business.hive, member)).occupancy == 20
    assert (await services.occupancy.week(business.hive, member)).hours == ()
    assert (await services.occupancy.forecast(business.hive, None, member)).hours == ()
    assert (await world.get(f"/hives/{business.hive}/occupancy")).status_code == 404
    with pytest.raises(NotFound):
        await services.occupancy.live(business.hive, await services.users.caller(rival.admin))


async def test_heads_that_were_counted_are_kept_for_the_pipeline(world: World) -> None:
    business = await world.business()

    made = await world.make(f"/hives/{business.hive}/counts", business.member, {"counted": 42})

    assert made["counted"] == 42
    rows = world.rows("SELECT counted, at FROM manual_count WHERE hive_id = %s", business.hive)
    assert rows == [{"counted": 42, "at": NOON}]
    assert await world.read(f"/hives/{business.hive}/counts", business.member) == [made]


async def test_networks_of_a_hive_are_kept_without_their_secrets(world: World) -> None:
    business = await world.business()
    path = f"/hives/{business.hive}/networks"
    body = {"kind": "wifi", "ssid": "comb", "secret_ref": "vault:comb"}

    made = await world.make(path, business.admin, body)

    assert await world.read(path, business.member) == [made]
    assert (await world.delete(f"{path}/{made['id']}", business.admin)).status_code == 204
    assert await world.read(path, business.member) == []


async def test_operators_add_types(world: World) -> None:
    operator = await world.user(role="operator")

    await world.make("/hive-types", operator, {"code": "museum", "name": "Museum"})

    assert "museum" in [each["code"] for each in await world.read("/hive-types")]
