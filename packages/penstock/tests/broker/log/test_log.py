"""A log from the outside: appending, reading, finding, forgetting."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.broker.log import Committer, Log
from penstock.broker.log.log import STALE_BYTES, STALE_MILLISECONDS
from tests.broker.log.given import Fixed, bodies, fields, message, segments


def filled(directory: Path, committer: Committer, chunks: int, clock: Fixed | None = None) -> Log:
    """A log of chunks of two messages, ten milliseconds apart, a segment for every three."""
    clock = clock or Fixed()
    log = Log(directory, committer, segment_bytes=700, now=clock)
    for i in range(chunks):
        log.append(message(b"%da" % i))
        log.append(message(b"%db" % i))
        log.write()
        clock.now += 10
    return log


def test_an_empty_log_has_nothing_to_read(tmp_path: Path, idle: Committer) -> None:
    log = Log(tmp_path / "log", idle)
    assert (log.first_offset, log.next_offset, log.last_chunk_offset()) == (0, 0, 0)
    assert log.read(0) is None
    assert log.find(0) == 0


def test_appending_gives_offsets_and_writes_nothing(tmp_path: Path, idle: Committer) -> None:
    log = Log(tmp_path / "log", idle)
    assert [log.append(message()) for _ in range(3)] == [0, 1, 2]
    assert (log.next_offset, log.written_offset, log.bytes) == (3, 0, 0)
    assert log.read(0) is None
    assert idle.pending


def test_one_write_makes_one_chunk(tmp_path: Path, idle: Committer) -> None:
    log = Log(tmp_path / "log", idle)
    for i in range(5):
        log.append(message(b"%d" % i), flags=i)
    idle.write()
    chunk = log.read(3)
    assert chunk is not None
    assert (chunk.base, chunk.count) == (0, 5)
    assert list(chunk.flags) == [0, 1, 2, 3, 4]
    assert log.written_offset == 5
    assert not idle.pending


def test_much_data_is_written_as_several_chunks(tmp_path: Path, idle: Committer) -> None:
    log = Log(tmp_path / "log", idle)
    for i in range(10):
        log.append(message(bytes(300_000), flags=i))
    log.write()
    counts = [chunk.count for chunk in log.chunks(0, 10)]
    assert counts == [4, 4, 2]
    assert bodies(log) == [bytes(300_000)] * 10


def test_a_reader_may_begin_at_any_offset(tmp_path: Path, idle: Committer) -> None:
    log = filled(tmp_path / "log", idle, 10)
    everything = [b"%d%c" % (i, c) for i in range(10) for c in b"ab"]
    assert len(segments(tmp_path / "log")) > 2
    for start in range(21):
        assert bodies(log, start) == everything[start:]


def test_a_range_is_the_chunks_that_touch_it(tmp_path: Path, idle: Committer) -> None:
    log = filled(tmp_path / "log", idle, 5)
    assert [chunk.base for chunk in log.chunks(3, 7)] == [2, 4, 6]
    assert list(log.chunks(4, 4)) == []


@pytest.mark.parametrize("most", [0, 1, 150, 500, 1500, 1 << 40])
def test_a_range_is_limited_to_bytes(tmp_path: Path, idle: Committer, most: int) -> None:
    log = filled(tmp_path / "log", idle, 12)
    sizes = [chunk.header.file_bytes for chunk in log.chunks(0, 24)]  # of two messages each

    for start in range(24):
        for stop in range(start + 1, 25):
            end = log.limit(start, stop, most)
            taken = sum(sizes[offset // 2] / 2 for offset in range(start, end))
            assert start < end <= stop
            assert end == start + 1 or taken <= most
            assert end == stop or taken + sizes[end // 2] / 2 > most - 2  # no room for another


def test_readers_at_the_end_share_what_was_written(tmp_path: Path, idle: Committer) -> None:
    log = Log(tmp_path / "log", idle)
    assert log.read(0) is None  # a reader waits at the end
    one = message(b"news")
    log.append(one)
    log.write()
    chunk = log.read(0)
    assert chunk is not None
    assert chunk.messages() == [one]
    assert log.read(0) is chunk


def test_a_reopened_log_goes_on_where_it_ended(tmp_path: Path, idle: Committer) -> None:
    log = filled(tmp_path / "log", idle, 7)
    before = bodies(log)
    log.close()
    log = Log(tmp_path / "log", idle, segment_bytes=700)
    assert (log.next_offset, log.written_offset, log.synced_offset) == (14, 14, 14)
    assert log.append(message(b"more")) == 14
    log.write()
    assert bodies(log) == [*before, b"more"]
    log.close()


def test_what_is_pending_is_written_by_close(tmp_path: Path, idle: Committer) -> None:
    log = Log(tmp_path / "log", idle)
    log.append(message(b"late"))
    log.close()
    assert bodies(Log(tmp_path / "log", idle)) == [b"late"]


def test_times_find_the_first_chunk_at_or_after(tmp_path: Path, idle: Committer) -> None:
    clock = Fixed(1000)
    log = filled(tmp_path / "log", idle, 10, clock)  # chunks at 1000, 1010, ...
    assert log.find(0) == 0
    assert log.find(1000) == 0
    assert log.find(1001) == 2
    assert log.find(1090) == 18
    assert log.find(1091) == 20
    log.append(message())
    assert log.find(1091) == 20
    log.append(message())
    assert log.find(1101) == 22


@given(times=st.lists(st.integers(0, 50), max_size=12), wanted=st.integers(0, 51))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_times_are_found_also_when_the_clock_steps_back(
    tmp_path_factory: pytest.TempPathFactory, idle: Committer, times: list[int], wanted: int
) -> None:
    clock = Fixed()
    log = Log(tmp_path_factory.mktemp("log"), idle, segment_bytes=600, now=clock)
    for clock.now in times:
        log.append(message())
        log.write()
    slow = next((i for i, time in enumerate(times) if time >= wanted), len(times))
    assert log.find(wanted) == slow
    log.delete()


def test_the_last_chunk_is_known(tmp_path: Path, idle: Committer) -> None:
    assert filled(tmp_path / "log", idle, 5).last_chunk_offset() == 8


def test_truncation_deletes_whole_segments_only(tmp_path: Path, idle: Committer) -> None:
    log = filled(tmp_path / "log", idle, 10)
    bases = [int(path.stem) for path in segments(tmp_path / "log")]
    log.truncate_before(bases[1] - 1)
    assert log.first_offset == 0
    log.truncate_before(bases[2] + 1)
    assert log.first_offset == bases[2]
    assert [int(path.stem) for path in segments(tmp_path / "log")] == bases[2:]
    assert bodies(log, 0)[0] == b"%da" % (bases[2] // 2)


def test_the_segment_being_written_is_never_dropped(tmp_path: Path, idle: Committer) -> None:
    log = filled(tmp_path / "log", idle, 10)
    log.truncate_before(1000)
    log.retain(0, 0)
    assert len(segments(tmp_path / "log")) == 1
    assert log.next_offset == 20


def test_a_queue_with_little_traffic_keeps_little(tmp_path: Path, idle: Committer) -> None:
    """All of its messages are acknowledged at once, and it never fills a segment."""
    clock = Fixed()
    log = Log(tmp_path / "log", idle, now=clock)
    for _ in range(60):
        for _ in range(10):
            log.append(message(bytes(STALE_BYTES // 20)))
            log.write()
            log.truncate_before(log.next_offset)
        clock.now += STALE_MILLISECONDS // 2
        assert log.bytes < 3 * STALE_BYTES
    assert log.next_offset == 600


@pytest.mark.parametrize("case", ["young", "small", "needed"])
def test_a_segment_is_not_replaced(tmp_path: Path, idle: Committer, case: str) -> None:
    clock = Fixed()
    log = Log(tmp_path / "log", idle, now=clock)
    log.append(message(bytes(100 if case == "small" else STALE_BYTES)))
    log.write()
    clock.now += STALE_MILLISECONDS - (case == "young")
    log.truncate_before(0 if case == "needed" else 1)
    log.append(message())
    log.write()
    assert len(segments(tmp_path / "log")) == 1


def test_retention_by_size(tmp_path: Path, idle: Committer) -> None:
    log = filled(tmp_path / "log", idle, 20)
    before = log.bytes
    first = log.retain(None, before // 2)
    assert first == log.first_offset > 0
    assert log.bytes <= before // 2
    assert log.bytes == sum(path.stat().st_size for path in segments(tmp_path / "log"))


def test_retention_by_age(tmp_path: Path, idle: Committer) -> None:
    clock = Fixed(1000)
    log = filled(tmp_path / "log", idle, 20, clock)  # the last at 1190
    clock.now = 1200
    first = log.retain(100, None)
    oldest = log.read(first)
    assert oldest is not None
    # A segment goes when all of it is too old, so at most one segment of old messages is left.
    assert log.find(1100) - first < 6
    assert first > 0


def test_a_reader_behind_retention_goes_on_at_the_oldest(tmp_path: Path, idle: Committer) -> None:
    log = filled(tmp_path / "log", idle, 20)
    first = log.retain(None, 0)
    chunk = log.read(0)
    assert chunk is not None
    assert chunk.base == first


def test_a_deleted_log_leaves_nothing_and_writes_nothing(tmp_path: Path, idle: Committer) -> None:
    log = filled(tmp_path / "log", idle, 5)
    log.append(message())
    log.delete()
    idle.write()
    assert not (tmp_path / "log").exists()


def test_what_else_is_in_the_directory_stays(tmp_path: Path, idle: Committer) -> None:
    (tmp_path / "notes.seg").write_bytes(b"mine")
    log = filled(tmp_path, idle, 5)
    log.delete()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.seg"]


@given(st.lists(st.lists(st.binary(max_size=50), max_size=5), max_size=10), st.integers(200, 900))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_whatever_is_appended_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    idle: Committer,
    turns: list[list[bytes]],
    segment_bytes: int,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    log = Log(directory, idle, segment_bytes=segment_bytes)
    expected = []
    for write_batch in turns:
        for body in write_batch:
            expected.append(message(body))
            log.append(expected[-1])
        idle.write()
    log.close()
    log = Log(directory, idle, segment_bytes=segment_bytes)
    found = [one for chunk in log.chunks(0, 1 << 60) for one in chunk.messages()]
    assert list(map(fields, found)) == list(map(fields, expected))
    log.close()
