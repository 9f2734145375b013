"""A disk cache that several workers share.

    path = await cache.find(key, make)      # make() returns the bytes; once per key at a time

Files are named by a digest of the key and renamed into place, so readers see complete files and a
crash leaves only a temporary file. Files may be deleted at any time. A background task reads the
files that other workers have written, and deletes the least recently used when there are too many.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, Self

from penstock.core.logs import get_logger
from penstock.core.units import MiB
from penstock_store.cache import SingleFlight

log = get_logger(__name__)

MAX_BYTES: Final = 512 * MiB
#: An eviction leaves this share of the maximum.
_EVICTION_SHARE: Final = 0.9
#: Files in one step of the background task.
_BATCH: Final = 200
_PAUSE_SECONDS: Final = 0.02
_POLL_SECONDS: Final = 60.0
#: Older temporary files belong to a process that has crashed.
_ABANDONED_SECONDS: Final = 3600.0
_TEMPORARY: Final = ".part"


class DiskCache:
    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        #: Known files, the least recently used first; other processes may have changed them.
        self._known: OrderedDict[str, int] = OrderedDict()
        self._size = 0
        self._flights: SingleFlight[Path] = SingleFlight()
        self._maintenance: asyncio.Task[None] | None = None
        self.made = 0  #: values that this process created

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._maintenance = asyncio.create_task(self._maintain())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._maintenance is not None:
            self._maintenance.cancel()
            await asyncio.wait({self._maintenance})

    @property
    def size(self) -> int:
        """Bytes of the known files."""
        return self._size

    async def find(self, key: str, make: Callable[[], Awaitable[bytes]]) -> Path:
        """The file of a key, which is created if it is missing."""
        name = hashlib.blake2b(key.encode(), digest_size=20).hexdigest()
        path = self._path(name)
        if path.exists():
            self._add(name, path)
            return path
        return await self._flights.run(name, lambda: self._make(name, path, make))

    async def _make(self, name: str, path: Path, make: Callable[[], Awaitable[bytes]]) -> Path:
        await asyncio.to_thread(_write, path, await make())
        self.made += 1
        self._add(name, path)
        return path

    def _path(self, name: str) -> Path:
        # 256 folders, so that none has too many files.
        return self._folder / name[:2] / name

    def _add(self, name: str, path: Path) -> None:
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return
        self._size += size - self._known.pop(name, 0)
        self._known[name] = size

    async def _maintain(self) -> None:
        while True:
            try:
                await self._load()
                await self._evict()
            except OSError as error:  # a full or broken disk: the site runs without cache
                log.warning(
                    "disk cache maintenance failed", folder=str(self._folder), reason=str(error)
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def _load(self) -> None:
        """Add files that other processes have written."""
        files = _files(self._folder)
        while some := await asyncio.to_thread(lambda: list(islice(files, _BATCH))):
            for path in some:
                if path.name not in self._known:
                    self._add(path.name, path)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _evict(self) -> None:
        if self._size <= self._max_bytes:
            return
        while self._known and self._size > self._max_bytes * _EVICTION_SHARE:
            for name, size in list(islice(self._known.items(), _BATCH)):
                if self._size <= self._max_bytes * _EVICTION_SHARE:
                    break
                self._path(name).unlink(missing_ok=True)
                del self._known[name]
                self._size -= size
            await asyncio.sleep(_PAUSE_SECONDS)


def _write(path: Path, value: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(suffix=_TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(value)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _files(folder: Path) -> Iterator[Path]:
    """The value files; abandoned temporary files are deleted."""
    for path in folder.glob("*/*"):
        if path.suffix != _TEMPORARY:
            yield path
            continue
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()
