"""What changed, in numbered issues that all who follow share.

A figure that comes when it is quiet goes out at once; those that come within `pace` of an issue are
gathered, the last of each hive, and go out together: nobody is told more often than that. Past
issues are kept up to a limit. Who follows has a number, and asks for what came after it; one that
has fallen behind what is kept gets the whole board instead. So there is no queue for each follower,
and the policy is *coalesce per hive*: a slow one misses figures, never the last one.

    bulletin.tell(figure)
    news = bulletin.since(number, wanted)       # or None: begin with `whole(wanted)`
    number = await bulletin.after(number)
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

#: Between two issues. People do not see more often, and a phone's radio is spared.
BATCH_SECONDS: Final = 0.25
#: Issues kept for those behind: some minutes of a lively day.
MAX_BATCHES: Final = 1000
#: Connections without a byte are cut by proxies; so there is an issue, if an empty one.
HEARTBEAT_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class EncodedOccupancy:
    """How full a hive is, encoded once for all who are told."""

    hive: int
    version: int
    body: bytes  #: its document, JSON


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    number: int
    figures: tuple[EncodedOccupancy, ...]
    text: bytes  #: all of them, as a JSON array


class ChangeFeed:
    """Belongs to one event loop."""

    def __init__(
        self, pace: float = BATCH_SECONDS, kept: int = MAX_BATCHES, beat: float = HEARTBEAT_SECONDS
    ) -> None:
        #: Numbers mean something only to who gave them out; another worker's are its own.
        self.name = secrets.token_hex(4)
        self.number = 0
        self._pace = pace
        self._beat = beat
        self._issues: deque[ChangeBatch] = deque(maxlen=kept)
        self._board: dict[int, EncodedOccupancy] = {}
        self._pending: dict[int, EncodedOccupancy] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.TimerHandle | None = None
        self._closed = False

    def open(self) -> None:
        self._beating = asyncio.get_running_loop().call_later(self._beat, self._keep_alive)

    def close(self) -> None:
        """No issues any more; who waits for one is told to go."""
        self._closed = True
        for timer in (self._timer, self._beating):
            if timer is not None:
                timer.cancel()
        self._wake()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def board(self) -> dict[int, EncodedOccupancy]:
        """The last figure of each hive."""
        return self._board

    def tell(self, figure: EncodedOccupancy) -> bool:
        """Whether it was news: a version that is known, or older, is not told again."""
        known = self._board.get(figure.hive)
        if known is not None and known.version >= figure.version:
            return False
        self._board[figure.hive] = figure
        self._pending[figure.hive] = figure
        if self._timer is None and not self._closed:
            self._issue()
        return True

    def forget(self, hives: Iterable[int]) -> None:
        """Hives that are nobody's business any more."""
        for hive in hives:
            self._board.pop(hive, None)
            self._pending.pop(hive, None)

    def whole(self, wanted: AbstractSet[int] | None) -> tuple[EncodedOccupancy, ...]:
        """How hives stand: those wanted, or all."""
        if wanted is None:
            return tuple(self._board.values())
        return tuple(self._board[hive] for hive in wanted if hive in self._board)

    def since(self, number: int, wanted: AbstractSet[int] | None) -> bytes | None:
        """What came after an issue, as a JSON array; none, if that is not known any more."""
        missed = self.number - number
        if missed < 0 or missed > len(self._issues):
            return None
        if missed == 1 and wanted is None:
            return self._issues[-1].text  # the usual case: the same bytes for everybody
        latest: dict[int, EncodedOccupancy] = {}
        for place in range(len(self._issues) - missed, len(self._issues)):
            for figure in self._issues[place].figures:
                if wanted is None or figure.hive in wanted:
                    latest[figure.hive] = figure
        return encode_array(latest.values())

    def next_issue(self) -> asyncio.Future[None]:
        """Done with the next issue, or at the end. Whoever has no use for it any more cancels."""
        future = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_result(None)
        else:
            self._waiting.append(future)
        return future

    def _issue(self) -> None:
        self._timer = None
        if self._pending:
            # The next not before its time; if nothing is pending then, the one after is at once.
            self._timer = asyncio.get_running_loop().call_later(self._pace, self._issue)
            self._publish()

    def _publish(self) -> None:
        figures, self._pending = tuple(self._pending.values()), {}
        self.number += 1
        self._issues.append(ChangeBatch(self.number, figures, encode_array(figures)))
        self._wake()

    def _keep_alive(self) -> None:
        self._publish()
        self._beating = asyncio.get_running_loop().call_later(self._beat, self._keep_alive)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def encode_array(figures: Iterable[EncodedOccupancy]) -> bytes:
    return b"[" + b",".join(figure.body for figure in figures) + b"]"
