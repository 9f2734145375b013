"""Alert definitions, their states, recipients and deal events in SQL; notification settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from penstock_hives.alerts.matcher import DealEvent, OccupancyReport
from penstock_hives.alerts.models import (
    AlertDefinition,
    AlertHours,
    AlertKind,
    GeoRadius,
    NotificationSetting,
    ThresholdUnit,
)
from penstock_hives.database import Connection, insert_row, update_row
from penstock_hives.places.models import GeoPoint

#: Hours before its end at which a deal is announced, for users without a preference.
EXPIRY_HOURS: Final = (24, 2)
_READ_BATCH: Final = 5000

_DEFINITIONS: Final = """
    SELECT d.id, d.user_id, d.kind, d.hive_id, d.threshold, d.unit, d.hysteresis, d.cooldown_s,
           d.quiet_from, d.quiet_to, d.channels, d.weekdays, d.active_from, d.active_to,
           h.time_zone AS hive_zone,
           coalesce(s.armed, true) AS armed,
           coalesce(p.kinds, '{}') AS deal_kinds, coalesce(p.hive_types, '{}') AS hive_types,
           p.expiry_hours, p.within_km, p.lat, p.lon,
           CASE WHEN d.kind = 'favourite_deal' THEN ARRAY(
               SELECT f.hive_id FROM user_hive f WHERE f.user_id = d.user_id AND f.favourite
               ORDER BY f.hive_id
           ) END AS favourites
    FROM user_notification_def d
    JOIN app_user u ON u.id = d.user_id AND u.deleted_at IS NULL
    LEFT JOIN hive h ON h.id = d.hive_id
    LEFT JOIN notification_state s ON s.definition_id = d.id AND s.hive_id = d.hive_id
    LEFT JOIN deal_preference p ON p.user_id = d.user_id AND d.kind LIKE '%%deal%%'
    WHERE d.enabled
"""
_ALL: Final = _DEFINITIONS + " AND d.id > %(after)s ORDER BY d.id LIMIT %(limit)s"
_SOME: Final = _DEFINITIONS + " AND d.id = ANY(%(ids)s)"
_STATES: Final = """
    SELECT s.hive_id, s.occupancy, s.percent, s.level, s.quality, s.as_of, s.version
    FROM hive_status s JOIN hive h ON h.id = s.hive_id AND h.status = 'active'
"""
#: Locked, so that no row is deleted before the transaction has written its notifications.
_RECIPIENTS: Final = """
    SELECT d.id, d.user_id, h.id AS hive_id, h.name AS hive, u.time_zone AS zone,
           u.locale,
           s.last_fired_at AS last_notified, coalesce(sent.notes, 0) AS notified_today
    FROM unnest(%(ids)s::bigint[], %(hives)s::bigint[]) AS given (id, hive_id)
    JOIN user_notification_def d ON d.id = given.id AND d.enabled
    JOIN app_user u ON u.id = d.user_id AND u.deleted_at IS NULL
    JOIN hive h ON h.id = given.hive_id
    LEFT JOIN notification_state s ON s.definition_id = d.id AND s.hive_id = h.id
    LEFT JOIN LATERAL (
        SELECT count(*) AS notes FROM notification n
        WHERE n.user_id = u.id
          AND n.created_at >= date_trunc('day', %(now)s::timestamptz, u.time_zone)
          AND EXISTS (SELECT FROM notification_delivery WHERE notification_id = n.id)
    ) sent ON true
    FOR KEY SHARE OF d, h
"""
_STATE: Final = """
    INSERT INTO notification_state AS held
        (definition_id, hive_id, armed, last_value, last_fired_at)
    SELECT * FROM unnest(%(ids)s::bigint[], %(hives)s::bigint[], %(armed)s::boolean[],
                         %(values)s::real[], %(fired)s::timestamptz[])
    ON CONFLICT (definition_id, hive_id) DO UPDATE SET
        armed = excluded.armed,
        last_value = coalesce(excluded.last_value, held.last_value),
        last_fired_at = coalesce(excluded.last_fired_at, held.last_fired_at)
"""
_DEAL_EVENTS: Final = """
    WITH marks AS (
        SELECT NULL::integer AS hours, 'new' AS mark
        UNION SELECT hours, hours || 'h'
        FROM (SELECT unnest(expiry_hours) FROM deal_preference
              UNION SELECT unnest(%(hours)s::integer[])) AS wanted (hours)
    )
    SELECT deal.id AS deal_id, deal.hive_id, hive.name AS hive, hive_type.code AS hive_type,
           deal.kind, deal.title, deal.expires_at, marks.hours, address.lat, address.lon
    FROM deal
    CROSS JOIN marks
    JOIN hive ON hive.id = deal.hive_id AND hive.status = 'active' AND hive.public
    JOIN hive_type ON hive_type.id = hive.hive_type_id
    LEFT JOIN address ON address.id = hive.address_id
    WHERE deal.status = 'published' AND deal.starts_at <= %(now)s AND deal.expires_at > %(now)s
      AND (marks.hours IS NULL
           OR deal.expires_at - marks.hours * interval '1 hour' <= %(now)s
          AND deal.expires_at - marks.hours * interval '1 hour' > deal.starts_at)
      AND NOT EXISTS (SELECT FROM deal_announcement known
                      WHERE known.deal_id = deal.id AND known.mark = marks.mark)
    ORDER BY deal.id, marks.hours DESC
"""
_MARK_ANNOUNCED: Final = """
    INSERT INTO deal_announcement (deal_id, mark, at) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class AlertState:
    """A definition; armed: it waits for the crossing, else for the return past the hysteresis."""

    definition: AlertDefinition
    armed: bool


@dataclass(frozen=True, slots=True)
class RecipientState:
    user_id: int
    hive: str
    zone: str
    locale: str
    last_notified: datetime | None
    notified_today: int


@dataclass(frozen=True, slots=True)
class AlertTransition:
    """The new state of a definition for a hive."""

    definition_id: int
    hive_id: int
    armed: bool
    value: float | None
    notified_at: datetime | None  #: None: unchanged


class AlertRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self) -> AsyncIterator[list[AlertState]]:
        """All enabled definitions, in batches."""
        after = 0
        while rows := await self._read(_ALL, {"after": after, "limit": _READ_BATCH}):
            yield rows
            after = rows[-1].definition.id

    async def by_ids(self, ids: Collection[int]) -> list[AlertState]:
        return await self._read(_SOME, {"ids": list(ids)})

    async def states(self) -> list[OccupancyReport]:
        """The current occupancy of every hive."""
        rows = await (await self._connection.execute(_STATES)).fetchall()
        return [OccupancyReport(**row) for row in rows]

    async def recipients(
        self, pairs: Sequence[tuple[int, int]], now: datetime
    ) -> dict[tuple[int, int], RecipientState]:
        """By definition and hive; deleted ones are left out."""
        ids, hives = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        given = {"ids": ids, "hives": hives, "now": now}
        rows = await (await self._connection.execute(_RECIPIENTS, given)).fetchall()
        return {(row.pop("id"), row.pop("hive_id")): RecipientState(**row) for row in rows}

    async def record_transitions(self, transitions: Sequence[AlertTransition]) -> None:
        given = {
            "ids": [each.definition_id for each in transitions],
            "hives": [each.hive_id for each in transitions],
            "armed": [each.armed for each in transitions],
            "values": [each.value for each in transitions],
            "fired": [each.notified_at for each in transitions],
        }
        await self._connection.execute(_STATE, given)

    async def deal_events(self, now: datetime) -> list[DealEvent]:
        """Events of deals that were not announced yet."""
        given = {"now": now, "hours": list(EXPIRY_HOURS)}
        rows = await (await self._connection.execute(_DEAL_EVENTS, given)).fetchall()
        return [DealEvent(**row) for row in rows]

    async def mark_announced(self, event: DealEvent, now: datetime) -> bool:
        """False if another process has announced the event."""
        given = (event.deal_id, event.mark, now)
        return (await self._connection.execute(_MARK_ANNOUNCED, given)).rowcount == 1

    async def _read(self, statement: str, given: Mapping[str, Any]) -> list[AlertState]:
        rows = await (await self._connection.execute(statement, given)).fetchall()
        return [AlertState(_definition(row), row["armed"]) for row in rows]


def _definition(row: Mapping[str, Any]) -> AlertDefinition:
    near = None
    if None not in (row["within_km"], row["lat"], row["lon"]):
        near = GeoRadius(GeoPoint(row["lat"], row["lon"]), row["within_km"])
    return AlertDefinition(
        row["id"],
        row["user_id"],
        AlertKind(row["kind"]),
        row["hive_id"],
        row["threshold"],
        None if row["unit"] is None else ThresholdUnit(row["unit"]),
        row["hysteresis"],
        row["cooldown_s"],
        None if row["quiet_from"] is None else (row["quiet_from"], row["quiet_to"]),
        "inbox" in row["channels"],
        "push" in row["channels"],
        tuple(row["favourites"] or ()),
        tuple(row["deal_kinds"]),
        tuple(row["hive_types"]),
        EXPIRY_HOURS if row["expiry_hours"] is None else tuple(row["expiry_hours"]),
        near,
        _hours(row),
    )


def _hours(row: Mapping[str, Any]) -> AlertHours | None:
    if row["hive_zone"] is None or not (row["weekdays"] or row["active_from"]):
        return None
    span = None if row["active_from"] is None else (row["active_from"], row["active_to"])
    return AlertHours(row["hive_zone"], tuple(row["weekdays"]), span)


_SETTING: Final = """
    id, hive_id, kind, threshold, unit, hysteresis, cooldown_s, quiet_from, quiet_to, weekdays,
    active_from, active_to, channels, enabled, created_at, updated_at
"""


class NotificationSettingRepository:
    """Table `user_notification_def`; changes are published on channel `notification_def`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def of_user(self, user: int) -> list[NotificationSetting]:
        statement = f"""
            SELECT {_SETTING} FROM user_notification_def WHERE user_id = %s ORDER BY id
        """
        found = await self._connection.execute(statement, (user,))
        return [_setting(row) async for row in found]

    async def get(
        self, user: int, number: int, *, lock: bool = False
    ) -> NotificationSetting | None:
        statement = f"""
            SELECT {_SETTING} FROM user_notification_def WHERE id = %s AND user_id = %s
            {"FOR UPDATE" if lock else ""}
        """
        row = await (await self._connection.execute(statement, (number, user))).fetchone()
        return None if row is None else _setting(row)

    async def add(self, user: int, values: Mapping[str, Any]) -> int:
        given = {**values, "user_id": user}
        return await insert_row(self._connection, "user_notification_def", given)

    async def change(self, number: int, values: Mapping[str, Any]) -> None:
        await update_row(self._connection, "user_notification_def", number, values)

    async def remove(self, user: int, number: int) -> bool:
        statement = "DELETE FROM user_notification_def WHERE id = %s AND user_id = %s"
        return (await self._connection.execute(statement, (number, user))).rowcount == 1


def _setting(row: Mapping[str, Any]) -> NotificationSetting:
    lists = {name: tuple(row[name]) for name in ("weekdays", "channels")}
    return NotificationSetting(**{**row, **lists})
