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
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock.broker.log.observer import CommitWaiters
from penstock.cluster.file_index import IndexedFile, file_index, is_replicated
from penstock.cluster.frames import (
    PROTOCOL_VERSION,
    ChangeKind,
    Frame,
    FrameDecoder,
    FrameType,
    decode_ack,
    decode_file_part,
    encode_change,
    encode_changes,
    encode_file_part,
    encode_json_frame,
    link_proof,
)
from penstock.cluster.in_sync_set import InSyncSet, RecordInSync
from penstock.cluster.member import Member
from penstock.core.errors import AuthenticationFailed, FrameError, PenstockError
from penstock.core.logs import get_logger

#: Larger contents are sent in parts, and shared between several names.
INLINE_BYTES: Final = 64 * 1024
PART_BYTES: Final = 1 << 20
#: The longest handshake.
HANDSHAKE_SECONDS: Final = 10.0
#: Waiting contents per follower: each holds a descriptor.
MAX_CONTENTS: Final = 256

_log = get_logger("penstock.cluster")


class FileContent:
    """The first `size` bytes of an open file, which never change."""

    __slots__ = ("fd", "path", "size")

    def __init__(self, path: str, fd: int, size: int) -> None:
        self.path = path
        self.fd = os.dup(fd)
        self.size = size

    def __del__(self) -> None:
        os.close(self.fd)


#: Encoded changes, and contents to send in parts.
BatchParts = list[bytes | FileContent]


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


class FollowerLink:
    """The connection of one follower."""

    def __init__(
        self,
        replication: Replication,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._replication = replication
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()
        self._frames: deque[Frame] = deque()
        self.node = ""
        self.acked = -1
        self.is_synced = False  #: has everything from before the copy ended
        self.lag_bytes = 0
        self._waiting: deque[tuple[int, BatchParts]] = deque()
        self._unacked: deque[tuple[int, int, float]] = deque()  # sequence, bytes, time
        self._contents = 0
        self._has_batches = asyncio.Event()
        self._overflow = False

    def lag_seconds(self) -> float:
        return time.monotonic() - self._unacked[0][2] if self._unacked else 0.0

    def send(self, sequence: int, batch: BatchParts) -> None:
        if self._overflow:
            return
        size = 0
        for part in batch:
            size += part.size if isinstance(part, FileContent) else len(part)
            self._contents += isinstance(part, FileContent)
        self.lag_bytes += size
        self._waiting.append((sequence, batch))
        self._unacked.append((sequence, size, time.monotonic()))
        # One large message may exceed the limit; what waits behind it may not.
        behind = self.lag_bytes - self._unacked[0][1]
        if behind > self._replication.max_lag or self._contents > MAX_CONTENTS:
            self._overflow = True
            self._forget()
        self._has_batches.set()

    def _forget(self) -> None:
        self._waiting.clear()
        self._unacked.clear()
        self._contents = self.lag_bytes = 0

    async def run(self) -> None:
        replication = self._replication
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await self._handshake()
        previous = replication.links.get(self.node)
        if previous is not None:
            previous.abort()
        replication.links[self.node] = self
        while True:
            self._overflow = False
            self._forget()
            base = replication.seal()
            await self._copy(base)
            if not self._overflow:
                break
            # Too many changes meanwhile. Compare again: most is there by now.
        await asyncio.gather(self._send_changes(), self._receive_acks())

    def abort(self) -> None:
        self._writer.transport.abort()

    async def _handshake(self) -> None:
        replication = self._replication
        hello = (await self._expect(FrameType.HELLO)).json()
        nonce = os.urandom(16).hex()
        member, epoch = replication.member, replication.epoch
        if hello.get("version") != PROTOCOL_VERSION:
            await self._refuse(
                f"replication protocol {hello.get('version')} is not {PROTOCOL_VERSION}: "
                "install the same version of Penstock on all members"
            )
        proof = link_proof(member.secret, "leader", nonce, str(hello.get("nonce")), epoch)
        self._writer.write(
            encode_json_frame(
                FrameType.CHALLENGE,
                version=PROTOCOL_VERSION,
                cluster=member.cluster,
                node=member.node,
                epoch=epoch,
                nonce=nonce,
                proof=proof,
                addresses=replication.addresses,
            )
        )
        answer = (await self._expect(FrameType.PROOF)).json()
        proof = link_proof(member.secret, "follower", str(hello.get("nonce")), nonce, epoch)
        if answer.get("proof") != proof:
            _log.warning("follower refused", reason="wrong secret", node=str(hello.get("node")))
            await self._refuse("wrong secret: set broker.cluster.secret to that of the leader")
        if hello.get("cluster") not in ("", member.cluster):
            await self._refuse(
                f"the data directory of {hello.get('node')} belongs to another cluster "
                f"({hello.get('cluster')}): give it an empty directory (--data)"
            )
        theirs = int(hello.get("epoch") or 0)
        if theirs > epoch:
            replication.on_deposed(theirs)
            await self._refuse(f"epoch {epoch} is over: {hello.get('node')} has seen {theirs}")
        self.node = str(hello.get("node"))
        if self.node == member.node:
            await self._refuse(
                f"{self.node} leads already: do not copy the data directory of a member, "
                "start with an empty one"
            )

    async def _refuse(self, reason: str) -> None:
        self._writer.write(encode_json_frame(FrameType.REFUSED, reason=reason))
        with contextlib.suppress(OSError):
            await self._writer.drain()
        raise AuthenticationFailed(reason)

    async def _expect(self, *kinds: FrameType) -> Frame:
        while not self._frames:
            data = await self._reader.read(1 << 16)
            if not data:
                raise EOFError("the follower closed the connection")
            self._frames.extend(self._decoder.feed(data))
        frame = self._frames.popleft()
        if frame.type not in kinds:
            raise FrameError(f"replication: {frame.type.name} is not expected here")
        return frame

    async def _copy(self, base: int) -> None:
        """Send the index, and what the follower then asks for."""
        data = self._replication.data
        entries = file_index(data)

        def some() -> list[IndexedFile]:
            found: list[IndexedFile] = []
            for entry in entries:
                found.append(entry)
                if len(found) == 64 or entry.size > 16 * PART_BYTES:
                    break
            return found

        while found := await asyncio.to_thread(some):
            for entry in found:
                self._writer.write(encode_file_part(FrameType.INDEX, *entry))
            await self._writer.drain()
        self._writer.write(encode_json_frame(FrameType.END, sequence=base))
        wanted = []
        while (frame := await self._expect(FrameType.FETCH, FrameType.END)).type != FrameType.END:
            part = decode_file_part(frame.payload)
            if is_replicated(part.path) and ".." not in part.path:
                wanted.append(part)
        for path, position, _ in wanted:
            await self._send_file(data / path, path, position)
        # Changes up to here may meet files of a later state.
        until = self._replication.seal()
        self._writer.write(encode_json_frame(FrameType.END, sequence=base, until=until))
        await self._writer.drain()

    async def _send_file(self, file: Path, path: str, position: int) -> None:
        try:
            fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # deleted meanwhile, which is sent as a change
        try:
            while True:
                data = await asyncio.to_thread(os.pread, fd, PART_BYTES, position)
                self._writer.write(encode_file_part(FrameType.DATA, path, position, data))
                await self._writer.drain()
                position += len(data)
                if not data:
                    return
        finally:
            os.close(fd)

    async def _send_changes(self) -> None:
        epoch = self._replication.epoch
        while True:
            while self._waiting:
                sequence, batch = self._waiting.popleft()
                for part in batch:
                    if isinstance(part, bytes):
                        self._writer.write(part)
                    else:
                        await self._send_content(epoch, sequence, part)
                        self._contents -= 1
                await self._writer.drain()
            if self._overflow:
                raise OSError(f"more than {self._replication.max_lag} bytes behind")
            self._has_batches.clear()
            await self._has_batches.wait()

    async def _send_content(self, epoch: int, sequence: int, content: FileContent) -> None:
        path, position = content.path, 0
        change = encode_change(ChangeKind.BEGIN, path)
        while True:
            self._writer.write(encode_changes(epoch, sequence, False, change))
            await self._writer.drain()
            if position >= content.size:
                break
            wanted = min(PART_BYTES, content.size - position)
            data = await asyncio.to_thread(os.pread, content.fd, wanted, position)
            change = encode_change(ChangeKind.PART, path, position, data)
            position += len(data)
            if not data:
                raise OSError(f"{path} is shorter than {content.size} bytes")
        change = encode_change(ChangeKind.COMMIT, path, content.size)
        self._writer.write(encode_changes(epoch, sequence, False, change))

    async def _receive_acks(self) -> None:
        replication = self._replication
        while True:
            epoch, sequence = decode_ack((await self._expect(FrameType.ACK)).payload)
            if epoch != replication.epoch:
                raise FrameError(f"replication: acknowledgement of epoch {epoch}")
            self.acked = sequence
            while self._unacked and self._unacked[0][0] <= sequence:
                self.lag_bytes -= self._unacked.popleft()[1]
            replication.in_sync.acknowledged(self.node, sequence)
            if not self.is_synced:  # the copy is complete
                self.is_synced = True
                _log.info("follower caught up", node=self.node, sequence=sequence)
            replication.wake()
