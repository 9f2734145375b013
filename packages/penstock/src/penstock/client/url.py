"""URLs of brokers: the parts that all protocols have, and TLS.

Errors and `repr` never show the password.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from penstock.core.addresses import shuffled_hosts, split_hosts
from penstock.core.errors import ConfigurationError


class BrokerProtocol(Enum):
    AMQP091 = "AMQP 0-9-1"
    AMQP10 = "AMQP 1.0"
    MQTT = "MQTT"
    PADRES = "PADRES"


PROTOCOLS: Final = {
    "amqp": BrokerProtocol.AMQP091,
    "amqps": BrokerProtocol.AMQP091,
    "amqp+1.0": BrokerProtocol.AMQP10,
    "amqps+1.0": BrokerProtocol.AMQP10,
    "mqtt": BrokerProtocol.MQTT,
    "mqtts": BrokerProtocol.MQTT,
    "ws": BrokerProtocol.MQTT,
    "wss": BrokerProtocol.MQTT,
    "padres": BrokerProtocol.PADRES,
    "padress": BrokerProtocol.PADRES,
}


def protocol_of(url: str) -> BrokerProtocol | None:
    """The protocol that the scheme of a URL names; None for an unknown scheme."""
    return PROTOCOLS.get(url.partition("://")[0].lower())


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    shown: str  #: the URL without user and password
    scheme: str
    host: str  #: 127.0.0.1 if the URL has none
    port: int | None
    user: str | None  #: None if the URL has none; may be empty
    password: str | None = field(repr=False)
    path: str  #: with its slash, percent-encoded
    options: Mapping[str, str]  #: the query
    others: Sequence[tuple[str, int | None]] = ()  #: further hosts of the same cluster

    def seconds(self, name: str, default: int, least: int, most: int) -> int:
        text = self.options.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
            raise self.invalid(f"{name} should be whole seconds, {least} to {most}")
        return int(text)

    def invalid(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"{self.shown!r}: {why}")


def parse_url(text: str, options: Sequence[str]) -> BrokerUrl:
    """`options` are the names of the options that the query may have."""
    try:
        text, others = split_hosts(text)
        parts = urlsplit(text)
    except ValueError:
        raise ConfigurationError(
            "the URL is not valid; special characters in it should be percent-encoded"
        ) from None
    shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    try:
        port = parts.port
    except ValueError:
        raise ConfigurationError(f"{shown!r}: the port should be a number up to 65535") from None
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := query.keys() - set(options):
        raise ConfigurationError(
            f"{shown!r}: unknown option {min(unknown)!r}; the options are {', '.join(options)}"
        )
    return BrokerUrl(
        shown,
        parts.scheme,
        parts.hostname or "127.0.0.1",
        port,
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
        parts.path,
        query,
        others,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """The part of an endpoint that all protocols have."""

    host: str
    port: int
    tls: bool = False
    cafile: str | None = None
    others: Sequence[tuple[str, int]] = ()  #: further hosts of the same cluster

    def hosts(self) -> list[tuple[str, int]]:
        """All of them, in random order."""
        return (
            shuffled_hosts(self.host, self.port, self.others)
            if self.others
            else [(self.host, self.port)]
        )

    def tls_context(self) -> ssl.SSLContext | None:
        return create_tls_context(self.cafile) if self.tls else None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def create_tls_context(cafile: str | None) -> ssl.SSLContext:
    """Trusts the certificate authorities in the file, or those of the system."""
    try:
        return ssl.create_default_context(cafile=cafile)
    except OSError as error:
        raise ConfigurationError(
            f"cafile={cafile}: {error.strerror or error}; should be a file of certificates"
        ) from error
