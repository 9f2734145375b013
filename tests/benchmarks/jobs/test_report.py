"""The tables say what was measured, and ratios are the first row's over the others'."""

from __future__ import annotations

from benchmarks.harness.machine import Machine
from benchmarks.harness.results import Results
from benchmarks.jobs import report, science
from benchmarks.jobs.measuring import Drain, Latency
from benchmarks.jobs.report import Figures
from benchmarks.jobs.science import Build, Judged, Small
from benchmarks.jobs.waits import Waits


def test_a_chapter_has_a_table_for_all_that_was_measured() -> None:
    figures = Figures(
        [
            Drain("penstock", "rabbitmq", 100, 9_000.0, 5e-5, 2e-5),
            Drain("dramatiq", "rabbitmq", 100, 3_000.0, 2e-4, 1e-4),
            Drain("penstock", "rabbitmq", 100, 11_000.0, 5e-5, 2e-5),
        ],
        [Latency("penstock", "rabbitmq", 100, 0.0005, 0.002)],
        [Waits("penstock", "coroutines", 5_000, 5.25, 1_000, 1.5, 70_000_000)],
        [
            Build(1, 14, 30, 6, 420, 135_000, 100.0, 100.0),
            Build(2, 14, 30, 6, 420, 135_000, 60.0, 110.0),
        ],
        [Judged(100_000, 2.0, 3.0, 10**9)],
        [Small(15, 5, 0.25)],
    )
    machine = Machine("a processor", 2, 8 * 10**9, "Linux", "CPython 3.11")
    results = Results("python -m benchmarks.jobs", "2026-05-05", machine)
    text = report.chapter(results, "How it was measured.", figures)
    assert "| penstock | rabbitmq | 100 | 10,000 | 1.00 | 0.050 | 0.020 |" in text
    assert "| dramatiq | rabbitmq | 100 | 3,000 | 3.33 | 0.200 | 0.100 |" in text
    assert "| penstock | rabbitmq | 100 | 0.50 | 2.00 |" in text
    assert "| penstock | coroutines | 5,000 | 5.25 | 1,000 | 0.300 | 70 |" in text
    assert "| 2 | 14 | 30 | 6 of 420 | 135,000 | 60.0 | 2,250 | 110.0 | 0.83 | 0.91 |" in text
    assert "| 100,000 | 2.0 | 50,000 | 30.0 | 1,000 |" in text


def test_a_search_makes_as_many_fits_as_the_specification_counts() -> None:
    assert science.EVALUATIONS == 450
