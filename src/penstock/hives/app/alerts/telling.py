"""From a match to a note: the words, and whether a device is disturbed.

One `Telling` is for what is told at one moment: it counts what each person has got in it, so that
the daily cap holds within a batch too.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Final

from penstock.hives.app.alerts import wording
from penstock.hives.app.alerts.definitions import Definition
from penstock.hives.app.alerts.publications import DealNews
from penstock.hives.app.alerts.repository import Circumstances
from penstock.hives.app.alerts.table import Crossing
from penstock.hives.app.push.notes import Note
from penstock.hives.app.push.policy import Decision, Habits, decide

#: A figure that is older is no news: definitions turn by it, and nobody is told.
NEWS: Final = timedelta(minutes=10)
#: How long a push about a figure is worth sending.
FRESH: Final = timedelta(minutes=15)


class Telling:
    def __init__(self, now: datetime, cap: int) -> None:
        self._now = now
        self._cap = cap
        self._today: Counter[int] = Counter()

    def crossing(self, crossing: Crossing, who: Circumstances) -> Note | None:
        """None if nobody is to hear of it."""
        definition, figure = crossing.definition, crossing.figure
        if not crossing.fired or self._now - figure.as_of >= NEWS:
            return None
        decision = self._decide(definition, who, keeps=False)
        if not decision.inbox:
            return None
        title, body = wording.of_crossing(definition, figure, who.hive)
        return Note(
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

    def deal(self, definition: Definition, news: DealNews, who: Circumstances) -> Note:
        decision = self._decide(definition, who, keeps=True)
        title, body = wording.of_deal(news)
        return Note(
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

    def _decide(self, definition: Definition, who: Circumstances, *, keeps: bool) -> Decision:
        habits = Habits(
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
