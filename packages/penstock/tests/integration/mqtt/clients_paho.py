"""paho-mqtt as the tests use it: one call for each packet, which returns what the broker answered.

paho runs its network loop in a thread of its own; its callbacks put what they are told into queues,
and the calls here wait for it there, so that no test sleeps. Reason codes are plain numbers. A
client never reconnects by itself unless it was told to: a test wants to see that it was closed.

Properties of MQTT 5 are keyword arguments by paho's names for them (`ContentType="text/plain"`),
and come back in a dictionary by the same names.
"""

from __future__ import annotations

import queue
import socket
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.integration.mqtt.clients_properties import AN_HOUR, properties_of, values_of

MQTT_3: Final = MQTTProtocolVersion.MQTTv311
MQTT_5: Final = MQTTProtocolVersion.MQTTv5

#: What `ended` returns when the connection was closed without a word, as 3.1.1 does it.
WITHOUT_A_WORD: Final = -1

PATIENCE: Final = 60.0


@dataclass(frozen=True)
class Connack:
    reason: int
    present: bool
    properties: dict[str, Any]


@dataclass(frozen=True)
class Arrival:
    """A message as the client got it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    number: int
    properties: dict[str, Any]


@dataclass(frozen=True)
class Will:
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    delay: int = 0


class Paho:
    """One client of paho. As a context it is connected within, and closed after."""

    def __init__(
        self,
        port: int,
        client_id: str = "",
        version: MQTTProtocolVersion = MQTT_5,
        *,
        keep: bool = False,
        login: tuple[str, str] | None = ("guest", "guest"),
        will: Will | None = None,
        keep_alive: int = 60,
        manual: bool = False,
        transport: Literal["tcp", "websockets"] = "tcp",
        **properties: Any,
    ) -> None:
        """`keep` is a session that outlives the connection; `manual` leaves acknowledging to us."""
        self.port = port
        self.version = version
        self.client_id = client_id
        self._keep = keep
        self._keep_alive = keep_alive
        self._properties = properties
        if keep and version == MQTT_5:
            self._properties = {"SessionExpiryInterval": AN_HOUR, **properties}
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if version == MQTT_5 else not keep,
            protocol=version,
            transport=transport,
            reconnect_on_failure=False,
            manual_ack=manual,
        )
        if login is not None:
            self.client.username_pw_set(*login)
        if will is not None:
            delay = {"WillDelayInterval": will.delay} if will.delay else {}
            self.client.will_set(
                will.topic,
                will.payload,
                will.qos,
                will.retain,
                properties_of(PacketTypes.WILLMESSAGE, delay),
            )
        self._listen()

    def _listen(self) -> None:
        self._connacks: queue.Queue[Connack] = queue.Queue()
        self._ends: queue.Queue[int] = queue.Queue()
        self._arrivals: queue.Queue[Arrival] = queue.Queue()
        self._answers: queue.Queue[tuple[int, list[int]]] = queue.Queue()
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_message = self._on_message
        self.client.on_subscribe = self._on_answer
        self.client.on_unsubscribe = self._on_answer
        self.client.on_publish = self._on_publish

    def __enter__(self) -> Self:
        connack = self.open()
        assert connack.reason == 0, f"not let in: {connack}"
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Calls.

    def open(self) -> Connack:
        self.client.connect(
            "127.0.0.1",
            self.port,
            self._keep_alive,
            clean_start=self._clean_start,
            properties=properties_of(PacketTypes.CONNECT, self._properties),
        )
        self.client.loop_start()
        return self._connacks.get(timeout=PATIENCE)

    def subscribe(
        self, filters: str | Sequence[str], qos: int = 0, identifier: int = 0, **options: Any
    ) -> list[int]:
        """The reason code of each filter; `options` are paho's for MQTT 5."""
        named = {"SubscriptionIdentifier": identifier} if identifier else {}
        each = [filters] if isinstance(filters, str) else filters
        if self.version == MQTT_5:
            wanted: Any = [(one, SubscribeOptions(qos, **options)) for one in each]
        else:
            wanted = [(one, qos) for one in each]
        properties = properties_of(PacketTypes.SUBSCRIBE, named)
        return self._answer(self.client.subscribe(wanted, properties=properties)[1])

    def unsubscribe(self, pattern: str) -> list[int]:
        return self._answer(self.client.unsubscribe(pattern)[1])

    def publish(
        self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, **values: Any
    ) -> int:
        """Publish, and wait until the broker has answered: the reason code."""
        return self._answer(self.post(topic, payload, qos, retain, **values))[0]

    def post(
        self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, **values: Any
    ) -> int:
        """Publish without waiting: the packet's number."""
        properties = properties_of(PacketTypes.PUBLISH, values)
        return self.client.publish(topic, payload, qos, retain, properties).mid

    def acknowledge(self, arrival: Arrival) -> None:
        self.client.ack(arrival.number, arrival.qos)

    def receive(self) -> Arrival:
        try:
            return self._arrivals.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"nothing has come to {self.client_id!r}") from None

    def receive_payloads(self, count: int) -> list[bytes]:
        return [self.receive().payload for _ in range(count)]

    def arrived(self, qos: int = 0) -> list[Arrival]:
        """What has come by now: all there is before a message we send ourselves.

        A broker may let one of QoS 0 overtake those that wait for room in the window.
        """
        fence = f"fence/{uuid.uuid4().hex}"
        assert self.subscribe(fence, qos)[0] < 0x80
        self.post(fence, b"fence", qos)
        found = []
        while (arrival := self.receive()).topic != fence:
            found.append(arrival)
        self.unsubscribe(fence)
        return found

    def pending(self) -> list[Arrival]:
        """What has come by the time the broker answers a question; for a window that is full."""
        self.unsubscribe("no/such/subscription")
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._arrivals.get_nowait())
        return found

    def close(self, reason: int = 0, **properties: Any) -> None:
        """Say good-bye, unless the broker has done so before."""
        said = ReasonCode(PacketTypes.DISCONNECT, identifier=reason) if reason else None
        self.client.disconnect(said, properties_of(PacketTypes.DISCONNECT, properties))
        self.client.loop_stop()

    def drop(self) -> None:
        """The connection breaks: no DISCONNECT, so that a will is due."""
        connection: Any = self.client.socket()
        assert connection is not None, "not connected"
        connection.shutdown(socket.SHUT_RDWR)
        self.ended()
        self.client.loop_stop()

    def ended(self, timeout: float = PATIENCE) -> int:
        """Wait until the connection has ended; the reason, if one was given."""
        return self._ends.get(timeout=timeout)

    @property
    def is_open(self) -> bool:
        return self.client.is_connected()

    # What paho tells us, in its thread.

    def _on_connect(self, _client: Any, _data: Any, flags: Any, reason: Any, given: Any) -> None:
        self._connacks.put(Connack(reason.value, flags.session_present, values_of(given)))

    def _on_disconnect(self, _client: Any, _data: Any, flags: Any, reason: Any, _: Any) -> None:
        said = flags.is_disconnect_packet_from_server
        self._ends.put(reason.value if said else WITHOUT_A_WORD)

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        self._arrivals.put(
            Arrival(
                message.topic,
                bytes(message.payload),
                message.qos,
                message.retain,
                message.dup,
                message.mid,
                values_of(message.properties),
            )
        )

    def _on_answer(self, _client: Any, _data: Any, number: int, reasons: Any, _: Any) -> None:
        self._answers.put((number, [reason.value for reason in reasons]))

    def _on_publish(self, _client: Any, _data: Any, number: int, reason: Any, _: Any) -> None:
        self._answers.put((number, [reason.value]))

    @property
    def _clean_start(self) -> Any:
        if self.version == MQTT_5:
            return not self._keep
        return paho.MQTT_CLEAN_START_FIRST_ONLY  # what it has when it is not to be used

    def _answer(self, number: int | None) -> list[int]:
        """The answer to a packet; those to what was posted before without waiting are dropped."""
        while True:
            answered, reasons = self._answers.get(timeout=PATIENCE)
            if answered == number:
                return reasons
