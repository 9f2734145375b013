"""Files that land together: written one by one, synced all at once, and then given their names.

Whoever comes while others land waits for the next turn, and shares it with all who do; so a file
that comes alone waits for nobody, and hundreds cost two syncs. What befalls one of them befalls no
other, but a disk that fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from penstock.pump.landing.disk import Disk
from penstock.pump.landing.draft import Draft
from penstock.pump.posts.sums import Sum
from penstock.pump.threads import Hands, Sure, to_the_end

#: While some are synced, others are written.
CREWS: Final = 2
#: So many land together at most: those who wait for their names are not to wait long.
MOST: Final = 256

#: The sum a file has, if one is known; or why it need not land at all.
Found = Sum | str | None


@dataclass(frozen=True, slots=True)
class Arrival:
    draft: Draft
    place: str
    take_in: Callable[[], Found]  #: all of it is in the draft then, and right


Waiting = tuple[Sure[Found], Arrival]


class Landings:
    """Ended by `close`."""

    def __init__(self, *, durable: bool = True) -> None:
        self._disk = Disk() if durable else None
        self._hands = Hands(CREWS)
        self._waiting: list[Waiting] = []
        self._crews: set[asyncio.Task[None]] = set()

    def land(self, arrival: Arrival) -> Sure[Found]:
        """Done when it has its name, on the disk as it is. For what is quick to take in."""
        landed: Sure[Found] = Sure()
        self._waiting.append((landed, arrival))
        if len(self._crews) < CREWS:
            # It begins in the loop's next turn, so that all who come in this one go together.
            crew = asyncio.create_task(self._land())
            self._crews.add(crew)
            crew.add_done_callback(self._ended)
        return landed

    async def land_alone(self, arrival: Arrival) -> Found:
        """The same in a thread of its own: for what takes its time."""
        (found,) = await to_the_end(land, [arrival], self._disk)
        if isinstance(found, BaseException):
            raise found
        return found

    async def close(self) -> None:
        await self._hands.close()
        if self._disk is not None:
            await asyncio.to_thread(self._disk.close)

    async def _land(self) -> None:
        try:
            while self._waiting:
                together, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                await self._land_together(together)
        finally:
            # At once, and not when the task is seen to have ended: who comes until then would wait
            # for a crew that looks no more.
            self._crews.remove(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _land_together(self, together: Sequence[Waiting]) -> None:
        arrivals = [arrival for _, arrival in together]
        try:
            found = await self._hands.do(partial(land, arrivals, self._disk))
        except BaseException as error:
            _tell(together, [error] * len(together))  # nobody is to wait for ever
            raise
        _tell(together, found)

    def _ended(self, crew: asyncio.Task[None]) -> None:
        """Nobody is to wait for a crew that was cancelled, perhaps before it had begun."""
        self._crews.discard(crew)
        error = asyncio.CancelledError() if crew.cancelled() else crew.exception()
        if error is not None and not self._crews:
            behind, self._waiting = self._waiting, []
            _tell(behind, [error] * len(behind))


def _tell(
    together: Sequence[Waiting],
    found: Sequence[Found | BaseException],
) -> None:
    for (landed, _), each in zip(together, found, strict=True):
        if isinstance(each, BaseException):
            landed.set_exception(each)
        else:
            landed.set_result(each)


def land(arrivals: Sequence[Arrival], disk: Disk | None) -> list[Found | BaseException]:
    """What became of each. Blocking."""
    found = [_taken_in(each) for each in arrivals]
    named = [at for at, each in enumerate(found) if not isinstance(each, str | BaseException)]
    try:
        if disk is not None:
            disk.sync([arrivals[each].draft.file for each in named])
        folders: set[str] = set()
        for each in named:
            arrival = arrivals[each]
            try:
                folders.add(arrival.draft.name(arrival.place))
            except OSError as error:
                found[each] = error
        if disk is not None:
            disk.sync_folders(folders)
    except OSError as error:
        for each in named:
            found[each] = error
    return found


def _taken_in(arrival: Arrival) -> Found | BaseException:
    try:
        return arrival.take_in()
    except Exception as error:
        return error
