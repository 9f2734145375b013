"""From a post to a file: fetched, verified while it comes, and put under its name when it is right.

A file that is here already and has the announced sum is not fetched. A part is written where it
belongs in the file, or kept as a part file where the file is not to be put together here. Trying
again is for whoever calls: an error leaves behind nothing that the next attempt could trip over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from penstock.pump.gathering import Collecting, Gathering
from penstock.pump.holding import Holding
from penstock.pump.incoming import Incoming, Needed
from penstock.pump.landing.blocks import Assembly, Block
from penstock.pump.landing.draft import Draft, Manners
from penstock.pump.landing.folders import Folders
from penstock.pump.landing.landings import Found, Landings
from penstock.pump.landing.target import Inflight, Target
from penstock.pump.outcome import Outcome
from penstock.pump.pace import Pace
from penstock.pump.posts import reports
from penstock.pump.posts.parts import INPLACE, PARTITIONED, Parts, part_name
from penstock.pump.posts.post import Post
from penstock.pump.posts.sums import Sum, Sums
from penstock.pump.present import Present, computed_here
from penstock.pump.sources import Source, source_of
from penstock.pump.threads import Hands, to_the_end
from penstock.pump.transfers import Counted, Transfer, Transfers
from penstock.pump.transports.contract import Span, Transport, near
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
        self,
        transports: Transports,
        sums: Sums,
        rules: Rules,
        pace: Pace | None = None,
        transfers: Transfers | None = None,
        holding: Holding | None = None,
        at_a_time: int = 16,
    ) -> None:
        self._transports = transports
        self._sums = sums
        self._rules = rules
        self._present = Present(sums, rules.overwrite, rules.manners.keep_times)
        self._folders = Folders(rules.manners.folder_mode)
        self._hands = Hands()
        self._landings = Landings(durable=rules.manners.durable)
        self._pace = pace or Pace()
        self._transfers = transfers or Transfers()
        self._holding = holding
        self._room = asyncio.Semaphore(at_a_time)  #: of what is large, or comes from afar

    async def close(self) -> None:
        await self._hands.close()
        await self._landings.close()

    async def fetch(self, post: Post, target: Target) -> Outcome:
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

    def abandon(self, post: Post, target: Target) -> None:
        """What was not fetched will not be tried again: nothing of it stays. Blocking."""
        target.check()
        parts = post.parts
        if parts is not None and not parts.single:
            if self._rules.inplace:
                target = _without_part_suffix(target, parts, post.sum)
                self._assembly(post, parts, target).abandon()
                return
            target = _part_target(post, parts, target)
        Draft(self._rules.inflight.path(target.place), None, None).abandon()

    async def _fetch_whole(self, post: Post, target: Target, transfer: Transfer) -> Outcome:
        found = await self._land(post, target, transfer, needed=self._present.whole)
        if isinstance(found, str):
            return Outcome(reports.NOT_MODIFIED, found, place=target.place)
        code = reports.DONE if found == post.sum or computed_here(post) else reports.RECOMPUTED
        told = post if found == post.sum else replace(post, sum=found)
        return Outcome(code, "Downloaded", told, target.place)

    async def _land(
        self,
        post: Post,
        target: Target,
        transfer: Transfer,
        block: Parts | None = None,
        needed: Needed | None = None,
    ) -> Found:
        """A file, or one block of a file, under a name of its own. Its sum; or why it need not be
        fetched."""
        path = self._rules.inflight.path(target.place)
        incoming = Incoming(
            post,
            target,
            transfer,
            Draft(path, transfer.total, self._sums.verifiable(post.sum)),
            self._folders,
            self._rules.manners,
            strict=self._rules.strict,
            block=block,
            needed=needed,
        )
        try:
            if post.content is not None:
                return await self._at_once(incoming, partial(incoming.take_in, post.content.data))
            source = self._source(post)
            transport = self._transports.get(source.scheme)
            files = near(transport)
            if files is not None:
                take_in = partial(incoming.take_near, files, source, self._pace)
                return await self._at_once(incoming, take_in)
            if incoming.small:
                return await self._in_one_piece(incoming, transport, source)
            return await self._bit_by_bit(incoming, transport, source)
        finally:
            incoming.close()

    async def _at_once(self, incoming: Incoming, take_in: Callable[[], Found]) -> Found:
        """What need not be waited for is read where it is written."""
        if incoming.small:
            return await self._landings.land(incoming.arrival(take_in))
        async with self._room:
            incoming.transfer.begin()
            return await self._landings.land_alone(incoming.arrival(take_in))

    async def _in_one_piece(
        self, incoming: Incoming, transport: Transport, source: Source
    ) -> Found:
        """A small file from afar: the disk is asked once before, and once when all of it is here,
        each time for many files together."""
        reason = await self._hands.do(incoming.look)
        if reason is not None:
            return reason
        collecting = Collecting(incoming.transfer, self._pace)
        async with self._room:
            incoming.transfer.begin()
            await transport.fetch(source, incoming.rest(0), collecting)
        return await self._landings.land(
            incoming.arrival(partial(incoming.take_in, collecting.taken()))
        )

    async def _bit_by_bit(self, incoming: Incoming, transport: Transport, source: Source) -> Found:
        """A large file from afar: written while it comes, so that half of it can be gone on
        with."""
        length = incoming.transfer.total
        async with self._room:
            incoming.transfer.begin()
            there = await to_the_end(incoming.begin)
            if isinstance(there, str):
                return there
            gathering = Gathering(incoming.writing, self._pace)
            if length is None or there < length:
                await transport.fetch(source, incoming.rest(there), gathering)
            finish = partial(incoming.finish, gathering.taken())
            return await self._landings.land_alone(incoming.arrival(finish))

    async def _fetch_block(
        self, post: Post, parts: Parts, target: Target, transfer: Transfer
    ) -> Outcome:
        target = _without_part_suffix(target, parts, post.sum)
        assembly = self._assembly(post, parts, target)
        fd = await to_the_end(self._open_block, post, parts, target, assembly)
        if fd is None:
            return Outcome(reports.NOT_MODIFIED, "block is here", place=target.place, whole=False)
        block = Block(fd, parts, self._sums.verifiable(post.sum))
        try:
            source = self._source(post)
            sink = Gathering(Counted(block, transfer), self._pace)
            transport = self._transports.get(source.scheme)
            offset = 0 if source.name.endswith(".Part") else parts.offset
            await transport.fetch(source, Span(offset, parts.length), sink)
            known, whole = await to_the_end(self._add, block, sink.taken(), post, target, assembly)
        finally:
            block.close()
        told = replace(post, sum=known, parts=replace(parts, method=INPLACE))
        message = "Downloaded" if whole else "Inserted"
        return Outcome(reports.DONE, message, told, target.place, whole)

    def _open_block(
        self, post: Post, parts: Parts, target: Target, assembly: Assembly
    ) -> int | None:
        self._folders.prepare(target)
        if self._present.block(post, parts, target):
            return None
        return assembly.open()

    def _add(
        self, block: Block, rest: bytes, post: Post, target: Target, assembly: Assembly
    ) -> tuple[Sum | None, bool]:
        block.write(rest)
        known = block.verify(post.sum, strict=self._rules.strict)
        if self._rules.manners.durable:
            block.sync()
        whole = assembly.add(target.final, self._rules.manners, post.mode, post.mtime, post.atime)
        return known, whole

    async def _keep_part(
        self, post: Post, parts: Parts, target: Target, transfer: Transfer
    ) -> Outcome:
        """The part as a file of its own, for others to fetch, and for nobody to put together."""
        beside = _part_target(post, parts, target)
        block = None if self._source(post).name.endswith(".Part") else parts
        async with (
            nullcontext()
            if self._holding is None
            else self._holding.room(beside.final, parts.length)
        ):
            known = await self._land(post, beside, transfer, block)
        assert not isinstance(known, str)  # nobody was asked whether it is needed
        told = replace(post, sum=known, parts=replace(parts, method=PARTITIONED))
        return Outcome(reports.DONE, "Downloaded", told, beside.place)

    def _assembly(self, post: Post, parts: Parts, target: Target) -> Assembly:
        return Assembly(Path(self._rules.inflight.path(target.place)), parts, post.moment)

    def _source(self, post: Post) -> Source:
        return source_of(post, join=self._rules.join)


def _part_target(post: Post, parts: Parts, target: Target) -> Target:
    """Where a part is kept as a file of its own."""
    if target.path.endswith(".Part"):
        return target
    path = part_name(target.path, parts, post.sum.method if post.sum else "0")
    return Target(target.directory, path)


def _without_part_suffix(target: Target, parts: Parts, known: Sum | None) -> Target:
    """A part file is put into the file it is of."""
    suffix = part_name("", parts, known.method if known else "0")
    return Target(target.directory, target.path.removesuffix(suffix))
