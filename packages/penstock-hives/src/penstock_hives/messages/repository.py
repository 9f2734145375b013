"""Table `user_message`: conversations, each of one user."""

from __future__ import annotations

from datetime import date
from typing import Final

from penstock_hives.database import Connection, fetch_all, fetch_one
from penstock_hives.messages.models import FeedbackDay, FeedbackSummary, UserMessage

_COLUMNS: Final = """
    id, user_id, author_id, hive_id, account_id, in_reply_to, type, content, rating, read_at,
    sentiment, sentiment_label, created_at
"""
_ADD: Final = f"""
    INSERT INTO user_message
        (user_id, author_id, hive_id, account_id, in_reply_to, type, content, rating)
    VALUES (%(user)s, %(author)s, %(hive)s, %(account)s, %(reply)s, %(type)s, %(content)s,
            %(rating)s)
    RETURNING {_COLUMNS}
"""
_SUMMARY: Final = """
    SELECT hive_id, count(*) AS messages,
           count(*) FILTER (WHERE sentiment_label = 'positive') AS positive,
           count(*) FILTER (WHERE sentiment_label = 'neutral') AS neutral,
           count(*) FILTER (WHERE sentiment_label = 'negative') AS negative,
           count(*) FILTER (WHERE sentiment_label IS NULL) AS unread,
           avg(sentiment)::float8 AS mean_sentiment
    FROM user_message
    WHERE account_id = %(account)s AND type = 'feedback'
    GROUP BY hive_id ORDER BY hive_id NULLS LAST
"""
_DAYS: Final = """
    SELECT f.hive_id, f.day, f.messages, f.positive, f.negative, f.sentiment
    FROM feedback_day f JOIN hive h ON h.id = f.hive_id
    WHERE h.account_id = %(account)s AND f.day >= %(begin)s AND f.day < %(end)s
    ORDER BY f.day, f.hive_id
"""


class MessageRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def sent_lately(self, author: int) -> int:
        """Feedback, questions and replies within an hour."""
        statement = """
            SELECT count(*) AS n FROM user_message
            WHERE author_id = %s AND created_at > now() - interval '1 hour'
        """
        row = await (await self._connection.execute(statement, (author,))).fetchone()
        assert row is not None
        return int(row["n"])

    async def add(
        self,
        user: int,
        author: int | None,
        kind: str,
        content: str,
        *,
        hive: int | None = None,
        account: int | None = None,
        reply: int | None = None,
        rating: int | None = None,
    ) -> UserMessage:
        given = {"user": user, "author": author, "type": kind, "content": content}
        given |= {"hive": hive, "account": account, "reply": reply, "rating": rating}
        row = await (await self._connection.execute(_ADD, given)).fetchone()
        assert row is not None
        return UserMessage(**row)

    async def get(self, message: int) -> UserMessage | None:
        statement = f"SELECT {_COLUMNS} FROM user_message WHERE id = %s"
        return await fetch_one(self._connection, UserMessage, statement, (message,))

    async def of_user(self, user: int, before: int | None, limit: int) -> list[UserMessage]:
        statement = f"""
            SELECT {_COLUMNS} FROM user_message
            WHERE user_id = %(user)s AND (%(before)s::bigint IS NULL OR id < %(before)s)
            ORDER BY id DESC LIMIT %(limit)s
        """
        given = {"user": user, "before": before, "limit": limit}
        return await fetch_all(self._connection, UserMessage, statement, given)

    async def of_account(
        self,
        account: int,
        hive: int | None,
        label: str | None,
        before: int | None,
        limit: int,
    ) -> list[UserMessage]:
        statement = f"""
            SELECT {_COLUMNS} FROM user_message
            WHERE account_id = %(account)s AND (%(hive)s::bigint IS NULL OR hive_id = %(hive)s)
              AND (%(label)s::text IS NULL OR sentiment_label = %(label)s)
              AND (%(before)s::bigint IS NULL OR id < %(before)s)
            ORDER BY id DESC LIMIT %(limit)s
        """
        given = {"account": account, "hive": hive, "label": label, "before": before}
        return await fetch_all(self._connection, UserMessage, statement, given | {"limit": limit})

    async def support(self, before: int | None, limit: int) -> list[UserMessage]:
        statement = f"""
            SELECT {_COLUMNS} FROM user_message
            WHERE type = 'support' AND (%(before)s::bigint IS NULL OR id < %(before)s)
            ORDER BY id DESC LIMIT %(limit)s
        """
        given = {"before": before, "limit": limit}
        return await fetch_all(self._connection, UserMessage, statement, given)

    async def read(self, message: int, user: int) -> None:
        """By the user of the conversation."""
        statement = """
            UPDATE user_message SET read_at = coalesce(read_at, now())
            WHERE id = %s AND user_id = %s AND author_id IS DISTINCT FROM user_id
        """
        await self._connection.execute(statement, (message, user))

    async def remove(self, message: int, author: int) -> bool:
        """With its replies."""
        statement = "DELETE FROM user_message WHERE id = %s AND author_id = %s"
        return (await self._connection.execute(statement, (message, author))).rowcount == 1

    async def days(self, account: int, begin: date, end: date) -> list[FeedbackDay]:
        given = {"account": account, "begin": begin, "end": end}
        return await fetch_all(self._connection, FeedbackDay, _DAYS, given)

    async def summary(self, account: int) -> list[FeedbackSummary]:
        return await fetch_all(self._connection, FeedbackSummary, _SUMMARY, {"account": account})
