"""Deals: found and used by people, made by businesses."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock_hives.api.dependencies import Reader, ResourcesDep, ServicesDep, require_permission
from penstock_hives.api.fields import (
    Identifier,
    LongText,
    PathId,
    RequestBody,
    ShortText,
    Timestamp,
    fields_set,
)
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.api.responses import (
    PUBLIC,
    Cursor,
    IfMatch,
    Limit,
    Page,
    etag_response,
    read_from_cache,
)
from penstock_hives.deals.models import (
    Deal,
    DealAction,
    DealEffect,
    DealKind,
    DealPreference,
    RecommendedDeal,
)
from penstock_hives.people.permissions import AppPermission, Caller

router = APIRouter(route_class=IdempotentRoute, tags=["deals"])

Keeper = Annotated[Caller, Depends(require_permission(AppPermission.OWN_PLACES))]
Redeemer = Annotated[Caller, Depends(require_permission(AppPermission.REDEEM_DEALS))]
Seller = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_DEALS))]

Most = Annotated[int, Field(ge=1, le=1_000_000_000)]


class NewDeal(RequestBody):
    title: ShortText
    kind: DealKind
    starts_at: Timestamp
    expires_at: Timestamp
    description: LongText = ""
    terms: LongText = ""
    status: Literal["draft", "published"] = "published"
    max_redemptions: Most | None = None


class DealEdit(RequestBody):
    title: ShortText | None = None
    kind: DealKind | None = None
    starts_at: Timestamp | None = None
    expires_at: Timestamp | None = None
    description: LongText | None = None
    terms: LongText | None = None
    status: Literal["draft", "published"] | None = None
    max_redemptions: Most | None = None


class DealPreferenceEdit(RequestBody):
    """Which deals you want to hear of; empty lists mean any."""

    kinds: Annotated[tuple[DealKind, ...], Field(max_length=10)] = ()
    hive_types: Annotated[tuple[Identifier, ...], Field(max_length=50)] = ()
    within_km: Annotated[float, Field(gt=0, le=20_100)] | None = None
    lat: Annotated[float, Field(ge=-90, le=90)] | None = None
    lon: Annotated[float, Field(ge=-180, le=180)] | None = None
    expiry_hours: Annotated[
        tuple[Annotated[int, Field(ge=1, le=336)], ...], Field(max_length=5)
    ] = (24, 2)
    """How long before its end you are reminded of a deal."""


class DealActivity(RequestBody):
    action: Literal["shown", "opened", "dismissed"]


@router.get("/deals", response_model=Page[Deal])
async def list_deals(
    request: Request,
    caller: Reader,
    context: ResourcesDep,
    kind: DealKind | None = None,
    expiring_within_h: Annotated[float | None, Query(gt=0, le=8784)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Deals that can be used now, the first to end first."""
    if (answer := await read_from_cache(context.public, caller, request)) is not None:
        return answer
    within = None if expiring_within_h is None else timedelta(hours=expiring_within_h)
    found = await context.services.deals.active(
        kind=kind, within=within, cursor=cursor, limit=limit
    )
    return etag_response(request, found, PUBLIC)


@router.get("/deals/daily", response_model=Page[Deal])
async def daily_deals(
    request: Request,
    caller: Reader,
    context: ResourcesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Today's."""
    if (answer := await read_from_cache(context.public, caller, request)) is not None:
        return answer
    found = await context.services.deals.active(kind=DealKind.DAILY, cursor=cursor, limit=limit)
    return etag_response(request, found, PUBLIC)


@router.get("/deals/{deal}", response_model=Deal)
async def get_deal(
    request: Request, deal: PathId, caller: Reader, context: ResourcesDep
) -> Response:
    if (answer := await read_from_cache(context.public, caller, request)) is not None:
        return answer
    return etag_response(request, await context.services.deals.get(deal), PUBLIC)


@router.get("/hives/{hive}/deals", response_model=Page[Deal])
async def deals_of_hive(
    request: Request,
    hive: PathId,
    caller: Reader,
    context: ResourcesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    if (answer := await read_from_cache(context.public, caller, request)) is not None:
        return answer
    found = await context.services.deals.active(hive=hive, cursor=cursor, limit=limit)
    return etag_response(request, found, PUBLIC)


@router.post("/deals/{deal}/events", status_code=204)
async def note_deal(
    deal: PathId, body: DealActivity, caller: Reader, services: ServicesDep
) -> None:
    """That a deal was shown, opened or dismissed."""
    await services.deals.note(caller, deal, DealAction(body.action))


@router.post("/deals/{deal}/redeem", status_code=204)
async def redeem_deal(deal: PathId, caller: Redeemer, services: ServicesDep) -> None:
    """Once for each user, and no more often than the deal allows."""
    await services.deals.note(caller, deal, DealAction.REDEEMED)


@router.get("/me/deals/favourites", response_model=Page[Deal])
async def favourite_deals(
    request: Request,
    caller: Keeper,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Deals of your favourite hives."""
    found = await services.deals.active(favourites_of=caller, cursor=cursor, limit=limit)
    return etag_response(request, found)


@router.get("/me/deals/recommended")
async def recommended_deals(
    caller: Keeper, services: ServicesDep, limit: Limit = 20
) -> list[RecommendedDeal]:
    """Chosen by what you prefer and did, and by what is liked."""
    return await services.deals.recommended(caller, limit)


@router.get("/me/deal-preferences", tags=["notifications"])
async def get_preference(caller: Keeper, services: ServicesDep) -> DealPreference:
    return await services.deals.preference(caller)


@router.put("/me/deal-preferences", tags=["notifications"])
async def set_preference(
    body: DealPreferenceEdit, caller: Keeper, services: ServicesDep
) -> DealPreference:
    return await services.deals.prefer(caller, DealPreference(**body.model_dump()))


@router.get("/hives/{hive}/all-deals", response_model=Page[Deal], tags=["business"])
async def all_deals_of_hive(
    request: Request,
    hive: PathId,
    caller: Seller,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Drafts and past ones too, the newest first."""
    return etag_response(request, await services.deals.of_hive(caller, hive, cursor, limit))


@router.post("/hives/{hive}/deals", status_code=201, tags=["business"])
async def make_deal(
    hive: PathId, body: NewDeal, caller: Seller, services: ServicesDep, response: Response
) -> Deal:
    """A daily deal is for one day, others for a year at most."""
    made = await services.deals.make(caller, hive, body.model_dump(mode="python"))
    response.headers["Location"] = f"/v1/deals/{made.id}"
    return made


@router.get("/deals/{deal}/settings", response_model=Deal, tags=["business"])
async def get_own_deal(
    request: Request, deal: PathId, caller: Seller, services: ServicesDep
) -> Response:
    """Whatever its status; its ETag goes into If-Match."""
    return etag_response(request, await services.deals.own(caller, deal))


@router.patch("/deals/{deal}", response_model=Deal, tags=["business"])
async def edit_deal(
    request: Request,
    deal: PathId,
    body: DealEdit,
    caller: Seller,
    services: ServicesDep,
    seen: IfMatch = None,
) -> Response:
    return etag_response(request, await services.deals.edit(caller, deal, fields_set(body), seen))


@router.delete("/deals/{deal}", status_code=204, tags=["business"])
async def withdraw_deal(deal: PathId, caller: Seller, services: ServicesDep) -> None:
    await services.deals.withdraw(caller, deal)


@router.get("/deals/{deal}/effect", tags=["business", "analytics"])
async def deal_effect(deal: PathId, caller: Seller, services: ServicesDep) -> DealEffect:
    """What people did with it; and by the last night, visits against the same weekdays before."""
    return await services.deals.effect(caller, deal)
