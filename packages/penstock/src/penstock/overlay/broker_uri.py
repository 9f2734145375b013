"""Where brokers are: `padres://host:port/ID`, or `padress` over TLS; a user may be named in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.core.addresses import DEFAULT_PORTS
from penstock.core.errors import LinkRefused

_SCHEMES: Final = ("padres", "padress")
#: What a broker may be called: ids of messages have a `-` behind it.
BROKER_ID: Final = re.compile(r"[A-Za-z0-9.:/]{1,64}")
_USER: Final = re.compile(r"//[^/]*@")


@dataclass(frozen=True, slots=True)
class BrokerUri:
    scheme: str
    host: str
    port: int
    id: str
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def tls(self) -> bool:
        return self.scheme == "padress"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{self.id}"


def without_user(text: str) -> str:
    """An address as it may be shown: no user, no password."""
    return _USER.sub("//", text)


def parse_uri(text: str) -> BrokerUri:
    """Raises `LinkRefused` saying what is wrong."""
    shape = "should be padres://host:port/ID"
    shown = without_user(text)
    if not text.strip():
        raise LinkRefused(f"the broker address is empty: {shape}")
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        raise LinkRefused(f"{shown!r} is not a broker address ({error}): {shape}") from None
    identity = parts.path.removeprefix("/")
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.query or parts.fragment:
        raise LinkRefused(f"{shown!r} is not a broker address: {shape}")
    if not BROKER_ID.fullmatch(identity):
        raise LinkRefused(
            f"{shown!r} has no valid broker id: use letters, digits, '.', ':' and '/'; {shape}"
        )
    return BrokerUri(
        parts.scheme,
        parts.hostname,
        DEFAULT_PORTS[parts.scheme] if port is None else port,
        identity,
        unquote(parts.username or ""),
        unquote(parts.password or ""),
    )
