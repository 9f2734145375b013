"""What a URL says of a broker that speaks PADRES.

`padres://user:password@host:5680/BrokerID` and `padress://` (TLS). Who is not named is `guest`; the
broker's id may be left out, and is checked where it is not. The rest is in the query: `tls` in
place of the other scheme, `vhost=`, `heartbeat=` seconds, `cafile=`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from penstock.client.url import parse_url, show_place, trust
from penstock.core.addresses import PORTS

#: A peer that vanished without a word is missed after three times as much.
HEARTBEAT_SECONDS: Final = 15

_SCHEMES: Final = ("padres", "padress")
_OPTIONS: Final = ("tls", "vhost", "heartbeat", "cafile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    host: str
    port: int
    broker: str = ""  #: its id; empty for whichever it is
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = ""  #: empty for the broker's own choice
    tls: bool = False
    cafile: str | None = None
    heartbeat: int = HEARTBEAT_SECONDS

    def tls_context(self) -> ssl.SSLContext | None:
        return trust(self.cafile) if self.tls else None

    def __str__(self) -> str:
        return show_place(self.host, self.port)


def parse_endpoint(url: str) -> Endpoint:
    parts = parse_url(url, _OPTIONS)
    if parts.scheme not in _SCHEMES:
        raise parts.refused("should be padres://host:port/BrokerID, or padress://")
    broker = unquote(parts.path.removeprefix("/"))
    if any(character in broker for character in "/ _-"):
        raise parts.refused(f"{broker!r} is no id of a broker: no blank, '_' or '-'")
    tls = parts.scheme == "padress" or "tls" in parts.options
    return Endpoint(
        host=parts.host,
        port=PORTS["padress" if tls else "padres"] if parts.port is None else parts.port,
        broker=broker,
        user="guest" if parts.user is None else parts.user,
        password="guest" if parts.user is None else parts.password or "",
        vhost=parts.options.get("vhost", ""),
        tls=tls,
        cafile=parts.options.get("cafile"),
        heartbeat=parts.seconds("heartbeat", HEARTBEAT_SECONDS, 0, 3600),
    )
