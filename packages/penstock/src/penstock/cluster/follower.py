"""The follower's side of replication: makes the leader's files here, and acknowledges.

Changes are written as they arrive, synced together, and acknowledged by the last complete sequence.
After a break the follower compares its files with the leader's index and fetches only what differs.
Frames of an epoch older than the newest this member has seen are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import ssl
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from penstock.cluster.file_index import is_replicated, reconcile
from penstock.cluster.frames import (
    PROTOCOL_VERSION,
    Change,
    ChangeKind,
    FilePart,
    Frame,
    FrameDecoder,
    FrameType,
    ReplicatedBatch,
    decode_changes,
    decode_file_part,
    encode_ack,
    encode_file_part,
    encode_frame,
    encode_json_frame,
    link_proof,
)
from penstock.cluster.member import Member
from penstock.core.errors import AuthenticationFailed, FrameError
from penstock.core.logs import get_logger

#: Open files.
OPEN_FILES: Final = 128
READ_BYTES: Final = 1 << 20
#: Changes that are written and synced together.
MAX_GROUP_BYTES: Final = 16 << 20
HANDSHAKE_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 3.0
#: The longest silence during the copy: the leader reads its files to compute digests.
COPY_SECONDS: Final = 60.0

_log = get_logger("penstock.cluster")


class LeaderLink:
    """One connection to the leader, from the handshake to its end."""

    def __init__(
        self,
        data: Path,
        member: Member,
        *,
        timeout: float,
        on_leader: Callable[[list[str], bool], None] = lambda *_: None,
    ) -> None:
        """`on_leader` gets the addresses of the leader's listeners, and whether these accept a
        PROXY header from here."""
        self._member = member
        self._timeout = timeout
        self._on_leader = on_leader
        self._files = ReplicaFiles(data)
        self._data = data
        self._decoder = FrameDecoder()
        self._frames: deque[Frame] = deque()
        self._eof = False
        self.epoch = 0
        self.leader = ""
        self.is_synced = False
        self.heard_at = time.monotonic()

    async def run(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        """Follow until the connection ends, which raises; what was acknowledged is on disk."""
        async with asyncio.timeout(CONNECT_SECONDS):
            self._reader, self._writer = await asyncio.open_connection(
                host, port, ssl=context, limit=READ_BYTES
            )
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await self._handshake()
            await self._copy()
            await self._follow()
        finally:
            self._writer.transport.abort()
            self._files.close()

    async def _handshake(self) -> None:
        member = self._member
        nonce = os.urandom(16).hex()
        self._writer.write(
            encode_json_frame(
                FrameType.HELLO,
                version=PROTOCOL_VERSION,
                cluster=member.cluster,
                node=member.node,
                epoch=member.epoch,
                nonce=nonce,
            )
        )
        challenge = (await self._expect(FrameType.CHALLENGE)).json()
        epoch = int(challenge.get("epoch", 0))
        theirs = str(challenge.get("nonce"))
        proof = link_proof(member.secret, "leader", theirs, nonce, epoch)
        if challenge.get("proof") != proof:
            raise AuthenticationFailed(
                f"the leader {challenge.get('node')} has another secret: set broker.cluster.secret "
                "to the same on all members"
            )
        if challenge.get("version") != PROTOCOL_VERSION:
            raise FrameError(f"replication protocol {challenge.get('version')} is not ours")
        self._writer.write(
            encode_json_frame(
                FrameType.PROOF, proof=link_proof(member.secret, "follower", nonce, theirs, epoch)
            )
        )
        if epoch < member.epoch:
            # The leader learns from our hello that it is deposed.
            await self._expect(FrameType.REFUSED)
        member.join(str(challenge.get("cluster")))
        member.saw(epoch)
        self.epoch = epoch
        self.leader = str(challenge.get("node"))
        addresses = [str(one) for one in challenge.get("addresses", [])]
        self._on_leader(addresses, bool(challenge.get("accepts_proxy")))

    async def _expect(self, *kinds: FrameType) -> Frame:
        while not self._frames:
            await self._read()
        frame = self._frames.popleft()
        if frame.type == FrameType.REFUSED:
            raise AuthenticationFailed(f"the leader refused: {frame.json().get('reason')}")
        if frame.type not in kinds:
            raise FrameError(f"replication: {frame.type.name} is not expected here")
        return frame

    async def _read(self, seconds: float = COPY_SECONDS) -> None:
        try:
            async with asyncio.timeout(seconds):
                data = await self._reader.read(READ_BYTES)
        except TimeoutError:
            reason = f"nothing from the leader for {seconds:g} s"
            raise OSError(errno.ETIMEDOUT, reason) from None
        if not data:
            raise EOFError("the leader closed the connection")
        self.heard_at = time.monotonic()
        self._frames.extend(self._decoder.feed(data))

    async def _copy(self) -> None:
        """Make the files those of the leader, as of its index."""
        # Until the copy is complete, this data must not lead.
        self._member.set_copying(True)
        while True:
            index: dict[str, tuple[int, bytes]] = {}
            while (frame := await self._expect(FrameType.INDEX, FrameType.END)).type != (
                FrameType.END
            ):
                path, size, digests = decode_file_part(frame.payload)
                index[_checked(path)] = (size, digests)
            missing = await _in_thread(reconcile, self._data, index)
            for path, position in missing:
                self._writer.write(encode_file_part(FrameType.FETCH, path, position))
            self._writer.write(encode_frame(FrameType.END))
            await self._writer.drain()
            parts: list[FilePart] = []
            while (frame := await self._expect(FrameType.DATA, FrameType.END)).type != (
                FrameType.END
            ):
                parts.append(decode_file_part(frame.payload))
                if len(parts) == 8:
                    await _in_thread(self._files.store, parts)
                    parts = []
            await _in_thread(self._files.store, parts)
            await _in_thread(self._files.sync)
            end = frame.json()
            self._files.lenient_until = int(end["until"])
            _log.info("copied", leader=self.leader, epoch=self.epoch, files=len(missing))
            if end["until"] <= end["sequence"]:
                self._acknowledge(int(end["sequence"]))
            # Changes follow, or another index if too many collected meanwhile.
            while not self._frames:
                await self._read()
            if self._frames[0].type != FrameType.INDEX:
                return

    def _acknowledge(self, sequence: int) -> None:
        if sequence >= self._files.lenient_until:
            if not self.is_synced:
                self._member.set_copying(False)
                self.is_synced = True
            self._writer.write(encode_ack(self.epoch, sequence))

    async def _follow(self) -> None:
        while True:
            while not self._frames:
                await self._read(self._timeout)
            batches: list[ReplicatedBatch] = []
            size = 0
            while self._frames and size < MAX_GROUP_BYTES:
                frame = await self._expect(FrameType.CHANGES)
                size += len(frame.payload)
                batches.append(self._accept(decode_changes(frame.payload)))
            await _in_thread(self._files.apply, batches)
            complete = [batch.sequence for batch in batches if batch.is_last]
            if complete:
                self._acknowledge(complete[-1])

    def _accept(self, batch: ReplicatedBatch) -> ReplicatedBatch:
        if batch.epoch != self.epoch or batch.epoch < self._member.epoch:
            raise FrameError(
                f"changes of epoch {batch.epoch} refused: the newest is {self._member.epoch}"
            )
        return batch

    def describe(self) -> dict[str, Any]:
        return {
            "leader": self.leader,
            "epoch": self.epoch,
            "copied": self.is_synced,
            "silent_seconds": round(time.monotonic() - self.heard_at, 3),
        }


_P = ParamSpec("_P")
_T = TypeVar("_T")


async def _in_thread(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run in a thread; if this task is cancelled, wait for the end of the work first."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _checked(path: str) -> str:
    """Only files that are replicated, and only below the data directory."""
    if not is_replicated(path) or ".." in path.split("/"):
        raise FrameError(f"replication: {path!r} is not a replicated file")
    return path


class ReplicaFiles:
    """The files of a follower. Everything runs in one thread at a time."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._open: OrderedDict[str, int] = OrderedDict()
        self._written: set[str] = set()  # not synced
        self._directories: set[Path] = set()  # with new names
        #: Changes up to this sequence may meet files of a later state: they are repeated.
        self.lenient_until = -1

    def store(self, parts: list[FilePart]) -> None:
        """Content of the copy."""
        for path, position, data in parts:
            self._write(_checked(path), position, data)

    def apply(self, batches: list[ReplicatedBatch]) -> None:
        """Write the changes in order, and sync them."""
        for batch in batches:
            lenient = batch.sequence <= self.lenient_until
            for change in batch.changes:
                self._apply(change, lenient)
        self.sync()

    def _apply(self, change: Change, lenient: bool) -> None:
        kind, path, number, data = change
        _checked(path)
        match kind:
            case ChangeKind.APPEND:
                fd = self._file(path)
                if not lenient and number > os.fstat(fd).st_size:
                    raise FrameError(f"replication: {path} ends before byte {number}")
                self._write(path, number, data)
            case ChangeKind.TRUNCATE:
                os.ftruncate(self._file(path), number)
                self._written.add(path)
            case ChangeKind.DELETE:
                self._delete(path)
            case ChangeKind.BEGIN:
                self._close(path + ".part")
                (self._data / (path + ".part")).unlink(missing_ok=True)
                self._file(path + ".part")
            case ChangeKind.PART:
                self._write(path + ".part", number, data)
            case ChangeKind.COMMIT:
                self._commit(path, number)
            case ChangeKind.LINK:
                self._link(path, _checked(data.decode()), lenient)

    def _commit(self, path: str, size: int) -> None:
        part = self._data / (path + ".part")
        fd = self._file(path + ".part")
        if os.fstat(fd).st_size != size:
            raise FrameError(f"replication: {path} has not {size} bytes")
        os.fdatasync(fd)
        self._close(path + ".part")
        self._close(path)
        part.replace(self._data / path)
        self._directories.add(part.parent)

    def _link(self, path: str, other: str, lenient: bool) -> None:
        self._close(path)
        target = self._data / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(self._data / other, target)
        except FileNotFoundError:
            if not lenient:
                raise FrameError(f"replication: {other} is missing, {path} links to it") from None
        self._directories.add(target.parent)

    def _delete(self, path: str) -> None:
        target = self._data / path
        for name in [name for name in self._open if name == path or name.startswith(path + "/")]:
            self._close(name)
        if target.is_dir():
            shutil.rmtree(target)
            self._directories = {
                one for one in self._directories if one != target and target not in one.parents
            }
        else:
            target.unlink(missing_ok=True)
            target.with_suffix(".idx").unlink(missing_ok=True)

    def _write(self, path: str, position: int, data: bytes) -> None:
        fd = self._file(path)
        written = 0
        while written < len(data):
            written += os.pwrite(fd, data[written:], position + written)
        self._written.add(path)

    def _file(self, path: str) -> int:
        fd = self._open.get(path)
        if fd is not None:
            self._open.move_to_end(path)
            return fd
        file = self._data / path
        if not file.parent.is_dir():
            file.parent.mkdir(parents=True, mode=0o700)
            self._directories.update((file.parent, file.parent.parent))
        if not file.exists():
            self._directories.add(file.parent)
        fd = self._open[path] = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while len(self._open) > OPEN_FILES:
            oldest = next(iter(self._open))
            if oldest in self._written:
                os.fdatasync(self._open[oldest])
            self._close(oldest)
        return fd

    def _close(self, path: str) -> None:
        fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)
        self._written.discard(path)

    def sync(self) -> None:
        for path in self._written:
            os.fdatasync(self._open[path])
        self._written.clear()
        for directory in self._directories:
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        self._directories.clear()

    def close(self) -> None:
        for path in list(self._open):
            self._close(path)
