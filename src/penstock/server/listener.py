"""Listening sockets, and which terminal a connection gets: by the scheme of the address.

Of AMQP, both versions are spoken where `amqp` is (`amqp.py`), and 1.0 alone where `amqp10` is.

A protocol is a `Service`: what one broker's connections of that protocol share, and the terminals
it makes for them. A new one is a folder under `terminals/` and its lines here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from penstock.broker.host import Host
from penstock.core.addresses import Address
from penstock.core.config import TlsSettings
from penstock.core.errors import ConfigurationError
from penstock.core.host_policy import HostPolicy
from penstock.core.units import KiB
from penstock.server.amqp import Amqp
from penstock.server.door import Door, open_door
from penstock.server.websocket import WebSocketGate
from penstock.terminals.amqp10.service import Amqp10
from penstock.terminals.mqtt.service import Mqtt
from penstock.terminals.padres.service import Padres


class Service(Protocol):
    """A protocol, as one broker speaks it."""

    def terminal(self) -> asyncio.Protocol:
        """For a connection that has just been made."""

    def close(self) -> None:
        """All its connections have ended."""


#: What is spoken on each scheme.
SCHEMES: Final[dict[str, Callable[[Host], Service]]] = {
    "amqp": Amqp,
    "amqps": Amqp,
    "amqp10": Amqp10,
    "amqps10": Amqp10,
    "mqtt": Mqtt,
    "mqtts": Mqtt,
    "ws": Mqtt,
    "wss": Mqtt,
    "padres": Padres,
    "padress": Padres,
}

# Over WebSocket: where MQTT is offered, and the names it goes by there.
PATHS: Final = frozenset({"/ws", "/mqtt", "/"})
SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    assert settings.certificate is not None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
        if settings.authority is not None:
            context.load_verify_locations(settings.authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"tls: cannot use {settings.certificate}: {error}") from error
    if settings.verify_peer:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def listen(
    host: Host,
    service: Service,
    address: Address,
    context: ssl.SSLContext | None,
    policy: HostPolicy,
    strangers: set[WebSocketGate],
) -> tuple[Door, Address]:
    """Open a listener; returns it with the address it really has.

    Those who have not said yet that they speak WebSocket are among the `strangers`.
    """
    settings = host.kernel.settings

    def terminal() -> asyncio.Protocol:
        host.kernel.turn.expect()
        return service.terminal()

    def gate() -> asyncio.Protocol:
        return WebSocketGate(
            terminal(),
            SUBPROTOCOLS,
            PATHS,
            settings.mqtt.max_packet_bytes + KiB,  # what is too large is MQTT's to say
            settings.handshake_timeout,
            policy,
            strangers,
        )

    loop = host.kernel.loop
    protocol = gate if address.scheme in ("ws", "wss") else terminal
    try:
        server = await open_door(
            loop,
            address.host,
            address.port,
            protocol,
            host.admission,
            context if address.tls else None,
            settings.handshake_timeout,
        )
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {address}: {error.strerror}") from error
    return server, Address(address.scheme, address.host, server.sockets[0].getsockname()[1])
