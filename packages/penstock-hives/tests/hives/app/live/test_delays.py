"""Latency is of each figure, from the broker to here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock_hives.live.subscriber import LatencyTracker

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def figure(seconds_ago: float, **given: Any) -> dict[str, Any]:
    as_of = (NOON - timedelta(seconds=seconds_ago)).isoformat()
    return {"hive": 1, "version": 1, "quality": "good", "as_of": as_of, **given}


def test_each_figure_counts_by_the_time_it_took() -> None:
    delays = LatencyTracker(lambda: NOON)
    for tenths in range(1, 101):
        delays.record(figure(tenths / 10))

    assert delays.summary() == {"p50": 5.1, "p95": 9.6}


def test_the_last_ones_are_kept() -> None:
    delays = LatencyTracker(lambda: NOON, max_samples=2)
    for seconds in (60, 1, 1):
        delays.record(figure(seconds))

    assert delays.summary() == {"p50": 1.0, "p95": 1.0}


@pytest.mark.parametrize(
    "given", [{"quality": "stale"}, {"as_of": None}, {"as_of": "noon"}, {"as_of": "2026-11-15"}]
)
def test_what_took_no_time_or_does_not_say_is_left_out(given: dict[str, Any]) -> None:
    delays = LatencyTracker(lambda: NOON)

    delays.record(figure(1, **given))

    assert delays.summary() == {"p50": None, "p95": None}
