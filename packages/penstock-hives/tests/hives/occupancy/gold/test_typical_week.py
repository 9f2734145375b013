"""What is usual at a hive, by weekday and hour of its own clock."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np

from penstock_hives.occupancy.typical_weeks import update_typical_weeks
from tests.hives.occupancy.gold.ledger import Bookkeeper, clock

WEEK = timedelta(days=7)
DAY = timedelta(days=1)


def usual(books: Bookkeeper, now: datetime) -> list[tuple[int, int, float, float, int]]:
    with books.database.transaction() as connection:
        update_typical_weeks(connection, now, np.array([1]))
    return [
        (row["weekday"], row["hour"], row["entries"], row["occupancy"], row["weeks"])
        for row in books.database.rows("TABLE typical_week ORDER BY weekday, hour")
    ]


def test_a_day_is_usual_once_it_is_over(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(12), 6, 0))

    assert usual(books, clock(23)) == []
    assert usual(books, clock(1) + DAY) == [(0, 12, 6.0, 6.0, 1)]


def test_usual_is_the_median_of_weeks(books: Bookkeeper) -> None:
    books.hive(1)
    for week, people in enumerate((5, 100, 7)):
        books.enter((1, clock(12) + week * WEEK, people, people))

    found = usual(books, clock(1) + 2 * WEEK + DAY)
    assert [(row[2], row[4]) for row in found if row[:2] == (0, 12)] == [(7.0, 3)]


def test_hours_are_of_the_hives_own_clock(books: Bookkeeper) -> None:
    books.hive(1, zone="Asia/Tokyo")
    books.enter((1, clock(20), 3, 0))  # five in the morning there, on Tuesday

    assert usual(books, clock(20) + DAY) == [(1, 5, 3.0, 3.0, 1)]


def test_it_is_made_once_a_day(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(12), 6, 6))
    usual(books, clock(1) + DAY)
    books.enter((1, clock(12), 4, 4, clock(2) + DAY))  # late

    assert [row[2] for row in usual(books, clock(3) + DAY)] == [6.0]
    assert [row[2] for row in usual(books, clock(3) + 2 * DAY)] == [10.0]


def test_what_is_long_past_is_no_longer_usual(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(12), 6, 6))
    usual(books, clock(1) + DAY)

    assert usual(books, clock(1) + DAY + 9 * WEEK) == []
