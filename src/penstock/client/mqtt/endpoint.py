"""What a URL says of a broker that speaks MQTT, and of the session to have with it.

`mqtt://user:password@host:1883/`, `mqtts://`, `ws://host:15675/ws` and `wss://`. The rest is in the
query: `version=3.1.1` (5 unless said), `client_id=`, `session_expiry=` seconds for which the broker
keeps the session when we are away, `keepalive=` seconds, `cafile=`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

from penstock.core.addresses import PORTS
from penstock.core.errors import ConfigurationError

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
    password: str | None
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
        if not self.tls:
            return None
        try:
            return ssl.create_default_context(cafile=self.cafile)
        except OSError as error:
            raise ConfigurationError(f"cafile={self.cafile}: {error.strerror}") from error

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_endpoint(url: str) -> Endpoint:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise ConfigurationError(f"{url!r}: the port should be a number up to 65535") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - set(_OPTIONS):
        raise ConfigurationError(
            f"{url!r}: there is no {min(unknown)!r}; what may follow the ? is {', '.join(_OPTIONS)}"
        )
    websocket = parts.scheme in ("ws", "wss")
    if not websocket and parts.path not in ("", "/"):
        raise ConfigurationError(
            f"{url!r}: MQTT has no virtual hosts, so nothing but a / may follow the port"
        )
    version = options.get("version", V5)
    if version not in (V5, V311):
        raise ConfigurationError(f"{url!r}: version should be {V5} or {V311}")
    return Endpoint(
        host=parts.hostname or "127.0.0.1",
        port=PORTS[parts.scheme] if port is None else port,
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        client_id=options.get("client_id") or f"penstock-{uuid4().hex[:12]}",
        path=(parts.path if parts.path not in ("", "/") else "/ws") if websocket else None,
        tls=parts.scheme in ("mqtts", "wss"),
        cafile=options.get("cafile"),
        version=version,
        session_expiry=_seconds(url, options, "session_expiry", 0, 0, FOREVER),
        keepalive=_seconds(url, options, "keepalive", KEEPALIVE_SECONDS, 1, 0xFFFF),
    )


def _seconds(
    url: str, options: dict[str, str], name: str, default: int, least: int, most: int
) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
        raise ConfigurationError(f"{url!r}: {name} should be whole seconds, {least} to {most}")
    return int(text)
