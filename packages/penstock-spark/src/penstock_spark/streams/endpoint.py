"""Finds out which backend a broker needs, from its server properties.

Penstock names the URL of its Arrow ranges. Any other broker is read by RabbitMQ's stream protocol
if its stream plugin is available, and otherwise over AMQP 0-9-1. The result is a value, so that
workers need not ask again.

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
from penstock_spark.streams.amqp import AmqpStreamBackend, stream_management_client
from penstock_spark.streams.arrow import ArrowStreamBackend
from penstock_spark.streams.backend import StreamBackend

#: The default ports of RabbitMQ's plugins, by TLS.
_MANAGEMENT_PORTS: Final = {False: ("http", 15672), True: ("https", 15671)}
_STREAM_PORTS: Final = {False: 5552, True: 5551}
#: The server properties with the URL of Penstock's Arrow ranges, by TLS, the preferred first.
_GREETING_KEYS: Final = {False: ("arrow", "arrow_tls"), True: ("arrow_tls", "arrow")}


@dataclass(frozen=True, slots=True)
class StreamEndpoint:
    address: AmqpAddress
    management: str | None  #: the URL of the management API, if it is not the default
    ranges: str | None = None  #: the URL of Penstock's Arrow ranges
    chunks: int | None = None  #: the port of RabbitMQ's stream plugin; neither: AMQP
    stream_port: int | None = None  #: the port to probe for the plugin; 0: none

    def open(self) -> StreamBackend:
        if self.ranges is not None:
            client = stream_management_client(self.ranges, self.address)
            return ArrowStreamBackend(client, self.address.vhost)
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        scheme, port = _MANAGEMENT_PORTS[self.address.tls]
        management = _api_url(self.management or f"{scheme}://{host}:{port}")
        amqp = AmqpStreamBackend(self.address, management)
        if self.chunks is None:
            return amqp
        return RabbitmqStreamBackend(self.address, self.chunks, amqp)

    def rediscover(self) -> StreamEndpoint:
        """The endpoint after a connection failure: addresses may have changed."""
        return find_endpoint(self.address, self.management, self.stream_port)


def find_endpoint(
    address: AmqpAddress, management: str | None = None, stream_port: int | None = None
) -> StreamEndpoint:
    with BlockingConnection(address, "penstock spark") as connection:
        greeting = connection.greeting
    named = [greeting.get(name) for name in _GREETING_KEYS[address.tls]]
    if url := next((url for url in named if isinstance(url, str)), None):
        ranges = f"{_api_url(management)}/streams" if management else _checked_url(url, address)
        return StreamEndpoint(address, management, ranges, stream_port=stream_port)
    port = _STREAM_PORTS[address.tls] if stream_port is None else stream_port
    found = port if port and is_stream_plugin_available(address, port) else None
    return StreamEndpoint(address, management, chunks=found, stream_port=stream_port)


def _checked_url(ranges: str, address: AmqpAddress) -> str:
    """The URL; raises if the password would be sent there less protected than to the broker."""
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
