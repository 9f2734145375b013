"""A file's way, read from the lake's files; Spark has no part in it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.errors import NotFound
from penstock_pump.lake.announcements import ANNOUNCEMENT_SCHEMA, ANNOUNCEMENTS
from penstock_pump.lake.flow import NAME
from penstock_pump.lake.trace import trace
from penstock_spark.lake import Lake

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def row(relpath: str, after: float, exchange: str = "xs", **facts: Any) -> dict[str, Any]:
    at = NOON + timedelta(seconds=after)
    given = {"kind": "post", "at": at, "moment": NOON, "exchange": exchange, "event": "modify"}
    return {**given, "relpath": relpath, "base_url": "http://h/", "day": at.date(), **facts}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two batches: the later one has what came first."""
    lake = Lake.open(tmp_path / "lake", NAME)
    batches = [
        [
            row("a/f", 2.5, "xr", kind="report", code=201, message="Downloaded", user="me"),
            row("a/other", 1.0),
            {**row("", 0.0), "kind": "unreadable", "relpath": None, "moment": None},
        ],
        [row("a/f", 0.5), row("b/f", 86_400.0), row("a/not f", 3.0)],
    ]
    for number, rows in enumerate(batches):
        schema = ANNOUNCEMENT_SCHEMA.append(pa.field("batch", pa.int64()))
        writing = lake.stage(ANNOUNCEMENTS, number).open_writer(schema)
        writing.add(pa.Table.from_pylist([{**row, "batch": number} for row in rows], schema))
        lake.commit(ANNOUNCEMENTS, number, writing.close(), schema)
    return tmp_path


def test_hops_are_in_the_order_they_came_to_the_broker(data: Path) -> None:
    way = trace(data, "a/f")
    assert [(hop.exchange, hop.after, hop.code) for hop in way] == [
        ("xs", 0.5, None),
        ("xr", 2.5, 201),
    ]
    assert (way[1].message, way[1].user) == ("Downloaded", "me")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("f", ["a/f", "a/f", "b/f"]),
        ("/a/f", ["a/f", "a/f"]),
        ("not f", ["a/not f"]),
        ("o*", ["a/other"]),
        ("a/*", ["a/f", "a/other", "a/f", "a/not f"]),
        ("nobody", []),
    ],
)
def test_a_file_is_called_by_name_path_or_pattern(
    data: Path, wanted: str, found: list[str]
) -> None:
    assert [hop.relpath for hop in trace(data, wanted)] == found


def test_only_the_days_that_are_asked_for_are_read(data: Path) -> None:
    day = date(2026, 11, 16)
    assert [hop.relpath for hop in trace(data, "f", (day, day))] == ["b/f"]


def test_without_a_lake_it_is_said_how_to_have_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="penstock pump archive"):
        trace(tmp_path, "f")
