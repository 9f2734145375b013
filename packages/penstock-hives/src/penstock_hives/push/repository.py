"""The outbox: notifications and their pushes in SQL.

`add` runs in the transaction of the event that causes the notification, so both commit or neither.
A notification with a known idempotency key is ignored. Senders lease pushes for two minutes; a
push whose sender crashed is due again after that. No transaction is open while a push is sent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from penstock_hives.database import Connection
from penstock_hives.push.models import Notification, PushMessage

LEASE: Final = timedelta(minutes=2)
#: Notifications in one statement.
CHUNK: Final = 2000

_ADD: Final = """
    WITH given AS (
        SELECT * FROM jsonb_to_recordset(%s::jsonb) AS given (
            user_id bigint, definition_id bigint, kind text, hive_id bigint, deal_id bigint,
            title text, body text, link text, data jsonb, key text,
            expires_at timestamptz, push_at timestamptz, silent boolean)
    ), added AS (
        INSERT INTO notification (user_id, definition_id, kind, hive_id, deal_id, title, body, link,
                                  data, idempotency_key, expires_at, read_at)
        SELECT user_id, definition_id, kind, hive_id, deal_id, title, body, link,
               data, key, expires_at, CASE WHEN silent THEN now() END
        FROM given
        ON CONFLICT (idempotency_key) DO NOTHING
        RETURNING id, user_id, idempotency_key
    ), pushed AS (
        INSERT INTO notification_delivery (notification_id, channel, endpoint_id, next_at)
        SELECT added.id, endpoint.kind, endpoint.id, given.push_at
        FROM added
        JOIN given ON given.key = added.idempotency_key AND given.push_at IS NOT NULL
        JOIN push_endpoint endpoint ON endpoint.user_id = added.user_id
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM added) AS notes, (SELECT count(*) FROM pushed) AS pushes
"""
_LEASE: Final = """
    WITH due AS (
        SELECT id FROM notification_delivery
        WHERE state = 'pending' AND next_at <= %(now)s AND channel = ANY(%(channels)s)
        ORDER BY next_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE notification_delivery delivery
        SET attempts = attempts + 1, next_at = %(until)s
        FROM due WHERE delivery.id = due.id
        RETURNING delivery.*
    )
    SELECT taken.id, taken.notification_id, taken.channel, taken.attempts, taken.endpoint_id,
           endpoint.address, endpoint.keys, note.title, note.body, note.link, note.data,
           note.expires_at
    FROM taken
    JOIN notification note ON note.id = taken.notification_id
    JOIN push_endpoint endpoint ON endpoint.id = taken.endpoint_id
"""
_COMPLETE: Final = """
    UPDATE notification_delivery
    SET state = %(state)s, error = %(error)s, next_at = coalesce(%(next_at)s, next_at),
        sent_at = CASE WHEN %(state)s::text = 'sent' THEN %(now)s END
    WHERE id = %(id)s
"""
_USED: Final = """
    UPDATE push_endpoint SET failures = 0, last_used_at = %s WHERE id = %s
"""
_FAILED: Final = "UPDATE push_endpoint SET failures = failures + 1 WHERE id = %s"
_DELETE_ENDPOINT: Final = "DELETE FROM push_endpoint WHERE id = %s"
_SWEEP: Final = """
    DELETE FROM notification WHERE id IN (
        SELECT id FROM notification WHERE created_at < %s
        ORDER BY created_at LIMIT %s FOR UPDATE SKIP LOCKED)
"""
_NEXT: Final = """
    SELECT min(next_at) AS next_at FROM notification_delivery
    WHERE state = 'pending' AND channel = ANY(%s)
"""


class Outbox:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def add(self, notes: Sequence[Notification]) -> int:
        """The number of new ones. Of several with one key the first is added."""
        added = 0
        first: dict[str, Notification] = {}
        for note in notes:
            first.setdefault(note.key, note)
        once = list(first.values())
        for start in range(0, len(once), CHUNK):
            given = json.dumps([_document(each) for each in once[start : start + CHUNK]])
            row = await (await self._connection.execute(_ADD, (given,))).fetchone()
            assert row is not None
            added += row["notes"]
        return added

    async def lease(self, channels: Sequence[str], now: datetime, limit: int) -> list[PushMessage]:
        """Due pushes, leased to the caller."""
        wanted = {"now": now, "until": now + LEASE, "channels": list(channels), "limit": limit}
        rows = await (await self._connection.execute(_LEASE, wanted)).fetchall()
        return [PushMessage(**row) for row in rows]

    async def complete(
        self,
        push: PushMessage,
        state: str,
        now: datetime,
        error: str = "",
        again: datetime | None = None,
    ) -> None:
        facts = {"id": push.id, "state": state, "now": now, "error": error, "next_at": again}
        await self._connection.execute(_COMPLETE, facts)

    async def used(self, endpoint: int, now: datetime) -> None:
        await self._connection.execute(_USED, (now, endpoint))

    async def failed(self, endpoint: int) -> None:
        await self._connection.execute(_FAILED, (endpoint,))

    async def delete_endpoint(self, endpoint: int) -> None:
        """A device and its pending pushes."""
        await self._connection.execute(_DELETE_ENDPOINT, (endpoint,))

    async def sweep(self, before: datetime) -> int:
        """Delete one batch of notifications created before then; returns their number."""
        return (await self._connection.execute(_SWEEP, (before, CHUNK))).rowcount

    async def next_due(self, channels: Sequence[str]) -> datetime | None:
        row = await (await self._connection.execute(_NEXT, (list(channels),))).fetchone()
        return row["next_at"] if row else None


def _document(note: Notification) -> dict[str, Any]:
    return {
        "user_id": note.user_id,
        "definition_id": note.definition_id,
        "kind": note.kind,
        "hive_id": note.hive_id,
        "deal_id": note.deal_id,
        "title": note.title,
        "body": note.body,
        "link": note.link,
        "data": dict(note.data),
        "key": note.key,
        "expires_at": note.expires_at and note.expires_at.isoformat(),
        "push_at": note.push_at and note.push_at.isoformat(),
        "silent": note.silent,
    }
