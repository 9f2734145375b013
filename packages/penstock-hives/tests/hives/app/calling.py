"""The whole application in this process, with people of every role who call it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from penstock_hives.alerts import endpoints as alerts
from penstock_hives.api.app import PREFIX, ROUTERS, create_app
from penstock_hives.billing import endpoints as payments
from penstock_hives.billing.settings import PaymentSettings, open_providers
from penstock_hives.database import DatabasePool
from penstock_hives.identity import endpoints as identity
from penstock_hives.identity.service import LocalIdentity, open_identity
from penstock_hives.identity.settings import IdentitySettings
from penstock_hives.people.permissions import UserRole
from penstock_hives.push import endpoints as push
from penstock_hives.push.settings import PushSettings
from penstock_hives.resources import Resources, open_resources
from penstock_hives.settings import HivesSettings

OURS = (identity.router, push.router, payments.router, alerts.router)

_ENTER = """
    INSERT INTO app_user (firebase_uid, role) VALUES (%(uid)s, %(role)s)
    ON CONFLICT (firebase_uid) DO UPDATE SET role = excluded.role, deleted_at = NULL
    RETURNING id
"""
_JOIN = """
    INSERT INTO account_member (account_id, user_id, role) VALUES (1, %(id)s, %(role)s)
    ON CONFLICT (account_id, user_id) DO UPDATE SET role = excluded.role
"""


@dataclass(frozen=True)
class Called:
    """An application, and who vouches for those who call it."""

    app: FastAPI
    client: httpx.AsyncClient
    resources: Resources
    issuer: LocalIdentity
    routers: tuple[APIRouter, ...]

    def routes(self) -> dict[tuple[str, str], APIRoute]:
        """What answers which call."""
        return {
            (verb.lower(), PREFIX + route.path): route
            for router in self.routers
            for route in router.routes
            if isinstance(route, APIRoute)
            for verb in route.methods or ()
        }

    def headers(self, uid: str | None) -> dict[str, str]:
        if uid is None:
            return {}
        return {"Authorization": f"Bearer {self.issuer.issuer.issue(uid).token}"}

    async def enter(self, role: UserRole) -> str | None:
        """Have somebody of this role, working for account 1 if that is their role. Their uid."""
        if role is UserRole.ANONYMOUS:
            return None
        uid = f"the-{role}"
        row = await self.resources.pool.row(_ENTER, {"uid": uid, "role": role.value})
        assert row is not None
        if role in (UserRole.ACCOUNT_MEMBER, UserRole.ACCOUNT_ADMIN):
            await self.resources.pool.execute(_JOIN, {"id": row["id"], "role": role.value})
        return uid

    async def call(
        self, verb: str, path: str, uid: str | None = None, **more: Any
    ) -> httpx.Response:
        headers = {**self.headers(uid), **more.pop("headers", {})}
        return await self.client.request(verb, path, headers=headers, **more)


@asynccontextmanager
async def called(
    database: str, folder: Path, *, payment: PaymentSettings | None = None, **settings: Any
) -> AsyncIterator[Called]:
    given = HivesSettings(
        database=database,
        images=folder / "images",
        pool_size=4,
        pool_wait=60.0,
        statement_seconds=60.0,
        rate_known=1e6,
        rate_anonymous=1e6,
        **settings,
    )
    who = IdentitySettings(folder=folder / "identity", mail="smtp://mail.invalid")
    async with (
        open_identity(who, production=given.production, environment={}) as identify,
        open_resources(given, identify) as resources,
    ):
        assert isinstance(identify, LocalIdentity)
        extra = [each for each in OURS if not listed(each, ROUTERS)]
        app = create_app(resources, extra)
        app.state.push = PushSettings(vapid_key=folder / "vapid.pem", local=True)
        app.state.payments = open_providers(
            payment or PaymentSettings(), production=given.production
        )
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://hives") as client:
            yield Called(app, client, resources, identify, (*ROUTERS, *extra))


def listed(router: object, routers: Sequence[object]) -> bool:
    return any(each is router for each in routers)


_EMPTY = """
    DELETE FROM app_user; DELETE FROM credential; DELETE FROM sign_in_failure;
    DELETE FROM payment_event;
    DELETE FROM idempotency_key; DELETE FROM hive; DELETE FROM account; DELETE FROM hive_type;
    DELETE FROM address; DELETE FROM audit_log; DELETE FROM user_analytics;
"""


async def empty(pool: DatabasePool) -> None:
    """As a database is that nobody has used: quicker than another one."""
    await pool.execute(_EMPTY)
