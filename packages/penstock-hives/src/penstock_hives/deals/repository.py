"""Deals, what people prefer and do with them, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from penstock_hives.database import Connection, fetch_all, fetch_one, insert_row, update_row
from penstock_hives.deals.models import (
    Deal,
    DealEffect,
    DealPreference,
    DealRedemption,
    RecommendedDeal,
)
from penstock_hives.places.repository import ACTIVE_DEAL, DEAL_COLUMNS, VISIBLE_HIVE

_FROM: Final = f"SELECT {DEAL_COLUMNS} FROM deal d JOIN hive h ON h.id = d.hive_id"
_ACTIVE: Final = f"""
    {_FROM} WHERE {ACTIVE_DEAL} AND {VISIBLE_HIVE}
      AND (%(hive)s::bigint IS NULL OR d.hive_id = %(hive)s)
      AND (%(kind)s::text IS NULL OR d.kind = %(kind)s)
      AND (%(ends_by)s::timestamptz IS NULL OR d.expires_at <= %(ends_by)s)
      AND (%(user)s::bigint IS NULL OR EXISTS (
            SELECT FROM user_hive uh
            WHERE uh.user_id = %(user)s AND uh.hive_id = d.hive_id AND uh.favourite))
      AND (%(after_at)s::timestamptz IS NULL OR (d.expires_at, d.id) > (%(after_at)s, %(after_id)s))
    ORDER BY d.expires_at, d.id LIMIT %(limit)s
"""
_RECOMMENDED: Final = f"""
    SELECT {DEAL_COLUMNS}, r.score, r.reason FROM deal_recommendation r
    JOIN deal d ON d.id = r.deal_id JOIN hive h ON h.id = d.hive_id
    WHERE r.user_id = %(user)s AND {ACTIVE_DEAL} AND {VISIBLE_HIVE}
    ORDER BY r.score DESC, d.id LIMIT %(limit)s
"""
#: Until the pipeline has chosen: what fits their preferences, favourites first, trending next.
_FITTING: Final = f"""
    SELECT {DEAL_COLUMNS},
           CASE WHEN uh.favourite THEN 2.0 ELSE 0.0 END + ln(1 + (
               SELECT count(*) FROM deal_event e
               WHERE e.deal_id = d.id AND e.at > %(now)s - interval '7 days')) AS score,
           CASE WHEN uh.favourite THEN 'at a favourite hive' ELSE 'trending' END AS reason
    FROM deal d JOIN hive h ON h.id = d.hive_id JOIN hive_type t ON t.id = h.hive_type_id
    LEFT JOIN user_hive uh ON uh.hive_id = h.id AND uh.user_id = %(user)s
    LEFT JOIN deal_preference p ON p.user_id = %(user)s
    WHERE {ACTIVE_DEAL} AND {VISIBLE_HIVE}
      AND (p.kinds IS NULL OR p.kinds = '{{}}' OR d.kind = ANY (p.kinds))
      AND (p.hive_types IS NULL OR p.hive_types = '{{}}' OR t.code = ANY (p.hive_types))
    ORDER BY score DESC, d.id LIMIT %(limit)s
"""
#: What people did with it, and what the last night found of those who came.
_EFFECT: Final = """
    SELECT d.id AS deal_id, count(e.id) FILTER (WHERE e.kind = 'shown') AS shown,
        count(e.id) FILTER (WHERE e.kind = 'opened') AS opened,
        count(e.id) FILTER (WHERE e.kind = 'redeemed') AS redeemed,
        n.day, coalesce(n.days, 0) AS days, n.visits AS visits_a_day,
        n.expected AS expected_a_day, n.lift
    FROM deal d LEFT JOIN deal_event e ON e.deal_id = d.id
    LEFT JOIN deal_effect n ON n.deal_id = d.id
    WHERE d.id = %(deal)s GROUP BY d.id, n.deal_id
"""
_REDEEM: Final = f"""
    UPDATE deal d SET redemptions = redemptions + 1 WHERE d.id = %(deal)s AND {ACTIVE_DEAL}
"""


_REDEMPTION: Final = """
    SELECT r.code, r.deal_id, d.hive_id, h.name AS hive_name, h.time_zone, d.title, d.expires_at,
        r.redeemed_at, r.verified_at
    FROM deal_redemption r JOIN deal d ON d.id = r.deal_id JOIN hive h ON h.id = d.hive_id
"""


class DealRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def active(
        self,
        now: datetime,
        *,
        hive: int | None = None,
        kind: str | None = None,
        within: timedelta | None = None,
        favourites_of: int | None = None,
        after: tuple[datetime, int] | None = None,
        limit: int = 10_000,
    ) -> list[Deal]:
        given = {
            "now": now,
            "hive": hive,
            "kind": kind,
            "ends_by": None if within is None else now + within,
            "user": favourites_of,
            "after_at": None if after is None else after[0],
            "after_id": None if after is None else after[1],
            "limit": limit,
        }
        return await fetch_all(self._connection, Deal, _ACTIVE, given)

    async def get(self, deal: int, *, lock: bool = False) -> tuple[Deal, int] | None:
        """With the account it belongs to."""
        statement = f"""
            SELECT {DEAL_COLUMNS}, h.account_id FROM deal d JOIN hive h ON h.id = d.hive_id
            WHERE d.id = %s {"FOR UPDATE OF d" if lock else ""}
        """
        row = await (await self._connection.execute(statement, (deal,))).fetchone()
        if row is None:
            return None
        account = row.pop("account_id")
        return Deal(**row), account

    async def visible(self, deal: int, now: datetime) -> Deal | None:
        statement = f"{_FROM} WHERE d.id = %(deal)s AND {ACTIVE_DEAL} AND {VISIBLE_HIVE}"
        given = {"deal": deal, "now": now}
        return await fetch_one(self._connection, Deal, statement, given)

    async def of_hive(self, hive: int, before: int | None, limit: int) -> list[Deal]:
        """All deals, the newest first."""
        statement = f"""
            {_FROM} WHERE d.hive_id = %(hive)s AND (%(before)s::bigint IS NULL OR d.id < %(before)s)
            ORDER BY d.id DESC LIMIT %(limit)s
        """
        given = {"hive": hive, "before": before, "limit": limit}
        return await fetch_all(self._connection, Deal, statement, given)

    async def add(self, values: Mapping[str, Any]) -> int:
        return await insert_row(self._connection, "deal", values)

    async def change(self, deal: int, values: Mapping[str, Any]) -> None:
        await update_row(self._connection, "deal", deal, values)

    async def record(self, deal: int, user: int | None, kind: str, now: datetime) -> None:
        statement = "INSERT INTO deal_event (deal_id, user_id, kind, at) VALUES (%s, %s, %s, %s)"
        await self._connection.execute(statement, (deal, user, kind, now))

    async def redeemed(self, deal: int, user: int) -> bool:
        statement = """
            SELECT FROM deal_event WHERE deal_id = %s AND user_id = %s AND kind = 'redeemed'
        """
        found = await self._connection.execute(statement, (deal, user))
        return await found.fetchone() is not None

    async def redeem(self, deal: int, now: datetime) -> bool:
        """False if the deal is not valid any more."""
        given = {"deal": deal, "now": now}
        return (await self._connection.execute(_REDEEM, given)).rowcount == 1

    async def add_redemption(self, code: str, deal: int, user: int, now: datetime) -> None:
        statement = """
            INSERT INTO deal_redemption (code, deal_id, user_id, redeemed_at)
            VALUES (%s, %s, %s, %s)
        """
        await self._connection.execute(statement, (code, deal, user, now))

    async def redemption(self, code: str, *, lock: bool = False) -> DealRedemption | None:
        statement = f"{_REDEMPTION} WHERE r.code = %s {'FOR UPDATE OF r' if lock else ''}"
        return await fetch_one(self._connection, DealRedemption, statement, (code,))

    async def redemptions(self, user: int, limit: int) -> list[DealRedemption]:
        statement = f"{_REDEMPTION} WHERE r.user_id = %s ORDER BY r.redeemed_at DESC LIMIT %s"
        return await fetch_all(self._connection, DealRedemption, statement, (user, limit))

    async def verify(self, code: str, by: int, now: datetime) -> None:
        statement = "UPDATE deal_redemption SET verified_at = %s, verified_by = %s WHERE code = %s"
        await self._connection.execute(statement, (now, by, code))

    async def recommended(self, user: int, now: datetime, limit: int) -> list[RecommendedDeal]:
        given = {"user": user, "now": now, "limit": limit}
        for statement in (_RECOMMENDED, _FITTING):
            found = await (await self._connection.execute(statement, given)).fetchall()
            if found:
                return [_recommended(row) for row in found]
        return []

    async def effect(self, deal: int) -> DealEffect | None:
        return await fetch_one(self._connection, DealEffect, _EFFECT, {"deal": deal})

    async def preference(self, user: int) -> DealPreference:
        statement = """
            SELECT kinds, hive_types, within_km, lat, lon, expiry_hours FROM deal_preference
            WHERE user_id = %s
        """
        row = await (await self._connection.execute(statement, (user,))).fetchone()
        if row is None:
            return DealPreference()
        for name in ("kinds", "hive_types", "expiry_hours"):
            row[name] = tuple(row[name])
        return DealPreference(**row)

    async def prefer(self, user: int, wanted: DealPreference) -> None:
        statement = """
            INSERT INTO deal_preference
                (user_id, kinds, hive_types, within_km, lat, lon, expiry_hours)
            VALUES (%s, %s, %s, %s, %s, %s, %s)
            ON CONFLICT (user_id) DO UPDATE SET
                kinds = excluded.kinds, hive_types = excluded.hive_types,
                within_km = excluded.within_km, lat = excluded.lat, lon = excluded.lon,
                expiry_hours = excluded.expiry_hours
        """
        lists = list(wanted.kinds), list(wanted.hive_types)
        place = wanted.within_km, wanted.lat, wanted.lon
        await self._connection.execute(statement, (user, *lists, *place, list(wanted.expiry_hours)))


def _recommended(row: dict[str, Any]) -> RecommendedDeal:
    score, reason = row.pop("score"), row.pop("reason")
    return RecommendedDeal(Deal(**row), round(float(score), 3), reason)
