"""Whose holidays a venue keeps."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np

from penstock.hives.forecast import calendar
from penstock.hives.forecast.public_days import PublicDays

WAITANGI, BASTILLE = date(2024, 2, 6), date(2024, 7, 14)


def test_holidays_are_those_of_the_country() -> None:
    assert PublicDays("NZ").among([WAITANGI, BASTILLE]).tolist() == [True, False]
    assert PublicDays("FR").among([WAITANGI, BASTILLE]).tolist() == [False, True]


def test_a_region_has_its_own_as_well() -> None:
    anniversary = date(2024, 1, 29)
    assert PublicDays("NZ", "AUK").among([anniversary]).all()
    assert not PublicDays("NZ").among([anniversary]).any()


def test_a_country_nobody_knows_has_none() -> None:
    for country in ("", "ZZ", "nowhere"):
        assert not PublicDays(country).among([date(2024, 12, 25)]).any()


def test_a_region_nobody_knows_has_those_of_the_country() -> None:
    assert PublicDays("NZ", "nowhere").among([WAITANGI]).all()


def said_of(day: date, public: PublicDays) -> dict[str, float]:
    values = calendar.calendar(day - timedelta(days=3), 7, public)[3]
    return dict(zip(calendar.NAMES, values.tolist(), strict=True))


def test_the_calendar_tells_how_far_holidays_are() -> None:
    told = said_of(date(2024, 12, 24), PublicDays("NZ"))
    assert (told["holiday"], told["holiday_tomorrow"]) == (0, 1)
    assert (told["weekday"], told["days_to_holiday"]) == (1, 1)
    told = said_of(date(2024, 12, 27), PublicDays("NZ"))
    assert (told["holiday_yesterday"], told["days_since_holiday"]) == (1, 1)
    assert told["days_off_before"] == 2


def test_a_day_between_days_off_is_known_as_one() -> None:
    friday_after_ascension = date(2024, 5, 10)
    assert said_of(friday_after_ascension, PublicDays("FR"))["between_days_off"] == 1
    assert said_of(friday_after_ascension, PublicDays("NZ"))["between_days_off"] == 0


def test_the_calendar_of_a_day_does_not_depend_on_where_the_history_begins() -> None:
    long = calendar.calendar(date(2023, 1, 1), 400, PublicDays("NZ"))
    short = calendar.calendar(date(2023, 1, 1) + timedelta(days=300), 100, PublicDays("NZ"))
    assert np.array_equal(long[300:], short)
