"""The follower's side of replication: makes the leader's files here, and acknowledges.

Changes are written as they arrive, synced together, and acknowledged by the last complete sequence.
After a break the follower compares its files with the leader's index and fetches only what differs.
Frames of an epoch older than the newest this member has seen are refused.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from penstock.cluster.file_index import reconcile
from penstock.cluster.frames import (
    PROTOCOL_VERSION,
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
from penstock.cluster.replica_files import ReplicaFiles, replicated_path
from penstock.core.errors import AuthenticationFailed, FrameError
from penstock.core.logs import get_logger

READ_BYTES: Final = 1 << 20
#: Changes that are written and synced together.
MAX_GROUP_BYTES: Final = 16 << 20
HANDSHAKE_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 3.0
#: The longest silence during the copy: the leader reads its files to compute digests.
COPY_SECONDS: Final = 60.0

_log = get_logger("penstock.cluster")


class FollowerProgress:
    """How far a follower is behind, over all its connections to leaders."""

    __slots__ = ("current_at", "waiting_bytes")

    def __init__(self) -> None:
        #: When this member last had on disk all that the leader had sent; it sends something every
        #: second.
        self.current_at = time.monotonic()
        self.waiting_bytes = 0  #: received, not on disk

    @property
    def lag_seconds(self) -> float:
        return time.monotonic() - self.current_at


class LeaderLink:
    """One connection to the leader, from the handshake to its end."""

    def __init__(
        self,
        data: Path,
        member: Member,
        *,
        timeout: float,
        progress: FollowerProgress | None = None,
        observe_sync: Callable[[float], None] = lambda _: None,
        on_leader: Callable[[list[str], bool], None] = lambda *_: None,
    ) -> None:
        """`observe_sync` gets the seconds that each sync took, `on_leader` the addresses of the
        leader's listeners, and whether these accept a PROXY header from here."""
        self._member = member
        self._timeout = timeout
        self._on_leader = on_leader
        self._progress = progress or FollowerProgress()
        self._files = ReplicaFiles(data, observe_sync)
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
            self._progress.waiting_bytes = 0

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
            raise FrameError(
                f"replication protocol {challenge.get('version')} is not {PROTOCOL_VERSION}: "
                "install the same version of Penstock on all members"
            )
        self._writer.write(
            encode_json_frame(
                FrameType.PROOF, proof=link_proof(member.secret, "follower", nonce, theirs, epoch)
            )
        )
        if epoch < member.epoch:
            # The leader learns from our hello that it is deposed.
            await self._expect(FrameType.REFUSED)
        member.join(str(challenge.get("cluster")))
        self.epoch = epoch
        self.leader = str(challenge.get("node"))
        member.saw(epoch, self.leader)
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
                index[replicated_path(path)] = (size, digests)
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
            progress = self._progress
            progress.waiting_bytes = size + sum(len(frame.payload) for frame in self._frames)
            await _in_thread(self._files.apply, batches)
            progress.waiting_bytes -= size
            complete = [batch.sequence for batch in batches if batch.is_last]
            if complete:
                self._acknowledge(complete[-1])
                if not self._frames:
                    progress.current_at = time.monotonic()

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
