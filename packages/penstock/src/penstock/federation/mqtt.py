"""The sides of a transfer that are MQTT brokers: QoS 1, or QoS 0 without acknowledgements.

The session of a source is persistent, so messages that are published while the broker is
unreachable arrive later. MQTT 3.1.1 carries a topic and a body only (`?version=3.1.1`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode

from penstock.broker.contract import Message
from penstock.client.errors import BrokerUnreachable
from penstock.client.mqtt.endpoint import (
    MqttConnectionLost,
    MqttEndpoint,
    connect_error,
    reason_code_error,
)
from penstock.client.mqtt.transport import ConnackProperties, PahoConnection
from penstock.core.basic_properties import decode_route, encode_route
from penstock.core.errors import PenstockError, PreconditionFailed
from penstock.federation.transfer import TransferFailed, TransferMessage, TransferOutcome
from penstock.protocols.mqtt.conversion import encode_content_header, message_properties
from penstock.wire.mqtt.fields import PUBLISH
from penstock.wire.mqtt.properties import encode_properties, read_properties
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode
from penstock.wire.mqtt.topics import check_topic_name, routing_key_to_topic, topic_to_routing_key


def packed_properties(properties: Properties) -> bytes:
    return bytes(properties.pack())  # type: ignore[no-untyped-call]


class _MqttSide:
    """Implements `penstock.client.mqtt.transport.MqttConnectionEvents`."""

    def __init__(self, endpoints: Sequence[MqttEndpoint], qos: int) -> None:
        self.endpoint = random.choice(endpoints)
        self._qos = qos
        self._wire = PahoConnection(self.endpoint, None, self)
        self._failed: TransferFailed = lambda _: None

    async def _connect(self, failed: TransferFailed) -> ConnackProperties:
        self._failed = failed
        try:
            return await self._wire.connect()
        except (OSError, ValueError, MqttConnectionLost) as error:
            raise connect_error(self.endpoint, error) from error

    async def close(self) -> None:
        self._failed = lambda _: None
        await self._wire.disconnect()

    def on_connack(self, connack: ConnackProperties) -> None: ...

    def arrived(self, packet: MQTTMessage) -> None: ...

    def acknowledged(self, packet_id: int, reason: PahoReasonCode) -> None: ...

    def lost(self, error: MqttConnectionLost) -> None:
        self._failed(BrokerUnreachable(self.endpoint.host, self.endpoint.port, str(error)))


class MqttTransferSource(_MqttSide):
    backlog: int | None = None

    def __init__(
        self, endpoints: Sequence[MqttEndpoint], topic: str, prefetch: int, qos: int
    ) -> None:
        super().__init__(endpoints, qos)
        self._topic = topic
        self._prefetch = prefetch
        self._held = 0
        self.forgotten = False  #: the session is not needed any more

    async def open(
        self, arrived: Callable[[TransferMessage], None], failed: TransferFailed
    ) -> None:
        self._arrived = arrived
        await self._connect(failed)
        try:
            reason, words = await self._wire.subscribe(self._topic, self._qos, None)
        except MqttConnectionLost as error:
            raise connect_error(self.endpoint, error) from error
        if reason.value >= ReasonCode.UNSPECIFIED_ERROR:
            raise reason_code_error(f"cannot subscribe to {self._topic!r}", reason, words)

    def arrived(self, packet: MQTTMessage) -> None:
        body = bytes(packet.payload)
        packed = b"\x00" if packet.properties is None else packed_properties(packet.properties)
        properties, _ = read_properties(packed, 0, PUBLISH)
        key = topic_to_routing_key(packet.topic.encode())
        if len(key) > 255:
            self._wire.acknowledge(packet)  # no broker with routing keys can take it
            return
        route = encode_route("amq.topic", key.decode())
        header = encode_content_header(properties, packet.qos, len(body))
        self._held += 1
        self._wire.read(self._held < self._prefetch)
        self._arrived(TransferMessage(route, header, body, packet, bool(packet.dup)))

    async def close(self) -> None:
        if self.forgotten:
            self._wire.unsubscribe(self._topic)
        await super().close()

    def ack(self, message: TransferMessage) -> None:
        packet: MQTTMessage = message.tag
        if packet.qos:
            self._wire.acknowledge(packet)
        self._held -= 1
        if self._held * 2 <= self._prefetch:
            self._wire.read(True)


class MqttTransferDestination(_MqttSide):
    def __init__(self, endpoints: Sequence[MqttEndpoint], topic: str | None, qos: int) -> None:
        super().__init__(endpoints, qos)
        self._topic = topic
        self._window = 1
        self._outcomes: dict[int, TransferOutcome] = {}
        self._flow = asyncio.Event()

    @property
    def flowing(self) -> bool:
        return len(self._outcomes) < self._window

    async def open(self, failed: TransferFailed) -> None:
        self._window = (await self._connect(failed)).receive_maximum

    async def flow(self) -> None:
        self._flow.clear()
        await self._flow.wait()

    def lost(self, error: MqttConnectionLost) -> None:
        super().lost(error)
        self._flow.set()

    def send(self, message: TransferMessage, outcome: TransferOutcome) -> None:
        key = decode_route(message.route)[1]
        topic = self._topic or routing_key_to_topic(key.encode()).decode()
        try:
            check_topic_name(topic)
        except MqttError as error:
            outcome(PreconditionFailed(str(error)))
            return
        properties: Properties | None = None
        if self.endpoint.is_v5:
            found = message_properties(Message(message.route, message.header, message.body))
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.unpack(encode_properties(found))  # type: ignore[no-untyped-call]
        packet_id = self._wire.publish(topic, message.body, self._qos, False, properties)
        if self._qos:
            self._outcomes[packet_id] = outcome
        else:
            outcome(None)

    def acknowledged(self, packet_id: int, reason: PahoReasonCode) -> None:
        outcome = self._outcomes.pop(packet_id, None)
        self._flow.set()
        if outcome is None:
            return
        error: PenstockError | None = None
        if reason.value >= ReasonCode.UNSPECIFIED_ERROR:
            error = reason_code_error("the broker refused the message", reason)
        outcome(error)
