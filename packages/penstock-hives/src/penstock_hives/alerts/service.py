"""One's own alerts as they are watched for: the subscription each is now, and where it stands."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from penstock.content import Subscription, format_message
from penstock.core.errors import NotFound
from penstock_hives.alerts import matcher
from penstock_hives.alerts.repository import AlertRepository, AlertState
from penstock_hives.database import DatabasePool
from penstock_hives.people.permissions import Caller
from penstock_hives.push.models import Notification
from penstock_hives.push.repository import Outbox

_STATES: Final = """
    SELECT d.id, s.last_value, s.last_fired_at
    FROM user_notification_def d
    LEFT JOIN notification_state s
        ON s.definition_id = d.id AND (s.hive_id = d.hive_id OR d.hive_id IS NULL)
    WHERE d.user_id = %s AND d.enabled
    ORDER BY d.id, s.last_fired_at
"""


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """A notification setting at work."""

    id: int
    kind: str
    subscriptions: tuple[str, ...]  #: in the content language
    armed: bool
    last_value: float | None
    last_fired_at: datetime | None


class AlertService:
    def __init__(
        self, pool: DatabasePool, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._pool = pool
        self._clock = clock

    async def of(self, caller: Caller) -> list[AlertStatus]:
        async with self._pool.reading() as connection:
            rows = await (await connection.execute(_STATES, (caller.known,))).fetchall()
            states = {row["id"]: row for row in rows}
            found = await AlertRepository(connection).some(states)
        return [
            AlertStatus(
                each.definition.id,
                each.definition.kind,
                tuple(format_message(wanted) for wanted in _wanted(each)),
                each.armed,
                states[each.definition.id]["last_value"],
                states[each.definition.id]["last_fired_at"],
            )
            for each in sorted(found, key=lambda each: each.definition.id)
        ]

    async def try_out(self, caller: Caller, number: int) -> None:
        """Tell somebody what one of theirs would, so that they see it arrive."""
        alert = next((each for each in await self.of(caller) if each.id == number), None)
        if alert is None:
            raise NotFound(f"you have no alert {number}")
        note = Notification(
            caller.known,
            "system",
            "This is how it will look",
            "A note like this one comes when your alert is due.",
            f"{number}:try:{secrets.token_hex(8)}",
            definition_id=number,
            push_at=self._clock(),
        )
        async with self._pool.transaction() as connection:
            await Outbox(connection).put([note])


def _wanted(standing: AlertState) -> list[Subscription]:
    definition = standing.definition
    if definition.kind.of_occupancy:
        return [matcher.threshold_subscriptions(definition, standing.armed)]
    return matcher.deal_subscriptions(definition)
