"""Messages that repeat themselves, that are missing, and totals in the other byte order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.occupancy.anomalies import (
    BIG_ENDIAN,
    DUPLICATE_WINDOW,
    LITTLE_ENDIAN,
    correct_byte_order,
    count_missed,
    find_duplicates,
)
from penstock_hives.occupancy.sensor_states import SensorStates
from penstock_hives.sensors.protocol import ByteOrder, FirmwareProfile, ReportType, ReportV1

ONE = np.zeros(1, np.int64)


def copies(contents: list[int], states: SensorStates) -> list[bool]:
    sensor = np.zeros(len(contents), np.int64)
    found: list[bool] = find_duplicates(sensor, np.array(contents, np.uint64), states).tolist()
    return found


def test_the_same_content_once_more_is_a_copy() -> None:
    assert copies([5, 6, 5, 7], SensorStates.unknown(1)) == [False, False, True, False]


def test_a_copy_in_the_next_batch_is_one() -> None:
    states = SensorStates.unknown(1)
    copies([5, 6], states)
    assert copies([6], states) == [True]


def test_the_same_content_after_many_others_is_another_message() -> None:
    states = SensorStates.unknown(1)
    assert not any(copies([1, *range(2, DUPLICATE_WINDOW + 2), 1], states))


def test_the_same_content_of_another_sensor_is_no_copy() -> None:
    found = find_duplicates(np.array([0, 1]), np.array([5, 5], np.uint64), SensorStates.unknown(2))
    assert found.tolist() == [False, False]


@given(st.lists(st.integers(0, 20), max_size=200), st.integers(0, 200))
def test_copies_are_the_same_in_any_batches(contents: list[int], cut: int) -> None:
    whole, parts = SensorStates.unknown(1), SensorStates.unknown(1)
    expected = [
        value in contents[max(0, n - DUPLICATE_WINDOW) : n] for n, value in enumerate(contents)
    ]
    assert copies(contents, whole) == expected
    assert copies(contents[:cut], parts) + copies(contents[cut:], parts) == expected
    assert whole.recent.tolist() == parts.recent.tolist() == contents[-DUPLICATE_WINDOW:]


def missed(counters: list[int], times: list[int] | None = None, modulus: int = 256) -> int:
    rows = len(counters)
    sensor, moduli = np.zeros(rows, np.int64), np.full(rows, modulus)
    utc = np.array(times or range(rows), np.int64)
    return int(count_missed(sensor, np.array(counters), moduli, utc, SensorStates.unknown(1)).sum())


def test_counters_in_a_row_miss_nothing() -> None:
    assert missed([254, 255, 0, 1]) == 0


def test_a_gap_is_what_is_missing() -> None:
    assert missed([10, 14, 15]) == 3


def test_what_comes_late_is_not_missing() -> None:
    assert missed([10, 12, 11, 13], times=[0, 2, 1, 3]) == 0


def test_what_comes_late_in_the_same_second_is_not_missing() -> None:
    assert missed([10, 12, 11, 13], times=[0, 0, 0, 0]) == 0


def test_more_than_half_a_round_is_missing_if_time_went_on() -> None:
    assert missed([10, 210]) == 199


@given(st.sets(st.integers(0, 400)), st.integers(0, 400))
def test_missing_is_counted_the_same_in_any_batches(arrived: set[int], cut: int) -> None:
    sent = sorted(arrived)
    states = SensorStates.unknown(1)
    total = 0
    for part in (sent[:cut], sent[cut:]):
        sensor = np.zeros(len(part), np.int64)
        counter = np.array([number & 0xFFFF for number in part], np.int64)
        moduli, utc = np.full(len(part), 1 << 16), np.array(part, np.int64)
        total += int(count_missed(sensor, counter, moduli, utc, states).sum())
    assert total == (sent[-1] - sent[0] + 1 - len(sent) if sent else 0)


@given(st.integers(0, 65535), st.integers(0, 65535))
def test_totals_read_in_the_wrong_order_are_turned(total_in: int, total_out: int) -> None:
    body = ReportV1(ReportType.START, total_in, total_out, None).encode(
        FirmwareProfile(ByteOrder.LITTLE)
    )
    wrong = ReportV1.decode(body, FirmwareProfile(ByteOrder.BIG))
    totals = np.array([wrong.total_in]), np.array([wrong.total_out])
    little, big = np.array([LITTLE_ENDIAN]), np.array([BIG_ENDIAN])
    found = correct_byte_order(ONE, totals, little, big, np.ones(1, bool), SensorStates.unknown(1))
    assert found is not None
    assert (found.total_in[0], found.total_out[0]) == (total_in, total_out)


def test_a_proof_holds_for_later_reports_and_batches_and_not_for_earlier_ones() -> None:
    states = SensorStates.unknown(1)
    sensor, read_as = np.zeros(3, np.int64), np.full(3, BIG_ENDIAN)
    totals = np.zeros(3, np.int64), np.zeros(3, np.int64)
    proved = np.array([0, LITTLE_ENDIAN, 0])
    found = correct_byte_order(sensor, totals, proved, read_as, np.ones(3, bool), states)
    assert found is not None
    assert found.rows.tolist() == [False, True, True]
    later = correct_byte_order(
        sensor, totals, np.zeros(3, np.int64), read_as, np.ones(3, bool), states
    )
    assert later is not None
    assert later.rows.all()
