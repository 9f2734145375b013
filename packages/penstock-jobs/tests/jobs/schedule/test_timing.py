"""When schedules are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.core.errors import ConfigurationError
from penstock_jobs.schedule.timing import IntervalTiming, parse_cron, parse_timing


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("*/15 * * * *", "UTC", "2026-11-16T10:07", "2026-11-16T10:15"),
        ("0 2 * * *", "UTC", "2026-11-16T02:00", "2026-11-17T02:00"),
        ("@hourly", "UTC", "2026-12-31T23:30", "2027-01-01T00:00"),
        ("30 8 * * mon-fri", "UTC", "2026-11-20T09:00", "2026-11-23T08:30"),
        ("0 0 29 feb *", "UTC", "2026-11-16T00:00", "2028-02-29T00:00"),
        ("0 0 13 * 5", "UTC", "2026-11-16T00:00", "2026-11-20T00:00"),  # a Friday or the 13th
        ("0 0 * * 7", "UTC", "2026-11-16T00:00", "2026-11-22T00:00"),
        ("0 2 * * *", "Europe/Madrid", "2026-07-01T12:00", "2026-07-02T00:00"),
        ("0 2 * * *", "Europe/Madrid", "2026-12-01T12:00", "2026-12-02T01:00"),
        # 02:30 does not occur on 2026-03-29, and twice on 2026-10-25.
        ("30 2 * * *", "Europe/Madrid", "2026-03-28T12:00", "2026-03-30T00:30"),
        ("30 2 * * *", "Europe/Madrid", "2026-10-24T12:00", "2026-10-25T00:30"),
        ("30 2 * * *", "Europe/Madrid", "2026-10-25T00:30", "2026-10-26T01:30"),
    ],
)
def test_cron_expressions_in_their_zones(cron: str, zone: str, after: str, expected: str) -> None:
    moment = at(after)

    assert parse_cron(cron, zone).after(moment, moment) == at(expected)


@pytest.mark.parametrize(
    ("cron", "zone"),
    [
        ("* * * *", "UTC"),
        ("60 * * * *", "UTC"),
        ("* * 0 * *", "UTC"),
        ("*/0 * * * *", "UTC"),
        ("5-1 * * * *", "UTC"),
        ("* * 30 feb *", "UTC"),
        ("* * * * fun", "UTC"),
        ("* * * * *", "Europe/Atlantis"),
    ],
)
def test_expressions_that_never_occur_are_refused(cron: str, zone: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cron|zone"):
        parse_cron(cron, zone)


def test_missed_intervals_are_skipped() -> None:
    start, timing = at("2026-11-16T10:00"), IntervalTiming(60.0)

    assert timing.after(start, start) == start + timedelta(minutes=1)
    assert timing.after(start, at("2026-11-16T10:30:30")) == at("2026-11-16T10:31")


def test_a_schedule_has_one_timing() -> None:
    for every, cron in ((None, None), (60.0, "@daily"), (0.1, None)):
        with pytest.raises(ConfigurationError):
            parse_timing(every, cron)
