"""The broker as the application uses it: users of sensors, and configurations sent to them.

Users and permissions go through the management API, which RabbitMQ has as well; configurations go
through the client, as retained messages where the URL is `mqtt://`. The broker is contacted, and
the client imported, on first use: the application starts and serves without them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

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
        await self._call(
            "PUT", f"/api/users/{name}", {"password": password, "tags": "", "client_ids": user}
        )
        await self._call(
            "PUT",
            f"/api/permissions/%2F/{name}",
            {"configure": f"^{own}.*$", "write": both, "read": both},
        )
        await self._call(
            "PUT",
            f"/api/topic-permissions/%2F/{name}",
            {
                "exchange": "amq.topic",
                "write": f"^sensors\\.{word}\\.",
                "read": f"^commands\\.sensor\\.{word}$",
            },
        )

    async def delete_user(self, user: str) -> None:
        await self._call("DELETE", f"/api/users/{quote(user, safe='')}")

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

    async def _call(self, method: str, path: str, body: Any = None) -> None:
        if self._management is None:
            raise NotConfigured(
                "no management API of a broker is configured: set PENSTOCK_HIVES_MANAGEMENT"
            )
        await asyncio.to_thread(_call, self._management, method, path, body)


def _spelling() -> tuple[Callable[[str], bool], Callable[[str, bool], str]]:
    """Imported in a thread, because it takes a while."""
    from penstock_hives.sensors.publisher import is_mqtt_url, to_broker_address

    return is_mqtt_url, to_broker_address


def _call(url: str, method: str, path: str, body: Any) -> None:
    from penstock.client.management import ManagementClient

    parts = urlsplit(url)
    user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
    address = parts._replace(path="", query="").geturl()
    client = ManagementClient(address, user, password, timeout=REQUEST_TIMEOUT)
    try:
        with client.request(path, method=method, body=body) as answer:
            reason = answer.read().decode(errors="replace")[:1000]
            if answer.status < 300 or (method == "DELETE" and answer.status == 404):
                return
            raise AccessRefused(f"the broker refused {method} {path}: {answer.status} {reason}")
    except OSError as error:
        reason = str(error.strerror or error)
        raise BrokerUnreachable(parts.hostname or "", parts.port or 0, reason) from error
