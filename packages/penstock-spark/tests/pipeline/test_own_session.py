"""Work in a process with its own session."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock_spark.own_session import OwnSessionFailed, in_own_session


def count_rows(spark: SparkSession, rows: int) -> tuple[int, int, int]:
    """And the process, and how many tasks it runs at a time."""
    return spark.range(rows).count(), os.getpid(), spark.sparkContext.defaultParallelism


def refuse(spark: SparkSession) -> None:
    raise LookupError("no such hive")


class Exit:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


@pytest.mark.slow
def test_work_returns_its_result_from_another_process(spark: SparkSession) -> None:
    rows, process, tasks = in_own_session(spark, count_rows, 7)

    assert rows == 7
    assert tasks == spark.sparkContext.defaultParallelism // 2
    assert process != os.getpid()
    assert spark.range(3).count() == 3  # this session is still there


@pytest.mark.slow
def test_what_work_raises_is_reported(spark: SparkSession) -> None:
    with pytest.raises(OwnSessionFailed, match="LookupError: no such hive"):
        in_own_session(spark, refuse)


def test_a_process_that_ends_is_reported(spark: SparkSession) -> None:
    with pytest.raises(OwnSessionFailed, match="exit status 3"):
        in_own_session(spark, count_rows, Exit())  # type: ignore[arg-type]
