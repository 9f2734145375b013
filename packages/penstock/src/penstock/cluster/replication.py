"""The leader's side of replication: collects changes of files, and sends them to every follower.

The changes of one write batch are one batch with one sequence number. It is encoded once and sent
to all followers. A follower that connects gets an index of the files, then what it lacks, then all
changes since before the index was made: applied again, they lead to the same files.

A follower for which more than `max_lag` bytes wait is disconnected and starts again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock.broker.log.observer import CommitWaiters
from penstock.cluster.file_index import is_replicated
from penstock.cluster.follower_link import PART_BYTES, BatchParts, FileContent, FollowerLink
from penstock.cluster.frames import ChangeKind, encode_change, encode_changes
from penstock.cluster.in_sync_set import InSyncSet, RecordInSync
from penstock.cluster.member import Member
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.core.proxy_protocol import TrustedProxies

#: Larger contents are sent in parts, and several names share them.
INLINE_BYTES: Final = 64 * 1024

_log = get_logger("penstock.cluster")


class Replication:
    """Implements `StorageObserver`."""

    def __init__(
        self,
        data: Path,
        member: Member,
        *,
        epoch: int,
        members: frozenset[str],
        record: RecordInSync,
        on_deposed: Callable[[int], None],
        min_in_sync: int,
        follower_timeout: float,
        max_lag: int,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self.data = data
        self.member = member
        self.epoch = epoch
        self.addresses: list[str] = []  #: of the leader's listeners, for followers to forward to
        self.proxies = TrustedProxies(())  #: whose connections to these may have a PROXY header
        self.max_lag = max_lag
        self.sequence = 0
        self.on_deposed = on_deposed
        self._timeout = follower_timeout
        self.in_sync = InSyncSet(
            member.node,
            members,
            record=record,
            report=self._report,
            min_in_sync=min_in_sync,
            timeout=follower_timeout,
            now=time.monotonic,
        )
        self.refuses = self.in_sync.is_too_small
        self._open: BatchParts = []
        self._sealing = False
        self._names: dict[tuple[int, int], str] = {}  # a name of each large body, by inode
        self.links: dict[str, FollowerLink] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._maintenance: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.lost = False  #: leadership is gone: nothing is confirmed any more

    # The observer.

    def append(self, path: Path, position: int, data: bytes) -> None:
        name = self._name(path)
        if name:
            self._add(encode_change(ChangeKind.APPEND, name, position, data))

    def truncate(self, path: Path, size: int) -> None:
        name = self._name(path)
        if name:
            self._add(encode_change(ChangeKind.TRUNCATE, name, size))

    def delete(self, path: Path) -> None:
        name = self._name(path)
        if not name:
            return
        for key in [
            key
            for key, known in self._names.items()
            if known == name or known.startswith(name + "/")
        ]:
            del self._names[key]
        self._add(encode_change(ChangeKind.DELETE, name))

    def replace(self, path: Path, fd: int, size: int) -> None:
        name = self._name(path)
        if not name:
            return
        if size <= INLINE_BYTES:
            self._add(encode_change(ChangeKind.BEGIN, name))
            self._add(encode_change(ChangeKind.PART, name, 0, os.pread(fd, size, 0)))
            self._add(encode_change(ChangeKind.COMMIT, name, size))
            return
        status = os.fstat(fd)
        key = (status.st_dev, status.st_ino)
        other = self._names.get(key)
        if other is not None:
            self._add(encode_change(ChangeKind.LINK, name, size, other.encode()))
            return
        if name.endswith(".body"):
            self._names[key] = name
        self._add(FileContent(name, fd, size))

    def replace_file(self, path: Path) -> None:
        """A file was replaced by another process or by a plain write."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.replace(path, fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def _name(self, path: Path) -> str:
        name = path.relative_to(self.data).as_posix()
        return name if is_replicated(name) else ""

    def _add(self, part: bytes | FileContent) -> None:
        self._open.append(part)
        if not self._sealing:  # if no write batch follows
            self._sealing = True
            self._loop.call_soon(self.seal)

    def seal(self) -> int:
        self._sealing = False
        if self._open:
            self._ship()
        return self.sequence

    def _ship(self) -> None:
        """Send the open batch, which may be empty, to every follower."""
        self.sequence += 1
        parts, self._open = self._open, []
        batch: BatchParts = []
        encoded: list[bytes] = []
        size = 0
        for part in parts:
            if isinstance(part, bytes) and size < 8 * PART_BYTES:
                encoded.append(part)
                size += len(part)
                continue
            if encoded:
                batch.append(encode_changes(self.epoch, self.sequence, False, b"".join(encoded)))
                encoded, size = [], 0
            if isinstance(part, bytes):
                encoded, size = [part], len(part)
            else:
                batch.append(part)
        batch.append(encode_changes(self.epoch, self.sequence, True, b"".join(encoded)))
        for link in list(self.links.values()):
            link.send(self.sequence, batch)

    def when_replicated(self, sequence: int, waiters: CommitWaiters) -> None:
        if self.lost:
            waiters.fail(self._report, OSError("this member no longer leads the cluster"))
        else:
            self.in_sync.wait(sequence, waiters)

    def fail(self, cause: OSError) -> None:
        self.in_sync.fail(cause)

    def _report(self, error: Exception) -> None:
        message = "commit callback failed"
        self._loop.call_exception_handler({"message": message, "exception": error})

    # Followers.

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Listen for followers; returns the port."""
        self._server = await asyncio.start_server(self._connected, host, port, ssl=context)
        self.in_sync.start()
        self._maintenance = self._loop.create_task(self._maintain())
        return int(self._server.sockets[0].getsockname()[1])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        link = FollowerLink(self, reader, writer)
        try:
            await link.run()
        except (OSError, EOFError, TimeoutError, PenstockError) as error:
            _log.info("follower left", node=link.node, error=str(error) or type(error).__name__)
        except asyncio.CancelledError:
            pass
        finally:
            if self.links.get(link.node) is link:
                del self.links[link.node]
            self._connections.discard(task)
            writer.close()
            self._wake.set()

    async def _maintain(self) -> None:
        """Heartbeats, and changes of the in-sync set."""
        beat = 0.0
        while not self.lost:
            now = time.monotonic()
            if now - beat >= min(1.0, self._timeout / 3):
                beat = now
                self.seal()
                self._ship()
            ready = [
                node
                for node, link in self.links.items()
                if link.is_synced and link.lag_seconds() < self._timeout
            ]
            for node in ready:
                self.in_sync.healthy(node)
            if not await self.in_sync.update(ready):
                self.lost = True
                self.on_deposed(0)
                return
            self.refuses = self.in_sync.is_too_small
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), min(0.25, self._timeout / 4))

    def wake(self) -> None:
        """A follower has caught up."""
        self._wake.set()

    def remove(self, node: str) -> None:
        """Disconnect a follower, and remove it from the in-sync set without waiting for it."""
        link = self.links.pop(node, None)
        if link is not None:
            link.abort()
        self.in_sync.give_up(node)
        self.wake()

    async def drain(self, seconds: float) -> None:
        """Wait until the in-sync followers have everything, or this long."""
        self.seal()
        until = time.monotonic() + seconds
        while self.links and time.monotonic() < until:
            followers = [link for link in self.links.values() if link.is_synced]
            if all(link.acked >= self.sequence for link in followers):
                return
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        self.lost = True
        if self._maintenance is not None:
            self._maintenance.cancel()
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def describe(self) -> list[dict[str, Any]]:
        """Every member that is connected or in the in-sync set."""
        found = []
        for node in sorted(self.in_sync.members | set(self.links)):
            link = self.links.get(node)
            leads = node == self.member.node
            found.append(
                {
                    "node": node,
                    "role": "leader" if leads else "follower",
                    "in_sync": node in self.in_sync.members,
                    "connected": leads or link is not None,
                    "lag_bytes": link.lag_bytes if link is not None else 0,
                    "lag_seconds": round(link.lag_seconds(), 3) if link is not None else 0.0,
                }
            )
        return found
