"""Push devices and the inbox of a user."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from penstock.core.errors import NotFound
from penstock_hives.database import DatabasePool
from penstock_hives.errors import RequestConflict, invalid_field
from penstock_hives.pagination import CursorPage, decode_id, paginate
from penstock_hives.people.permissions import Caller
from penstock_hives.push.webpush import SERVICES, check_endpoint, check_keys

#: Of one user.
MAX_DEVICES: Final = 20

_ADD: Final = """
    INSERT INTO push_endpoint AS held (user_id, kind, address, keys, locale)
    VALUES (%(user)s, %(kind)s, %(address)s, %(keys)s, %(locale)s)
    ON CONFLICT (address) DO UPDATE SET
        user_id = excluded.user_id, kind = excluded.kind, keys = excluded.keys,
        locale = excluded.locale, failures = 0
    RETURNING id, kind, locale, created_at, last_used_at
"""
_INBOX: Final = """
    SELECT id, kind, title, body, link, hive_id, deal_id, data, created_at, read_at
    FROM notification
    WHERE user_id = %(user)s AND (%(before)s::bigint IS NULL OR id < %(before)s)
      AND (NOT %(unread)s OR read_at IS NULL)
    ORDER BY id DESC LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class PushDevice:
    """A registered device or browser, without its address."""

    id: int
    kind: str
    locale: str
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class InboxNotification:
    id: int
    kind: str
    title: str
    body: str
    link: str
    hive_id: int | None
    deal_id: int | None
    data: Mapping[str, Any]
    created_at: datetime
    read_at: datetime | None


class InboxService:
    def __init__(
        self,
        pool: DatabasePool,
        services: Sequence[str] = SERVICES,
        *,
        local: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._pool = pool
        self._services = services
        self._local = local
        self._clock = clock

    async def register(
        self,
        caller: Caller,
        kind: Literal["fcm", "webpush"],
        address: str,
        keys: Mapping[str, str],
        locale: str,
    ) -> PushDevice:
        """A device that is registered again belongs to the new user."""
        if kind == "webpush":
            check_endpoint(address, self._services, local=self._local)
            stored = await asyncio.to_thread(check_keys, keys)
        else:
            if not address.isascii() or not address.isprintable() or " " in address:
                raise invalid_field("address", "must be a Firebase token")
            stored = {"by": "fid"} if keys.get("by") == "fid" else {}
        given = {
            "user": caller.known,
            "kind": kind,
            "address": address,
            "keys": json.dumps(stored),
            "locale": locale,
        }
        async with self._pool.transaction() as connection:
            await connection.execute(
                "SELECT FROM app_user WHERE id = %s FOR UPDATE", (caller.known,)
            )
            row = await (await connection.execute(_ADD, given)).fetchone()
            count = await connection.execute(
                "SELECT count(*) AS devices FROM push_endpoint WHERE user_id = %s", (caller.known,)
            )
            held = await count.fetchone()
            assert row is not None
            assert held is not None
            if held["devices"] > MAX_DEVICES:
                raise RequestConflict(f"at most {MAX_DEVICES} devices: remove one first")
        return PushDevice(**row)

    async def devices(self, caller: Caller) -> list[PushDevice]:
        rows = await self._pool.rows(
            """SELECT id, kind, locale, created_at, last_used_at FROM push_endpoint
               WHERE user_id = %s ORDER BY id""",
            (caller.known,),
        )
        return [PushDevice(**row) for row in rows]

    async def remove_device(self, caller: Caller, device: int) -> None:
        statement = "DELETE FROM push_endpoint WHERE id = %s AND user_id = %s"
        if not await self._pool.execute(statement, (device, caller.known)):
            raise NotFound(f"device {device} not found")

    async def notifications(
        self, caller: Caller, cursor: str | None, limit: int, *, unread: bool = False
    ) -> CursorPage[InboxNotification]:
        """The newest first."""
        given = {
            "user": caller.known,
            "before": decode_id(cursor),
            "unread": unread,
            "limit": limit + 1,
        }
        rows = await self._pool.rows(_INBOX, given)
        return paginate([InboxNotification(**row) for row in rows], limit, lambda note: [note.id])

    async def read(self, caller: Caller, note: int) -> None:
        statement = """
            UPDATE notification SET read_at = coalesce(read_at, %s) WHERE id = %s AND user_id = %s
        """
        if not await self._pool.execute(statement, (self._clock(), note, caller.known)):
            raise NotFound(f"notification {note} not found")

    async def read_all(self, caller: Caller) -> None:
        statement = "UPDATE notification SET read_at = %s WHERE user_id = %s AND read_at IS NULL"
        await self._pool.execute(statement, (self._clock(), caller.known))
