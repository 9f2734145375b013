"""A publisher and a subscriber that go on when the broker goes away, and keep books.

Each payload is the number of the message. Both clients are paho's, with sessions that are kept:
told that the broker is back, they take up every exchange where it stopped, as the standard has it.
So what they see tells what the broker has forgotten, or done twice.

They are told, and do not try by themselves: paho forgets at a second attempt that a message of
QoS 2 has been received, and would publish it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MessageState, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes

from tests.integration.mqtt.clients_paho import MQTT_5
from tests.integration.mqtt.clients_properties import AN_HOUR, properties_of

PATIENCE: Final = 300.0
#: MQTT 5's packet identifier not found: no error while an exchange is taken up again.
NOT_FOUND: Final = 0x92
#: PUBREC has come: the broker has the message.
RECEIVED: Final = (MessageState.MQTT_MS_WAIT_FOR_PUBCOMP, MessageState.MQTT_MS_RESEND_PUBREL)


class SteadyClient:
    """The connection of either: kept, and remade when it is told to."""

    def __init__(self, port: int, client_id: str, version: MQTTProtocolVersion) -> None:
        self.connections: list[bool] = []  #: whether each found its session
        self.ready = False  #: connected, and what was under way has been taken up
        self.changed = threading.Condition()
        self._port = port
        self._version = version
        self._ended = threading.Event()
        self._answered = threading.Event()
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if version == MQTT_5 else False,
            protocol=version,
            reconnect_on_failure=False,
        )
        self.paho.username_pw_set("guest", "guest")
        self.paho.max_inflight_messages_set(200)
        self.paho.on_connect = self._on_connect
        self.paho.on_disconnect = self._on_disconnect
        self.paho.on_subscribe = self._on_subscribe

    def open(self) -> None:
        session = {"SessionExpiryInterval": AN_HOUR} if self._version == MQTT_5 else {}
        self.paho.connect(
            "127.0.0.1",
            self._port,
            clean_start=False if self._version == MQTT_5 else paho.MQTT_CLEAN_START_FIRST_ONLY,
            properties=properties_of(PacketTypes.CONNECT, session),
        )
        self._go_on()

    def resume(self) -> None:
        """The broker is back."""
        assert self._ended.wait(PATIENCE)
        self.paho.loop_stop()
        self.paho.reconnect()
        self._go_on()

    def unanswered(self) -> list[paho.MQTTMessage]:
        """What was published and not answered, be it by PUBREC, before the broker went."""
        assert self._ended.wait(PATIENCE)
        with self.paho._out_message_mutex:
            published = self.paho._out_messages.values()
            return [each for each in published if each.state not in RECEIVED]

    def _go_on(self) -> None:
        self._ended.clear()
        self.paho.loop_start()
        self.subscribe("resumed", 0)  # paho sends what was under way before it reads the answer
        with self.changed:
            self.ready = True
            self.changed.notify_all()

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def subscribe(self, topic: str, qos: int) -> None:
        self._answered.clear()
        self.paho.subscribe(topic, qos)
        assert self._answered.wait(PATIENCE), f"no answer to a subscription to {topic}"

    def wait_for(self, condition: Callable[[], object]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), "has not come about"

    def _on_connect(self, _client: Any, _data: Any, flags: Any, reason: Any, _: Any) -> None:
        assert reason.value == 0, f"not let in: {reason}"
        with self.changed:
            self.connections.append(flags.session_present)
            self.changed.notify_all()

    def _on_disconnect(self, *_: Any) -> None:
        self.ready = False
        self._ended.set()

    def _on_subscribe(self, *_: Any) -> None:
        self._answered.set()


class Publisher:
    """Publishes one number after the other, some ahead of the answers, until it is stopped."""

    AHEAD: Final = 400
    #: Every so many messages, the number is published as a retained message as well.
    RETAIN_EVERY: Final = 10

    def __init__(self, client: SteadyClient, topic: str, qos: int) -> None:
        self.client = client
        self.sent = 0
        self.retained = 0  #: how many were published to be retained, beside those
        self.confirmed = 0
        self.in_doubt: list[set[int]] = []  #: at each crash: sent, and not answered
        self._topic = topic
        self._qos = qos
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        client.paho.on_publish = self._on_publish

    def start(self) -> None:
        self._thread.start()

    def wait_for_progress(self) -> None:
        before = self.confirmed
        self.client.wait_for(lambda: self.confirmed > before)

    def note_crash(self) -> None:
        """The broker has gone: what it had not answered may have come, or not."""
        waiting = self.client.unanswered()
        self.in_doubt.append({int(one.payload) for one in waiting if one.topic == self._topic})

    def finish(self) -> None:
        """No more; all that was sent is confirmed."""
        self._stopping.set()
        self._thread.join(PATIENCE)
        self.client.wait_for(lambda: self._outstanding == 0)

    @property
    def last_retained(self) -> int:
        return (self.retained - 1) * self.RETAIN_EVERY

    @property
    def _outstanding(self) -> int:
        return self.sent + self.retained - self.confirmed

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.client.wait_for(lambda: self.client.ready and self._outstanding < self.AHEAD)
            number = self.sent
            self.client.paho.publish(self._topic, b"%d" % number, self._qos)
            self.sent += 1
            if number % self.RETAIN_EVERY == 0:
                topic = f"{self._topic}/last"
                self.client.paho.publish(topic, b"%d" % number, self._qos, retain=True)
                self.retained += 1

    def _on_publish(self, _client: Any, _data: Any, _mid: int, reason: Any, _: Any) -> None:
        # The last answer of an exchange may be lost; asked again, the broker knows of none.
        assert reason.value < 0x80 or reason.value == NOT_FOUND, f"refused: {reason}"
        with self.client.changed:
            self.confirmed += 1
            self.client.changed.notify_all()


class Subscriber:
    """Takes down the number of each message it gets, in the order it gets them."""

    def __init__(self, client: SteadyClient, topic: str, qos: int) -> None:
        self.client = client
        self.received: list[int] = []
        client.paho.on_message = self._on_message
        self._topic = topic
        self._qos = qos

    def subscribe(self) -> None:
        self.client.subscribe(self._topic, self._qos)

    def wait_for_all(self, count: int) -> None:
        """Until the last one is there, and all before it as far as they come at all."""
        self.client.wait_for(lambda: bool(self.received) and max(self.received) >= count - 1)
        self._settle()

    def _settle(self) -> None:
        """What is still under way after the last: a message of our own comes behind it."""
        reached = threading.Event()
        fence = f"{self._topic}/fence/{time.monotonic_ns()}"
        self.client.paho.message_callback_add(fence, lambda *_: reached.set())
        self.client.subscribe(fence, self._qos)
        self.client.paho.publish(fence, b"", self._qos)
        assert reached.wait(PATIENCE)

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        with self.client.changed:
            self.received.append(int(message.payload))
            self.client.changed.notify_all()
