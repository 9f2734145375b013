"""From a post to a file: fetched, verified while it comes, and put under its name when it is right.

A file that is here already and has the announced sum is not fetched. A part is written where it
belongs in the file, or kept as a part file where the file is not to be put together here. Trying
again is for whoever calls: an error leaves behind nothing that the next attempt could trip over.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from penstock.core.units import KiB
from penstock_pump.errors import unusable_name
from penstock_pump.files.blocks import BlockAssembly, BlockWriter
from penstock_pump.files.committer import CommitResult, FileCommitter, PendingFile
from penstock_pump.files.inflight import FileAttributes, InflightFile
from penstock_pump.files.target import FolderCache, InflightName, LocalTarget
from penstock_pump.part_quota import PartQuota
from penstock_pump.posts import reports
from penstock_pump.posts.checksums import LATER, Checksum, ChecksumMethods
from penstock_pump.posts.parts import INPLACE, PARTITIONED, Parts, part_name
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import PostOutcome
from penstock_pump.thread_pool import BatchThreadPool, run_to_completion
from penstock_pump.transfer import (
    WRITE_BYTES,
    BandwidthLimit,
    BufferedSink,
    CountingWriter,
    FileTransfer,
    MemorySink,
    TransferRegistry,
)
from penstock_pump.transports.transport import (
    ByteRange,
    FileSource,
    LocalTransport,
    Transport,
    TransportRegistry,
    as_local_transport,
    source_of,
)


@dataclass(frozen=True, slots=True)
class DownloadRules:
    """How files are fetched."""

    inflight: InflightName = field(default_factory=InflightName)
    attributes: FileAttributes = field(default_factory=FileAttributes)
    strict: bool = True  #: another sum than announced is refused, not announced anew
    join: bool = False  #: base URL and path are joined whatever they end with
    inplace: bool = True  #: parts are put together here
    overwrite: bool = True  #: compare and replace what is here; else what is here is enough


class Downloader:
    """Keeps what is shared by all files of a component."""

    def __init__(
        self,
        transports: TransportRegistry,
        sums: ChecksumMethods,
        rules: DownloadRules,
        bandwidth_limit: BandwidthLimit | None = None,
        transfers: TransferRegistry | None = None,
        part_quota: PartQuota | None = None,
        at_a_time: int = 16,
    ) -> None:
        self._transports = transports
        self._sums = sums
        self._rules = rules
        self._existing_file_check = ExistingFileCheck(
            sums, rules.overwrite, rules.attributes.keep_times
        )
        self._folders = FolderCache(rules.attributes.folder_mode)
        self._thread_pool = BatchThreadPool()
        self._committer = FileCommitter(durable=rules.attributes.durable)
        self._bandwidth_limit = bandwidth_limit or BandwidthLimit()
        self._transfers = transfers or TransferRegistry()
        self._part_quota = part_quota
        self._room = asyncio.Semaphore(at_a_time)  #: of what is large, or comes from afar

    async def close(self) -> None:
        await self._thread_pool.close()
        await self._committer.close()

    async def fetch(self, post: Post, target: LocalTarget) -> PostOutcome:
        parts = post.parts
        transfer = self._transfers.enter(post.name, parts.length if parts else None)
        try:
            if parts is None or parts.single:
                return await self._fetch_whole(post, target, transfer)
            if self._rules.inplace:
                async with self._room:
                    transfer.begin()
                    return await self._fetch_block(post, parts, target, transfer)
            return await self._keep_part(post, parts, target, transfer)
        finally:
            self._transfers.leave(transfer)

    def abandon(self, post: Post, target: LocalTarget) -> None:
        """What was not fetched will not be tried again: nothing of it stays. Blocking."""
        target.check()
        parts = post.parts
        if parts is not None and not parts.single:
            if self._rules.inplace:
                target = _without_part_suffix(target, parts, post.sum)
                self._assembly(post, parts, target).abandon()
                return
            target = _part_target(post, parts, target)
        InflightFile(self._rules.inflight.path(target.place), None, None).abandon()

    async def _fetch_whole(
        self, post: Post, target: LocalTarget, transfer: FileTransfer
    ) -> PostOutcome:
        found = await self._land(post, target, transfer, needed=self._existing_file_check.whole)
        if isinstance(found, str):
            return PostOutcome(reports.NOT_MODIFIED, found, place=target.place)
        code = (
            reports.DONE if found == post.sum or is_checksum_deferred(post) else reports.RECOMPUTED
        )
        told = post if found == post.sum else replace(post, sum=found)
        return PostOutcome(code, "Downloaded", told, target.place)

    async def _land(
        self,
        post: Post,
        target: LocalTarget,
        transfer: FileTransfer,
        block: Parts | None = None,
        needed: SkipCheck | None = None,
    ) -> CommitResult:
        """A file, or one block of a file, under a name of its own. Its sum; or why it need not be
        fetched."""
        path = self._rules.inflight.path(target.place)
        download = Download(
            post,
            target,
            transfer,
            InflightFile(path, transfer.total, self._sums.verifiable(post.sum)),
            self._folders,
            self._rules.attributes,
            strict=self._rules.strict,
            block=block,
            needed=needed,
        )
        try:
            if post.content is not None:
                return await self._at_once(
                    download, partial(download.write_content, post.content.data)
                )
            source = self._source(post)
            transport = self._transports.get(source.scheme)
            files = as_local_transport(transport)
            if files is not None:
                write_content = partial(download.copy_local, files, source, self._bandwidth_limit)
                return await self._at_once(download, write_content)
            if download.small:
                return await self._in_one_piece(download, transport, source)
            return await self._bit_by_bit(download, transport, source)
        finally:
            download.close()

    async def _at_once(
        self, download: Download, write_content: Callable[[], CommitResult]
    ) -> CommitResult:
        """What need not be waited for is read where it is written."""
        if download.small:
            return await self._committer.commit(download.pending_file(write_content))
        async with self._room:
            download.transfer.begin()
            return await self._committer.commit_alone(download.pending_file(write_content))

    async def _in_one_piece(
        self, download: Download, transport: Transport, source: FileSource
    ) -> CommitResult:
        """A small file from afar: the disk is asked once before, and once when all of it is here,
        each time for many files together."""
        reason = await self._thread_pool.do(download.look)
        if reason is not None:
            return reason
        memory_sink = MemorySink(download.transfer, self._bandwidth_limit)
        async with self._room:
            download.transfer.begin()
            await transport.fetch(source, download.rest(0), memory_sink)
        return await self._committer.commit(
            download.pending_file(partial(download.write_content, memory_sink.taken()))
        )

    async def _bit_by_bit(
        self, download: Download, transport: Transport, source: FileSource
    ) -> CommitResult:
        """A large file from afar: written while it comes, so that half of it can be gone on
        with."""
        length = download.transfer.total
        async with self._room:
            download.transfer.begin()
            there = await run_to_completion(download.begin)
            if isinstance(there, str):
                return there
            buffered_sink = BufferedSink(download.writing, self._bandwidth_limit)
            if length is None or there < length:
                await transport.fetch(source, download.rest(there), buffered_sink)
            finish = partial(download.finish, buffered_sink.taken())
            return await self._committer.commit_alone(download.pending_file(finish))

    async def _fetch_block(
        self, post: Post, parts: Parts, target: LocalTarget, transfer: FileTransfer
    ) -> PostOutcome:
        target = _without_part_suffix(target, parts, post.sum)
        assembly = self._assembly(post, parts, target)
        fd = await run_to_completion(self._open_block, post, parts, target, assembly)
        if fd is None:
            return PostOutcome(
                reports.NOT_MODIFIED, "block is here", place=target.place, whole=False
            )
        block = BlockWriter(fd, parts, self._sums.verifiable(post.sum))
        try:
            source = self._source(post)
            sink = BufferedSink(CountingWriter(block, transfer), self._bandwidth_limit)
            transport = self._transports.get(source.scheme)
            offset = 0 if source.name.endswith(".Part") else parts.offset
            await transport.fetch(source, ByteRange(offset, parts.length), sink)
            known, whole = await run_to_completion(
                self._add, block, sink.taken(), post, target, assembly
            )
        finally:
            block.close()
        told = replace(post, sum=known, parts=replace(parts, method=INPLACE))
        message = "Downloaded" if whole else "Inserted"
        return PostOutcome(reports.DONE, message, told, target.place, whole)

    def _open_block(
        self, post: Post, parts: Parts, target: LocalTarget, assembly: BlockAssembly
    ) -> int | None:
        self._folders.prepare(target)
        if self._existing_file_check.block(post, parts, target):
            return None
        return assembly.open()

    def _add(
        self,
        block: BlockWriter,
        rest: bytes,
        post: Post,
        target: LocalTarget,
        assembly: BlockAssembly,
    ) -> tuple[Checksum | None, bool]:
        block.write(rest)
        known = block.verify(post.sum, strict=self._rules.strict)
        if self._rules.attributes.durable:
            block.sync()
        whole = assembly.add(
            target.final, self._rules.attributes, post.mode, post.mtime, post.atime
        )
        return known, whole

    async def _keep_part(
        self, post: Post, parts: Parts, target: LocalTarget, transfer: FileTransfer
    ) -> PostOutcome:
        """The part as a file of its own, for others to fetch, and for nobody to put together."""
        beside = _part_target(post, parts, target)
        block = None if self._source(post).name.endswith(".Part") else parts
        async with (
            nullcontext()
            if self._part_quota is None
            else self._part_quota.room(beside.final, parts.length)
        ):
            known = await self._land(post, beside, transfer, block)
        assert not isinstance(known, str)  # nobody was asked whether it is needed
        told = replace(post, sum=known, parts=replace(parts, method=PARTITIONED))
        return PostOutcome(reports.DONE, "Downloaded", told, beside.place)

    def _assembly(self, post: Post, parts: Parts, target: LocalTarget) -> BlockAssembly:
        return BlockAssembly(Path(self._rules.inflight.path(target.place)), parts, post.moment)

    def _source(self, post: Post) -> FileSource:
        return source_of(post, join=self._rules.join)


def _part_target(post: Post, parts: Parts, target: LocalTarget) -> LocalTarget:
    """Where a part is kept as a file of its own."""
    if target.path.endswith(".Part"):
        return target
    path = part_name(target.path, parts, post.sum.method if post.sum else "0")
    return LocalTarget(target.directory, path)


def _without_part_suffix(target: LocalTarget, parts: Parts, known: Checksum | None) -> LocalTarget:
    """A part file is put into the file it is of."""
    suffix = part_name("", parts, known.method if known else "0")
    return LocalTarget(target.directory, target.path.removesuffix(suffix))


# One file on its way to the disk, or one block of a file that is kept as a file of its own.
#
# What is known of it, and the steps of taking it in, which block and are for a thread: its folder
# is made, what is here already is looked at, the draft is written, verified and given its mode and
# times. How its bytes come, and when it gets its name, is for whoever fetches it.

#: Up to this size a file is fetched in one piece, waits for others in memory, and lands with them.
SMALL_FILE_BYTES: Final = 64 * KiB

#: Why a file need not be fetched, if that is so.
SkipCheck = Callable[[Post, LocalTarget], str | None]


class Download:
    __slots__ = (
        "_attributes",
        "_block",
        "_draft",
        "_folders",
        "_needed",
        "_post",
        "_strict",
        "_target",
        "small",
        "transfer",
        "writing",
    )

    def __init__(
        self,
        post: Post,
        target: LocalTarget,
        transfer: FileTransfer,
        draft: InflightFile,
        folders: FolderCache,
        attributes: FileAttributes,
        *,
        strict: bool,
        block: Parts | None,
        needed: SkipCheck | None,
    ) -> None:
        self._post = post
        self._target = target
        self.transfer = transfer
        self._draft = draft
        self._folders = folders
        self._attributes = attributes
        self._strict = strict
        self._block = block
        self._needed = needed
        self.small = transfer.total is not None and transfer.total <= SMALL_FILE_BYTES
        self.writing = CountingWriter(draft, transfer)

    def pending_file(self, write_content: Callable[[], CommitResult]) -> PendingFile:
        return PendingFile(self._draft, self._target.place, write_content)

    def look(self) -> str | None:
        """Why it need not be fetched, if that is so; else there is a folder for it."""
        self._folders.prepare(self._target)
        return None if self._needed is None else self._needed(self._post, self._target)

    def begin(self) -> int | str:
        """How many bytes of it are in the draft already; or why it need not be fetched."""
        # What nothing will verify is not gone on with, but begun again.
        return self._begin(resume=not is_checksum_deferred(self._post))

    def rest(self, there: int) -> ByteRange:
        """What is still to be fetched."""
        if self._block is None:
            return ByteRange(there)
        return ByteRange(self._block.offset + there, self._block.length - there)

    def write_content(self, data: bytes) -> CommitResult:
        """All of it, which has come in one piece."""
        there = self._begin(resume=False)
        return there if isinstance(there, str) else self.finish(data)

    def copy_local(
        self, near: LocalTransport, source: FileSource, bandwidth_limit: BandwidthLimit
    ) -> CommitResult:
        """All of it, from where it need not be waited for."""
        there = self.begin()
        if isinstance(there, str):
            return there
        near.copy(source, self.rest(there), bandwidth_limit.limit_writer(self.writing))
        return self.finish(b"")

    def finish(self, rest: bytes) -> Checksum | None:
        """The last bytes of it, and the sum it is then known by."""
        post = self._post
        self._draft.write(rest)
        known = self._draft.verify(post.sum, strict=self._strict)
        self._draft.apply_attributes(self._attributes, post.mode, post.mtime, post.atime)
        return known

    def close(self) -> None:
        self._draft.close()

    def _begin(self, *, resume: bool) -> int | str:
        reason = self.look()
        if reason is not None:
            return reason
        self.transfer.done = self._draft.open(resume=resume)
        return self.transfer.done


# What is here already, and need not be fetched. Blocking: it may have to read all of a file.


@dataclass(frozen=True, slots=True)
class ExistingFileCheck:
    sums: ChecksumMethods
    overwrite: bool  #: compare and replace what is here; else what is here is enough
    by_time: bool  #: files have the times they were announced with, so that these tell

    def whole(self, post: Post, target: LocalTarget) -> str | None:
        """Why a file need not be fetched, if that is so."""
        try:
            there = os.stat(target.place)  # noqa: PTH116 - it is asked for every file
        except OSError as error:
            if unusable_name(error):
                raise  # before it is fetched for nothing
            return None
        if not self.overwrite:
            return "is here"
        if post.sum is None or is_checksum_deferred(post) or self.sums.verifiable(post.sum) is None:
            return None
        if self._newer(post, there):
            return "a newer one is here"
        if post.parts is not None and there.st_size != post.parts.file_size:
            return None
        same = self._has(post, target.place, 0, there.st_size)
        return "the same is here" if same else None

    def block(self, post: Post, parts: Parts, target: LocalTarget) -> bool:
        """Whether the finished file has this very block already, or is a later one."""
        try:
            there = os.stat(target.place)  # noqa: PTH116
            if self._newer(post, there):
                return True
            if there.st_size != parts.file_size:
                return False
            return self._has(post, target.place, parts.offset, parts.length)
        except OSError as error:
            if unusable_name(error):
                raise
            return False

    def _newer(self, post: Post, there: os.stat_result) -> bool:
        """Whether what is here was made after what is announced."""
        return post.mtime is not None and self.by_time and there.st_mtime_ns > post.mtime

    def _has(self, post: Post, place: str, offset: int, length: int) -> bool:
        digest = self.sums.verifiable(post.sum)
        if digest is None or post.sum is None:
            return False
        with Path(place).open("rb") as file:
            os.lseek(file.fileno(), offset, os.SEEK_SET)
            left = length
            while left and (chunk := os.read(file.fileno(), min(left, WRITE_BYTES))):
                digest.update(chunk)
                left -= len(chunk)
        return digest.hexdigest() == post.sum.value


def is_checksum_deferred(post: Post) -> bool:
    """Whether the announcer leaves the sum to whoever has the file."""
    return post.sum is not None and post.sum.method == LATER
