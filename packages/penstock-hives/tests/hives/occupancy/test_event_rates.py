"""Events per hour: one by one and by the column give the same, in any batches."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.occupancy.device_clock import HOUR_MICROS
from penstock_hives.occupancy.event_rates import BUCKET_EDGES, EventRate, EventRates

Observed = list[tuple[int, int, int]]

observations = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5 * HOUR_MICROS), st.integers(0, 5000)), max_size=80
)


def one_by_one(reports: Observed) -> list[EventRate]:
    rates = [EventRate() for _ in range(4)]
    for sensor, at, events in reports:
        rates[sensor].observe(at, events)
    return rates


def by_column(rates: EventRates, reports: Observed) -> None:
    ordered = sorted(reports, key=lambda report: report[0])
    sensor, at, events = (np.array([each[n] for each in ordered], np.int64) for n in range(3))
    rates.observe(sensor, at, events)


@given(observations, st.integers(0, 80))
def test_columns_in_any_batches_tally_what_single_reports_do(reports: Observed, cut: int) -> None:
    rates = EventRates.unknown(4)
    by_column(rates, reports[:cut])
    by_column(rates, reports[cut:])
    for sensor, rate in enumerate(one_by_one(reports)):
        assert rates.one(sensor) == rate


@given(observations)
def test_both_tell_the_same_percentile(reports: Observed) -> None:
    rates = EventRates.unknown(4)
    by_column(rates, reports)
    singly = [rate.percentile(6 * HOUR_MICROS) for rate in one_by_one(reports)]
    assert rates.percentile(np.full(4, 6 * HOUR_MICROS)).tolist() == singly


@given(st.lists(st.tuples(st.integers(0, 9 * HOUR_MICROS), st.integers(0, 500)), max_size=250))
def test_many_reports_of_one_sensor_at_once_tally_as_singly(reports: list[tuple[int, int]]) -> None:
    singly, at_once = EventRate(), EventRate()
    for at, events in reports:
        singly.observe(at, events)
    at_once.observe_all(*np.array(reports, np.int64).reshape(-1, 2).T)
    assert at_once == singly


def test_a_busy_hour_in_a_hundred_makes_the_percentile() -> None:
    rate = EventRate()
    for hour in range(300):
        rate.observe(hour * HOUR_MICROS, 400 if hour % 50 == 1 else 10)
    assert 400 <= rate.percentile(300 * HOUR_MICROS) < 480


def test_one_busy_hour_in_a_thousand_does_not() -> None:
    rate = EventRate()
    for hour in range(1000):
        rate.observe(hour * HOUR_MICROS, 4000 if hour == 500 else 10)
    assert rate.percentile(1000 * HOUR_MICROS) < 13


def test_what_was_counted_over_an_outage_is_brought_to_an_hour() -> None:
    rate = EventRate()
    rate.observe(0, 0)
    rate.observe(4 * HOUR_MICROS, 400)
    assert rate.percentile(4 * HOUR_MICROS) < 120


def test_a_sensor_nobody_has_heard_of_does_nothing() -> None:
    assert EventRate().percentile(HOUR_MICROS) == 0


def test_buckets_are_a_quarter_apart_at_most() -> None:
    assert (np.diff(BUCKET_EDGES[8:]) * 4 <= BUCKET_EDGES[8:-1]).all()
