"""All that the public may see, in a few statements."""

from __future__ import annotations

from datetime import timedelta

from penstock_hives.database import DatabasePool
from penstock_hives.places.service import HiveService
from penstock_store import Database
from tests.hives.app.world import NOON

_HIVES = """
    INSERT INTO account (id, name) VALUES (1, 'a');
    INSERT INTO hive_type (id, code, name) VALUES (1, 'bar', 'Bar');
    INSERT INTO hive (id, account_id, hive_type_id, name, time_zone, public) VALUES
        (1, 1, 1, 'Seen', 'UTC', true), (2, 1, 1, 'Hidden', 'UTC', false);
"""


async def test_a_snapshot_has_hives_figures_weeks_forecasts_and_deals_of_what_is_public(
    database: Database,
) -> None:
    with database.transaction() as connection:
        connection.execute(_HIVES)
        for hive in (1, 2):
            for statement in (
                "INSERT INTO hive_status "
                "VALUES (%(h)s, 5, 5, 5, 'quiet', 'steady', 'good', %(n)s, 1)",
                "INSERT INTO typical_week VALUES (%(h)s, 0, 11, 3, 4, 6, %(n)s)",
                "INSERT INTO forecast VALUES (%(h)s, %(n)s, 'm', %(n)s, 1, 2)",
                "INSERT INTO deal (hive_id, title, kind, starts_at, expires_at) "
                "VALUES (%(h)s, 't', 'event', %(n)s, %(l)s)",
            ):
                connection.execute(statement, {"h": hive, "n": NOON, "l": NOON + timedelta(days=1)})

    async with DatabasePool(database.url, 1, wait=60) as pool:
        seen = await HiveService(pool, lambda: NOON).snapshot()

    assert seen.as_of == NOON
    assert [hive.name for hive in seen.summaries] == ["Seen"]
    assert [hive.name for hive in seen.details] == ["Seen"]
    assert len(seen.details[0].deals) == 1
    assert [week.hive_id for week in seen.weeks] == [1]
    assert [(each.hive_id, len(each.hours)) for each in seen.forecasts] == [(1, 1)]
    assert [deal.hive_name for deal in seen.deals] == ["Seen"]
    assert seen.summaries[0].occupancy is not None
    assert seen.summaries[0].occupancy.usual is not None
