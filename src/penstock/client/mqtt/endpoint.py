"""What a URL says of a broker that speaks MQTT, and of the session to have with it.

`mqtt://user:password@host:1883/`, `mqtts://`, `ws://host:15675/ws` and `wss://`. The rest is in the
query: `version=3.1.1` (5 unless said), `client_id=`, `session_expiry=` seconds for which the broker
keeps the session when we are away, `keepalive=` seconds, `cafile=`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from penstock.client.url import parse_url, show_place, trust
from penstock.core.addresses import PORTS

V5: Final = "5"
V311: Final = "3.1.1"

#: What the standard calls a session that does not expire.
FOREVER: Final = 0xFFFF_FFFF
#: A peer that vanished without a word is missed after half as much again.
KEEPALIVE_SECONDS: Final = 30

_OPTIONS: Final = ("version", "client_id", "session_expiry", "keepalive", "cafile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    host: str
    port: int
    user: str | None
    password: str | None = field(repr=False)
    client_id: str
    path: str | None = None  #: of the WebSocket, where it is one
    tls: bool = False
    cafile: str | None = None
    version: str = V5
    session_expiry: int = 0
    keepalive: int = KEEPALIVE_SECONDS

    @property
    def lasting(self) -> bool:
        """Whether the broker keeps the session while we are away."""
        return self.session_expiry > 0

    @property
    def modern(self) -> bool:
        """Whether there are properties and reason codes."""
        return self.version == V5

    def named(self, client_id: str) -> Endpoint:
        """The same broker, with a session of this name that lasts."""
        return replace(self, client_id=client_id, session_expiry=self.session_expiry or FOREVER)

    def tls_context(self) -> ssl.SSLContext | None:
        return trust(self.cafile) if self.tls else None

    def __str__(self) -> str:
        return show_place(self.host, self.port)


def parse_endpoint(url: str) -> Endpoint:
    parts = parse_url(url, _OPTIONS)
    websocket = parts.scheme in ("ws", "wss")
    if not websocket and parts.path not in ("", "/"):
        raise parts.refused("MQTT has no virtual hosts, so nothing but a / may follow the port")
    version = parts.options.get("version", V5)
    if version not in (V5, V311):
        raise parts.refused(f"version should be {V5} or {V311}")
    return Endpoint(
        host=parts.host,
        port=PORTS[parts.scheme] if parts.port is None else parts.port,
        user=parts.user,
        password=parts.password,
        client_id=parts.options.get("client_id") or f"penstock-{uuid4().hex[:12]}",
        path=(parts.path if parts.path not in ("", "/") else "/ws") if websocket else None,
        tls=parts.scheme in ("mqtts", "wss"),
        cafile=parts.options.get("cafile"),
        version=version,
        session_expiry=parts.seconds("session_expiry", 0, 0, FOREVER),
        keepalive=parts.seconds("keepalive", KEEPALIVE_SECONDS, 1, 0xFFFF),
    )
