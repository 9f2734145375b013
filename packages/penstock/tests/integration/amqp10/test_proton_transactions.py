"""Transactions as qpid-proton makes them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.amqp10.proton import SECONDS, connected, need_proton
from tests.peers import Penstock

try:
    from proton import Message
    from proton.handlers import MessagingHandler, TransactionHandler
    from proton.reactor import Container
except ImportError:
    Message = Container = object  # type: ignore[assignment,misc]
    MessagingHandler = type("MessagingHandler", (), {})  # type: ignore[assignment,misc]
    TransactionHandler = type("TransactionHandler", (), {})  # type: ignore[assignment,misc]


class Client(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """Does its work in one transaction, which it commits or aborts."""

    def __init__(self, url: str, queue: str, commit: bool) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url = url
        self.queue = queue
        self.commit = commit
        self.events: list[str] = []
        self.connection: Any = None
        self.container: Any = None
        self.transaction: Any = None

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(
            self.url, allowed_mechs="PLAIN", sasl_enabled=True, reconnect=False
        )
        self.open()
        self.timeout = event.container.schedule(SECONDS, self)

    def open(self) -> None:
        raise NotImplementedError

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.work()

    def work(self) -> None:
        raise NotImplementedError

    def discharge(self) -> None:
        if self.commit:
            self.transaction.commit()
        else:
            self.transaction.abort()

    def on_transaction_committed(self, event: Any) -> None:
        self.finish("committed")

    def on_transaction_aborted(self, event: Any) -> None:
        self.finish("aborted")

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.finish("declare failed")

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.finish("commit failed")

    def on_timer_task(self, event: Any) -> None:
        self.finish("timed out")

    def on_transport_error(self, event: Any) -> None:
        self.finish(str(event.transport.condition))

    def on_link_error(self, event: Any) -> None:
        self.finish(str(event.link.remote_condition))

    def finish(self, what: str) -> None:
        self.events.append(what)
        self.timeout.cancel()
        self.connection.close()

    def run(self) -> list[str]:
        Container(self).run()
        return self.events


class Sender(Client):
    def open(self) -> None:
        self.sender = self.container.create_sender(self.connection, self.queue)
        self.settled = 0
        self.container.declare_transaction(self.connection, handler=self)

    def work(self) -> None:
        for number in range(3):
            self.transaction.send(self.sender, Message(body=f"{number}", durable=True))

    def on_settled(self, event: Any) -> None:
        if event.sender == self.sender:
            self.settled += 1
            if self.settled == 3:
                self.discharge()


class Receiver(Client):
    settle_before_discharge = False

    def open(self) -> None:
        self.receiver = self.container.create_receiver(self.connection, self.queue)
        self.bodies: list[str] = []
        self.container.declare_transaction(
            self.connection, handler=self, settle_before_discharge=self.settle_before_discharge
        )

    def work(self) -> None:
        self.receiver.flow(3)

    def on_message(self, event: Any) -> None:
        self.transaction.accept(event.delivery)
        self.bodies.append(event.message.body)
        if len(self.bodies) == 3:
            self.discharge()


def contents(port: int, queue: str) -> list[str]:
    with connected(port) as connection:
        receiver = connection.create_receiver(queue, credit=10)
        bodies = []
        try:
            while True:
                bodies.append(receiver.receive(timeout=0.3).body)
        except need_proton().Timeout:
            return bodies


def fill(port: int, queue: str) -> None:
    with connected(port) as connection:
        sender = connection.create_sender(queue)
        for number in range(3):
            sender.send(Message(body=f"{number}", durable=True))


@pytest.mark.parametrize("commit", [True, False])
def test_a_sender(penstock: Penstock, name: str, commit: bool) -> None:
    need_proton()
    queue = f"/queue/{name}"
    sender = Sender(f"amqp://guest:guest@127.0.0.1:{penstock.port}", queue, commit)
    assert sender.run() == ["committed" if commit else "aborted"]
    assert contents(penstock.port, queue) == (["0", "1", "2"] if commit else [])


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("early", [True, False], ids=["settled-first", "settled-last"])
def test_a_receiver(penstock: Penstock, name: str, commit: bool, early: bool) -> None:
    need_proton()
    queue = f"/queue/{name}"
    fill(penstock.port, queue)
    receiver = Receiver(f"amqp://guest:guest@127.0.0.1:{penstock.port}", queue, commit)
    receiver.settle_before_discharge = early
    assert receiver.run() == ["committed" if commit else "aborted"]
    assert receiver.bodies == ["0", "1", "2"]
    assert contents(penstock.port, queue) == ([] if commit else ["0", "1", "2"])
