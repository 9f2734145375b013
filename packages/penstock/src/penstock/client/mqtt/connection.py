"""A connection that mends itself.

A link keeps a wire connected for as long as it is open. When a connection goes, the parts that use
it are told; when the next is there they are asked in turn to resume, those who receive before those
who send, and only then is the link `ready` again. A broker that will not have us back (another has
taken our name, our password has changed) ends the link with the reason.

It also weighs who may hold up the broker: a part whose buffer is full may have reading stopped, but
not while somebody waits for the broker's word, which comes the same way.
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

#: A connection that ends sooner has not been a success, and the next one can wait.
SHORT_CONNECTION_SECONDS: Final = 1.0
SHORT_CONNECTION_RETRY: Final = RetryPolicy(first=0.5, longest=15.0)
#: After so many of those it is time to say what may be behind it.
MAX_SHORT_CONNECTIONS: Final = 3


class MqttReconnectListener(Protocol):
    """Whoever uses a link and has something to resume on the next connection."""

    def paused(self, lost: MqttConnectionLost) -> None: ...

    def renewed(self, session_present: bool) -> None:
        """There is a connection; what arrives from now on arrives on it."""

    async def resume(self, session_present: bool) -> None:
        """Go on; raises `MqttConnectionLost` when this connection went as well."""

    def failed(self, error: PenstockError) -> None:
        """There will be no other connection."""


class MqttRecoveringConnection:
    def __init__(
        self, endpoint: MqttEndpoint, tls: ssl.SSLContext | None, retry_seconds: float
    ) -> None:
        self.endpoint = endpoint
        self.wire = PahoConnection(endpoint, tls, self)
        self.connack: ConnackProperties | None = None
        self.generation = 0  #: which connection it is, counted from 1
        self.on_arrival: Callable[[MQTTMessage], None] = lambda _: None
        self.on_acknowledged: Callable[[int, ReasonCode], None] = lambda _packet, _reason: None
        self._retry_seconds = retry_seconds
        self._parts: list[MqttReconnectListener] = []
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        self._opening = asyncio.Lock()
        self._recovery: asyncio.Task[None] | None = None
        self._failure: PenstockError | None = None
        self._holding: set[object] = set()
        self._awaited = 0
        self._welcomed = False  #: the last attempt to connect succeeded
        self._connected_at = 0.0
        self._short_connections = 0
        self._delays = SHORT_CONNECTION_RETRY.delays()

    def join(self, part: MqttReconnectListener) -> None:
        self._parts.append(part)

    @property
    def connected(self) -> bool:
        """Whether something can be sent now."""
        return self.connack is not None

    @property
    def lasting(self) -> bool:
        return self.endpoint.lasting

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
        """Returns when there is a connection and everything is resumed on it."""
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
        self._steer()

    def release(self, who: object) -> None:
        self._holding.discard(who)
        self._steer()

    def expect(self) -> None:
        """Somebody waits for the broker's word."""
        self._awaited += 1
        self._steer()

    def met(self) -> None:
        self._awaited -= 1
        self._steer()

    def on_connack(self, connack: ConnackProperties) -> None:
        self._welcomed = True
        self.generation += 1
        self.connack = connack
        self._steer()
        for part in self._parts:
            part.renewed(connack.session_present)

    def arrived(self, packet: MQTTMessage) -> None:
        self.on_arrival(packet)

    def acknowledged(self, packet_id: int, reason: ReasonCode) -> None:
        self.on_acknowledged(packet_id, reason)

    def lost(self, error: MqttConnectionLost) -> None:
        self.connack = None
        self._ready.clear()
        for part in self._parts:
            part.paused(error)
        if (failure := permanent_error(self.endpoint, error)) is not None:
            self._fail(failure)
        else:
            log.warning("connection lost", broker=str(self), reason=str(error))
            self._lost.set()

    def __str__(self) -> str:
        return str(self.endpoint)

    def _steer(self) -> None:
        self.wire.read(not self._holding or self._awaited > 0)

    async def _connect(self) -> None:
        self._lost.clear()
        self._welcomed = False
        try:
            connack = await self.wire.connect()
        except PenstockError:
            raise
        except (OSError, ValueError, MqttConnectionLost) as error:
            raise connect_error(self.endpoint, error) from error
        try:
            for part in self._parts:
                await part.resume(connack.session_present)
        except MqttConnectionLost as error:
            raise connect_error(self.endpoint, error) from error
        if self.connack is not None:
            self._ready.set()

    async def _reconnect(self) -> None:
        """Connect, after a delay that grows while connections end soon after they are opened."""
        clock = asyncio.get_running_loop().time
        if self._welcomed and clock() - self._connected_at < SHORT_CONNECTION_SECONDS:
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
            for part in self._parts:
                part.failed(error)
        self._ready.set()
