"""The application in a test: callers by name, a business when one is wanted, rows as they come.

A token is the name of who shows it. What the database should already know is entered as the
pipeline or a provider would have: directly.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from PIL import Image

from penstock.client import BrokerUnreachable
from penstock.core.errors import AuthenticationFailed
from penstock_hives.identity.tokens import Identity
from penstock_hives.resources import Resources
from penstock_hives.sensors.broker import SensorBroker
from penstock_store import Database

#: A Monday noon in Berlin's winter.
NOON = datetime(2026, 3, 2, 11, 0, tzinfo=UTC)
HOURS = {day: [["09:00", "18:00"]] for day in ("mon", "tue", "wed", "thu", "fri")}


class Names:
    """Vouches for everybody by the name they give; a name with a dot in it is forged."""

    async def verify(self, token: str) -> Identity:
        if "." in token:
            raise AuthenticationFailed("this token does not hold")
        return Identity(token)


class Post(SensorBroker):
    """A broker that records users and retained messages, or cannot be reached."""

    def __init__(self) -> None:
        super().__init__(None, None)
        self.away = False
        self.users: dict[str, str] = {}
        self.retained: dict[str, bytes] = {}

    async def create_user(self, serial: str, user: str, password: str) -> None:
        self._there()
        self.users[user] = password

    async def delete_user(self, user: str) -> None:
        self._there()
        self.users.pop(user, None)

    async def publish_retained(self, topic: str, body: bytes) -> None:
        self._there()
        self.retained[topic] = body

    async def close(self) -> None: ...

    def _there(self) -> None:
        if self.away:
            raise BrokerUnreachable("localhost", 1883, "refused")


@dataclass(frozen=True)
class Business:
    """An account with an admin, a member and a hive."""

    admin: str
    member: str
    account: int
    hive: int


class Hands:
    """What the clock shows; tests move it."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


class World:
    def __init__(
        self, client: httpx.AsyncClient, database: Database, resources: Resources, post: Post
    ) -> None:
        self.client = client
        self.database = database
        self.resources = resources
        self.post = post
        clock = resources.clock
        assert isinstance(clock, Hands)
        self.clock = clock

    async def tend(self) -> None:
        await self.resources.services.commands.deliver_pending()

    async def call(
        self, verb: str, path: str, who: str | None = None, **given: Any
    ) -> httpx.Response:
        headers = {**given.pop("headers", {})}
        if who is not None:
            headers["Authorization"] = f"Bearer {who}"
        return await self.client.request(verb, f"/v1{path}", headers=headers, **given)

    async def get(self, path: str, who: str | None = None, **given: Any) -> httpx.Response:
        return await self.call("GET", path, who, **given)

    async def read(self, path: str, who: str | None = None, **given: Any) -> Any:
        """What a GET that has to succeed answers with."""
        answer = await self.get(path, who, **given)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def make(self, path: str, who: str | None, body: Any = None, **given: Any) -> Any:
        """What a POST that has to succeed answers with."""
        answer = await self.call("POST", path, who, json=body, **given)
        assert answer.status_code in (200, 201, 202, 204), answer.text
        return answer.json() if answer.content else None

    async def put(self, path: str, who: str | None, body: Any = None) -> httpx.Response:
        return await self.call("PUT", path, who, json=body)

    async def patch(
        self, path: str, who: str | None, body: Any, seen: str | None = None
    ) -> httpx.Response:
        headers = {} if seen is None else {"If-Match": seen}
        return await self.call("PATCH", path, who, json=body, headers=headers)

    async def delete(self, path: str, who: str | None) -> httpx.Response:
        return await self.call("DELETE", path, who)

    async def user(self, name: str | None = None, role: str = "user") -> str:
        """Somebody who was here before."""
        who = name or f"u{uuid.uuid4().hex[:12]}"
        await self.read("/me", who)
        if role != "user":
            self.rows("UPDATE app_user SET role = %s WHERE firebase_uid = %s", role, who)
        return who

    async def number(self, who: str) -> int:
        return int((await self.read("/me", who))["id"])

    async def business(self, plan: str | None = "business", **hive: Any) -> Business:
        admin, member = await self.user(), await self.user()
        account = (await self.make("/accounts", admin, {"name": "Ada's Places"}))["id"]
        if plan is not None:
            self.subscribe(plan, account=account)
        await self.join(account, admin, member)
        return Business(admin, member, account, await self.hive(admin, account, **hive))

    async def join(self, account: int, admin: str, who: str, role: str = "account_member") -> None:
        """Somebody is invited, and accepts."""
        path = f"/accounts/{account}/invitations/{await self.number(who)}"
        assert (await self.put(path, admin, {"role": role})).status_code == 200
        await self.make(f"/me/invitations/{account}/accept", who)

    async def hive(self, admin: str, account: int, **values: Any) -> int:
        self.type(values.get("type", "bar"))
        body = {"name": "The Comb", "type": "bar", "time_zone": "Europe/Berlin", **values}
        return int((await self.make(f"/accounts/{account}/hives", admin, body))["id"])

    def type(self, code: str) -> None:
        self.rows(
            "INSERT INTO hive_type (code, name) VALUES (%s, initcap(%s)) ON CONFLICT DO NOTHING",
            *(code, code),
        )

    def subscribe(self, plan: str, *, user: int | None = None, account: int | None = None) -> int:
        [row] = self.rows(
            """
            INSERT INTO subscription
                (user_id, account_id, subscription_type_id, provider, provider_ref, status,
                 started_at)
            SELECT %s, %s, id, 'manual', %s, 'active', %s FROM subscription_type WHERE code = %s
            RETURNING id
            """,
            *(user, account, uuid.uuid4().hex, NOON - timedelta(days=400), plan),
        )
        return int(row["id"])

    def status(self, hive: int, occupancy: int, **values: Any) -> None:
        """How full a hive is, as the pipeline says it."""
        given = {
            "percent": None,
            "level": "quiet",
            "trend": "steady",
            "quality": "good",
            "as_of": self.clock.now,
            **values,
        }
        self.rows(
            """
            INSERT INTO hive_status AS held
                (hive_id, occupancy, raw_occupancy, percent, level, trend, quality, as_of, version)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 1)
            ON CONFLICT (hive_id) DO UPDATE SET occupancy = excluded.occupancy,
                percent = excluded.percent, level = excluded.level, quality = excluded.quality,
                as_of = excluded.as_of, version = held.version + 1
            """,
            *(hive, occupancy, occupancy, *given.values()),
        )

    def rows(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        with self.database.transaction() as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []


def png(width: int = 60, height: int = 40, mode: str = "RGB", colour: Any = "orange") -> bytes:
    out = io.BytesIO()
    Image.new(mode, (width, height), colour).save(out, "PNG")
    return out.getvalue()


def deal(**values: Any) -> Mapping[str, Any]:
    """A deal that runs at noon."""
    return {
        "title": "Two for one",
        "kind": "promotion",
        "starts_at": (NOON - timedelta(days=1)).isoformat(),
        "expires_at": (NOON + timedelta(days=2)).isoformat(),
        **values,
    }
