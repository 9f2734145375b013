"""Messages: feedback to hives and businesses, questions to operators, answers, notices."""

from __future__ import annotations

from datetime import date

from penstock.core.errors import NotFound
from penstock_hives.analytics.models import FeedbackDay, FeedbackSummary
from penstock_hives.database import Connection, DatabasePool
from penstock_hives.errors import FieldError, InvalidRequest
from penstock_hives.messages.models import MessageType, UserMessage
from penstock_hives.messages.repository import MessageRepository
from penstock_hives.pagination import CursorPage, decode_cursor, paginate
from penstock_hives.people.permissions import EVERYWHERE, AppPermission, Caller
from penstock_hives.places.repository import HiveRepository


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
        """Feedback goes to a hive or an account, a question to whoever runs the installation."""
        if kind is MessageType.FEEDBACK and (hive is None) == (account is None):
            raise InvalidRequest(
                "to whom?", [FieldError("hive_id", "is given, or account_id, not both")]
            )
        if kind is MessageType.SUPPORT and (hive, account, rating) != (None, None, None):
            fault = FieldError("hive_id", "is for feedback, as are account_id and rating")
            raise InvalidRequest("support goes to nobody in particular", [fault])
        async with self._pool.transaction() as connection:
            if hive is not None:
                account = await HiveRepository(connection).account_of(hive)
                if account is None:
                    raise NotFound(f"there is no hive {hive}")
            messages = MessageRepository(connection)
            own = caller.known
            return await messages.add(
                *(own, own, kind, content), hive=hive, account=account, rating=rating
            )

    async def mine(self, caller: Caller, cursor: str | None, limit: int) -> CursorPage[UserMessage]:
        before = decode_cursor(cursor, int) or [None]
        async with self._pool.reading() as connection:
            found = await MessageRepository(connection).of_user(caller.known, before[0], limit + 1)
        return paginate(found, limit, lambda message: [message.id])

    async def read(self, caller: Caller, message: int) -> UserMessage:
        """Seen by whom it is for, it is read."""
        async with self._pool.transaction() as connection:
            await _seen(connection, caller, message)
            messages = MessageRepository(connection)
            await messages.read(message, caller.known)
            found = await messages.get(message)
        assert found is not None
        return found

    async def reply(self, caller: Caller, message: int, content: str) -> UserMessage:
        """By the user whose conversation it is, or by who it is addressed to."""
        async with self._pool.transaction() as connection:
            held = await _seen(connection, caller, message)
            return await MessageRepository(connection).add(
                held.user_id,
                caller.known,
                MessageType.REPLY,
                content,
                hive=held.hive_id,
                account=held.account_id,
                reply=held.id,
            )

    async def remove(self, caller: Caller, message: int) -> None:
        """One's own, with the answers to it."""
        async with self._pool.transaction() as connection:
            if not await MessageRepository(connection).remove(message, caller.known):
                raise NotFound(f"you have written no message {message}")

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
        before = decode_cursor(cursor, int) or [None]
        async with self._pool.reading() as connection:
            messages = MessageRepository(connection)
            found = await messages.of_account(account, hive, sentiment, before[0], limit + 1)
        return paginate(found, limit, lambda message: [message.id])

    async def support(
        self, caller: Caller, cursor: str | None, limit: int
    ) -> CursorPage[UserMessage]:
        """Questions to operators, the newest first."""
        caller.require(AppPermission.READ_USERS)
        before = decode_cursor(cursor, int) or [None]
        async with self._pool.reading() as connection:
            found = await MessageRepository(connection).support(before[0], limit + 1)
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


async def _seen(connection: Connection, caller: Caller, message: int) -> UserMessage:
    """A message the caller may see; others' are not there."""
    found = await MessageRepository(connection).get(message)
    if found is not None:
        if found.user_id == caller.id or caller.role in EVERYWHERE:
            return found
        if found.account_id is not None and caller.may(
            AppPermission.ANSWER_MESSAGES, found.account_id
        ):
            return found
    raise NotFound(f"there is no message {message} for you")
