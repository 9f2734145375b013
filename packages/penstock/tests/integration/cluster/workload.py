"""Clients of all protocols that publish, consume and read, and record what they were told."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, Self

import paho.mqtt.client as paho
import pika
from paho.mqtt.enums import CallbackAPIVersion, MessageState
from pika.adapters.blocking_connection import BlockingChannel
from proton import Described, symbol
from proton import Message as ProtonMessage
from proton import Timeout as ProtonTimeout
from proton.reactor import Filter as ProtonFilter
from proton.utils import BlockingConnection as ProtonConnection

from penstock.client.padres import PadresClient

from .checker import ConsumerEvent, History, Leader
from .processes import USER, ClusterProcesses, MemberProcess

QUORUM: Final[dict[str, Any]] = {"x-queue-type": "quorum"}
STREAM: Final[dict[str, Any]] = {"x-queue-type": "stream"}
PERSISTENT: Final = pika.BasicProperties(delivery_mode=2)
ATTEMPT_SECONDS: Final = 3
#: A consumer publishes after so many acknowledgements: the confirm tells that followers have them.
CONFIRM_EVERY: Final = 5
QUEUES: Final = ("q", "work", "marks", "mqtt", "proton", "proton-work", "padres")
FIRST: Final = symbol("rabbitmq:stream-offset-spec")


def connect(member: MemberProcess) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            member.host,
            member.amqp,
            credentials=pika.PlainCredentials(USER, USER),
            heartbeat=3,
            socket_timeout=ATTEMPT_SECONDS,
            stack_timeout=ATTEMPT_SECONDS,
            blocked_connection_timeout=ATTEMPT_SECONDS,
        )
    )


@contextmanager
def proton_connection(member: MemberProcess) -> Iterator[ProtonConnection]:
    url = f"amqp://{USER}:{USER}@{member.host}:{member.amqp}"
    connection = ProtonConnection(url, timeout=ATTEMPT_SECONDS, allowed_mechs="PLAIN")
    try:
        yield connection
    finally:
        connection.close()


def text_of(message: ProtonMessage) -> str:
    assert isinstance(message.body, bytes)
    return message.body.decode()


def leader_of(properties: Any) -> Leader:
    return Leader(int(properties["cluster_epoch"]), str(properties["cluster_member"]))


class SteadyMqttClient:
    """A client with a session of MQTT 3.1.1, which goes to any member and takes up its exchanges of
    QoS 2 where they were."""

    def __init__(self, name: str, history: History) -> None:
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2, name, clean_session=False, reconnect_on_failure=False
        )
        self.paho.username_pw_set(USER, USER)
        self.paho.connect_timeout = ATTEMPT_SECONDS
        self.paho.on_connect = self._on_connect
        self._history = history
        self._connected = threading.Event()
        self.has_session = False  #: the broker has to know it

    @contextmanager
    def connected(self, member: MemberProcess) -> Iterator[paho.Client]:
        self._connected.clear()
        for message in self.paho._out_messages.values():
            # After two connections in a row that fail, paho would publish it again.
            if message.state == MessageState.MQTT_MS_RESEND_PUBREL:
                message.state = MessageState.MQTT_MS_WAIT_FOR_PUBCOMP
        self.paho.connect(member.host, member.mqtt, keepalive=3)
        self.paho.loop_start()
        try:
            if not self._connected.wait(ATTEMPT_SECONDS):
                raise TimeoutError("no CONNACK")
            yield self.paho
        finally:
            self.paho.disconnect()
            self.paho.loop_stop()

    def _on_connect(self, _client: Any, _data: Any, flags: Any, reason: Any, _: Any) -> None:
        if reason.is_failure:
            return
        if self.has_session and not flags.session_present:
            self._history.lost_sessions.append(self.paho._client_id.decode())
        self._connected.set()


class Workload:
    def __init__(self, cluster: ClusterProcesses, seed: int) -> None:
        self.cluster = cluster
        self.history = History()
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._connections = count(1)
        self._publisher = SteadyMqttClient("publisher-2", self.history)
        self._subscriber = SteadyMqttClient("subscriber", self.history)
        self._subscriber.paho.on_message = self._on_mqtt_message

    def declare(self) -> None:
        leader = self.cluster.wait_in_sync()
        connection = connect(leader)
        channel = connection.channel()
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True, arguments=QUORUM)
        channel.queue_declare("stream", durable=True, arguments=STREAM)
        channel.queue_bind("mqtt", "amq.topic", "t")
        channel.exchange_declare("content", "x-content", durable=True)
        subscription = {"x-subscription": "[class,eq,cluster],[n,>,-1]"}
        channel.queue_bind("padres", "content", "", subscription)
        connection.close()
        subscribed = threading.Event()
        self._subscriber.paho.on_subscribe = lambda *_: subscribed.set()
        with self._subscriber.connected(leader) as client:
            client.subscribe([("t", 1), ("once", 2)])
            assert subscribed.wait(ATTEMPT_SECONDS), "no SUBACK"
            self._subscriber.has_session = True

    def __enter__(self) -> Self:
        for run in (
            lambda: self._publish("q", "stream", "work"),
            self._publish_mqtt,
            self._publish_mqtt_once,
            self._publish_amqp10,
            self._publish_padres,
            self._consume,
            self._consume_amqp10,
            self._subscribe_mqtt,
            self._read,
            self._read_amqp10,
        ):
            thread = threading.Thread(target=run, daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)

    def wait_for_confirms(self, more: int, seconds: float = 60.0) -> None:
        wanted = len(self.history.confirm_times) + more
        deadline = time.monotonic() + seconds
        while len(self.history.confirm_times) < wanted:
            assert time.monotonic() < deadline, "no confirms"
            time.sleep(0.05)

    def _attempts(self, attempt: Callable[[Any], None]) -> None:
        """One connection after another, to any member, until the end."""
        while not self._stop.is_set():
            try:
                attempt(self._random.choice(self.cluster.members))
            except Exception:  # whatever a client library makes of a broken connection
                self._stop.wait(0.1)

    def _publish(self, *queues: str) -> None:
        numbers = count(1)

        def attempt(member: Any) -> None:
            connection = connect(member)
            leader = leader_of(connection._impl.server_properties)
            channel = connection.channel()
            channel.confirm_delivery()
            while not self._stop.is_set():
                number = next(numbers)
                for queue in queues:
                    message = f"{queue}-{number}"
                    channel.basic_publish("", queue, message.encode(), PERSISTENT)
                    self.history.confirm(queue, message, leader, time.monotonic())
                time.sleep(0.005)
            connection.close()

        self._attempts(attempt)

    def _publish_mqtt(self) -> None:
        numbers = count(1)

        def attempt(member: Any) -> None:
            # If it reconnected, it would publish twice what was not acknowledged.
            client = paho.Client(
                CallbackAPIVersion.VERSION2, "publisher", reconnect_on_failure=False
            )
            client.username_pw_set(USER, USER)
            client.connect_timeout = ATTEMPT_SECONDS
            client.connect(member.host, member.mqtt, keepalive=3)
            client.loop_start()
            try:
                while not self._stop.is_set():
                    message = f"mqtt-{next(numbers)}"
                    info = client.publish("t", message, qos=1)
                    info.wait_for_publish(ATTEMPT_SECONDS)
                    if not info.is_published():
                        return
                    self.history.confirm("mqtt", message, None, time.monotonic())
                    self.history.confirm("session", f"session-{message}", None, time.monotonic())
                    time.sleep(0.02)
            finally:
                client.loop_stop()
                client.disconnect()

        self._attempts(attempt)

    def _publish_mqtt_once(self) -> None:
        """With QoS 2. Every message has the same packet id, which PUBCOMP has set free."""
        numbers = count(1)

        def attempt(member: Any) -> None:
            with self._publisher.connected(member) as client:
                while not self._stop.is_set():
                    if not client._out_messages:  # else it continues what it had begun
                        client._last_mid = 0
                        self._once = f"once-{next(numbers)}"
                        client.publish("once", self._once, qos=2)
                    deadline = time.monotonic() + ATTEMPT_SECONDS
                    while client._out_messages:
                        if time.monotonic() > deadline:
                            raise TimeoutError("no PUBCOMP")
                        time.sleep(0.01)
                    text = f"session-{self._once}"
                    self.history.confirm("session", text, None, time.monotonic())
                    self._publisher.has_session = True

        self._attempts(attempt)

    def _publish_amqp10(self) -> None:
        numbers = count(1)

        def attempt(member: Any) -> None:
            with proton_connection(member) as connection:
                senders = {
                    queue: connection.create_sender(f"/queues/{queue}", name=queue)
                    for queue in ("proton", "proton-work")
                }
                opened: Any = connection.conn
                leader = leader_of(opened.remote_properties)
                while not self._stop.is_set():
                    number = next(numbers)
                    for queue, sender in senders.items():
                        message = f"{queue}-{number}"
                        sender.send(ProtonMessage(body=message.encode(), durable=True))
                        self.history.confirm(queue, message, leader, time.monotonic())
                    time.sleep(0.02)

        self._attempts(attempt)

    def _publish_padres(self) -> None:
        numbers = count(1)

        async def publish(member: MemberProcess) -> None:
            url = f"padres://{member.host}:{member.padres}/Broker1"
            async with asyncio.timeout(ATTEMPT_SECONDS) as limit, PadresClient(url) as client:
                await client.advertise("[class,eq,cluster],[n,>,-1]")
                while not self._stop.is_set():
                    number = next(numbers)
                    message = f"padres-{number}"
                    await client.publish(f"[class,cluster],[n,{number}]", message.encode())
                    self.history.confirm("padres", message, None, time.monotonic())
                    limit.reschedule(asyncio.get_running_loop().time() + ATTEMPT_SECONDS)
                    await asyncio.sleep(0.02)

        self._attempts(lambda member: asyncio.run(publish(member)))

    def _consume(self) -> None:
        def attempt(member: Any) -> None:
            number = next(self._connections)
            connection = connect(member)
            channel = connection.channel()
            channel.basic_qos(prefetch_count=10)
            channel.confirm_delivery()
            try:
                while not self._stop.is_set():
                    self._take(channel, number)
                connection.close()
            except Exception:
                self.history.consumed.append(ConsumerEvent("lost", number))
                raise

        self._attempts(attempt)

    def _take(self, channel: BlockingChannel, connection: int) -> None:
        for method, _, body in channel.consume("work", inactivity_timeout=0.2):
            if method is None:
                if self._stop.is_set():
                    return
                continue
            message = body.decode()
            events = self.history.consumed
            events.append(ConsumerEvent("delivered", connection, message))
            channel.basic_ack(method.delivery_tag)
            events.append(ConsumerEvent("acknowledged", connection, message))
            if method.delivery_tag % CONFIRM_EVERY == 0:
                channel.basic_publish("", "marks", message.encode(), PERSISTENT)
                events.append(ConsumerEvent("confirmed", connection))
            if self._stop.is_set():
                return

    def _consume_amqp10(self) -> None:
        events = self.history.consumed

        def attempt(member: Any) -> None:
            number = next(self._connections)
            try:
                with proton_connection(member) as connection:
                    receiver = connection.create_receiver("/queues/proton-work", credit=10)
                    marks = connection.create_sender("/queues/marks")
                    for taken in count(1):
                        try:
                            message = text_of(receiver.receive(0.2))
                        except ProtonTimeout:
                            if self._stop.is_set():
                                return
                            continue
                        events.append(ConsumerEvent("delivered", number, message))
                        receiver.accept()
                        events.append(ConsumerEvent("acknowledged", number, message))
                        if taken % CONFIRM_EVERY == 0:
                            # The first may overtake the acknowledgement on its way to the socket.
                            for _ in range(2):
                                marks.send(ProtonMessage(body=message.encode(), durable=True))
                            events.append(ConsumerEvent("confirmed", number))
                        if self._stop.is_set():
                            return
            except Exception:
                events.append(ConsumerEvent("lost", number))
                raise

        self._attempts(attempt)

    def _subscribe_mqtt(self) -> None:
        def attempt(member: Any) -> None:
            self._mqtt_connection = next(self._connections)
            try:
                with self._subscriber.connected(member) as client:
                    while client.is_connected() and not self._stop.is_set():
                        time.sleep(0.1)
            finally:
                lost = ConsumerEvent("lost", self._mqtt_connection)
                self.history.consumed.append(lost)

        self._attempts(attempt)

    def _on_mqtt_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        """paho calls this before PUBACK, or after PUBREL."""
        text = f"session-{message.payload.decode()}"
        self.history.final["session"].add(text)
        if message.qos == 2:
            self.history.once.append(text)
            return
        for kind in ("delivered", "acknowledged"):
            self.history.consumed.append(ConsumerEvent(kind, self._mqtt_connection, text))

    def _read(self) -> None:
        names = count(1)

        def attempt(member: Any) -> None:
            self._read_from(member, f"reader {next(names)}", 2.0)

        self._attempts(attempt)

    def _read_from(self, member: MemberProcess, name: str, idle_seconds: float) -> None:
        """The stream from its beginning, until nothing comes."""
        connection = connect(member)
        channel = connection.channel()
        channel.basic_qos(prefetch_count=200)
        first = {"x-stream-offset": "first"}
        for method, properties, body in channel.consume(
            "stream", arguments=first, inactivity_timeout=idle_seconds
        ):
            if method is None:
                break
            channel.basic_ack(method.delivery_tag)
            offset = properties.headers["x-stream-offset"]
            self.history.reads.append((name, offset, body.decode()))
            if self._stop.is_set() and idle_seconds > 1:
                break
        connection.close()

    def _read_amqp10(self) -> None:
        names = count(1)

        def attempt(member: Any) -> None:
            name = f"reader {next(names)} of AMQP 1.0"
            with proton_connection(member) as connection:
                first = ProtonFilter({FIRST: Described(FIRST, "first")})
                receiver = connection.create_receiver("/queues/stream", options=first, credit=200)
                while not self._stop.is_set():
                    try:
                        message = receiver.receive(2.0)
                    except ProtonTimeout:
                        return
                    receiver.accept()
                    annotations: Any = message.annotations
                    offset = annotations[symbol("x-stream-offset")]
                    self.history.reads.append((name, offset, text_of(message)))

        self._attempts(attempt)

    def collect(self) -> History:
        """Read all queues at the end, when all members are back."""
        leader = self.cluster.wait_in_sync()
        self._read_from(leader, "the last reader", 1.0)
        connection = connect(leader)
        channel = connection.channel()
        for queue in QUEUES:
            while True:
                method, _, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    break
                self.history.final[queue].add(body.decode())
        connection.close()
        last = [message for name, _, message in self.history.reads if name == "the last reader"]
        self.history.final["stream"].update(last)
        self._receive_session(leader)
        return self.history

    def _receive_session(self, leader: MemberProcess) -> None:
        """What the subscriber has not got yet."""
        confirmed, received = self.history.confirmed["session"], self.history.final["session"]
        deadline = time.monotonic() + 20
        self._mqtt_connection = next(self._connections)
        with self._subscriber.connected(leader):
            while confirmed - received and time.monotonic() < deadline:
                time.sleep(0.05)
