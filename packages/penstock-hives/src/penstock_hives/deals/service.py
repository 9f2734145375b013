"""Deals: search, administration by businesses, redemption and preferences."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from penstock.core.errors import NotFound
from penstock_hives.billing.repository import PlanRepository
from penstock_hives.database import DatabasePool
from penstock_hives.deals.models import (
    Deal,
    DealAction,
    DealEffect,
    DealPreference,
    DealQuery,
    DealRedemption,
    DealStatus,
    RecommendedDeal,
)
from penstock_hives.deals.repository import DealRepository
from penstock_hives.encoding import check_if_match
from penstock_hives.errors import RequestConflict, invalid_field, require_found
from penstock_hives.occupancy.service import require_owned_hive
from penstock_hives.pagination import (
    CursorPage,
    decode_cursor,
    decode_id,
    invalid_cursor,
    paginate,
)
from penstock_hives.people.permissions import AppPermission, Caller, PlanFeatureCode
from penstock_hives.people.repository import AuditRepository
from penstock_hives.webhooks.service import WebhookEvent, enqueue_event

#: A local day, with the change of the clock.
_MAX_DAILY: Final = timedelta(hours=26)
_LONGEST: Final = timedelta(days=366)


#: Of codes: no letters or digits that look alike.
_ALPHABET: Final = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
_CODE_LENGTH: Final = 8


class DealService:
    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def active(
        self, query: DealQuery, hive: int | None = None, favourites_of: Caller | None = None
    ) -> CursorPage[Deal]:
        """Valid deals, sorted by their end."""
        user = None if favourites_of is None else favourites_of.known
        hours = query.expiring_within_h
        async with self._pool.reading() as connection:
            found = await DealRepository(connection).active(
                self._clock(),
                hive=hive,
                kind=query.kind,
                within=None if hours is None else timedelta(hours=hours),
                favourites_of=user,
                after=_after(query.cursor),
                limit=query.limit + 1,
            )
        return paginate(found, query.limit, lambda deal: (deal.expires_at.isoformat(), deal.id))

    async def get(self, deal: int) -> Deal:
        async with self._pool.reading() as connection:
            found = await DealRepository(connection).visible(deal, self._clock())
        return require_found(found, f"deal {deal}")

    async def of_hive(
        self, caller: Caller, hive: int, cursor: str | None, limit: int
    ) -> CursorPage[Deal]:
        """All deals, drafts and past ones included."""
        async with self._pool.reading() as connection:
            await require_owned_hive(connection, caller, hive, AppPermission.EDIT_DEALS)
            found = await DealRepository(connection).of_hive(hive, decode_id(cursor), limit + 1)
        return paginate(found, limit, lambda deal: [deal.id])

    async def make(self, caller: Caller, hive: int, values: Mapping[str, Any]) -> Deal:
        async with self._pool.transaction() as connection:
            account = await require_owned_hive(connection, caller, hive, AppPermission.EDIT_DEALS)
            self._check(values["kind"], values["starts_at"], values["expires_at"])
            deals = DealRepository(connection)
            number = await deals.add({**values, "hive_id": hive})
            await AuditRepository(connection).record(caller, "make", "deal", number, account)
            return require_found(await deals.get(number), f"deal {number}")[0]

    async def edit(
        self, caller: Caller, deal: int, values: Mapping[str, Any], seen: str | None
    ) -> Deal:
        async with self._pool.transaction() as connection:
            deals = DealRepository(connection)
            held, account = await self._mine(deals, caller, deal)
            check_if_match(held, seen)
            kind = values.get("kind", held.kind)
            times = (values.get(name, getattr(held, name)) for name in ("starts_at", "expires_at"))
            self._check(kind, *times)
            most = values.get("max_redemptions", held.max_redemptions)
            if most is not None and most < held.redemptions:
                raise RequestConflict(f"deal {deal} was redeemed {held.redemptions} times already")
            await deals.change(deal, values)
            await AuditRepository(connection).record(
                caller, "edit", "deal", deal, account, {"fields": sorted(values)}
            )
            return require_found(await deals.get(deal), f"deal {deal}")[0]

    async def own(self, caller: Caller, deal: int) -> Deal:
        """For its business, in any status."""
        async with self._pool.reading() as connection:
            held, _ = await self._mine(DealRepository(connection), caller, deal, lock=False)
        return held

    async def withdraw(self, caller: Caller, deal: int) -> None:
        async with self._pool.transaction() as connection:
            deals = DealRepository(connection)
            _, account = await self._mine(deals, caller, deal)
            await deals.change(deal, {"status": DealStatus.WITHDRAWN.value})
            await AuditRepository(connection).record(caller, "withdraw", "deal", deal, account)

    async def record(self, caller: Caller, deal: int, action: DealAction) -> None:
        """That a visible deal was shown, opened or dismissed."""
        now = self._clock()
        async with self._pool.transaction() as connection:
            deals = DealRepository(connection)
            if await deals.visible(deal, now) is None:
                raise NotFound(f"deal {deal} not found")
            await deals.record(deal, caller.id, action, now)

    async def redeem(self, caller: Caller, deal: int) -> DealRedemption:
        """Once per user, within the limit of the deal."""
        now = self._clock()
        async with self._pool.transaction() as connection:
            deals = DealRepository(connection)
            if await deals.redeemed(deal, caller.known):
                raise RequestConflict(f"you have redeemed deal {deal} already")
            if not await deals.redeem(deal, now):
                raise RequestConflict(f"deal {deal} cannot be redeemed now")
            await deals.record(deal, caller.known, DealAction.REDEEMED, now)
            code = "".join(secrets.choice(_ALPHABET) for _ in range(_CODE_LENGTH))
            await deals.add_redemption(code, deal, caller.known, now)
            return require_found(await deals.redemption(code), "redemption")

    async def redemptions(self, caller: Caller, limit: int) -> list[DealRedemption]:
        """The caller's, the newest first."""
        async with self._pool.reading() as connection:
            return await DealRepository(connection).redemptions(caller.known, limit)

    async def verify(self, caller: Caller, code: str) -> DealRedemption:
        """Accept the code that a user shows at one of the caller's hives; once."""
        code = normalize_code(code)
        now = self._clock()
        async with self._pool.transaction() as connection:
            deals = DealRepository(connection)
            found = await deals.redemption(code, lock=True)
            if found is None:
                raise NotFound(f"no deal of yours has the code {code}")
            try:
                _, account = await self._mine(deals, caller, found.deal_id, lock=False)
            except NotFound:
                raise NotFound(f"no deal of yours has the code {code}") from None
            if found.verified_at is not None:
                used = found.verified_at.astimezone(ZoneInfo(found.time_zone))
                raise RequestConflict(f"code {code} was used on {used:%Y-%m-%d %H:%M}")
            if found.expires_at <= now:
                raise RequestConflict(f"the deal of code {code} has ended")
            await deals.verify(code, caller.known, now)
            told = {"deal": found.deal_id, "hive": found.hive_id, "title": found.title}
            await enqueue_event(connection, account, WebhookEvent.DEAL, told)
            audit = AuditRepository(connection)
            await audit.record(caller, "verify", "deal", found.deal_id, account)
            return replace(found, verified_at=now)

    async def effect(self, caller: Caller, deal: int) -> DealEffect:
        async with self._pool.reading() as connection:
            deals = DealRepository(connection)
            _, account = await self._mine(deals, caller, deal, lock=False)
            caller.require(AppPermission.READ_ANALYTICS, account)
            found = await deals.effect(deal)
        assert found is not None
        return found

    async def recommended(self, caller: Caller, limit: int) -> list[RecommendedDeal]:
        """The choice of the nightly run; before the first run, popular deals that fit."""
        feature = PlanFeatureCode.RECOMMENDATIONS
        async with self._pool.reading() as connection:
            if not caller.includes(feature):
                detail = "your plan does not include recommendations"
                raise await PlanRepository(connection).required(feature, detail)
            deals = DealRepository(connection)
            return await deals.recommended(caller.known, self._clock(), limit)

    async def preference(self, caller: Caller) -> DealPreference:
        async with self._pool.reading() as connection:
            return await DealRepository(connection).preference(caller.known)

    async def prefer(self, caller: Caller, wanted: DealPreference) -> DealPreference:
        if (wanted.lat is None) != (wanted.lon is None):
            raise invalid_field("lat", "must be given together with lon")
        if wanted.within_km is not None and wanted.lat is None:
            raise invalid_field("within_km", "needs lat and lon")
        async with self._pool.transaction() as connection:
            await DealRepository(connection).prefer(caller.known, wanted)
        return wanted

    async def _mine(
        self, deals: DealRepository, caller: Caller, deal: int, *, lock: bool = True
    ) -> tuple[Deal, int]:
        held, account = require_found(await deals.get(deal, lock=lock), f"deal {deal}")
        if not caller.may(AppPermission.READ_ACCOUNT, account):
            raise NotFound(f"deal {deal} not found")
        caller.require(AppPermission.EDIT_DEALS, account)
        return held, account

    def _check(self, kind: str, starts_at: datetime, expires_at: datetime) -> None:
        length = expires_at - starts_at
        if length <= timedelta():
            raise invalid_field("expires_at", "must be after starts_at")
        if length > (_MAX_DAILY if kind == "daily" else _LONGEST):
            span = "a day" if kind == "daily" else "a year"
            raise invalid_field("expires_at", f"must be within {span} of starts_at")


def normalize_code(code: str) -> str:
    """Without spaces and dashes, in upper case."""
    return code.replace("-", "").replace(" ", "").upper()


def _after(cursor: str | None) -> tuple[datetime, int] | None:
    values = decode_cursor(cursor, str, int)
    if values is None:
        return None
    try:
        at = datetime.fromisoformat(values[0])
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise invalid_cursor()
    return at, values[1]
