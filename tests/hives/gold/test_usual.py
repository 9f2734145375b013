"""What is usual at a hive, by weekday and hour of its own clock."""

from __future__ import annotations

from datetime import timedelta

from tests.hives.gold.ledger import Bookkeeper, clock

WEEK = timedelta(days=7)
DAY = timedelta(days=1)


def usual(books: Bookkeeper) -> list[tuple[int, int, float, float, int]]:
    return [
        (row["weekday"], row["hour"], row["entries"], row["occupancy"], row["weeks"])
        for row in books.database.rows("TABLE typical_week ORDER BY weekday, hour")
    ]


def test_a_day_is_usual_once_it_is_over(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(12), 6, 0))
    assert usual(books) == []

    books.enter((1, clock(12) + DAY, 1, 0))

    assert (0, 12, 6.0, 6.0, 1) in usual(books)


def test_usual_is_the_median_of_weeks(books: Bookkeeper) -> None:
    books.hive(1)
    for week, people in enumerate((5, 100, 7)):
        books.enter((1, clock(12) + week * WEEK, people, people))
    books.enter((1, clock(12) + 3 * WEEK, 0, 0))

    (noon,) = [row for row in usual(books) if row[:2] == (0, 12)]
    assert (noon[2], noon[4]) == (7.0, 3)


def test_hours_are_of_the_hives_own_clock(books: Bookkeeper) -> None:
    books.hive(1, zone="Asia/Tokyo")
    books.enter((1, clock(20), 3, 0))  # five in the morning there, on Tuesday
    books.enter((1, clock(20) + DAY, 3, 0))

    assert (1, 5, 3.0, 3.0, 1) in usual(books)


def test_a_late_row_changes_what_is_usual(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(12), 6, 6))
    books.enter((1, clock(12) + DAY, 1, 1))

    books.enter((1, clock(12), 4, 4, clock(13) + DAY))

    assert [row[2] for row in usual(books) if row[:2] == (0, 12)] == [10.0]
