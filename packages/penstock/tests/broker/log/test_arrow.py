"""Ranges of a log as Arrow."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.broker.contract import Message
from penstock.broker.log import Committer, Log
from tests.broker.log.given import Fixed, message, segments

pa = pytest.importorskip("pyarrow")
from penstock.broker.log import arrow  # noqa: E402


def rows(log: Log, start: int, stop: int, **options: Any) -> list[dict[str, Any]]:
    """What a reader of the IPC stream gets."""
    sink = io.BytesIO()
    arrow.write_ipc(arrow.record_batches(log, start, stop, **options), sink)
    table = pa.ipc.open_stream(sink.getvalue()).read_all()
    table.validate(full=True)
    assert table.schema == arrow.ARROW_SCHEMA
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def expected(offset: int, one: Message, clock: Fixed) -> dict[str, Any]:
    return {
        "offset": offset,
        "timestamp": clock.now,
        "exchange": one.exchange,
        "routing_key": one.routing_key,
        "properties": one.header,
        "body": one.body,
    }


keys = st.sampled_from([b"", b"a", b"sensors.1", b"sensors.22", "gr\u00fcn".encode()])
turns = st.lists(
    st.lists(st.tuples(keys, st.binary(max_size=20)), min_size=1, max_size=6), max_size=6
)


@given(turns=turns, start=st.integers(0, 20), size=st.integers(0, 20), batch=st.integers(1, 20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_range_is_the_messages_in_it(
    tmp_path_factory: pytest.TempPathFactory,
    idle: Committer,
    turns: list[list[tuple[bytes, bytes]]],
    start: int,
    size: int,
    batch: int,
) -> None:
    clock = Fixed(1_700_000_000_123)
    log = Log(tmp_path_factory.mktemp("log"), idle, segment_bytes=500, now=clock)
    every = []
    for write_batch in turns:
        for key, body in write_batch:
            one = message(body, key)
            every.append(expected(log.append(one), one, clock))
        log.write()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "BATCH_ROWS", batch)
        found = rows(log, start, start + size)
    for row in found:
        row["timestamp"] = int(row["timestamp"].timestamp() * 1000 + 0.5)
    assert found == every[start : start + size]
    log.delete()


def test_small_chunks_are_joined_into_batches_worth_having(tmp_path: Path, idle: Committer) -> None:
    log = Log(tmp_path / "log", idle)
    for i in range(200):
        for j in range(100):
            log.append(message(b"%d.%d" % (i, j)))
        log.write()
    sizes = [batch.num_rows for batch in arrow.record_batches(log, 0, 20_000)]
    assert sum(sizes) == 20_000
    assert sizes[0] >= 10_000


def test_a_large_chunk_is_handed_on_where_it_lies(tmp_path: Path, idle: Committer) -> None:
    log = Log(tmp_path / "log", idle)
    for i in range(3):
        log.append(message(b"%d" % i))
    log.write()
    chunk = next(log.chunks(0, 3))
    batch = arrow._batch([chunk])
    whole = pa.py_buffer(chunk.payload)
    for name in ("timestamp", "properties", "body"):
        for buffer in batch.column(name).buffers()[1:]:
            assert whole.address <= buffer.address < whole.address + whole.size


def test_damaged_chunks_leave_a_gap_in_the_offsets(tmp_path: Path, idle: Committer) -> None:
    log = Log(tmp_path / "log", idle)
    for i in range(5):
        log.append(message(b"%d" % i))
        log.write()
    segment = segments(tmp_path / "log")[0]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    assert [row["offset"] for row in rows(log, 0, 5)] == [0, 1, 3, 4]


def test_spooled_bodies_are_loaded_by_offset(tmp_path: Path, idle: Committer) -> None:
    log = Log(tmp_path / "log", idle)
    for i in range(6):
        one = message(b"%d" % i)
        if i in (0, 3, 4):
            one.spool = object()  # type: ignore[assignment]
        log.append(one)
    log.write()

    def load(offset: int) -> bytes:
        return b"large %d" % offset

    found = [row["body"] for row in rows(log, 0, 6, load=load)]
    assert found == [b"large 0", b"1", b"2", b"large 3", b"large 4", b"5"]
    assert [row["body"] for row in rows(log, 1, 4, load=load)] == [b"1", b"2", b"large 3"]
    assert [row["body"] for row in rows(log, 2, 4)] == [b"2", None]


def test_a_routing_key_that_is_not_text_does_not_spoil_the_batch(
    tmp_path: Path, idle: Committer
) -> None:
    log = Log(tmp_path / "log", idle)
    log.append(message(key=b"\xff\xfe"))
    log.append(message(key=b"fine"))
    log.write()
    assert [row["routing_key"] for row in rows(log, 0, 2)] == ["\ufffd\ufffd", "fine"]


def test_an_empty_range_is_an_empty_stream(tmp_path: Path, idle: Committer) -> None:
    assert rows(Log(tmp_path / "log", idle), 0, 10) == []


def test_the_log_itself_does_not_need_pyarrow() -> None:
    code = "import sys, penstock.broker.log; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
