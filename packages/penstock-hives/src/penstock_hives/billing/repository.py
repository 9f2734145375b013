"""Plans, subscriptions, transactions and billing events in SQL.

Events of one provider are processed by one transaction at a time, so that two events of the same
subscription are never folded separately.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from penstock_hives.billing.models import (
    BillingEvent,
    FoldedSubscription,
    HeldSubscription,
    LedgerEntry,
    PaymentProvider,
    PaymentTransaction,
    PlanFeature,
    PlanSubscription,
    SubscriptionOwner,
    SubscriptionPlan,
    SubscriptionState,
    SubscriptionStatus,
    plan_required,
)
from penstock_hives.database import Connection, fetch_all, fetch_one
from penstock_hives.errors import PlanRequired
from penstock_hives.people.permissions import PlanFeatureCode

#: Owners with their plans at `now`, and each feature.
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

    async def plans(self) -> list[SubscriptionPlan]:
        found = await (await self._connection.execute(_PLANS)).fetchall()
        features: dict[str, list[PlanFeature]] = {}
        for row in found:
            of = features.setdefault(row["code"], [])
            if row["feature"] is not None:
                of.append(PlanFeature(row["feature"], row["feature_name"], row["limits"]))
        names = ("code", "name", "price", "currency", "period", "audience")
        first = {row["code"]: row for row in reversed(found)}
        return [
            SubscriptionPlan(**{name: first[code][name] for name in names}, features=tuple(of))
            for code, of in features.items()
        ]

    async def subscriptions(
        self, user: int | None = None, account: int | None = None
    ) -> list[PlanSubscription]:
        statement = f"""
            {_SUBSCRIPTION} WHERE s.user_id = %(user)s OR s.account_id = %(account)s
            ORDER BY s.id DESC LIMIT 100
        """
        given = {"user": user, "account": account}
        return await fetch_all(self._connection, PlanSubscription, statement, given)

    async def subscription(self, number: int, *, lock: bool = False) -> PlanSubscription | None:
        statement = f"{_SUBSCRIPTION} WHERE s.id = %s {'FOR UPDATE OF s' if lock else ''}"
        return await fetch_one(self._connection, PlanSubscription, statement, (number,))

    async def transactions(
        self, user: int | None, account: int | None, before: int | None, limit: int
    ) -> list[PaymentTransaction]:
        given = {"user": user, "account": account, "before": before, "limit": limit}
        return await fetch_all(self._connection, PaymentTransaction, _TRANSACTIONS, given)

    async def grant(
        self,
        plan: str,
        user: int | None,
        account: int | None,
        ref: str,
        expires: datetime | None,
    ) -> int | None:
        """None: no such plan for this kind of owner."""
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
        """The status; the account is locked until the end of the transaction."""
        statement = "SELECT status FROM account WHERE id = %s FOR UPDATE"
        row = await (await self._connection.execute(statement, (account,))).fetchone()
        return None if row is None else row["status"]

    async def required(self, feature: PlanFeatureCode, detail: str, most: int = 0) -> PlanRequired:
        return plan_required(await self.plans(), feature, detail, most)

    async def limit_of_account(
        self, account: int, feature: PlanFeatureCode, name: str, now: datetime
    ) -> int | None:
        return await self._limit(None, account, feature, name, now)

    async def limit_of_user(
        self, user: int, feature: PlanFeatureCode, name: str, now: datetime
    ) -> int | None:
        return await self._limit(user, None, feature, name, now)

    async def _limit(
        self,
        user: int | None,
        account: int | None,
        feature: PlanFeatureCode,
        name: str,
        now: datetime,
    ) -> int | None:
        """The largest limit of any plan, the free one included."""
        given = {"user": user, "account": account, "feature": feature, "name": name, "now": now}
        row = await (await self._connection.execute(_LIMIT, given)).fetchone()
        return None if row is None else row["most"]


_ADD_EVENT: Final = """
    INSERT INTO payment_event (provider, provider_event_id, event_at, kind, payload, ref, related,
                               facts)
    VALUES (%(provider)s, %(id)s, %(at)s, %(kind)s, %(payload)s, %(ref)s, %(related)s, %(facts)s)
    ON CONFLICT (provider, provider_event_id) DO NOTHING
"""
#: Events with a payment only get the subscription of another event with the same payment.
_ADOPT: Final = """
    UPDATE payment_event orphan SET ref = known.ref
    FROM payment_event known
    WHERE orphan.provider = %(provider)s AND orphan.related = %(related)s AND orphan.ref IS NULL
      AND known.provider = orphan.provider AND known.related = orphan.related
      AND known.ref IS NOT NULL
"""
_REF: Final = """
    SELECT ref FROM payment_event WHERE provider = %s AND provider_event_id = %s
"""
_EVENTS: Final = """
    SELECT provider, provider_event_id, event_at, kind, ref, related, facts
    FROM payment_event WHERE provider = %s AND ref = %s
"""
_SUBSCRIBE: Final = """
    INSERT INTO subscription AS held
        (user_id, account_id, subscription_type_id, provider, provider_ref, status, started_at,
         renews_at, cancelled_at, expires_at, event_at)
    SELECT %(user_id)s, %(account_id)s, plan.id, %(provider)s, %(ref)s, %(status)s,
           coalesce(%(started_at)s, %(event_at)s), %(renews_at)s, %(cancelled_at)s,
           %(expires_at)s, %(event_at)s
    FROM subscription_type plan
    WHERE plan.code = %(plan)s
    ON CONFLICT (provider, provider_ref) DO UPDATE SET
        user_id = excluded.user_id, account_id = excluded.account_id,
        subscription_type_id = excluded.subscription_type_id, status = excluded.status,
        started_at = excluded.started_at, renews_at = excluded.renews_at,
        cancelled_at = excluded.cancelled_at, expires_at = excluded.expires_at,
        event_at = excluded.event_at
    RETURNING id
"""
_ADD_ENTRY: Final = """
    INSERT INTO transaction (subscription_id, provider_event_id, kind, amount, currency, at)
    VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (provider_event_id) DO NOTHING
"""
_APPLIED: Final = """
    UPDATE payment_event SET applied_at = %s, error = NULL
    WHERE provider = %s AND ref = %s AND applied_at IS NULL
"""
_ERROR: Final = """
    UPDATE payment_event SET error = %s WHERE provider = %s AND provider_event_id = %s
"""
_SUBSCRIPTIONS: Final = """
    SELECT held.provider, plan.code AS plan, plan.rank, held.status, held.expires_at,
           coalesce((
               SELECT jsonb_object_agg(feature.code, given.limits)
               FROM subscription_type_feature given
               JOIN feature ON feature.id = given.feature_id
               WHERE given.subscription_type_id = plan.id
           ), '{}') AS features
    FROM subscription held
    JOIN subscription_type plan ON plan.id = held.subscription_type_id
    WHERE held.user_id = %(user_id)s OR held.account_id = %(account_id)s
"""
_EXISTS: Final = """
    SELECT EXISTS (SELECT FROM app_user WHERE id = %(user_id)s AND deleted_at IS NULL)
        OR EXISTS (SELECT FROM account WHERE id = %(account_id)s) AS found
"""


class BillingLedger:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def lock(self, provider: PaymentProvider) -> None:
        """Lock the events of a provider until the end of the transaction."""
        statement = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
        await self._connection.execute(statement, (f"payments {provider}",))

    async def add(self, event: BillingEvent) -> bool:
        """False for a repetition."""
        facts = {
            "provider": event.provider,
            "id": event.id,
            "at": event.at,
            "kind": event.name,
            "payload": json.dumps(event.payload, default=str),
            "ref": event.ref,
            "related": event.related,
            "facts": json.dumps(event_to_json(event)),
        }
        return (await self._connection.execute(_ADD_EVENT, facts)).rowcount == 1

    async def reference(self, event: BillingEvent) -> str | None:
        """The subscription of an event, named by it or by another event of the same payment."""
        if event.related is not None:
            given = {"provider": event.provider, "related": event.related}
            await self._connection.execute(_ADOPT, given)
        row = await (await self._connection.execute(_REF, (event.provider, event.id))).fetchone()
        return row["ref"] if row else None

    async def events(self, provider: PaymentProvider, ref: str) -> list[BillingEvent]:
        rows = await (await self._connection.execute(_EVENTS, (provider, ref))).fetchall()
        return [event_from_row(row) for row in rows]

    async def owner_exists(self, owner: SubscriptionOwner) -> bool:
        given = {"user_id": owner.user_id, "account_id": owner.account_id}
        row = await (await self._connection.execute(_EXISTS, given)).fetchone()
        return row is not None and bool(row["found"])

    async def subscribe(
        self, provider: PaymentProvider, ref: str, folded: FoldedSubscription
    ) -> int | None:
        """Write the subscription; returns its id, or None if the plan does not exist."""
        state = folded.state
        facts: dict[str, Any] = {
            "user_id": folded.owner.user_id,
            "account_id": folded.owner.account_id,
            "provider": provider,
            "ref": ref,
            "plan": state.plan,
            "status": state.status,
            "started_at": state.started_at,
            "renews_at": state.renews_at,
            "cancelled_at": state.cancelled_at,
            "expires_at": folded.active_until,
            "event_at": folded.event_at,
        }
        row = await (await self._connection.execute(_SUBSCRIBE, facts)).fetchone()
        return row["id"] if row else None

    async def add_entry(self, subscription: int, event: BillingEvent) -> None:
        """The transaction of an event, once."""
        if event.entry is None:
            return
        line = (
            subscription,
            f"{event.provider}:{event.id}",
            event.entry.kind,
            event.entry.amount,
            event.entry.currency,
            event.at,
        )
        await self._connection.execute(_ADD_ENTRY, line)

    async def mark_applied(self, provider: PaymentProvider, ref: str, now: datetime) -> None:
        await self._connection.execute(_APPLIED, (now, provider, ref))

    async def mark_failed(self, event: BillingEvent, reason: str) -> None:
        await self._connection.execute(_ERROR, (reason, event.provider, event.id))

    async def subscriptions(self, owner: SubscriptionOwner) -> list[HeldSubscription]:
        """All subscriptions of an owner, ended ones included."""
        given = {"user_id": owner.user_id, "account_id": owner.account_id}
        rows = await (await self._connection.execute(_SUBSCRIPTIONS, given)).fetchall()
        return [
            HeldSubscription(**{**row, "status": SubscriptionStatus(row["status"])}) for row in rows
        ]


_OWNER: Final = TypeAdapter(SubscriptionOwner | None)
_STATE: Final = TypeAdapter(SubscriptionState | None)
_ENTRY: Final = TypeAdapter(LedgerEntry | None)


def event_to_json(event: BillingEvent) -> dict[str, Any]:
    """Column `facts`."""
    facts = {"owner": event.owner, "standing": event.state, "money": event.entry}
    found: dict[str, Any] = to_jsonable_python(
        {name: value for name, value in facts.items() if value is not None}
    )
    return found


def event_from_row(row: Mapping[str, Any]) -> BillingEvent:
    """Without the payload."""
    facts = row["facts"]
    return BillingEvent(
        PaymentProvider(row["provider"]),
        row["provider_event_id"],
        row["event_at"],
        row["kind"],
        row["ref"],
        row["related"],
        _OWNER.validate_python(facts.get("owner")),
        _STATE.validate_python(facts.get("standing")),
        _ENTRY.validate_python(facts.get("money")),
    )
