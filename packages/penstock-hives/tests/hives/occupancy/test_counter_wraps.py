"""Where totals wrap when no profile says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock_hives.occupancy.counter_rules import (
    UNKNOWN_WRAP,
    WrapPoint,
    learn_wrap_point,
    wrap_point_of,
)
from penstock_hives.sensors.protocol import FirmwareProfile, ReportType, ReportV1


def test_the_profile_says_where() -> None:
    assert wrap_point_of(65535, UNKNOWN_WRAP, 100) == WrapPoint(65535, True)


def test_a_total_above_the_profile_s_point_excludes_it() -> None:
    assert wrap_point_of(65503, UNKNOWN_WRAP, 65504) == WrapPoint(65523, False)


def test_without_a_profile_it_is_the_default() -> None:
    assert wrap_point_of(UNKNOWN_WRAP, UNKNOWN_WRAP, 1000) == WrapPoint(65523, False)


def test_a_total_above_the_default_leaves_sixteen_bits() -> None:
    assert wrap_point_of(UNKNOWN_WRAP, UNKNOWN_WRAP, 65524) == WrapPoint(65535, True)


@pytest.mark.parametrize("top", [65503, 65523, 65535])
def test_a_wrap_between_two_reports_in_a_row_shows_where(top: int) -> None:
    assert learn_wrap_point(seen=top - 2, old=top - 2, new=1, other=1, most=8) == top


def test_a_wrap_in_an_outage_shows_nothing() -> None:
    assert learn_wrap_point(seen=65400, old=65400, new=80, other=150, most=400) == UNKNOWN_WRAP


def test_nor_does_one_that_looks_as_if_few_had_passed_where_many_can_have() -> None:
    """With 65503 it were eight; with 65523 twenty-eight, which takes longer."""
    assert learn_wrap_point(seen=65502, old=65502, new=4, other=2, most=27) == 65503
    assert learn_wrap_point(seen=65502, old=65502, new=4, other=2, most=28) == UNKNOWN_WRAP


def test_points_below_what_was_seen_before_are_no_candidates() -> None:
    assert learn_wrap_point(seen=65520, old=65500, new=0, other=0, most=8) == UNKNOWN_WRAP


def sent(top: int, passed: int) -> list[bytes]:
    """The frames of a device that wraps there, around an outage in which so many went in."""
    totals = (65_398, 65_400, (65_400 + passed) % (top + 1), (65_405 + passed) % (top + 1))
    noon = datetime(2026, 3, 9, 12, tzinfo=UTC).replace(tzinfo=None)
    times = (noon + timedelta(minutes=minute) for minute in (0, 1, 91, 93))
    return [
        ReportV1(ReportType.EVENTS, total, 300, time).encode(FirmwareProfile())
        for total, time in zip(totals, times, strict=True)
    ]


def test_no_reader_can_tell_at_which_point_a_total_wrapped_unseen() -> None:
    """Three devices, three numbers of people, the same bytes: whatever a rule says of them, it is
    wrong of two."""
    assert sent(65503, 150) == sent(65523, 170) == sent(65535, 182)
