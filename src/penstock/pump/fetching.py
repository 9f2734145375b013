"""From a post to a file: fetched, verified while it comes, and put under its name when it is right.

A file that is here already and has the announced sum is not fetched. A part is written where it
belongs in the file, or kept as a part file where the file is not to be put together here. Trying
again is for whoever calls: an error leaves behind nothing that the next attempt could trip over.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.pump.gathering import GATHERED, Gathering
from penstock.pump.landing.blocks import Assembly, Block
from penstock.pump.landing.draft import Draft, Manners
from penstock.pump.landing.target import Inflight, Target
from penstock.pump.outcome import Outcome
from penstock.pump.pace import Pace
from penstock.pump.posts import reports
from penstock.pump.posts.parts import INPLACE, PARTITIONED, Parts, part_name
from penstock.pump.posts.post import Post
from penstock.pump.posts.sums import LATER, Sum, Sums
from penstock.pump.sources import Source, source_of
from penstock.pump.threads import to_the_end
from penstock.pump.transports.contract import Span
from penstock.pump.transports.opening import Transports


@dataclass(frozen=True, slots=True)
class Rules:
    """How files are fetched."""

    inflight: Inflight = field(default_factory=Inflight)
    manners: Manners = field(default_factory=Manners)
    strict: bool = True  #: another sum than announced is refused, not announced anew
    join: bool = False  #: base URL and path are joined whatever they end with
    inplace: bool = True  #: parts are put together here
    overwrite: bool = True  #: compare and replace what is here; else what is here is enough


class Fetching:
    """Keeps what is shared by all files of a component."""

    def __init__(
        self, transports: Transports, sums: Sums, rules: Rules, pace: Pace | None = None
    ) -> None:
        self._transports = transports
        self._sums = sums
        self._rules = rules
        self._pace = pace or Pace()

    async def fetch(self, post: Post, target: Target) -> Outcome:
        parts = post.parts
        if parts is None or parts.single:
            return await self._fetch_whole(post, target)
        if self._rules.inplace:
            return await self._fetch_block(post, parts, target)
        return await self._keep_part(post, parts, target)

    async def _fetch_whole(self, post: Post, target: Target) -> Outcome:
        reason = await to_the_end(self._unneeded, post, target)
        if reason is not None:
            return Outcome(reports.NOT_MODIFIED, reason, path=target.final)
        length = None if post.parts is None else post.parts.length
        known = await self._land(post, target, length)
        code = reports.DONE if known == post.sum or _computed_here(post) else reports.RECOMPUTED
        return Outcome(code, "Downloaded", replace(post, sum=known), target.final)

    async def _land(
        self, post: Post, target: Target, length: int | None, block: Parts | None = None
    ) -> Sum | None:
        """A file of this length, or one block of a file, under a name of its own. Its sum."""
        path = self._rules.inflight.path(target.final)
        draft = Draft(path, length, self._sums.verifiable(post.sum))
        # What nothing will verify is not gone on with, but begun again.
        resume = post.content is None and not _computed_here(post)
        try:
            there = await to_the_end(self._open, draft, target, resume)
            sink = Gathering(draft, self._pace)
            if post.content is not None:
                await sink.feed(post.content.data)
            elif length is None or there < length:
                source = self._source(post)
                span = Span(there)
                if block is not None:
                    span = Span(block.offset + there, block.length - there)
                await self._transports.get(source.scheme).fetch(source, span, sink)
            return await to_the_end(self._finish, draft, sink.taken(), post, target)
        finally:
            draft.close()

    def _open(self, draft: Draft, target: Target, resume: bool) -> int:
        target.prepare(self._rules.manners.folder_mode)
        return draft.open(resume=resume)

    def _finish(self, draft: Draft, rest: bytes, post: Post, target: Target) -> Sum | None:
        draft.write(rest)
        known = draft.verify(post.sum, strict=self._rules.strict)
        draft.settle(target.final, self._rules.manners, post.mode, post.mtime, post.atime)
        return known

    async def _fetch_block(self, post: Post, parts: Parts, target: Target) -> Outcome:
        target = _without_part_suffix(target, parts, post.sum)
        assembly = Assembly(self._rules.inflight.path(target.final), parts, post.moment)
        fd = await to_the_end(self._open_block, post, parts, target, assembly)
        if fd is None:
            return Outcome(reports.NOT_MODIFIED, "block is here", path=target.final, whole=False)
        block = Block(fd, parts, self._sums.verifiable(post.sum))
        try:
            source = self._source(post)
            sink = Gathering(block, self._pace)
            transport = self._transports.get(source.scheme)
            offset = 0 if source.name.endswith(".Part") else parts.offset
            await transport.fetch(source, Span(offset, parts.length), sink)
            known, whole = await to_the_end(self._add, block, sink.taken(), post, target, assembly)
        finally:
            block.close()
        told = replace(post, sum=known, parts=replace(parts, method=INPLACE))
        message = "Downloaded" if whole else "Inserted"
        return Outcome(reports.DONE, message, told, target.final, whole)

    def _open_block(
        self, post: Post, parts: Parts, target: Target, assembly: Assembly
    ) -> int | None:
        target.prepare(self._rules.manners.folder_mode)
        if self._newer(post, target.final) or self._here(post, parts, target.final):
            return None
        return assembly.open()

    def _newer(self, post: Post, final: Path) -> bool:
        """Whether what is here was made after what is announced."""
        if post.mtime is None or not self._rules.manners.keep_times:
            return False
        try:
            return final.stat().st_mtime_ns > post.mtime
        except OSError:
            return False

    def _here(self, post: Post, parts: Parts, final: Path) -> bool:
        """Whether the finished file has this very block already."""
        digest = self._sums.verifiable(post.sum)
        if digest is None or post.sum is None:
            return False
        try:
            with final.open("rb") as file:
                if os.fstat(file.fileno()).st_size != parts.file_size:
                    return False
                file.seek(parts.offset)
                left = parts.length
                while left and (chunk := file.read(min(left, GATHERED))):
                    digest.update(chunk)
                    left -= len(chunk)
        except OSError:
            return False
        return digest.hexdigest() == post.sum.value

    def _add(
        self, block: Block, rest: bytes, post: Post, target: Target, assembly: Assembly
    ) -> tuple[Sum | None, bool]:
        block.write(rest)
        known = block.verify(post.sum, strict=self._rules.strict)
        if self._rules.manners.durable:
            block.sync()
        whole = assembly.add(target.final, self._rules.manners, post.mode, post.mtime, post.atime)
        return known, whole

    async def _keep_part(self, post: Post, parts: Parts, target: Target) -> Outcome:
        """The part as a file of its own, for others to fetch, and for nobody to put together."""
        method = post.sum.method if post.sum else "0"
        path = target.path
        if not path.endswith(".Part"):
            path = part_name(path, parts, method)
        beside = Target(target.directory, path)
        block = None if self._source(post).name.endswith(".Part") else parts
        known = await self._land(post, beside, parts.length, block)
        told = replace(post, sum=known, parts=replace(parts, method=PARTITIONED))
        return Outcome(reports.DONE, "Downloaded", told, beside.final)

    def _source(self, post: Post) -> Source:
        return source_of(post, join=self._rules.join)

    def _unneeded(self, post: Post, target: Target) -> str | None:
        """Why it need not be fetched, if that is so."""
        target.check()
        try:
            there = target.final.stat()
        except OSError:
            return None
        if not self._rules.overwrite:
            return "is here"
        digest = self._sums.verifiable(post.sum)
        if digest is None or post.sum is None or _computed_here(post):
            return None
        if self._newer(post, target.final):
            return "a newer one is here"
        if post.parts is not None and there.st_size != post.parts.file_size:
            return None
        with target.final.open("rb") as file:
            while chunk := file.read(GATHERED):
                digest.update(chunk)
        return "the same is here" if digest.hexdigest() == post.sum.value else None


def _computed_here(post: Post) -> bool:
    """Whether the announcer leaves the sum to whoever has the file."""
    return post.sum is not None and post.sum.method == LATER


def _without_part_suffix(target: Target, parts: Parts, known: Sum | None) -> Target:
    """A part file is put into the file it is of."""
    suffix = part_name("", parts, known.method if known else "0")
    return Target(target.directory, target.path.removesuffix(suffix))
