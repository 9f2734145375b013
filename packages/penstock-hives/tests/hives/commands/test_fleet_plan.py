"""When a run of the simulated fleet begins and ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock_hives.commands.fleet import FleetPlan

NOW = datetime(2026, 3, 2, 12, 3, 20, tzinfo=UTC)


def test_a_backlog_ends_now() -> None:
    plan = FleetPlan.of(3600.0, False, None, None, 1.0, NOW)
    assert (plan.start, plan.until) == (NOW - timedelta(hours=1), NOW)


def test_a_backlog_that_goes_on_live_leaves_the_step_at_hand_to_that() -> None:
    plan = FleetPlan.of(3600.0, True, None, None, 1.0, NOW)
    assert plan.until == datetime(2026, 3, 2, 12, tzinfo=UTC)
