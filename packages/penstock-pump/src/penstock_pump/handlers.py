"""The handler of subscribe and sarra: selects a post, places its file, downloads it or applies the
link, folder, removal or move, and publishes a new post with its own base URL and path before the
message is acknowledged. `send_handler.py` and `forward_handler.py` have the other handlers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from penstock.core.logs import get_logger
from penstock_pump.downloader import Downloader
from penstock_pump.duplicates import DuplicateFilter
from penstock_pump.errors import BadPost, PumpError
from penstock_pump.files import operations
from penstock_pump.files.target import LocalTarget
from penstock_pump.flow.message import PumpMessage
from penstock_pump.flow.publisher import PostPublisher
from penstock_pump.plugins import Plugins
from penstock_pump.post_filter import PostFilter
from penstock_pump.posts import reports
from penstock_pump.posts.checksums import removal_sum
from penstock_pump.posts.formats import format_of
from penstock_pump.posts.post import FileEvent, Post
from penstock_pump.posts.reports import REJECTED, PostOutcome
from penstock_pump.selection import PlacedPath, PostSelection, expand, place
from penstock_pump.transports.transport import destination_path
from penstock_pump.variables import PostVariables

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReceiveRules:
    selection: PostSelection = field(default_factory=PostSelection)
    post_filter: PostFilter = field(default_factory=PostFilter)
    join: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    folder_mode: int = 0o775
    time_offset: float = 0.0  #: seconds added to times in variables
    base_url_path: bool = False  #: the path of the base URL is part of a file's path
    discard: bool = False  #: remove files once they are complete
    delete: bool = False  #: remove files from their servers once they are here
    dry_run: bool = False

    def path_of(self, post: Post) -> str:
        path = destination_path(post, join=self.join)
        if self.base_url_path and post.rename is None:
            return urlsplit(post.base_url).path.strip("/") + "/" + path.lstrip("/")
        return path

    def expand(self, text: str, post: Post) -> str:
        """Variables of a base URL; a slash at its end stays."""
        if "$" not in text:
            return text
        found = expand(text, PostVariables(post, self.variables, self.time_offset))
        return f"{found}/" if text.endswith("/") else found

    def place(self, post: Post, path: str, url: str) -> PlacedPath | str:
        """The path of a file, or the reason of its rejection."""
        match = self.selection.choose(url)
        if isinstance(match, str):
            return match
        variables: Mapping[str, str] = {}
        if "$" in match.placement.directory or match.placement.filename is not None:
            variables = PostVariables(post, self.variables, self.time_offset)
        return place(path, match.placement, variables, match.groups)


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
        outcome = PostOutcome(REJECTED, "a plugin")
        for each in await self._plugins.received(post):
            if (removal := removal_of_move(each, pump_message)) is not None:
                await self._handle(removal, pump_message)
            outcome = await self._handle(each, pump_message)
        return outcome

    async def _handle(self, received: Post, pump_message: PumpMessage) -> PostOutcome:
        if (reason := self._rules.post_filter.rejection(received)) is not None:
            return PostOutcome(REJECTED, reason)
        post = with_provenance(received, self._provenance, pump_message.exchange)
        placed = self._rules.place(post, self._rules.path_of(post), post.url)
        if isinstance(placed, str):
            return PostOutcome(REJECTED, placed)
        target = LocalTarget(placed.directory, placed.path)
        if placed.script:
            target = await self._plugins.renamed(placed.script, post, target)
        outcome = PostOutcome(REJECTED, "a plugin")
        for each in await self._plugins.accept(post, target):
            outcome = await self._take(*each, pump_message)
        return outcome

    async def _take(
        self, accepted: Post, target: LocalTarget, pump_message: PumpMessage
    ) -> PostOutcome:
        if self._rules.dry_run:
            log.info("dry run", path=target.full_path, kind=accepted.event.value, url=accepted.url)
            return PostOutcome(reports.NOT_MODIFIED, "dry run")
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
        post = with_provenance(post, self._provenance)
        with suppress(PumpError, OSError, ValueError):  # the post may have no valid path
            target = self._target(post, self._rules.path_of(post), post.url)
            if isinstance(target, LocalTarget):
                await asyncio.to_thread(self._downloader.abandon, post, target)

    async def _accept(
        self, post: Post, target: LocalTarget, pump_message: PumpMessage
    ) -> PostOutcome:
        outcome = await self._apply(post, target)
        if outcome.code != reports.NOT_MODIFIED and post.event is FileEvent.MODIFY:
            await self._delete_source(post)
        announced = outcome.post
        if outcome.code == reports.NOT_MODIFIED and pump_message.redelivered:
            # The former attempt may have ended between the file and its announcement. Others can
            # suppress a duplicate, but cannot miss a post.
            announced = post
        path = outcome.path
        if announced is not None and path is not None:
            before = announced
            announced = await self._plugins.file(announced, path, whole=outcome.whole)
            if announced is not None and self._is_transformed(before, announced):
                outcome = replace(outcome, code=reports.TRANSFORMED, message="transformed")
                announced = replace(announced, content=None)
            if announced is not None and self._republish_target is not None:
                await self._announce(self._republish_target, announced, path)
            if self._rules.discard and outcome.whole and post.event is FileEvent.MODIFY:
                await asyncio.to_thread(operations.remove, target)
        return outcome

    @staticmethod
    def _is_transformed(before: Post, after: Post) -> bool:
        """A plugin changed the content: it announces another checksum or size."""
        return (before.sum, before.parts) != (after.sum, after.parts)

    async def _delete_source(self, post: Post) -> None:
        """The file is here: a server that does not remove its own is not the file's fault."""
        if not self._rules.delete or post.content is not None:
            return
        try:
            await self._downloader.remove_source(post)
        except PumpError as error:
            log.warning("source not deleted", path=post.relpath, reason=str(error))

    async def _apply(self, post: Post, target: LocalTarget) -> PostOutcome:
        if post.event is FileEvent.MODIFY:
            return await self._receive(post, target)
        if post.event is FileEvent.LINK:
            if not post.link:
                raise BadPost("a link without a target")
            mode = self._rules.folder_mode
            done = await asyncio.to_thread(operations.make_link, target, post.link, mode)
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
        done = await self._plugins.download(post, target)
        outcome = done or await self._downloader.fetch(post, target)
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
        placed = self._rules.place(post, path, url)
        return placed if isinstance(placed, str) else LocalTarget(placed.directory, placed.path)

    async def _announce(self, to: RepublishTarget, post: Post, path: str) -> None:
        base_url = self._rules.expand(to.base_url, post)
        relpath = relative_path(path, to.base_dir, base_url)
        if not relpath:
            return
        announced = self._plugins.post(
            replace(
                post,
                base_url=base_url,
                relpath=relpath,
                rename=None,
                retrieve=None,
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


def removal_of_move(post: Post, pump_message: PumpMessage) -> Post | None:
    """sr3 announces a move with one post in v03, where others announce the removal of the former
    name, too. A removal that is announced twice has no effect the second time."""
    is_removal = post.event in (FileEvent.DELETE, FileEvent.RMDIR)
    if post.oldname is None or is_removal or format_of(pump_message.body) != "v03":
        return None
    name = post.oldname.rstrip("/").rpartition("/")[2]
    return replace(
        post,
        relpath=post.oldname,
        sum=removal_sum(name, directory=post.event is FileEvent.MKDIR),
        newname=post.relpath,
        oldname=None,
        rename=None,
        retrieve=None,
        parts=None,
        link=None,
        content=None,
    )


@dataclass(frozen=True, slots=True)
class Provenance:
    """Source and clusters that a hop adds to posts without them. A hop that does not trust its
    sources takes their name from the exchange they may publish to (`xs_<user>`). A hop of sr3 names
    itself as the source, unless it keeps that of the message."""

    source: str | None = None
    cluster: str | None = None
    to_clusters: str | None = None
    trusted: bool = True
    exchange: str = ""  #: that posts are consumed from
    keeps_source: bool = True


def with_provenance(post: Post, known: Provenance, exchange: str = "") -> Post:
    """`exchange` is that of the message; the configured one where it is not known."""
    source, from_cluster = post.source, post.from_cluster
    if not known.keeps_source:
        source = None
    if not known.trusted:
        from_cluster = None
        exchange = exchange or known.exchange
        if exchange.startswith("xs_"):
            source = exchange.split("_")[1]
    source, from_cluster = source or known.source, from_cluster or known.cluster
    to_clusters = post.to_clusters or known.to_clusters
    if (source, from_cluster, to_clusters) == (post.source, post.from_cluster, post.to_clusters):
        return post
    return replace(post, source=source, from_cluster=from_cluster, to_clusters=to_clusters)
