"""Transactions: declared, discharged, rolled back by whatever ends them."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from penstock.broker.permissions import Permission
from penstock.server.broker import Broker
from penstock.wire.amqp10.codec import encode
from penstock.wire.amqp10.errors import (
    DECODE_ERROR,
    NOT_IMPLEMENTED,
    TRANSACTION_ROLLBACK,
    UNAUTHORIZED,
    UNKNOWN_TRANSACTION,
)
from penstock.wire.amqp10.frames import AMQP_FRAME, encode_frame
from penstock.wire.amqp10.links import SenderLink
from penstock.wire.amqp10.message import Amqp10Header, Amqp10Message, AmqpValue, encode_message
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    DELIVERY_STATES,
    RELEASED,
    TRANSACTION_REQUESTS,
    Amqp10Error,
    Attach,
    Declare,
    Declared,
    Discharge,
    LinkSource,
    Modified,
    Rejected,
    TransactionalState,
    TransactionCoordinator,
)
from penstock.wire.amqp10.values import Described, UInt, ULong
from tests.protocols.amqp10.conftest import Connect
from tests.protocols.amqp10.peer import Peer

#: Delivery ids of posts, in a session of their own.
NUMBERS = count()


class Transactions:
    """The coordinator of a client, and a sender whose transfers have a state."""

    def __init__(self, peer: Peer, link: SenderLink) -> None:
        self.peer = peer
        self.link = link

    async def ask(self, request: Any) -> Any:
        body = AmqpValue(TRANSACTION_REQUESTS.described(request))
        return await self.peer.send(self.link, Amqp10Message(body))

    async def declare(self) -> bytes:
        declared = await self.ask(Declare())
        assert isinstance(declared, Declared)
        return declared.txn_id

    async def discharge(self, number: bytes, *, fail: bool = False) -> Any:
        return await self.ask(Discharge(number, fail))

    async def sender(self, address: str) -> SenderLink:
        link = await self.peer.sender(address, session=await self.peer.session())
        await self.peer.until(lambda: link.credit > 0)
        return link

    def post(self, link: SenderLink, number: bytes, body: bytes, *, settled: bool = True) -> None:
        identifier = next(NUMBERS)
        state = DELIVERY_STATES.described(TransactionalState(number))
        fields: list[Any] = [UInt(link.handle), UInt(identifier), b"%d" % identifier, UInt(0)]
        fields += [settled, False, None, state]
        payload = encode_message(Amqp10Message(body, header=Amqp10Header(durable=True)))
        transfer = encode(Described(ULong(0x14), fields)) + payload
        link.session.outgoing_window.next_id += 1
        self.peer.write(encode_frame(link.session.channel, transfer, AMQP_FRAME))


async def transactions_of(peer: Peer) -> Transactions:
    session = peer.begun[0] if peer.begun else await peer.session()
    link = session.sender(f"coordinator-{len(peer.attached)}")
    attach = Attach(
        link.name,
        0,
        False,
        source=LinkSource(),
        target=TransactionCoordinator(("amqp:local-transactions",)),
        initial_delivery_count=0,
    )
    await peer.attach(link, attach)
    return Transactions(peer, link)


@pytest.fixture
async def transactions(peer: Peer) -> Transactions:
    return await transactions_of(peer)


def messages(broker: Broker, queue: str = "q") -> int:
    """Ready and unacknowledged."""
    return int(broker.vhosts["/"].queues[queue].describe()["messages"])


async def test_the_coordinator_tells_what_it_can_do(transactions: Transactions) -> None:
    assert transactions.link.remote is not None
    target = transactions.link.remote.target
    assert isinstance(target, TransactionCoordinator)
    assert "amqp:local-transactions" in target.capabilities


async def test_messages_are_published_by_the_commit(
    transactions: Transactions, broker: Broker
) -> None:
    link = await transactions.sender("/queue/q")
    number = await transactions.declare()
    for index in range(3):
        transactions.post(link, number, b"%d" % index)
    other = await transactions.declare()  # answered after the posts
    assert other != number
    assert messages(broker) == 0
    assert await transactions.discharge(number) == ACCEPTED
    assert messages(broker) == 3
    receiver = await transactions.peer.receiver("/queue/q", credit=10)
    received = await transactions.peer.receive(3)
    assert [message.body for message in received] == [b"0", b"1", b"2"]
    assert receiver.live
    await transactions.declare()
    assert broker.kernel.pool.used == 0


async def test_messages_are_discarded_by_a_rollback(
    transactions: Transactions, broker: Broker
) -> None:
    link = await transactions.sender("/queue/q")
    number = await transactions.declare()
    transactions.post(link, number, b"x" * 100_000)
    assert await transactions.discharge(number, fail=True) == ACCEPTED
    assert (messages(broker), broker.kernel.pool.used) == (0, 0)


async def test_the_sending_link_may_end_before_the_commit(
    transactions: Transactions, broker: Broker
) -> None:
    link = await transactions.sender("/queue/q")
    number = await transactions.declare()
    transactions.post(link, number, b"x")
    link.detach()
    assert await transactions.discharge(number) == ACCEPTED
    assert messages(broker) == 1


@pytest.mark.parametrize("end", ["detach", "session", "connection"])
async def test_a_transaction_ends_with_its_coordinator(
    transactions: Transactions, broker: Broker, connect: Connect, end: str
) -> None:
    peer = transactions.peer
    link = await transactions.sender("/queue/q")
    assert await peer.send(await peer.sender("/queue/r"), Amqp10Message(b"r")) == ACCEPTED
    number = await transactions.declare()
    transactions.post(link, number, b"x")
    receiver = await peer.receiver("/queue/r", credit=1, session=await peer.session())
    [(delivery, _)] = await peer.take()
    peer.settle(delivery, TransactionalState(number, ACCEPTED))
    await transactions.declare()
    if end == "detach":
        transactions.link.detach()
        await peer.session()  # answered after that
        assert receiver.live
    elif end == "session":
        transactions.link.session.end()
        await peer.session()
    else:
        await peer.hang_up()
        async with asyncio.timeout(10):
            while broker.clients:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
    assert (messages(broker), messages(broker, "r")) == (0, 1)
    other = await connect("other")
    if end != "connection":
        await peer.hang_up()
    await other.receiver("/queue/r", credit=1)
    [message] = await other.receive()
    assert message.body == b"r"
    assert broker.kernel.pool.used == 0


async def test_outcomes_are_applied_by_the_commit(
    transactions: Transactions, broker: Broker
) -> None:
    peer = transactions.peer
    sender = await peer.sender("/queue/q")
    for index in range(4):
        await peer.send(sender, Amqp10Message(b"%d" % index))
    await peer.receiver("/queue/q", credit=4)
    taken = await peer.take(4)
    number = await transactions.declare()
    outcomes = [ACCEPTED, Rejected(), RELEASED, Modified(delivery_failed=True)]
    for (delivery, _), outcome in zip(taken, outcomes, strict=True):
        peer.settle(delivery, TransactionalState(number, outcome))
    await transactions.declare()
    assert messages(broker) == 4
    assert await transactions.discharge(number) == ACCEPTED
    assert messages(broker) == 2


@pytest.mark.parametrize("settled", [True, False])
async def test_a_rollback_returns_what_was_settled(
    transactions: Transactions, broker: Broker, settled: bool
) -> None:
    peer = transactions.peer
    await peer.send(await peer.sender("/queue/q"), Amqp10Message(b"x"))
    await peer.receiver("/queue/q", credit=2)
    [(delivery, _)] = await peer.take()
    number = await transactions.declare()
    state = TransactionalState(number, ACCEPTED)
    delivery.link.session.dispose(True, delivery.id, delivery.id, settled, state)
    peer.flush()
    assert await transactions.discharge(number, fail=True) == ACCEPTED
    if settled:  # it comes again
        [(again, message)] = await peer.take()
        assert message.header is not None
        assert message.header.delivery_count == 1
        peer.settle(again)
    else:  # it is still ours
        delivery.settle(ACCEPTED)
        peer.flush()
    await transactions.declare()
    assert messages(broker) == 0


async def test_a_delivery_that_is_not_settled_is_settled_by_the_commit(
    transactions: Transactions, broker: Broker
) -> None:
    peer = transactions.peer
    await peer.send(await peer.sender("/queue/q"), Amqp10Message(b"x"))
    receiver = await peer.receiver("/queue/q", credit=2)
    [(delivery, _)] = await peer.take()
    number = await transactions.declare()
    state = TransactionalState(number, ACCEPTED)
    receiver.session.dispose(True, delivery.id, delivery.id, False, state)
    peer.flush()
    assert await transactions.discharge(number) == ACCEPTED
    await peer.until(lambda: delivery.settled)
    assert messages(broker) == 0


async def test_a_commit_fails_if_a_receiving_link_has_ended(
    transactions: Transactions, broker: Broker
) -> None:
    peer = transactions.peer
    await peer.send(await peer.sender("/queue/q"), Amqp10Message(b"x"))
    link = await transactions.sender("/queue/r")
    receiver = await peer.receiver("/queue/q", credit=1)
    [(delivery, _)] = await peer.take()
    number = await transactions.declare()
    transactions.post(link, number, b"y")
    peer.settle(delivery, TransactionalState(number, ACCEPTED))
    receiver.detach()
    outcome = await transactions.discharge(number)
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == TRANSACTION_ROLLBACK
    assert (messages(broker), messages(broker, "r")) == (1, 0)


async def test_a_refused_message_fails_the_commit_and_no_outcome_is_applied(
    transactions: Transactions, broker: Broker
) -> None:
    peer, vhost = transactions.peer, broker.vhosts["/"]
    vhost.declare_queue("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    await peer.send(await peer.sender("/queue/q"), Amqp10Message(b"x"))
    link = await transactions.sender("/queues/full")
    await peer.receiver("/queue/q", credit=1)
    [(delivery, _)] = await peer.take()
    number = await transactions.declare()
    transactions.post(link, number, b"1")
    transactions.post(link, number, b"2")
    peer.settle(delivery, TransactionalState(number, ACCEPTED))
    outcome = await transactions.discharge(number)
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == TRANSACTION_ROLLBACK
    assert messages(broker) == 1


@pytest.mark.parametrize("deleted", ["queue", "exchange"])
async def test_an_unroutable_message_fails_the_commit(
    transactions: Transactions, broker: Broker, deleted: str
) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_exchange("e", "fanout")
    queue = vhost.declare_queue("q")
    vhost.bind("e", queue, "")
    link = await transactions.sender("/exchanges/e")
    number = await transactions.declare()
    transactions.post(link, number, b"x")
    await transactions.declare()
    if deleted == "queue":
        vhost.delete_queue("q")
    else:
        vhost.delete_exchange("e")
    outcome = await transactions.discharge(number)
    assert isinstance(outcome, Rejected)


async def test_a_transaction_is_discharged_once(transactions: Transactions) -> None:
    number = await transactions.declare()
    assert await transactions.discharge(number) == ACCEPTED
    for unknown in (number, b"never"):
        error = Amqp10Error(UNKNOWN_TRANSACTION, f"no transaction {unknown.hex()}")
        assert await transactions.discharge(unknown) == Rejected(error)


async def test_a_coordinator_discharges_only_its_own(transactions: Transactions) -> None:
    other = await transactions_of(transactions.peer)
    number = await transactions.declare()
    assert isinstance(await other.discharge(number), Rejected)
    assert await transactions.discharge(number) == ACCEPTED


async def test_distributed_transactions_are_refused(transactions: Transactions) -> None:
    outcome = await transactions.ask(Declare(b"global"))
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == NOT_IMPLEMENTED


@pytest.mark.parametrize("body", [b"x", AmqpValue("x"), AmqpValue(Described(ULong(0x24), []))])
async def test_other_requests_end_the_coordinator(transactions: Transactions, body: Any) -> None:
    peer = transactions.peer
    await peer.until(lambda: transactions.link.credit > 0)
    peer.post(transactions.link, Amqp10Message(body))
    await peer.until(lambda: transactions.link in peer.detached)
    error = peer.detached[transactions.link]
    assert error is not None
    assert error.condition == DECODE_ERROR


async def test_an_unknown_transaction_ends_the_link(transactions: Transactions) -> None:
    peer = transactions.peer
    link = await transactions.sender("/queue/q")
    transactions.post(link, b"unknown", b"x")
    await peer.until(lambda: link in peer.detached)
    error = peer.detached[link]
    assert error is not None
    assert error.condition == UNKNOWN_TRANSACTION
    await peer.send(await peer.sender("/queue/q"), Amqp10Message(b"x"))
    receiver = await peer.receiver("/queue/q", credit=1)
    [(delivery, _)] = await peer.take()
    peer.settle(delivery, TransactionalState(b"unknown", ACCEPTED))
    await peer.until(lambda: receiver in peer.detached)


async def test_acquisition_in_a_transaction_is_refused(transactions: Transactions) -> None:
    peer = transactions.peer
    number = await transactions.declare()
    await peer.sender("/queue/q")
    receiver = await peer.receiver("/queue/q")
    fields = [UInt(0), UInt(100), UInt(0), UInt(100), UInt(receiver.handle), None, UInt(1)]
    fields += [None, False, False, {"txn-id": number}]  # type: ignore[list-item]
    flow = encode(Described(ULong(0x13), fields))
    peer.write(encode_frame(receiver.session.channel, flow, AMQP_FRAME))
    await peer.until(lambda: receiver in peer.detached)


async def test_permissions_are_checked_when_a_message_is_posted(
    broker: Broker, connect: Connect
) -> None:
    broker.users.add("ada", "guest")
    broker.users.set_permissions("ada", "/", Permission(".*", "^amq.default$", ".*"))
    transactions = await transactions_of(await connect("ada", user="ada"))
    peer = transactions.peer
    link = await transactions.sender("/queue/q")
    number = await transactions.declare()
    broker.users.set_permissions("ada", "/", Permission(".*", "", ".*"))
    transactions.post(link, number, b"x")
    await peer.until(lambda: link in peer.detached)
    error = peer.detached[link]
    assert error is not None
    assert error.condition == UNAUTHORIZED
    assert await transactions.discharge(number) == ACCEPTED
    assert messages(broker) == 0
