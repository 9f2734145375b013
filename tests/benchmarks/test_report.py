"""Tables show medians over the rounds, and the first broker's figures over the others'."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import report
from benchmarks.harness.comparison import compare, store
from benchmarks.harness.machine import this_machine
from benchmarks.harness.measurement import Measurement
from benchmarks.harness.memory import Footprint
from benchmarks.harness.results import Results

ACCOUNT = report.Account("Some benchmarks", "As one does.", {"a": "the first", "b": "a fan-out"})
MILLION = 10**6


def run(
    peer: str, wall: float, cpu: float, *, scenario: str = "a", deliveries: int = MILLION
) -> Measurement:
    return Measurement(
        scenario, peer, MILLION, deliveries, wall, cpu, 1.0, wall / 10, wall / 5, 10**8
    )


@pytest.fixture
def results() -> Results:
    results = Results("python -m benchmarks.some", "2026-01-31", this_machine())
    for wall in (1.0, 2.0, 9.0):
        results.runs += [run("penstock", wall, 3.0), run("rabbitmq", 2 * wall, 12.0)]
    return results


def test_the_median_round_is_reported_and_compared(results: Results) -> None:
    page = report.markdown(results, ACCOUNT)

    assert "| a | penstock | 500,000 | 3.00 |  | 1.00 | 200 | 400 | 100 |" in page
    assert "| a | rabbitmq | 250,000 | 12.00 |  | 1.00 | 400 | 800 | 100 |" in page
    assert "| a | ÷ rabbitmq | 2.00 | 0.25 |  |  | 0.50 | 0.50 | 1.00 |" in page


def test_the_first_is_compared_with_each_other(results: Results) -> None:
    results.runs.append(run("third", 20.0, 120.0))

    page = report.markdown(results, ACCOUNT)

    assert "| a | ÷ rabbitmq | 2.00 | 0.25 |" in page
    assert "| a | ÷ third | 10.00 | 0.025 |" in page


def test_a_fan_out_has_its_cost_per_delivery_too(results: Results) -> None:
    results.runs.append(run("penstock", 1.0, 5.0, scenario="b", deliveries=100 * MILLION))

    assert "| b | penstock | 1,000,000 | 5.00 | 0.05 |" in report.markdown(results, ACCOUNT)


def test_memory_is_given_per_connection(results: Results) -> None:
    results.footprints.append(Footprint("penstock", "clients", 5000, 50_000_000, 100_000_000))

    assert "| penstock | 50 | 5,000 clients | 100 | 10.0 |" in report.markdown(results, ACCOUNT)


def test_the_page_says_what_each_scenario_is(results: Results) -> None:
    page = report.markdown(results, ACCOUNT)

    assert page.startswith("# Some benchmarks\n")
    assert "* **a**: the first" in page
    assert "**b**" not in page


def test_the_json_holds_every_run_and_the_medians(results: Results) -> None:
    document = json.loads(results.to_json())

    assert len(document["runs"]) == 6
    assert [each["rate"] for each in document["medians"]] == [500_000, 250_000]


def test_what_has_moved_since_the_previous_release(results: Results, tmp_path: Path) -> None:
    previous = tmp_path / "previous.json"
    results.versions["penstock"] = "1.0"
    assert compare(results, previous) is None
    store(results, previous)
    results.runs = [run("penstock", 1.0, cpu) for cpu in (6.0, 6.1, 6.2)]
    results.runs.append(run("penstock", 1.0, 1.0, scenario="b"))

    comparison = compare(results, previous)

    assert comparison is not None
    page = report.markdown(results, ACCOUNT, comparison)
    assert "## Broker CPU-s/1M compared with penstock 1.0\n" in page
    assert "| a | 3.00 | 6.10 | 2.03 | slower |" in page
    assert "| b | 1.00" not in page, "it is new"


def test_figures_of_another_machine_are_labelled(results: Results, tmp_path: Path) -> None:
    previous = tmp_path / "previous.json"
    results.versions["penstock"] = "1.0"
    store(results, previous)
    results.machine = replace(results.machine, cpu="another")

    comparison = compare(results, previous)

    assert comparison is not None
    assert comparison.title.endswith("measured on another machine")
    assert [row.verdict for row in comparison.rows] == ["same"]
