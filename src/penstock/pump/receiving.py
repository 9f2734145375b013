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

from penstock.pump.errors import BadPost, OutsideDirectory, PumpError
from penstock.pump.fetching import Fetching
from penstock.pump.flow.announcing import Announcing
from penstock.pump.flow.letter import Letter
from penstock.pump.headers import Provenance, with_provenance
from penstock.pump.landing import changes
from penstock.pump.landing.target import Target
from penstock.pump.outcome import REJECTED, Outcome
from penstock.pump.placement import place
from penstock.pump.plugins import Plugins
from penstock.pump.posts import reports
from penstock.pump.posts.moments import v02_moment
from penstock.pump.posts.post import Event, Post
from penstock.pump.selection import Selection
from penstock.pump.sources import destined
from penstock.pump.winnowing.suppression import Suppression


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted, and where it goes."""

    selection: Selection = field(default_factory=Selection)
    events: frozenset[Event] = frozenset(Event)
    join: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    folder_mode: int = 0o775


@dataclass(frozen=True, slots=True)
class Republishing:
    """How what we have is announced to others."""

    announcing: Announcing
    base_url: str
    base_dir: Path


class Receiving:
    """Keeps `Work`."""

    def __init__(
        self,
        wanted: Wanted,
        fetching: Fetching,
        *,
        republishing: Republishing | None = None,
        provenance: Provenance | None = None,
        suppression: Suppression | None = None,
        plugins: Plugins | None = None,
    ) -> None:
        self._wanted = wanted
        self._fetching = fetching
        self._republishing = republishing
        self._provenance = provenance or Provenance()
        self._suppression = suppression
        self._plugins = plugins or Plugins()

    async def __call__(self, post: Post, letter: Letter) -> Outcome:
        if post.event not in self._wanted.events:
            return Outcome(REJECTED, f"event {post.event.value}")
        target = self._target(post, destined(post, join=self._wanted.join), post.url)
        if isinstance(target, str):
            return Outcome(REJECTED, target)
        kept = self._plugins.message(with_provenance(post, self._provenance))
        if kept is None:
            return Outcome(REJECTED, "a plugin")
        if self._suppression is None:
            return await self._obtain(kept, target, letter)
        async with self._suppression.first(kept) as first:
            if not first:
                return Outcome(reports.NOT_MODIFIED, "duplicate")
            return await self._obtain(kept, target, letter)

    async def abandon(self, post: Post) -> None:
        """A post that failed for good: what has been fetched of its file goes."""
        if post.event is not Event.MODIFY:
            return
        with suppress(PumpError, OSError, ValueError):  # there was no place for it to begin with
            target = self._target(post, destined(post, join=self._wanted.join), post.url)
            if isinstance(target, Target):
                await asyncio.to_thread(self._fetching.abandon, post, target)

    async def _obtain(self, post: Post, target: Target, letter: Letter) -> Outcome:
        outcome = await self._do(post, target)
        told = outcome.post
        if outcome.code == reports.NOT_MODIFIED and letter.again:
            # What ended the attempt before this one may have come between the file and its
            # announcement. Others can tell a duplicate; they cannot tell what they never heard of.
            told = post
        if told is not None and outcome.place is not None:
            told = self._plugins.file(told, outcome.place, whole=outcome.whole)
        if told is not None and self._republishing is not None and outcome.place is not None:
            await self._announce(self._republishing, told, outcome.place)
        return outcome

    async def _do(self, post: Post, target: Target) -> Outcome:
        if post.event is Event.MODIFY:
            return await self._receive(post, target)
        if post.event is Event.LINK:
            if not post.link:
                raise BadPost("a link that points nowhere")
            done = await asyncio.to_thread(changes.make_link, target, post.link)
            return _changed(post, target, done, "Linked")
        if post.event is Event.MKDIR:
            done = await asyncio.to_thread(changes.make_folder, target, self._wanted.folder_mode)
            return _changed(post, target, done, "Made")
        return await self._remove(post, target)

    async def _receive(self, post: Post, target: Target) -> Outcome:
        """A file that had another name here needs no fetching: fetching finds it is right."""
        if post.oldname is not None:
            old = self._target(post, post.oldname, _renamed(post, post.oldname).url)
            if isinstance(old, Target):
                await asyncio.to_thread(changes.link_or_copy, old, target)
        outcome = await self._fetching.fetch(post, target)
        if post.oldname is not None and outcome.code == reports.NOT_MODIFIED:
            return Outcome(reports.DONE, "moved", post, target.place)
        return outcome

    async def _remove(self, post: Post, target: Target) -> Outcome:
        if post.newname is not None:
            new = self._target(post, post.newname, _renamed(post, post.newname).url)
            if isinstance(new, Target) and await asyncio.to_thread(changes.move, target, new):
                return Outcome(reports.DONE, "moved", post, target.place)
        folder = post.event is Event.RMDIR
        done = await asyncio.to_thread(changes.remove, target, folder=folder)
        return _changed(post, target, done, "removed")

    def _target(self, post: Post, path: str, url: str) -> Target | str:
        """Where a file goes, or why it is not wanted."""
        chosen = self._wanted.selection.choose(url)
        if isinstance(chosen, str):
            return chosen
        variables: Mapping[str, str] = {}
        if "$" in chosen.placement.directory:
            variables = {**self._wanted.variables, **post_variables(post)}
        placed = place(path, chosen.placement, variables, chosen.groups)
        return Target(placed.directory, placed.path)

    async def _announce(self, to: Republishing, post: Post, place: str) -> None:
        relpath = relative(place, to.base_dir, to.base_url)
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
            await to.announcing.announce(kept)

    def _name_here(self, to: Republishing, post: Post, path: str | None) -> str | None:
        """What the other half of a move is called here."""
        if path is None:
            return None
        at = self._target(post, path, _renamed(post, path).url)
        return relative(at.place, to.base_dir, to.base_url) if isinstance(at, Target) else path


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


def relative(path: str | Path, base_dir: Path, base_url: str) -> str:
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


def _changed(post: Post, target: Target, done: bool, what: str) -> Outcome:
    if done:
        return Outcome(reports.DONE, what, post, target.place)
    return Outcome(reports.NOT_MODIFIED, "nothing to do", place=target.place)
