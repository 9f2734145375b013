"""The handlers of posts.

`ReceiveHandler` (subscribe, sarra) selects a post, places its file, downloads it or applies the
link, folder, removal or move, and publishes a new post with its own base URL and path before the
message is acknowledged. `SendHandler` (sender) pushes a local file to a server. `ForwardHandler`
(winnow, shovel) forwards the message, without the file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from penstock_pump.downloader import Downloader
from penstock_pump.duplicates import DuplicateFilter
from penstock_pump.errors import BadPost, OutsideDirectory, PumpError, UnsupportedSource, WrongSize
from penstock_pump.files import operations
from penstock_pump.files.target import LocalTarget
from penstock_pump.flow.message import PumpMessage
from penstock_pump.flow.publisher import PostPublisher
from penstock_pump.plugins import Plugins
from penstock_pump.posts import reports
from penstock_pump.posts.codec import v02_moment
from penstock_pump.posts.parts import PARTITIONED, part_name
from penstock_pump.posts.post import FileEvent, Post
from penstock_pump.posts.reports import REJECTED, PostOutcome
from penstock_pump.selection import Placement, PostSelection, place
from penstock_pump.transports.access import FileRule
from penstock_pump.transports.transport import (
    ByteRange,
    FileSource,
    FileUpload,
    TransportRegistry,
    destination_path,
    source_of,
)


@dataclass(frozen=True, slots=True)
class ReceiveRules:
    selection: PostSelection = field(default_factory=PostSelection)
    events: frozenset[FileEvent] = frozenset(FileEvent)
    join: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    folder_mode: int = 0o775


@dataclass(frozen=True, slots=True)
class RepublishTarget:
    post_publisher: PostPublisher
    base_url: str
    base_dir: Path


class ReceiveHandler:
    def __init__(
        self,
        rules: ReceiveRules,
        downloader: Downloader,
        *,
        republish_target: RepublishTarget | None = None,
        provenance: Provenance | None = None,
        duplicate_filter: DuplicateFilter | None = None,
        plugins: Plugins | None = None,
    ) -> None:
        self._rules = rules
        self._downloader = downloader
        self._republish_target = republish_target
        self._provenance = provenance or Provenance()
        self._duplicate_filter = duplicate_filter
        self._plugins = plugins or Plugins()

    async def __call__(self, post: Post, pump_message: PumpMessage) -> PostOutcome:
        if post.event not in self._rules.events:
            return PostOutcome(REJECTED, f"event {post.event.value}")
        target = self._target(post, destination_path(post, join=self._rules.join), post.url)
        if isinstance(target, str):
            return PostOutcome(REJECTED, target)
        accepted = self._plugins.message(with_provenance(post, self._provenance))
        if accepted is None:
            return PostOutcome(REJECTED, "a plugin")
        if self._duplicate_filter is None:
            return await self._accept(accepted, target, pump_message)
        async with self._duplicate_filter.first(accepted) as first:
            if not first:
                return PostOutcome(reports.NOT_MODIFIED, "duplicate")
            return await self._accept(accepted, target, pump_message)

    async def abandon(self, post: Post) -> None:
        """Removes what was downloaded for a post that failed for good."""
        if post.event is not FileEvent.MODIFY:
            return
        with suppress(PumpError, OSError, ValueError):  # the post may have no valid path
            target = self._target(post, destination_path(post, join=self._rules.join), post.url)
            if isinstance(target, LocalTarget):
                await asyncio.to_thread(self._downloader.abandon, post, target)

    async def _accept(
        self, post: Post, target: LocalTarget, pump_message: PumpMessage
    ) -> PostOutcome:
        outcome = await self._apply(post, target)
        announced = outcome.post
        if outcome.code == reports.NOT_MODIFIED and pump_message.redelivered:
            # The former attempt may have ended between the file and its announcement. Others can
            # suppress a duplicate, but cannot miss a post.
            announced = post
        if announced is not None and outcome.path is not None:
            announced = self._plugins.file(announced, outcome.path, whole=outcome.whole)
            if announced is not None and self._republish_target is not None:
                await self._announce(self._republish_target, announced, outcome.path)
        return outcome

    async def _apply(self, post: Post, target: LocalTarget) -> PostOutcome:
        if post.event is FileEvent.MODIFY:
            return await self._receive(post, target)
        if post.event is FileEvent.LINK:
            if not post.link:
                raise BadPost("a link without a target")
            done = await asyncio.to_thread(operations.make_link, target, post.link)
            return _operation_outcome(post, target, done, "Linked")
        if post.event is FileEvent.MKDIR:
            done = await asyncio.to_thread(operations.make_folder, target, self._rules.folder_mode)
            return _operation_outcome(post, target, done, "Made")
        return await self._remove(post, target)

    async def _receive(self, post: Post, target: LocalTarget) -> PostOutcome:
        """The downloader finds that a file which was moved here is complete."""
        if post.oldname is not None:
            old = self._target(post, post.oldname, _renamed(post, post.oldname).url)
            if isinstance(old, LocalTarget):
                await asyncio.to_thread(operations.link_or_copy, old, target)
        outcome = await self._downloader.fetch(post, target)
        if post.oldname is not None and outcome.code == reports.NOT_MODIFIED:
            return PostOutcome(reports.DONE, "moved", post, target.full_path)
        return outcome

    async def _remove(self, post: Post, target: LocalTarget) -> PostOutcome:
        if post.newname is not None:
            new = self._target(post, post.newname, _renamed(post, post.newname).url)
            if isinstance(new, LocalTarget) and await asyncio.to_thread(
                operations.move, target, new
            ):
                return PostOutcome(reports.DONE, "moved", post, target.full_path)
        folder = post.event is FileEvent.RMDIR
        done = await asyncio.to_thread(operations.remove, target, folder=folder)
        return _operation_outcome(post, target, done, "removed")

    def _target(self, post: Post, path: str, url: str) -> LocalTarget | str:
        """The path of a file, or the reason of its rejection."""
        match = self._rules.selection.choose(url)
        if isinstance(match, str):
            return match
        variables: Mapping[str, str] = {}
        if "$" in match.placement.directory:
            variables = {**self._rules.variables, **post_variables(post)}
        placed = place(path, match.placement, variables, match.groups)
        return LocalTarget(placed.directory, placed.path)

    async def _announce(self, to: RepublishTarget, post: Post, path: str) -> None:
        relpath = relative_path(path, to.base_dir, to.base_url)
        if not relpath:
            return
        announced = self._plugins.post(
            replace(
                post,
                base_url=to.base_url,
                relpath=relpath,
                rename=None,
                retrieve=None,
                content=None,
                oldname=self._local_name(to, post, post.oldname),
                newname=self._local_name(to, post, post.newname),
            )
        )
        if announced is not None:
            await to.post_publisher.announce(announced)

    def _local_name(self, to: RepublishTarget, post: Post, path: str | None) -> str | None:
        """The local name of the other half of a move."""
        if path is None:
            return None
        target = self._target(post, path, _renamed(post, path).url)
        if isinstance(target, str):
            return path
        return relative_path(target.full_path, to.base_dir, to.base_url)


def post_variables(post: Post) -> dict[str, str]:
    """Variables for directories; the same at every attempt."""
    source = post.source or ""
    if "/" in source or source in (".", ".."):
        raise OutsideDirectory(f"source {source!r} is not the name of a directory")
    at = v02_moment(post.moment)
    day = datetime.fromtimestamp(post.moment // 10**9, UTC).strftime("%j")
    return {
        "SOURCE": source,
        "YYYYMMDD": at[:8],
        "YYYY": at[:4],
        "MM": at[4:6],
        "DD": at[6:8],
        "HH": at[8:10],
        "JJJ": day,
    }


def relative_path(path: str | Path, base_dir: Path, base_url: str) -> str:
    """The path to announce: relative to the base directory, or absolute for `file:`; empty for the
    base directory itself."""
    full = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links
    if base_url == "file:":
        return full
    home = _home(base_dir)
    return "" if full == home[:-1] else full.removeprefix(home).lstrip("/")


@lru_cache(16)
def _home(base_dir: Path) -> str:
    return os.path.abspath(base_dir).rstrip("/") + "/"  # noqa: PTH100


def _renamed(post: Post, path: str) -> Post:
    return replace(post, relpath=path)


def _operation_outcome(post: Post, target: LocalTarget, done: bool, message: str) -> PostOutcome:
    if done:
        return PostOutcome(reports.DONE, message, post, target.full_path)
    return PostOutcome(reports.NOT_MODIFIED, "nothing to do", path=target.full_path)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Source and clusters that a hop adds to posts without them. A hop that does not trust its
    sources takes their name from the exchange they may publish to (`xs_<user>`)."""

    source: str | None = None
    cluster: str | None = None
    to_clusters: str | None = None
    trusted: bool = True
    exchange: str = ""  #: that posts are consumed from


def with_provenance(post: Post, known: Provenance) -> Post:
    source, from_cluster = post.source, post.from_cluster
    if not known.trusted:
        from_cluster = None
        if known.exchange.startswith("xs_"):
            source = known.exchange.split("_")[1]
    source, from_cluster = source or known.source, from_cluster or known.cluster
    to_clusters = post.to_clusters or known.to_clusters
    if (source, from_cluster, to_clusters) == (post.source, post.from_cluster, post.to_clusters):
        return post
    return replace(post, source=source, from_cluster=from_cluster, to_clusters=to_clusters)


@dataclass(frozen=True, slots=True)
class SendDestination:
    url: str
    base_dir: Path | None  #: of the local files; None: posts have file: URLs
    files: FileRule = field(default_factory=FileRule)  #: which may be sent
    inflight: str = ".tmp"
    to: str | None = None  #: only posts for this cluster
    preserve_mode: bool = True
    preserve_times: bool = True


class SendHandler:
    """Sends a block of a file as a part file, so a file under its final name is complete. The
    subscribers that fetch the parts from the server assemble them."""

    def __init__(
        self,
        destination: SendDestination,
        rules: ReceiveRules,
        transports: TransportRegistry,
        *,
        post_publisher: PostPublisher | None = None,
        base_url: str | None = None,
        plugins: Plugins | None = None,
    ) -> None:
        self._destination = destination
        self._rules = rules
        self._transports = transports
        self._post_publisher = post_publisher
        self._base_url = base_url
        self._plugins = plugins or Plugins()

    async def __call__(self, post: Post, pump_message: PumpMessage) -> PostOutcome:
        if (reason := self._rejection(post)) is not None:
            return PostOutcome(REJECTED, reason)
        match = self._rules.selection.choose(post.url)
        if isinstance(match, str):
            return PostOutcome(REJECTED, match)
        accepted = self._plugins.message(post)
        if accepted is None:
            return PostOutcome(REJECTED, "a plugin")
        variables = {**self._rules.variables, **post_variables(accepted)}
        path = destination_path(accepted, join=self._rules.join)
        placed = place(path, match.placement, variables, match.groups)
        remote = _as_part(placed.full.lstrip("/"), accepted)
        target = FileSource(self._destination.url.rstrip("/") + "/" + quote(remote))
        outcome = await self._apply(accepted, target)
        await self._announce(accepted, remote)
        return outcome

    def _rejection(self, post: Post) -> str | None:
        if post.event not in self._rules.events:
            return f"event {post.event.value}"
        to = self._destination.to
        clusters = [each.strip() for each in (post.to_clusters or "").split(",") if each.strip()]
        if to is not None and clusters and to not in clusters and "ALL" not in clusters:
            return f"not for {to}"
        return None

    async def _apply(self, post: Post, target: FileSource) -> PostOutcome:
        transport = self._transports.get(target.scheme)
        if post.event is FileEvent.DELETE:
            await transport.remove(target)
            return PostOutcome(reports.DONE, "removed")
        if post.event is not FileEvent.MODIFY:
            raise UnsupportedSource(f"{post.event.value} cannot be sent")
        path = self._local(post)
        span = await asyncio.to_thread(_checked_range, self._destination.files, path, post)
        upload = FileUpload(
            path,
            self._destination.inflight,
            post.mode if self._destination.preserve_mode else None,
            post.mtime if self._destination.preserve_times else None,
            span,
            self._destination.files,
        )
        await transport.send(upload, target)
        return PostOutcome(reports.DONE, "Sent", post, str(path))

    async def _announce(self, post: Post, remote: str) -> None:
        if self._post_publisher is None or self._base_url is None:
            return
        parts = post.parts
        if parts is not None and not parts.single:
            parts = replace(parts, method=PARTITIONED)
        remote_post = replace(post, base_url=self._base_url, relpath=remote, parts=parts)
        announced = self._plugins.post(replace(remote_post, rename=None, retrieve=None))
        if announced is not None:
            await self._post_publisher.announce(announced)

    def _local(self, post: Post) -> Path:
        if self._destination.base_dir is not None:
            path = place(post.relpath, Placement(str(self._destination.base_dir), mirror=True))
            return Path(path.full)
        source = source_of(post, join=self._rules.join)
        if source.scheme != "file":
            raise UnsupportedSource(f"{source.url} is not a local file: set base_dir")
        return Path(source.path)


def _as_part(remote: str, post: Post) -> str:
    """The remote name, which for a block is that of a part file."""
    if post.parts is None or post.parts.single or remote.endswith(".Part"):
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


class ForwardHandler:
    """Forwards messages unchanged, byte for byte, unless a plugin changed the post or another
    format is configured. Without a filter duplicates are forwarded too."""

    def __init__(
        self,
        post_publisher: PostPublisher,
        selection: PostSelection,
        *,
        duplicate_filter: DuplicateFilter | None = None,
        plugins: Plugins | None = None,
        reencode: bool = False,
    ) -> None:
        self._post_publisher = post_publisher
        self._selection = selection
        self._duplicate_filter = duplicate_filter
        self._plugins = plugins or Plugins()
        self._reencode = reencode

    async def __call__(self, post: Post, pump_message: PumpMessage) -> PostOutcome:
        match = self._selection.choose(post.url)
        if isinstance(match, str):
            return PostOutcome(REJECTED, match)
        accepted = self._plugins.message(post)
        if accepted is None:
            return PostOutcome(REJECTED, "a plugin")
        if self._duplicate_filter is None:
            return await self._forward(post, accepted, pump_message)
        async with self._duplicate_filter.first(accepted) as first:
            if not first:
                return PostOutcome(reports.NOT_MODIFIED, "duplicate")
            return await self._forward(post, accepted, pump_message)

    async def _forward(self, post: Post, accepted: Post, pump_message: PumpMessage) -> PostOutcome:
        announced = self._plugins.post(accepted)
        if announced is None:
            return PostOutcome(REJECTED, "a plugin")
        if announced is post and not self._reencode:
            await self._post_publisher.forward(pump_message, post)
        else:
            await self._post_publisher.announce(announced)
        return PostOutcome(reports.DONE, "Published")
