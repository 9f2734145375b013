"""Messages: feedback, support questions, replies and notices."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock_hives.api.dependencies import Operator, ServicesDep, require_permission
from penstock_hives.api.fields import (
    FirstDay,
    LastDay,
    LongText,
    ObjectId,
    PathId,
    RequestBody,
    check_days,
)
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.api.responses import Cursor, Limit, Page, Paging, etag_response
from penstock_hives.messages.models import (
    FeedbackDay,
    FeedbackSummary,
    MessageType,
    UserMessage,
)
from penstock_hives.people.permissions import AppPermission, Caller

router = APIRouter(route_class=IdempotentRoute, tags=["messages"])

Writer = Annotated[Caller, Depends(require_permission(AppPermission.OWN_MESSAGES))]
Answerer = Annotated[Caller, Depends(require_permission(AppPermission.ANSWER_MESSAGES))]

Content = Annotated[LongText, Field(min_length=1)]


class NewMessage(RequestBody):
    """Feedback to a hive or an account, or a support question to the operators."""

    type: Literal["feedback", "support"]
    content: Content
    hive_id: ObjectId | None = None
    account_id: ObjectId | None = None
    rating: Annotated[int, Field(ge=1, le=5)] | None = None
    """Stars, with feedback."""


class MessageReply(RequestBody):
    content: Content


@router.get("/messages", response_model=Page[UserMessage])
async def list_messages(
    request: Request, caller: Writer, services: ServicesDep, page: Paging
) -> Response:
    """Your messages, replies and notices; the newest first."""
    return etag_response(request, await services.messages.mine(caller, page.cursor, page.limit))


@router.post("/messages", status_code=201)
async def send_message(
    body: NewMessage, caller: Writer, services: ServicesDep, response: Response
) -> UserMessage:
    """Send feedback to a hive or business, or a message to support."""
    kind = MessageType(body.type)
    made = await services.messages.send(
        caller, kind, body.content, body.hive_id, body.account_id, body.rating
    )
    response.headers["Location"] = f"/v1/messages/{made.id}"
    return made


@router.get("/messages/{message}")
async def get_message(message: PathId, caller: Writer, services: ServicesDep) -> UserMessage:
    """Marks the message as read if you are its recipient."""
    return await services.messages.read(caller, message)


@router.post("/messages/{message}/replies", status_code=201)
async def reply(
    message: PathId, body: MessageReply, caller: Writer, services: ServicesDep
) -> UserMessage:
    """By the user of the conversation or its recipient."""
    return await services.messages.reply(caller, message, body.content)


@router.delete("/messages/{message}", status_code=204)
async def remove_message(message: PathId, caller: Writer, services: ServicesDep) -> None:
    """One of your own messages, with its replies."""
    await services.messages.remove(caller, message)


@router.get("/accounts/{account}/messages", response_model=Page[UserMessage], tags=["business"])
async def account_messages(
    request: Request,
    account: PathId,
    caller: Answerer,
    services: ServicesDep,
    hive: Annotated[int | None, Query(ge=1, le=(1 << 63) - 1)] = None,
    sentiment: Literal["negative", "neutral", "positive"] | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Feedback to a business, with its sentiment once it is rated."""
    found = await services.messages.of_account(caller, account, hive, sentiment, cursor, limit)
    return etag_response(request, found)


@router.get("/accounts/{account}/feedback", tags=["business", "analytics"])
async def feedback_summary(
    account: PathId, caller: Answerer, services: ServicesDep
) -> list[FeedbackSummary]:
    """The number of messages by hive and sentiment."""
    return await services.messages.feedback(caller, account)


@router.get("/accounts/{account}/feedback/days", tags=["business", "analytics"])
async def feedback_days(
    account: PathId, caller: Answerer, services: ServicesDep, begin: FirstDay, end: LastDay
) -> list[FeedbackDay]:
    """Feedback by hive and day, as rated by the nightly run."""
    check_days(begin, end)
    return await services.messages.feedback_days(caller, account, begin, end)


@router.get("/support", response_model=Page[UserMessage], tags=["operators"])
async def support_messages(
    request: Request, caller: Operator, services: ServicesDep, page: Paging
) -> Response:
    """Messages to support; for operators."""
    return etag_response(request, await services.messages.support(caller, page.cursor, page.limit))
