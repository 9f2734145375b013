"""Messages: feedback and questions, the answers to them, notices."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock.hives.app.api.caller import allowed
from penstock.hives.app.api.context import Served
from penstock.hives.app.api.etags import tagged
from penstock.hives.app.api.fields import Body, FirstDay, Id, LastDay, Note, Ref, whole_days
from penstock.hives.app.api.idempotency import IdempotentRoute
from penstock.hives.app.api.pages import Cursor, Limit, Page
from penstock.hives.app.domain.analytics import FeedbackDay, FeedbackSummary
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.messages import Message, MessageType
from penstock.hives.app.domain.roles import Permission

router = APIRouter(route_class=IdempotentRoute, tags=["messages"])

Writer = Annotated[Caller, Depends(allowed(Permission.OWN_MESSAGES))]
Answerer = Annotated[Caller, Depends(allowed(Permission.ANSWER_MESSAGES))]
Operator = Annotated[Caller, Depends(allowed(Permission.READ_USERS))]

Content = Annotated[Note, Field(min_length=1)]


class NewMessage(Body):
    """Feedback to a hive or an account, or a question to whoever runs this."""

    type: Literal["feedback", "support"]
    content: Content
    hive_id: Ref | None = None
    account_id: Ref | None = None
    rating: Annotated[int, Field(ge=1, le=5)] | None = None
    """Stars, with feedback."""


class Reply(Body):
    content: Content


@router.get("/messages", response_model=Page[Message])
async def list_messages(
    request: Request, caller: Writer, services: Served, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """What you wrote, what was answered, and notices; the newest first."""
    return tagged(request, await services.messages.mine(caller, cursor, limit))


@router.post("/messages", status_code=201)
async def send_message(
    body: NewMessage, caller: Writer, services: Served, response: Response
) -> Message:
    kind = MessageType(body.type)
    made = await services.messages.send(
        caller, kind, body.content, body.hive_id, body.account_id, body.rating
    )
    response.headers["Location"] = f"/v1/messages/{made.id}"
    return made


@router.get("/messages/{message}")
async def get_message(message: Id, caller: Writer, services: Served) -> Message:
    """Read by whom it is for, it is marked so."""
    return await services.messages.read(caller, message)


@router.post("/messages/{message}/replies", status_code=201)
async def reply(message: Id, body: Reply, caller: Writer, services: Served) -> Message:
    """By you, or by those it is addressed to."""
    return await services.messages.reply(caller, message, body.content)


@router.delete("/messages/{message}", status_code=204)
async def remove_message(message: Id, caller: Writer, services: Served) -> None:
    """One you wrote, with the answers to it."""
    await services.messages.remove(caller, message)


@router.get("/accounts/{account}/messages", response_model=Page[Message], tags=["business"])
async def account_messages(
    request: Request,
    account: Id,
    caller: Answerer,
    services: Served,
    hive: Annotated[int | None, Query(ge=1, le=(1 << 63) - 1)] = None,
    sentiment: Literal["negative", "neutral", "positive"] | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Feedback to a business, with its sentiment once it was read for that."""
    found = await services.messages.of_account(caller, account, hive, sentiment, cursor, limit)
    return tagged(request, found)


@router.get("/accounts/{account}/feedback", tags=["business", "analytics"])
async def feedback_summary(
    account: Id, caller: Answerer, services: Served
) -> list[FeedbackSummary]:
    """How many messages of each sentiment, by hive."""
    return await services.messages.feedback(caller, account)


@router.get("/accounts/{account}/feedback/days", tags=["business", "analytics"])
async def feedback_days(
    account: Id, caller: Answerer, services: Served, begin: FirstDay, end: LastDay
) -> list[FeedbackDay]:
    """How people have spoken of each hive, day by day, as the nights have read it."""
    whole_days(begin, end)
    return await services.messages.feedback_days(caller, account, begin, end)


@router.get("/support", response_model=Page[Message], tags=["operators"])
async def support_messages(
    request: Request, caller: Operator, services: Served, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    return tagged(request, await services.messages.support(caller, cursor, limit))
