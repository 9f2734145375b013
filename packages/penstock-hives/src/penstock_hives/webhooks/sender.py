"""Sends deliveries of webhooks: leased, retried with growing pauses, logged.

A webhook that failed twenty times in a row is disabled. In production only public addresses are
contacted, so a webhook cannot reach the machines of the installation: a name is resolved once, its
addresses are checked, and the connection goes to one of them. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import httpx

from penstock.core.logs import get_logger
from penstock.core.retry import is_transient
from penstock_hives.database import DatabasePool
from penstock_hives.webhooks.service import WebhookEvent, enqueue_event, sign_payload

log = get_logger(__name__)

TIMEOUT: Final = 5.0
MAX_ATTEMPTS: Final = 8
#: The pause after the first failure; it doubles.
FIRST_PAUSE: Final = timedelta(seconds=10)
LEASE: Final = timedelta(minutes=2)
BATCH: Final = 50
POLL_SECONDS: Final = 5.0
#: Between two messages about the occupancy of one place.
OCCUPANCY_SECONDS: Final = 60.0
#: Consecutive failures after which a webhook is disabled.
MAX_FAILURES: Final = 20
KEPT: Final = timedelta(days=30)

_LEASE: Final = """
    WITH due AS (
        SELECT d.id FROM webhook_delivery d JOIN webhook w ON w.id = d.webhook_id AND w.enabled
        WHERE d.state = 'pending' AND d.next_at <= %(now)s
        ORDER BY d.next_at LIMIT %(limit)s FOR UPDATE OF d SKIP LOCKED
    )
    UPDATE webhook_delivery d SET attempts = attempts + 1, next_at = %(until)s
    FROM due, webhook w WHERE d.id = due.id AND w.id = d.webhook_id
    RETURNING d.id, d.webhook_id, d.event, d.payload, d.attempts, w.url, w.secret
"""
_COMPLETE: Final = """
    UPDATE webhook_delivery SET state = %(state)s, status = %(status)s, error = %(error)s,
        next_at = %(next_at)s, sent_at = CASE WHEN %(state)s::text = 'sent' THEN %(now)s END
    WHERE id = %(id)s
"""
_DISABLE: Final = """
    UPDATE webhook SET enabled = false, disabled_reason = %(reason)s
    WHERE id = %(id)s AND enabled AND (
        SELECT count(*) = %(most)s AND bool_and(state = 'failed') FROM (
            SELECT state FROM webhook_delivery WHERE webhook_id = %(id)s AND state <> 'pending'
            ORDER BY id DESC LIMIT %(most)s) AS last)
"""
_ACCOUNTS: Final = """
    SELECT h.id, h.account_id, h.name FROM hive h
    WHERE h.id = ANY (%s) AND EXISTS (
        SELECT FROM webhook w
        WHERE w.account_id = h.account_id AND w.enabled AND 'occupancy' = ANY (w.events))
"""


#: Host and port → addresses.
Resolver = Callable[[str, int], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class _Delivery:
    id: int
    webhook_id: int
    event: str
    payload: dict[str, Any]
    attempts: int
    url: str
    secret: str


class WebhookSender:
    """Cancel `run` to end it."""

    def __init__(
        self,
        pool: DatabasePool,
        *,
        production: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        client: httpx.AsyncClient | None = None,
        resolve: Resolver | None = None,
    ) -> None:
        self._pool = pool
        self._production = production
        self._clock = clock
        # A connection is for one delivery: another host at its address has another certificate.
        once = httpx.Limits(max_keepalive_connections=0)
        self._client = client or httpx.AsyncClient(
            timeout=TIMEOUT, follow_redirects=False, limits=once, trust_env=False
        )
        self._resolve = resolve or _resolve
        self._occupancy: dict[int, Mapping[str, Any]] = {}
        self._sent_at: dict[int, float] = {}

    def on_occupancy(self, document: Any) -> None:
        """A later figure of the same place replaces one that was not sent yet."""
        if isinstance(document, Mapping) and isinstance(document.get("hive"), int):
            self._occupancy[document["hive"]] = document

    async def run(self) -> None:
        while True:
            try:
                await self.enqueue_occupancy(time.monotonic())
                while await self.send_due():
                    pass
                await self._sweep()
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("webhooks not sent", reason=str(error))
            await asyncio.sleep(POLL_SECONDS)

    async def close(self) -> None:
        await self._client.aclose()

    async def enqueue_occupancy(self, now: float) -> int:
        due = [
            hive
            for hive in self._occupancy
            if now - self._sent_at.get(hive, -OCCUPANCY_SECONDS) >= OCCUPANCY_SECONDS
        ]
        if not due:
            return 0
        added = 0
        async with self._pool.transaction() as connection:
            rows = await (await connection.execute(_ACCOUNTS, (due,))).fetchall()
            for row in rows:
                data = {**self._occupancy[row["id"]], "name": row["name"]}
                added += await enqueue_event(
                    connection, row["account_id"], WebhookEvent.OCCUPANCY, data
                )
        for hive in due:
            del self._occupancy[hive]
            self._sent_at[hive] = now
        return added

    async def send_due(self) -> int:
        now = self._clock()
        async with self._pool.transaction() as connection:
            given = {"now": now, "until": now + LEASE, "limit": BATCH}
            rows = await (await connection.execute(_LEASE, given)).fetchall()
        leased = [_Delivery(**row) for row in rows]
        await asyncio.gather(*(self._send(each) for each in leased))
        return len(leased)

    async def _send(self, delivery: _Delivery) -> None:
        document = {**delivery.payload, "delivery": delivery.id}
        body = json.dumps(document, separators=(",", ":")).encode()
        stamp = int(self._clock().timestamp())
        headers = {
            "content-type": "application/json",
            "user-agent": "Penstock-Hives",
            "penstock-event": delivery.event,
            "penstock-delivery": str(delivery.id),
            "penstock-signature": sign_payload(delivery.secret, body, stamp),
        }
        status, error = None, ""
        try:
            url, extensions = delivery.url, {}
            if self._production:
                parts = urlsplit(url)
                url = await self._pin(parts)
                headers["host"] = parts.netloc
                extensions["sni_hostname"] = parts.hostname  # and the name in the certificate
            async with self._client.stream(
                "POST", url, content=body, headers=headers, extensions=extensions
            ) as response:
                status = response.status_code
                if not response.is_success:
                    error = f"the webhook responded {status}"
        except (httpx.HTTPError, OSError, ValueError) as failure:
            error = f"{type(failure).__name__}: {failure}"[:300]
        await self._complete(delivery, status, error)

    async def _pin(self, parts: SplitResult) -> str:
        """The URL with an address instead of the name; raises if one of the name is not public."""
        host, port = parts.hostname or "", parts.port or 443
        addresses = [ipaddress.ip_address(each) for each in await self._resolve(host, port)]
        if not addresses or not all(each.is_global for each in addresses):
            raise ValueError(f"{host} is not a public address")
        address = f"[{addresses[0]}]" if addresses[0].version == 6 else str(addresses[0])
        return parts._replace(netloc=f"{address}:{port}").geturl()

    async def _complete(self, delivery: _Delivery, status: int | None, error: str) -> None:
        now = self._clock()
        state, again = "sent", now
        if error:
            state = "failed" if delivery.attempts >= MAX_ATTEMPTS else "pending"
            again = now + FIRST_PAUSE * 2 ** (delivery.attempts - 1)
        facts = {"id": delivery.id, "state": state, "status": status, "error": error, "now": now}
        async with self._pool.transaction() as connection:
            if state == "failed":  # one at a time, so that the last one sees all others
                lock = "SELECT FROM webhook WHERE id = %s FOR UPDATE"
                await connection.execute(lock, (delivery.webhook_id,))
            await connection.execute(_COMPLETE, {**facts, "next_at": again})
            if state == "failed":
                given = {"id": delivery.webhook_id, "most": MAX_FAILURES, "reason": error}
                await connection.execute(_DISABLE, given)

    async def _sweep(self) -> None:
        await self._pool.execute(
            "DELETE FROM webhook_delivery WHERE created_at < %s", (self._clock() - KEPT,)
        )


async def _resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]).partition("%")[0] for *_, address in found]
