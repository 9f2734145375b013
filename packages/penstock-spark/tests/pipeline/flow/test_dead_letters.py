"""`penstock pipeline dead-letters`: messages that could not be decoded, and why."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from penstock.core.console_section import ConsoleContext
from penstock_spark.commands.pipeline import DEAD_LETTERS_TABLE, app
from penstock_spark.console import calls
from penstock_spark.lake import Lake
from penstock_spark.progress import FlowProgress, RunState

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
LETTERS = pa.schema(
    [
        ("stream", pa.string()),
        ("offset", pa.int64()),
        ("received_at", pa.timestamp("us", "UTC")),
        ("topic", pa.string()),
        ("reason", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
    ]
)
REASONS = ("too_short", "impossible_date", "no_body")


def letters(data: Path, *flags: str) -> list[str]:
    found = CliRunner().invoke(app, ["dead-letters", "--data", str(data), *flags])
    assert found.exit_code == 0, found.output
    return found.output.splitlines()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two batches of three letters each."""
    lake = Lake(tmp_path / "lake", "hives")
    for batch in range(2):
        offsets = range(3 * batch, 3 * batch + 3)
        columns = {
            "stream": ["sensors"] * 3,
            "offset": list(offsets),
            "received_at": [NOON + timedelta(minutes=offset) for offset in offsets],
            "topic": [f"sensors.s{offset}.report" for offset in offsets],
            "reason": list(REASONS),
            "raw": [b"\x01\x02", bytes(59), None],
            "day": [date(2026, 11, 15)] * 3,
        }
        writing = lake.stage(DEAD_LETTERS_TABLE, batch).open_writer(LETTERS)
        writing.add(pa.table(columns, LETTERS))
        lake.commit(DEAD_LETTERS_TABLE, batch, writing.close(), LETTERS)
    return tmp_path


def test_the_last_come_first_with_reason_topic_and_bytes(data: Path) -> None:
    lines = letters(data, "-n", "4")

    assert len(lines) == 4
    wanted = [*reversed(REASONS), "no_body"]
    assert [line.split()[2] for line in lines] == wanted
    assert lines[1].endswith("… 59 bytes")
    assert "sensors.s3.report" in lines[2]
    assert lines[2].endswith("01 02")


def test_those_of_one_reason_are_found(data: Path) -> None:
    found = [json.loads(line) for line in letters(data, "--reason", "impossible_date", "--json")]

    assert [each["offset"] for each in found] == [4, 1]
    assert found[0]["raw"] == "00" * 59
    assert found[0]["received_at"] == "2026-11-15T12:04:00+00:00"


def test_the_console_shows_them_page_by_page(data: Path) -> None:
    FlowProgress(data / "progress", "hives").set_state(RunState.STOPPED, 0.0)
    section = calls(ConsoleContext(data, "", ""))

    def page(**query: str) -> tuple[list[int], int]:
        found = section["dead-letters"]({"flow": "hives", "page_size": "4", **query})
        return [row["offset"] for row in found["items"]], found["filtered_count"]

    assert page(page="1") == ([5, 4, 3, 2], 6)
    assert page(page="2") == ([1, 0], 6)
    assert page(page="9") == ([1, 0], 6)  # the last one
    assert page(page="1", name="no_body") == ([5, 2], 2)
    [table] = section["tables"]({})
    assert (table["flow"], table["name"], table["rows"]) == ("hives", DEAD_LETTERS_TABLE, 6)


def test_the_former_name_of_the_command_is_a_hidden_alias(data: Path) -> None:
    found = CliRunner().invoke(app, ["letters", "--data", str(data), "-n", "4"])

    assert found.output.splitlines() == letters(data, "-n", "4")
    assert "│ letters " not in CliRunner().invoke(app, ["--help"]).output


def test_where_there_are_none_it_says_so(tmp_path: Path) -> None:
    assert letters(tmp_path) == ["No dead letters of flow hives."]
