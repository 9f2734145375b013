"""A client comes and a client goes: what is the same of that, whatever it speaks."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, cast

from penstock.broker.flow_control import ReadFlowControl
from penstock.broker.host import ClientConnection, Host


class SocketTerminal(ClientConnection, Protocol):
    """One socket and whoever is behind it."""

    host: Host
    transport: asyncio.Transport
    flow_control: ReadFlowControl
    peer: tuple[Any, ...]  #: its address and port
    tls: bool


def register_connection(
    terminal: SocketTerminal, transport: asyncio.BaseTransport, choke_bytes: int
) -> None:
    """There is a socket; `choke_bytes` is how much may wait in it before senders are told."""
    terminal.transport = cast(asyncio.Transport, transport)
    terminal.transport.set_write_buffer_limits(high=choke_bytes)
    terminal.flow_control.start()
    terminal.peer = transport.get_extra_info("peername") or ("", 0)
    here = transport.get_extra_info("sockname") or ("", 0)
    terminal.tls = transport.get_extra_info("ssl_object") is not None
    terminal.name = f"{terminal.peer[0]}:{terminal.peer[1]} -> {here[0]}:{here[1]}"
    terminal.host.clients[terminal] = None
    terminal.host.kernel.metrics.connections_opened += 1


def half_close(terminal: SocketTerminal, *, told: bool) -> None:
    """Close so that what the client was `told` last is heard; the caller limits the time.

    A socket that is closed over bytes nobody has read is reset, and a reset destroys what is on its
    way to the client. So this ends our half of the connection only; the terminal reads on, and
    discards what it reads, until the client closes. TLS has no halves: there the client, which was
    told to go, has to close first; one that was told nothing would wait for us.
    """
    transport = terminal.transport
    if transport.can_write_eof():
        try:
            transport.write_eof()
        except OSError:  # asyncio's own transports: the client has gone
            transport.abort()
    elif not told:
        transport.close()
    terminal.flow_control.force_resume()


def unregister_connection(terminal: SocketTerminal) -> None:
    """The socket is gone, and all that hung on it was let go."""
    terminal.host.client_left(terminal)
    terminal.host.kernel.metrics.connections_closed += 1
    terminal.host.kernel.write_batch.flush()
