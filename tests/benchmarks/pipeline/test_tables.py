"""The chapter of the pipeline's benchmarks: what was measured, and only that."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.machine import Machine
from benchmarks.pipeline.catchup import CaughtUp
from benchmarks.pipeline.engines import Took
from benchmarks.pipeline.live import Lived, Memory
from benchmarks.pipeline.parts import Spent
from benchmarks.pipeline.state_store import Stateful
from benchmarks.pipeline.tables import Found, chapter

MACHINE = Machine("a processor", 2, 24 * 10**9, "Linux 6", "CPython 3.11")


def caught_up(reports: int, seconds_each: float = 5e-6, first: float = 2.0) -> CaughtUp:
    used = Spent(0.0, 0.0, first, seconds_each * reports)
    return CaughtUp(reports, reports / 250_000, used, 3, 1.5)


def page(found: Found) -> str:
    return chapter("python -m benchmarks.pipeline", "2026-11-15", MACHINE, "local[2]", found)


def test_what_was_not_measured_has_no_table() -> None:
    assert "##" not in page(Found())


def test_latencies_are_told_by_their_percentiles() -> None:
    memory = Memory(400 << 20, 100 << 20, 200 << 20, 50 << 20, 35.0)
    lived = Lived(2000, 10.0, 60.0, np.arange(1, 101) / 100, memory, 1.0)

    row = "| 100 | 0.51 | 0.95 | 0.99 | 1.00 | 750 | 400 | 100 | 200 | 50 | 35 | 1.0 |"
    assert row in page(Found(lived=lived))


def test_the_model_beyond_is_a_beginning_and_so_much_a_report() -> None:
    found = page(Found(caught_up=[caught_up(10**5), caught_up(10**6), caught_up(10**7)]))

    assert "| 10,000,000 | 3 | 40.0 | 250,000 | 5.2 |" in found
    assert "2.0 s fixed cost and 5.00 µs per report" in found


def test_every_engine_has_a_row() -> None:
    found = page(Found(took=[Took("this", 1000, 0.5), Took("that", 1000, 0.25)]))

    assert "| this | 1,000 | 0.50 | 2,000 |" in found
    assert "| that | 1,000 | 0.25 | 4,000 |" in found


def test_ways_to_keep_state_are_told_by_their_cpu_time() -> None:
    found = page(Found(stateful=[Stateful("shards", 1_000_000, 5, 9.0, 3.5)]))

    assert "| shards | 1,000,000 | 5 | 9.0 | 3.5 |" in found


def test_processor_time_is_of_what_happened_since() -> None:
    used = Spent(4.0, 3.0, 2.0, 1.5).since(Spent(1.0, 1.0, 1.0, 1.0))

    assert used == Spent(3.0, 2.0, 1.0, 0.5)
    assert used.total == pytest.approx(6.5)
