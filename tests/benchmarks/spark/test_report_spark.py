"""The page shows medians, what they cost, and how they compare with the yardstick."""

from __future__ import annotations

import json

import pytest

from benchmarks.harness.machine import this_machine
from benchmarks.harness.results import Results
from benchmarks.spark import report
from benchmarks.spark.rates import Rate, Round

MILLION = 10**6


def rate(name: str, *seconds: float) -> Rate:
    return Rate(name, MILLION, [Round(each, each / 2, each / 4) for each in seconds])


@pytest.fixture
def comparison() -> report.Comparison:
    rates = [rate("a batch", 1.0, 2.0, 9.0), rate("pika", 8.0, 8.0, 9.0)]
    return report.Comparison("From rabbitmq", rates, "pika", "Of chunks there are few.")


@pytest.fixture
def results() -> Results:
    return Results("python -m benchmarks.spark", "2026-01-31", this_machine(), {"Spark": "4.3.0"})


def test_the_median_round_is_reported_and_compared(
    results: Results, comparison: report.Comparison
) -> None:
    page = report.markdown(results, "As one does.", [comparison])

    assert page.startswith("# Spark's benchmarks\n")
    assert "As one does." in page
    assert "## From rabbitmq" in page
    assert page.endswith("\n\nOf chunks there are few.\n")
    assert "| a batch | 1,000,000 | 500,000 | 1.00 | 0.50 | 4.00 |" in page
    assert "| pika | 1,000,000 | 125,000 | 4.00 | 2.00 |  |" in page


def test_the_json_holds_every_round(results: Results, comparison: report.Comparison) -> None:
    document = json.loads(report.to_json(results, [comparison]))

    assert [each["rate"] for each in document["ways"]] == [500_000, 125_000]
    assert [each["seconds"] for each in document["ways"][0]["rounds"]] == [1.0, 2.0, 9.0]
