"""One file on its way to the disk, or one block of a file that is kept as a file of its own.

What is known of it, and the steps of taking it in, which block and are for a thread: its folder is
made, what is here already is looked at, the draft is written, verified and given its mode and
times. How its bytes come, and when it gets its name, is for whoever fetches it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.core.units import KiB
from penstock.pump.landing.draft import Draft, Manners
from penstock.pump.landing.folders import Folders
from penstock.pump.landing.landings import Arrival, Found
from penstock.pump.landing.target import Target
from penstock.pump.pace import Pace
from penstock.pump.posts.parts import Parts
from penstock.pump.posts.post import Post
from penstock.pump.posts.sums import Sum
from penstock.pump.present import computed_here
from penstock.pump.sources import Source
from penstock.pump.transfers import Counted, Transfer
from penstock.pump.transports.contract import Near, Span

#: Up to this size a file is fetched in one piece, waits for others in memory, and lands with them.
SMALL: Final = 64 * KiB

#: Why a file need not be fetched, if that is so.
Needed = Callable[[Post, Target], str | None]


class Incoming:
    __slots__ = (
        "_block",
        "_draft",
        "_folders",
        "_manners",
        "_needed",
        "_post",
        "_strict",
        "_target",
        "small",
        "transfer",
        "writing",
    )

    def __init__(
        self,
        post: Post,
        target: Target,
        transfer: Transfer,
        draft: Draft,
        folders: Folders,
        manners: Manners,
        *,
        strict: bool,
        block: Parts | None,
        needed: Needed | None,
    ) -> None:
        self._post = post
        self._target = target
        self.transfer = transfer
        self._draft = draft
        self._folders = folders
        self._manners = manners
        self._strict = strict
        self._block = block
        self._needed = needed
        self.small = transfer.total is not None and transfer.total <= SMALL
        self.writing = Counted(draft, transfer)

    def arrival(self, take_in: Callable[[], Found]) -> Arrival:
        return Arrival(self._draft, self._target.place, take_in)

    def look(self) -> str | None:
        """Why it need not be fetched, if that is so; else there is a folder for it."""
        self._folders.prepare(self._target)
        return None if self._needed is None else self._needed(self._post, self._target)

    def begin(self) -> int | str:
        """How many bytes of it are in the draft already; or why it need not be fetched."""
        # What nothing will verify is not gone on with, but begun again.
        return self._begin(resume=not computed_here(self._post))

    def rest(self, there: int) -> Span:
        """What is still to be fetched."""
        if self._block is None:
            return Span(there)
        return Span(self._block.offset + there, self._block.length - there)

    def take_in(self, data: bytes) -> Found:
        """All of it, which has come in one piece."""
        there = self._begin(resume=False)
        return there if isinstance(there, str) else self.finish(data)

    def take_near(self, near: Near, source: Source, pace: Pace) -> Found:
        """All of it, from where it need not be waited for."""
        there = self.begin()
        if isinstance(there, str):
            return there
        near.copy(source, self.rest(there), pace.kept_by(self.writing))
        return self.finish(b"")

    def finish(self, rest: bytes) -> Sum | None:
        """The last bytes of it, and the sum it is then known by."""
        post = self._post
        self._draft.write(rest)
        known = self._draft.verify(post.sum, strict=self._strict)
        self._draft.dress(self._manners, post.mode, post.mtime, post.atime)
        return known

    def close(self) -> None:
        self._draft.close()

    def _begin(self, *, resume: bool) -> int | str:
        reason = self.look()
        if reason is not None:
            return reason
        self.transfer.done = self._draft.open(resume=resume)
        return self.transfer.done
