"""Where the broker is and who we are there, from a URL; the password is in nothing that prints."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from penstock.core.addresses import PORTS
from penstock.core.errors import ConfigurationError

_SCHEMES: Final = ("amqp", "amqps")
#: A peer that vanished without a word is missed after two of them.
HEARTBEAT_SECONDS: Final = 20


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    vhost: str
    user: str
    password: str = field(repr=False)
    tls: bool = False
    authorities: str | None = None  #: a file of certificates to trust instead of the system's
    heartbeat: int = HEARTBEAT_SECONDS

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def tls_context(self) -> ssl.SSLContext | None:
        if not self.tls:
            return None
        try:
            return ssl.create_default_context(cafile=self.authorities)
        except OSError as error:
            raise ConfigurationError(f"cafile={self.authorities}: {error.strerror}") from error


def parse_address(url: str) -> Address:
    """Read `amqp[s]://user:password@host:port/vhost?heartbeat=20&cafile=FILE`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(
            "the broker's URL cannot be read; should be amqp://user:password@host:port/vhost, "
            "with special characters percent-encoded"
        ) from (error if "@" not in url else None)
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError(f"{parts.scheme!r} is not amqp:// or amqps://")
    if not parts.hostname:
        raise ConfigurationError("the broker's URL has no host, as in amqp://localhost")
    options = parse_qs(parts.query)
    return Address(
        parts.hostname,
        PORTS[parts.scheme] if port is None else port,
        unquote(parts.path[1:]) or "/",
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        parts.scheme == "amqps",
        next(iter(options.get("cafile", [])), None),
        int(next(iter(options.get("heartbeat", [])), HEARTBEAT_SECONDS)),
    )
