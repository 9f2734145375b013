"""Batches of counts become occupancy, all or nothing, and each once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock_hives.occupancy.writer import apply_facts
from tests.hives.occupancy.gold.ledger import Bookkeeper, clock


def test_a_batch_tells_who_is_inside(books: Bookkeeper) -> None:
    books.hive(1, doors=(1, 2))
    changed = books.enter((1, clock(12, 1), 30, 0), (2, clock(12, 2), 16, 4))
    assert [(each.hive_id, each.occupancy, each.version) for each in changed] == [(1, 42, 1)]
    status = books.status()
    assert (status["percent"], status["level"], status["quality"]) == (42.0, "moderate", "good")
    assert status["as_of"] == clock(12, 2)
    assert books.slots() == [(1, clock(12), 46, 4, 42, 42)]
    assert books.table("occupancy_hour") == [(1, clock(12), 46, 4, 42, 42, 42.0)]
    assert books.table("occupancy_day") == [
        (1, clock(0).date(), 46, 4, 42, 42, clock(12), 21.0),
    ]


def test_a_batch_that_is_marked_is_left_out(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(12), 5, 0), batch=7)
    assert books.enter((1, clock(12), 5, 0), batch=7) == []
    assert books.status()["occupancy"] == 5
    assert books.status()["version"] == 1


def test_a_batch_that_fails_in_the_middle_leaves_nothing(
    books: Bookkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock_hives.occupancy.gold.staging import GoldStaging

    books.hive(1)
    books.enter((1, clock(12), 5, 0))
    with monkeypatch.context() as patched:
        patched.setattr(GoldStaging, "changed_hives", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            books.enter((1, clock(12, 20), 3, 0), batch=1)
    assert books.slots() == [(1, clock(12), 5, 0, 5, 5)]
    books.sums[1] = [5, 0]
    books.enter((1, clock(12, 20), 3, 0), batch=1)
    assert books.slots() == [(1, clock(12), 5, 0, 5, 5), (1, clock(12, 20), 3, 0, 8, 8)]
    assert books.database.rows("SELECT sum_in FROM sensor_state") == [{"sum_in": 8}]


def test_a_late_row_changes_what_came_after_it(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(12), 5, 0), (1, clock(14, 30), 2, 0))
    books.enter((1, clock(13, 10), 0, 3, clock(14, 40)))
    assert [row[4] for row in books.slots()] == [5, 2, 4]
    assert [row[5:] for row in books.table("occupancy_hour")] == [
        (5, 5.0),
        (5, (5 * 2 + 2 * 10) / 12),
        (4, 3.0),
    ]


def test_a_late_row_stays_behind_the_night(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(22), 5, 0), (1, clock(23, 50), 0, 1))
    books.enter((1, clock(28), 0, 0), (1, clock(33), 2, 0))
    books.enter((1, clock(22, 30), 10, 0, clock(33, 1)))
    assert [row[4] for row in books.slots()] == [5, 15, 14, 0, 2]
    assert books.table("hive_offset") == [(1, clock(28), -14, "nightly")]
    assert books.status()["occupancy"] == 2


def test_two_doors_of_which_one_lets_more_people_out(books: Bookkeeper) -> None:
    books.hive(1, doors=(1, 2))
    books.enter((1, clock(12), 10, 0), (2, clock(12), 0, 4))
    books.enter((2, clock(12, 30), 0, 9))
    status = books.status()
    assert (status["occupancy"], status["raw_occupancy"]) == (0, -3)
    books.enter((1, clock(12, 40), 4, 0))
    assert books.status()["occupancy"] == 1


def test_what_was_below_zero_is_not_forgotten_when_the_next_hour_goes_on(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(12), 0, 4))
    books.enter((1, clock(16), 6, 0))
    assert books.status()["occupancy"] == 2


def test_a_night_empties_a_hive_with_nobody_sending(books: Bookkeeper) -> None:
    books.hive(1, zone="America/New_York")
    four = clock(9)  # in winter
    books.enter((1, four - timedelta(minutes=30), 5, 0))
    assert [each.occupancy for each in books.advance_clock(four)] == [0]
    assert books.advance_clock(four + timedelta(minutes=1)) == []
    assert books.table("nightly_reset") == [(1, four.date(), four)]


def test_a_hive_nobody_hears_of_is_stale_and_not_empty(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(23), 5, 0))
    (changed,) = books.advance_clock(clock(24, 5))
    assert (changed.quality, changed.occupancy, changed.level) == ("stale", 5, None)
    assert books.advance_clock(clock(30)) == []
    assert books.status()["occupancy"] == 5
    assert books.table("nightly_reset") == []


def test_a_hive_that_is_heard_of_again_makes_up_for_its_nights(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(23), 5, 0))
    books.advance_clock(clock(60))
    books.enter((1, clock(60), 2, 0))
    assert books.status()["occupancy"] == 2
    assert [row[0:2] + row[4:5] for row in books.slots()] == [
        (1, clock(23), 5),
        (1, clock(28), 0),
        (1, clock(52), 0),
        (1, clock(60), 2),
    ]


def test_a_hive_with_a_silent_door_is_partial(books: Bookkeeper) -> None:
    books.hive(1, doors=(1, 2))
    books.enter((1, clock(12), 5, 0), (2, clock(12), 1, 0))
    (changed,) = books.enter((1, clock(13, 5), 0, 0))
    assert changed.quality == "partial"


def test_a_count_of_heads_is_the_truth_from_then_on(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(12), 5, 0), (1, clock(12, 30), 1, 0))
    books.count_heads(1, clock(12, 20), 40)
    books.enter((1, clock(12, 35), 0, 2))
    assert books.status()["occupancy"] == 39
    assert books.table("hive_offset") == [(1, clock(12, 20), 35, "manual")]
    books.count_heads(1, clock(12, 20), 30, "ana, who counted again")
    books.advance_clock(clock(12, 40))
    assert books.status()["occupancy"] == 29


def test_without_a_capacity_there_is_no_percentage_and_no_level(books: Bookkeeper) -> None:
    books.hive(1, capacity=None)
    books.enter((1, clock(12), 5, 0))
    assert (books.status()["percent"], books.status()["level"]) == (None, None)


def test_a_capacity_that_changes_changes_how_full_a_hive_is(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(12), 50, 0))
    books.database.execute("UPDATE hive SET capacity = 50")
    books.advance_clock(clock(12, 1))
    assert (books.status()["percent"], books.status()["level"]) == (100.0, "full")


def test_trends_are_told_of_a_quarter_of_an_hour(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(12), 50, 0))
    assert books.status()["trend"] == "rising"
    books.enter((1, clock(12, 20), 0, 0))
    assert books.status()["trend"] == "steady"
    books.enter((1, clock(12, 25), 0, 9))
    assert books.status()["trend"] == "falling"
    books.advance_clock(clock(12, 45))
    assert books.status()["trend"] == "steady"


def test_counts_of_a_hive_that_is_gone_are_no_hindrance(books: Bookkeeper) -> None:
    books.hive(1)
    books.hive(2)
    facts, rows = books.facts((1, clock(12), 5, 0), (2, clock(12), 3, 0))
    books.database.execute("DELETE FROM sensor WHERE hive_id = 2")
    books.database.execute("DELETE FROM hive WHERE id = 2")
    with books.database.transaction() as connection:
        apply_facts(connection, facts, rows)
    assert books.status()["occupancy"] == 5


def test_a_sensor_that_sends_events_is_alive_while_it_sends_statuses(books: Bookkeeper) -> None:
    books.hive(1)
    books.database.execute("UPDATE sensor SET protocol = 'event'")
    books.enter((1, clock(12), 5, 0))
    books.advance_clock(clock(20))
    assert books.status()["quality"] == "good"
    books.advance_clock(clock(24, 5))
    assert books.status()["quality"] == "stale"
    books.database.execute(
        "INSERT INTO sensor_status (sensor_id, received_at) VALUES (1, %s)", (clock(24),)
    )
    books.advance_clock(clock(24, 10))
    assert books.status()["quality"] == "good"


def test_a_row_from_before_all_that_was_known_has_its_nights_too(books: Bookkeeper) -> None:
    books.hive(1)
    books.enter((1, clock(36), 5, 0), (1, clock(52), 0, 0))
    books.enter((1, clock(20), 3, 0, clock(52, 1)))
    assert [row[4] for row in books.slots()] == [3, 0, 5, 0]
    assert books.table("hive_offset") == [
        (1, clock(28), -3, "nightly"),
        (1, clock(52), -5, "nightly"),
    ]


def test_a_hive_that_goes_takes_its_occupancy_along(books: Bookkeeper) -> None:
    books.hive(1)
    books.hive(2)
    books.enter((1, clock(12), 5, 0), (2, clock(12), 3, 0))

    books.database.execute("DELETE FROM sensor WHERE hive_id = 1")
    books.database.execute("DELETE FROM hive WHERE id = 1")

    assert [row[0] for row in books.table("occupancy_5min")] == [2]
    assert [row[0] for row in books.table("occupancy_hour")] == [2]
