"""Plans, subscriptions, transactions, and what follows from them: entitlement."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from penstock.hives.app.domain.plans import Plan, PlanFeature, Subscription, Transaction
from penstock.hives.app.repositories.pool import Connection

#: Whoever has a plan at `now`, with each feature of it. Several providers' plans simply add up.
ENTITLED: Final = """
    SELECT s.user_id, s.account_id, t.code AS plan, t.rank, f.code AS feature, tf.limits
    FROM subscription s
    JOIN subscription_type t ON t.id = s.subscription_type_id
    LEFT JOIN subscription_type_feature tf ON tf.subscription_type_id = t.id
    LEFT JOIN feature f ON f.id = tf.feature_id
    WHERE s.status IN ('active', 'trial', 'past_due', 'cancelled') AND s.started_at <= %(now)s
      AND (s.expires_at IS NULL OR s.expires_at > %(now)s)
      AND (s.status <> 'cancelled' OR s.expires_at IS NOT NULL)
"""
_PLANS: Final = """
    SELECT t.code, t.name, t.price, t.currency, t.period, t.audience,
           f.code AS feature, f.name AS feature_name, tf.limits
    FROM subscription_type t
    LEFT JOIN subscription_type_feature tf ON tf.subscription_type_id = t.id
    LEFT JOIN feature f ON f.id = tf.feature_id
    ORDER BY t.audience DESC, t.rank, t.code, f.code
"""
_SUBSCRIPTION: Final = """
    SELECT s.id, s.user_id, s.account_id, t.code AS plan, s.provider, s.status, s.started_at,
           s.renews_at, s.cancelled_at, s.expires_at
    FROM subscription s JOIN subscription_type t ON t.id = s.subscription_type_id
"""
_TRANSACTIONS: Final = """
    SELECT x.id, x.subscription_id, t.code AS plan, x.kind, x.amount, x.currency, x.at,
           s.cancelled_at, s.expires_at
    FROM transaction x
    JOIN subscription s ON s.id = x.subscription_id
    JOIN subscription_type t ON t.id = s.subscription_type_id
    WHERE (s.user_id = %(user)s OR s.account_id = %(account)s)
      AND (%(before)s::bigint IS NULL OR x.id < %(before)s)
    ORDER BY x.id DESC LIMIT %(limit)s
"""
_LIMIT: Final = f"""
    SELECT max((limits ->> %(name)s)::int) AS most FROM (
        SELECT e.limits FROM ({ENTITLED}) AS e
        WHERE e.feature = %(feature)s AND (e.user_id = %(user)s OR e.account_id = %(account)s)
        UNION ALL
        SELECT tf.limits FROM subscription_type_feature tf
        JOIN subscription_type t ON t.id = tf.subscription_type_id
        JOIN feature f ON f.id = tf.feature_id
        WHERE f.code = %(feature)s
          AND t.code = CASE WHEN %(user)s::bigint IS NULL THEN 'business_free' ELSE 'free' END
    ) AS given
"""
_GRANT: Final = """
    INSERT INTO subscription (user_id, account_id, subscription_type_id, provider, provider_ref,
                              status, expires_at)
    SELECT %(user)s, %(account)s, id, 'manual', %(ref)s, 'active', %(expires)s
    FROM subscription_type
    WHERE code = %(plan)s
      AND audience = CASE WHEN %(user)s::bigint IS NULL THEN 'account' ELSE 'user' END
    RETURNING id
"""


class PlanRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def plans(self) -> list[Plan]:
        found = await (await self._connection.execute(_PLANS)).fetchall()
        features: dict[str, list[PlanFeature]] = {}
        for row in found:
            of = features.setdefault(row["code"], [])
            if row["feature"] is not None:
                of.append(PlanFeature(row["feature"], row["feature_name"], row["limits"]))
        names = ("code", "name", "price", "currency", "period", "audience")
        first = {row["code"]: row for row in reversed(found)}
        return [
            Plan(**{name: first[code][name] for name in names}, features=tuple(of))
            for code, of in features.items()
        ]

    async def subscriptions(
        self, user: int | None = None, account: int | None = None
    ) -> list[Subscription]:
        statement = f"""
            {_SUBSCRIPTION} WHERE s.user_id = %(user)s OR s.account_id = %(account)s
            ORDER BY s.id DESC LIMIT 100
        """
        given = {"user": user, "account": account}
        found = await self._connection.execute(statement, given)
        return [Subscription(**row) async for row in found]

    async def subscription(self, number: int, *, lock: bool = False) -> Subscription | None:
        statement = f"{_SUBSCRIPTION} WHERE s.id = %s {'FOR UPDATE OF s' if lock else ''}"
        row = await (await self._connection.execute(statement, (number,))).fetchone()
        return None if row is None else Subscription(**row)

    async def transactions(
        self, user: int | None, account: int | None, before: int | None, limit: int
    ) -> list[Transaction]:
        given = {"user": user, "account": account, "before": before, "limit": limit}
        found = await self._connection.execute(_TRANSACTIONS, given)
        return [Transaction(**row) async for row in found]

    async def grant(
        self,
        plan: str,
        user: int | None,
        account: int | None,
        ref: str,
        expires: datetime | None,
    ) -> int | None:
        """Nothing, if there is no such plan for such a subscriber."""
        given = {"plan": plan, "user": user, "account": account, "ref": ref, "expires": expires}
        row = await (await self._connection.execute(_GRANT, given)).fetchone()
        return None if row is None else int(row["id"])

    async def cancel(self, number: int, now: datetime) -> None:
        statement = """
            UPDATE subscription SET status = 'cancelled', cancelled_at = %(now)s,
                expires_at = coalesce(expires_at, renews_at, %(now)s), renews_at = NULL,
                event_at = %(now)s
            WHERE id = %(id)s
        """
        await self._connection.execute(statement, {"id": number, "now": now})

    async def locked_account(self, account: int) -> str | None:
        """Its status; nobody else changes what counts against its limits meanwhile."""
        statement = "SELECT status FROM account WHERE id = %s FOR UPDATE"
        row = await (await self._connection.execute(statement, (account,))).fetchone()
        return None if row is None else row["status"]

    async def limit_of_account(
        self, account: int, feature: str, name: str, now: datetime
    ) -> int | None:
        return await self._limit(None, account, feature, name, now)

    async def limit_of_user(self, user: int, feature: str, name: str, now: datetime) -> int | None:
        return await self._limit(user, None, feature, name, now)

    async def _limit(
        self, user: int | None, account: int | None, feature: str, name: str, now: datetime
    ) -> int | None:
        """The largest any plan gives, the one that is free included."""
        given = {"user": user, "account": account, "feature": feature, "name": name, "now": now}
        row = await (await self._connection.execute(_LIMIT, given)).fetchone()
        return None if row is None else row["most"]
