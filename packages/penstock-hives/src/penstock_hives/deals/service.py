"""Deals: made by businesses, found and used by people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.core.errors import NotFound
from penstock_hives.database import Connection, DatabasePool
from penstock_hives.deals.models import (
    Deal,
    DealAction,
    DealEffect,
    DealPreference,
    DealStatus,
    RecommendedDeal,
)
from penstock_hives.deals.repository import DealRepository
from penstock_hives.encoding import check_if_match
from penstock_hives.errors import FieldError, InvalidRequest, RequestConflict
from penstock_hives.pagination import CursorPage, decode_cursor, paginate
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.people.repository import AuditRepository
from penstock_hives.places.repository import HiveRepository

#: A daily deal is for one day, whichever hours that has.
_A_DAY: Final = timedelta(hours=26)
_LONGEST: Final = timedelta(days=366)


class DealService:
    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def active(
        self,
        *,
        hive: int | None = None,
        kind: str | None = None,
        within: timedelta | None = None,
        favourites_of: Caller | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> CursorPage[Deal]:
        """Those that can be used now, the first to end first."""
        user = None if favourites_of is None else favourites_of.known
        async with self._pool.reading() as connection:
            found = await DealRepository(connection).active(
                self._clock(),
                hive=hive,
                kind=kind,
                within=within,
                favourites_of=user,
                after=_after(cursor),
                limit=limit + 1,
            )
        return paginate(found, limit, lambda deal: (deal.expires_at.isoformat(), deal.id))

    async def get(self, deal: int) -> Deal:
        async with self._pool.reading() as connection:
            found = await DealRepository(connection).visible(deal, self._clock())
        if found is None:
            raise NotFound(f"there is no deal {deal} at the moment")
        return found

    async def of_hive(
        self, caller: Caller, hive: int, cursor: str | None, limit: int
    ) -> CursorPage[Deal]:
        """All of a hive's, as its business sees them: drafts and past ones too."""
        before = decode_cursor(cursor, int) or [None]
        async with self._pool.reading() as connection:
            await _account_of(connection, caller, hive)
            found = await DealRepository(connection).of_hive(hive, before[0], limit + 1)
        return paginate(found, limit, lambda deal: [deal.id])

    async def make(self, caller: Caller, hive: int, values: Mapping[str, Any]) -> Deal:
        async with self._pool.transaction() as connection:
            account = await _account_of(connection, caller, hive)
            self._check(values["kind"], values["starts_at"], values["expires_at"])
            deals = DealRepository(connection)
            number = await deals.add({**values, "hive_id": hive})
            await AuditRepository(connection).record(caller, "make", "deal", number, account)
            return _there(await deals.get(number), number)[0]

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
                raise RequestConflict(f"it has been redeemed {held.redemptions} times already")
            await deals.change(deal, values)
            await AuditRepository(connection).record(
                caller, "edit", "deal", deal, account, {"fields": sorted(values)}
            )
            return _there(await deals.get(deal), deal)[0]

    async def own(self, caller: Caller, deal: int) -> Deal:
        """As its business sees it, whatever its status."""
        async with self._pool.reading() as connection:
            held, _ = await self._mine(DealRepository(connection), caller, deal, lock=False)
        return held

    async def withdraw(self, caller: Caller, deal: int) -> None:
        async with self._pool.transaction() as connection:
            deals = DealRepository(connection)
            _, account = await self._mine(deals, caller, deal)
            await deals.change(deal, {"status": DealStatus.WITHDRAWN.value})
            await AuditRepository(connection).record(caller, "withdraw", "deal", deal, account)

    async def note(self, caller: Caller, deal: int, action: DealAction) -> None:
        """What somebody did with a deal they can see. Redeeming is counted, and once each."""
        now = self._clock()
        async with self._pool.transaction() as connection:
            deals = DealRepository(connection)
            if action is DealAction.REDEEMED:
                if await deals.redeemed(deal, caller.known):
                    raise RequestConflict("you have redeemed this deal already")
                if not await deals.redeem(deal, now):
                    raise RequestConflict(f"deal {deal} cannot be redeemed now")
            elif await deals.visible(deal, now) is None:
                raise NotFound(f"there is no deal {deal} at the moment")
            await deals.note(deal, caller.id, action, now)

    async def effect(self, caller: Caller, deal: int) -> DealEffect:
        async with self._pool.reading() as connection:
            deals = DealRepository(connection)
            _, account = await self._mine(deals, caller, deal, lock=False)
            caller.require(AppPermission.READ_ANALYTICS, account)
            found = await deals.effect(deal)
        assert found is not None
        return found

    async def recommended(self, caller: Caller, limit: int) -> list[RecommendedDeal]:
        """What the nights have chosen for somebody; until then what fits and is liked."""
        async with self._pool.reading() as connection:
            deals = DealRepository(connection)
            return await deals.recommended(caller.known, self._clock(), limit)

    async def preference(self, caller: Caller) -> DealPreference:
        async with self._pool.reading() as connection:
            return await DealRepository(connection).preference(caller.known)

    async def prefer(self, caller: Caller, wanted: DealPreference) -> DealPreference:
        if (wanted.lat is None) != (wanted.lon is None):
            raise InvalidRequest(
                "half a position", [FieldError("lat", "has a lon with it, or is missing")]
            )
        if wanted.within_km is not None and wanted.lat is None:
            raise InvalidRequest("from where?", [FieldError("within_km", "needs lat and lon")])
        async with self._pool.transaction() as connection:
            await DealRepository(connection).prefer(caller.known, wanted)
        return wanted

    async def _mine(
        self, deals: DealRepository, caller: Caller, deal: int, *, lock: bool = True
    ) -> tuple[Deal, int]:
        held, account = _there(await deals.get(deal, lock=lock), deal)
        if not caller.may(AppPermission.READ_ACCOUNT, account):
            raise NotFound(f"there is no deal {deal} of yours")
        caller.require(AppPermission.EDIT_DEALS, account)
        return held, account

    def _check(self, kind: str, starts_at: datetime, expires_at: datetime) -> None:
        length = expires_at - starts_at
        if length <= timedelta():
            raise InvalidRequest(
                "it ends before it begins", [FieldError("expires_at", "is after starts_at")]
            )
        if length > (_A_DAY if kind == "daily" else _LONGEST):
            reason = "is within a day of starts_at" if kind == "daily" else "is within a year"
            raise InvalidRequest("it lasts too long", [FieldError("expires_at", reason)])


async def _account_of(connection: Connection, caller: Caller, hive: int) -> int:
    account = await HiveRepository(connection).account_of(hive)
    if account is None or not caller.may(AppPermission.READ_ACCOUNT, account):
        raise NotFound(f"there is no hive {hive} of yours")
    caller.require(AppPermission.EDIT_DEALS, account)
    return account


def _there(found: tuple[Deal, int] | None, deal: int) -> tuple[Deal, int]:
    if found is None:
        raise NotFound(f"there is no deal {deal}")
    return found


def _after(cursor: str | None) -> tuple[datetime, int] | None:
    values = decode_cursor(cursor, str, int)
    if values is None:
        return None
    try:
        at = datetime.fromisoformat(values[0])
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidRequest(
            "no such page", [FieldError("cursor", "is not one that a page has given")]
        )
    return at, values[1]
