"""The index of replicated files: path, size, and a digest for each chunk of the content.

A follower compares the leader's index with its own files. What both have up to the first chunk that
differs stays; the rest is cut and fetched. So a follower that was away fetches only what is new,
and a former leader drops the tail that nobody else has.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

#: Content behind one digest.
DIGEST_BYTES: Final = 1 << 20
_DIGEST_SIZE: Final = 16

#: What is replicated, below the data directory: users, and everything under `log`.
_ROOTS: Final = ("log",)
_FILES: Final = ("users.json",)
#: Not replicated: bodies in progress, and indexes, which are rebuilt from segments.
_SKIPPED_DIRECTORY: Final = "log/spool"
_SKIPPED_SUFFIXES: Final = (".idx", ".idx.new", ".new", ".part")


class IndexedFile(NamedTuple):
    path: str
    size: int
    digests: bytes


def is_replicated(path: str) -> bool:
    if path in _FILES:
        return True
    return (
        path.startswith("log/")
        and path != _SKIPPED_DIRECTORY
        and not path.startswith(_SKIPPED_DIRECTORY + "/")
        and not path.endswith(_SKIPPED_SUFFIXES)
    )


def replicated_files(data: Path) -> Iterator[str]:
    """Paths relative to the data directory."""
    for name in _FILES:
        if (data / name).is_file():
            yield name
    for root in _ROOTS:
        for directory, names, files in os.walk(data / root):
            names.sort()
            for name in sorted(files):
                path = (Path(directory) / name).relative_to(data).as_posix()
                if is_replicated(path):
                    yield path


def file_index(data: Path) -> Iterator[IndexedFile]:
    """Files may change or vanish meanwhile: changes from before the start on are sent as well."""
    for path in replicated_files(data):
        try:
            size, digests = digest_file(data / path)
        except FileNotFoundError:
            continue
        yield IndexedFile(path, size, digests)


def digest_file(path: Path) -> tuple[int, bytes]:
    digests, size = [], 0
    with path.open("rb", buffering=0) as file:
        while part := file.read(DIGEST_BYTES):
            while len(part) < DIGEST_BYTES and (more := file.read(DIGEST_BYTES - len(part))):
                part += more
            digests.append(hashlib.blake2b(part, digest_size=_DIGEST_SIZE).digest())
            size += len(part)
    return size, b"".join(digests)


def common_size(ours: tuple[int, bytes], theirs: tuple[int, bytes]) -> int:
    """The length of the common beginning, in whole chunks; all of a file that is the same."""
    if ours == theirs:
        return ours[0]
    whole = min(ours[0], theirs[0]) // DIGEST_BYTES
    for chunk in range(whole):
        at = slice(chunk * _DIGEST_SIZE, (chunk + 1) * _DIGEST_SIZE)
        if ours[1][at] != theirs[1][at]:
            return chunk * DIGEST_BYTES
    return whole * DIGEST_BYTES


class Missing(NamedTuple):
    path: str
    position: int  #: from which the content is needed


def reconcile(data: Path, leader: dict[str, tuple[int, bytes]]) -> list[Missing]:
    """Delete and cut what the leader does not have; returns what is missing here."""
    for path in list(replicated_files(data)):
        if path not in leader:
            (data / path).unlink(missing_ok=True)
    # Indexes and unfinished copies may belong to content that is gone.
    for leftover in (data / "log").rglob("*"):
        if leftover.name.endswith(_SKIPPED_SUFFIXES) and leftover.is_file():
            leftover.unlink(missing_ok=True)
    missing = []
    for path, theirs in leader.items():
        file = data / path
        ours = digest_file(file) if file.is_file() else (0, b"")
        common = common_size(ours, theirs)
        if common < ours[0]:
            os.truncate(file, common)
        if common < theirs[0] or not file.exists():
            missing.append(Missing(path, common))
    return missing
