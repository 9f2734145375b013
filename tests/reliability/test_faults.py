"""A machine that fails under the broker: a clear error or alarm, nothing lost, and it goes on.

The faults are those of `faulty_broker.py`; a disk that is really full is in `test_disk_full.py`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from pika import spec

from tests.integration.amqp091.wire import Wire, message_bytes
from tests.integration.load import PERSISTENT, Books, peek
from tests.integration.test_disk_full import Filler
from tests.peers import Penstock

PROGRAM = Path(__file__).parent / "faulty_broker.py"
DAY = 86_400
PATIENCE = 60.0
MIB = 1 << 20


class FaultyBroker(Penstock):
    def __init__(self, folder: Path, **faults: Any) -> None:
        self._faults = folder / "faults.json"
        self.set(**faults)
        super().__init__(folder, program=(str(PROGRAM), str(self._faults)))

    def set(self, **faults: Any) -> None:
        """These, and no others."""
        draft = self._faults.with_suffix(".new")
        draft.write_text(json.dumps(faults))
        draft.replace(self._faults)

    def metric(self, name: str) -> float:
        with urlopen(f"{self.http_url}/metrics", timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
        [value] = [
            line.rpartition(" ")[2] for line in lines if line.split("{")[0].split()[0] == name
        ]
        return float(value)

    def alarm(self) -> str:
        """The reason that the health check gives; empty if it is well."""
        request = Request(f"{self.http_url}/api/health/checks/alarms")
        request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
        try:
            with urlopen(request, timeout=PATIENCE):
                return ""
        except HTTPError as error:
            return error.read().decode()


class CountingFiller(Filler):
    """Counts what the broker could not store."""

    refused: set[int]

    def __init__(self, broker: Penstock, queue: str) -> None:
        self.refused = set()
        super().__init__(broker, queue)

    def publish_and_await(self, count: int = 1) -> None:
        """Until each is confirmed or refused."""
        for _ in range(count):
            self.publish()
        while len(self.books.confirmed) + len(self.refused) < self.books.sent:
            self._hear(self.wire.receive_method())

    def await_block(self) -> None:
        while not self.blocked:
            self._hear(self.wire.receive_method())

    def _hear(self, method: object) -> None:
        if isinstance(method, spec.Basic.Nack | spec.Basic.Ack):
            heard = self.refused if isinstance(method, spec.Basic.Nack) else self.books.confirmed
            answered = self.books.confirmed | self.refused
            numbers = range(method.delivery_tag) if method.multiple else [method.delivery_tag - 1]
            heard.update(set(numbers) - answered)
        else:
            super()._hear(method)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FaultyBroker]:
    broker = FaultyBroker(tmp_path)
    broker.start()
    yield broker
    broker.set()
    broker.stop()


def check_after_a_kill(broker: FaultyBroker, queue: str, books: Books) -> None:
    broker.kill()
    broker.start()
    books.check(peek(broker.port, queue))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"write": "EIO"}, "Input/output error"),
        ({"write": "EROFS"}, "Read-only file system"),
        ({"write": "ENOSPC"}, "No space left on device"),
        ({"sync": "EIO"}, "Input/output error"),
    ],
    ids=["writes fail", "read-only", "full", "syncs fail"],
)
def test_a_disk_that_fails_blocks_publishers_until_it_works_again(
    broker: FaultyBroker, name: str, fault: dict[str, str], reason: str
) -> None:
    filler = CountingFiller(broker, name)
    filler.publish_and_await(5)

    broker.set(**fault)
    filler.publish()
    filler.await_block()
    assert reason in filler.blocked
    assert reason in broker.alarm()
    before = sorted(filler.books.confirmed)
    assert peek(broker.port, name, len(before)) == before, "consumers are served"

    broker.set()
    filler.publish_and_await(5)
    while filler.blocked:
        filler.await_relief()
    assert broker.alarm() == ""
    assert filler.books.sent - 1 in filler.books.confirmed
    check_after_a_kill(broker, name, filler.books)


@pytest.mark.parametrize("fault", [{"write": "EIO"}, {"sync": "EIO"}], ids=["write", "sync"])
def test_nothing_confirmed_is_lost_by_a_kill_while_the_disk_fails(
    broker: FaultyBroker, name: str, fault: dict[str, str]
) -> None:
    filler = CountingFiller(broker, name)
    filler.publish_and_await(5)
    broker.set(**fault)
    filler.publish()
    filler.await_block()

    broker.kill()
    broker.set()
    broker.start()

    filler.books.check(peek(broker.port, name))


def test_a_slow_sync_holds_up_only_who_waits_for_it(broker: FaultyBroker, name: str) -> None:
    filler = CountingFiller(broker, name)
    filler.publish_and_await(1)

    broker.set(sync_waits=True)
    filler.publish()
    with Wire(broker.port, PATIENCE) as other:
        other.negotiate()
        other.open_channel()
        other.call(1, spec.Queue.Declare(queue=f"{name}-transient", exclusive=True))
        for number in range(5):
            other.send(message_bytes(1, b"%d" % number, routing_key=f"{name}-transient"))
            got = other.call(1, spec.Basic.Get(queue=f"{name}-transient", no_ack=True))
            assert isinstance(got, spec.Basic.GetOk)
            other.receive()
            other.receive()
    assert filler.books.confirmed == {0}

    broker.set()
    filler.publish_and_await(3)
    assert filler.books.confirmed == set(range(5))


def test_publishers_share_syncs_that_take_a_second(broker: FaultyBroker, name: str) -> None:
    fillers = [CountingFiller(broker, f"{name}-{number}") for number in range(3)]
    before = broker.metric("penstock_log_sync_seconds_count")
    broker.set(sync_seconds=1)

    for filler in fillers:
        for _ in range(30):
            filler.publish()
    for filler in fillers:
        filler.publish_and_await()

    assert all(filler.books.confirmed == set(range(31)) for filler in fillers)
    assert broker.metric("penstock_log_sync_seconds_count") - before < 31, "one for many messages"
    assert broker.alarm() == ""
    broker.kill()
    broker.set()
    broker.start()
    for filler in fillers:
        filler.books.check(peek(broker.port, filler.queue))


@pytest.fixture
def small_broker(tmp_path: Path) -> Iterator[FaultyBroker]:
    broker = FaultyBroker(tmp_path, descriptors=96)
    broker.start()
    yield broker
    broker.stop()


def test_without_descriptors_new_connections_are_refused_and_others_served(
    small_broker: FaultyBroker, name: str
) -> None:
    filler = CountingFiller(small_broker, name)
    with ExitStack() as stack:
        for _ in range(100):
            address = ("127.0.0.1", small_broker.port)
            stack.enter_context(socket.create_connection(address, PATIENCE))
        filler.publish_and_await(20)
    assert "too many without login" in small_broker.log
    filler.publish_and_await(20)
    CountingFiller(small_broker, f"{name}-new").publish_and_await(5)
    assert filler.books.confirmed == set(range(40))
    check_after_a_kill(small_broker, name, filler.books)


def test_a_queue_that_would_take_the_last_descriptors_is_refused(
    small_broker: FaultyBroker, name: str
) -> None:
    declared = 0
    with Wire(small_broker.port, PATIENCE) as wire:
        wire.negotiate()
        wire.open_channel()
        wire.call(1, spec.Confirm.Select())
        while True:
            answer = wire.call(1, spec.Queue.Declare(queue=f"{name}-{declared}", durable=True))
            if not isinstance(answer, spec.Queue.DeclareOk):
                break
            body = message_bytes(1, b"1", routing_key=f"{name}-{declared}", properties=PERSISTENT)
            wire.send(body)
            assert isinstance(wire.receive_method(), spec.Basic.Ack)
            declared += 1
    assert isinstance(answer, spec.Connection.Close | spec.Channel.Close)
    assert "descriptors" in answer.reply_text
    filler = CountingFiller(small_broker, f"{name}-0")  # queues that there are work
    filler.publish_and_await(20)
    small_broker.kill()
    small_broker.start()
    for number in (1, declared - 1):
        assert peek(small_broker.port, f"{name}-{number}") == [1]


def test_a_limit_of_memory_is_kept_under_a_flood(tmp_path: Path, name: str) -> None:
    broker = FaultyBroker(tmp_path, memory=700 * MIB)
    broker.start()
    try:
        filler = CountingFiller(broker, name)
        for _ in range(40):
            filler.publish_and_await(40)
        assert filler.books.confirmed == set(range(1600))
        assert len(peek(broker.port, name)) == 1600
    finally:
        broker.stop()
    assert broker.exit_status == 0


@pytest.mark.parametrize("jump", [3 * DAY, -3 * DAY], ids=["forth", "back"])
def test_a_clock_that_jumps_by_days_loses_and_holds_up_nothing(
    broker: FaultyBroker, name: str, jump: int
) -> None:
    filler = CountingFiller(broker, name)
    with Wire(broker.port, PATIENCE) as wire:
        wire.negotiate(heartbeat=60)
        wire.open_channel()
        hour = {"x-message-ttl": 3_600_000}
        wire.call(1, spec.Queue.Declare(queue=f"{name}-ttl", durable=True, arguments=hour))
        delayed = {"x-delayed-type": "direct"}
        wire.call(
            1,
            spec.Exchange.Declare(
                exchange=name, type="x-delayed-message", durable=True, arguments=delayed
            ),
        )
        wire.call(1, spec.Queue.Declare(queue=f"{name}-delayed", durable=True))
        wire.call(1, spec.Queue.Bind(queue=f"{name}-delayed", exchange=name, routing_key="d"))
        wire.call(1, spec.Confirm.Select())
        soon = spec.BasicProperties(delivery_mode=2, headers={"x-delay": 2000})
        wire.send(message_bytes(1, b"7", exchange=name, routing_key="d", properties=soon))
        assert isinstance(wire.receive_method(), spec.Basic.Ack)
        wire.send(message_bytes(1, b"1", routing_key=f"{name}-ttl", properties=PERSISTENT))
        assert isinstance(wire.receive_method(), spec.Basic.Ack)
        filler.publish_and_await(5)

        broker.set(clock=jump)
        filler.publish_and_await(5)
        wire.call(1, spec.Basic.Consume(queue=f"{name}-delayed", no_ack=True))
        assert isinstance(wire.receive_method(), spec.Basic.Deliver)
        assert peek(broker.port, f"{name}-ttl") == [1]

        broker.set()
        filler.publish_and_await(5)
        assert peek(broker.port, f"{name}-ttl") == [1]
    check_after_a_kill(broker, name, filler.books)
