"""A zip from a stranger: looked through before anything of it is written, and bounded.

What would be written elsewhere than below the place it is unpacked to, what is no plain file, and
what unpacks to more than it may is refused as a whole, before it is unpacked.
"""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from penstock.core.units import MiB
from penstock_jobs.errors import JobFormatError

ENTRIES: Final = 1_000
BYTES: Final = 64 * MiB
#: Each file has one of these: counted before there is an object for each.
_DIRECTORY_ENTRY: Final = b"PK\x01\x02"
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED: Final = 1


def unpack(data: bytes, place: Path, *, most_bytes: int = BYTES) -> list[Path]:
    """Below `place`, which exists; the files that were made."""
    made = []
    for name, content in contents(data, most_bytes=most_bytes).items():
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        made.append(target)
    return made


def contents(data: bytes, *, most_bytes: int = BYTES) -> dict[str, bytes]:
    """Name → content."""
    if (count := data.count(_DIRECTORY_ENTRY)) > ENTRIES:
        raise JobFormatError(f"the zip has {count:,} files; at most {ENTRIES:,} are accepted")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            _check(entries, most_bytes)
            return {_name(entry): _content(archive, entry) for entry in entries}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
        raise JobFormatError(f"not a zip that can be read: {error}") from error


def pack(files: Mapping[str, bytes]) -> bytes:
    """The same bytes for the same files, whenever it is done."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _name(entry: zipfile.ZipInfo) -> str:
    return str(PurePosixPath(entry.filename.replace("\\", "/")))


def _check(entries: list[zipfile.ZipInfo], most_bytes: int) -> None:
    size = sum(entry.file_size for entry in entries)
    if size > most_bytes:
        raise JobFormatError(
            f"the zip unpacks to {size:,} bytes; at most {most_bytes:,} are accepted"
        )
    names: set[str] = set()
    for entry in entries:
        if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
            raise JobFormatError(
                f"the zip has {entry.filename!r} encrypted, or packed in a rare way"
            )
        path = PurePosixPath(_name(entry))
        mode = entry.external_attr >> 16
        if path.is_absolute() or ".." in path.parts or ":" in path.parts[0] or not path.name:
            raise JobFormatError(f"the zip has a file outside its place: {entry.filename!r}")
        if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise JobFormatError(f"the zip has something that is no file: {entry.filename!r}")
        if str(path) in names:
            raise JobFormatError(f"the zip has {entry.filename!r} twice")
        names.add(str(path))


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    with archive.open(entry) as packed:
        content = packed.read(entry.file_size)
        if packed.read(1):
            raise JobFormatError(f"{entry.filename!r} unpacks to more than it says")
    return content
