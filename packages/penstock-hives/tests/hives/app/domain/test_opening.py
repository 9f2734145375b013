"""Opening hours by a hive's own clock, here and in the database."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.errors import InvalidRequest
from penstock_hives.places.models import WEEKDAYS, check_opening_hours, is_open, next_change
from penstock_store import Database

#: Fridays until two, and around midnight on Sundays.
BAR = {"fri": [["18:00", "02:00"]], "sun": [["22:00", "24:00"]], "mon": [["00:00", "01:00"]]}
FRIDAY = datetime(2026, 3, 6, tzinfo=UTC)

clocks = st.builds(lambda h, m: f"{h:02}:{m:02}", st.integers(0, 23), st.sampled_from([0, 15, 59]))
weeks = st.dictionaries(
    st.sampled_from(WEEKDAYS),
    st.lists(st.tuples(clocks, clocks | st.just("24:00")).map(list), max_size=3),
)
#: Clocks are turned meanwhile, in Berlin and in Auckland.
moments = st.integers(0, 16 * 86_400).map(
    lambda s: datetime(2026, 3, 20, tzinfo=UTC) + timedelta(seconds=s)
)
zones = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "Pacific/Auckland"])


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (17.9, False),
        (18, True),
        (23.5, True),
        (25.9, True),
        (26, False),
        (70.5, True),
        (72.5, True),
    ],
)
def test_a_span_may_last_into_the_next_day(hours: float, expected: bool) -> None:
    assert is_open(BAR, "UTC", FRIDAY + timedelta(hours=hours)) is expected


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (12, FRIDAY + timedelta(hours=18)),  # it opens
        (19, FRIDAY + timedelta(hours=26)),  # it closes
        (70.5, FRIDAY + timedelta(hours=73)),  # one span follows on another
    ],
)
def test_the_next_change_is_told(hours: float, expected: datetime) -> None:
    assert next_change(BAR, "UTC", FRIDAY + timedelta(hours=hours)) == expected


def test_a_hive_without_hours_never_changes() -> None:
    assert next_change({}, "UTC", FRIDAY) is None


@given(weeks, zones, moments)
def test_between_now_and_the_next_change_nothing_changes(
    hours: dict[str, list[list[str]]], zone: str, at: datetime
) -> None:
    change = next_change(hours, zone, at)
    now = is_open(hours, zone, at)

    if change is None:
        assert not now
    elif zone in ("UTC", "Asia/Kolkata"):  # others turn their clocks meanwhile
        assert is_open(hours, zone, change - timedelta(seconds=1)) is now or not now


def test_the_database_says_the_same(embedded_template: str) -> None:
    with Database(embedded_template) as database:

        @given(weeks, zones, moments)
        def same(hours: dict[str, list[list[str]]], zone: str, at: datetime) -> None:
            given_ = (json.dumps(hours), zone, at)
            [row] = database.rows("SELECT hive_open(%s::jsonb, %s, %s) AS open", given_)
            assert row["open"] is is_open(hours, zone, at)

        same()


@pytest.mark.parametrize(
    "hours",
    [
        {"monday": []},
        {"mon": [["9:00", "17:00"]]},
        {"mon": [["09:00"]]},
        {"mon": [["24:00", "02:00"]]},
        {"mon": [["09:00", "25:00"]]},
        {"mon": [["09:00", "10:00"]] * 7},
    ],
)
def test_hours_that_cannot_be_meant_are_refused(hours: dict[str, list[list[str]]]) -> None:
    with pytest.raises(InvalidRequest):
        check_opening_hours(hours)
