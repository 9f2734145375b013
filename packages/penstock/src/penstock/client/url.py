"""A broker's URL taken apart, as far as all protocols have it in common; and whom to trust there.

The password is in the value and in nothing that is printed: errors quote the URL without it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

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
    shown: str  #: all of it but name and password
    scheme: str
    host: str  #: this machine, where none is named
    port: int | None
    user: str | None  #: None where none is written; may be empty
    password: str | None = field(repr=False)
    path: str  #: with its slash, percent-encoded as it came
    options: Mapping[str, str]  #: what follows the question mark

    def seconds(self, name: str, default: int, least: int, most: int) -> int:
        """An option that is a time."""
        text = self.options.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
            raise self.refused(f"{name} should be whole seconds, {least} to {most}")
        return int(text)

    def refused(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"{self.shown!r}: {why}")


def parse_url(text: str, options: Sequence[str]) -> BrokerUrl:
    """Take a URL apart; `options` are the names that may follow the question mark."""
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ConfigurationError(
            "the URL cannot be read; special characters in it should be percent-encoded"
        ) from None
    place = parts.netloc.rpartition("@")[2]
    shown = urlunsplit(parts._replace(netloc=place))
    try:
        port = parts.port
    except ValueError:
        raise ConfigurationError(f"{shown!r}: the port should be a number up to 65535") from None
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := query.keys() - set(options):
        raise ConfigurationError(
            f"{shown!r}: there is no {min(unknown)!r}; what may follow the ? is "
            f"{', '.join(options)}"
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
    )


def format_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def create_tls_context(cafile: str | None) -> ssl.SSLContext:
    """The authorities in that file, or the system's."""
    try:
        return ssl.create_default_context(cafile=cafile)
    except OSError as error:
        raise ConfigurationError(
            f"cafile={cafile}: {error.strerror or error}; should be a file of certificates"
        ) from error
