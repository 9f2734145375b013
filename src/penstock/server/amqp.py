"""AMQP on one port: the first bytes of a client say which version it speaks.

A `Doorway` holds a connection until it has heard enough, hands it to the terminal of that version
and is gone: from then on it costs nothing. Whoever begins with neither is 0-9-1's to answer.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from penstock.broker.host import Host
from penstock.terminals.amqp091.service import Amqp091
from penstock.terminals.amqp10.service import Amqp10
from penstock.wire.amqp10.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER

#: How a client of AMQP 1.0 begins.
HEADERS_10: Final = (SASL_HEADER, AMQP_HEADER, TLS_HEADER)


class Amqp:
    """Both versions, as one broker speaks them."""

    __slots__ = ("_doorways", "_v091", "_v10", "host")

    def __init__(self, host: Host) -> None:
        self.host = host
        self._v091 = Amqp091(host)
        self._v10 = Amqp10(host)
        self._doorways: set[Doorway] = set()

    def terminal(self) -> asyncio.Protocol:
        """For a connection that has just been made."""
        return Doorway(self)

    def choose(self, said: bytes) -> asyncio.Protocol | None:
        """The terminal for a client that begins so; None while it cannot be told."""
        if said.startswith(HEADERS_10):
            return self._v10.terminal()
        if any(header.startswith(said) for header in HEADERS_10):
            return None
        return self._v091.terminal()

    def entered(self, doorway: Doorway) -> None:
        self._doorways.add(doorway)

    def left(self, doorway: Doorway) -> None:
        self._doorways.discard(doorway)

    def close(self) -> None:
        for doorway in list(self._doorways):
            doorway.abort()
        self._v091.close()
        self._v10.close()


class Doorway(asyncio.Protocol):
    __slots__ = ("_said", "_service", "_timer", "_transport")

    def __init__(self, service: Amqp) -> None:
        self._service = service
        self._said = b""
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._service.entered(self)
        kernel = self._service.host.kernel
        self._timer = kernel.loop.call_later(kernel.settings.handshake_timeout, self.abort)

    def data_received(self, data: bytes) -> None:
        self._said += data
        terminal = self._service.choose(self._said)
        if terminal is not None:
            self._timer.cancel()
            self._service.left(self)
            self._transport.set_protocol(terminal)
            terminal.connection_made(self._transport)
            terminal.data_received(self._said)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._service.left(self)

    def abort(self) -> None:
        self._transport.abort()
