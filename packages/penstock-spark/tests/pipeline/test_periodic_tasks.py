"""What is done beside a query, now and then."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.errors import ResourceLocked
from penstock_spark.flow import PeriodicTask, run_periodic_tasks

SECONDS = 60.0


@dataclass
class Spark:
    """As much of a session as periodic_tasks see."""

    pools: list[tuple[str, str]] = field(default_factory=list)

    @property
    def sparkContext(self) -> Any:
        return SimpleNamespace(setLocalProperty=lambda *pair: self.pools.append(pair))


@pytest.mark.parametrize("error", [None, ValueError("no"), ResourceLocked("taken")])
def test_a_chore_is_done_again_whatever_became_of_the_last_time(error: Exception | None) -> None:
    spark, twice = Spark(), threading.Semaphore(0)

    def work(_: Any) -> None:
        twice.release()
        if error is not None:
            raise error

    with run_periodic_tasks(spark, "flow", [PeriodicTask("sweeping", work, 0.01, 0.01)]):  # type: ignore[arg-type]
        assert twice.acquire(timeout=SECONDS)
        assert twice.acquire(timeout=SECONDS)
    assert spark.pools == [("spark.scheduler.pool", "sweeping")]


def test_after_a_failure_it_waits_longer() -> None:
    failed = threading.Semaphore(0)

    def work(_: Any) -> None:
        failed.release()
        raise ValueError("no")

    with run_periodic_tasks(Spark(), "flow", [PeriodicTask("sweeping", work, 0.01, 3600.0)]):  # type: ignore[arg-type]
        assert failed.acquire(timeout=SECONDS)
        assert not failed.acquire(timeout=0.2)


def test_the_end_of_the_block_does_not_wait_for_the_next_time() -> None:
    task = PeriodicTask("sweeping", lambda _: None, 3600.0, 3600.0)
    with run_periodic_tasks(Spark(), "flow", [task]):  # type: ignore[arg-type]
        pass
