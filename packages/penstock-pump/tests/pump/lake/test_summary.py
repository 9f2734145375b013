"""A day of the pump as Spark sums it up, and its picture."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.core.errors import ConfigurationError
from penstock_pump.lake.announcements import ANNOUNCEMENT_SCHEMA, summary
from penstock_pump.lake.trace import plot_summary

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)

pytestmark = pytest.mark.timeout(300)


def post(relpath: str, after: float, value: str, exchange: str = "xs") -> dict[str, Any]:
    at = NOON + timedelta(seconds=after)
    return {
        "kind": "post", "at": at, "moment": NOON, "exchange": exchange, "relpath": relpath,
        "event": "modify", "sum": f"s,{value}", "size": 100, "length": 100, "day": at.date(),
    }  # fmt: skip


def report(relpath: str, code: int, message: str) -> dict[str, Any]:
    facts = {"code": code, "message": message, "seconds": 0.5}
    return {**post(relpath, 9.0, "1", "xr"), "kind": "report", **facts}


ROWS = [
    post("a", 1.0, "1"),
    post("a", 2.0, "1"),  # the same again
    post("a", 3.0, "2"),  # the same file, and another content
    post("b", 4.0, "1"),
    post("a", 5.0, "1", "xw"),
    report("a", 201, "Downloaded"),
    report("a", 304, "duplicate"),
    report("b", 503, "no answer"),
    {"kind": "unreadable", "exchange": "xs", "day": NOON.date(), "code": 417},
]


@pytest.fixture(scope="module")
def rows(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    path = tmp_path_factory.mktemp("silver") / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS, ANNOUNCEMENT_SCHEMA), path)
    found = summary(spark.read.parquet(str(path))).collect()
    return {row.exchange: row.asDict() for row in found}


def test_volume_and_duplicates_of_each_exchange(rows: dict[str, dict[str, Any]]) -> None:
    xs = rows["xs"]
    assert (xs["posts"], xs["files"], xs["bytes"], xs["duplicates"]) == (4, 2, 400, 1)
    assert (xs["unreadable"], xs["day"]) == (1, date(2026, 11, 15))
    assert (rows["xw"]["posts"], rows["xw"]["duplicates"]) == (1, 0)


def test_latency_is_from_the_first_announcement_to_this_hop(
    rows: dict[str, dict[str, Any]],
) -> None:
    assert (rows["xs"]["latency_p50"], rows["xs"]["latency_max"]) == (2.0, 4.0)
    assert rows["xw"]["latency_p50"] == 5.0
    assert rows["xr"]["latency_p50"] is None


def test_reports_are_counted_by_what_they_say(rows: dict[str, dict[str, Any]]) -> None:
    xr = rows["xr"]
    counts = [xr[name] for name in ("done", "unchanged", "winnowed", "failed", "posts")]
    assert counts == [1, 1, 1, 1, 0]
    assert xr["took_p50"] == 0.5


def test_a_picture_is_drawn_of_it(rows: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    plot_summary(list(rows.values()), tmp_path / "day.svg")
    assert "<svg" in (tmp_path / "day.svg").read_text()
    with pytest.raises(ConfigurationError, match=r"\.svg"):
        plot_summary(list(rows.values()), tmp_path / "day.doc")
