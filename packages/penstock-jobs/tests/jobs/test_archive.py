"""Zips from strangers: whole and where they belong, or not at all."""

from __future__ import annotations

import io
import stat
import zipfile
from pathlib import Path

import pytest

from penstock_jobs.archive import contents, unpack
from penstock_jobs.errors import JobFormatError


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def test_files_are_unpacked_where_they_belong(tmp_path: Path) -> None:
    made = unpack(zipped(("a.txt", b"one"), ("b/", b""), ("b/c.txt", b"two")), tmp_path)
    assert made == [tmp_path / "a.txt", tmp_path / "b" / "c.txt"]
    assert [path.read_bytes() for path in made] == [b"one", b"two"]


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../up", "..\\up", "C:\\x", "C:/x"])
def test_a_path_out_of_its_place_is_refused(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(JobFormatError, match="outside its place"):
        unpack(zipped(("fine", b""), (name, b"x")), inside)
    assert list(tmp_path.rglob("*")) == [inside], "nothing of it was written"


def test_a_link_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(JobFormatError, match="no file"):
        unpack(zipped((link, b"/etc/passwd")), tmp_path)


def test_a_bomb_is_refused_by_what_it_says(tmp_path: Path) -> None:
    with pytest.raises(JobFormatError, match="unpacks to 2,000,000 bytes; at most 1,000,000"):
        unpack(zipped(("zeros", b"\0" * 2_000_000)), tmp_path, most_bytes=1_000_000)
    assert list(tmp_path.iterdir()) == []


def test_a_bomb_that_lies_about_its_size_is_stopped(tmp_path: Path) -> None:
    data = bytearray(zipped(("zeros", b"\0" * 2_000_000)))
    small = (1000).to_bytes(4, "little")
    central = data.index(b"PK\x01\x02")
    data[central + 24 : central + 28] = small
    data[22:26] = small
    with pytest.raises(JobFormatError):
        unpack(bytes(data), tmp_path, most_bytes=1_000_000)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1_000_000


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(JobFormatError, match="1,001 files"):
        unpack(zipped(*((str(number), b"") for number in range(1001))), tmp_path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobFormatError, match="twice"):
        unpack(zipped(("a", b"1"), ("a", b"2")), tmp_path)


@pytest.mark.parametrize("damage", [b"", b"PK", b"not a zip at all"])
def test_what_is_no_zip_is_refused(tmp_path: Path, damage: bytes) -> None:
    with pytest.raises(JobFormatError, match="not a zip"):
        unpack(damage, tmp_path)


@pytest.mark.parametrize(("at", "value"), [(6, 1), (8, 99)], ids=["encrypted", "a rare method"])
def test_what_only_few_could_unpack_is_refused(tmp_path: Path, at: int, value: int) -> None:
    data = bytearray(zipped(("a", b"1")))
    central = data.index(b"PK\x01\x02")
    data[at] = data[central + at + 2] = value
    with pytest.raises(JobFormatError, match="encrypted, or packed in a rare way"):
        unpack(bytes(data), tmp_path)


def test_a_damaged_entry_is_refused(tmp_path: Path) -> None:
    data = bytearray(zipped(("a", bytes(range(256)) * 20)))
    data[60] ^= 0xFF
    with pytest.raises(JobFormatError, match="not a zip"):
        unpack(bytes(data), tmp_path)


def test_a_directory_of_too_many_files_is_refused_before_it_is_read() -> None:
    data = zipped(*((f"{number}", b"") for number in range(1001)))
    with pytest.raises(JobFormatError, match="1,001 files; at most 1,000"):
        contents(data)
