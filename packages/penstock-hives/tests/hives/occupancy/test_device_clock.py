"""Which moment a wall clock in a zone shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.occupancy.device_clock import (
    HOUR_MICROS,
    resolve_wall_clocks,
    time_zone_table,
)

ZONES = (
    *("Europe/Madrid", "America/New_York", "Pacific/Auckland", "Asia/Kolkata", "UTC"),
    *("Australia/Lord_Howe", "Africa/Casablanca", "America/Sao_Paulo", "Pacific/Apia"),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(at: datetime) -> int:
    return (at.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def chosen(name: str, wall: datetime, received: datetime) -> tuple[datetime, bool]:
    """The moment that is believed, and whether the clock is suspect."""
    found = resolve_wall_clocks(
        *(np.array([micros(wall)]), np.array([False]), np.array([micros(received)])),
        *((name,), np.array([0])),
    )
    return EPOCH + timedelta(microseconds=int(found.at[0])), bool(found.suspect[0])


def moment(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


@given(
    st.sampled_from(ZONES),
    st.datetimes(datetime(2000, 1, 2), datetime(2099, 12, 30)),  # noqa: DTZ001
)
def test_what_a_zone_shows_at_a_moment_is_read_as_that_moment(name: str, at: datetime) -> None:
    at = at.replace(microsecond=0, tzinfo=UTC)
    wall = at.astimezone(ZoneInfo(name)).replace(tzinfo=None)
    assert chosen(name, wall, at) == (at, False)


@pytest.mark.parametrize(
    ("received", "meant"),
    [
        (moment(2026, 10, 25, 0, 31), moment(2026, 10, 25, 0, 30)),
        (moment(2026, 10, 25, 1, 31), moment(2026, 10, 25, 1, 30)),
    ],
)
def test_an_hour_shown_twice_is_the_one_nearer_to_the_receipt(
    received: datetime, meant: datetime
) -> None:
    assert chosen("Europe/Madrid", moment(2026, 10, 25, 2, 30), received) == (meant, False)


def test_an_hour_that_was_skipped_is_not_believed() -> None:
    received = moment(2026, 3, 29, 1, 31)
    assert chosen("Europe/Madrid", moment(2026, 3, 29, 2, 30), received) == (received, True)


@pytest.mark.parametrize("off", [timedelta(hours=12, seconds=1), timedelta(days=-300)])
def test_a_clock_more_than_twelve_hours_off_is_not_believed(off: timedelta) -> None:
    received = moment(2026, 6, 1, 12)
    assert chosen("UTC", received + off, received) == (received, True)


def test_a_clock_that_is_hours_off_is_believed() -> None:
    received = moment(2026, 6, 1, 12)
    assert chosen("UTC", received - timedelta(hours=11), received) == (moment(2026, 6, 1, 1), False)


def test_a_report_without_a_date_is_of_its_receipt() -> None:
    found = resolve_wall_clocks(
        np.zeros(1, np.int64), np.ones(1, bool), np.array([HOUR_MICROS]), ("UTC",), np.zeros(1, int)
    )
    assert (found.at[0], found.suspect[0]) == (HOUR_MICROS, True)


def test_each_sensor_is_read_in_its_own_zone() -> None:
    wall = np.full(2, micros(moment(2026, 6, 1, 12)))
    found = resolve_wall_clocks(
        wall, np.zeros(2, bool), wall, ("Asia/Kolkata", "UTC"), np.array([0, 1])
    )
    assert (wall - found.at).tolist() == [HOUR_MICROS * 11 // 2, 0]


def test_a_zone_that_never_changes_is_one_stretch() -> None:
    assert len(set(time_zone_table("Asia/Kolkata").offsets.tolist())) == 1
