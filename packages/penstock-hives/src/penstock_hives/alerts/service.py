"""Notification settings of a user, and the alerts they are: subscription, state, last firing."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from penstock.content import Subscription, format_message
from penstock.core.errors import NotFound
from penstock_hives.alerts import matcher
from penstock_hives.alerts.models import AlertKind, NotificationSetting
from penstock_hives.alerts.repository import (
    AlertRepository,
    AlertState,
    NotificationSettingRepository,
)
from penstock_hives.billing.repository import PlanRepository
from penstock_hives.database import DatabasePool
from penstock_hives.encoding import check_if_match
from penstock_hives.errors import (
    FieldError,
    TooManyRequests,
    invalid_fields,
    require_found,
)
from penstock_hives.people.permissions import Caller, PlanFeatureCode
from penstock_hives.people.repository import PeopleRepository
from penstock_hives.places.service import require_visible_hive
from penstock_hives.push.models import Notification
from penstock_hives.push.repository import Outbox
from penstock_hives.translation import translate

_STATES: Final = """
    SELECT d.id, s.last_value, s.last_fired_at
    FROM user_notification_def d
    LEFT JOIN notification_state s
        ON s.definition_id = d.id AND (s.hive_id = d.hive_id OR d.hive_id IS NULL)
    WHERE d.user_id = %s AND d.enabled
    ORDER BY d.id, s.last_fired_at
"""

#: Test notifications of a user in a minute.
MAX_TESTS: Final = 5
_TESTS: Final = """
    SELECT id FROM notification WHERE user_id = %s AND kind = 'system'
      AND idempotency_key LIKE '%%:try:%%' AND created_at > %s - interval '1 minute'
"""


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """The state of a notification setting."""

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

    async def of_user(self, caller: Caller) -> list[AlertStatus]:
        async with self._pool.reading() as connection:
            rows = await (await connection.execute(_STATES, (caller.known,))).fetchall()
            states = {row["id"]: row for row in rows}
            found = await AlertRepository(connection).by_ids(states)
        return [
            AlertStatus(
                each.definition.id,
                each.definition.kind,
                tuple(format_message(subscription) for subscription in _subscriptions(each)),
                each.armed,
                states[each.definition.id]["last_value"],
                states[each.definition.id]["last_fired_at"],
            )
            for each in sorted(found, key=lambda each: each.definition.id)
        ]

    async def send_test(self, caller: Caller, number: int) -> None:
        if not any(each.id == number for each in await self.of_user(caller)):
            raise NotFound(f"alert {number} not found")
        async with self._pool.transaction() as connection:
            locale = await PeopleRepository(connection).locale(caller.known)
            note = Notification(
                caller.known,
                "system",
                translate("Test notification", locale),
                translate("Your alert will look like this.", locale),
                f"{number}:try:{secrets.token_hex(8)}",
                definition_id=number,
                push_at=self._clock(),
            )
            row = await connection.execute(_TESTS, (caller.known, self._clock()))
            if len(await row.fetchall()) >= MAX_TESTS:
                raise TooManyRequests(f"at most {MAX_TESTS} tests a minute", 60.0)
            await Outbox(connection).add([note])


def _subscriptions(state: AlertState) -> list[Subscription]:
    definition = state.definition
    if definition.kind.of_occupancy:
        return [matcher.threshold_subscription(definition, state.armed)]
    return matcher.deal_subscriptions(definition)


class NotificationSettingService:
    """Notification settings of the caller, within the limit of their plan."""

    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def of_user(self, caller: Caller) -> list[NotificationSetting]:
        async with self._pool.reading() as connection:
            return await NotificationSettingRepository(connection).of_user(caller.known)

    async def get(self, caller: Caller, number: int) -> NotificationSetting:
        async with self._pool.reading() as connection:
            found = await NotificationSettingRepository(connection).get(caller.known, number)
        return _require(found, number)

    async def define(self, caller: Caller, values: Mapping[str, Any]) -> NotificationSetting:
        _check(values)
        now = self._clock()
        async with self._pool.transaction() as connection:
            # One request of a user at a time, or the limit could be exceeded.
            await connection.execute(
                "SELECT FROM app_user WHERE id = %s FOR UPDATE", (caller.known,)
            )
            definitions = NotificationSettingRepository(connection)
            plans, feature = PlanRepository(connection), PlanFeatureCode.ALERTS
            most = await plans.limit_of_user(caller.known, feature, "alerts", now)
            if most is not None and len(await definitions.of_user(caller.known)) >= most:
                raise await plans.required(feature, f"your plan includes {most} alerts", most)
            if values.get("hive_id") is not None:
                await require_visible_hive(connection, values["hive_id"], now)
            number = await definitions.add(caller.known, values)
            return require_found(
                await definitions.get(caller.known, number), f"notification setting {number}"
            )

    async def edit(
        self, caller: Caller, number: int, values: Mapping[str, Any], seen: str | None
    ) -> NotificationSetting:
        async with self._pool.transaction() as connection:
            definitions = NotificationSettingRepository(connection)
            held = require_found(
                await definitions.get(caller.known, number, lock=True),
                f"notification setting {number}",
            )
            check_if_match(held, seen)
            _check({name: values.get(name, getattr(held, name)) for name in _CHECKED})
            if values.get("hive_id") is not None:
                await require_visible_hive(connection, values["hive_id"], self._clock())
            await definitions.change(number, values)
            return require_found(
                await definitions.get(caller.known, number), f"notification setting {number}"
            )

    async def remove(self, caller: Caller, number: int) -> None:
        async with self._pool.transaction() as connection:
            if not await NotificationSettingRepository(connection).remove(caller.known, number):
                raise NotFound(f"notification setting {number} not found")


def _require(found: NotificationSetting | None, number: int) -> NotificationSetting:
    return require_found(found, f"notification setting {number}")


_CHECKED: Final = (
    *("kind", "hive_id", "threshold", "unit", "hysteresis", "quiet_from", "quiet_to"),
    *("weekdays", "active_from", "active_to"),
)


def _check(values: Mapping[str, Any]) -> None:
    kind, errors = values["kind"], []
    if AlertKind(kind).of_occupancy:
        errors += [
            FieldError(name, f"must be given for {kind}")
            for name in ("hive_id", "threshold", "unit")
            if values.get(name) is None
        ]
    else:
        if values.get("threshold") is not None or values.get("unit") is not None:
            errors.append(FieldError("threshold", f"must not be given for {kind}"))
        if values.get("weekdays") or values.get("active_from") is not None:
            errors.append(FieldError("weekdays", f"must not be given for {kind}"))
    if values.get("unit") == "percent" and (values.get("threshold") or 0) > 1000:
        errors.append(FieldError("threshold", "must be at most 1000 percent"))
    for name in ("quiet", "active"):
        if (values.get(f"{name}_from") is None) != (values.get(f"{name}_to") is None):
            errors.append(FieldError(f"{name}_from", f"must be given together with {name}_to"))
    if errors:
        raise invalid_fields(errors)
