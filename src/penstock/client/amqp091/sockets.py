"""A blocking socket to a broker."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from penstock.client.errors import BrokerUnreachable
from penstock.client.url import not_trusted, trust
from penstock.wire.amqp091.address import Address

CONNECT_SECONDS: Final = 10.0
_RECEIVE_BUFFER: Final = 1 << 20


def open_socket(address: Address, patience: float = CONNECT_SECONDS) -> socket.socket:
    """Connected, and over TLS if the address says so. TCP's own keep-alive is on."""
    context = trust(address.authorities) if address.tls else None
    try:
        plain = socket.create_connection((address.host, address.port), patience)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BrokerUnreachable(address.host, address.port, reason) from None
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    if context is None:
        return plain
    try:
        return context.wrap_socket(plain, server_hostname=address.host)
    except ssl.SSLError as error:
        plain.close()
        raise not_trusted(address, error) from None
    except BaseException:
        plain.close()
        raise
