"""The broker as the application uses it: users of sensors, and configurations sent to them.

Users and permissions go through the management API, which RabbitMQ has as well; configurations go
through the client, as retained messages where the URL is `mqtt://`. The broker is contacted, and
the client imported, on first use: the application starts and serves without them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from penstock.client.errors import BrokerUnreachable
from penstock.core.errors import AccessRefused
from penstock_hives.errors import NotConfigured

if TYPE_CHECKING:
    from penstock.client import Fabric

#: Seconds for a response of the broker, with its connection.
REQUEST_TIMEOUT: Final = 5.0


class SensorBroker:
    """By URL; what needs a missing URL raises `NotConfigured`."""

    def __init__(self, url: str | None, management: str | None) -> None:
        self._url = url
        self._management = management
        self._fabric: Fabric | None = None
        self._lock = asyncio.Lock()

    async def create_user(self, serial: str, user: str, password: str) -> None:
        """A user with the permissions of this sensor only."""
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

    async def delete_user(self, user: str) -> None:
        await self._ask("DELETE", f"/api/users/{quote(user, safe='')}")

    async def publish_retained(self, topic: str, body: bytes) -> None:
        if self._url is None:
            raise NotConfigured("no broker for sensors is configured: set PENSTOCK_HIVES_BROKER")
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

        async with self._lock:
            if self._fabric is None:
                self._fabric = await connect(url).open()
            return self._fabric

    async def _ask(self, verb: str, path: str, body: Any = None) -> None:
        if self._management is None:
            raise NotConfigured(
                "no management API of a broker is configured: set PENSTOCK_HIVES_MANAGEMENT"
            )
        await asyncio.to_thread(_ask, self._management, verb, path, body)


def _spelling() -> tuple[Callable[[str], bool], Callable[[str, bool], str]]:
    """Imported in a thread, because it takes a while."""
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
    # Credentials are for this address alone; redirects are errors and not followed.
    request.add_unredirected_header("authorization", f"Basic {credentials}")
    try:
        with build_opener(_NoRedirects).open(request, timeout=REQUEST_TIMEOUT) as answer:
            answer.read()
    except HTTPError as error:
        if verb == "DELETE" and error.code == 404:
            return
        reason = error.read(1000).decode(errors="replace")
        raise AccessRefused(f"the broker refused {verb} {path}: {error.code} {reason}") from error
    except (URLError, HTTPException, OSError) as error:
        reason = str(getattr(error, "reason", error))
        raise BrokerUnreachable(parts.hostname or "", parts.port or 0, reason) from error
