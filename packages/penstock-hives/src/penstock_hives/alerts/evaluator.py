"""Evaluates occupancy reports and deal events against all alert definitions.

One transaction writes the new states of the matched definitions and their notifications, in the
outbox. The matcher in memory follows after the commit. So a process that crashes in between, or
receives the same report twice, sends each notification exactly once.
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
from penstock_hives.occupancy.models import whole_percent
from penstock_hives.push.models import (
    DAILY_CAP,
    Notification,
    NotificationDecision,
    NotificationPreferences,
    decide,
)
from penstock_hives.push.repository import Outbox
from penstock_hives.translation import translate

log = get_logger(__name__)

#: Definitions in one transaction: one report may match tens of thousands.
CHUNK: Final = 2000


class AlertEvaluator:
    """For one task; not safe for concurrent calls."""

    def __init__(
        self,
        pool: DatabasePool,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        cap: int = DAILY_CAP,
    ) -> None:
        self.matcher = AlertMatcher()
        self._pool = pool
        self._clock = clock
        self._cap = cap

    async def load(self) -> None:
        """Read all definitions from the database."""
        gone = set(self.matcher)
        async with self._pool.reading() as connection:
            async for states in AlertRepository(connection).all():
                for each in states:
                    self.matcher.add(each.definition, each.armed)
                    gone.discard(each.definition.id)
                await asyncio.sleep(0)  # let other tasks run
        for definition in gone:
            self.matcher.remove(definition)
        log.info("alerts loaded", definitions=len(self.matcher))

    async def refresh(self, ids: Iterable[int]) -> None:
        """Read definitions again that were added, changed or removed."""
        wanted = set(ids)
        async with self._pool.reading() as connection:
            found = await AlertRepository(connection).by_ids(wanted)
        for each in found:
            self.matcher.add(each.definition, each.armed)
        for gone in wanted - {each.definition.id for each in found}:
            self.matcher.remove(gone)

    async def catch_up(self) -> int:
        """Evaluate the current state of all hives, which includes missed messages."""
        async with self._pool.reading() as connection:
            reports = await AlertRepository(connection).states()
        return await self.evaluate(reports)

    async def evaluate(self, reports: Iterable[OccupancyReport]) -> int:
        """The number of notifications added."""
        now = self._clock()
        crossings: list[ThresholdCrossing] = []
        for report in reports:
            # Outside its hours an alert stays armed, so it fires when they begin.
            crossings += [
                each
                for each in self.matcher.crossings(report)
                if not each.fired or (hours := each.definition.hours) is None or hours.contains(now)
            ]
        added = 0
        for start in range(0, len(crossings), CHUNK):
            added += await self._notify_crossings(crossings[start : start + CHUNK])
        return added

    async def evaluate_deals(self) -> int:
        now = self._clock()
        async with self._pool.reading() as connection:
            events = await AlertRepository(connection).deal_events(now)
        added = 0
        for event in events:
            added += await self._notify_deal(event, now)
        return added

    async def _notify_crossings(self, crossings: Sequence[ThresholdCrossing]) -> int:
        now = self._clock()
        builder = NotificationBuilder(now, self._cap)
        pairs = [(each.definition.id, each.report.hive_id) for each in crossings]
        notes, transitions = [], []
        async with self._pool.transaction() as connection:
            repository = AlertRepository(connection)
            recipients = await repository.recipients(pairs, now)
            for pair, crossing in zip(pairs, crossings, strict=True):
                recipient = recipients.get(pair)
                if recipient is None:
                    continue
                note = builder.crossing(crossing, recipient)
                transitions.append(_transition(crossing, now if note is not None else None))
                if note is not None:
                    notes.append(note)
            await repository.record_transitions(transitions)
            added = await Outbox(connection).add(notes)
        for crossing in crossings:
            self.matcher.toggle(crossing)
        return added

    async def _notify_deal(self, event: DealEvent, now: datetime) -> int:
        matched = self.matcher.match_deal(event)
        builder = NotificationBuilder(now, self._cap)
        added = 0
        async with self._pool.transaction() as connection:
            repository = AlertRepository(connection)
            if not await repository.mark_announced(event, now):
                return 0
            for start in range(0, len(matched), CHUNK):
                chunk = {each.id: each for each in matched[start : start + CHUNK]}
                pairs = [(each, event.hive_id) for each in chunk]
                recipients = await repository.recipients(pairs, now)
                notes = [
                    builder.deal(chunk[pair[0]], event, recipient)
                    for pair, recipient in recipients.items()
                ]
                await repository.record_transitions(
                    [AlertTransition(*pair, True, None, now) for pair in recipients]
                )
                added += await Outbox(connection).add(notes)
        return added


def _transition(crossing: ThresholdCrossing, notified_at: datetime | None) -> AlertTransition:
    definition, report = crossing.definition, crossing.report
    value = report.percent if definition.unit == "percent" else float(report.occupancy)
    return AlertTransition(definition.id, report.hive_id, not crossing.fired, value, notified_at)


#: An older report changes states without a notification.
MAX_REPORT_AGE: Final = timedelta(minutes=10)
#: A push about occupancy expires after this time.
PUSH_LIFETIME: Final = timedelta(minutes=15)


class NotificationBuilder:
    """For the notifications of one moment; applies the daily cap within the batch too."""

    def __init__(self, now: datetime, cap: int) -> None:
        self._now = now
        self._cap = cap
        self._today: Counter[int] = Counter()

    def crossing(
        self, crossing: ThresholdCrossing, recipient: RecipientState
    ) -> Notification | None:
        definition, report = crossing.definition, crossing.report
        if not crossing.fired or self._now - report.as_of >= MAX_REPORT_AGE:
            return None
        decision = self._decide(definition, recipient, deferrable=False)
        if not decision.inbox:
            return None
        title, body = crossing_text(definition, report, recipient.hive, recipient.locale)
        return Notification(
            definition.user_id,
            definition.kind,
            title,
            body,
            f"{definition.id}:{report.hive_id}:{report.version}",
            f"/#/hive/{report.hive_id}",
            definition.id,
            report.hive_id,
            data={"occupancy": report.occupancy, "percent": report.percent},
            expires_at=self._now + PUSH_LIFETIME,
            push_at=decision.push_at,
            silent=not definition.inbox,
        )

    def deal(
        self, definition: AlertDefinition, event: DealEvent, recipient: RecipientState
    ) -> Notification:
        decision = self._decide(definition, recipient, deferrable=True)
        title, body = deal_text(event, recipient.locale)
        return Notification(
            definition.user_id,
            definition.kind,
            title,
            body,
            # One notification per user, even if several definitions match.
            f"{definition.user_id}:deal:{event.deal_id}:{event.mark}",
            f"/#/deal/{event.deal_id}",
            definition.id,
            event.hive_id,
            event.deal_id,
            expires_at=event.expires_at,
            push_at=decision.push_at,
            silent=not definition.inbox,
        )

    def _decide(
        self, definition: AlertDefinition, recipient: RecipientState, *, deferrable: bool
    ) -> NotificationDecision:
        preferences = NotificationPreferences(
            recipient.zone,
            definition.cooldown,
            definition.quiet,
            definition.push,
            recipient.last_notified,
            recipient.notified_today + self._today[recipient.user_id],
        )
        decision = decide(preferences, self._now, deferrable=deferrable, cap=self._cap)
        if decision.push_at is not None:
            self._today[recipient.user_id] += 1
        return decision


def crossing_text(
    definition: AlertDefinition, report: OccupancyReport, hive: str, locale: str = "en"
) -> tuple[str, str]:
    """Title and body."""
    assert definition.threshold is not None
    limit = f"{definition.threshold:g}"
    if definition.unit is ThresholdUnit.PERCENT:
        limit += " %"
        assert report.percent is not None  # it was compared with the threshold
        percent = whole_percent(report.percent)
        now = translate("It is {percent} % full now", locale, percent=percent)
    elif report.occupancy == 1:
        now = translate("There is 1 person inside now", locale)
    else:
        now = translate("There are {count} people inside now", locale, count=report.occupancy)
    if definition.kind is AlertKind.OCCUPANCY_ABOVE:
        title = translate("{hive} is filling up", locale, hive=hive)
    else:
        title = translate("{hive} has room", locale, hive=hive)
    body = translate("{now}; you wanted to know at {limit}.", locale, now=now, limit=limit)
    return title, body


def deal_text(event: DealEvent, locale: str = "en") -> tuple[str, str]:
    """Title and body."""
    if event.hours is None:
        return translate("New at {hive}", locale, hive=event.hive), event.title
    title = translate("Ends soon at {hive}", locale, hive=event.hive)
    if event.hours == 1:
        return title, translate("{deal}: 1 hour left.", locale, deal=event.title)
    hours = event.hours
    return title, translate("{deal}: {hours} hours left.", locale, deal=event.title, hours=hours)
