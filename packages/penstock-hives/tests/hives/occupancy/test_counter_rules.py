"""What a report means after those before it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock_hives.occupancy.counter_rules import (
    MIN_REACH,
    CounterReading,
    CounterState,
    CounterStep,
    apply_reading,
)
from penstock_hives.occupancy.device_clock import HOUR_MICROS, SECOND_MICROS
from penstock_hives.occupancy.event_rates import EventRate
from penstock_hives.occupancy.schemas import Quality
from penstock_hives.occupancy.sensor_states import NO_CLOCK

MINUTE = HOUR_MICROS // 60


class Sensor:
    """Feeds reports to the rules; its clock is right."""

    def __init__(self, *first: int, top: int = 65523, busiest: int = 0) -> None:
        self.known = CounterState(profile_top=top)
        self.busiest = busiest
        self.minute = 0
        if first:
            self.says(*first)
            self.known.settled = True

    def says(
        self, total_in: int, total_out: int, *, minute: int | None = None, **said: bool
    ) -> CounterStep:
        self.minute = max(self.minute + 1, minute or 0)
        clock = (self.minute if minute is None else minute) * MINUTE
        received = self.minute * MINUTE
        new = CounterReading(total_in, total_out, clock, clock, received, said.get("start", False))
        return apply_reading(self.known, new, lambda: self.busiest)


def told(found: CounterStep) -> tuple[int, int, Quality]:
    return found.delta_in, found.delta_out, found.quality


RESTART = Quality.RESTART | Quality.LOSS_POSSIBLE
NOTHING = Quality(0)


def test_the_first_totals_count_for_nothing() -> None:
    assert told(Sensor().says(500, 400)) == (0, 0, Quality.FIRST)


def test_the_first_report_of_a_device_that_starts_counts() -> None:
    assert told(Sensor().says(1, 2, start=True)) == (1, 2, Quality.FIRST | Quality.RESTART)


def test_totals_that_grow_count_by_how_much() -> None:
    assert told(Sensor(500, 400).says(503, 402)) == (3, 2, NOTHING)


def test_a_report_by_the_timer_counts_nothing_and_is_no_duplicate() -> None:
    assert told(Sensor(500, 400).says(500, 400)) == (0, 0, NOTHING)


# 1 to 3


def test_the_same_totals_and_time_are_a_duplicate() -> None:
    sensor = Sensor(500, 400)
    assert told(sensor.says(500, 400, minute=1)) == (0, 0, Quality.DUPLICATE)


def test_an_older_report_with_less_is_late_and_changes_nothing() -> None:
    sensor = Sensor(500, 400)
    sensor.says(510, 405, minute=10)
    assert told(sensor.says(505, 403, minute=5)) == (0, 0, Quality.LATE)
    assert told(sensor.says(511, 405)) == (1, 0, NOTHING)


def test_a_start_is_a_restart() -> None:
    assert told(Sensor(500, 400).says(0, 0, start=True)) == (0, 0, RESTART)


def test_a_late_start_is_late() -> None:
    sensor = Sensor(500, 400)
    sensor.says(2, 3, minute=10)
    assert told(sensor.says(0, 0, minute=8, start=True)) == (0, 0, Quality.LATE)


# 4 to 6


@pytest.mark.parametrize("top", [65503, 65523, 65535])
def test_one_total_that_falls_from_its_top_has_wrapped(top: int) -> None:
    sensor = Sensor(top - 1, 300, top=top)
    assert told(sensor.says(2, 301)) == (4, 1, Quality.WRAP)


def test_both_fell_is_a_restart() -> None:
    assert told(Sensor(500, 400).says(3, 2)) == (3, 2, RESTART)


def test_one_near_its_top_and_both_fell_is_a_restart() -> None:
    assert told(Sensor(65520, 400).says(3, 2)) == (3, 2, RESTART)


def test_both_near_their_tops_have_both_wrapped_and_nobody_is_sure() -> None:
    sensor = Sensor(65520, 65500)
    assert told(sensor.says(6, 10)) == (10, 34, Quality.WRAP | Quality.AMBIGUOUS)


def test_both_wrap_in_a_long_gap_of_a_busy_sensor() -> None:
    sensor = Sensor(65000, 64800, busiest=300)
    found = sensor.says(100, 50, minute=121)
    assert told(found) == (624, 774, Quality.WRAP | Quality.AMBIGUOUS)


def test_the_same_fall_of_a_quiet_sensor_is_doubted() -> None:
    assert told(Sensor(65000, 64800).says(100, 50, minute=121)) == (0, 0, Quality.CORRUPT)


def test_one_fell_far_from_its_top_to_little_is_a_second_restart() -> None:
    assert told(Sensor(9, 0).says(2, 3)) == (2, 3, RESTART)


def test_one_fell_far_from_its_top_is_corrupt_and_the_old_totals_stay() -> None:
    sensor = Sensor(500, 400)
    assert told(sensor.says(120, 402)) == (0, 0, Quality.CORRUPT)
    assert told(sensor.says(502, 403)) == (2, 3, NOTHING)


# Frames that were scrambled, and sensors that insist


@pytest.mark.parametrize("totals", [(40_000, 50_000), (20_000, 9_000), (31_000, 12)])
def test_totals_out_of_the_blue_cost_nothing(totals: tuple[int, int]) -> None:
    sensor = Sensor(30_000, 29_000)
    assert told(sensor.says(*totals)) == (0, 0, Quality.CORRUPT)
    assert told(sensor.says(30_005, 29_001)) == (5, 1, NOTHING)


def test_a_scrambled_start_costs_nothing() -> None:
    sensor = Sensor(30_000, 29_000)
    assert told(sensor.says(5_000, 6_000, start=True)) == (0, 0, Quality.CORRUPT)


def test_a_copy_of_a_scrambled_frame_confirms_nothing() -> None:
    sensor = Sensor(500, 400)
    sensor.says(40_000, 50_000)
    assert told(sensor.says(40_000, 50_000, minute=2)) == (0, 0, Quality.DUPLICATE)
    assert told(sensor.says(505, 400)) == (5, 0, NOTHING)


def test_a_great_step_is_believed_when_the_next_report_goes_on_from_it() -> None:
    sensor = Sensor(500, 400)
    sensor.says(900, 800, minute=30)
    assert told(sensor.says(903, 802)) == (403, 402, Quality.CONFIRMED)


def test_more_than_a_door_can_pass_is_believed_when_there_was_time_enough() -> None:
    sensor = Sensor(500, 400)
    sensor.says(900, 800)
    assert told(sensor.says(903, 802)) == (0, 0, Quality.CORRUPT)
    assert told(sensor.says(906, 804, minute=5)) == (0, 0, Quality.CORRUPT)
    assert told(sensor.says(909, 806, minute=9)) == (409, 406, Quality.CONFIRMED)


def test_a_first_start_with_more_than_a_start_can_have_counts_nothing() -> None:
    assert told(Sensor().says(60_000, 50_000, start=True)) == (0, 0, Quality.FIRST)


def test_a_restart_with_many_counts_is_believed_when_confirmed() -> None:
    sensor = Sensor(40_000, 100)
    assert told(sensor.says(90, 120)) == (0, 0, Quality.CORRUPT)
    assert told(sensor.says(93, 122)) == (93, 122, RESTART | Quality.CONFIRMED)


def test_a_wrap_in_an_outage_of_a_sensor_nobody_knows_is_the_lesser_step() -> None:
    sensor = Sensor(65_300, 30_000)
    sensor.says(80, 30_300, minute=30)
    found = sensor.says(82, 30_303)
    assert (found.delta_in, found.delta_out) == (306, 303)
    assert Quality.WRAP in found.quality
    assert Quality.CONFIRMED in found.quality


def test_a_first_report_that_two_others_contradict_was_the_bad_one() -> None:
    sensor = Sensor()
    sensor.says(60_000, 50_000)
    sensor.says(500, 400)
    assert told(sensor.says(503, 402)) == (3, 2, Quality.FIRST | Quality.CONFIRMED)


def test_a_first_report_before_an_outage_is_believed_if_the_next_ones_go_on_from_it() -> None:
    sensor = Sensor()
    sensor.says(500, 400)
    assert told(sensor.says(640, 490, minute=60)) == (0, 0, Quality.CORRUPT)
    assert told(sensor.says(643, 492)) == (143, 92, Quality.CONFIRMED)


# Clocks and order


@pytest.mark.parametrize("before", [(500, 400), (8, 9)])
def test_a_late_report_from_before_a_restart_has_what_the_device_forgot(
    before: tuple[int, int],
) -> None:
    sensor = Sensor(*before)
    sensor.says(2, 3, minute=10)
    late = before[0] + 3, before[1] + 2
    assert told(sensor.says(*late, minute=5)) == (3, 2, Quality.LATE)
    assert told(sensor.says(*late, minute=5)) == (0, 0, Quality.LATE)  # the same again
    assert told(sensor.says(before[0] + 1, before[1] + 1, minute=4)) == (0, 0, Quality.LATE)
    assert told(sensor.says(4, 6)) == (2, 3, NOTHING)


def test_a_report_that_may_be_of_after_the_restart_is_late_and_no_more() -> None:
    sensor = Sensor(1, 1)
    sensor.known.boot = 8 * MINUTE
    sensor.says(6, 7, minute=10)
    assert told(sensor.says(3, 2, minute=9)) == (0, 0, Quality.LATE)


def test_a_report_far_from_those_before_the_restart_is_late_and_no_more() -> None:
    sensor = Sensor(500, 400)
    sensor.says(2, 3, minute=10)
    assert told(sensor.says(40_000, 30_000, minute=5)) == (0, 0, Quality.LATE)


# What statuses tell


def test_a_start_between_two_reports_is_a_restart_though_totals_went_on() -> None:
    sensor = Sensor(5, 1)
    sensor.known.boot = 2 * MINUTE
    assert told(sensor.says(9, 1, minute=30)) == (9, 1, RESTART)
    assert told(sensor.says(12, 2)) == (3, 1, NOTHING)


def test_a_start_before_both_is_none_between_them() -> None:
    sensor = Sensor(5, 1)
    sensor.known.boot = 1 * MINUTE
    assert told(sensor.says(9, 1, minute=30)) == (4, 0, NOTHING)


def test_totals_too_great_for_a_start_so_recent_are_not_believed_to_be_of_it() -> None:
    sensor = Sensor(5000, 4000)
    sensor.known.boot = 2 * MINUTE
    assert told(sensor.says(5003, 4002, minute=3)) == (0, 0, Quality.CORRUPT)
    assert told(sensor.says(5004, 4004)) == (4, 4, Quality.CONFIRMED)


def test_a_clock_that_was_set_back_is_noticed_by_the_second_report() -> None:
    sensor = Sensor(500, 400)
    sensor.says(501, 400, minute=100)
    assert told(sensor.says(503, 402, minute=50)) == (0, 0, Quality.LATE)
    assert told(sensor.says(504, 403, minute=51)) == (3, 3, Quality.CONFIRMED)


def test_a_clock_set_back_by_a_day_is_no_reason_for_doubt() -> None:
    sensor = Sensor(500, 400)
    sensor.says(501, 400, minute=2000)
    assert told(sensor.says(503, 402, minute=50)) == (2, 2, NOTHING)


def undated(
    sensor: Sensor, total_in: int, total_out: int, minute: int = 0, *, start: bool = False
) -> CounterStep:
    sensor.minute = max(sensor.minute + 1, minute)
    received = sensor.minute * MINUTE
    new = CounterReading(total_in, total_out, NO_CLOCK, received, received, start)
    return apply_reading(sensor.known, new, lambda: sensor.busiest)


def test_a_start_without_a_date_soon_after_another_is_that_one_come_late() -> None:
    sensor = Sensor(500, 400)
    sensor.says(17, 23)
    assert told(undated(sensor, 0, 0, start=True)) == (0, 0, Quality.LATE)
    assert told(sensor.says(20, 25)) == (3, 2, NOTHING)


def test_and_if_it_was_another_the_next_report_shows_it() -> None:
    sensor = Sensor(500, 400)
    sensor.says(17, 23)
    undated(sensor, 0, 0, start=True)
    assert told(sensor.says(3, 2)) == (3, 2, RESTART)


def test_a_start_without_a_date_long_after_the_last_is_a_restart() -> None:
    assert told(undated(Sensor(500, 400), 0, 0, start=True)) == (0, 0, RESTART)


# A wrap point nobody knows


def test_an_unknown_wrap_point_is_learned_from_a_wrap_that_was_seen() -> None:
    sensor = Sensor(65_500, 300, top=-1)
    assert told(sensor.says(1, 302)) == (5, 2, Quality.WRAP)
    assert sensor.known.learned_top == 65_503


def test_a_report_that_comes_after_one_that_was_lost_shows_it_as_well() -> None:
    sensor = Sensor(65_500, 300, top=-1, busiest=60)
    sensor.says(3, 303, minute=5)
    assert sensor.known.learned_top == 65_503


def test_nothing_is_learned_from_a_wrap_in_an_outage_though_few_seem_to_have_passed() -> None:
    sensor = Sensor(65_500, 300, top=-1, busiest=60)
    found = sensor.says(2, 303, minute=40)
    assert found.quality == Quality.WRAP | Quality.WRAP_ASSUMED
    assert sensor.known.learned_top == -1


def test_what_was_learned_holds_for_the_other_total() -> None:
    sensor = Sensor(65_534, 65_000, top=-1)
    sensor.says(1, 65_002)
    for total in range(65_062, 65_520, 60):
        sensor.says(1, total)
    assert told(sensor.says(1, 20))[1:] == (65_535 - 65_482 + 21, Quality.WRAP)


def test_an_unknown_wrap_point_that_was_not_seen_is_assumed_and_said_to_be() -> None:
    sensor = Sensor(65_470, 300, top=-1)
    assert told(sensor.says(20, 330)) == (74, 30, Quality.WRAP | Quality.WRAP_ASSUMED)
    assert sensor.known.learned_top == -1


@pytest.mark.parametrize("top", [65_503, 65_523, 65_535])
def test_what_was_assumed_is_put_right_when_the_other_total_shows_the_point(top: int) -> None:
    sensor = Sensor(65_470, 65_300, top=-1)
    found = [sensor.says(20, 65_330)]
    assert found[0].quality & Quality.WRAP_ASSUMED
    found += [sensor.says(20, total) for total in range(65_360, top - 3, 30)]
    found += [sensor.says(20, total) for total in (top - 3, top - 1, 2)]
    # It takes some who come in to make up for those who were counted too many.
    found += [sensor.says(20 + more, 2) for more in range(3, 30, 3)]
    assert sum(step.delta_in for step in found) == top + 1 - 65_470 + 47
    assert sum(step.delta_out for step in found) == top + 1 - 65_300 + 2
    assert all(step.delta_in >= 0 and step.delta_out >= 0 for step in found)


def test_a_profile_that_says_it_later_puts_it_right_as_well() -> None:
    sensor = Sensor(65_470, 300, top=-1)
    sensor.says(20, 330)
    sensor.known.profile_top = 65_535
    assert told(sensor.says(22, 330)) == (2 + 12, 0, NOTHING)


def test_missing_events_are_added_within_what_a_door_can_pass() -> None:
    sensor = Sensor(65_470, 300, top=-1)
    sensor.says(20, 330)
    sensor.known.profile_top = 65_535  # twelve more than were counted
    at = sensor.known.last
    assert at is not None
    found = [
        apply_reading(sensor.known, at._replace(total_in=total, clock=at.clock + n), lambda: 0)
        for n, total in enumerate((78, 79), 1)
    ]
    assert [step.delta_in for step in found] == [64, 1 + 12 - 6]


def test_v2_totals_have_thirty_two_bits() -> None:
    sensor = Sensor((1 << 32) - 2, 300, top=(1 << 32) - 1)
    assert told(sensor.says(1, 300)) == (3, 0, Quality.WRAP)


# Bounds, whatever is said


@pytest.mark.parametrize("busiest", [0, 300, 100_000])
@pytest.mark.parametrize("minute", [2, 60, 60 * 24 * 90])
@pytest.mark.parametrize("stale", [(547, 447), (60, 50), (0, 3), (1000, 899), (547, 900)])
def test_a_stale_report_without_a_date_adds_nothing_however_late(
    stale: tuple[int, int], minute: int, busiest: int
) -> None:
    sensor = Sensor(1000, 900, busiest=busiest)
    assert told(undated(sensor, *stale, minute)) == (0, 0, Quality.LATE)
    assert told(sensor.says(1003, 902)) == (3, 2, NOTHING)


def test_a_stale_report_from_before_a_restart_adds_nothing() -> None:
    sensor = Sensor(1000, 900, busiest=300)
    sensor.says(2, 3, minute=10)
    assert told(undated(sensor, 980, 890, 600)) == (0, 0, Quality.CORRUPT)
    assert told(sensor.says(4, 3)) == (2, 0, NOTHING)


def test_a_device_without_a_clock_counts_on_and_wraps() -> None:
    sensor = Sensor(65_500, 900)
    assert told(undated(sensor, 65_521, 901, 2)) == (21, 1, NOTHING)
    assert told(undated(sensor, 4, 902, 3)) == (7, 1, Quality.WRAP)


def test_a_device_without_a_clock_that_restarts_is_believed_by_its_second_report() -> None:
    sensor = Sensor(1000, 900)
    assert told(undated(sensor, 2, 1, 30)) == (0, 0, Quality.LATE)
    assert told(undated(sensor, 5, 4, 31)) == (5, 4, RESTART | Quality.CONFIRMED)


SPANS = (0, 1, 60, 1800, 3600, 12 * 3600, 90 * 86_400)


def anything(random: Random) -> Iterator[CounterReading]:
    """Reports in any order, with any dates and any totals; some go on from others."""
    told: list[CounterReading] = []
    at = 500_000 * HOUR_MICROS
    for _ in range(random.randint(1, 25)):
        at += random.choice((1, 1, 1, -1)) * random.choice(SPANS) * SECOND_MICROS
        bounds = random.choice(((0, 65_535), (0, 80), (65_440, 65_535)))
        said = random.randint(*bounds), random.randint(*bounds)
        if told and random.random() < 0.6:
            former = random.choice(told[-3:])
            said = (
                (former.total_in + random.randint(0, 90)) % 65_536,
                (former.total_out + random.randint(0, 90)) % 65_536,
            )
        clock = at + random.choice((0, 0, 1, -1)) * random.choice(SPANS) * SECOND_MICROS
        times = (NO_CLOCK, at, at) if random.random() < 0.25 else (clock, clock, at)
        told.append(CounterReading(*said, *times, random.random() < 0.1))
        yield told[-1]


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from((65_503, 65_523, 65_535)), st.integers(0, 200_000))
@example(394_660, 65_503, 0)  # a wrap at an assumed point is corrected by a report of many events
def test_no_report_adds_more_than_a_door_can_pass(seed: int, top: int, burst: int) -> None:
    known, rate = CounterState(profile_top=top), EventRate()
    rate.observe(500_000 * HOUR_MICROS - 2 * HOUR_MICROS, 0)
    rate.observe(
        500_000 * HOUR_MICROS - HOUR_MICROS, burst
    )  # a backlog that came at once, or worse
    for new in anything(Random(seed)):
        compared = (known.last, known.suspect, known.former)
        before = [each for each in compared if each is not None]
        found = apply_reading(
            known, new, lambda: rate.percentile(known.last.received if known.last else 0)
        )
        if found.accepted:
            rate.observe(new.received, found.delta_in + found.delta_out)
        elapsed = max((new.received - each.received for each in before), default=0)
        most = MIN_REACH + 3600 * max(elapsed, 0) // HOUR_MICROS
        assert 0 <= found.delta_in <= most
        assert 0 <= found.delta_out <= most


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32))
def test_stale_reports_without_a_date_change_no_sum(seed: int) -> None:
    """Copies of old reports, dates scrambled, between those of a device that counts."""
    random = Random(seed)
    known = CounterState(profile_top=65_523)
    totals, at = (30_000, 64_000), 500_000 * HOUR_MICROS
    sent: list[tuple[int, int]] = []
    added_in = added_out = 0
    for _ in range(random.randint(2, 20)):
        at += random.choice((1, 60, 1800, 20_000)) * SECOND_MICROS
        totals = totals[0] + random.randint(0, 5), totals[1] + random.randint(0, 5)
        sent.append(totals)
        readings = [CounterReading(*totals, at, at, at)]
        if random.random() < 0.5:
            later = at + SECOND_MICROS
            readings.append(CounterReading(*random.choice(sent), NO_CLOCK, later, later))
        for new in readings:
            found = apply_reading(known, new, lambda: 5000)
            added_in, added_out = added_in + found.delta_in, added_out + found.delta_out
    assert (added_in, added_out) == (totals[0] - sent[0][0], totals[1] - sent[0][1])
