"""A tree watched for good: what is new, changed, moved or gone is announced, once it is settled.

Events only say where to look; what is announced is the difference between what is there and what
was announced before. So an event too many does nothing, and those that were missed, because too
many came at once or because we were not running, are made up for by looking at all of the tree.
A file is recorded as announced when the broker has its post safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from watchfiles import Change, awatch

from penstock.core.logs import get_logger
from penstock_pump.errors import FileChanging, PumpError
from penstock_pump.poster.poster import FilePoster
from penstock_pump.poster.tree import (
    FileMove,
    FileState,
    PostedTree,
    TreeDifferences,
    compare,
    file_state,
    walk,
)
from penstock_pump.posts.post import Post

log = get_logger(__name__)

#: Events are gathered until none comes for so long, and for so long at most; milliseconds.
STEP_MS: Final = 10
DEBOUNCE_MS: Final = 200
QUIET_MS: Final = 250
#: So many events at once, and the kernel may have dropped others.
MAX_SINGLE_CHANGES: Final = 8000
#: A file that is being written is asked about again after a pause that grows.
PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class WatchOptions:
    recursive: bool = True
    min_age: float = 0.0
    rescan: float = 300.0  #: seconds between looks at all of the tree
    existing: bool = False  #: what is there at the very first start is announced as well


@dataclass(slots=True)
class _Unsettled:
    at: float  #: when to look again
    asked: int = 0


@dataclass(slots=True)
class TreeWatcher:
    root: Path
    poster: FilePoster
    tree: PostedTree
    watch_options: WatchOptions = field(default_factory=WatchOptions)
    _unsettled: dict[Path, _Unsettled] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _look: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, stop: asyncio.Event, ready: asyncio.Event | None = None) -> None:
        first = len(self.tree) == 0
        ack_batcher = asyncio.create_task(self._settle())
        rescanning = asyncio.create_task(self._rescan_now_and_then())
        try:
            async for changes in self._changes(stop):
                if changes is None:  # the watch stands: whatever changes from now on will be told
                    await self.look_at_all(record_only=first and not self.watch_options.existing)
                    if ready is not None:
                        ready.set()
                elif len(changes) >= MAX_SINGLE_CHANGES:
                    await self.look_at_all()
                else:
                    await self.look_at(Path(path) for _, path in changes)
        finally:
            for task in (ack_batcher, rescanning):
                task.cancel()
            await asyncio.gather(ack_batcher, rescanning, return_exceptions=True)

    async def look_at_all(self, *, record_only: bool = False) -> None:
        """Compare all of the tree with what was announced."""
        async with self._look:
            found = await asyncio.to_thread(self._compare_all)
            if record_only:
                seen = [*found.changed.items(), *((gone, None) for gone in found.gone)]
                await asyncio.to_thread(self.tree.record, seen)
            else:
                await self._take_up(found)

    async def look_at(self, paths: Iterable[Path]) -> None:
        async with self._look:
            await self._take_up(await asyncio.to_thread(compare, set(paths), self.tree))

    def _compare_all(self) -> TreeDifferences:
        there = set(walk(self.root, recursive=self.watch_options.recursive)) - {self.root}
        return compare(there | set(self.tree.paths()), self.tree)

    async def _take_up(self, found: TreeDifferences) -> None:
        """Removals and moves at once; what has new content when it is settled."""
        for path in found.gone:
            self._unsettled.pop(path, None)
        await self._announce_now([path for path, known in found.changed.items() if not known.file])
        for move in found.moves:
            await self._announce_move(move)
        await self._announce_gone(found.gone)
        now = time.monotonic()
        for path, known in found.changed.items():
            if known.file:
                self._unsettled.setdefault(path, _Unsettled(now))
        self._wake.set()

    async def _announce_gone(self, gone: dict[Path, FileState]) -> None:
        for path, known in gone.items():
            describe = self.poster.description
            if not known.folder or (describe.folders and not describe.is_base(path)):
                post = describe.removed(path, folder=known.folder)
                await self.poster.announce(post)
        await self.poster.flush()
        await asyncio.to_thread(self.tree.record, [(path, None) for path in gone])

    async def _announce_move(self, move: FileMove) -> None:
        describe = self.poster.description
        try:
            told = await asyncio.to_thread(describe.moved, move.old, move.new)
        except PumpError as error:
            log.info("moved, and changed again", path=str(move.new), reason=str(error))
            return  # the next look finds both halves
        for post in told:
            await self.poster.announce(post)
        await self.poster.flush()
        await asyncio.to_thread(self.tree.record, [(move.old, None), (move.new, move.known)])

    async def _settle(self) -> None:
        """Announce what is settled, as it settles."""
        while True:
            now = time.monotonic()
            due = [path for path, each in self._unsettled.items() if each.at <= now]
            if due:
                async with self._look:
                    await self._announce_now(await asyncio.to_thread(self._ready, due))
                continue
            self._wake.clear()
            pause = min((each.at - now for each in self._unsettled.values()), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _ready(self, paths: list[Path]) -> list[Path]:
        ready = []
        for path in paths:
            unsettled = self._unsettled.get(path)
            if unsettled is None:
                continue
            try:
                seconds = seconds_until_ready(path, self.watch_options.min_age)
            except OSError as error:
                if isinstance(error, FileNotFoundError):
                    self._unsettled.pop(path, None)
                else:  # it may be readable one day
                    unsettled.at = time.monotonic() + 10.0
                continue
            if seconds:
                self._put_off(unsettled, seconds)
            else:
                ready.append(path)
        return ready

    async def _announce_now(self, paths: list[Path]) -> None:
        described = await asyncio.to_thread(lambda: [self._describe(path) for path in paths])
        done: list[tuple[Path, FileState | None]] = []
        for path, (known, told) in zip(paths, described, strict=True):
            for post in told:
                await self.poster.announce(post)
            if known is not None:
                done.append((path, known))
                self._unsettled.pop(path, None)
        await self.poster.flush()
        await asyncio.to_thread(self.tree.record, done)

    def _describe(self, path: Path) -> tuple[FileState | None, list[Post]]:
        """What is there and its posts; nothing where it changes under our eyes."""
        try:
            return file_state(path.lstat()), self.poster.description.of(path)
        except FileChanging:
            unsettled = self._unsettled.get(path)
            if unsettled is not None:
                self._put_off(unsettled, 0.0)
        except (PumpError, OSError) as error:
            log.warning("not announced", path=str(path), reason=str(error))
            self._unsettled.pop(path, None)
        return None, []

    def _put_off(self, unsettled: _Unsettled, seconds: float) -> None:
        pause = PAUSES[min(unsettled.asked, len(PAUSES) - 1)]
        unsettled.asked += 1
        unsettled.at = time.monotonic() + max(seconds, pause)

    async def _rescan_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.watch_options.rescan)
            await self.look_at_all()

    async def _changes(self, stop: asyncio.Event) -> AsyncIterator[set[tuple[Change, str]] | None]:
        """Batches of events; None when a watch stands, at first and whenever it had to be set up
        again: what changed before that was not told."""
        while not stop.is_set():
            stands = False
            try:
                async for changes in awatch(
                    self.root,
                    recursive=self.watch_options.recursive,
                    watch_filter=None,
                    step=STEP_MS,
                    debounce=DEBOUNCE_MS,
                    stop_event=stop,
                    rust_timeout=QUIET_MS,
                    yield_on_timeout=True,  # the first word from it tells that it stands
                ):
                    if not stands:
                        stands = True
                        yield None
                    if changes:
                        yield changes
            except OSError as error:  # too many watches, or a directory that went away
                log.warning("the watch broke, looking at all of it", reason=str(error))
                await asyncio.sleep(1.0)


# Whether a file is ready to be announced: nobody writes to it, and it has rested long enough.
#
# On Linux a read lease is refused while anybody has the file open for writing, which is exactly the
# question. Where leases are not to be had (another user's file, some file systems), a file that has
# not changed for a moment is taken to be ready. Blocking, but briefly.

#: Linux's F_SETSIG, which Python has no name for.
_F_SETSIG: Final = 10
#: How long a file must have rested where there is no better way to know.
QUIET_SECONDS: Final = 1.0


def seconds_until_ready(path: Path, min_age: float, now: float | None = None) -> float:
    """Seconds until it is worth asking again; 0 when it is ready.

    Raises `OSError` when it cannot be looked at.
    """
    age = (time.time() if now is None else now) - path.lstat().st_mtime
    if 0 <= age < min_age:
        return min_age - age
    written = is_being_written(path)
    if written is None:
        return 0.0 if age >= QUIET_SECONDS or age < 0 else QUIET_SECONDS - age
    return 0.02 if written else 0.0


def is_being_written(path: Path) -> bool | None:
    """Whether somebody has it open for writing; None where that cannot be told."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Whoever opens it for writing while we hold the lease makes the kernel send a signal: by
        # default one that would end us, so ask for one that is ignored.
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(fd)
    return False
