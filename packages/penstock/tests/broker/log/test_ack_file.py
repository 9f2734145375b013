"""The acknowledgement file, against a set."""

from __future__ import annotations

import asyncio
import errno
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.broker.log import AckFile, Committer
from penstock.broker.log.ack_file import (
    decode_ack_frames,
    encode_ack_frame,
    merge_ranges,
    offset_ranges,
)
from tests.broker.log.given import Disk


def test_nothing_is_done_at_first_and_there_is_no_file(tmp_path: Path, idle: Committer) -> None:
    acks = AckFile(tmp_path / "acks", idle)
    assert acks.floor == 0
    assert 0 not in acks
    assert not (tmp_path / "acks").exists()


def test_the_floor_rises_over_what_was_done_above_it(tmp_path: Path, idle: Committer) -> None:
    acks = AckFile(tmp_path / "acks", idle)
    acks.add(2)
    acks.add(1)
    assert (acks.floor, acks.done) == (0, {1, 2})
    acks.add(0)
    assert (acks.floor, acks.done) == (3, set())
    acks.add_range(5, 8)
    acks.add_range(2, 5)
    assert (acks.floor, acks.done) == (8, set())


def test_a_turn_is_one_frame_of_ranges(tmp_path: Path, idle: Committer) -> None:
    acks = AckFile(tmp_path / "acks", idle)
    for offset in (3, 1, 2, 9, 2):
        acks.add(offset)
    acks.add_range(4, 6)
    idle.write()
    assert (tmp_path / "acks").read_bytes() == encode_ack_frame([(1, 6), (9, 10)])


def test_the_bytes_of_a_frame_are_these() -> None:
    assert encode_ack_frame([(1, 6), (9, 10)]).hex() == (
        "5053414b" "925a4861" "0200000000000000"
        "0100000000000000" "0600000000000000" "0900000000000000" "0a00000000000000"
    )  # fmt: skip


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 40)),
        st.tuples(st.just("range"), st.tuples(st.integers(0, 40), st.integers(0, 40))),
        st.tuples(st.just("run"), st.tuples(st.integers(0, 3), st.integers(1, 5))),
        st.just(("write", None)),
        st.just(("reopen", None)),
        st.tuples(st.just("cut"), st.integers(0, 41)),
    ),
    max_size=40,
)


@given(steps=steps)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_it_behaves_as_a_set(
    tmp_path_factory: pytest.TempPathFactory, idle: Committer, steps: list[tuple[str, object]]
) -> None:
    path = tmp_path_factory.mktemp("acks") / "acks"
    acks, model = AckFile(path, idle), set[int]()
    for step in steps:
        match step:
            case "add", int(offset):
                acks.add(offset)
                model.add(offset)
            case "range", (int(start), int(stop)):
                acks.add_range(start, stop)
                model |= set(range(start, stop))
            case "run", (int(gap), int(count)):
                run = range(acks.floor + gap, min(acks.floor + gap + count, 41))
                fits = not gap and not acks.done
                assert not run or acks.add_run(list(run)) is fits
                model |= set(run) if fits else set()
            case "write", _:
                idle.write()
            case "reopen", _:
                acks.close()
                acks = AckFile(path, idle)
            case "cut", int(end):
                idle.write()
                acks.truncate(end)
                model = {offset for offset in model if offset < end}
        assert {offset for offset in range(42) if offset in acks} == model
        assert acks.floor == min(set(range(42)) - model)
        assert all(offset > acks.floor for offset in acks.done)
    acks.close()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(lambda r: r[0] < r[1])))
def test_merged_ranges_are_the_same_offsets_and_apart(ranges: list[tuple[int, int]]) -> None:
    result = merge_ranges(ranges)
    assert {o for r in result for o in range(*r)} == {o for r in ranges for o in range(*r)}
    assert all(a[1] < b[0] for a, b in pairwise(result))
    assert offset_ranges({o for r in ranges for o in range(*r)}) == result


def test_a_tail_torn_at_any_byte_is_cut_and_reported(tmp_path: Path, idle: Committer) -> None:
    path = tmp_path / "acks"
    first, second = encode_ack_frame([(0, 5)]), encode_ack_frame([(7, 9), (11, 12)])
    for size in range(len(second)):
        path.write_bytes(first + second[:size])
        reports: list[str] = []
        acks = AckFile(path, idle, reports.append)
        assert (acks.floor, acks.done) == (5, set())
        assert path.read_bytes() == first
        assert len(reports) == (1 if size else 0)
        acks.add(5)
        acks.close()
        assert decode_ack_frames(path.read_bytes()).ranges == [(0, 5), (5, 6)]


def test_a_flipped_byte_costs_one_frame_and_adds_nothing(tmp_path: Path, idle: Committer) -> None:
    path = tmp_path / "acks"
    frames = [encode_ack_frame([(0, 5)]), encode_ack_frame([(7, 9)]), encode_ack_frame([(20, 21)])]
    whole = b"".join(frames)
    for at in range(len(frames[0]), len(frames[0] + frames[1])):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 0x40,)) + whole[at + 1 :])
        reports: list[str] = []
        acks = AckFile(path, idle, reports.append)
        assert (acks.floor, acks.done) == (5, {20})
        assert len(reports) == 1
        acks.close()


def test_offsets_the_log_does_not_reach_are_forgotten(tmp_path: Path, idle: Committer) -> None:
    path = tmp_path / "acks"
    path.write_bytes(encode_ack_frame([(0, 10), (12, 14), (20, 30)]))
    acks = AckFile(path, idle)
    acks.truncate(13)
    assert (acks.floor, acks.done) == (10, {12})
    acks.truncate(8)
    assert (acks.floor, acks.done) == (8, set())
    acks.add(9)
    acks.close()
    again = AckFile(path, idle)
    assert (again.floor, again.done) == (8, {9})
    again.close()


async def test_history_is_compacted_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.log.ack_file.COMPACT_BYTES", 1000)
    disk = Disk(asyncio.get_running_loop())
    path = tmp_path / "acks"
    acks = AckFile(path, disk.committer)
    sizes = []
    for offset in range(0, 400, 2):
        acks.add(offset)
        disk.committer.write()
        sizes.append(path.stat().st_size)
        if offset % 20 == 0:  # let the compactions come to their end, at times
            disk.committer.after(lambda: None)
            disk.committer.write()
            cycles = disk.cycles
            await disk.until(lambda cycles=cycles: disk.cycles > cycles)  # type: ignore[misc]
    for offset in range(1, 400, 2):
        acks.add(offset)
        disk.committer.write()
    acks.close()
    await disk.committer.close()
    assert any(later < earlier for earlier, later in pairwise(sizes))
    again = AckFile(path, disk.committer)
    assert (again.floor, again.done) == (400, set())
    assert not path.with_name("acks.new").exists()
    again.close()


async def test_a_compaction_the_disk_refuses_leaves_the_file_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.log.ack_file.COMPACT_BYTES", 100)
    disk = Disk(asyncio.get_running_loop())
    acks = AckFile(tmp_path / "acks", disk.committer)
    really = os.open

    def refuse(path: str | Path, *arguments: int) -> int:
        if str(path).endswith(".new"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return really(path, *arguments)

    monkeypatch.setattr(os, "open", refuse)
    for offset in range(20):
        acks.add(2 * offset)
        disk.committer.write()
    acks.close()
    await disk.committer.close()
    assert disk.faults == []
    again = AckFile(tmp_path / "acks", disk.committer)
    assert (again.floor, again.done) == (1, set(range(2, 40, 2)))
    again.close()


def test_what_a_crash_left_of_a_compaction_is_removed(tmp_path: Path, idle: Committer) -> None:
    (tmp_path / "acks").write_bytes(encode_ack_frame([(0, 3)]))
    (tmp_path / "acks.new").write_bytes(b"half")
    acks = AckFile(tmp_path / "acks", idle)
    assert acks.floor == 3
    assert not (tmp_path / "acks.new").exists()
    acks.delete()
    assert list(tmp_path.iterdir()) == []


async def test_a_full_disk_keeps_acknowledgements_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(asyncio.get_running_loop())
    acks = AckFile(tmp_path / "acks", disk.committer)
    acks.add(0)
    disk.committer.write()
    really, room = os.pwrite, [10]

    def filling(descriptor: int, data: bytes, position: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = really(descriptor, data[: room[0]], position)
        room[0] -= written
        return written

    monkeypatch.setattr(os, "pwrite", filling)
    acks.add(1)
    disk.committer.write()
    assert (tmp_path / "acks").read_bytes() == encode_ack_frame([(0, 1)])
    room[0] = 1000
    await disk.until(lambda: disk.recoveries == 1)
    acks.close()
    await disk.committer.close()
    assert decode_ack_frames((tmp_path / "acks").read_bytes()).ranges == [(0, 1), (1, 2)]


async def test_after_a_failed_sync_all_is_written_to_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.log.committer.LAZY_SYNC_SECONDS", 0.01)
    disk = Disk(asyncio.get_running_loop())
    acks = AckFile(tmp_path / "acks", disk.committer)
    disk.broken = OSError(errno.EIO, "Input/output error")
    for offset in (0, 2, 4):
        acks.add(offset)
        disk.committer.write()
    doubtful = (tmp_path / "acks").stat().st_ino
    await disk.until(lambda: disk.faults == [disk.broken])
    disk.broken = None
    await disk.until(lambda: disk.recoveries == 1)
    await disk.committer.close()
    assert (tmp_path / "acks").stat().st_ino != doubtful
    assert decode_ack_frames((tmp_path / "acks").read_bytes()).ranges == [(0, 1), (2, 3), (4, 5)]
    acks.close()


def test_what_was_sent_is_known_until_it_is_done(tmp_path: Path, idle: Committer) -> None:
    path = tmp_path / "acks"
    acks = AckFile(path, idle)
    for offset in (0, 1, 2, 5):
        acks.mark_sent(offset)
    acks.add(0)
    idle.write()
    acks.add_range(1, 2)
    assert acks.sent == {2, 5}
    acks.close()
    again = AckFile(path, idle)
    assert (again.floor, again.done, again.sent) == (2, set(), {2, 5})
    again.truncate(5)
    again.close()
    assert AckFile(path, idle).sent == {2}


def test_a_compacted_file_knows_what_was_sent(tmp_path: Path, idle: Committer) -> None:
    path = tmp_path / "acks"
    acks = AckFile(path, idle)
    for offset in range(20):
        acks.mark_sent(offset)
        if offset % 2:
            acks.add(offset)
        idle.write()
    acks._file._begin_copy()
    acks._file._finish_copy()
    acks.close()
    assert AckFile(path, idle).sent == set(range(0, 20, 2))


def test_a_copy_that_cannot_replace_the_file_is_given_up(
    tmp_path: Path, idle: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "acks"
    acks = AckFile(path, idle)
    acks.add(0)
    idle.write()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    acks._file._begin_copy()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        acks._file._finish_copy()
    acks.add(1)
    acks.close()
    assert AckFile(path, idle).floor == 2
    assert not path.with_name("acks.new").exists()
