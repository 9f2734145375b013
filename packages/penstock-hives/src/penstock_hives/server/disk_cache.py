"""A cache on disk: what is dear to make is made once, by whichever worker is asked first.

    path = await cache.find(key, make)      # await make() gives the bytes, once at a time a key

A value is written to a temporary file and renamed: who reads sees all of it or none, however many
workers write the same one, and a crash leaves nothing but a temporary file. The name is a digest of
the key. Nothing is kept that cannot be made again, so files may be deleted at any time, all of them
too. Two tasks look after it, slowly and beside the work: the *loader* learns at the start what
there is, and the *keeper* throws out what was used least recently when there is too much.
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
#: What is thrown out leaves this much room, so that it is not done for every file.
_ROOM: Final = 0.9
#: Files learned of, or thrown out, between two turns of the loop.
_AT_ONCE: Final = 200
_PAUSE_SECONDS: Final = 0.02
#: How often the keeper looks. Other workers write too, and it hears of theirs by looking.
_LOOK_SECONDS: Final = 60.0
#: A temporary file this old belongs to a process that has died.
_ABANDONED_SECONDS: Final = 3600.0
_TEMPORARY: Final = ".part"


class DiskCache:
    """One folder, shared by any number of processes."""

    def __init__(self, folder: Path, most_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._most = most_bytes
        #: What is known to be there, the least recently used first. A hint: the disk is the truth.
        self._known: OrderedDict[str, int] = OrderedDict()
        self._size = 0
        self._flights: SingleFlight[Path] = SingleFlight()
        self._tending: asyncio.Task[None] | None = None
        self.made = 0  #: values that were made here

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._tending = asyncio.create_task(self._tend())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait({self._tending})

    @property
    def size(self) -> int:
        """Bytes known to be there."""
        return self._size

    async def find(self, key: str, make: Callable[[], Awaitable[bytes]]) -> Path:
        """The file that holds the value of a key; made, if it is not there."""
        name = hashlib.blake2b(key.encode(), digest_size=20).hexdigest()
        path = self._path(name)
        if path.exists():
            self._learn(name, path)
            return path
        return await self._flights.run(name, lambda: self._make(name, path, make))

    async def _make(self, name: str, path: Path, make: Callable[[], Awaitable[bytes]]) -> Path:
        await asyncio.to_thread(_write, path, await make())
        self.made += 1
        self._learn(name, path)
        return path

    def _path(self, name: str) -> Path:
        # Folders of some hundred files, not one of a million.
        return self._folder / name[:2] / name

    def _learn(self, name: str, path: Path) -> None:
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return
        self._size += size - self._known.pop(name, 0)
        self._known[name] = size

    async def _tend(self) -> None:
        while True:
            try:
                await self._load()
                await self._keep()
            except OSError as error:  # a full or broken disk: the site runs without its cache
                log.warning("disk cache", folder=str(self._folder), reason=str(error))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _load(self) -> None:
        """The loader: learn of files that others have written, oldest first at the first time."""
        files = _files(self._folder)
        while some := await asyncio.to_thread(lambda: list(islice(files, _AT_ONCE))):
            for path in some:
                if path.name not in self._known:
                    self._learn(path.name, path)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _keep(self) -> None:
        """The keeper: throw out until there is room."""
        if self._size <= self._most:
            return
        while self._known and self._size > self._most * _ROOM:
            for name, size in list(islice(self._known.items(), _AT_ONCE)):
                if self._size <= self._most * _ROOM:
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
    """Values, and on the way what processes that died left half written is removed."""
    for path in folder.glob("*/*"):
        if path.suffix != _TEMPORARY:
            yield path
            continue
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()
