"""An MQTT connection that reconnects.

Its listeners are notified when the connection is lost. On the next one they resume in order,
receivers before senders; only then is the connection `ready`. A reconnect that the broker refuses
ends the recovery with its error.

A listener whose buffer is full can pause reading (`hold`). That does not take effect while another
waits for an acknowledgement of the broker (`expect`), which arrives on the same socket.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from paho.mqtt.client import MQTTMessage
from paho.mqtt.reasoncodes import ReasonCode

from penstock.client.errors import FabricClosed
from penstock.client.mqtt.endpoint import (
    MqttConnectionLost,
    MqttEndpoint,
    connect_error,
    permanent_error,
)
from penstock.client.mqtt.transport import ConnackProperties, PahoConnection
from penstock.client.retry import connect_with_retry, reconnect_when_lost
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy

log = get_logger(__name__)

#: After shorter connections, reconnects are delayed.
SHORT_CONNECTION_SECONDS: Final = 1.0
SHORT_CONNECTION_RETRY: Final = RetryPolicy(first=0.5, longest=15.0)
#: After so many of them, a warning names the probable cause.
MAX_SHORT_CONNECTIONS: Final = 3


class MqttReconnectListener(Protocol):
    """A part of the client that resumes on the next connection."""

    def paused(self, lost: MqttConnectionLost) -> None: ...

    def renewed(self, session_present: bool) -> None:
        """Connected: messages that arrive from now on belong to this connection."""

    async def resume(self, session_present: bool) -> None:
        """Raises `MqttConnectionLost` if this connection is lost as well."""

    def failed(self, error: PenstockError) -> None:
        """There will be no other connection."""


class MqttRecoveringConnection:
    def __init__(
        self, endpoint: MqttEndpoint, tls: ssl.SSLContext | None, retry_seconds: float
    ) -> None:
        self.endpoint = endpoint
        self.wire = PahoConnection(endpoint, tls, self)
        self.connack: ConnackProperties | None = None
        self.generation = 0  #: the number of the connection, from 1
        self.on_arrival: Callable[[MQTTMessage], None] = lambda _: None
        self.on_acknowledged: Callable[[int, ReasonCode], None] = lambda _packet, _reason: None
        self._retry_seconds = retry_seconds
        self._listeners: list[MqttReconnectListener] = []
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        self._opening = asyncio.Lock()
        self._recovery: asyncio.Task[None] | None = None
        self._failure: PenstockError | None = None
        self._holding: set[object] = set()
        self._expected = 0
        self._connack_received = False  #: the last attempt to connect succeeded
        self._connected_at = 0.0
        self._short_connections = 0
        self._delays = SHORT_CONNECTION_RETRY.delays()

    def join(self, listener: MqttReconnectListener) -> None:
        self._listeners.append(listener)

    @property
    def connected(self) -> bool:
        return self.connack is not None

    @property
    def is_persistent(self) -> bool:
        return self.endpoint.is_persistent

    async def open(self) -> None:
        async with self._opening:
            if self._failure is not None:
                raise self._failure
            if self._recovery is not None:
                return
            await connect_with_retry(self._connect, self._retry_seconds)
            self._connected_at = asyncio.get_running_loop().time()
            self._recovery = asyncio.create_task(
                reconnect_when_lost(self._lost, self._reconnect, self._fail, self)
            )

    async def ready(self) -> ConnackProperties:
        """Returns when all listeners have resumed on a connection."""
        while True:
            await self.open()
            await self._ready.wait()
            if self._failure is not None:
                raise self._failure
            if self.connack is not None:
                return self.connack

    async def close(self) -> None:
        self._fail(FabricClosed("the fabric is closed"))
        async with self._opening:
            if self._recovery is not None:
                self._recovery.cancel()
                await asyncio.gather(self._recovery, return_exceptions=True)
            await self.wire.disconnect()
            self.connack = None

    def hold(self, who: object) -> None:
        self._holding.add(who)
        self._update_reading()

    def release(self, who: object) -> None:
        self._holding.discard(who)
        self._update_reading()

    def expect(self) -> None:
        """An acknowledgement of the broker is awaited."""
        self._expected += 1
        self._update_reading()

    def received(self) -> None:
        self._expected -= 1
        self._update_reading()

    def on_connack(self, connack: ConnackProperties) -> None:
        self._connack_received = True
        self.generation += 1
        self.connack = connack
        self._update_reading()
        for listener in self._listeners:
            listener.renewed(connack.session_present)

    def arrived(self, packet: MQTTMessage) -> None:
        self.on_arrival(packet)

    def acknowledged(self, packet_id: int, reason: ReasonCode) -> None:
        self.on_acknowledged(packet_id, reason)

    def lost(self, error: MqttConnectionLost) -> None:
        self.connack = None
        self._ready.clear()
        for listener in self._listeners:
            listener.paused(error)
        if (failure := permanent_error(self.endpoint, error)) is not None:
            self._fail(failure)
        else:
            log.warning("connection lost", broker=str(self), reason=str(error))
            self._lost.set()

    def __str__(self) -> str:
        return str(self.endpoint)

    def _update_reading(self) -> None:
        self.wire.read(not self._holding or self._expected > 0)

    async def _connect(self) -> None:
        self._lost.clear()
        self._connack_received = False
        try:
            connack = await self.wire.connect()
        except PenstockError:
            raise
        except (OSError, ValueError, MqttConnectionLost) as error:
            raise connect_error(self.endpoint, error) from error
        try:
            for listener in self._listeners:
                await listener.resume(connack.session_present)
        except MqttConnectionLost as error:
            raise connect_error(self.endpoint, error) from error
        if self.connack is not None:
            self._ready.set()

    async def _reconnect(self) -> None:
        """Connect, after a delay that grows while connections end soon after they are opened."""
        clock = asyncio.get_running_loop().time
        if self._connack_received and clock() - self._connected_at < SHORT_CONNECTION_SECONDS:
            self._short_connections += 1
            if self._short_connections == MAX_SHORT_CONNECTIONS:
                log.warning(
                    "connections end soon after they are opened: does another client use this id?",
                    client_id=self.endpoint.client_id,
                )
            await asyncio.sleep(next(self._delays))
        else:
            self._short_connections = 0
            self._delays = SHORT_CONNECTION_RETRY.delays()
        self._connected_at = clock()
        await self._connect()

    def _fail(self, error: PenstockError) -> None:
        if self._failure is None:
            self._failure = error
            for listener in self._listeners:
                listener.failed(error)
        self._ready.set()
