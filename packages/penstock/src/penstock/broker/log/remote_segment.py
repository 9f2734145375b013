"""The descriptor of a remote segment: where its copy is, and its index.

    00000000000000000000.remote     a line of JSON, then the content of the index file

It is beside the segment, is replicated and backed up like it, and stays when the segment's file is
deleted here.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.core.data_directory import private_opener


class RemoteFile(NamedTuple):
    name: str  #: in the object store
    size: int
    sha256: str


class RemoteSegment(NamedTuple):
    file: RemoteFile
    bodies: dict[int, RemoteFile]  #: of large messages, by offset


def remote_path(segment: Path) -> Path:
    return segment.with_suffix(".remote")


def load_remote_segment(segment: Path) -> RemoteSegment | None:
    """The descriptor of a segment; None if it has none, or one that cannot be read."""
    try:
        with remote_path(segment).open("rb") as file:
            found = json.loads(file.readline())
        return RemoteSegment(
            RemoteFile(*found["file"]),
            {int(offset): RemoteFile(*body) for offset, body in found["bodies"].items()},
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def load_remote_index(segment: Path) -> bytes:
    try:
        with remote_path(segment).open("rb") as file:
            file.readline()
            return file.read()
    except FileNotFoundError:
        return b""


def save_remote_segment(segment: Path, remote: RemoteSegment, index: bytes) -> None:
    """Returns when the descriptor is on disk."""
    path = remote_path(segment)
    partial = path.with_name(path.name + ".new")
    value = {"file": list(remote.file), "bodies": {k: list(v) for k, v in remote.bodies.items()}}
    try:
        with open(partial, "wb", opener=private_opener) as file:
            file.write(json.dumps(value).encode() + b"\n" + index)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
