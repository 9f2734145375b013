"""Which kind of streams a broker has: its greeting says.

Penstock names the address of its Arrow ranges when it greets. A broker that does not is RabbitMQ or
its like: with its stream plugin it hands out chunks, and otherwise it is read over AMQP 0-9-1. The
finding is a value, so that workers need not ask again.

A password that is sent to the broker over TLS is not sent in clear to its management API, unless
that is on this machine or `managementUrl` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from penstock.client.amqp091.blocking_connection import BlockingConnection
from penstock.core.addresses import is_loopback
from penstock.core.errors import ConfigurationError
from penstock.wire.amqp091.address import AmqpAddress
from penstock_spark.rabbitmq.backend import RabbitmqStreamBackend
from penstock_spark.rabbitmq.connection import is_stream_plugin_available
from penstock_spark.streams.amqp import AmqpStreamBackend
from penstock_spark.streams.arrow import ArrowStreamBackend
from penstock_spark.streams.backend import StreamBackend
from penstock_spark.streams.management import StreamManagementClient

#: Where RabbitMQ's plugins listen unless they are told otherwise.
_MANAGEMENT_PORTS: Final = {
    False: ("http", 15672),
    True: ("https", 15671),
}  # by whether it is over TLS
_STREAM_PORT: Final = 5552
_STREAM_TLS_PORT: Final = 5551
#: Where Penstock's greeting names its Arrow ranges, the better place first, likewise.
_GREETING_KEYS: Final = {False: ("arrow", "arrow_tls"), True: ("arrow_tls", "arrow")}


@dataclass(frozen=True, slots=True)
class StreamEndpoint:
    """How a broker's streams are reached."""

    address: AmqpAddress
    management: str | None  #: the management API's URL, if it is not where the broker says
    ranges: str | None = None  #: the URL of Penstock's Arrow ranges
    chunks: int | None = None  #: the port of RabbitMQ's stream plugin; neither: read over AMQP
    stream_port: int | None = None  #: where that is to be looked for, 0: nowhere

    def open(self) -> StreamBackend:
        if self.ranges is not None:
            return ArrowStreamBackend(
                StreamManagementClient(self.ranges, self.address), self.address.vhost
            )
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        scheme, port = _MANAGEMENT_PORTS[self.address.tls]
        management = _api_url(self.management or f"{scheme}://{host}:{port}")
        replays = AmqpStreamBackend(self.address, management)
        return (
            replays
            if self.chunks is None
            else RabbitmqStreamBackend(self.address, self.chunks, replays)
        )

    def rediscover(self) -> StreamEndpoint:
        """The same broker after a break: it may listen elsewhere now."""
        return find_endpoint(self.address, self.management, self.stream_port)


def find_endpoint(
    address: AmqpAddress, management: str | None = None, stream_port: int | None = None
) -> StreamEndpoint:
    """Ask the broker which kind it is."""
    with BlockingConnection(address, "penstock spark") as connection:
        greeting = connection.greeting
    named = [greeting.get(name) for name in _GREETING_KEYS[address.tls]]
    if told := next((url for url in named if isinstance(url, str)), None):
        ranges = (
            _checked_url(told, address) if management is None else f"{_api_url(management)}/streams"
        )
        return StreamEndpoint(address, management, ranges, stream_port=stream_port)
    port = (
        (_STREAM_TLS_PORT if address.tls else _STREAM_PORT) if stream_port is None else stream_port
    )
    found = port if port and is_stream_plugin_available(address, port) else None
    return StreamEndpoint(address, management, chunks=found, stream_port=stream_port)


def _checked_url(ranges: str, address: AmqpAddress) -> str:
    """The URL, where a password may be sent there that was sent to the broker's address."""
    parts = urlsplit(ranges)
    host = parts.hostname or ""
    if address.tls and parts.scheme != "https" and not (host == "localhost" or is_loopback(host)):
        raise ConfigurationError(
            f"{address}: the broker serves its streams at {ranges}, where the password of user "
            f"{address.user!r} would be sent in clear; have it listen on https:// as well, or set "
            "managementUrl"
        )
    return ranges


def _api_url(management: str) -> str:
    return f"{management.rstrip('/').removesuffix('/api')}/api"
