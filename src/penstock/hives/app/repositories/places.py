"""What a user has to do with hives: favourites, visits, notification settings; and networks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from penstock.hives.app.domain.hives import Network
from penstock.hives.app.domain.notifications import Definition
from penstock.hives.app.repositories import changes
from penstock.hives.app.repositories.pool import Connection

_FAVOUR: Final = """
    INSERT INTO user_hive AS held (user_id, hive_id, favourite, favourite_at)
    VALUES (%(user)s, %(hive)s, %(on)s, CASE WHEN %(on)s THEN %(now)s::timestamptz END)
    ON CONFLICT (user_id, hive_id) DO UPDATE SET favourite = excluded.favourite,
        favourite_at = CASE WHEN excluded.favourite
            THEN coalesce(held.favourite_at, excluded.favourite_at) END
"""
_VISIT: Final = """
    INSERT INTO user_hive AS held (user_id, hive_id, last_visited_at, visit_count)
    VALUES (%(user)s, %(hive)s, %(now)s, 1)
    ON CONFLICT (user_id, hive_id) DO UPDATE SET
        last_visited_at = excluded.last_visited_at, visit_count = held.visit_count + 1
"""
_DEFINITION: Final = """
    id, hive_id, kind, threshold, unit, hysteresis, cooldown_s, quiet_from, quiet_to, channels,
    enabled, created_at, updated_at
"""
_NETWORK: Final = "id, hive_id, kind, ssid, secret_ref, notes, updated_at"


class PlaceRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def favour(self, user: int, hive: int, on: bool, now: datetime) -> None:
        given = {"user": user, "hive": hive, "on": on, "now": now}
        await self._connection.execute(_FAVOUR, given)

    async def visit(self, user: int, hive: int, now: datetime) -> None:
        await self._connection.execute(_VISIT, {"user": user, "hive": hive, "now": now})

    async def favourites(self, user: int) -> list[int]:
        statement = """
            SELECT hive_id FROM user_hive WHERE user_id = %s AND favourite
            ORDER BY favourite_at DESC, hive_id LIMIT 500
        """
        found = await self._connection.execute(statement, (user,))
        return [row["hive_id"] async for row in found]

    async def recent(self, user: int, limit: int) -> list[int]:
        statement = """
            SELECT hive_id FROM user_hive WHERE user_id = %s AND last_visited_at IS NOT NULL
            ORDER BY last_visited_at DESC, hive_id LIMIT %s
        """
        found = await self._connection.execute(statement, (user, limit))
        return [row["hive_id"] async for row in found]


class DefinitionRepository:
    """Table `user_notification_def`; who listens on `notification_def` hears of every change."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def of_user(self, user: int) -> list[Definition]:
        statement = f"""
            SELECT {_DEFINITION} FROM user_notification_def WHERE user_id = %s ORDER BY id
        """
        found = await self._connection.execute(statement, (user,))
        return [_definition(row) async for row in found]

    async def get(self, user: int, number: int, *, lock: bool = False) -> Definition | None:
        statement = f"""
            SELECT {_DEFINITION} FROM user_notification_def WHERE id = %s AND user_id = %s
            {"FOR UPDATE" if lock else ""}
        """
        row = await (await self._connection.execute(statement, (number, user))).fetchone()
        return None if row is None else _definition(row)

    async def add(self, user: int, values: Mapping[str, Any]) -> int:
        sent = changes.sent({**values, "user_id": user})
        statement = changes.insert("user_notification_def", sent)
        row = await (await self._connection.execute(statement, sent)).fetchone()
        assert row is not None
        return int(row["id"])

    async def change(self, number: int, values: Mapping[str, Any]) -> None:
        if values:
            sent = changes.sent(values)
            statement = changes.update("user_notification_def", sent, number)
            await self._connection.execute(statement, sent)

    async def remove(self, user: int, number: int) -> bool:
        statement = "DELETE FROM user_notification_def WHERE id = %s AND user_id = %s"
        return (await self._connection.execute(statement, (number, user))).rowcount == 1


class NetworkRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def of_hive(self, hive: int) -> list[Network]:
        statement = f"SELECT {_NETWORK} FROM hive_network WHERE hive_id = %s ORDER BY id"
        return [Network(**row) async for row in await self._connection.execute(statement, (hive,))]

    async def add(self, hive: int, values: Mapping[str, Any]) -> Network:
        given = {**values, "hive_id": hive}
        row = await (
            await self._connection.execute(changes.insert("hive_network", given), given)
        ).fetchone()
        assert row is not None
        statement = f"SELECT {_NETWORK} FROM hive_network WHERE id = %s"
        made = await (await self._connection.execute(statement, (row["id"],))).fetchone()
        assert made is not None
        return Network(**made)

    async def remove(self, hive: int, number: int) -> bool:
        statement = "DELETE FROM hive_network WHERE id = %s AND hive_id = %s"
        return (await self._connection.execute(statement, (number, hive))).rowcount == 1


def _definition(row: dict[str, Any]) -> Definition:
    return Definition(**{**row, "channels": tuple(row["channels"])})
