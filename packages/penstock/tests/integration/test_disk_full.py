"""A full disk: publishers wait and are told why, nothing confirmed is lost, and work goes on."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pika import spec

from tests.fixtures import NewPenstock
from tests.integration.amqp091.wire import Wire, message_bytes
from tests.integration.gigabytes import Tally, receive, send
from tests.integration.load import PERSISTENT, Books, peek
from tests.peers import Penstock

MIB = 1 << 20
BODY = 64 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 48 MiB, of which a ballast file takes 24."""
    mount = tmp_path / "disk"
    mount.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={48 * MIB}", "tmpfs", str(mount)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    (mount / "ballast").write_bytes(bytes(24 * MIB))
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


@pytest.fixture(params=["8MiB", "0"], ids=["near the limit", "to the last byte"])
def broker(request: pytest.FixtureRequest, disk: Path, new_penstock: NewPenstock) -> Penstock:
    environment = {"PENSTOCK_BROKER__DISK_FREE_LIMIT": request.param}
    return new_penstock(data=disk / "data", environment=environment)


class Filler:
    """Publishes until it is told to wait; keeps the books."""

    def __init__(self, broker: Penstock, queue: str) -> None:
        self.books = Books()
        self.blocked = ""
        self.queue = queue
        self.wire = Wire(broker.port, timeout=30)
        self.wire.negotiate(capabilities={"connection.blocked": True})
        self.wire.open_channel()
        self.wire.call(1, spec.Queue.Declare(queue=queue, durable=True))
        self.wire.call(1, spec.Confirm.Select())

    def publish(self) -> None:
        number = self.books.sent
        self.books.sent += 1
        body = (b"%d" % number).ljust(BODY)
        self.wire.send(message_bytes(1, body, routing_key=self.queue, properties=PERSISTENT))

    def fill(self) -> None:
        """Publish one by one until the broker says that it is blocked."""
        while not self.blocked:
            assert self.books.sent < 2000, "it was never blocked"
            self.publish()
            self.await_answers()

    def await_answers(self) -> None:
        """Wait until all is confirmed, or the broker says that it is blocked."""
        while len(self.books.confirmed) < self.books.sent and not self.blocked:
            self._hear(self.wire.receive_method())

    def await_relief(self) -> None:
        """Wait until the broker says that it is not blocked, and all is confirmed."""
        while self.blocked or len(self.books.confirmed) < self.books.sent:
            self._hear(self.wire.receive_method())

    def _hear(self, method: object) -> None:
        if isinstance(method, spec.Connection.Blocked):
            self.blocked = method.reason
        elif isinstance(method, spec.Connection.Unblocked):
            self.blocked = ""
        elif isinstance(method, spec.Basic.Ack):
            first = method.delivery_tag
            if method.multiple:
                first = max(self.books.confirmed, default=-1) + 2
            self.books.confirmed.update(range(first - 1, method.delivery_tag))
        else:
            raise AssertionError(f"{method!r}")


def test_publishers_wait_and_go_on_when_there_is_space(
    broker: Penstock, disk: Path, name: str
) -> None:
    filler = Filler(broker, name)

    filler.fill()
    filler.publish()
    (disk / "ballast").unlink()
    filler.await_relief()
    for _ in range(20):
        filler.publish()
    filler.await_relief()

    assert filler.books.confirmed == set(range(filler.books.sent))
    assert peek(broker.port, name) == list(range(filler.books.sent))


def test_the_reason_is_told(broker: Penstock, name: str) -> None:
    filler = Filler(broker, name)

    filler.fill()

    assert filler.blocked
    assert "disk" in broker.log


def test_a_new_publisher_is_told_too(broker: Penstock, name: str) -> None:
    Filler(broker, name).fill()

    with Wire(broker.port) as late:
        late.negotiate(capabilities={"connection.blocked": True})
        late.open_channel()
        late.send(message_bytes(1, b"late", routing_key=name, properties=PERSISTENT))

        assert isinstance(late.receive_method(), spec.Connection.Blocked)


def test_consumers_are_served_while_publishers_wait(broker: Penstock, name: str) -> None:
    filler = Filler(broker, name)

    filler.fill()

    confirmed = sorted(filler.books.confirmed)
    assert peek(broker.port, name, len(confirmed)) == confirmed


def test_nothing_confirmed_is_lost_by_a_crash_while_it_is_full(
    broker: Penstock, disk: Path, name: str
) -> None:
    filler = Filler(broker, name)
    filler.fill()

    broker.kill()
    (disk / "ballast").unlink()
    broker.start()

    filler.books.check(peek(broker.port, name))


def test_it_starts_and_serves_on_a_full_disk(broker: Penstock, name: str) -> None:
    filler = Filler(broker, name)
    filler.fill()

    broker.kill()
    broker.start()

    filler.books.check(peek(broker.port, name))


def test_it_can_be_stopped_while_the_disk_is_full(broker: Penstock, name: str) -> None:
    filler = Filler(broker, name)
    filler.fill()

    broker.stop()
    assert broker.exit_status == 0
    broker.start()

    filler.books.check(peek(broker.port, name))


def test_a_large_message_waits_for_room_too(broker: Penstock, disk: Path, name: str) -> None:
    filler = Filler(broker, name)
    sent: list[Tally] = []
    sending = threading.Thread(
        target=lambda: sent.append(send(filler.wire, name, 40 * MIB, PERSISTENT)), daemon=True
    )

    filler.books.sent = 1
    sending.start()
    filler.await_answers()
    assert filler.blocked
    (disk / "ballast").unlink()
    filler.await_relief()
    sending.join(60)

    with Wire(broker.port) as consumer:
        consumer.negotiate()
        consumer.open_channel()
        consumer.call(1, spec.Basic.Consume(queue=name))
        assert [receive(consumer)] == sent
