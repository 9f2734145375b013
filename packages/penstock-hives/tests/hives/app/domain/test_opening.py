"""Opening hours by a hive's own clock, here and in the database."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.errors import InvalidRequest
from penstock_hives.places.models import (
    WEEKDAYS,
    check_opening_hours,
    closed_text,
    is_open,
    is_open_or_unknown,
    next_change,
)
from penstock_store import Database

#: Fridays until two, and around midnight on Sundays.
BAR = {"fri": [["18:00", "02:00"]], "sun": [["22:00", "24:00"]], "mon": [["00:00", "01:00"]]}
FRIDAY = datetime(2026, 3, 6, tzinfo=UTC)

clocks = st.builds(lambda h, m: f"{h:02}:{m:02}", st.integers(0, 23), st.sampled_from([0, 15, 59]))
#: Exceptions are by date.
weeks = st.dictionaries(
    st.sampled_from((*WEEKDAYS, "2026-03-22", "2026-03-29", "2026-03-30")),
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


def test_a_date_has_other_hours_than_its_weekday() -> None:
    closed = {**BAR, "2026-03-06": []}
    assert not is_open(closed, "UTC", FRIDAY + timedelta(hours=20))
    assert not is_open(closed, "UTC", FRIDAY + timedelta(hours=25))
    assert next_change(closed, "UTC", FRIDAY) == FRIDAY + timedelta(hours=70)
    longer = {**BAR, "2026-03-06": [["10:00", "04:00"]]}
    assert is_open(longer, "UTC", FRIDAY + timedelta(hours=27))


def test_a_hive_without_hours_never_changes() -> None:
    assert next_change({}, "UTC", FRIDAY) is None
    assert is_open_or_unknown({"mon": []}, "UTC", FRIDAY)
    assert not is_open_or_unknown({"mon": [["10:00", "12:00"]]}, "UTC", FRIDAY)


def test_a_closed_hive_says_when_it_opens_in_its_own_time() -> None:
    opens = FRIDAY + timedelta(hours=31)
    assert closed_text(opens, "UTC", FRIDAY + timedelta(hours=30)) == "closed, opens 07:00"
    assert closed_text(opens, "Asia/Kolkata", FRIDAY) == "closed, opens Sat 12:30"
    assert closed_text(None, "UTC", FRIDAY) == "closed"


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
        {"2026-02-30": []},
        {"2026-1-1": []},
        {f"2026-{month:02}-{day:02}": [] for month in range(1, 6) for day in range(1, 22)},
    ],
)
def test_hours_that_cannot_be_meant_are_refused(hours: dict[str, list[list[str]]]) -> None:
    with pytest.raises(InvalidRequest):
        check_opening_hours(hours)
