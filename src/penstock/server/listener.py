"""Listening sockets, and which terminal a connection gets: by the scheme, then its first bytes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.core.addresses import Address
from penstock.core.config import TlsSettings
from penstock.core.errors import ConfigurationError
from penstock.terminals.amqp091.terminal import Amqp091Terminal

if TYPE_CHECKING:
    from penstock.broker.host import Host

TerminalType = Callable[["Host"], asyncio.BaseProtocol]

#: The terminal that answers each scheme. One that shares a port with others (AMQP 1.0 with 0-9-1)
#: is chosen by the first bytes a client sends.
TERMINALS: Final[dict[str, TerminalType]] = {"amqp": Amqp091Terminal, "amqps": Amqp091Terminal}

#: Connections the system holds for us before we accept them.
BACKLOG: Final = 1024


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
    host: Host, address: Address, context: ssl.SSLContext | None
) -> tuple[asyncio.Server, Address]:
    """Open a listener; returns it with the address it really has."""
    terminal = TERMINALS[address.scheme]
    try:
        server = await host.kernel.loop.create_server(
            lambda: terminal(host),
            address.host,
            address.port,
            ssl=context if address.tls else None,
            backlog=BACKLOG,
        )
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {address}: {error.strerror}") from error
    return server, Address(address.scheme, address.host, server.sockets[0].getsockname()[1])
