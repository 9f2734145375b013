"""Clients of three protocols that publish, consume and read, and record what they were told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final, Self

import paho.mqtt.client as paho
import pika
from paho.mqtt.enums import CallbackAPIVersion
from pika.adapters.blocking_connection import BlockingChannel
from proton import Message as ProtonMessage
from proton.utils import BlockingConnection as ProtonConnection

from .checker import ConsumerEvent, History, Leader
from .processes import USER, ClusterProcesses, MemberProcess

QUORUM: Final[dict[str, Any]] = {"x-queue-type": "quorum"}
STREAM: Final[dict[str, Any]] = {"x-queue-type": "stream"}
PERSISTENT: Final = pika.BasicProperties(delivery_mode=2)
ATTEMPT_SECONDS: Final = 3
#: A consumer publishes after so many acknowledgements: the confirm tells that followers have them.
CONFIRM_EVERY: Final = 5


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


class Workload:
    def __init__(self, cluster: ClusterProcesses, seed: int) -> None:
        self.cluster = cluster
        self.history = History()
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._connections = count(1)

    def declare(self) -> None:
        connection = connect(self.cluster.wait_in_sync())
        channel = connection.channel()
        for queue in ("q", "work", "marks", "mqtt", "proton"):
            channel.queue_declare(queue, durable=True, arguments=QUORUM)
        channel.queue_declare("stream", durable=True, arguments=STREAM)
        channel.queue_bind("mqtt", "amq.topic", "t")
        connection.close()

    def __enter__(self) -> Self:
        for run in (
            lambda: self._publish("q", "stream", "work"),
            self._publish_mqtt,
            self._publish_amqp10,
            self._consume,
            self._read,
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
            properties = connection._impl.server_properties
            leader = Leader(properties["cluster_epoch"], properties["cluster_member"])
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
            client = paho.Client(CallbackAPIVersion.VERSION2, client_id="publisher")
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
                    time.sleep(0.02)
            finally:
                client.loop_stop()
                client.disconnect()

        self._attempts(attempt)

    def _publish_amqp10(self) -> None:
        numbers = count(1)

        def attempt(member: Any) -> None:
            url = f"amqp://{USER}:{USER}@{member.host}:{member.amqp}"
            connection = ProtonConnection(url, timeout=ATTEMPT_SECONDS, allowed_mechs="PLAIN")
            sender = connection.create_sender("/queues/proton")
            while not self._stop.is_set():
                message = f"proton-{next(numbers)}"
                sender.send(ProtonMessage(body=message.encode(), durable=True))
                self.history.confirm("proton", message, None, time.monotonic())
                time.sleep(0.02)
            connection.close()

        self._attempts(attempt)

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

    def collect(self) -> History:
        """Read all queues at the end, when all members are back."""
        leader = self.cluster.wait_in_sync()
        self._read_from(leader, "the last reader", 1.0)
        connection = connect(leader)
        channel = connection.channel()
        for queue in ("q", "work", "mqtt", "proton"):
            while True:
                method, _, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    break
                self.history.final[queue].add(body.decode())
        connection.close()
        last = [message for name, _, message in self.history.reads if name == "the last reader"]
        self.history.final["stream"].update(last)
        return self.history
