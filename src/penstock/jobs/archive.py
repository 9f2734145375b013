"""A zip from a stranger: looked through before anything of it is written, and bounded.

What would be written elsewhere than below the place it is unpacked to, what is no plain file, and
what unpacks to more than it may is refused as a whole.
"""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Final

from penstock.core.units import MiB
from penstock.jobs.errors import FormError

ENTRIES: Final = 1_000
BYTES: Final = 256 * MiB
_CHUNK: Final = 256 * 1024


def unpack(data: bytes, place: Path, *, most_bytes: int = BYTES) -> list[Path]:
    """Below `place`, which exists; the files that were made."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            _check(entries, most_bytes)
            return [_unpack(archive, entry, place, most_bytes) for entry in entries]
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FormError(f"not a zip that can be read: {error}") from error


def _check(entries: list[zipfile.ZipInfo], most_bytes: int) -> None:
    if len(entries) > ENTRIES:
        raise FormError(f"the zip has {len(entries):,} files; at most {ENTRIES:,} are accepted")
    size = sum(entry.file_size for entry in entries)
    if size > most_bytes:
        raise FormError(f"the zip unpacks to {size:,} bytes; at most {most_bytes:,} are accepted")
    names: set[str] = set()
    for entry in entries:
        path = PurePosixPath(entry.filename.replace("\\", "/"))
        mode = entry.external_attr >> 16
        if path.is_absolute() or ".." in path.parts or ":" in path.parts[0] or not path.name:
            raise FormError(f"the zip has a file outside its place: {entry.filename!r}")
        if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise FormError(f"the zip has something that is no file: {entry.filename!r}")
        if str(path) in names:
            raise FormError(f"the zip has {entry.filename!r} twice")
        names.add(str(path))


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, place: Path, most_bytes: int) -> Path:
    target = place / PurePosixPath(entry.filename.replace("\\", "/"))
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with archive.open(entry) as packed, target.open("xb") as file:
        while chunk := packed.read(_CHUNK):
            written += len(chunk)
            if written > min(entry.file_size, most_bytes):  # it says less than it is
                raise FormError(f"{entry.filename!r} unpacks to more than it says")
            file.write(chunk)
    return target
