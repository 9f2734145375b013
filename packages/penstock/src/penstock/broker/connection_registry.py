"""Registration of client connections, the same for every protocol."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import Any, Final, Protocol, cast

from penstock.broker.flow_control import ReadFlowControl
from penstock.broker.host import ClientConnection, Host

#: `tcpi_bytes_acked` and `tcpi_bytes_received` in Linux's `struct tcp_info`.
_TCP_BYTES: Final = struct.Struct("=120xQQ")


class SocketTerminal(ClientConnection, Protocol):
    """A terminal with its socket."""

    host: Host
    transport: asyncio.Transport
    flow_control: ReadFlowControl
    peer: tuple[Any, ...]  #: its address and port
    tls: bool


def register_connection(
    terminal: SocketTerminal, transport: asyncio.BaseTransport, choke_bytes: int
) -> None:
    """`choke_bytes` is the size of the write buffer at which the transport pauses the terminal."""
    terminal.transport = cast(asyncio.Transport, transport)
    terminal.transport.set_write_buffer_limits(high=choke_bytes)
    terminal.flow_control.start()
    terminal.peer = transport.get_extra_info("peername") or ("", 0)
    terminal.tls = transport.get_extra_info("ssl_object") is not None
    terminal.host.clients[terminal] = time.time()
    terminal.host.kernel.metrics.connections_opened += 1


def connection_traffic(terminal: SocketTerminal) -> tuple[int, int]:
    """Bytes received and sent, as the kernel counts them: what is not asked for costs nothing."""
    connection = terminal.transport.get_extra_info("socket")
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_BYTES.size)
        sent, received = _TCP_BYTES.unpack(info)
    except (AttributeError, OSError, struct.error):  # closed, or not TCP
        return 0, 0
    return received, sent


def connection_name(terminal: SocketTerminal) -> str:
    """Computed when it is needed: that takes less memory than all names."""
    here = terminal.transport.get_extra_info("sockname") or ("", 0)
    return f"{terminal.peer[0]}:{terminal.peer[1]} -> {here[0]}:{here[1]}"


def half_close(terminal: SocketTerminal, *, reason_sent: bool) -> None:
    """Close so that the client still receives the last frames; the caller limits the time.

    Closing a socket with unread input resets it, which discards data in flight to the client. So
    only our half is closed, and the terminal reads and discards input until the client closes. TLS
    has no half-close: a client that was sent a reason (`reason_sent`) must close first; any other
    would wait for us.
    """
    transport = terminal.transport
    if transport.can_write_eof():
        try:
            transport.write_eof()
        except OSError:  # asyncio's own transports: the client is gone
            transport.abort()
    elif not reason_sent:
        transport.close()
    terminal.flow_control.force_resume()


def unregister_connection(terminal: SocketTerminal) -> None:
    terminal.host.credential_expiry.forget(terminal)
    terminal.host.client_left(terminal)
    terminal.host.kernel.metrics.connections_closed += 1
    terminal.host.kernel.write_batch.flush()
