"""Messages: feedback and questions, the answers to them, notices."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock_hives.analytics.models import FeedbackDay, FeedbackSummary
from penstock_hives.api.dependencies import ServicesDep, require_permission
from penstock_hives.api.fields import (
    FirstDay,
    LastDay,
    LongText,
    ObjectId,
    PathId,
    RequestBody,
    whole_days,
)
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.api.responses import Cursor, Limit, Page, etag_response
from penstock_hives.messages.models import MessageType, UserMessage
from penstock_hives.people.permissions import AppPermission, Caller

router = APIRouter(route_class=IdempotentRoute, tags=["messages"])

Writer = Annotated[Caller, Depends(require_permission(AppPermission.OWN_MESSAGES))]
Answerer = Annotated[Caller, Depends(require_permission(AppPermission.ANSWER_MESSAGES))]
Operator = Annotated[Caller, Depends(require_permission(AppPermission.READ_USERS))]

Content = Annotated[LongText, Field(min_length=1)]


class NewMessage(RequestBody):
    """Feedback to a hive or an account, or a question to whoever runs this."""

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
    request: Request,
    caller: Writer,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """What you wrote, what was answered, and notices; the newest first."""
    return etag_response(request, await services.messages.mine(caller, cursor, limit))


@router.post("/messages", status_code=201)
async def send_message(
    body: NewMessage, caller: Writer, services: ServicesDep, response: Response
) -> UserMessage:
    kind = MessageType(body.type)
    made = await services.messages.send(
        caller, kind, body.content, body.hive_id, body.account_id, body.rating
    )
    response.headers["Location"] = f"/v1/messages/{made.id}"
    return made


@router.get("/messages/{message}")
async def get_message(message: PathId, caller: Writer, services: ServicesDep) -> UserMessage:
    """Read by whom it is for, it is marked so."""
    return await services.messages.read(caller, message)


@router.post("/messages/{message}/replies", status_code=201)
async def reply(
    message: PathId, body: MessageReply, caller: Writer, services: ServicesDep
) -> UserMessage:
    """By you, or by those it is addressed to."""
    return await services.messages.reply(caller, message, body.content)


@router.delete("/messages/{message}", status_code=204)
async def remove_message(message: PathId, caller: Writer, services: ServicesDep) -> None:
    """One you wrote, with the answers to it."""
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
    """Feedback to a business, with its sentiment once it was read for that."""
    found = await services.messages.of_account(caller, account, hive, sentiment, cursor, limit)
    return etag_response(request, found)


@router.get("/accounts/{account}/feedback", tags=["business", "analytics"])
async def feedback_summary(
    account: PathId, caller: Answerer, services: ServicesDep
) -> list[FeedbackSummary]:
    """How many messages of each sentiment, by hive."""
    return await services.messages.feedback(caller, account)


@router.get("/accounts/{account}/feedback/days", tags=["business", "analytics"])
async def feedback_days(
    account: PathId, caller: Answerer, services: ServicesDep, begin: FirstDay, end: LastDay
) -> list[FeedbackDay]:
    """How people have spoken of each hive, day by day, as the nights have read it."""
    whole_days(begin, end)
    return await services.messages.feedback_days(caller, account, begin, end)


@router.get("/support", response_model=Page[UserMessage], tags=["operators"])
async def support_messages(
    request: Request,
    caller: Operator,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    return etag_response(request, await services.messages.support(caller, cursor, limit))
