"""Deals: found and used by people, made by businesses."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock.hives.app.api.caller import Reader, allowed
from penstock.hives.app.api.context import Context, Served
from penstock.hives.app.api.etags import PUBLIC, IfMatch, tagged
from penstock.hives.app.api.fields import Body, Id, Line, Moment, Note, Word, named
from penstock.hives.app.api.idempotency import IdempotentRoute
from penstock.hives.app.api.pages import Cursor, Limit, Page
from penstock.hives.app.api.public import from_cache
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.deals import (
    Deal,
    DealAction,
    DealEffect,
    DealKind,
    DealPreference,
    Recommended,
)
from penstock.hives.app.domain.roles import Permission

router = APIRouter(route_class=IdempotentRoute, tags=["deals"])

Keeper = Annotated[Caller, Depends(allowed(Permission.OWN_PLACES))]
Redeemer = Annotated[Caller, Depends(allowed(Permission.REDEEM_DEALS))]
Seller = Annotated[Caller, Depends(allowed(Permission.EDIT_DEALS))]

Most = Annotated[int, Field(ge=1, le=1_000_000_000)]


class NewDeal(Body):
    title: Line
    kind: DealKind
    starts_at: Moment
    expires_at: Moment
    description: Note = ""
    terms: Note = ""
    status: Literal["draft", "published"] = "published"
    max_redemptions: Most | None = None


class DealEdit(Body):
    title: Line | None = None
    kind: DealKind | None = None
    starts_at: Moment | None = None
    expires_at: Moment | None = None
    description: Note | None = None
    terms: Note | None = None
    status: Literal["draft", "published"] | None = None
    max_redemptions: Most | None = None


class Preference(Body):
    """Which deals you want to hear of; empty lists mean any."""

    kinds: Annotated[tuple[DealKind, ...], Field(max_length=10)] = ()
    hive_types: Annotated[tuple[Word, ...], Field(max_length=50)] = ()
    within_km: Annotated[float, Field(gt=0, le=20_100)] | None = None
    lat: Annotated[float, Field(ge=-90, le=90)] | None = None
    lon: Annotated[float, Field(ge=-180, le=180)] | None = None
    expiry_hours: Annotated[
        tuple[Annotated[int, Field(ge=1, le=336)], ...], Field(max_length=5)
    ] = (24, 2)
    """How long before its end you are reminded of a deal."""


class Happening(Body):
    action: Literal["shown", "opened", "dismissed"]


@router.get("/deals", response_model=Page[Deal])
async def list_deals(
    request: Request,
    caller: Reader,
    context: Context,
    kind: DealKind | None = None,
    expiring_within_h: Annotated[float | None, Query(gt=0, le=8784)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Deals that can be used now, the first to end first."""
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    within = None if expiring_within_h is None else timedelta(hours=expiring_within_h)
    found = await context.services.deals.active(
        kind=kind, within=within, cursor=cursor, limit=limit
    )
    return tagged(request, found, PUBLIC)


@router.get("/deals/daily", response_model=Page[Deal])
async def daily_deals(
    request: Request, caller: Reader, context: Context, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """Today's."""
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    found = await context.services.deals.active(kind=DealKind.DAILY, cursor=cursor, limit=limit)
    return tagged(request, found, PUBLIC)


@router.get("/deals/{deal}", response_model=Deal)
async def get_deal(request: Request, deal: Id, caller: Reader, context: Context) -> Response:
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    return tagged(request, await context.services.deals.get(deal), PUBLIC)


@router.get("/hives/{hive}/deals", response_model=Page[Deal])
async def deals_of_hive(
    request: Request,
    hive: Id,
    caller: Reader,
    context: Context,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    found = await context.services.deals.active(hive=hive, cursor=cursor, limit=limit)
    return tagged(request, found, PUBLIC)


@router.post("/deals/{deal}/events", status_code=204)
async def note_deal(deal: Id, body: Happening, caller: Reader, services: Served) -> None:
    """That a deal was shown, opened or dismissed."""
    await services.deals.note(caller, deal, DealAction(body.action))


@router.post("/deals/{deal}/redeem", status_code=204)
async def redeem_deal(deal: Id, caller: Redeemer, services: Served) -> None:
    """Once for each user, and no more often than the deal allows."""
    await services.deals.note(caller, deal, DealAction.REDEEMED)


@router.get("/me/deals/favourites", response_model=Page[Deal])
async def favourite_deals(
    request: Request, caller: Keeper, services: Served, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """Deals of your favourite hives."""
    found = await services.deals.active(favourites_of=caller, cursor=cursor, limit=limit)
    return tagged(request, found)


@router.get("/me/deals/recommended")
async def recommended_deals(
    caller: Keeper, services: Served, limit: Limit = 20
) -> list[Recommended]:
    """Chosen by what you prefer and did, and by what is liked."""
    return await services.deals.recommended(caller, limit)


@router.get("/me/deal-preferences", tags=["notifications"])
async def get_preference(caller: Keeper, services: Served) -> DealPreference:
    return await services.deals.preference(caller)


@router.put("/me/deal-preferences", tags=["notifications"])
async def set_preference(body: Preference, caller: Keeper, services: Served) -> DealPreference:
    return await services.deals.prefer(caller, DealPreference(**body.model_dump()))


@router.get("/hives/{hive}/all-deals", response_model=Page[Deal], tags=["business"])
async def all_deals_of_hive(
    request: Request,
    hive: Id,
    caller: Seller,
    services: Served,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Drafts and past ones too, the newest first."""
    return tagged(request, await services.deals.of_hive(caller, hive, cursor, limit))


@router.post("/hives/{hive}/deals", status_code=201, tags=["business"])
async def make_deal(
    hive: Id, body: NewDeal, caller: Seller, services: Served, response: Response
) -> Deal:
    """A daily deal is for one day, others for a year at most."""
    made = await services.deals.make(caller, hive, body.model_dump(mode="python"))
    response.headers["Location"] = f"/v1/deals/{made.id}"
    return made


@router.get("/deals/{deal}/settings", response_model=Deal, tags=["business"])
async def get_own_deal(request: Request, deal: Id, caller: Seller, services: Served) -> Response:
    """Whatever its status; its ETag goes into If-Match."""
    return tagged(request, await services.deals.own(caller, deal))


@router.patch("/deals/{deal}", response_model=Deal, tags=["business"])
async def edit_deal(
    request: Request,
    deal: Id,
    body: DealEdit,
    caller: Seller,
    services: Served,
    seen: IfMatch = None,
) -> Response:
    return tagged(request, await services.deals.edit(caller, deal, named(body), seen))


@router.delete("/deals/{deal}", status_code=204, tags=["business"])
async def withdraw_deal(deal: Id, caller: Seller, services: Served) -> None:
    await services.deals.withdraw(caller, deal)


@router.get("/deals/{deal}/effect", tags=["business", "analytics"])
async def deal_effect(deal: Id, caller: Seller, services: Served) -> DealEffect:
    """What people did with it; and by the last night, visits against the same weekdays before."""
    return await services.deals.effect(caller, deal)
