"""Recordings and tables of the truth: what was written is read back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import ConfigurationError, PreconditionFailed
from penstock_hives.sensors.fleet import Fleet, SensorFrame
from penstock_hives.sensors.recorder import open_recording, open_truth, read_recording

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def fleet() -> Fleet:
    return Fleet(start=NOON, hives=5)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_recording_gives_back_the_frames(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"hours{suffix}"
    until = NOON + timedelta(hours=2)
    with open_recording(path) as record:
        for window in fleet().windows(until):
            record(window)
    assert list(read_recording(path)) == list(fleet().frames(until))


def test_what_sub_wrote_is_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "seen.jsonl"
    lines = [
        {"address": "sensors.7.report", "body_base64": "AP8=", "timestamp": "2026-03-02T12:00:00Z"},
        {"address": "sensors/7/event", "body": "text", "timestamp": "2026-03-02T13:00:00+01:00"},
        {"address": "sensors.7.event", "body": {"a": 1}, "timestamp": "2026-03-02T12:00:01Z"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    at = int(NOON.timestamp() * 1000)
    assert list(read_recording(path)) == [
        SensorFrame(at, "sensors/7/report", b"\x00\xff"),
        SensorFrame(at, "sensors/7/event", b"text"),
        SensorFrame(at + 1000, "sensors/7/event", b'{"a": 1}'),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        '{"topic": "t", "body_hex": "00"}',
        '{"at": "2026-03-02T12:00:00", "topic": "t", "body_hex": "00"}',
        '{"at": "2026-03-02T12:00:00Z", "topic": "t", "body_hex": "0"}',
        '{"at": "2026-03-02T12:00:00Z", "topic": "t"}',
        '{"at": "2026-03-02T12:00:00Z", "body_hex": "00"}',
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"at": "2026-03-02T12:00:00Z", "topic": "t", "body_hex": "00"}\n' + line)
    with pytest.raises(PreconditionFailed, match="line 2"):
        list(read_recording(path))


def test_a_recording_has_a_known_format(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError), open_recording(tmp_path / "x.txt"):
        pass


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_the_truth_is_four_tables(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"truth{suffix}"
    simulated = fleet()
    with open_truth(path, simulated, with_events=True) as telling:
        for window in simulated.windows(NOON + timedelta(hours=2)):
            telling.write(window)
    read = csv.read_csv if suffix == ".csv" else pq.read_table
    counts, occupancy, events, ledger = (
        read(tmp_path / f"truth{name}{suffix}") for name in ("", ".occupancy", ".events", ".ledger")
    )
    passed = sum(counts["entries"].to_pylist()) + sum(counts["exits"].to_pylist())
    assert passed == events.num_rows > 0
    assert occupancy.num_rows == 5 * 24
    assert ledger["counted_in"].to_pylist() == simulated.ledger()["counted_in"].to_pylist()
