"""Zips from strangers: whole and where they belong, or not at all."""

from __future__ import annotations

import io
import stat
import zipfile

import pytest

from penstock_jobs.archive import contents
from penstock_jobs.errors import JobFormatError


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def test_files_are_read_by_name() -> None:
    found = contents(zipped(("a.txt", b"one"), ("b/", b""), ("b/c.txt", b"two")))
    assert found == {"a.txt": b"one", "b/c.txt": b"two"}


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../up", "..\\up", "C:\\x", "C:/x"])
def test_a_path_out_of_its_place_is_refused(name: str) -> None:
    with pytest.raises(JobFormatError, match="unsafe path"):
        contents(zipped(("fine", b""), (name, b"x")))


def test_a_link_is_refused() -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(JobFormatError, match="not a file"):
        contents(zipped((link, b"/etc/passwd")))


def test_a_bomb_is_refused_by_what_it_says() -> None:
    with pytest.raises(JobFormatError, match="unpacks to 2,000,000 bytes; at most 1,000,000"):
        contents(zipped(("zeros", b"\0" * 2_000_000)), most_bytes=1_000_000)


def test_a_bomb_that_lies_about_its_size_is_stopped() -> None:
    data = bytearray(zipped(("zeros", b"\0" * 2_000_000)))
    small = (1000).to_bytes(4, "little")
    central = data.index(b"PK\x01\x02")
    data[central + 24 : central + 28] = small
    data[22:26] = small
    with pytest.raises(JobFormatError):
        contents(bytes(data), most_bytes=1_000_000)


def test_too_many_files_are_refused() -> None:
    with pytest.raises(JobFormatError, match="1,001 files"):
        contents(zipped(*((str(number), b"") for number in range(1001))))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_comes_twice_is_refused() -> None:
    with pytest.raises(JobFormatError, match="twice"):
        contents(zipped(("a", b"1"), ("a", b"2")))


@pytest.mark.parametrize("damage", [b"", b"PK", b"not a zip at all"])
def test_what_is_no_zip_is_refused(damage: bytes) -> None:
    with pytest.raises(JobFormatError, match="not a readable zip"):
        contents(damage)


@pytest.mark.parametrize(("at", "value"), [(6, 1), (8, 99)], ids=["encrypted", "a rare method"])
def test_what_only_few_could_unpack_is_refused(at: int, value: int) -> None:
    data = bytearray(zipped(("a", b"1")))
    central = data.index(b"PK\x01\x02")
    data[at] = data[central + at + 2] = value
    with pytest.raises(JobFormatError, match="encrypted, or in an unsupported compression"):
        contents(bytes(data))


def test_a_damaged_entry_is_refused() -> None:
    data = bytearray(zipped(("a", bytes(range(256)) * 20)))
    data[60] ^= 0xFF
    with pytest.raises(JobFormatError, match="not a readable zip"):
        contents(bytes(data))


def test_a_directory_of_too_many_files_is_refused_before_it_is_read() -> None:
    data = zipped(*((f"{number}", b"") for number in range(1001)))
    with pytest.raises(JobFormatError, match="1,001 files; at most 1,000"):
        contents(data)
