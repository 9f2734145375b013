"""Zip archives from untrusted senders: checked and bounded before they are read.

An archive is refused as a whole if an entry has a path outside the archive, is not a plain file, or
is too large.
"""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from penstock.core.units import MiB
from penstock_jobs.errors import JobFormatError

ENTRIES: Final = 1_000
BYTES: Final = 64 * MiB
#: Each file has one: they are counted before `zipfile` creates an object for each.
_DIRECTORY_ENTRY: Final = b"PK\x01\x02"
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED: Final = 1


def contents(data: bytes, *, most_bytes: int = BYTES) -> dict[str, bytes]:
    """The files, by name."""
    if (count := data.count(_DIRECTORY_ENTRY)) > ENTRIES:
        raise JobFormatError(f"the zip has {count:,} files; at most {ENTRIES:,} are accepted")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            _check(entries, most_bytes)
            return {_name(entry): _content(archive, entry) for entry in entries}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
        raise JobFormatError(f"not a readable zip: {error}") from error


def pack(files: Mapping[str, bytes]) -> bytes:
    """Deterministic: the same files give the same bytes."""
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
                f"the zip has {entry.filename!r} encrypted, or in an unsupported compression"
            )
        path = PurePosixPath(_name(entry))
        mode = entry.external_attr >> 16
        if path.is_absolute() or ".." in path.parts or ":" in path.parts[0] or not path.name:
            raise JobFormatError(f"the zip has a file with an unsafe path: {entry.filename!r}")
        if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise JobFormatError(f"the zip has an entry that is not a file: {entry.filename!r}")
        if str(path) in names:
            raise JobFormatError(f"the zip has {entry.filename!r} twice")
        names.add(str(path))


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    with archive.open(entry) as packed:
        content = packed.read(entry.file_size)
        if packed.read(1):
            raise JobFormatError(f"{entry.filename!r} is larger than its header states")
    return content
