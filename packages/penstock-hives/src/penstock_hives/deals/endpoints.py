"""Deals: for everybody, for the caller, and for the business that offers them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field

from penstock_hives.api.dependencies import PlaceOwner, Reader, ServicesDep, require_permission
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
    IfMatch,
    Limit,
    Page,
    Paging,
    PublicRoute,
    etag_response,
)
from penstock_hives.deals.models import (
    Deal,
    DealAction,
    DealEffect,
    DealKind,
    DealPreference,
    DealQuery,
    DealRedemption,
    RecommendedDeal,
)
from penstock_hives.people.permissions import AppPermission, Caller

router = APIRouter(route_class=IdempotentRoute, tags=["deals"])
public_router = APIRouter(route_class=PublicRoute, tags=["deals"])

Redeemer = Annotated[Caller, Depends(require_permission(AppPermission.REDEEM_DEALS))]
Seller = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_DEALS))]

RedemptionCode = Annotated[str, Path(pattern="^[0-9A-Za-z -]{8,12}$", examples=["7KQM-2XHB"])]
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
    """Which deals you prefer; empty lists mean any."""

    kinds: Annotated[tuple[DealKind, ...], Field(max_length=10)] = ()
    hive_types: Annotated[tuple[Identifier, ...], Field(max_length=50)] = ()
    within_km: Annotated[float, Field(gt=0, le=20_100)] | None = None
    lat: Annotated[float, Field(ge=-90, le=90)] | None = None
    lon: Annotated[float, Field(ge=-180, le=180)] | None = None
    expiry_hours: Annotated[
        tuple[Annotated[int, Field(ge=1, le=336)], ...], Field(max_length=5)
    ] = (24, 2)
    """Hours before its end at which you are reminded of a deal."""


class DealActivity(RequestBody):
    action: Literal["shown", "opened", "dismissed"]


@public_router.get("/deals", response_model=Page[Deal])
async def list_deals(
    request: Request, caller: Reader, services: ServicesDep, query: Annotated[DealQuery, Query()]
) -> Response:
    """Valid deals, sorted by their end."""
    return etag_response(request, await services.deals.active(query), PUBLIC)


@public_router.get("/deals/daily", response_model=Page[Deal])
async def daily_deals(
    request: Request, caller: Reader, services: ServicesDep, query: Paging
) -> Response:
    """Valid daily deals."""
    daily = DealQuery(kind=DealKind.DAILY, **query.model_dump())
    return etag_response(request, await services.deals.active(daily), PUBLIC)


@public_router.get("/deals/{deal}", response_model=Deal)
async def get_deal(
    request: Request, deal: PathId, caller: Reader, services: ServicesDep
) -> Response:
    """A valid deal."""
    return etag_response(request, await services.deals.get(deal), PUBLIC)


@public_router.get("/hives/{hive}/deals", response_model=Page[Deal])
async def deals_of_hive(
    request: Request,
    hive: PathId,
    caller: Reader,
    services: ServicesDep,
    query: Paging,
) -> Response:
    """The valid deals of a hive."""
    found = await services.deals.active(DealQuery(**query.model_dump()), hive=hive)
    return etag_response(request, found, PUBLIC)


@router.post("/deals/{deal}/events", status_code=204)
async def note_deal(
    deal: PathId, body: DealActivity, caller: Reader, services: ServicesDep
) -> None:
    """Record that a deal was shown, opened or dismissed."""
    await services.deals.record(caller, deal, DealAction(body.action))


@router.post("/deals/{deal}/redeem", status_code=201)
async def redeem_deal(deal: PathId, caller: Redeemer, services: ServicesDep) -> DealRedemption:
    """Once per user, within the limit of the deal. Show the code to the business."""
    return await services.deals.redeem(caller, deal)


@router.get("/me/redemptions")
async def list_redemptions(
    caller: Redeemer, services: ServicesDep, limit: Limit = 50
) -> list[DealRedemption]:
    """Deals you have redeemed, with their codes; the newest first."""
    return await services.deals.redemptions(caller, limit)


@router.post("/redemptions/{code}/verify", tags=["business"])
async def verify_redemption(
    code: RedemptionCode, caller: Seller, services: ServicesDep
) -> DealRedemption:
    """Accept the code that a user shows. A code is valid once, until the end of its deal."""
    return await services.deals.verify(caller, code)


@router.get("/me/deals/favourites", response_model=Page[Deal])
async def favourite_deals(
    request: Request,
    caller: PlaceOwner,
    services: ServicesDep,
    query: Paging,
) -> Response:
    """Deals of your favourite hives."""
    found = await services.deals.active(DealQuery(**query.model_dump()), favourites_of=caller)
    return etag_response(request, found)


@router.get("/me/deals/recommended")
async def recommended_deals(
    caller: PlaceOwner, services: ServicesDep, limit: Limit = 20
) -> list[RecommendedDeal]:
    """By your preferences and activity, and by popularity."""
    return await services.deals.recommended(caller, limit)


@router.get("/me/deal-preferences", tags=["notifications"])
async def get_preference(caller: PlaceOwner, services: ServicesDep) -> DealPreference:
    """Your preferences for deals: kinds, hive types, distance; an empty list means any."""
    return await services.deals.preference(caller)


@router.put("/me/deal-preferences", tags=["notifications"])
async def set_preference(
    body: DealPreferenceEdit, caller: PlaceOwner, services: ServicesDep
) -> DealPreference:
    """Set your preferences for deals."""
    return await services.deals.prefer(caller, DealPreference(**body.model_dump()))


@router.get("/hives/{hive}/all-deals", response_model=Page[Deal], tags=["business"])
async def all_deals_of_hive(
    request: Request, hive: PathId, caller: Seller, services: ServicesDep, page: Paging
) -> Response:
    """All deals, drafts and past ones included, the newest first."""
    return etag_response(
        request, await services.deals.of_hive(caller, hive, page.cursor, page.limit)
    )


@router.post("/hives/{hive}/deals", status_code=201, tags=["business"])
async def make_deal(
    hive: PathId, body: NewDeal, caller: Seller, services: ServicesDep, response: Response
) -> Deal:
    """A daily deal lasts one day, others a year at most."""
    made = await services.deals.make(caller, hive, body.model_dump(mode="python"))
    response.headers["Location"] = f"/v1/deals/{made.id}"
    return made


@router.get("/deals/{deal}/settings", response_model=Deal, tags=["business"])
async def get_own_deal(
    request: Request, deal: PathId, caller: Seller, services: ServicesDep
) -> Response:
    """In any status; pass its ETag as If-Match."""
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
    """Change the given fields of a deal."""
    return etag_response(request, await services.deals.edit(caller, deal, fields_set(body), seen))


@router.delete("/deals/{deal}", status_code=204, tags=["business"])
async def withdraw_deal(deal: PathId, caller: Seller, services: ServicesDep) -> None:
    """Withdraw a deal: it is no longer shown and cannot be redeemed."""
    await services.deals.withdraw(caller, deal)


@router.get("/deals/{deal}/effect", tags=["business", "analytics"])
async def deal_effect(deal: PathId, caller: Seller, services: ServicesDep) -> DealEffect:
    """What people did with it; visits compared with the same weekdays before, as of last night."""
    return await services.deals.effect(caller, deal)
