"""A broker without sockets: the MQTT service on a stand, and clients that are cables to it.

`MqttTestBroker` is the host of terminals, `Cable` their transport, and `Caller` a client at the
other end. Time advances when a test says so, also for the timers of terminals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.broker.content_router import ContentRouter
from penstock.broker.host import (
    Alarms,
    ClientConnection,
    ConnectionLimiter,
    CredentialExpiry,
    LinkAcceptor,
)
from penstock.broker.users import Users
from penstock.core.config import MqttSettings
from penstock.core.passwords import PasswordVerifier
from penstock.protocols.mqtt.terminal import MqttProtocol
from penstock.wire.mqtt.fields import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBREC,
    SUBACK,
    UNSUBACK,
)
from penstock.wire.mqtt.packets import (
    ConnectPacket,
    ConnectWill,
    SubscriptionRequest,
    encode_acknowledgement,
    encode_disconnect,
    encode_publish,
)
from penstock.wire.mqtt.properties import MqttProperties, MqttProperty, encode_properties
from tests import mqtt_wire
from tests.broker.users.ground import CountingHasher
from tests.doubles import Stand

LOOPBACK = ("127.0.0.1", 40000)


class Cable:
    """A transport that keeps what is written to it, and can be made to take no more."""

    def __init__(self, terminal: Any, peer: tuple[str, int] = LOOPBACK) -> None:
        self._terminal = terminal
        self._peer = peer
        self.written = bytearray()
        self.changed = asyncio.Event()
        self.reading = True
        self.closing = False
        self.lost = False
        self.unsent = 0  #: what a test says the far end has not taken
        self.max_size = 0
        self.websocket: str | None = None  #: the subprotocol, if a WebSocket is in between

    # What a terminal asks of it.

    def write(self, data: bytes) -> None:
        assert not self.lost, "written to after it was gone"
        self.written += data
        self.changed.set()

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self._lose)

    abort = close

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            self._terminal.connection_lost(None)
            self.changed.set()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """The far end closes as soon as it hears of it."""
        self.close()

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        self.changed.set()

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high: int) -> None:
        """The test decides when it is full."""

    def get_extra_info(self, name: str) -> Any:
        facts = {"peername": self._peer, "sockname": ("127.0.0.1", 1883)}
        return {**facts, "websocket": self.websocket}.get(name)

    # What a test asks of it.

    def cut(self) -> None:
        """The far end is gone without a word."""
        self.closing = True
        self._lose()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 60)


class Caller:
    """A client, byte by byte."""

    def __init__(self, house: MqttTestBroker, version: int, peer: tuple[str, int]) -> None:
        self.house = house
        self.version = version
        terminal: Any = house.mqtt.terminal()
        self.terminal = terminal
        self.cable: Any = Cable(self.terminal, peer)
        self.terminal.connection_made(self.cable)
        self._seen = 0

    # Speaking.

    def say(self, *packets: bytes) -> None:
        """In one read."""
        assert not self.cable.lost
        self.terminal.data_received(b"".join(packets))

    async def connect(
        self,
        client_id: str = "c",
        *,
        clean: bool = True,
        expiry: int = 0,
        keep_alive: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: ConnectWill | None = None,
        **properties: Any,
    ) -> tuple[bool, int, MqttProperties]:
        """What the CONNACK says."""
        told: MqttProperties = {
            MqttProperty[name.upper()]: value for name, value in properties.items()
        }
        if expiry:
            told[MqttProperty.SESSION_EXPIRY] = expiry
        wanted = ConnectPacket(
            self.version, client_id, clean, keep_alive, username, password, will, told
        )
        self.say(mqtt_wire.connect(wanted))
        _, body = await self.hear(CONNACK)
        return mqtt_wire.decode_connack(body, self.version)

    def publish(
        self,
        topic: str,
        payload: bytes = b"hello",
        *,
        qos: int = 0,
        number: int = 0,
        retain: bool = False,
        duplicate: bool = False,
        properties: MqttProperties | None = None,
    ) -> None:
        self.say(
            published(self.version, topic, payload, qos, number, retain, duplicate, properties)
        )

    def subscribe(
        self, *filters: str, qos: int = 0, number: int = 1, identifier: int = 0, **options: Any
    ) -> list[int]:
        """The reasons of the SUBACK."""
        told: MqttProperties = (
            {MqttProperty.SUBSCRIPTION_IDENTIFIER: [identifier]} if identifier else {}
        )
        asked = [SubscriptionRequest(one, qos, **options) for one in filters]
        self.say(mqtt_wire.subscribe(self.version, number, asked, told))
        _, body = self.last(SUBACK)
        return mqtt_wire.decode_suback(body, self.version)[2]

    def unsubscribe(self, *filters: str, number: int = 1) -> list[int]:
        self.say(mqtt_wire.unsubscribe(self.version, number, filters))
        _, body = self.last(UNSUBACK)
        return mqtt_wire.decode_unsuback(body, self.version)[2]

    def acknowledge(self, kind: int, number: int, reason: int = 0) -> None:
        self.say(encode_acknowledgement(kind, number, reason, version=self.version))

    def answer(self, message: mqtt_wire.Published) -> None:
        """All a good client has to say to a message."""
        if message.qos == 1:
            self.acknowledge(PUBACK, message.number)
        elif message.qos == 2:
            self.acknowledge(PUBREC, message.number)
            self.acknowledge(PUBCOMP, message.number)

    def leave(self, reason: int = 0, **properties: Any) -> None:
        told: MqttProperties = {
            MqttProperty[name.upper()]: value for name, value in properties.items()
        }
        self.say(encode_disconnect(reason, told) if self.version == 5 else mqtt_wire.DISCONNECT)

    # Hearing.

    @property
    def packets(self) -> list[tuple[int, bytes]]:
        """All so far: first byte and body."""
        return mqtt_wire.split(bytes(self.cable.written))[0]

    def of(self, kind: int) -> list[tuple[int, bytes]]:
        return [packet for packet in self.packets if packet[0] >> 4 == kind]

    def last(self, kind: int) -> tuple[int, bytes]:
        return self.of(kind)[-1]

    async def hear(self, kind: int, count: int = 1) -> tuple[int, bytes]:
        """The packet of a kind, once there are so many."""
        await self.cable.until(lambda: len(self.of(kind)) >= count or self.cable.lost)
        return self.of(kind)[count - 1]

    @property
    def got(self) -> list[mqtt_wire.Published]:
        return list(mqtt_wire.publishes(bytes(self.cable.written), self.version))

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.got]

    async def until_got(self, count: int) -> list[mqtt_wire.Published]:
        await self.cable.until(lambda: len(self.got) >= count or self.cable.lost)
        return self.got

    def acknowledgements(self, kind: int) -> list[tuple[int, int]]:
        """Number and reason of the acknowledgements of a kind."""
        decoded = (mqtt_wire.decode_acknowledgement(kind, body) for _, body in self.of(kind))
        return [(number, reason) for number, reason, _ in decoded]

    async def until_answered(self, kind: int, count: int = 1) -> list[tuple[int, int]]:
        await self.cable.until(lambda: len(self.of(kind)) >= count or self.cable.lost)
        return self.acknowledgements(kind)

    async def until_closed(self) -> int | None:
        """The reason of the DISCONNECT that came before, if one did."""
        await self.cable.until(lambda: self.cable.lost)
        said = self.of(DISCONNECT)
        return (said[-1][1][0] if said[-1][1] else 0) if said else None

    async def cut(self) -> None:
        """Gone without a word, and noticed."""
        self.cable.cut()


def published(
    version: int,
    topic: str,
    payload: bytes = b"hello",
    qos: int = 0,
    number: int = 0,
    retain: bool = False,
    duplicate: bool = False,
    properties: MqttProperties | None = None,
) -> bytes:
    first = 0x30 | duplicate << 3 | qos << 1 | retain
    encoded = encode_properties(properties or {}) if version == 5 else None
    return encode_publish(first, topic.encode(), number, encoded, payload)


class MqttTestBroker:
    """The broker, as far as a terminal may know it."""

    draining = False

    def __init__(self, directory: Path, **settings: Any) -> None:
        """Callers without a name are guest here, unless the settings name another."""
        mqtt = {"sys_interval": 0.0, **settings.pop("mqtt", {})}
        settings.setdefault("anonymous_user", "guest")
        self._settings = settings
        self._mqtt = mqtt
        self._directory = directory
        self.stand = Stand(directory / "log", mqtt=MqttSettings(**mqtt), **settings)
        clock: Any = self.stand.clock
        clock.call_later = lambda delay, call, *args: clock.call_at(
            clock.time() + delay, call, *args
        )
        self.clock = self.stand.clock
        self.kernel = self.stand.kernel
        self.vhost = self.stand.vhost
        self.vhosts = {"/": self.vhost}
        self.users = Users(directory / "users.json", passwords=PasswordVerifier(CountingHasher()))
        self.users.load()
        self.alarms = Alarms(self._alarms_changed)
        self.connection_limiter = ConnectionLimiter(1000, 1024)
        self.credential_expiry = CredentialExpiry()
        self.clients: dict[ClientConnection, float] = {}
        self.product: dict[str, Any] = {}
        self.mqtt = MqttProtocol(self)
        self.kernel.write_batch.flush()

    @property
    def links(self) -> LinkAcceptor:
        raise AssertionError("no MQTT client is a broker")

    def router(self, vhost: str) -> ContentRouter[Any]:
        raise AssertionError("MQTT reaches publications by their exchange")

    def client_left(self, client: ClientConnection) -> None:
        self.clients.pop(client, None)

    def _alarms_changed(self) -> None:
        for client in list(self.clients):
            client.alarms_changed()
        self.kernel.write_batch.flush()

    def caller(self, version: int = 5, peer: tuple[str, int] = LOOPBACK) -> Caller:
        return Caller(self, version, peer)

    async def connected(self, client_id: str = "c", *, version: int = 5, **options: Any) -> Caller:
        """A client that was let in."""
        caller = self.caller(version)
        _, reason, _ = await caller.connect(client_id, **options)
        assert reason == 0
        return caller

    def session(self, client_id: str) -> Any:
        return self.vhost.queues.get(f"mqtt-subscription-{client_id}")

    async def close(self) -> None:
        """As a broker that is asked to stop."""
        self.draining = True
        for client in list(self.clients):
            client.end("shutdown")
        await self.stop()

    async def stop(self) -> None:
        """As one that is killed between two turns: clients are told nothing, nor is it told."""
        self.kernel.write_batch.flush()
        self.mqtt.close()
        await self.stand.close()

    async def restarted(self, *, killed: bool = False) -> MqttTestBroker:
        await (self.stop() if killed else self.close())
        return MqttTestBroker(self._directory, mqtt=self._mqtt, **self._settings)
