"""Whose holidays a venue keeps."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np

from penstock_hives.forecast import features
from penstock_hives.forecast.grid import PublicHolidays

WAITANGI, BASTILLE = date(2024, 2, 6), date(2024, 7, 14)


def test_holidays_are_those_of_the_country() -> None:
    assert PublicHolidays("NZ").is_holiday([WAITANGI, BASTILLE]).tolist() == [True, False]
    assert PublicHolidays("FR").is_holiday([WAITANGI, BASTILLE]).tolist() == [False, True]


def test_a_region_has_its_own_as_well() -> None:
    anniversary = date(2024, 1, 29)
    assert PublicHolidays("NZ", "AUK").is_holiday([anniversary]).all()
    assert not PublicHolidays("NZ").is_holiday([anniversary]).any()


def test_a_country_nobody_knows_has_none() -> None:
    for country in ("", "ZZ", "nowhere"):
        assert not PublicHolidays(country).is_holiday([date(2024, 12, 25)]).any()


def test_a_region_nobody_knows_has_those_of_the_country() -> None:
    assert PublicHolidays("NZ", "nowhere").is_holiday([WAITANGI]).all()


def said_of(day: date, public: PublicHolidays) -> dict[str, float]:
    values = features.calendar_features(day - timedelta(days=3), 7, public)[3]
    return dict(zip(features.CALENDAR_FEATURES, values.tolist(), strict=True))


def test_the_calendar_tells_how_far_holidays_are() -> None:
    told = said_of(date(2024, 12, 24), PublicHolidays("NZ"))
    assert (told["holiday"], told["holiday_tomorrow"]) == (0, 1)
    assert (told["weekday"], told["days_to_holiday"]) == (1, 1)
    told = said_of(date(2024, 12, 27), PublicHolidays("NZ"))
    assert (told["holiday_yesterday"], told["days_since_holiday"]) == (1, 1)
    assert told["days_off_before"] == 2


def test_a_day_between_days_off_is_known_as_one() -> None:
    friday_after_ascension = date(2024, 5, 10)
    assert said_of(friday_after_ascension, PublicHolidays("FR"))["between_days_off"] == 1
    assert said_of(friday_after_ascension, PublicHolidays("NZ"))["between_days_off"] == 0


def test_the_calendar_of_a_day_does_not_depend_on_where_the_history_begins() -> None:
    long = features.calendar_features(date(2023, 1, 1), 400, PublicHolidays("NZ"))
    short = features.calendar_features(
        date(2023, 1, 1) + timedelta(days=300), 100, PublicHolidays("NZ")
    )
    assert np.array_equal(long[300:], short)
