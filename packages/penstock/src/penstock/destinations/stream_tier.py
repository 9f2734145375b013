"""The remote segments of one stream: sealed segments move to tiered storage, and back for readers.

A sealed segment that all in-sync members have is uploaded and compared. Then its descriptor is
written, and only when that is on disk, local retention may delete the file. A reader that needs it
waits while it is fetched. Fetched segments are deleted again when others are read.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock.broker.kernel import Kernel
from penstock.broker.log.log import Log
from penstock.broker.log.remote_segment import (
    RemoteFile,
    RemoteSegment,
    remote_path,
    save_remote_segment,
)
from penstock.broker.log.segment import Segment, encode_index
from penstock.broker.spool import BodyFiles
from penstock.core.errors import ObjectStoreError
from penstock.core.logs import get_logger

#: Fetched segments of a stream that are kept for its readers.
MAX_FETCHED: Final = 4
#: A fetched segment is not deleted so shortly after it was read.
FETCHED_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 5.0

_log = get_logger("penstock.tiered_storage")


class StreamTier:
    def __init__(
        self,
        kernel: Kernel,
        log: Log,
        bodies: BodyFiles,
        name: str,
        wake: Callable[[], None],
    ) -> None:
        """`wake` serves the readers; `name` is that of the stream, for logs and for objects."""
        self._kernel = kernel
        self._storage = kernel.tiered_storage
        self._log = log
        self._bodies = bodies
        self._name = name
        self._wake = wake
        self._is_tiered = False
        self._max_age: int | None = None
        self._max_bytes: int | None = None
        self._uploading: Segment | None = None
        self._safe = {one for one, _ in log.segments.sealed() if one.remote is not None}
        self._fetching: dict[Segment, list[asyncio.Future[None]]] = {}
        self._fetched: list[Segment] = []
        self._closed = False
        self.error = ""  #: of the last upload or download
        log.on_not_local = self._fetch
        log.segments.on_dropped = self._delete_objects

    def set_limits(self, max_age: int | None, max_bytes: int | None) -> None:
        """What stays here: milliseconds and bytes; without either, nothing is uploaded."""
        self._max_age, self._max_bytes = max_age, max_bytes
        self._is_tiered = max_age is not None or max_bytes is not None

    def tick(self) -> None:
        if self._is_tiered and self._storage is not None:
            self._upload_next()
            self._drop_local()

    def close(self) -> None:
        self._closed = True
        for waiting in self._fetching.values():
            for one in waiting:
                one.cancel()

    # Uploads.

    def _upload_next(self) -> None:
        storage = self._storage
        if self._uploading is not None or self._closed or storage is None:
            return
        for segment, end in self._log.segments.sealed():
            if segment.remote is None and end <= self._log.synced_offset:
                break
        else:
            return
        self._uploading = segment
        index = encode_index(segment.index, segment.size)
        bodies = [offset for offset, _ in self._bodies.sizes(segment.base, end)]
        remote: list[RemoteSegment] = []

        def upload() -> None:
            if self._closed:
                raise ObjectStoreError("the broker closes")
            file = storage.upload(segment.path, self._name)
            files = {}
            for offset in bodies:
                files[offset] = storage.upload(self._bodies.path(offset), self._name)
            remote.append(RemoteSegment(file, files))
            save_remote_segment(segment.path, remote[0], index)

        storage.in_background(
            upload, lambda error: self._uploaded(segment, remote[0] if remote else None, error)
        )

    def _uploaded(
        self, segment: Segment, remote: RemoteSegment | None, error: OSError | None
    ) -> None:
        self._uploading = None
        is_here = any(one is segment for one, _ in self._log.segments.sealed())
        if error is not None or remote is None:
            if is_here and not self._closed:
                self._complain("segment not uploaded", segment, error)
            return
        descriptor = remote_path(segment.path)
        if self._closed:  # the descriptor is found at the next start
            return
        if not is_here:  # retention, or the stream was deleted
            descriptor.unlink(missing_ok=True)
            self._delete(remote)
            return
        segment.remote = remote
        if (observer := self._kernel.committer.observer) is not None:
            fd = os.open(descriptor, os.O_RDONLY | os.O_CLOEXEC)
            try:
                observer.replace(descriptor, fd, os.fstat(fd).st_size)
            finally:
                os.close(fd)
        self._kernel.committer.after(lambda: self._safe.add(segment))
        self._kernel.write_batch.call_soon(self.tick)
        self._recovered()

    # Local retention.

    def _drop_local(self) -> None:
        sealed = [one for one, _ in self._log.segments.sealed()]
        active = self._log.segments.active
        local = sum(one.size for one in sealed if one.is_local) + (active.size if active else 0)
        oldest = None if self._max_age is None else self._log.now() - self._max_age
        recently = time.monotonic() - FETCHED_SECONDS
        for segment in sealed:
            is_surplus = self._max_bytes is not None and local > self._max_bytes
            is_old = oldest is not None and segment.newest < oldest
            if not is_surplus and not is_old:
                break
            if segment.is_local and segment in self._safe and segment.used_at < recently:
                local -= segment.size
                self._drop(segment)

    def _drop(self, segment: Segment) -> None:
        remote = segment.remote
        if remote is None:
            return
        self._log.segments.release(segment)
        segment.drop_file()
        if (observer := self._kernel.committer.observer) is not None:
            observer.delete(segment.path)
        for offset in remote.bodies:
            self._bodies.remove(offset)
        if segment in self._fetched:
            self._fetched.remove(segment)

    def _delete_objects(self, segment: Segment) -> None:
        """The segment was deleted: its objects follow when that is on disk."""
        self._safe.discard(segment)
        if segment in self._fetched:
            self._fetched.remove(segment)
        if (remote := segment.remote) is not None:
            self._kernel.committer.after(lambda: self._delete(remote))

    def _delete(self, remote: RemoteSegment) -> None:
        storage = self._storage
        if storage is None:
            return

        def delete() -> None:
            for file in (remote.file, *remote.bodies.values()):
                storage.delete(file)

        def deleted(error: OSError | None) -> None:
            if error is not None:
                _log.warning("object not deleted", object=remote.file.name, error=str(error))

        storage.in_background(delete, deleted)

    # Readers.

    async def fetch(self, offset: int, stop: int) -> int:
        """Make the messages at the offset available here; returns how far they are, at most to
        `stop`. Raises ObjectStoreError."""
        end = offset
        while end < stop and (found := self._log.segments.at(end)) is not None:
            segment, following = found
            if not segment.is_local:
                if end > offset:
                    return end
                waiting = self._kernel.loop.create_future()
                self._fetching.setdefault(segment, []).append(waiting)
                if len(self._fetching[segment]) == 1:
                    self._begin(segment)
                await waiting
            end = min(stop, following)
        return stop if end >= stop or self._log.segments.at(end) is None else end

    def _fetch(self, segment: Segment) -> None:
        """A reader needs the segment, and soon the next one."""
        if segment not in self._fetching and not self._closed:
            self._fetching[segment] = []
            self._begin(segment)
            following = self._log.segments.at(segment.index.end)
            if following is not None and not following[0].is_local:
                self._fetch_ahead(following[0])

    def _fetch_ahead(self, segment: Segment) -> None:
        if segment not in self._fetching:
            self._fetching[segment] = []
            self._begin(segment)

    def _begin(self, segment: Segment) -> None:
        storage, remote = self._storage, segment.remote
        assert remote is not None
        if storage is None:
            why = ObjectStoreError("broker.tiered_storage is not set, and only it has the messages")
            self._kernel.loop.call_soon(self._ended, segment, why)
            return
        while len(self._fetched) >= MAX_FETCHED:
            self._drop(min(self._fetched, key=lambda one: one.used_at))

        def download() -> None:
            if self._closed:
                raise ObjectStoreError("the broker closes")
            for offset, body in remote.bodies.items():
                _download(body, self._bodies.path(offset))
            _download(remote.file, segment.path)

        def _download(file: RemoteFile, path: Path) -> None:
            if not path.exists():
                storage.download(file, path)

        storage.for_readers(download, lambda error: self._ended(segment, error))

    def _ended(self, segment: Segment, error: OSError | None) -> None:
        waiting = self._fetching.pop(segment, [])
        if self._closed:
            return
        if error is not None:
            self._complain("segment not fetched", segment, error)
            for one in waiting:
                if not one.done():
                    one.set_exception(ObjectStoreError(str(error)))
            # Readers that wait try again.
            when = self._kernel.loop.time() + RETRY_SECONDS
            self._kernel.write_batch.call_at(when, self._wake_unless_closed)
            return
        segment.is_local = True
        segment.used_at = time.monotonic()
        self._fetched.append(segment)
        self._recovered()
        for one in waiting:
            if not one.done():
                one.set_result(None)
        self._kernel.write_batch.call_soon(self._wake_unless_closed)

    def _wake_unless_closed(self) -> None:
        if not self._closed:
            self._wake()

    # State.

    def body_sizes(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Offsets and sizes of bodies that are not here."""
        found = []
        for segment, end in self._log.segments.sealed():
            if segment.is_local or segment.remote is None or end <= start or segment.base >= stop:
                continue
            bodies = segment.remote.bodies.items()
            found += [(offset, body.size) for offset, body in bodies if start <= offset < stop]
        return found

    def _complain(self, event: str, segment: Segment, error: OSError | None) -> None:
        """Log an error once."""
        reason = str(error) or type(error).__name__
        if reason != self.error:
            self.error = reason
            _log.warning(event, stream=self._name, segment=segment.path.name, error=reason)

    def _recovered(self) -> None:
        if self.error:
            self.error = ""
            _log.info("tiered storage reachable", stream=self._name)

    def describe(self) -> dict[str, Any]:
        """Empty for a stream that has nothing remote and is not to have it."""
        remote = [one for one, _ in self._log.segments.sealed() if one.remote is not None]
        if not self._is_tiered and not remote:
            return {}
        away = sum(one.size for one in remote if not one.is_local)
        return {
            "tiered_storage": {
                "remote_segments": len(remote),
                "remote_bytes": sum(one.size for one in remote),
                "local_bytes": self._log.bytes - away,
                "error": self.error,
            }
        }
