"""The one place where what happens meets what people want to be told.

Figures and news of deals are matched with all definitions at once. What comes of it is one
transaction: where the definitions stand now, and the notes to tell, in the outbox. Only when it is
committed does the table in memory follow, so a process that dies between the two, or one that is
given the same figure twice, tells nobody twice and forgets nobody.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.core.logs import get_logger
from penstock_hives.alerts.matcher import (
    AlertMatcher,
    DealEvent,
    OccupancyReport,
    ThresholdCrossing,
)
from penstock_hives.alerts.models import AlertDefinition, AlertKind, ThresholdUnit
from penstock_hives.alerts.repository import AlertRepository, AlertTransition, RecipientState
from penstock_hives.database import DatabasePool
from penstock_hives.push.models import (
    DAILY_CAP,
    Notification,
    NotificationDecision,
    NotificationPreferences,
    decide,
)
from penstock_hives.push.repository import Outbox

log = get_logger(__name__)

#: Definitions in one transaction: a popular place may turn tens of thousands at once.
CHUNK: Final = 2000


class AlertEvaluator:
    """Owned by one task: nothing here is to be called by two at a time."""

    def __init__(
        self,
        pool: DatabasePool,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        cap: int = DAILY_CAP,
    ) -> None:
        self.table = AlertMatcher()
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

    async def judge(self, figures: Iterable[OccupancyReport]) -> int:
        """How many notes came of it."""
        crossings: list[ThresholdCrossing] = []
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

    async def _cross(self, crossings: Sequence[ThresholdCrossing]) -> int:
        now = self._clock()
        telling = NotificationBuilder(now, self._cap)
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
                turned.append(_transition(crossing, now if note is not None else None))
                if note is not None:
                    notes.append(note)
            await repository.turn(turned)
            added = await Outbox(connection).put(notes)
        for crossing in crossings:
            self.table.turn(crossing)
        return added

    async def _spread(self, news: DealEvent, now: datetime) -> int:
        wanted = self.table.interested(news)
        telling = NotificationBuilder(now, self._cap)
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
                await repository.turn([AlertTransition(*pair, True, None, now) for pair in known])
                added += await Outbox(connection).put(notes)
        return added


def _transition(crossing: ThresholdCrossing, told_at: datetime | None) -> AlertTransition:
    definition, figure = crossing.definition, crossing.figure
    value = figure.percent if definition.unit == "percent" else float(figure.occupancy)
    return AlertTransition(definition.id, figure.hive_id, not crossing.fired, value, told_at)


# From a match to a note: the words, and whether a device is disturbed.
#
# One `NotificationBuilder` is for what is told at one moment: it counts what each person has got in
# it, so that the daily cap holds within a batch too.

#: A figure that is older is no news: definitions turn by it, and nobody is told.
NEWS: Final = timedelta(minutes=10)
#: How long a push about a figure is worth sending.
FRESH: Final = timedelta(minutes=15)


class NotificationBuilder:
    def __init__(self, now: datetime, cap: int) -> None:
        self._now = now
        self._cap = cap
        self._today: Counter[int] = Counter()

    def crossing(self, crossing: ThresholdCrossing, who: RecipientState) -> Notification | None:
        """None if nobody is to hear of it."""
        definition, figure = crossing.definition, crossing.figure
        if not crossing.fired or self._now - figure.as_of >= NEWS:
            return None
        decision = self._decide(definition, who, keeps=False)
        if not decision.inbox:
            return None
        title, body = crossing_text(definition, figure, who.hive)
        return Notification(
            definition.user_id,
            definition.kind,
            title,
            body,
            f"{definition.id}:{figure.hive_id}:{figure.version}",
            f"/#/hive/{figure.hive_id}",
            definition.id,
            figure.hive_id,
            data={"occupancy": figure.occupancy, "percent": figure.percent},
            expires_at=self._now + FRESH,
            push_at=decision.push_at,
            silent=not definition.inbox,
        )

    def deal(
        self, definition: AlertDefinition, news: DealEvent, who: RecipientState
    ) -> Notification:
        decision = self._decide(definition, who, keeps=True)
        title, body = deal_text(news)
        return Notification(
            definition.user_id,
            definition.kind,
            title,
            body,
            # One person is told once, however many definitions of theirs it meets.
            f"{definition.user_id}:deal:{news.deal_id}:{news.mark}",
            f"/#/deal/{news.deal_id}",
            definition.id,
            news.hive_id,
            news.deal_id,
            expires_at=news.expires_at,
            push_at=decision.push_at,
            silent=not definition.inbox,
        )

    def _decide(
        self, definition: AlertDefinition, who: RecipientState, *, keeps: bool
    ) -> NotificationDecision:
        habits = NotificationPreferences(
            who.zone,
            definition.cooldown,
            definition.quiet,
            definition.push,
            who.last_told,
            who.told_today + self._today[who.user_id],
        )
        decision = decide(habits, self._now, keeps=keeps, cap=self._cap)
        if decision.push_at is not None:
            self._today[who.user_id] += 1
        return decision


# What somebody is told, in words.


def crossing_text(
    definition: AlertDefinition, figure: OccupancyReport, hive: str
) -> tuple[str, str]:
    """Title and body."""
    assert definition.threshold is not None
    if definition.unit is ThresholdUnit.PERCENT:
        now = f"It is {figure.percent:.0f} % full now"
        limit = f"{definition.threshold:g} %"
    else:
        now = f"There {_people(figure.occupancy)} inside now"
        limit = f"{definition.threshold:g}"
    if definition.kind is AlertKind.OCCUPANCY_ABOVE:
        return f"{hive} is filling up", f"{now}; you wanted to know at {limit}."
    return f"{hive} has room", f"{now}; you wanted to know at {limit}."


def deal_text(news: DealEvent) -> tuple[str, str]:
    if news.hours is None:
        return f"New at {news.hive}", news.title
    left = "1 hour" if news.hours == 1 else f"{news.hours} hours"
    return f"Ends soon at {news.hive}", f"{news.title}: {left} left."


def _people(count: int) -> str:
    return "is 1 person" if count == 1 else f"are {count} people"
