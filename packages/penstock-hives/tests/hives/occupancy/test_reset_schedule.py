"""When hives are taken to be empty."""

from __future__ import annotations

from datetime import UTC, date, datetime, time

import pytest

from penstock_hives.occupancy.calendars import ResetSchedule

BAR = {day: [["17:00", "05:30"]] for day in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")}


def reset(nights: ResetSchedule, day: date) -> datetime:
    return datetime.fromtimestamp(nights.reset(day) / 1e6, UTC)


@pytest.mark.parametrize(
    ("zone", "day", "utc"),
    [
        ("Europe/Madrid", date(2026, 3, 28), datetime(2026, 3, 28, 3, tzinfo=UTC)),
        ("Europe/Madrid", date(2026, 3, 29), datetime(2026, 3, 29, 2, tzinfo=UTC)),
        ("Europe/Madrid", date(2026, 10, 25), datetime(2026, 10, 25, 3, tzinfo=UTC)),
        ("America/New_York", date(2026, 3, 8), datetime(2026, 3, 8, 8, tzinfo=UTC)),
        ("Pacific/Auckland", date(2026, 4, 5), datetime(2026, 4, 4, 16, tzinfo=UTC)),
        ("Asia/Kolkata", date(2026, 3, 2), datetime(2026, 3, 1, 22, 30, tzinfo=UTC)),
    ],
)
def test_a_night_ends_at_four_by_the_hives_own_clock(zone: str, day: date, utc: datetime) -> None:
    assert reset(ResetSchedule(zone), day) == utc


def test_a_hive_that_is_open_at_four_is_reset_after_it_has_closed() -> None:
    assert reset(ResetSchedule("UTC", opening_hours=BAR), date(2026, 3, 3)) == datetime(
        2026, 3, 3, 6, tzinfo=UTC
    )


def test_a_hive_that_closes_before_four_is_reset_at_four() -> None:
    hours = {"mon": [["17:00", "03:00"]]}
    assert reset(ResetSchedule("UTC", opening_hours=hours), date(2026, 3, 3)).hour == 4


def test_a_hive_that_never_closes_is_reset_at_its_time() -> None:
    always = {day: [["00:00", "00:00"]] for day in BAR}
    nights = ResetSchedule("UTC", time(3, 30), always)
    assert reset(nights, date(2026, 3, 3)) == datetime(2026, 3, 3, 3, 30, tzinfo=UTC)


def test_a_time_within_five_minutes_is_brought_to_their_beginning() -> None:
    nights = ResetSchedule("UTC", time(3, 33))
    assert reset(nights, date(2026, 3, 3)) == datetime(2026, 3, 3, 3, 30, tzinfo=UTC)


def test_a_time_that_is_skipped_in_spring_comes_after_the_gap() -> None:
    nights = ResetSchedule("Europe/Madrid", time(2, 30))
    assert reset(nights, date(2026, 3, 29)) == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
