"""Messages: feedback to hives and businesses, support questions, replies, notices."""

from __future__ import annotations

from datetime import date
from typing import Final

from penstock.core.errors import NotFound
from penstock_hives.database import Connection, DatabasePool
from penstock_hives.errors import TooManyRequests, invalid_field, require_found
from penstock_hives.messages.models import (
    FeedbackDay,
    FeedbackSummary,
    MessageType,
    UserMessage,
)
from penstock_hives.messages.repository import MessageRepository
from penstock_hives.pagination import CursorPage, decode_id, paginate
from penstock_hives.people.permissions import EVERYWHERE, AppPermission, Caller
from penstock_hives.places.repository import HiveRepository

#: Messages of a user in an hour, and replies of somebody who answers for a business.
MAX_MESSAGES: Final = 30
MAX_REPLIES: Final = 300


class MessageService:
    def __init__(self, pool: DatabasePool) -> None:
        self._pool = pool

    async def send(
        self,
        caller: Caller,
        kind: MessageType,
        content: str,
        hive: int | None = None,
        account: int | None = None,
        rating: int | None = None,
    ) -> UserMessage:
        """Feedback goes to a hive or an account, support questions to the operators."""
        if kind is MessageType.FEEDBACK and (hive is None) == (account is None):
            raise invalid_field("hive_id", "or account_id must be given, not both")
        if kind is MessageType.SUPPORT and (hive, account, rating) != (None, None, None):
            raise invalid_field("hive_id", "must not be given for support, nor account_id, rating")
        async with self._pool.transaction() as connection:
            if hive is not None:
                found = await HiveRepository(connection).account_of(hive)
                account = require_found(found, f"hive {hive}")
            messages = MessageRepository(connection)
            own = caller.known
            await _require_few(messages, own, MAX_MESSAGES)
            return await messages.add(
                *(own, own, kind, content), hive=hive, account=account, rating=rating
            )

    async def mine(self, caller: Caller, cursor: str | None, limit: int) -> CursorPage[UserMessage]:
        before = decode_id(cursor)
        async with self._pool.reading() as connection:
            found = await MessageRepository(connection).of_user(caller.known, before, limit + 1)
        return paginate(found, limit, lambda message: [message.id])

    async def read(self, caller: Caller, message: int) -> UserMessage:
        """Marks the message as read if the caller is its recipient."""
        async with self._pool.transaction() as connection:
            await _require_visible(connection, caller, message)
            messages = MessageRepository(connection)
            await messages.read(message, caller.known)
            return require_found(await messages.get(message), f"message {message}")

    async def reply(self, caller: Caller, message: int, content: str) -> UserMessage:
        """By the user of the conversation or its recipient."""
        async with self._pool.transaction() as connection:
            held = await _require_visible(connection, caller, message)
            messages = MessageRepository(connection)
            if caller.role not in EVERYWHERE:
                most = MAX_MESSAGES if held.user_id == caller.known else MAX_REPLIES
                await _require_few(messages, caller.known, most)
            return await messages.add(
                held.user_id,
                caller.known,
                MessageType.REPLY,
                content,
                hive=held.hive_id,
                account=held.account_id,
                reply=held.id,
            )

    async def remove(self, caller: Caller, message: int) -> None:
        """One of the caller's own, with its replies."""
        async with self._pool.transaction() as connection:
            if not await MessageRepository(connection).remove(message, caller.known):
                raise NotFound(f"message {message} of yours not found")

    async def of_account(
        self,
        caller: Caller,
        account: int,
        hive: int | None,
        sentiment: str | None,
        cursor: str | None,
        limit: int,
    ) -> CursorPage[UserMessage]:
        caller.require(AppPermission.ANSWER_MESSAGES, account)
        before = decode_id(cursor)
        async with self._pool.reading() as connection:
            messages = MessageRepository(connection)
            found = await messages.of_account(account, hive, sentiment, before, limit + 1)
        return paginate(found, limit, lambda message: [message.id])

    async def support(
        self, caller: Caller, cursor: str | None, limit: int
    ) -> CursorPage[UserMessage]:
        """Support questions, the newest first."""
        caller.require(AppPermission.READ_USERS)
        before = decode_id(cursor)
        async with self._pool.reading() as connection:
            found = await MessageRepository(connection).support(before, limit + 1)
        return paginate(found, limit, lambda message: [message.id])

    async def feedback(self, caller: Caller, account: int) -> list[FeedbackSummary]:
        caller.require(AppPermission.ANSWER_MESSAGES, account)
        async with self._pool.reading() as connection:
            return await MessageRepository(connection).summary(account)

    async def feedback_days(
        self, caller: Caller, account: int, begin: date, end: date
    ) -> list[FeedbackDay]:
        caller.require(AppPermission.ANSWER_MESSAGES, account)
        async with self._pool.reading() as connection:
            return await MessageRepository(connection).days(account, begin, end)


async def _require_few(messages: MessageRepository, author: int, most: int) -> None:
    if await messages.sent_lately(author) >= most:
        raise TooManyRequests(f"at most {most} messages an hour", 3600.0)


async def _require_visible(connection: Connection, caller: Caller, message: int) -> UserMessage:
    """Messages of others look as if they did not exist."""
    found = await MessageRepository(connection).get(message)
    if found is not None:
        if found.user_id == caller.id or caller.role in EVERYWHERE:
            return found
        if found.account_id is not None and caller.may(
            AppPermission.ANSWER_MESSAGES, found.account_id
        ):
            return found
    raise NotFound(f"message {message} not found")
