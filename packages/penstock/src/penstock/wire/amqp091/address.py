"""The address of an AMQP 0-9-1 broker, with credentials, parsed from a URL.

The password appears in no `str`, `repr` or error.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from penstock.core.addresses import DEFAULT_PORTS, shuffled_hosts, split_hosts
from penstock.core.errors import ConfigurationError

_SCHEMES: Final = ("amqp", "amqps")
HEARTBEAT_SECONDS: Final = 20
_HEARTBEAT_MAX_SECONDS: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class AmqpAddress:
    host: str
    port: int
    vhost: str
    user: str
    password: str = field(repr=False)
    tls: bool = False
    authorities: str | None = None  #: a file of trusted certificates instead of the system's
    heartbeat: int = HEARTBEAT_SECONDS  #: seconds; 0: disabled
    name: str | None = None  #: of the connection, instead of the program's name for it
    others: tuple[tuple[str, int], ...] = ()  #: further hosts of the same cluster

    def candidates(self) -> list[AmqpAddress]:
        """One address for each host, in random order."""
        if not self.others:
            return [self]
        hosts = shuffled_hosts(self.host, self.port, self.others)
        return [replace(self, host=host, port=port, others=()) for host, port in hosts]

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}/{self.vhost}"


def parse_amqp_url(
    url: str, authorities: str | None = None, *, heartbeat: int = HEARTBEAT_SECONDS
) -> AmqpAddress:
    """Parse `amqp[s]://user:password@host:port/vhost?heartbeat=20&cafile=FILE&name=NAME`; there
    may be several hosts, separated by commas.

    `authorities` overrides `cafile`; `heartbeat` is the default. Unknown options are ignored, as
    they may be those of other clients.
    """
    try:
        url, others = split_hosts(url)
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        # The text of the error may contain the password.
        raise ConfigurationError(
            "url: invalid address; should be amqp://user:password@host:port/vhost, with "
            "special characters percent-encoded"
        ) from (error if "@" not in url else None)
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError(
            f"url: the scheme {parts.scheme!r} is not supported; should be amqp:// or amqps://"
        )
    if not parts.hostname or not all(host for host, _ in others):
        raise ConfigurationError("url: the host is missing, as in amqp://localhost")
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return AmqpAddress(
        parts.hostname,
        DEFAULT_PORTS[parts.scheme] if port is None else port,
        unquote(parts.path[1:]) or "/",
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        parts.scheme == "amqps",
        authorities or options.get("cafile"),
        _parse_heartbeat(options.get("heartbeat", str(heartbeat))),
        options.get("name"),
        tuple((host, port or DEFAULT_PORTS[parts.scheme]) for host, port in others),
    )


def _parse_heartbeat(text: str) -> int:
    if not text.isdecimal() or int(text) > _HEARTBEAT_MAX_SECONDS:
        raise ConfigurationError(f"url: heartbeat={text} should be seconds, at most 65535, or 0")
    return int(text)
