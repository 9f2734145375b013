"""Messages of a business to the followers of a hive: users who have it among their favourites.

A message is written to the inbox of each follower and pushed to their devices, in one transaction.
A hive sends at most two in seven days.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock_hives.database import DatabasePool, fetch_all, insert_row
from penstock_hives.errors import RequestConflict
from penstock_hives.occupancy.service import require_owned_hive
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.people.repository import AuditRepository
from penstock_hives.push.models import Notification
from penstock_hives.push.repository import Outbox

MAX_MESSAGES: Final = 2
PERIOD: Final = timedelta(days=7)
KIND: Final = "follower_message"
_FOLLOWERS: Final = """
    SELECT uh.user_id FROM user_hive uh JOIN app_user u ON u.id = uh.user_id
    WHERE uh.hive_id = %s AND uh.favourite AND u.deleted_at IS NULL
"""
_SENT: Final = """
    SELECT m.id, m.hive_id, h.name AS hive, h.time_zone, m.title, m.body, m.recipients, m.created_at
    FROM follower_message m JOIN hive h ON h.id = m.hive_id
    WHERE m.account_id = %s ORDER BY m.id DESC LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class FollowerMessage:
    id: int
    hive_id: int
    hive: str  #: its name
    time_zone: str
    title: str
    body: str
    recipients: int
    created_at: datetime


class FollowerMessageService:
    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def followers(self, caller: Caller, hive: int) -> int:
        async with self._pool.reading() as connection:
            await require_owned_hive(connection, caller, hive, AppPermission.ANSWER_MESSAGES)
            return (await connection.execute(_FOLLOWERS, (hive,))).rowcount

    async def send(self, caller: Caller, hive: int, title: str, body: str) -> int:
        """Returns the number of recipients."""
        now = self._clock()
        async with self._pool.transaction() as connection:
            account = await require_owned_hive(
                connection, caller, hive, AppPermission.ANSWER_MESSAGES
            )
            await connection.execute("SELECT FROM hive WHERE id = %s FOR UPDATE", (hive,))
            lately = await connection.execute(
                "SELECT FROM follower_message WHERE hive_id = %s AND created_at > %s",
                (hive, now - PERIOD),
            )
            if lately.rowcount >= MAX_MESSAGES:
                raise RequestConflict(
                    f"a place sends at most {MAX_MESSAGES} messages in {PERIOD.days} days"
                )
            rows = await (await connection.execute(_FOLLOWERS, (hive,))).fetchall()
            if not rows:
                raise RequestConflict("nobody follows this place yet")
            values = {"title": title, "body": body, "recipients": len(rows), "created_at": now}
            sent = await insert_row(
                connection,
                "follower_message",
                {**values, "account_id": account, "hive_id": hive, "sent_by": caller.id},
            )
            await Outbox(connection).add(
                [
                    Notification(
                        *(row["user_id"], KIND, title, body, f"{row['user_id']}:{KIND}:{sent}"),
                        hive_id=hive,
                        expires_at=now + PERIOD,
                        push_at=now,
                    )
                    for row in rows
                ]
            )
            await AuditRepository(connection).record(
                caller, "send", KIND, sent, account, {"recipients": len(rows)}
            )
        return len(rows)

    async def of_account(self, caller: Caller, account: int, limit: int) -> list[FollowerMessage]:
        """The newest first."""
        caller.require(AppPermission.ANSWER_MESSAGES, account)
        async with self._pool.reading() as connection:
            return await fetch_all(connection, FollowerMessage, _SENT, (account, limit))
