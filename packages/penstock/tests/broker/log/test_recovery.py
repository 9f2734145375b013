"""What a log makes of files that a crash or a bad disk has left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.broker.log import Committer, Log
from penstock.broker.log.chunk import encode_chunk, encode_chunk_header
from tests.broker.log.given import bodies, message, segments


@pytest.fixture
def sample(tmp_path: Path, idle: Committer) -> Path:
    """A closed log of one segment with three chunks, of offsets 0-1, 2-3 and 4-5."""
    directory = tmp_path / "sample"
    log = Log(directory, idle)
    for i in range(6):
        log.append(message(b"body %d" % i, b"key.%d" % i))
        if i % 2:
            log.write()
    log.close()
    return directory


@pytest.fixture
def sealed(tmp_path: Path, idle: Committer) -> Path:
    """As above, but with a second segment after it: offsets 6-7."""
    directory = tmp_path / "sealed"
    log = Log(directory, idle, segment_bytes=700)
    for i in range(8):
        log.append(message(b"body %d" % i, b"key.%d" % i))
        if i % 2:
            log.write()
    log.close()
    assert [path.stem for path in segments(directory)] == [f"{0:020}", f"{6:020}"]
    return directory


def positions(segment: Path) -> list[int]:
    data = segment.read_bytes()
    found = [at for at in range(0, len(data), 8) if data[at : at + 4] == b"PSCK"]
    return [*found, len(data)]


ALL = [b"body %d" % i for i in range(8)]


def test_a_tail_torn_at_any_byte_is_cut_and_reported(sample: Path, idle: Committer) -> None:
    segment = segments(sample)[0]
    whole = segment.read_bytes()
    start, stop = positions(segment)[2:4]
    for size in range(start, stop):
        segment.write_bytes(whole[:size])
        reports: list[str] = []
        log = Log(sample, idle, report=reports.append)
        assert bodies(log) == ALL[:4]
        assert log.next_offset == 4
        assert segment.stat().st_size == start
        if size == start:
            assert reports == []
        else:
            assert len(reports) == 1
            assert str(segment) in reports[0]
            assert f" {size - start} bytes" in reports[0]
        assert log.corrupt == 0
        log.close()


def test_after_the_cut_the_log_goes_on(sample: Path, idle: Committer) -> None:
    segment = segments(sample)[0]
    segment.write_bytes(segment.read_bytes()[:-3])
    log = Log(sample, idle)
    assert log.append(message(b"again")) == 4
    log.close()
    reports: list[str] = []
    assert bodies(Log(sample, idle, report=reports.append)) == [*ALL[:4], b"again"]
    assert reports == []


def test_a_tail_of_zeros_is_cut(sample: Path, idle: Committer) -> None:
    segment = segments(sample)[0]
    segment.write_bytes(segment.read_bytes() + bytes(4096))
    reports: list[str] = []
    assert bodies(Log(sample, idle, report=reports.append)) == ALL[:6]
    assert "4096 bytes" in reports[0]


def test_a_byte_flipped_anywhere_in_the_middle_costs_that_chunk(
    sample: Path, idle: Committer
) -> None:
    segment = segments(sample)[0]
    whole = segment.read_bytes()
    start, stop = positions(segment)[1:3]
    for at in range(start, stop):
        segment.with_suffix(".idx").unlink(missing_ok=True)  # as after a crash
        segment.write_bytes(whole[:at] + bytes((whole[at] ^ 0xFF,)) + whole[at + 1 :])
        reports: list[str] = []
        log = Log(sample, idle, report=reports.append)
        assert bodies(log) == ALL[:2] + ALL[4:6]
        assert bodies(log, 3) == ALL[4:6]
        assert (log.corrupt, len(reports)) == (1, 1), reports
        assert f"{segment} at byte {start}" in reports[0]
        assert log.next_offset == 6
        log.close()


def test_the_same_in_a_sealed_segment_is_noticed_when_it_is_read(
    sealed: Path, idle: Committer
) -> None:
    segment = segments(sealed)[0]
    whole = segment.read_bytes()
    start, stop = positions(segment)[1:3]
    for at in range(start, stop):
        segment.write_bytes(whole[:at] + bytes((whole[at] ^ 0xFF,)) + whole[at + 1 :])
        reports: list[str] = []
        log = Log(sealed, idle, segment_bytes=700, report=reports.append)
        assert reports == []
        for _ in range(2):  # told once
            assert bodies(log) == ALL[:2] + ALL[4:8]
            assert (log.corrupt, len(reports)) == (1, 1), reports
        log.close()


def test_a_damaged_payload_at_the_end_keeps_its_offsets(sample: Path, idle: Committer) -> None:
    """Also after a crash: its length is known, so readers that know of offset 5 are not misled."""
    segment = segments(sample)[0]
    segment.with_suffix(".idx").unlink()
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-10] + b"X" + whole[-9:])
    log = Log(sample, idle)
    assert bodies(log) == ALL[:4]
    assert (log.next_offset, log.corrupt) == (6, 1)


def test_a_byte_flipped_anywhere_in_the_last_chunk_of_a_closed_log_keeps_its_offsets(
    sample: Path, idle: Committer
) -> None:
    """Nothing is torn where nothing was being written: it is damage, and is not cut."""
    segment = segments(sample)[0]
    whole = segment.read_bytes()
    start, stop = positions(segment)[2:4]
    for at in range(start, stop):
        harmed = whole[:at] + bytes((whole[at] ^ 0xFF,)) + whole[at + 1 :]
        segment.write_bytes(harmed)
        reports: list[str] = []
        log = Log(sample, idle, report=reports.append)
        assert bodies(log) == ALL[:4]
        assert (log.next_offset, log.corrupt, len(reports)) == (6, 1, 1), reports
        assert segment.read_bytes() == harmed
        log.close()


def test_a_lost_stretch_over_several_chunks_is_skipped(sample: Path, idle: Committer) -> None:
    segment = segments(sample)[0]
    whole = segment.read_bytes()
    last = positions(segment)[2]
    segment.write_bytes(bytes(last) + whole[last:])
    reports: list[str] = []
    log = Log(sample, idle, report=reports.append)
    assert bodies(log) == ALL[4:6]
    assert f"{last} damaged bytes" in reports[0]


def test_an_image_of_a_chunk_inside_a_message_is_not_taken_for_one(
    tmp_path: Path, idle: Committer
) -> None:
    image = encode_chunk(1000, 0, [message(b"forged")], {})
    carrier = message(bytes(8) + encode_chunk_header(image.header) + image.payload)
    log = Log(tmp_path / "log", idle)
    for one in (message(b"a"), carrier, message(b"b")):
        log.append(one)
        log.write()
    log.close()
    segment = segments(tmp_path / "log")[0]
    at = positions(segment)[1]
    data = bytearray(segment.read_bytes())
    data[at] ^= 1  # the carrier's own header
    segment.write_bytes(data)
    segment.with_suffix(".idx").unlink()  # as after a crash
    assert bodies(Log(tmp_path / "log", idle)) == [b"a", b"b"]


@pytest.mark.parametrize("harm", ["missing", "short", "flipped", "empty"])
def test_a_harmed_index_is_made_again(sealed: Path, idle: Committer, harm: str) -> None:
    index = segments(sealed)[0].with_suffix(".idx")
    good = index.read_bytes()
    match harm:
        case "missing":
            index.unlink()
        case "short":
            index.write_bytes(good[:-8])
        case "flipped":
            index.write_bytes(good[:40] + bytes((good[40] ^ 1,)) + good[41:])
        case "empty":
            index.write_bytes(b"")
    reports: list[str] = []
    log = Log(sealed, idle, segment_bytes=700, report=reports.append)
    for start in range(9):
        assert bodies(log, start) == ALL[start:]
    assert reports == []
    assert index.read_bytes() == good


def test_a_sealed_segment_cut_short_is_readable_to_its_last_whole_chunk(
    sealed: Path, idle: Committer
) -> None:
    segment = segments(sealed)[0]
    segment.write_bytes(segment.read_bytes()[:-1])
    reports: list[str] = []
    log = Log(sealed, idle, segment_bytes=700, report=reports.append)
    assert bodies(log) == ALL[:4] + ALL[6:]
    assert len(reports) == 1


def test_a_segment_begun_and_never_written_is_used(sealed: Path, idle: Committer) -> None:
    segments(sealed)[1].write_bytes(b"")
    log = Log(sealed, idle, segment_bytes=700)
    assert log.next_offset == 6
    assert log.append(message(b"new")) == 6
    log.write()
    assert bodies(log) == [*ALL[:6], b"new"]


def test_a_copy_of_a_log_is_a_log(sealed: Path, tmp_path: Path, idle: Committer) -> None:
    shutil.copytree(sealed, tmp_path / "copy")
    assert bodies(Log(tmp_path / "copy", idle)) == ALL
