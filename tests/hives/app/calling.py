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

from penstock.hives.app.api import alerts, identity, payments, push
from penstock.hives.app.api.app import PREFIX, ROUTERS, create_app
from penstock.hives.app.domain.roles import Role
from penstock.hives.app.identity.opening import Local, open_identity
from penstock.hives.app.identity.settings import IdentitySettings
from penstock.hives.app.payments.settings import PaymentSettings, open_providers
from penstock.hives.app.push.settings import PushSettings
from penstock.hives.app.repositories.pool import Pool
from penstock.hives.app.resources import Resources, open_resources
from penstock.hives.app.settings import Settings

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
    issuer: Local
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

    async def enter(self, role: Role) -> str | None:
        """Have somebody of this role, working for account 1 if that is their role. Their uid."""
        if role is Role.ANONYMOUS:
            return None
        uid = f"the-{role}"
        row = await self.resources.pool.row(_ENTER, {"uid": uid, "role": role.value})
        assert row is not None
        if role in (Role.ACCOUNT_MEMBER, Role.ACCOUNT_ADMIN):
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
    given = Settings(
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
        assert isinstance(identify, Local)
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


async def empty(pool: Pool) -> None:
    """As a database is that nobody has used: quicker than another one."""
    await pool.execute(_EMPTY)
