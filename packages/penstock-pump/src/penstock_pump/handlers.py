"""What subscribe and sarra do with a post: choose, place, fetch or change, and announce again.

Files, links, folders, removals and moves all end in an outcome. When others are to know, the post
goes on with our own base URL and the path the file has here; it is announced before the letter that
brought it is done with.
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
    """What is wanted, and where it goes."""

    selection: PostSelection = field(default_factory=PostSelection)
    events: frozenset[FileEvent] = frozenset(FileEvent)
    join: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    folder_mode: int = 0o775


@dataclass(frozen=True, slots=True)
class RepublishTarget:
    """How what we have is announced to others."""

    post_publisher: PostPublisher
    base_url: str
    base_dir: Path


class ReceiveHandler:
    """Keeps `Work`."""

    def __init__(
        self,
        wanted: ReceiveRules,
        downloader: Downloader,
        *,
        republish_target: RepublishTarget | None = None,
        provenance: Provenance | None = None,
        duplicate_filter: DuplicateFilter | None = None,
        plugins: Plugins | None = None,
    ) -> None:
        self._wanted = wanted
        self._downloader = downloader
        self._republish_target = republish_target
        self._provenance = provenance or Provenance()
        self._duplicate_filter = duplicate_filter
        self._plugins = plugins or Plugins()

    async def __call__(self, post: Post, pump_message: PumpMessage) -> PostOutcome:
        if post.event not in self._wanted.events:
            return PostOutcome(REJECTED, f"event {post.event.value}")
        target = self._target(post, destination_path(post, join=self._wanted.join), post.url)
        if isinstance(target, str):
            return PostOutcome(REJECTED, target)
        kept = self._plugins.message(with_provenance(post, self._provenance))
        if kept is None:
            return PostOutcome(REJECTED, "a plugin")
        if self._duplicate_filter is None:
            return await self._obtain(kept, target, pump_message)
        async with self._duplicate_filter.first(kept) as first:
            if not first:
                return PostOutcome(reports.NOT_MODIFIED, "duplicate")
            return await self._obtain(kept, target, pump_message)

    async def abandon(self, post: Post) -> None:
        """A post that failed for good: what has been fetched of its file goes."""
        if post.event is not FileEvent.MODIFY:
            return
        with suppress(PumpError, OSError, ValueError):  # there was no place for it to begin with
            target = self._target(post, destination_path(post, join=self._wanted.join), post.url)
            if isinstance(target, LocalTarget):
                await asyncio.to_thread(self._downloader.abandon, post, target)

    async def _obtain(
        self, post: Post, target: LocalTarget, pump_message: PumpMessage
    ) -> PostOutcome:
        outcome = await self._do(post, target)
        told = outcome.post
        if outcome.code == reports.NOT_MODIFIED and pump_message.again:
            # What ended the attempt before this one may have come between the file and its
            # announcement. Others can tell a duplicate; they cannot tell what they never heard of.
            told = post
        if told is not None and outcome.place is not None:
            told = self._plugins.file(told, outcome.place, whole=outcome.whole)
        if told is not None and self._republish_target is not None and outcome.place is not None:
            await self._announce(self._republish_target, told, outcome.place)
        return outcome

    async def _do(self, post: Post, target: LocalTarget) -> PostOutcome:
        if post.event is FileEvent.MODIFY:
            return await self._receive(post, target)
        if post.event is FileEvent.LINK:
            if not post.link:
                raise BadPost("a link that points nowhere")
            done = await asyncio.to_thread(operations.make_link, target, post.link)
            return _changed(post, target, done, "Linked")
        if post.event is FileEvent.MKDIR:
            done = await asyncio.to_thread(operations.make_folder, target, self._wanted.folder_mode)
            return _changed(post, target, done, "Made")
        return await self._remove(post, target)

    async def _receive(self, post: Post, target: LocalTarget) -> PostOutcome:
        """A file that had another name here needs no fetching: fetching finds it is right."""
        if post.oldname is not None:
            old = self._target(post, post.oldname, _renamed(post, post.oldname).url)
            if isinstance(old, LocalTarget):
                await asyncio.to_thread(operations.link_or_copy, old, target)
        outcome = await self._downloader.fetch(post, target)
        if post.oldname is not None and outcome.code == reports.NOT_MODIFIED:
            return PostOutcome(reports.DONE, "moved", post, target.place)
        return outcome

    async def _remove(self, post: Post, target: LocalTarget) -> PostOutcome:
        if post.newname is not None:
            new = self._target(post, post.newname, _renamed(post, post.newname).url)
            if isinstance(new, LocalTarget) and await asyncio.to_thread(
                operations.move, target, new
            ):
                return PostOutcome(reports.DONE, "moved", post, target.place)
        folder = post.event is FileEvent.RMDIR
        done = await asyncio.to_thread(operations.remove, target, folder=folder)
        return _changed(post, target, done, "removed")

    def _target(self, post: Post, path: str, url: str) -> LocalTarget | str:
        """Where a file goes, or why it is not wanted."""
        chosen = self._wanted.selection.choose(url)
        if isinstance(chosen, str):
            return chosen
        variables: Mapping[str, str] = {}
        if "$" in chosen.placement.directory:
            variables = {**self._wanted.variables, **post_variables(post)}
        placed = place(path, chosen.placement, variables, chosen.groups)
        return LocalTarget(placed.directory, placed.path)

    async def _announce(self, to: RepublishTarget, post: Post, place: str) -> None:
        relpath = relative_path(place, to.base_dir, to.base_url)
        if not relpath:
            return
        told = replace(
            post,
            base_url=to.base_url,
            relpath=relpath,
            rename=None,
            retrieve=None,
            content=None,
        )
        told = replace(
            told,
            oldname=self._name_here(to, post, post.oldname),
            newname=self._name_here(to, post, post.newname),
        )
        kept = self._plugins.post(told)
        if kept is not None:
            await to.post_publisher.announce(kept)

    def _name_here(self, to: RepublishTarget, post: Post, path: str | None) -> str | None:
        """What the other half of a move is called here."""
        if path is None:
            return None
        at = self._target(post, path, _renamed(post, path).url)
        return (
            relative_path(at.place, to.base_dir, to.base_url)
            if isinstance(at, LocalTarget)
            else path
        )


def post_variables(post: Post) -> dict[str, str]:
    """What a post has to say to a directory's name: the same at every attempt."""
    source = post.source or ""
    if "/" in source or source in (".", ".."):
        raise OutsideDirectory(f"source {source!r} is no name of a directory")
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
    """The path to announce a file by: below the base directory, or all of it; of the base
    directory itself, nothing."""
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


def _changed(post: Post, target: LocalTarget, done: bool, what: str) -> PostOutcome:
    if done:
        return PostOutcome(reports.DONE, what, post, target.place)
    return PostOutcome(reports.NOT_MODIFIED, "nothing to do", place=target.place)


# What a hop adds to a post: who brought it in, where it came in, where it is to go.
#
# Values that are there are kept, except that a hop which does not trust its sources takes their
# name from the exchange they may write to (`xs_<user>`), and forgets where they say it came in.


@dataclass(frozen=True, slots=True)
class Provenance:
    source: str | None = None
    cluster: str | None = None
    to_clusters: str | None = None
    trusted: bool = True
    exchange: str = ""  #: where posts are heard


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


# What sender does with a post: push the file, which is here, to a server, and tell of it there.
#
# A block of a file is sent as a part file, as it would be kept by a pump that puts nothing
# together: what has a final name there is whole. Who fetches the parts from there puts them
# together.


@dataclass(frozen=True, slots=True)
class SendDestination:
    url: str
    base_dir: Path | None  #: where the files of posts are here; else posts say it by file: URLs
    files: FileRule = field(default_factory=FileRule)  #: which may be sent
    inflight: str = ".tmp"
    to: str | None = None  #: only what is meant for this cluster
    keep_mode: bool = True
    keep_times: bool = True


class SendHandler:
    """Keeps `Work`."""

    def __init__(
        self,
        destination: SendDestination,
        wanted: ReceiveRules,
        transports: TransportRegistry,
        *,
        post_publisher: PostPublisher | None = None,
        base_url: str | None = None,
        plugins: Plugins | None = None,
    ) -> None:
        self._destination = destination
        self._wanted = wanted
        self._transports = transports
        self._post_publisher = post_publisher
        self._base_url = base_url
        self._plugins = plugins or Plugins()

    async def __call__(self, post: Post, pump_message: PumpMessage) -> PostOutcome:
        reason = self._unwanted(post)
        if reason is not None:
            return PostOutcome(REJECTED, reason)
        chosen = self._wanted.selection.choose(post.url)
        if isinstance(chosen, str):
            return PostOutcome(REJECTED, chosen)
        kept = self._plugins.message(post)
        if kept is None:
            return PostOutcome(REJECTED, "a plugin")
        variables = {**self._wanted.variables, **post_variables(kept)}
        path = destination_path(kept, join=self._wanted.join)
        placed = place(path, chosen.placement, variables, chosen.groups)
        remote = _as_part(placed.full.lstrip("/"), kept)
        target = FileSource(self._destination.url.rstrip("/") + "/" + quote(remote))
        outcome = await self._do(kept, target)
        await self._announce(kept, remote)
        return outcome

    def _unwanted(self, post: Post) -> str | None:
        if post.event not in self._wanted.events:
            return f"event {post.event.value}"
        to = self._destination.to
        meant = [each.strip() for each in (post.to_clusters or "").split(",") if each.strip()]
        if to is not None and meant and to not in meant and "ALL" not in meant:
            return f"not for {to}"
        return None

    async def _do(self, post: Post, target: FileSource) -> PostOutcome:
        transport = self._transports.get(target.scheme)
        if post.event is FileEvent.DELETE:
            await transport.remove(target)
            return PostOutcome(reports.DONE, "removed")
        if post.event is not FileEvent.MODIFY:
            raise UnsupportedSource(f"{post.event.value} cannot be sent")
        path = self._local(post)
        span = await asyncio.to_thread(_checked, self._destination.files, path, post)
        delivery = FileUpload(
            path,
            self._destination.inflight,
            post.mode if self._destination.keep_mode else None,
            post.mtime if self._destination.keep_times else None,
            span,
            self._destination.files,
        )
        await transport.send(delivery, target)
        return PostOutcome(reports.DONE, "Sent", post, str(path))

    async def _announce(self, post: Post, remote: str) -> None:
        if self._post_publisher is None or self._base_url is None:
            return
        parts = post.parts
        if parts is not None and not parts.single:
            parts = replace(parts, method=PARTITIONED)
        there = replace(post, base_url=self._base_url, relpath=remote, parts=parts)
        told = self._plugins.post(replace(there, rename=None, retrieve=None))
        if told is not None:
            await self._post_publisher.announce(told)

    def _local(self, post: Post) -> Path:
        if self._destination.base_dir is not None:
            path = place(post.relpath, Placement(str(self._destination.base_dir), mirror=True))
            return Path(path.full)
        source = source_of(post, join=self._wanted.join)
        if source.scheme != "file":
            raise UnsupportedSource(f"{source.url} is not on this machine: give base_dir")
        return Path(source.path)


def _as_part(remote: str, post: Post) -> str:
    """The name a block has there."""
    if post.parts is None or post.parts.single or remote.endswith(".Part"):
        return remote
    return part_name(remote, post.parts, post.sum.method if post.sum else "0")


def _checked(files: FileRule, path: Path, post: Post) -> ByteRange:
    """What of the file is to be sent; it has to be as large as was announced."""
    fd = files.open(str(path))
    try:
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    parts = post.parts
    if parts is None:
        return ByteRange()
    alone = path.name.endswith(".Part")
    announced = parts.length if alone else parts.file_size
    if size != announced:
        raise WrongSize(f"{path} has {size} bytes, {announced} were announced")
    return ByteRange() if alone or parts.single else ByteRange(parts.offset, parts.length)


# What winnow and shovel do with a post: let it through as it came, or not.


class ForwardHandler:
    """Keeps `Work`. Without a suppression everything that is wanted goes through.

    A message is sent on as it came, byte for byte, unless a plugin changed the post or another
    spelling is asked for.
    """

    def __init__(
        self,
        post_publisher: PostPublisher,
        selection: PostSelection,
        *,
        duplicate_filter: DuplicateFilter | None = None,
        plugins: Plugins | None = None,
        spelled_anew: bool = False,
    ) -> None:
        self._post_publisher = post_publisher
        self._selection = selection
        self._duplicate_filter = duplicate_filter
        self._plugins = plugins or Plugins()
        self._spelled_anew = spelled_anew

    async def __call__(self, post: Post, pump_message: PumpMessage) -> PostOutcome:
        chosen = self._selection.choose(post.url)
        if isinstance(chosen, str):
            return PostOutcome(REJECTED, chosen)
        kept = self._plugins.message(post)
        if kept is None:
            return PostOutcome(REJECTED, "a plugin")
        if self._duplicate_filter is None:
            return await self._pass_on(post, kept, pump_message)
        async with self._duplicate_filter.first(kept) as first:
            if not first:
                return PostOutcome(reports.NOT_MODIFIED, "duplicate")
            return await self._pass_on(post, kept, pump_message)

    async def _pass_on(self, post: Post, kept: Post, pump_message: PumpMessage) -> PostOutcome:
        told = self._plugins.post(kept)
        if told is None:
            return PostOutcome(REJECTED, "a plugin")
        if told is post and not self._spelled_anew:
            await self._post_publisher.repeat(pump_message, post)
        else:
            await self._post_publisher.announce(told)
        return PostOutcome(reports.DONE, "Published")
