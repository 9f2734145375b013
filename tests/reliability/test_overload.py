"""Short versions of the overload and of the soak."""

from __future__ import annotations

import pytest

from tests.reliability.overload import Overload, measure
from tests.reliability.soak import run

MIB = 1 << 20


def test_the_broker_keeps_to_its_memory_under_overload() -> None:
    # What the consumers are sent and do not acknowledge is more than the limit.
    overload = Overload(
        connections=50,
        slow_consumers=40,
        publishers=2,
        queue_bytes=256 * MIB,
        memory_bytes=128 * MIB,
        idle_seconds=0.2,
    )

    found = measure(overload)

    assert found["queue_bytes"] == 256 * MIB
    assert found["peak_mb"] < found["limit_mb"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_churn_leaves_nothing_behind() -> None:
    soak, _ = run(minutes=3.0, samples=20)

    assert soak.growth() == {}
