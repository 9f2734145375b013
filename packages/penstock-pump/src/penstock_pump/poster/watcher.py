"""Watches a tree and announces new, changed, moved and removed files, once nobody writes to them.

Events only tell where to look; the differences between the tree and its announced state are
announced. So a redundant event does nothing, and events that were missed, because the kernel
dropped them or the process was down, are made up for by a scan of the whole tree. A file is
recorded as announced when the broker has confirmed its post.

On Linux a read lease is refused while anybody has the file open for writing. Where leases are not
available (files of other users, some file systems), a file that has not changed for a second is
taken as complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from watchfiles import Change, awatch

from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy
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

#: Events are collected until none arrives for a step, at most for the debounce time.
STEP_MS: Final = 10
DEBOUNCE_MS: Final = 200
QUIET_MS: Final = 250
#: With so many events at once the kernel may have dropped others.
MAX_SINGLE_CHANGES: Final = 8000
#: Between checks of a file that is being written.
CHECK: Final = RetryPolicy(first=0.02, longest=1.0, jitter=0.0)
#: Linux's F_SETSIG, which Python does not define.
_F_SETSIG: Final = 10
#: Seconds without a change after which a file is complete, where there are no leases.
QUIET_SECONDS: Final = 1.0
#: Between calls of a plugin that has postponed changes.
POSTPONED_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class WatchOptions:
    recursive: bool = True
    min_age: float = 0.0
    rescan: float = 300.0  #: seconds between scans of the whole tree
    existing: bool = False  #: announce existing files at the first start


@dataclass(slots=True)
class _Unsettled:
    due: float  #: when to check again
    attempts: int = 0


@dataclass(slots=True)
class TreeWatcher:
    root: Path
    poster: FilePoster
    tree: PostedTree
    watch_options: WatchOptions = field(default_factory=WatchOptions)
    #: Called before changes are announced; while it returns False they are postponed.
    on_changes: Callable[[], Awaitable[bool]] | None = None
    _postponed: set[Path] = field(default_factory=set)
    _is_scan_postponed: bool = False
    _unsettled: dict[Path, _Unsettled] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, stop: asyncio.Event, ready: asyncio.Event | None = None) -> None:
        first = len(self.tree) == 0
        settling = asyncio.create_task(self._settle())
        rescanning = asyncio.create_task(self._rescan_regularly())
        retrying = asyncio.create_task(self._check_postponed())
        try:
            async for changes in self._changes(stop):
                if changes is None:  # the watch is active
                    await self.rescan(record_only=first and not self.watch_options.existing)
                    if ready is not None:
                        ready.set()
                elif len(changes) >= MAX_SINGLE_CHANGES:
                    await self.rescan()
                else:
                    await self.check(Path(path) for _, path in changes)
        finally:
            for task in (settling, rescanning, retrying):
                task.cancel()
            await asyncio.gather(settling, rescanning, retrying, return_exceptions=True)

    async def rescan(self, *, record_only: bool = False) -> None:
        """Compares the whole tree with its announced state."""
        if not record_only and not await self._takes_changes():
            self._is_scan_postponed = True
            return
        self._is_scan_postponed = False
        async with self._lock:
            differences = await asyncio.to_thread(self._compare_all)
            if record_only:
                gone = ((path, None) for path in differences.gone)
                seen = [*differences.changed.items(), *gone]
                await asyncio.to_thread(self.tree.record, seen)
            else:
                await self._apply(differences)

    async def check(self, paths: Iterable[Path]) -> None:
        self._postponed.update(paths)
        if not await self._takes_changes():
            return
        changed, self._postponed = self._postponed, set()
        async with self._lock:
            await self._apply(await asyncio.to_thread(compare, changed, self.tree))

    async def _takes_changes(self) -> bool:
        return self.on_changes is None or await self.on_changes()

    async def _check_postponed(self) -> None:
        while self.on_changes is not None:
            await asyncio.sleep(POSTPONED_SECONDS)
            if self._is_scan_postponed:
                self._postponed.clear()
                await self.rescan()
            elif self._postponed:
                await self.check(())

    def _compare_all(self) -> TreeDifferences:
        current = set(walk(self.root, recursive=self.watch_options.recursive)) - {self.root}
        return compare(current | set(self.tree.paths()), self.tree)

    async def _apply(self, differences: TreeDifferences) -> None:
        """Announces removals and moves at once, files with new content when they are complete."""
        changed = differences.changed
        for path in differences.gone:
            self._unsettled.pop(path, None)
        await self._announce_now([path for path, known in changed.items() if not known.file])
        for move in differences.moves:
            await self._announce_move(move)
        await self._announce_gone(differences.gone)
        now = time.monotonic()
        for path, known in changed.items():
            if known.file:
                self._unsettled.setdefault(path, _Unsettled(now))
        self._wake.set()

    async def _announce_gone(self, gone: dict[Path, FileState]) -> None:
        for path, known in gone.items():
            describer = self.poster.describer
            if not known.folder or (describer.folders and not describer.is_base(path)):
                post = describer.removed(path, folder=known.folder)
                await self.poster.announce(post)
        await self.poster.flush()
        await asyncio.to_thread(self.tree.record, [(path, None) for path in gone])

    async def _announce_move(self, move: FileMove) -> None:
        describer = self.poster.describer
        try:
            posts = await asyncio.to_thread(describer.moved, move.old, move.new)
        except PumpError as error:
            log.info("moved file changed", path=str(move.new), reason=str(error))
            return  # the next scan finds both halves
        for post in posts:
            await self.poster.announce(post)
        await self.poster.flush()
        await asyncio.to_thread(self.tree.record, [(move.old, None), (move.new, move.known)])

    async def _settle(self) -> None:
        """Announces files when they are complete."""
        while True:
            now = time.monotonic()
            due = [path for path, each in self._unsettled.items() if each.due <= now]
            if due:
                async with self._lock:
                    await self._announce_now(await asyncio.to_thread(self._ready, due))
                continue
            self._wake.clear()
            seconds = min((each.due - now for each in self._unsettled.values()), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
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
                else:  # it may become readable
                    unsettled.due = time.monotonic() + 10.0
                continue
            if seconds:
                self._defer(unsettled, seconds)
            else:
                ready.append(path)
        return ready

    async def _announce_now(self, paths: list[Path]) -> None:
        described = await asyncio.to_thread(lambda: [self._describe(path) for path in paths])
        done: list[tuple[Path, FileState | None]] = []
        for path, (known, posts) in zip(paths, described, strict=True):
            for post in posts:
                await self.poster.announce(post)
            if known is not None:
                done.append((path, known))
                self._unsettled.pop(path, None)
        await self.poster.flush()
        await asyncio.to_thread(self.tree.record, done)

    def _describe(self, path: Path) -> tuple[FileState | None, list[Post]]:
        """The state and the posts; nothing for a file that changes meanwhile."""
        try:
            return file_state(path.lstat()), self.poster.describer.describe(path)
        except FileChanging:
            unsettled = self._unsettled.get(path)
            if unsettled is not None:
                self._defer(unsettled, 0.0)
        except (PumpError, OSError) as error:
            log.warning("file not posted", path=str(path), reason=str(error))
            self._unsettled.pop(path, None)
        return None, []

    def _defer(self, unsettled: _Unsettled, seconds: float) -> None:
        unsettled.attempts += 1
        unsettled.due = time.monotonic() + max(seconds, CHECK.delay(unsettled.attempts))

    async def _rescan_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.watch_options.rescan)
            await self.rescan()

    async def _changes(self, stop: asyncio.Event) -> AsyncIterator[set[tuple[Change, str]] | None]:
        """Batches of events; None when the watch becomes active, at first and after a failure:
        earlier events were missed."""
        while not stop.is_set():
            active = False
            try:
                async for changes in awatch(
                    self.root,
                    recursive=self.watch_options.recursive,
                    watch_filter=None,
                    step=STEP_MS,
                    debounce=DEBOUNCE_MS,
                    stop_event=stop,
                    rust_timeout=QUIET_MS,
                    yield_on_timeout=True,  # the first yield tells that the watch is active
                ):
                    if not active:
                        active = True
                        yield None
                    if changes:
                        yield changes
            except OSError as error:  # too many watches, or a removed directory
                log.warning("watch failed, rescanning", reason=str(error))
                await asyncio.sleep(1.0)


def seconds_until_ready(path: Path, min_age: float, now: float | None = None) -> float:
    """Seconds until the next check; 0 when nobody writes to the file and it is old enough."""
    age = (time.time() if now is None else now) - path.lstat().st_mtime
    if 0 <= age < min_age:
        return min_age - age
    written = is_being_written(path)
    if written is None:
        return 0.0 if age >= QUIET_SECONDS or age < 0 else QUIET_SECONDS - age
    return 0.02 if written else 0.0


def is_being_written(path: Path) -> bool | None:
    """Whether a process has it open for writing; None where leases are not available."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # If the file is opened for writing during the lease, the kernel sends a signal. The default
        # one would end the process; SIGURG is ignored.
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(fd)
    return False
