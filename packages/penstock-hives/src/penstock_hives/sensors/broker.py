"""The broker as the application needs it: users for sensors, and what is said to them.

Users and their permissions go through the management API, which RabbitMQ has as well; what sensors
are told goes through the client, as a retained message where the URL is `mqtt://`. Both are reached
for when there is something to do, so that the application starts, and serves, without a broker; and
so are the modules they need, which a worker that never speaks to a sensor does without.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from penstock.client.errors import BrokerUnreachable
from penstock.core.errors import AccessRefused
from penstock_hives.errors import NotConfigured

if TYPE_CHECKING:
    from penstock.client import Fabric

#: Seconds a broker has for an answer, a connection included.
REQUEST_TIMEOUT: Final = 5.0


class SensorBroker(Protocol):
    async def admit(self, serial: str, user: str, password: str) -> None:
        """A user that is this sensor and nobody else."""

    async def dismiss(self, user: str) -> None:
        """There is no such user any more."""

    async def retain(self, topic: str, body: bytes) -> None:
        """Said now, and to who subscribes later."""

    async def close(self) -> None: ...


class ManagedSensorBroker:
    """One by URL; either may be missing, and what needs it then says so."""

    def __init__(self, url: str | None, management: str | None) -> None:
        self._url = url
        self._management = management
        self._fabric: Fabric | None = None
        self._turn = asyncio.Lock()

    async def admit(self, serial: str, user: str, password: str) -> None:
        own = re.escape(f"mqtt-subscription-{user}")
        name, word = quote(user, safe=""), re.escape(serial)
        both = f"^(amq\\.topic|{own}.*)$"
        await self._ask(
            "PUT", f"/api/users/{name}", {"password": password, "tags": "", "client_ids": user}
        )
        await self._ask(
            "PUT",
            f"/api/permissions/%2F/{name}",
            {"configure": f"^{own}.*$", "write": both, "read": both},
        )
        await self._ask(
            "PUT",
            f"/api/topic-permissions/%2F/{name}",
            {
                "exchange": "amq.topic",
                "write": f"^sensors\\.{word}\\.",
                "read": f"^commands\\.sensor\\.{word}$",
            },
        )

    async def dismiss(self, user: str) -> None:
        await self._ask("DELETE", f"/api/users/{quote(user, safe='')}")

    async def retain(self, topic: str, body: bytes) -> None:
        if self._url is None:
            raise NotConfigured("no broker for sensors is configured (PENSTOCK_HIVES_BROKER)")
        speaks_mqtt, spelled = await asyncio.to_thread(_spelling)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                fabric = await self._connected(self._url)
                if speaks_mqtt(self._url):
                    await fabric.mqtt.publish(topic, body, retain=True)
                else:
                    await fabric.publish(spelled(topic, False), body)
        except TimeoutError:
            parts = urlsplit(self._url)
            raise BrokerUnreachable(
                parts.hostname or "", parts.port or 0, f"no answer within {REQUEST_TIMEOUT:g} s"
            ) from None

    async def close(self) -> None:
        fabric, self._fabric = self._fabric, None
        if fabric is not None:
            await fabric.close()

    async def _connected(self, url: str) -> Fabric:
        from penstock.client import connect

        async with self._turn:
            if self._fabric is None:
                self._fabric = await connect(url).open()
            return self._fabric

    async def _ask(self, verb: str, path: str, body: Any = None) -> None:
        if self._management is None:
            raise NotConfigured(
                "no management API of a broker is configured (PENSTOCK_HIVES_MANAGEMENT)"
            )
        await asyncio.to_thread(_ask, self._management, verb, path, body)


def _spelling() -> tuple[Callable[[str], bool], Callable[[str, bool], str]]:
    """What it takes to say anything to a sensor; loaded by a thread, for it takes a while."""
    from penstock_hives.sensors.publisher import is_mqtt_url, to_broker_address

    return is_mqtt_url, to_broker_address


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """None: the redirect is raised as the error that it is here."""


def _ask(url: str, verb: str, path: str, body: Any) -> None:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    request = Request(
        f"{parts.scheme}://{host}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
        method=verb,
    )
    # For this address alone. A redirect is no answer: nothing is asked of where it leads to.
    request.add_unredirected_header("authorization", f"Basic {credentials}")
    try:
        with build_opener(_NoRedirects).open(request, timeout=REQUEST_TIMEOUT) as answer:
            answer.read()
    except HTTPError as error:
        if verb == "DELETE" and error.code == 404:
            return
        reason = error.read(1000).decode(errors="replace")
        raise AccessRefused(f"the broker has refused: {error.code} {reason}") from error
    except (URLError, HTTPException, OSError) as error:
        reason = str(getattr(error, "reason", error))
        raise BrokerUnreachable(parts.hostname or "", parts.port or 0, reason) from error
