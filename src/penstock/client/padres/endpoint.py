"""What a URL says of a broker that speaks PADRES.

`padres://user:password@host:5680/BrokerID` and `padress://` (TLS). Who is not named is `guest`; the
broker's id may be left out, and is checked where it is not. The rest is in the query: `tls` in
place of the other scheme, `vhost=`, `heartbeat=` seconds, `cafile=`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.core.addresses import PORTS
from penstock.core.errors import ConfigurationError

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
    password: str = "guest"
    vhost: str = ""  #: empty for the broker's own choice
    tls: bool = False
    cafile: str | None = None
    heartbeat: int = HEARTBEAT_SECONDS

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
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError(f"{url!r} should be padres://host:port/BrokerID, or padress://")
    try:
        port = parts.port
    except ValueError:
        raise ConfigurationError(f"{url!r}: the port should be a number up to 65535") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - set(_OPTIONS):
        raise ConfigurationError(
            f"{url!r}: there is no {min(unknown)!r}; what may follow the ? is {', '.join(_OPTIONS)}"
        )
    broker = unquote(parts.path.removeprefix("/"))
    if any(character in broker for character in "/ _-"):
        raise ConfigurationError(f"{url!r}: {broker!r} is no id of a broker: no blank, '_' or '-'")
    heartbeat = options.get("heartbeat", str(HEARTBEAT_SECONDS))
    if not (heartbeat.isascii() and heartbeat.isdecimal()) or int(heartbeat) > 3600:
        raise ConfigurationError(f"{url!r}: heartbeat should be whole seconds, 0 to 3600")
    tls = parts.scheme == "padress" or "tls" in options
    return Endpoint(
        host=parts.hostname or "127.0.0.1",
        port=PORTS["padress" if tls else "padres"] if port is None else port,
        broker=broker,
        user="guest" if parts.username is None else unquote(parts.username),
        password="guest" if parts.username is None else unquote(parts.password or ""),
        vhost=options.get("vhost", ""),
        tls=tls,
        cafile=options.get("cafile"),
        heartbeat=int(heartbeat),
    )
