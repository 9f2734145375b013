"""Where a broker is and who we are there, from one URL.

The password is in the value and in nothing that is printed: `str` and `repr` leave it out, and
errors about the URL quote no more than what was wrong.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.core.addresses import PORTS
from penstock.core.errors import ConfigurationError

_SCHEMES: Final = ("amqp", "amqps")


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    host: str
    port: int
    vhost: str
    user: str
    password: str = field(repr=False)
    tls: bool = False
    authorities: str | None = None  #: a file of certificates to trust instead of the system's

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}/{self.vhost}"

    def tls_context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.authorities)
        except OSError as error:
            raise ConfigurationError(
                f"tlsCaFile={self.authorities}: {error.strerror or error}"
            ) from None


def parse_url(url: str, authorities: str | None = None) -> BrokerAddress:
    """Read `amqp[s]://user:password@host:port/vhost`; what is left out has the usual default."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        # The text of the error may quote what stands before an @: say only where to look.
        raise ConfigurationError(
            "url: the address cannot be read; should be amqp://user:password@host:port/vhost, with "
            "special characters percent-encoded"
        ) from (error if "@" not in url else None)
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError(
            f"url: the scheme {parts.scheme!r} is not spoken here; should be amqp:// or amqps://"
        )
    if not parts.hostname:
        raise ConfigurationError("url: the host is missing, as in amqp://localhost")
    return BrokerAddress(
        parts.hostname,
        PORTS[parts.scheme] if port is None else port,
        unquote(parts.path[1:]) or "/",
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        parts.scheme == "amqps",
        authorities,
    )
