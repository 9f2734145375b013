"""The benchmark of matching runs, checks its answers, and says what it measured."""

from __future__ import annotations

import pytest

from benchmarks.content.__main__ import parse_rate
from benchmarks.content.links import measure as carry
from benchmarks.content.links import table
from benchmarks.content.measuring import measure
from benchmarks.content.workloads import WORKLOADS


@pytest.mark.parametrize(("workload", "share"), [("W1", 0.0007), ("W2", 0.034)])
def test_a_workload_is_what_it_is_said_to_be(workload: str, share: float) -> None:
    figures = measure(workload, 3000, seconds=0.05)

    assert figures.matches / 3000 == pytest.approx(share, rel=0.5)
    assert figures.rate > figures.naive_rate
    assert set(WORKLOADS) >= {figures.workload}


@pytest.mark.slow  # two brokers have to start
async def test_publications_are_carried_from_broker_to_broker() -> None:
    figures = await carry(300, durable=True)

    assert figures.rate > 0
    assert "| durable |" in table([figures])


def test_reading_is_measured() -> None:
    assert parse_rate(0.05) > 0
