"""Tables show medians over the rounds, and the first broker's figures over the second's."""

from __future__ import annotations

import json

import pytest

from benchmarks.broker import report
from benchmarks.broker.load import Measurement
from benchmarks.broker.machine import this_machine
from benchmarks.broker.memory import Footprint
from benchmarks.broker.results import Results


@pytest.fixture
def results() -> Results:
    results = Results("python -m benchmarks.broker", "2026-01-31", this_machine())
    for wall in (1.0, 2.0, 9.0):
        results.runs.append(Measurement("a", "penstock", 10**6, wall, 3.0, 1.0, 0.1, 0.2, 10**8))
        results.runs.append(
            Measurement("a", "rabbitmq", 10**6, 2 * wall, 12.0, 1.0, 0.2, 0.2, 2 * 10**8)
        )
    return results


def test_the_median_round_is_reported_and_compared(results: Results) -> None:
    page = report.markdown(results)

    assert "| a | penstock | 500,000 | 3.00 | 1.00 | 100 | 200 | 100 |" in page
    assert "| a | rabbitmq | 250,000 | 12.00 | 1.00 | 200 | 200 | 200 |" in page
    assert "| a | ratio | 2.00 | 0.25 |  | 0.50 | 1.00 | 0.50 |" in page


def test_memory_is_given_per_connection(results: Results) -> None:
    results.footprints.append(Footprint("penstock", 5000, 50_000_000, 100_000_000))

    assert "| penstock | 50 | 5,000 | 100 | 10.0 |" in report.markdown(results)


def test_the_json_holds_every_run_and_the_medians(results: Results) -> None:
    document = json.loads(results.to_json())

    assert len(document["runs"]) == 6
    assert [each["rate"] for each in document["medians"]] == [500_000, 250_000]
