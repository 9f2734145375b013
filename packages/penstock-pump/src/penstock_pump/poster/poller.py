"""Announces the files of a server that announces none itself: its directories are listed regularly.

A file is announced when it is new, or when its size or time has changed since it was last seen.
What was announced is remembered on disk, for as long as `suppress_duplicates` says after it was
last seen, so a restart announces nothing twice. Directories below are listed too (`recursive`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from penstock.core.logs import get_logger
from penstock_pump.duplicates import FingerprintStore
from penstock_pump.errors import PumpError
from penstock_pump.poster.poster import FilePoster
from penstock_pump.posts import checksums
from penstock_pump.posts.checksums import Checksum
from penstock_pump.posts.parts import Parts
from penstock_pump.posts.post import Post
from penstock_pump.transports.listing import ListedFile
from penstock_pump.transports.transport import FileSource, TransportRegistry

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PollRules:
    url: str  #: of the server and the directory that paths are below
    base_url: str  #: in the posts
    paths: Sequence[str] = ("",)
    recursive: bool = True
    min_age: float = 0.0
    sum: str = "z,s"
    source: str | None = None
    from_cluster: str | None = None
    to_clusters: str | None = None


class Poller:
    def __init__(
        self,
        rules: PollRules,
        transports: TransportRegistry,
        poster: FilePoster,
        seen: FingerprintStore,
        expand: Callable[[str], str] = str,
        listed: Callable[[ListedFile], ListedFile | None] | None = None,
    ) -> None:
        """`expand` replaces variables of a path, as `${YYYYMMDD}`, at each listing. `listed` is
        called with each entry, in a thread, and may change it or leave it out."""
        self._rules = rules
        self._transports = transports
        self._poster = poster
        self._seen = seen
        self._expand = expand
        self._listed = listed

    async def poll(self) -> int:
        """Lists all paths once; how many files were announced. A directory that cannot be listed is
        logged, and listed again the next time."""
        announced = 0
        for path in self._rules.paths:
            async for relpath, listed in self._walk(self._expand(path).strip("/")):
                announced += await self._announce(relpath, listed)
        await self._poster.flush()
        return announced

    async def _walk(self, folder: str) -> AsyncIterator[tuple[str, ListedFile]]:
        url = f"{self._rules.url.rstrip('/')}/{quote(folder)}".rstrip("/") + "/"
        source = FileSource(url)
        try:
            entries = await self._transports.get(source.scheme).list(source)
        except PumpError as error:
            log.warning("directory not listed", url=url, reason=str(error))
            return
        if self._listed is not None:
            changed = [await asyncio.to_thread(self._listed, each) for each in entries]
            entries = [each for each in changed if each is not None]
        for each in sorted(entries, key=lambda entry: entry.name):
            relpath = f"{folder}/{each.name}".lstrip("/")
            if not each.is_directory:
                yield relpath, each
            elif self._rules.recursive:
                async for found in self._walk(relpath):
                    yield found

    async def _announce(self, relpath: str, listed: ListedFile) -> bool:
        age = time.time() - (listed.mtime or 0) / 1e9
        if age < self._rules.min_age:
            return False
        return await self.announce_new(self._post(relpath, listed))

    async def announce_new(self, post: Post) -> bool:
        """Unless the same file with the same size and time was announced before."""
        size = None if post.parts is None else post.parts.file_size
        key = f"{post.relpath} {size} {post.mtime}"
        if self._seen.is_known(key):
            return False
        announced = await self._poster.announce(post)
        await self._seen.add(key)
        return announced

    def _post(self, relpath: str, listed: ListedFile) -> Post:
        rules = self._rules
        method, _, value = rules.sum.partition(",")
        if method == checksums.NAME:
            known = checksums.name_sum(listed.name)
        else:
            known = Checksum(method, value or "0")
        return Post(
            moment=time.time_ns(),
            base_url=rules.base_url,
            relpath=relpath,
            sum=known,
            parts=None if listed.size is None else Parts.whole(listed.size),
            mtime=listed.mtime,
            source=rules.source,
            from_cluster=rules.from_cluster,
            to_clusters=rules.to_clusters,
        )


@dataclass(frozen=True, slots=True)
class PollSchedule:
    """When to list: after `interval` seconds, or at times of the day in UTC."""

    interval: float = 300.0
    hours: Sequence[int] = ()
    minutes: Sequence[int] = ()
    times: Sequence[tuple[int, int]] = ()  #: hour and minute

    def seconds_until_next(self, now: float) -> float:
        if not (self.hours or self.minutes or self.times):
            return self.interval
        at = datetime.fromtimestamp(now, UTC)
        start = at.replace(second=0, microsecond=0)
        moments = [*self.times]
        if self.hours or self.minutes:
            moments += [
                (hour, minute)
                for hour in self.hours or range(24)
                for minute in self.minutes or (0,)
            ]
        found = (
            start.replace(hour=hour, minute=minute) + timedelta(days=day)
            for day in (0, 1)
            for hour, minute in moments
        )
        return min((each - at).total_seconds() for each in found if each > at)
