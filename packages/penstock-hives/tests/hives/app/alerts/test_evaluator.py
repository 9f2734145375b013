"""What happens becomes notes: once, in one transaction with where the definitions stand."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from penstock_hives.alerts.evaluator import AlertEvaluator
from penstock_hives.alerts.models import AlertHours
from penstock_hives.database import DatabasePool
from penstock_hives.push.repository import Outbox
from tests.hives.app.alerts.given import NOW, Clock, define, figure, notes, offer


async def states(pool: DatabasePool) -> list[tuple[int, bool]]:
    rows = await pool.rows("SELECT definition_id, armed FROM notification_state ORDER BY 1")
    return [(row["definition_id"], row["armed"]) for row in rows]


async def test_a_crossing_is_told_with_the_figure_and_the_threshold(
    evaluator: AlertEvaluator, pool: DatabasePool
) -> None:
    await define(pool, 1)
    await evaluator.load()
    assert await evaluator.evaluate([figure(82.4, 1)]) == 1
    assert await notes(pool) == [
        (1, "The Comb is filling up", "It is 82 % full now; you wanted to know at 80 %.")
    ]
    (row,) = await pool.rows("SELECT kind, link, hive_id, definition_id FROM notification")
    assert list(row.values()) == ["occupancy_above", "/#/hive/1", 1, 1]


async def test_room_is_told_in_people(evaluator: AlertEvaluator, pool: DatabasePool) -> None:
    await define(pool, 1, kind="occupancy_below", threshold=10, unit="count")
    await evaluator.load()
    await evaluator.evaluate([figure(1, 1)])
    assert await notes(pool) == [
        (1, "The Comb has room", "There is 1 person inside now; you wanted to know at 10.")
    ]


async def test_hysteresis_keeps_a_wavering_place_from_telling_again(
    evaluator: AlertEvaluator, pool: DatabasePool
) -> None:
    await define(pool, 1)
    await evaluator.load()
    for version, percent in enumerate([79, 80, 79, 81, 75, 82, 74, 82]):
        await evaluator.evaluate([figure(percent, version)])
    assert len(await notes(pool)) == 2  # at the first 80, and at 82 after the way back


async def test_the_same_figure_twice_tells_nobody_twice(
    evaluator: AlertEvaluator, pool: DatabasePool
) -> None:
    await define(pool, 1)
    await evaluator.load()
    await evaluator.evaluate([figure(90, 1)])
    await evaluator.evaluate([figure(90, 1)])
    again = AlertEvaluator(pool, Clock())  # another process, which begins with what is written down
    await again.load()
    await again.evaluate([figure(90, 1), figure(90, 2)])
    assert len(await notes(pool)) == 1
    assert await states(pool) == [(1, False)]


async def test_what_fails_leaves_everything_as_it_was(
    evaluator: AlertEvaluator, pool: DatabasePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await define(pool, 1)
    await evaluator.load()

    async def failing(*_: object) -> int:
        raise RuntimeError("in the middle")

    with monkeypatch.context() as broken:
        broken.setattr(Outbox, "add", failing)
        with pytest.raises(RuntimeError):
            await evaluator.evaluate([figure(90, 1)])
    assert await states(pool) == []
    assert await evaluator.evaluate([figure(90, 1)]) == 1


async def test_within_the_cool_down_it_is_the_same_news(
    evaluator: AlertEvaluator, pool: DatabasePool, clock: Clock
) -> None:
    await define(pool, 1, cooldown_s=1800)
    await evaluator.load()
    for minutes, percent in [(0, 90), (5, 50), (5, 90), (20, 50), (1, 90)]:
        clock.passes(minutes=minutes)
        await evaluator.evaluate([figure(percent, clock.now.minute, at=clock.now)])
    rows = await pool.rows("SELECT idempotency_key FROM notification ORDER BY id")
    assert [row["idempotency_key"] for row in rows] == ["1:1:0", "1:1:31"]


async def test_outside_its_hours_an_alert_waits_until_they_begin(
    evaluator: AlertEvaluator, pool: DatabasePool, clock: Clock
) -> None:
    local = NOW.astimezone(ZoneInfo("Europe/Berlin"))
    begins = (local + timedelta(hours=1)).time().replace(microsecond=0)
    ends = (local + timedelta(hours=3)).time().replace(microsecond=0)
    await pool.execute("UPDATE hive SET time_zone = 'Europe/Berlin'")
    await define(pool, 1, active_from=begins, active_to=ends, weekdays=[local.weekday()])
    await evaluator.load()
    assert await evaluator.evaluate([figure(90, 1)]) == 0
    clock.passes(minutes=70)
    assert await evaluator.evaluate([figure(90, 2, at=clock.now)]) == 1
    assert await evaluator.evaluate([figure(91, 3, at=clock.now)]) == 0


@pytest.mark.parametrize(
    ("weekdays", "span", "inside"),
    [
        ((), None, True),
        ((0,), None, True),  # a Monday in Auckland, while it is Sunday in London
        ((6,), None, False),
        ((), ("08:00", "10:00"), True),
        ((), ("10:00", "08:00"), False),
        ((), ("22:00", "09:30"), True),  # over midnight
        ((6,), ("22:00", "09:30"), True),  # which began on Sunday
        ((0,), ("22:00", "09:30"), False),
    ],
)
def test_hours_are_those_of_the_place(
    weekdays: tuple[int, ...], span: tuple[str, str] | None, inside: bool
) -> None:
    at = datetime(2026, 3, 1, 20, 0, tzinfo=UTC)  # 09:00 on Monday in Auckland
    times = None if span is None else (time.fromisoformat(span[0]), time.fromisoformat(span[1]))
    assert AlertHours("Pacific/Auckland", weekdays, times).contains(at) is inside


async def test_an_old_figure_is_no_news(evaluator: AlertEvaluator, pool: DatabasePool) -> None:
    await define(pool, 1)
    await evaluator.load()
    await evaluator.evaluate([figure(90, 1, at=NOW - timedelta(minutes=11))])
    assert await notes(pool) == []
    assert await states(pool) == [(1, False)]


async def test_changes_of_definitions_are_followed(
    evaluator: AlertEvaluator, pool: DatabasePool
) -> None:
    await define(pool, 1)
    await define(pool, 2, user=2, threshold=95)
    await evaluator.load()
    await pool.execute("UPDATE user_notification_def SET threshold = 60 WHERE id = 2")
    await pool.execute("UPDATE user_notification_def SET enabled = false WHERE id = 1")
    await define(pool, 3, user=3)
    await evaluator.refresh([1, 2, 3])
    await evaluator.evaluate([figure(90, 1)])
    assert [user for user, *_ in await notes(pool)] == [2, 3]
    await pool.execute("DELETE FROM user_notification_def WHERE id = 3")
    await evaluator.refresh([3])
    assert sorted(evaluator.matcher) == [2]


async def test_a_threshold_that_was_changed_has_not_been_crossed_yet(
    evaluator: AlertEvaluator, pool: DatabasePool
) -> None:
    await define(pool, 1)
    await evaluator.load()
    await evaluator.evaluate([figure(90, 1)])
    await pool.execute("UPDATE user_notification_def SET threshold = 85 WHERE id = 1")
    await evaluator.refresh([1])
    await evaluator.evaluate([figure(90, 2)])
    assert len(await notes(pool)) == 2


async def test_a_definition_that_goes_while_it_fires_is_passed_over(
    evaluator: AlertEvaluator, pool: DatabasePool
) -> None:
    await define(pool, 1)
    await define(pool, 2, user=2)
    await evaluator.load()
    await pool.execute("DELETE FROM user_notification_def WHERE id = 1")
    await evaluator.evaluate([figure(90, 1)])
    assert [user for user, *_ in await notes(pool)] == [2]


async def test_hives_are_judged_as_they_stand(
    evaluator: AlertEvaluator, pool: DatabasePool
) -> None:
    await define(pool, 1)
    await pool.execute(
        """INSERT INTO hive_status (hive_id, occupancy, raw_occupancy, percent, as_of, version)
           VALUES (1, 85, 85, 85, %s, 4)""",
        (NOW,),
    )
    await evaluator.load()
    assert await evaluator.catch_up() == 1
    assert await evaluator.catch_up() == 0


async def test_a_new_deal_is_told_to_who_wanted_to_know(
    evaluator: AlertEvaluator, pool: DatabasePool
) -> None:
    deals: dict[str, Any] = {"kind": "deal_new", "threshold": None, "unit": None}
    await define(pool, 1, user=1, **deals)
    await define(pool, 2, user=2, **{**deals, "hive_id": 2})
    await define(pool, 3, user=3, **{**deals, "hive_id": None, "kind": "favourite_deal"})
    await pool.execute("INSERT INTO user_hive (user_id, hive_id, favourite) VALUES (3, 1, true)")
    await offer(pool, 9)
    await evaluator.load()
    assert await evaluator.evaluate_deals() == 2
    assert await notes(pool) == [
        (1, "New at The Comb", "Two for one"),
        (3, "New at The Comb", "Two for one"),
    ]
    assert await evaluator.evaluate_deals() == 0
    links = await pool.rows("SELECT DISTINCT link, hive_id FROM notification")
    assert links == [{"link": "/#/deal/9", "hive_id": 1}]  # a tap opens the deal


async def test_preferences_choose_among_deals(
    evaluator: AlertEvaluator, pool: DatabasePool
) -> None:
    for user in (1, 2, 3):
        await define(pool, user, user, kind="deal_new", hive_id=None, threshold=None, unit=None)
    await pool.execute("""
        INSERT INTO deal_preference (user_id, kinds, hive_types, within_km, lat, lon)
        VALUES (1, '{daily}', '{}', NULL, NULL, NULL), (2, '{}', '{cafe}', 50, 52.5, 13.4),
               (3, '{}', '{}', 50, 48.9, 2.3)
    """)
    await offer(pool, 9)
    await evaluator.load()
    await evaluator.evaluate_deals()
    assert [user for user, *_ in await notes(pool)] == [2]


async def test_an_end_is_told_a_day_and_two_hours_before(
    evaluator: AlertEvaluator, pool: DatabasePool, clock: Clock
) -> None:
    await define(pool, 1, kind="deal_expiring", threshold=None, unit=None)
    await offer(pool, 9)
    await evaluator.load()
    told = []
    for _ in range(49):
        clock.passes(hours=1)
        if await evaluator.evaluate_deals():
            told.append((clock.now - NOW) / timedelta(hours=1))
    assert told == [24, 46]
    assert [body for _, _, body in await notes(pool)] == [
        "Two for one: 24 hours left.",
        "Two for one: 2 hours left.",
    ]


async def test_a_short_deal_does_not_end_soon_when_it_begins(
    evaluator: AlertEvaluator, pool: DatabasePool
) -> None:
    await define(pool, 1, kind="deal_expiring", threshold=None, unit=None)
    await offer(pool, 9, expires_at=NOW + timedelta(hours=4))
    await evaluator.load()
    assert await evaluator.evaluate_deals() == 0


@pytest.mark.parametrize("status", ["draft", "withdrawn"])
async def test_a_deal_that_is_not_published_is_not_told(
    evaluator: AlertEvaluator, pool: DatabasePool, status: str
) -> None:
    await define(pool, 1, kind="deal_new", threshold=None, unit=None)
    await offer(pool, 9, status=status)
    await evaluator.load()
    assert await evaluator.evaluate_deals() == 0


async def test_one_person_is_told_once_of_a_deal(
    evaluator: AlertEvaluator, pool: DatabasePool
) -> None:
    deals: dict[str, Any] = {"threshold": None, "unit": None}
    await define(pool, 1, kind="deal_new", **deals)
    await define(pool, 2, kind="favourite_deal", **{**deals, "hive_id": None})
    await pool.execute("INSERT INTO user_hive (user_id, hive_id, favourite) VALUES (1, 1, true)")
    await pool.execute(
        "INSERT INTO push_endpoint (user_id, kind, address) VALUES (1, 'fcm', 'phone')"
    )
    await offer(pool, 9)
    await evaluator.load()
    assert await evaluator.evaluate_deals() == 1


async def pushes(pool: DatabasePool) -> list[tuple[int, object]]:
    rows = await pool.rows(
        """SELECT n.user_id, d.next_at FROM notification_delivery d
           JOIN notification n ON n.id = notification_id ORDER BY d.id"""
    )
    return [(row["user_id"], row["next_at"]) for row in rows]


async def test_in_quiet_hours_a_figure_is_not_pushed_and_a_deal_waits(
    evaluator: AlertEvaluator, pool: DatabasePool
) -> None:
    quiet = {"quiet_from": time(7), "quiet_to": time(9)}  # it is eight in New York
    await define(pool, 1, user=2, **quiet)
    await define(pool, 2, user=2, kind="deal_new", threshold=None, unit=None, **quiet)
    await pool.execute("INSERT INTO push_endpoint (user_id, kind, address) VALUES (2, 'fcm', 'x')")
    await offer(pool, 9)
    await evaluator.load()
    await evaluator.evaluate([figure(90, 1)])
    await evaluator.evaluate_deals()
    assert len(await notes(pool)) == 2
    assert await pushes(pool) == [(2, NOW + timedelta(hours=1))]


async def test_after_so_many_a_day_the_inbox_has_to_do(pool: DatabasePool, clock: Clock) -> None:
    evaluator = AlertEvaluator(pool, clock, cap=2)
    await define(pool, 1)
    await pool.execute("INSERT INTO push_endpoint (user_id, kind, address) VALUES (1, 'fcm', 'x')")
    await evaluator.load()
    for version in range(0, 8, 2):
        await evaluator.evaluate([figure(90, version)])
        await evaluator.evaluate([figure(50, version + 1)])
    assert len(await notes(pool)) == 4
    assert len(await pushes(pool)) == 2


async def test_many_who_cross_at_once_are_all_told(pool: DatabasePool, clock: Clock) -> None:
    evaluator = AlertEvaluator(pool, clock)
    await pool.execute(
        """
        INSERT INTO app_user (id, firebase_uid)
        SELECT n, 'u' || n FROM generate_series(10, 5009) n;
        INSERT INTO user_notification_def (user_id, hive_id, kind, threshold, unit)
        SELECT n, 1, 'occupancy_above', 50 + n %% 40, 'percent' FROM generate_series(10, 5009) n;
    """,
        {},
    )
    await evaluator.load()
    assert await evaluator.evaluate([figure(95, 1)]) == 5000
    assert await evaluator.evaluate([figure(95, 2)]) == 0
