"""The one place where what happens meets what people want to be told.

Figures and news of deals are matched with all definitions at once. What comes of it is one
transaction: where the definitions stand now, and the notes to tell, in the outbox. Only when it is
committed does the table in memory follow, so a process that dies between the two, or one that is
given the same figure twice, tells nobody twice and forgets nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from penstock.core.logs import get_logger
from penstock.hives.app.alerts.publications import DealNews, Figure
from penstock.hives.app.alerts.repository import AlertRepository, Turned
from penstock.hives.app.alerts.table import AlertTable, Crossing
from penstock.hives.app.alerts.telling import Telling
from penstock.hives.app.push.outbox import Outbox
from penstock.hives.app.push.policy import DAILY_CAP
from penstock.hives.app.repositories.pool import Pool

log = get_logger(__name__)

#: Definitions in one transaction: a popular place may turn tens of thousands at once.
CHUNK: Final = 2000


class Evaluator:
    """Owned by one task: nothing here is to be called by two at a time."""

    def __init__(
        self,
        pool: Pool,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        cap: int = DAILY_CAP,
    ) -> None:
        self.table = AlertTable()
        self._pool = pool
        self._clock = clock
        self._cap = cap

    async def load(self) -> None:
        """All definitions as the database has them."""
        gone = set(self.table)
        async with self._pool.reading() as connection:
            async for standings in AlertRepository(connection).every():
                for each in standings:
                    self.table.put(each.definition, each.armed)
                    gone.discard(each.definition.id)
                await asyncio.sleep(0)  # others of this process have their turn
        for definition in gone:
            self.table.remove(definition)
        log.info("alerts loaded", definitions=len(self.table))

    async def refresh(self, ids: Iterable[int]) -> None:
        """Some of them, which have changed, come or gone."""
        wanted = set(ids)
        async with self._pool.reading() as connection:
            found = await AlertRepository(connection).some(wanted)
        for each in found:
            self.table.put(each.definition, each.armed)
        for gone in wanted - {each.definition.id for each in found}:
            self.table.remove(gone)

    async def catch_up(self) -> int:
        """Judge how every hive stands: what was published while nobody listened is in it."""
        async with self._pool.reading() as connection:
            figures = await AlertRepository(connection).standings()
        return await self.judge(figures)

    async def judge(self, figures: Iterable[Figure]) -> int:
        """How many notes came of it."""
        crossings: list[Crossing] = []
        for figure in figures:
            crossings += self.table.crossings(figure)
        told = 0
        for start in range(0, len(crossings), CHUNK):
            told += await self._cross(crossings[start : start + CHUNK])
        return told

    async def judge_deals(self) -> int:
        """The same with what has become of deals."""
        now = self._clock()
        async with self._pool.reading() as connection:
            news = await AlertRepository(connection).news(now)
        told = 0
        for each in news:
            told += await self._spread(each, now)
        return told

    async def _cross(self, crossings: Sequence[Crossing]) -> int:
        now = self._clock()
        telling = Telling(now, self._cap)
        pairs = [(each.definition.id, each.figure.hive_id) for each in crossings]
        notes, turned = [], []
        async with self._pool.transaction() as connection:
            repository = AlertRepository(connection)
            known = await repository.circumstances(pairs, now)
            for pair, crossing in zip(pairs, crossings, strict=True):
                who = known.get(pair)
                if who is None:
                    continue
                note = telling.crossing(crossing, who)
                turned.append(_turned(crossing, now if note is not None else None))
                if note is not None:
                    notes.append(note)
            await repository.turn(turned)
            added = await Outbox(connection).put(notes)
        for crossing in crossings:
            self.table.turn(crossing)
        return added

    async def _spread(self, news: DealNews, now: datetime) -> int:
        wanted = self.table.interested(news)
        telling = Telling(now, self._cap)
        added = 0
        async with self._pool.transaction() as connection:
            repository = AlertRepository(connection)
            if not await repository.told(news, now):
                return 0
            for start in range(0, len(wanted), CHUNK):
                some = {each.id: each for each in wanted[start : start + CHUNK]}
                pairs = [(each, news.hive_id) for each in some]
                known = await repository.circumstances(pairs, now)
                notes = [telling.deal(some[pair[0]], news, who) for pair, who in known.items()]
                await repository.turn([Turned(*pair, True, None, now) for pair in known])
                added += await Outbox(connection).put(notes)
        return added


def _turned(crossing: Crossing, told_at: datetime | None) -> Turned:
    definition, figure = crossing.definition, crossing.figure
    value = figure.percent if definition.unit == "percent" else float(figure.occupancy)
    return Turned(definition.id, figure.hive_id, not crossing.fired, value, told_at)
