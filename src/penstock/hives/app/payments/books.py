"""Events, subscriptions and transactions, as rows.

Everything about one provider is done by one transaction at a time: webhooks are few, and two about
the same subscription must not each fold half of its events.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from penstock.hives.app.payments.entitlement import Held
from penstock.hives.app.payments.events import Event, Owner, Provider, Status
from penstock.hives.app.payments.facts import from_row, to_facts
from penstock.hives.app.payments.folding import Subscribed
from penstock.hives.app.repositories.pool import Connection

_KEEP: Final = """
    INSERT INTO payment_event (provider, provider_event_id, event_at, kind, payload, ref, related,
                               facts)
    VALUES (%(provider)s, %(id)s, %(at)s, %(kind)s, %(payload)s, %(ref)s, %(related)s, %(facts)s)
    ON CONFLICT (provider, provider_event_id) DO NOTHING
"""
#: Events that name a payment only belong to the subscription another event names with it.
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
_BOOK: Final = """
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
_HELD: Final = """
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


class PaymentBooks:
    """Over a connection, within a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def lock(self, provider: Provider) -> None:
        """Until the end of the transaction nobody else works on this provider's events."""
        statement = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
        await self._connection.execute(statement, (f"payments {provider}",))

    async def keep(self, event: Event) -> bool:
        """Whether it is new."""
        facts = {
            "provider": event.provider,
            "id": event.id,
            "at": event.at,
            "kind": event.name,
            "payload": json.dumps(event.payload, default=str),
            "ref": event.ref,
            "related": event.related,
            "facts": json.dumps(to_facts(event)),
        }
        return (await self._connection.execute(_KEEP, facts)).rowcount == 1

    async def reference(self, event: Event) -> str | None:
        """Which subscription an event is about, itself or by a payment it shares with another."""
        if event.related is not None:
            given = {"provider": event.provider, "related": event.related}
            await self._connection.execute(_ADOPT, given)
        row = await (await self._connection.execute(_REF, (event.provider, event.id))).fetchone()
        return row["ref"] if row else None

    async def events(self, provider: Provider, ref: str) -> list[Event]:
        rows = await (await self._connection.execute(_EVENTS, (provider, ref))).fetchall()
        return [from_row(row) for row in rows]

    async def known(self, owner: Owner) -> bool:
        given = {"user_id": owner.user_id, "account_id": owner.account_id}
        row = await (await self._connection.execute(_EXISTS, given)).fetchone()
        return row is not None and bool(row["found"])

    async def subscribe(self, provider: Provider, ref: str, folded: Subscribed) -> int | None:
        """The subscription as it stands now, its id; None, if there is no such plan."""
        standing = folded.standing
        facts: dict[str, Any] = {
            "user_id": folded.owner.user_id,
            "account_id": folded.owner.account_id,
            "provider": provider,
            "ref": ref,
            "plan": standing.plan,
            "status": standing.status,
            "started_at": standing.started_at,
            "renews_at": standing.renews_at,
            "cancelled_at": standing.cancelled_at,
            "expires_at": folded.served_until,
            "event_at": folded.event_at,
        }
        row = await (await self._connection.execute(_SUBSCRIBE, facts)).fetchone()
        return row["id"] if row else None

    async def book(self, subscription: int, event: Event) -> None:
        """The line of the books an event is, once."""
        if event.money is None:
            return
        line = (
            subscription,
            f"{event.provider}:{event.id}",
            event.money.kind,
            event.money.amount,
            event.money.currency,
            event.at,
        )
        await self._connection.execute(_BOOK, line)

    async def applied(self, provider: Provider, ref: str, now: datetime) -> None:
        await self._connection.execute(_APPLIED, (now, provider, ref))

    async def failed(self, event: Event, reason: str) -> None:
        await self._connection.execute(_ERROR, (reason, event.provider, event.id))

    async def held(self, owner: Owner) -> list[Held]:
        """All subscriptions of somebody, those that are over too."""
        given = {"user_id": owner.user_id, "account_id": owner.account_id}
        rows = await (await self._connection.execute(_HELD, given)).fetchall()
        return [Held(**{**row, "status": Status(row["status"])}) for row in rows]
