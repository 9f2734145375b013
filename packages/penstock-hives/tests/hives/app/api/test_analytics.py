"""Figures over HTTP: series, KPIs, comparisons, metrics, popularity, insights."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from tests.hives.app.world import NOON, Business, World


@pytest.fixture
async def business(world: World) -> Business:
    return await world.business()


def hour(world: World, hive: int, offset: int, entries: int, mean: float = 1.0) -> None:
    world.rows(
        "INSERT INTO occupancy_hour (hive_id, slot, entries, exits, peak, mean) "
        "VALUES (%s, %s, %s, 0, %s, %s)",
        *(hive, NOON + timedelta(hours=offset), entries, entries, mean),
    )


def day(world: World, hive: int, on: str, visits: int, mean: float) -> None:
    world.rows(
        "INSERT INTO kpi_day (hive_id, day, visits, mean_occupancy, peak, peak_hour, coverage) "
        "VALUES (%s, %s, %s, %s, 50, 13, 1)",
        *(hive, on, visits, mean),
    )


@pytest.mark.parametrize(
    ("bucket", "expected"),
    [
        ("hour", {"2026-03-02T12:00": 3, "2026-03-02T13:00": 4, "2026-03-03T12:00": 5}),
        ("day", {"2026-03-02": 7, "2026-03-03": 5}),
        ("week", {"2026-03-02": 12}),
        ("weekday", {"0": 7, "1": 5}),
        ("hour_of_day", {"12": 8, "13": 4}),
        ("total", {"total": 12}),
    ],
)
async def test_series_are_cut_by_the_hives_own_clock(
    world: World, business: Business, bucket: str, expected: dict[str, int]
) -> None:
    for offset, entries in ((0, 3), (1, 4), (24, 5)):
        hour(world, business.hive, offset, entries)

    found = await world.read(
        f"/analytics/occupancy?hive={business.hive}&bucket={bucket}"
        "&from=2026-03-01T00:00:00Z&to=2026-03-08T00:00:00Z",
        business.member,
    )

    assert {each["bucket"]: each["entries"] for each in found} == expected


async def test_a_window_too_wide_is_refused(world: World, business: Business) -> None:
    answer = await world.get(
        f"/analytics/occupancy?hive={business.hive}"
        "&from=2020-01-01T00:00:00Z&to=2026-03-08T00:00:00Z",
        business.member,
    )

    assert answer.status_code == 422


async def test_kpis_are_told_by_day(world: World, business: Business) -> None:
    day(world, business.hive, "2026-03-01", 120, 14.5)

    [kpi] = await world.read(
        f"/analytics/kpis?hive={business.hive}&from=2026-03-01&to=2026-03-02", business.member
    )

    assert (kpi["visits"], kpi["mean_occupancy"], kpi["peak_hour"]) == (120, 14.5, 13)


async def test_hives_are_compared_over_the_same_days(world: World, business: Business) -> None:
    other = await world.hive(business.admin, business.account, name="Other")
    day(world, business.hive, "2026-03-01", 100, 10)
    day(world, business.hive, "2026-02-28", 50, 20)
    day(world, other, "2026-03-01", 30, 5)

    found = await world.read(
        f"/analytics/compare/hives?hive={business.hive}&hive={other}&from=2026-02-01&to=2026-03-02",
        business.member,
    )

    assert [(each["visits"], each["days"]) for each in found] == [(150, 2), (30, 1)]


async def test_periods_before_and_after_a_change_are_compared(
    world: World, business: Business
) -> None:
    day(world, business.hive, "2026-01-10", 100, 10)
    day(world, business.hive, "2026-02-10", 150, 9)

    found = await world.read(
        f"/analytics/compare/periods?hive={business.hive}&before_from=2026-01-01"
        "&before_to=2026-02-01&after_from=2026-02-01&after_to=2026-03-01",
        business.member,
    )

    assert (found["visits_change"], found["mean_change"]) == (0.5, -0.1)


async def test_a_hive_is_compared_with_others_of_its_type_by_the_last_night(
    world: World, business: Business
) -> None:
    for on, rank in (("2026-02-28", 4), ("2026-03-01", 3)):
        world.rows(
            "INSERT INTO hive_comparison VALUES (%s, %s, 28, 120, 100, 15, 10, 11, 90, %s, %s)",
            *(business.hive, on, rank, NOON),
        )

    path = f"/analytics/compare/peers?hive={business.hive}"
    [found] = await world.read(path, business.member)

    assert (found["visits_now"], found["visits_before"]) == (120.0, 100.0)
    assert (found["rank"], found["peers"], found["day"]) == (3, 11, "2026-03-01")
    assert await world.read(f"{path}&window_days=7", business.member) == []


async def test_figures_of_others_are_not_there(world: World, business: Business) -> None:
    rival = await world.business()
    path = f"/analytics/kpis?hive={business.hive}&from=2026-03-01&to=2026-03-02"

    assert (await world.get(path, rival.admin)).status_code == 404
    assert (await world.get(path, await world.user())).status_code == 403
    assert (await world.get(path)).status_code == 401


async def test_demographics_show_no_group_of_fewer_than_ten(
    world: World, business: Business
) -> None:
    for n in range(12):
        who = await world.user()
        await world.patch("/me", who, {"age_band": "25_34" if n < 10 else "65_over"})
        await world.put(f"/me/favourites/{business.hive}", who)

    found = await world.read(f"/hives/{business.hive}/demographics", business.member)

    assert found["age_bands"] == [{"group": "25_34", "people": 10}]
    assert found["genders"] == []


async def test_popular_hives_are_those_of_the_last_night(world: World, business: Business) -> None:
    for on, score in ((date(2026, 3, 1), 1.0), (date(2026, 3, 2), 9.0)):
        world.rows(
            "INSERT INTO hive_popularity VALUES (%s, 7, %s, 5, 4, 3, 2, %s, 1, %s)",
            *(on, business.hive, score, NOON),
        )

    [found] = await world.read("/popular?window_days=7")

    assert (found["hive_id"], found["score"], found["views"]) == (business.hive, 9.0, 5)


async def test_most_searched_hives_are_told_apart_from_most_popular_ones(
    world: World, business: Business
) -> None:
    sought = await world.hive(business.admin, business.account, name="Sought")
    for hive, searches, rank in ((business.hive, 1, 1), (sought, 70, 2)):
        world.rows(
            "INSERT INTO hive_popularity VALUES ('2026-03-03', 30, %s, 5, %s, 3, 2, 1, %s, %s)",
            *(hive, searches, rank, NOON),
        )

    popular = await world.read("/popular?window_days=30")
    searched = await world.read("/popular?window_days=30&by=searches")

    assert [each["hive_id"] for each in popular] == [business.hive, sought]
    assert [each["hive_id"] for each in searched] == [sought, business.hive]


async def test_shifts_of_preference_are_told_to_businesses(
    world: World, business: Business
) -> None:
    world.rows("INSERT INTO preference_shift VALUES ('2026-03-01', 30, 'bar', 0.2, 0.3, %s)", NOON)

    [found] = await world.read("/analytics/shifts", business.member)

    assert (found["share_before"], found["share_now"]) == (0.2, 0.3)


async def test_insights_are_told_the_weightiest_first(world: World, business: Business) -> None:
    for title, weight in (("small", 0.1), ("large", 0.9)):
        world.rows(
            "INSERT INTO insight (account_id, hive_id, kind, day, title, body, weight) "
            "VALUES (%s, %s, %s, '2026-03-01', %s, 'words', %s)",
            *(business.account, business.hive, title, title, weight),
        )

    found = await world.read(f"/accounts/{business.account}/insights", business.member)

    assert [each["title"] for each in found] == ["large", "small"]


async def test_a_metric_is_defined_changed_and_removed(world: World, business: Business) -> None:
    path = f"/accounts/{business.account}/metrics"
    body = {"name": "Per peak", "formula": "visits / peak", "goal": 3}
    metric = await world.make(path, business.admin, body)
    own = f"/metrics/{metric['id']}"

    answer = await world.patch(own, business.admin, {"goal": 5, "filter": {"weekdays": [5, 6]}})

    assert answer.json()["goal"] == 5
    assert answer.json()["filter"] == {"weekdays": [5, 6]}
    assert await world.read(path, business.member) == [answer.json()]
    assert (await world.delete(own, business.admin)).status_code == 204
    assert (await world.get(own, business.admin)).status_code == 404


@pytest.mark.parametrize("field", ["name", "formula", "filter", "window_days"])
async def test_a_metric_cannot_do_without(world: World, business: Business, field: str) -> None:
    body = {"name": "m", "formula": "visits"}
    metric = await world.make(f"/accounts/{business.account}/metrics", business.admin, body)

    answer = await world.patch(f"/metrics/{metric['id']}", business.admin, {field: None})

    assert answer.status_code == 422


async def test_values_of_a_metric_are_the_nights(world: World, business: Business) -> None:
    body = {"name": "m", "formula": "visits"}
    metric = await world.make(f"/accounts/{business.account}/metrics", business.admin, body)
    world.rows(
        "INSERT INTO custom_metric_value VALUES (%s, %s, '2026-03-01', 4.5, true, %s)",
        *(metric["id"], business.hive, NOON),
    )

    [found] = await world.read(
        f"/metrics/{metric['id']}/values?from=2026-03-01&to=2026-03-02", business.member
    )

    assert (found["value"], found["goal_met"]) == (4.5, True)


async def test_formulas_that_cannot_be_meant_are_refused(world: World, business: Business) -> None:
    path = f"/accounts/{business.account}/metrics"

    for formula in ("", "visits +", "__import__('os')", "salary", "visits ** 9 ** 9"):
        body = {"name": "m", "formula": formula}
        answer = await world.call("POST", path, business.admin, json=body)
        assert answer.status_code == 422, formula


async def test_metrics_are_part_of_a_plan(world: World) -> None:
    business = await world.business(plan=None)
    body = {"name": "m", "formula": "visits"}

    answer = await world.call(
        "POST", f"/accounts/{business.account}/metrics", business.admin, json=body
    )

    assert answer.status_code == 402
