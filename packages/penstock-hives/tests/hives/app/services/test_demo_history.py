"""The demonstration's history, and what the API, the dashboard and its file say about it."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from penstock_hives.analytics.hive_days import _DAYS
from penstock_hives.analytics.models import SeriesBucket
from penstock_hives.analytics.page import read_overview
from penstock_hives.demo_data import create_demo_data
from penstock_hives.demo_history import create_demo_history, simulate_history
from penstock_hives.people.permissions import Caller, UserRole
from penstock_hives.places.page import export_csv
from penstock_hives.resources import Resources, open_resources
from penstock_hives.sensors import catalogue_writer
from penstock_hives.sensors.fleet import Fleet
from penstock_hives.sensors.simulation import DemoFleet, DemoStateFile
from penstock_hives.settings import HivesSettings
from penstock_hives.web.context import DashboardContext
from penstock_store import Database
from penstock_store.dashboard.pages import ANONYMOUS, PageRequest, SectionContext
from tests.hives.app.world import Names

#: The clocks of London have gone back in between.
START = datetime(2026, 11, 2, 9, 35, tzinfo=UTC)
WEEKS = timedelta(weeks=3)
OPERATOR = Caller(None, None, UserRole.ADMIN, "business")


@pytest.fixture(scope="module")
def fleet(database: Database) -> Fleet:
    fleet = Fleet(start=START, hives=4)
    catalogue_writer.write_catalogue(database, fleet.hives, fleet.sensors)
    assert create_demo_history(database, fleet, 0, WEEKS) is not None
    create_demo_data(database, START, [hive.id for hive in fleet.hives])
    return fleet


@pytest.fixture
async def resources(database: Database) -> AsyncIterator[Resources]:
    settings = HivesSettings(database=database.url, pool_wait=60.0)
    async with open_resources(settings, Names(), clock=lambda: START) as resources:
        yield resources


def local_days(database: Database, fleet: Fleet) -> dict[tuple[int, date], int]:
    """Visits by hive and local day, from the slots."""
    zones = {hive.id: ZoneInfo(hive.time_zone) for hive in fleet.hives}
    found: dict[tuple[int, date], int] = defaultdict(int)
    for row in database.rows("SELECT hive_id, slot, entries FROM occupancy_5min"):
        found[row["hive_id"], row["slot"].astimezone(zones[row["hive_id"]]).date()] += row[
            "entries"
        ]
    return found


async def test_all_say_the_same_of_a_day_in_the_place_s_time_zone(
    database: Database, fleet: Fleet, resources: Resources, tmp_path: Path
) -> None:
    counted = local_days(database, fleet)
    analytics = resources.services.analytics
    first, last = START.date() - WEEKS, START.date() + timedelta(days=1)
    hives = [hive.id for hive in fleet.hives]
    kpis = {
        (kpi.hive_id, kpi.day): kpi.visits
        for kpi in await analytics.kpis(OPERATOR, hives, first, last)
    }
    series = {
        (each.hive_id, date.fromisoformat(each.bucket)): each.entries
        for each in await analytics.series(
            OPERATOR, hives, START - 2 * WEEKS, START, SeriesBucket.DAY
        )
    }
    stored = {
        (row["hive_id"], row["day"]): row["entries"]
        for row in database.rows("SELECT hive_id, day, entries FROM occupancy_day")
    }
    assert len(kpis) > 4 * 18
    assert {key: counted[key] for key in kpis} == kpis
    assert series == stored == {key: counted[key] for key in stored}

    context = DashboardContext(SectionContext(tmp_path, "amqp://nowhere"))
    context._resources = resources
    for hive in fleet.hives:
        today = START.astimezone(ZoneInfo(hive.time_zone)).date()
        settings = await resources.services.hives.settings(OPERATOR, hive.id)
        shown = await read_overview(analytics, OPERATOR, [settings], START)
        week = [counted[hive.id, today - timedelta(days=back)] for back in range(1, 8)]
        assert (shown.today, shown.week) == (counted[hive.id, today], sum(week))
        [period] = await analytics.compare_hives(
            OPERATOR, [hive.id], today - timedelta(days=7), today
        )
        assert period.visits == sum(week)

        day = today - timedelta(days=8)
        query = {"from": str(day), "to": str(day + timedelta(days=1))}
        visit = PageRequest(ANONYMOUS, {"id": str(hive.id)}, query)
        answer = await export_csv(context)(visit)
        rows = list(csv.DictReader(StringIO(bytes(answer.body).decode())))
        assert sum(int(row["entries"]) for row in rows) == counted[hive.id, day]


def test_the_history_is_whole_and_written_once(database: Database, fleet: Fleet) -> None:
    inside = simulate_history(fleet.hives, 0, START, WEEKS).inside.tolist()
    levels = database.rows("SELECT raw_occupancy FROM hive_status ORDER BY hive_id")
    assert [row["raw_occupancy"] for row in levels] == inside
    assert create_demo_history(database, fleet, 0, WEEKS) is None
    [filled] = database.rows("""
        SELECT (SELECT count(DISTINCT hive_id) FROM typical_week) AS weeks,
               (SELECT count(DISTINCT hive_id) FROM user_analytics) AS viewed,
               (SELECT count(DISTINCT hive_id) FROM user_message) AS reviewed,
               (SELECT min(coverage) FROM kpi_day) AS coverage
    """)
    assert filled == {"weeks": 4, "viewed": 4, "reviewed": 4, "coverage": filled["coverage"]}


async def test_demographics_of_a_place_have_groups(fleet: Fleet, resources: Resources) -> None:
    found = await resources.services.analytics.demographics(OPERATOR, fleet.hives[0].id)
    assert found.age_bands
    assert found.genders


def test_a_fleet_begins_with_the_people_who_are_inside(tmp_path: Path) -> None:
    file = DemoStateFile(tmp_path / "demo.json")
    demo = DemoFleet(file, START, timedelta(hours=1), hives=2)
    assert demo.is_new
    demo.begin_with([7, 0])
    window = next(demo.fleet.windows(slots=1))
    assert window.truth is not None
    file.write(replace(demo._state, told=1))
    again = DemoFleet(file, START, timedelta(hours=1), hives=2)
    assert not again.is_new
    assert list(again._state.inside) == [7, 0]
    assert again.fleet._visitors.occupancy.tolist() == [7, 0]


def test_metrics_count_the_deals_that_the_page_of_deals_counts(
    database: Database, fleet: Fleet
) -> None:
    span = {"since": START.date() - 3 * WEEKS, "until": START.date() + timedelta(days=1)}
    rows = database.rows(_DAYS, {"shares": 1, "share": 0, **span})
    [stored] = database.rows("""
        SELECT count(*) FILTER (WHERE kind = 'opened') AS opened,
               count(*) FILTER (WHERE kind = 'redeemed') AS redeemed FROM deal_event
    """)
    assert stored["redeemed"] > 0
    assert sum(row["deal_opens"] for row in rows) == stored["opened"]
    assert sum(row["deal_redemptions"] for row in rows) == stored["redeemed"]
