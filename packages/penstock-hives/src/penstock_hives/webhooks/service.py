"""Webhooks: created by admins of a business, with a secret that is shown once, and a delivery log.

A delivery is a POST of JSON with these headers:

    Penstock-Event: occupancy
    Penstock-Delivery: 4711
    Penstock-Signature: t=1793790000,v1=<hex>

The signature is the HMAC-SHA256 of `<t>.<body>` with the secret. A delivery may arrive twice, with
the same number.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from psycopg.types.json import Jsonb

from penstock.core.addresses import is_loopback
from penstock.core.errors import NotFound
from penstock_hives.database import Connection, DatabasePool, fetch_all, fetch_one, insert_row
from penstock_hives.errors import RequestConflict, TooManyRequests, invalid_field
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.people.repository import AuditRepository

MAX_WEBHOOKS: Final = 10
#: Of a webhook in a minute.
MAX_TESTS: Final = 5
_TESTS: Final = """
    SELECT FROM webhook_delivery
    WHERE webhook_id = %s AND event = 'test' AND created_at > now() - interval '1 minute'
"""
_COLUMNS: Final = "id, account_id, url, events, enabled, disabled_reason, created_at FROM webhook"
_DELIVERIES: Final = """
    SELECT id, webhook_id, event, state, attempts, status, error, created_at, sent_at
    FROM webhook_delivery WHERE webhook_id = %s ORDER BY id DESC LIMIT %s
"""
_ENQUEUE: Final = """
    INSERT INTO webhook_delivery (webhook_id, event, payload)
    SELECT id, %(event)s, %(payload)s FROM webhook
    WHERE account_id = %(account)s AND enabled AND %(event)s = ANY (events)
"""


class WebhookEvent(StrEnum):
    OCCUPANCY = "occupancy"  #: the occupancy of a place, at most once a minute
    SENSOR_ALERT = "sensor_alert"  #: something is wrong with a sensor, or no longer
    SENSOR = "sensor"  #: a sensor was registered, changed, configured, replaced or retired
    DEAL = "deal"  #: a code was verified


@dataclass(frozen=True, slots=True)
class Webhook:
    id: int
    account_id: int
    url: str
    events: list[str]
    enabled: bool
    disabled_reason: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    id: int
    webhook_id: int
    event: str
    state: str
    attempts: int
    status: int | None  #: of the last response
    error: str
    created_at: datetime
    sent_at: datetime | None


def check_webhook_url(url: str, *, production: bool) -> str:
    parts = urlsplit(url.strip())
    local = parts.scheme == "http" and is_loopback(parts.hostname or "") and not production
    if not parts.hostname or parts.username or not (parts.scheme == "https" or local):
        raise invalid_field("url", "must be an https URL")
    return parts.geturl()


def sign_payload(secret: str, body: bytes, stamp: int) -> str:
    mac = hmac.new(secret.encode(), b"%d." % stamp + body, hashlib.sha256)
    return f"t={stamp},v1={mac.hexdigest()}"


class WebhookService:
    def __init__(
        self, pool: DatabasePool, clock: Callable[[], datetime], *, production: bool = False
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._production = production

    async def of_account(self, caller: Caller, account: int) -> list[Webhook]:
        caller.require(AppPermission.EDIT_ACCOUNT, account)
        async with self._pool.reading() as connection:
            statement = f"SELECT {_COLUMNS} WHERE account_id = %s ORDER BY id"
            return await fetch_all(connection, Webhook, statement, (account,))

    async def add(
        self, caller: Caller, account: int, url: str, events: Sequence[WebhookEvent]
    ) -> tuple[Webhook, str]:
        """The webhook and its secret."""
        caller.require(AppPermission.EDIT_ACCOUNT, account)
        url = check_webhook_url(url, production=self._production)
        secret = f"whsec_{secrets.token_urlsafe(32)}"
        async with self._pool.transaction() as connection:
            await connection.execute("SELECT FROM account WHERE id = %s FOR UPDATE", (account,))
            held = await connection.execute("SELECT FROM webhook WHERE account_id = %s", (account,))
            if held.rowcount >= MAX_WEBHOOKS:
                raise RequestConflict(f"at most {MAX_WEBHOOKS} webhooks: remove one first")
            names = tuple(event.value for event in events)
            values = {"account_id": account, "url": url, "secret": secret, "events": names}
            number = await insert_row(connection, "webhook", values)
            await AuditRepository(connection).record(caller, "add", "webhook", number, account)
            made = await self._get(connection, caller, number)
        return made, secret

    async def enable(self, caller: Caller, webhook: int) -> None:
        async with self._pool.transaction() as connection:
            held = await self._get(connection, caller, webhook)
            await connection.execute(
                "UPDATE webhook SET enabled = true, disabled_reason = '' WHERE id = %s", (webhook,)
            )
            await AuditRepository(connection).record(
                caller, "enable", "webhook", webhook, held.account_id
            )

    async def remove(self, caller: Caller, webhook: int) -> None:
        async with self._pool.transaction() as connection:
            held = await self._get(connection, caller, webhook)
            await connection.execute("DELETE FROM webhook WHERE id = %s", (webhook,))
            await AuditRepository(connection).record(
                caller, "remove", "webhook", webhook, held.account_id
            )

    async def deliveries(self, caller: Caller, webhook: int, limit: int) -> list[WebhookDelivery]:
        """The newest first."""
        async with self._pool.reading() as connection:
            await self._get(connection, caller, webhook)
            return await fetch_all(connection, WebhookDelivery, _DELIVERIES, (webhook, limit))

    async def test(self, caller: Caller, webhook: int) -> None:
        """Send a test event."""
        async with self._pool.transaction() as connection:
            await self._get(connection, caller, webhook)
            await connection.execute("SELECT FROM webhook WHERE id = %s FOR UPDATE", (webhook,))
            tests = await connection.execute(_TESTS, (webhook,))
            if tests.rowcount >= MAX_TESTS:
                raise TooManyRequests(f"at most {MAX_TESTS} tests a minute", 60.0)
            values = {"webhook_id": webhook, "event": "test", "payload": {"event": "test"}}
            await insert_row(connection, "webhook_delivery", values)

    async def _get(self, connection: Connection, caller: Caller, webhook: int) -> Webhook:
        statement = f"SELECT {_COLUMNS} WHERE id = %s"
        found = await fetch_one(connection, Webhook, statement, (webhook,))
        if found is None or not caller.may(AppPermission.EDIT_ACCOUNT, found.account_id):
            raise NotFound(f"there is no webhook {webhook} of yours")
        return found


async def enqueue_event(
    connection: Connection, account: int, event: WebhookEvent, data: dict[str, Any]
) -> int:
    """In the transaction of the event; returns the number of deliveries."""
    given = {"account": account, "event": event.value, "payload": Jsonb({"event": event, **data})}
    return (await connection.execute(_ENQUEUE, given)).rowcount
