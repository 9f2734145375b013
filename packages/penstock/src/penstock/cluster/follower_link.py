"""The leader's connection to one follower: handshake, copy, changes, acknowledgements."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
from penstock.core.errors import AuthenticationFailed, FrameError
from penstock.core.logs import get_logger

if TYPE_CHECKING:
    from penstock.cluster.replication import Replication

#: Contents are sent in parts of this size.
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
        peer = self._writer.get_extra_info("peername")
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
                accepts_proxy=(peer or ("",))[0] in replication.proxies,
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
