"""Downloads the file of a post: fetched, verified meanwhile, renamed when it is complete.

A local file with the announced checksum is not fetched. A part is written into its file, or stored
as a part file where files are not assembled. Retries are the caller's; an error leaves nothing
behind that the next attempt cannot use.
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

from penstock.core.redaction import redact
from penstock.core.telemetry import message_spans
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
    inflight: InflightName = field(default_factory=InflightName)
    attributes: FileAttributes = field(default_factory=FileAttributes)
    strict: bool = True  #: refuse a file with another checksum
    join: bool = False  #: always join base URL and path
    inplace: bool = True  #: assemble files from parts
    overwrite: bool = True  #: compare and replace existing files; else they are left alone
    accept_size_wrong: bool = False  #: keep a whole file of another size than announced


#: Up to this size a file is fetched into memory and committed together with others.
SMALL_FILE_BYTES: Final = 64 * KiB

#: Returns the reason why a file need not be fetched, or None.
SkipCheck = Callable[[Post, LocalTarget], str | None]


class Downloader:
    """Shared by all files of a component."""

    def __init__(
        self,
        transports: TransportRegistry,
        sums: ChecksumMethods,
        rules: DownloadRules,
        bandwidth_limit: BandwidthLimit | None = None,
        transfers: TransferRegistry | None = None,
        part_quota: PartQuota | None = None,
        concurrency: int = 16,
    ) -> None:
        self._transports = transports
        self._sums = sums
        self._rules = rules
        self._existing_file_check = ExistingFileCheck(
            sums, rules.overwrite, rules.attributes.preserve_times
        )
        self._folders = FolderCache(rules.attributes.folder_mode)
        self._thread_pool = BatchThreadPool()
        self._committer = FileCommitter(durable=rules.attributes.durable)
        self._bandwidth_limit = bandwidth_limit or BandwidthLimit()
        self._transfers = transfers or TransferRegistry()
        self._part_quota = part_quota
        self._slots = asyncio.Semaphore(concurrency)  #: for large and remote files
        self._spans = message_spans()

    async def close(self) -> None:
        await self._thread_pool.close()
        await self._committer.close()

    async def fetch(self, post: Post, target: LocalTarget) -> PostOutcome:
        if self._spans is None:
            return await self._fetch(post, target)
        with self._spans.step("fetch", {"url.full": redact(post.url)}):
            return await self._fetch(post, target)

    async def _fetch(self, post: Post, target: LocalTarget) -> PostOutcome:
        parts = post.parts
        is_whole = parts is None or parts.single
        any_size = is_whole and self._rules.accept_size_wrong
        transfer = self._transfers.add(
            post.name, parts.length if parts is not None and not any_size else None
        )
        try:
            if parts is None or parts.single:
                return await self._fetch_whole(post, target, transfer)
            if self._rules.inplace:
                async with self._slots:
                    transfer.start()
                    return await self._fetch_block(post, parts, target, transfer)
            return await self._download_part(post, parts, target, transfer)
        finally:
            self._transfers.remove(transfer)

    async def remove_source(self, post: Post) -> None:
        """Removes the file from its server."""
        source = self._source(post)
        await self._transports.get(source.scheme).remove(source)

    def abandon(self, post: Post, target: LocalTarget) -> None:
        """Removes what was fetched of a file that failed for good. Blocking."""
        target.check()
        parts = post.parts
        if parts is not None and not parts.single:
            if self._rules.inplace:
                target = _without_part_suffix(target, parts, post.sum)
                self._assembly(post, parts, target).abandon()
                return
            target = _part_target(post, parts, target)
        InflightFile(self._rules.inflight.path(target.full_path), None, None).abandon()

    async def _fetch_whole(
        self, post: Post, target: LocalTarget, transfer: FileTransfer
    ) -> PostOutcome:
        found = await self._download(
            post, target, transfer, skip_check=self._existing_file_check.whole
        )
        if isinstance(found, str):
            return PostOutcome(reports.NOT_MODIFIED, found, path=target.full_path)
        code = (
            reports.DONE if found == post.sum or is_checksum_deferred(post) else reports.RECOMPUTED
        )
        announced = post if found == post.sum else replace(post, sum=found)
        if self._rules.accept_size_wrong and announced.parts is not None:
            status = await asyncio.to_thread(os.stat, target.full_path)
            announced = replace(announced, parts=Parts.whole(status.st_size))
        return PostOutcome(code, "Downloaded", announced, target.full_path)

    async def _download(
        self,
        post: Post,
        target: LocalTarget,
        transfer: FileTransfer,
        block: Parts | None = None,
        skip_check: SkipCheck | None = None,
    ) -> CommitResult:
        """Downloads a file, or a block as a file of its own."""
        path = self._rules.inflight.path(target.full_path)
        download = Download(
            post,
            target,
            transfer,
            InflightFile(path, transfer.total, self._sums.verifiable(post.sum)),
            self._folders,
            self._rules.attributes,
            strict=self._rules.strict,
            block=block,
            skip_check=skip_check,
        )
        try:
            if post.content is not None:
                return await self._write_local(
                    download, partial(download.write_content, post.content.data)
                )
            source = self._source(post)
            transport = self._transports.get(source.scheme)
            files = as_local_transport(transport)
            if files is not None:
                write_content = partial(download.copy_local, files, source, self._bandwidth_limit)
                return await self._write_local(download, write_content)
            if download.is_small:
                return await self._download_small(download, transport, source)
            return await self._download_large(download, transport, source)
        finally:
            download.close()

    async def _write_local(
        self, download: Download, write_content: Callable[[], CommitResult]
    ) -> CommitResult:
        """Local content is read by the thread that writes the copy."""
        if download.is_small:
            return await self._committer.commit(download.pending_file(write_content))
        async with self._slots:
            download.transfer.start()
            return await self._committer.commit_alone(download.pending_file(write_content))

    async def _download_small(
        self, download: Download, transport: Transport, source: FileSource
    ) -> CommitResult:
        """A small remote file is fetched into memory. The disk is used before and afterwards, each
        time for many files together."""
        reason = await self._thread_pool.submit(download.check_needed)
        if reason is not None:
            return reason
        memory_sink = MemorySink(download.transfer, self._bandwidth_limit)
        async with self._slots:
            download.transfer.start()
            await transport.fetch(source, download.remaining(0), memory_sink)
        return await self._committer.commit(
            download.pending_file(partial(download.write_content, memory_sink.take()))
        )

    async def _download_large(
        self, download: Download, transport: Transport, source: FileSource
    ) -> CommitResult:
        """A large remote file is written while it is fetched, so that it can be resumed."""
        length = download.transfer.total
        async with self._slots:
            download.transfer.start()
            written = await run_to_completion(download.open)
            if isinstance(written, str):
                return written
            buffered_sink = BufferedSink(download.writer, self._bandwidth_limit)
            if length is None or written < length:
                await transport.fetch(source, download.remaining(written), buffered_sink)
            finish = partial(download.finish, buffered_sink.take())
            return await self._committer.commit_alone(download.pending_file(finish))

    async def _fetch_block(
        self, post: Post, parts: Parts, target: LocalTarget, transfer: FileTransfer
    ) -> PostOutcome:
        target = _without_part_suffix(target, parts, post.sum)
        assembly = self._assembly(post, parts, target)
        fd = await run_to_completion(self._open_block, post, parts, target, assembly)
        if fd is None:
            return PostOutcome(
                reports.NOT_MODIFIED, "the block exists", path=target.full_path, whole=False
            )
        block = BlockWriter(fd, parts, self._sums.verifiable(post.sum))
        try:
            source = self._source(post)
            sink = BufferedSink(CountingWriter(block, transfer), self._bandwidth_limit)
            transport = self._transports.get(source.scheme)
            offset = 0 if source.name.endswith(".Part") else parts.offset
            await transport.fetch(source, ByteRange(offset, parts.length), sink)
            known, whole = await run_to_completion(
                self._add, block, sink.take(), post, target, assembly
            )
        finally:
            block.close()
        announced = replace(post, sum=known, parts=replace(parts, method=INPLACE))
        message = "Downloaded" if whole else "Inserted"
        return PostOutcome(reports.DONE, message, announced, target.full_path, whole)

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

    async def _download_part(
        self, post: Post, parts: Parts, target: LocalTarget, transfer: FileTransfer
    ) -> PostOutcome:
        """Stores the part as a file of its own, for others to fetch."""
        part = _part_target(post, parts, target)
        block = None if self._source(post).name.endswith(".Part") else parts
        async with (
            nullcontext()
            if self._part_quota is None
            else self._part_quota.reserve(part.final, parts.length)
        ):
            known = await self._download(post, part, transfer, block)
        assert not isinstance(known, str)  # there was no skip check
        announced = replace(post, sum=known, parts=replace(parts, method=PARTITIONED))
        message = "written to a part file"
        return PostOutcome(reports.PART_FILE, message, announced, part.full_path, whole=False)

    def _assembly(self, post: Post, parts: Parts, target: LocalTarget) -> BlockAssembly:
        return BlockAssembly(Path(self._rules.inflight.path(target.full_path)), parts, post.moment)

    def _source(self, post: Post) -> FileSource:
        return source_of(post, join=self._rules.join)


def _part_target(post: Post, parts: Parts, target: LocalTarget) -> LocalTarget:
    if target.path.endswith(".Part"):
        return target
    path = part_name(target.path, parts, post.sum.method if post.sum else "0")
    return LocalTarget(target.directory, path)


def _without_part_suffix(target: LocalTarget, parts: Parts, known: Checksum | None) -> LocalTarget:
    """The file that a part file belongs to."""
    suffix = part_name("", parts, known.method if known else "0")
    return LocalTarget(target.directory, target.path.removesuffix(suffix))


class Download:
    """One file, or one block stored as a file, on its way to disk: the blocking steps."""

    __slots__ = (
        "_attributes",
        "_block",
        "_folders",
        "_inflight_file",
        "_post",
        "_skip_check",
        "_strict",
        "_target",
        "is_small",
        "transfer",
        "writer",
    )

    def __init__(
        self,
        post: Post,
        target: LocalTarget,
        transfer: FileTransfer,
        inflight_file: InflightFile,
        folders: FolderCache,
        attributes: FileAttributes,
        *,
        strict: bool,
        block: Parts | None,
        skip_check: SkipCheck | None,
    ) -> None:
        self._post = post
        self._target = target
        self.transfer = transfer
        self._inflight_file = inflight_file
        self._folders = folders
        self._attributes = attributes
        self._strict = strict
        self._block = block
        self._skip_check = skip_check
        self.is_small = transfer.total is not None and transfer.total <= SMALL_FILE_BYTES
        self.writer = CountingWriter(inflight_file, transfer)

    def pending_file(self, write_content: Callable[[], CommitResult]) -> PendingFile:
        return PendingFile(self._inflight_file, self._target.full_path, write_content)

    def check_needed(self) -> str | None:
        """The reason why it need not be fetched; otherwise its folder is made."""
        self._folders.prepare(self._target)
        return None if self._skip_check is None else self._skip_check(self._post, self._target)

    def open(self) -> int | str:
        """The number of bytes that are on disk; or the reason why it need not be fetched."""
        # A file that nothing verifies is not resumed.
        return self._open(resume=not is_checksum_deferred(self._post))

    def remaining(self, written: int) -> ByteRange:
        """The range that is still to be fetched."""
        if self._block is None:
            return ByteRange(written)
        return ByteRange(self._block.offset + written, self._block.length - written)

    def write_content(self, data: bytes) -> CommitResult:
        written = self._open(resume=False)
        return written if isinstance(written, str) else self.finish(data)

    def copy_local(
        self, local: LocalTransport, source: FileSource, bandwidth_limit: BandwidthLimit
    ) -> CommitResult:
        written = self.open()
        if isinstance(written, str):
            return written
        local.copy(source, self.remaining(written), bandwidth_limit.limit_writer(self.writer))
        return self.finish(b"")

    def finish(self, rest: bytes) -> Checksum | None:
        """Writes the last bytes, and returns the verified checksum."""
        post = self._post
        self._inflight_file.write(rest)
        known = self._inflight_file.verify(post.sum, strict=self._strict)
        self._inflight_file.apply_attributes(self._attributes, post.mode, post.mtime, post.atime)
        return known

    def close(self) -> None:
        self._inflight_file.close()

    def _open(self, *, resume: bool) -> int | str:
        reason = self.check_needed()
        if reason is not None:
            return reason
        self.transfer.done = self._inflight_file.open(resume=resume)
        return self.transfer.done


@dataclass(frozen=True, slots=True)
class ExistingFileCheck:
    """Whether a local file makes a download unnecessary. Blocking: it may read the whole file."""

    sums: ChecksumMethods
    overwrite: bool  #: compare and replace existing files; else they are left alone
    by_time: bool  #: files have their announced times, so these can be compared

    def whole(self, post: Post, target: LocalTarget) -> str | None:
        """The reason why a file need not be fetched, or None."""
        try:
            status = os.stat(target.full_path)  # noqa: PTH116 - called for every file
        except OSError as error:
            if unusable_name(error):
                raise  # before it is fetched in vain
            return None
        if not self.overwrite:
            return "exists"
        if post.sum is None or is_checksum_deferred(post) or self.sums.verifiable(post.sum) is None:
            return None
        if self._newer(post, status):
            return "a newer file exists"
        if post.parts is not None and status.st_size != post.parts.file_size:
            return None
        same = self._has(post, target.full_path, 0, status.st_size)
        return "the same file exists" if same else None

    def block(self, post: Post, parts: Parts, target: LocalTarget) -> bool:
        """Whether the complete file has the block, or is newer."""
        try:
            status = os.stat(target.full_path)  # noqa: PTH116
            if self._newer(post, status):
                return True
            if status.st_size != parts.file_size:
                return False
            return self._has(post, target.full_path, parts.offset, parts.length)
        except OSError as error:
            if unusable_name(error):
                raise
            return False

    def _newer(self, post: Post, status: os.stat_result) -> bool:
        return post.mtime is not None and self.by_time and status.st_mtime_ns > post.mtime

    def _has(self, post: Post, path: str, offset: int, length: int) -> bool:
        digest = self.sums.verifiable(post.sum)
        if digest is None or post.sum is None:
            return False
        with Path(path).open("rb") as file:
            os.lseek(file.fileno(), offset, os.SEEK_SET)
            left = length
            while left and (chunk := os.read(file.fileno(), min(left, WRITE_BYTES))):
                digest.update(chunk)
                left -= len(chunk)
        return digest.hexdigest() == post.sum.value


def is_checksum_deferred(post: Post) -> bool:
    return post.sum is not None and post.sum.method == LATER
