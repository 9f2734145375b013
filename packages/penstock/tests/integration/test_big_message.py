"""A message larger than memory would like passes through; the broker hardly grows.

How small messages fare meanwhile is measured by `benchmarks/big_message.py`; here they only have
to keep coming.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pika
import pytest
from pika import spec

from tests.fixtures import NewPenstock
from tests.integration import gigabytes
from tests.integration.amqp091.wire import BODY, Wire, frame_bytes, header_bytes, method_bytes
from tests.peers import Penstock, peak_bytes, resident_bytes

MIB = 1 << 20
GROWTH = 128 * MIB

SIZES = [
    pytest.param(256 * MIB, id="256 MiB"),
    pytest.param(2048 * MIB, id="2 GiB", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
]


@contextmanager
def open_wire(broker: Penstock) -> Iterator[Wire]:
    with Wire(broker.port, timeout=300) as wire:
        wire.negotiate()
        wire.open_channel()
        yield wire


class PingPong(threading.Thread):
    """Somebody else's small messages, back and forth until told to stop."""

    def __init__(self, broker: Penstock) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.failure: Exception | None = None
        self._url = broker.url
        self._over = threading.Event()

    def run(self) -> None:
        try:
            connection = pika.BlockingConnection(pika.URLParameters(self._url))
            channel = connection.channel()
            queue = channel.queue_declare("", exclusive=True).method.queue
            while not self._over.is_set():
                channel.basic_publish("", queue, b"ping")
                assert channel.basic_get(queue, auto_ack=True)[2] == b"ping"
                self.count += 1
            connection.close()
        except Exception as failure:
            self.failure = failure

    def stop(self) -> None:
        self._over.set()
        self.join(60)
        assert self.failure is None, self.failure


@pytest.mark.parametrize("size", SIZES)
def test_it_passes_from_publisher_to_consumer(
    new_penstock: NewPenstock, name: str, size: int
) -> None:
    broker = new_penstock()
    others = PingPong(broker)
    others.start()
    received: list[gigabytes.Tally] = []
    with open_wire(broker) as publisher, open_wire(broker) as consumer:
        consumer.call(1, spec.Queue.Declare(queue=name))
        consumer.call(1, spec.Basic.Consume(queue=name, no_ack=True))
        before = resident_bytes(broker.pid)
        reading = threading.Thread(target=lambda: received.append(gigabytes.receive(consumer)))
        reading.start()

        sent = gigabytes.send(publisher, name, size, pika.BasicProperties())
        reading.join(300)

        assert received == [sent]
        assert peak_bytes(broker.pid) - before < GROWTH
    others.stop()
    assert others.count > 10


@pytest.mark.parametrize("size", SIZES)
def test_it_passes_through_a_durable_queue(new_penstock: NewPenstock, name: str, size: int) -> None:
    broker = new_penstock()
    others = PingPong(broker)
    others.start()
    with open_wire(broker) as publisher, open_wire(broker) as consumer:
        publisher.call(1, spec.Queue.Declare(queue=name, durable=True))
        publisher.call(1, spec.Confirm.Select())
        before = resident_bytes(broker.pid)

        sent = gigabytes.send(publisher, name, size, pika.BasicProperties(delivery_mode=2))
        assert publisher.receive_method().NAME == "Basic.Ack"
        consumer.call(1, spec.Basic.Consume(queue=name))
        received = gigabytes.receive(consumer)

        assert received == sent
        assert peak_bytes(broker.pid) - before < GROWTH
    others.stop()
    assert others.count > 10


@pytest.mark.parametrize("size", SIZES)
def test_it_comes_back_when_nobody_wants_it(
    new_penstock: NewPenstock, name: str, size: int
) -> None:
    broker = new_penstock()
    others = PingPong(broker)
    others.start()
    with open_wire(broker) as publisher:
        before = resident_bytes(broker.pid)

        sent = gigabytes.send(publisher, name, size, pika.BasicProperties(), mandatory=True)
        returned = gigabytes.receive(publisher)

        assert returned == sent
        assert peak_bytes(broker.pid) - before < GROWTH
    others.stop()
    assert others.count > 10


def test_it_survives_a_crash_once_confirmed(new_penstock: NewPenstock, name: str) -> None:
    broker = new_penstock()
    with open_wire(broker) as publisher:
        publisher.call(1, spec.Queue.Declare(queue=name, durable=True))
        publisher.call(1, spec.Confirm.Select())
        properties = pika.BasicProperties(delivery_mode=2)
        sent = gigabytes.send(publisher, name, 32 * MIB, properties)
        assert publisher.receive_method().NAME == "Basic.Ack"

    broker.kill()
    broker.start()

    with open_wire(broker) as consumer:
        consumer.call(1, spec.Basic.Consume(queue=name))
        assert gigabytes.receive(consumer) == sent


def test_a_reader_that_stops_halfway_holds_nobody_up(new_penstock: NewPenstock, name: str) -> None:
    broker = new_penstock()
    with open_wire(broker) as publisher, open_wire(broker) as slow, open_wire(broker) as quick:
        publisher.call(1, spec.Queue.Declare(queue=name, durable=True))
        publisher.call(1, spec.Confirm.Select())
        sent = gigabytes.send(publisher, name, 32 * MIB, pika.BasicProperties())
        again = gigabytes.send(publisher, name, 32 * MIB, pika.BasicProperties())
        slow.call(1, spec.Basic.Qos(prefetch_count=1))
        slow.call(1, spec.Basic.Consume(queue=name))  # and reads no further

        quick.call(1, spec.Basic.Consume(queue=name))
        assert gigabytes.receive(quick) == again
        slow.socket.close()  # what it did not finish comes back

        assert gigabytes.receive(quick) == sent


def test_a_publisher_that_leaves_halfway_leaves_nothing(
    new_penstock: NewPenstock, name: str
) -> None:
    broker = new_penstock()
    with open_wire(broker) as publisher:
        publisher.call(1, spec.Queue.Declare(queue=name, durable=True))
        _send_half(publisher, name)

    with open_wire(broker) as other:
        declared = other.call(1, spec.Queue.Declare(queue=name, durable=True))
        assert declared.message_count == 0


def _send_half(wire: Wire, queue: str) -> None:
    body = frame_bytes(BODY, 1, bytes(MIB // 16))
    publish = method_bytes(1, spec.Basic.Publish(routing_key=queue))
    wire.send(publish + header_bytes(1, 8 * MIB) + body * 64)
