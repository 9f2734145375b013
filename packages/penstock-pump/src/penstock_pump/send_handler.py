"""The handler of sender: pushes local files, links, directories and removals to a server.

A block of a file is written to its place in a file with a temporary name, where the server allows
it (`file:`, `sftp:`); the file gets its name with the last block. Other servers get the file as a
whole when all its blocks have been announced. So a file under its final name is complete.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from penstock.core.logs import get_logger
from penstock_pump.block_ledger import BlockLedger
from penstock_pump.duplicates import DuplicateFilter
from penstock_pump.errors import UnsupportedSource, WrongSize
from penstock_pump.files.target import LocalTarget
from penstock_pump.flow.message import PumpMessage
from penstock_pump.flow.publisher import PostPublisher
from penstock_pump.handlers import ReceiveRules, removal_of_move
from penstock_pump.plugins import Plugins
from penstock_pump.posts import reports
from penstock_pump.posts.parts import INPLACE, PARTITIONED, part_name
from penstock_pump.posts.post import FileEvent, Post
from penstock_pump.posts.reports import REJECTED, PostOutcome
from penstock_pump.selection import Placement, place
from penstock_pump.transfer import BandwidthLimit
from penstock_pump.transports.access import FileRule
from penstock_pump.transports.transport import (
    ByteRange,
    FileSource,
    FileUpload,
    Transport,
    TransportRegistry,
    source_of,
)

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SendDestination:
    url: str
    base_dir: Path | None  #: of the local files; None: posts have file: URLs
    files: FileRule = field(default_factory=FileRule)  #: which may be sent
    inflight: str = ".tmp"
    preserve_mode: bool = True
    preserve_times: bool = True


class SendHandler:
    def __init__(
        self,
        destination: SendDestination,
        rules: ReceiveRules,
        transports: TransportRegistry,
        *,
        ledger: BlockLedger | None = None,
        post_publisher: PostPublisher | None = None,
        base_url: str | None = None,
        duplicate_filter: DuplicateFilter | None = None,
        bandwidth_limit: BandwidthLimit | None = None,
        plugins: Plugins | None = None,
    ) -> None:
        self._destination = destination
        self._rules = rules
        self._transports = transports
        self._ledger = ledger or BlockLedger(None)
        self._post_publisher = post_publisher
        self._base_url = base_url
        self._duplicate_filter = duplicate_filter
        self._bandwidth_limit = bandwidth_limit or BandwidthLimit()
        self._plugins = plugins or Plugins()

    async def __call__(self, post: Post, pump_message: PumpMessage) -> PostOutcome:
        outcome = PostOutcome(REJECTED, "a plugin")
        for each in await self._plugins.received(post):
            removal = removal_of_move(each, pump_message)
            if removal is not None and removal.event is FileEvent.DELETE:
                await self._handle(removal)
            outcome = await self._handle(each)
        return outcome

    async def _handle(self, post: Post) -> PostOutcome:
        if (reason := self._rules.post_filter.rejection(post)) is not None:
            return PostOutcome(REJECTED, reason)
        placed = self._rules.place(post, self._rules.path_of(post), post.url)
        if isinstance(placed, str):
            return PostOutcome(REJECTED, placed)
        place = LocalTarget(placed.directory, placed.path)
        if placed.script:
            place = await self._plugins.renamed(placed.script, post, place)
        outcome = PostOutcome(REJECTED, "a plugin")
        for each in await self._plugins.accept(post, place):
            outcome = await self._take(*each)
        return outcome

    async def _take(self, accepted: Post, target: LocalTarget) -> PostOutcome:
        if self._rules.dry_run:
            log.info("dry run", path=target.full_path, kind=accepted.event.value)
            return PostOutcome(reports.NOT_MODIFIED, "dry run")
        if self._duplicate_filter is None:
            return await self._send(accepted, target)
        async with self._duplicate_filter.first(accepted) as first:
            if not first:
                return PostOutcome(reports.NOT_MODIFIED, "duplicate")
            return await self._send(accepted, target)

    async def _send(self, post: Post, placed: LocalTarget) -> PostOutcome:
        remote = placed.full_path.lstrip("/")
        if (done := await self._plugins.send(post, placed)) is not None:
            at = done.post or post
            if (at.base_url, at.relpath) == (post.base_url, post.relpath):
                await self._announce(at, remote)
            else:  # the plugin tells where it has put the file
                await self._publish(at)
            return done
        if post.event is FileEvent.MODIFY and post.parts is not None and not post.parts.single:
            return await self._send_block(post, remote)
        outcome = await self._apply(post, self._target(remote))
        await self._announce(post, remote)
        return outcome

    async def _apply(self, post: Post, target: FileSource) -> PostOutcome:
        transport = self._transports.get(target.scheme)
        if post.event is FileEvent.DELETE:
            await transport.remove(target)
            return PostOutcome(reports.DONE, "removed")
        if post.event is FileEvent.LINK and post.link:
            await transport.make_link(target, post.link)
            return PostOutcome(reports.DONE, "Linked", post)
        if post.event is FileEvent.MKDIR:
            await transport.make_directory(target, post.mode)
            return PostOutcome(reports.DONE, "Made", post)
        if post.event is FileEvent.RMDIR:
            await transport.remove_directory(target)
            return PostOutcome(reports.DONE, "removed")
        upload = await self._upload(post)
        await transport.send(upload, target)
        return await self._sent(post, upload.path)

    async def _sent(self, post: Post, path: Path) -> PostOutcome:
        if self._rules.delete:
            await asyncio.to_thread(path.unlink, missing_ok=True)
        return PostOutcome(reports.DONE, "Sent", post, str(path))

    async def _upload(self, post: Post) -> FileUpload:
        path = self._local(post)
        span = await asyncio.to_thread(_checked_range, self._destination.files, path, post)
        return FileUpload(
            path,
            self._destination.inflight,
            post.mode if self._destination.preserve_mode else None,
            post.mtime if self._destination.preserve_times else None,
            span,
            self._destination.files,
            self._bandwidth_limit.pace,
        )

    async def _send_block(self, post: Post, remote: str) -> PostOutcome:
        assert post.parts is not None
        suffix = part_name("", post.parts, post.sum.method if post.sum else "0")
        target = self._target(remote.removesuffix(suffix))
        transport = self._transports.get(target.scheme)
        upload = await self._upload(post)
        is_part = upload.path.name.endswith(".Part")
        if is_part and not transport.can_write_blocks:
            await transport.send(upload, self._target(_as_part(remote, post)))
            parts = replace(post.parts, method=PARTITIONED)
            await self._announce(replace(post, parts=parts), _as_part(remote, post))
            return PostOutcome(reports.PART_FILE, "Sent as a part file", post, str(upload.path))
        if not await asyncio.to_thread(self._ledger.is_wanted, target.url, post):
            return PostOutcome(reports.NOT_MODIFIED, "the block was sent")
        temporary = FileSource(f"{target.url}.{post.moment}{self._destination.inflight or '.tmp'}")
        if transport.can_write_blocks:
            await transport.write_block(upload, temporary, post.parts.offset)
        posts = await asyncio.to_thread(self._ledger.add, target.url, post)
        if posts is None:
            return PostOutcome(reports.DONE, "Inserted", post, str(upload.path), whole=False)
        await self._finish(transport, upload, temporary, target)
        for each in posts:
            assert each.parts is not None
            in_place = replace(each, parts=replace(each.parts, method=INPLACE))
            await self._announce(in_place, remote.removesuffix(suffix))
        await asyncio.to_thread(self._ledger.finish, target.url, post.moment)
        return await self._sent(post, upload.path)

    async def _finish(
        self, transport: Transport, upload: FileUpload, temporary: FileSource, target: FileSource
    ) -> None:
        if transport.can_write_blocks:
            await transport.finish_file(upload, temporary, target)
        else:
            await transport.send(replace(upload, span=ByteRange()), target)

    async def _announce(self, post: Post, remote: str) -> None:
        if self._post_publisher is None or self._base_url is None:
            return
        base_url = self._rules.expand(self._base_url, post)
        await self._publish(
            replace(
                post,
                base_url=base_url,
                relpath=remote,
                oldname=self._remote(post, post.oldname),
                newname=self._remote(post, post.newname),
            )
        )

    def _remote(self, post: Post, path: str | None) -> str | None:
        """The path at the server of the other half of a move."""
        if path is None:
            return None
        placed = self._rules.place(post, path, replace(post, relpath=path).url)
        return path if isinstance(placed, str) else placed.full.lstrip("/")

    async def _publish(self, post: Post) -> None:
        announced = self._plugins.post(replace(post, rename=None, retrieve=None))
        if announced is not None and self._post_publisher is not None:
            await self._post_publisher.announce(announced)

    def _target(self, remote: str) -> FileSource:
        return FileSource(self._destination.url.rstrip("/") + "/" + quote(remote))

    def _local(self, post: Post) -> Path:
        if self._destination.base_dir is not None:
            path = place(post.relpath, Placement(str(self._destination.base_dir), mirror=True))
            return Path(path.full)
        source = source_of(post, join=self._rules.join)
        if source.scheme != "file":
            raise UnsupportedSource(f"{source.url} is not a local file: set base_dir")
        return Path(source.path)


def _as_part(remote: str, post: Post) -> str:
    """The remote name of a block that is sent as a part file."""
    if post.parts is None or remote.endswith(".Part"):
        return remote
    return part_name(remote, post.parts, post.sum.method if post.sum else "0")


def _checked_range(files: FileRule, path: Path, post: Post) -> ByteRange:
    """The range of the file to send, whose size must be the announced one."""
    fd = files.open(str(path))
    try:
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    parts = post.parts
    if parts is None:
        return ByteRange()
    is_part = path.name.endswith(".Part")
    announced = parts.length if is_part else parts.file_size
    if size != announced:
        raise WrongSize(f"{path} has {size} bytes, {announced} were announced")
    return ByteRange() if is_part or parts.single else ByteRange(parts.offset, parts.length)
