"""What a URL says of a broker that speaks AMQP 1.0.

`amqp+1.0://user:password@host:5672/vhost` and `amqps+1.0://`. Who is not named is `guest`; an empty
name is nobody, whom some brokers let in (SASL's ANONYMOUS). A virtual host is told to the broker as
RabbitMQ has it, by the hostname `vhost:NAME`. The rest is in the query: `container_id=` (who we
say we are), `heartbeat=` seconds, `cafile=`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

from penstock.core.addresses import PORTS
from penstock.core.errors import ConfigurationError

#: A peer that vanished without a word is missed after twice as much.
HEARTBEAT_SECONDS: Final = 15

_OPTIONS: Final = ("container_id", "heartbeat", "cafile")
_SCHEMES: Final = {"amqp+1.0": "amqp10", "amqps+1.0": "amqps10"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    host: str
    port: int
    user: str | None  #: None is nobody in particular
    password: str
    vhost: str | None  #: None is the broker's own choice
    container_id: str
    tls: bool = False
    cafile: str | None = None
    heartbeat: int = HEARTBEAT_SECONDS

    @property
    def hostname(self) -> str:
        """What the broker is told that we want to reach."""
        return self.host if self.vhost is None else f"vhost:{self.vhost}"

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
    vhost = unquote(parts.path[1:])
    heartbeat = options.get("heartbeat", str(HEARTBEAT_SECONDS))
    if not (heartbeat.isascii() and heartbeat.isdecimal()) or not 1 <= int(heartbeat) <= 3600:
        raise ConfigurationError(f"{url!r}: heartbeat should be whole seconds, 1 to 3600")
    return Endpoint(
        host=parts.hostname or "127.0.0.1",
        port=PORTS[_SCHEMES[parts.scheme]] if port is None else port,
        user="guest" if parts.username is None else unquote(parts.username) or None,
        password="guest" if parts.username is None else unquote(parts.password or ""),
        vhost=vhost or None,
        container_id=options.get("container_id") or f"penstock-{uuid4().hex[:12]}",
        tls=parts.scheme == "amqps+1.0",
        cafile=options.get("cafile"),
        heartbeat=int(heartbeat),
    )
