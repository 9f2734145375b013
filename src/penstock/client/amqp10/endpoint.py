"""What a URL says of a broker that speaks AMQP 1.0.

`amqp+1.0://user:password@host:5672/vhost` and `amqps+1.0://`. Who is not named is `guest`; an empty
name is nobody, whom some brokers let in (SASL's ANONYMOUS). A virtual host is told to the broker as
RabbitMQ has it, by the hostname `vhost:NAME`. The rest is in the query: `container_id=` (who we
say we are), `heartbeat=` seconds, `cafile=`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote
from uuid import uuid4

from penstock.client.url import parse_url, show_place, trust
from penstock.core.addresses import PORTS

#: A peer that vanished without a word is missed after twice as much.
HEARTBEAT_SECONDS: Final = 15

_OPTIONS: Final = ("container_id", "heartbeat", "cafile")
_SCHEMES: Final = {"amqp+1.0": "amqp10", "amqps+1.0": "amqps10"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    host: str
    port: int
    user: str | None  #: None is nobody in particular
    password: str = field(repr=False)
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
        return trust(self.cafile) if self.tls else None

    def __str__(self) -> str:
        return show_place(self.host, self.port)


def parse_endpoint(url: str) -> Endpoint:
    parts = parse_url(url, _OPTIONS)
    vhost = unquote(parts.path[1:])
    return Endpoint(
        host=parts.host,
        port=PORTS[_SCHEMES[parts.scheme]] if parts.port is None else parts.port,
        user="guest" if parts.user is None else parts.user or None,
        password="guest" if parts.user is None else parts.password or "",
        vhost=vhost or None,
        container_id=parts.options.get("container_id") or f"penstock-{uuid4().hex[:12]}",
        tls=parts.scheme == "amqps+1.0",
        cafile=parts.options.get("cafile"),
        heartbeat=parts.seconds("heartbeat", HEARTBEAT_SECONDS, 1, 3600),
    )
