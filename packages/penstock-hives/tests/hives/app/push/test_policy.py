"""When a person may be disturbed."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.push.models import (
    NotificationPreferences,
    NotificationVerdict,
    decide,
    quiet_until,
)

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
NIGHT = (time(22), time(7))


def test_what_nothing_speaks_against_is_told_at_once() -> None:
    decision = decide(NotificationPreferences(), NOON, deferrable=False)
    assert (decision.verdict, decision.inbox, decision.push_at) == (
        NotificationVerdict.TELL,
        True,
        NOON,
    )


def test_who_wants_no_pushes_gets_none() -> None:
    decision = decide(NotificationPreferences(push=False), NOON, deferrable=True)
    assert (decision.inbox, decision.push_at) == (True, None)


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(1799, NotificationVerdict.COOLING), (1800, NotificationVerdict.TELL)]
)
def test_the_cool_down_is_kept(seconds: int, verdict: NotificationVerdict) -> None:
    habits = NotificationPreferences(cooldown=1800, last_notified=NOON - timedelta(seconds=seconds))
    assert decide(habits, NOON, deferrable=False).verdict is verdict


def test_within_the_cool_down_only_what_keeps_lies_in_the_inbox() -> None:
    habits = NotificationPreferences(cooldown=1800, last_notified=NOON)
    assert not decide(habits, NOON, deferrable=False).inbox
    kept = decide(habits, NOON, deferrable=True)
    assert (kept.inbox, kept.push_at) == (True, None)


def test_a_day_has_so_many_pushes() -> None:
    assert (
        decide(NotificationPreferences(notified_today=19), NOON, deferrable=True, cap=20).push_at
        == NOON
    )
    capped = decide(NotificationPreferences(notified_today=20), NOON, deferrable=True, cap=20)
    assert (capped.verdict, capped.inbox, capped.push_at) == (
        NotificationVerdict.CAPPED,
        True,
        None,
    )


@pytest.mark.parametrize(
    ("local", "until"),
    [
        ("2026-05-01T21:59", None),
        ("2026-05-01T22:00", "2026-05-02T07:00"),
        ("2026-05-02T06:59", "2026-05-02T07:00"),
        ("2026-05-02T07:00", None),
    ],
)
def test_quiet_hours_go_over_midnight_by_ones_own_clock(local: str, until: str | None) -> None:
    offset = timedelta(hours=2)  # Berlin's in May
    now = datetime.fromisoformat(local).replace(tzinfo=UTC) - offset
    end = quiet_until(NotificationPreferences("Europe/Berlin", quiet=NIGHT), now)
    assert end == (until and datetime.fromisoformat(until).replace(tzinfo=UTC) - offset)


def test_in_quiet_hours_what_keeps_waits_for_the_morning() -> None:
    habits = NotificationPreferences(quiet=(time(11), time(13)))
    assert decide(habits, NOON, deferrable=True).push_at == NOON + timedelta(hours=1)
    assert decide(habits, NOON, deferrable=False).push_at is None


@given(
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]),
    st.times(),
    st.times(),
    st.integers(0, 365 * 1440).map(lambda minutes: NOON + timedelta(minutes=minutes)),
)
def test_quiet_hours_end_within_a_day_and_are_then_over(
    zone: str, begins: time, ends: time, now: datetime
) -> None:
    habits = NotificationPreferences(zone, quiet=(begins, ends))
    end = quiet_until(habits, now)
    if end is not None:
        assert timedelta(0) <= end - now <= timedelta(hours=25)
        assert end == now or quiet_until(habits, end) is None
