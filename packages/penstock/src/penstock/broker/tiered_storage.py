"""Tiered storage: an object store for sealed segments of streams, and threads that copy.

An upload is read back and compared before it counts. A download is compared before it gets the name
of the file.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.broker.disk_thread import DiskThread, DiskWork
from penstock.broker.log.remote_segment import RemoteFile
from penstock.core.data_directory import private_opener
from penstock.core.errors import ObjectStoreError
from penstock.core.object_store import open_object_store

Done = Callable[[OSError | None], None]


class TieredStorage:
    def __init__(self, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self._store = open_object_store(url)
        self._uploads = DiskThread(loop, "penstock-upload", niceness=10)
        self._downloads = DiskThread(loop, "penstock-download")

    def in_background(self, work: DiskWork, done: Done) -> None:
        """Run uploads and deletes in their thread; `done` gets the error, if any."""
        self._uploads.submit(partial(_with_os_errors, work), done)

    def for_readers(self, work: DiskWork, done: Done) -> None:
        """Run downloads in their thread."""
        self._downloads.submit(partial(_with_os_errors, work), done)

    def upload(self, path: Path, folder: str) -> RemoteFile:
        """Copy a file, which does not change. Its name in the store contains its checksum."""
        digest, size = _digest(path)
        remote = RemoteFile(f"{folder}/{path.stem}-{digest[:16]}{path.suffix}", size, digest)
        self._store.put_file(remote.name, path)
        self._compare(remote, lambda _: None)
        return remote

    def download(self, remote: RemoteFile, path: Path) -> None:
        """Raises ObjectStoreError, also if the content is not the same."""
        partial_path = path.with_name(path.name + ".part")
        partial_path.unlink(missing_ok=True)
        try:
            with open(partial_path, "xb", opener=private_opener) as file:
                self._compare(remote, file.write)
                file.flush()
                os.fsync(file.fileno())
            partial_path.replace(path)
        finally:
            partial_path.unlink(missing_ok=True)

    def delete(self, remote: RemoteFile) -> None:
        self._store.delete(remote.name)

    def _compare(self, remote: RemoteFile, use: Callable[[bytes], object]) -> None:
        digest, size = hashlib.sha256(), 0
        try:
            for piece in self._store.pieces(remote.name):
                digest.update(piece)
                size += len(piece)
                use(piece)
        except FileNotFoundError:
            raise ObjectStoreError(f"{self._store}/{remote.name} is missing") from None
        if size != remote.size or digest.hexdigest() != remote.sha256:
            raise ObjectStoreError(
                f"{self._store}/{remote.name} does not have the content that was uploaded"
            )

    def close(self) -> None:
        """Does not wait: an upload in progress is done again after the next start."""
        self._uploads.stop(wait=False)
        self._downloads.stop(wait=False)


def _with_os_errors(work: DiskWork) -> None:
    try:
        work()
    except OSError:
        raise
    except Exception as error:  # of a library of an object store
        raise ObjectStoreError(f"{type(error).__name__}: {error}") from error


def _digest(path: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
            size += len(piece)
    return digest.hexdigest(), size
