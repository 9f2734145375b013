"""What sender does with a post: push the file, which is here, to a server, and tell of it there.

A block of a file is sent as a part file, as it would be kept by a pump that puts nothing together:
what has a final name there is whole. Who fetches the parts from there puts them together.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from penstock.pump.errors import UnsupportedSource, WrongSize
from penstock.pump.flow.announcing import Announcing
from penstock.pump.flow.letter import Letter
from penstock.pump.outcome import REJECTED, Outcome
from penstock.pump.placement import Placement, place
from penstock.pump.plugins import Plugins
from penstock.pump.posts import reports
from penstock.pump.posts.parts import PARTITIONED, part_name
from penstock.pump.posts.post import Event, Post
from penstock.pump.receiving import Wanted, post_variables
from penstock.pump.sources import Source, destined, source_of
from penstock.pump.transports.contract import Delivery, Span
from penstock.pump.transports.file_rule import FileRule
from penstock.pump.transports.opening import Transports


@dataclass(frozen=True, slots=True)
class Destination:
    url: str
    base_dir: Path | None  #: where the files of posts are here; else posts say it by file: URLs
    files: FileRule = field(default_factory=FileRule)  #: which may be sent
    inflight: str = ".tmp"
    to: str | None = None  #: only what is meant for this cluster
    keep_mode: bool = True
    keep_times: bool = True


class Sending:
    """Keeps `Work`."""

    def __init__(
        self,
        destination: Destination,
        wanted: Wanted,
        transports: Transports,
        *,
        announcing: Announcing | None = None,
        base_url: str | None = None,
        plugins: Plugins | None = None,
    ) -> None:
        self._destination = destination
        self._wanted = wanted
        self._transports = transports
        self._announcing = announcing
        self._base_url = base_url
        self._plugins = plugins or Plugins()

    async def __call__(self, post: Post, letter: Letter) -> Outcome:
        reason = self._unwanted(post)
        if reason is not None:
            return Outcome(REJECTED, reason)
        chosen = self._wanted.selection.choose(post.url)
        if isinstance(chosen, str):
            return Outcome(REJECTED, chosen)
        kept = self._plugins.message(post)
        if kept is None:
            return Outcome(REJECTED, "a plugin")
        variables = {**self._wanted.variables, **post_variables(kept)}
        path = destined(kept, join=self._wanted.join)
        placed = place(path, chosen.placement, variables, chosen.groups)
        remote = _as_part(placed.full.lstrip("/"), kept)
        target = Source(self._destination.url.rstrip("/") + "/" + quote(remote))
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

    async def _do(self, post: Post, target: Source) -> Outcome:
        transport = self._transports.get(target.scheme)
        if post.event is Event.DELETE:
            await transport.remove(target)
            return Outcome(reports.DONE, "removed")
        if post.event is not Event.MODIFY:
            raise UnsupportedSource(f"{post.event.value} cannot be sent")
        path = self._local(post)
        span = await asyncio.to_thread(_checked, self._destination.files, path, post)
        delivery = Delivery(
            path,
            self._destination.inflight,
            post.mode if self._destination.keep_mode else None,
            post.mtime if self._destination.keep_times else None,
            span,
            self._destination.files,
        )
        await transport.send(delivery, target)
        return Outcome(reports.DONE, "Sent", post, str(path))

    async def _announce(self, post: Post, remote: str) -> None:
        if self._announcing is None or self._base_url is None:
            return
        parts = post.parts
        if parts is not None and not parts.single:
            parts = replace(parts, method=PARTITIONED)
        there = replace(post, base_url=self._base_url, relpath=remote, parts=parts)
        told = self._plugins.post(replace(there, rename=None, retrieve=None))
        if told is not None:
            await self._announcing.announce(told)

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


def _checked(files: FileRule, path: Path, post: Post) -> Span:
    """What of the file is to be sent; it has to be as large as was announced."""
    fd = files.open(str(path))
    try:
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    parts = post.parts
    if parts is None:
        return Span()
    alone = path.name.endswith(".Part")
    announced = parts.length if alone else parts.file_size
    if size != announced:
        raise WrongSize(f"{path} has {size} bytes, {announced} were announced")
    return Span() if alone or parts.single else Span(parts.offset, parts.length)
