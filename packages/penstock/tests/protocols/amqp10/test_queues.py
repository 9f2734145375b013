"""Queues by AMQP 1.0: what is sent is there, in order, until somebody is done with it."""

from __future__ import annotations

from penstock.server.broker import Broker
from penstock.wire.amqp10.errors import NOT_FOUND
from penstock.wire.amqp10.message import Amqp10Header, Amqp10Message
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    RELEASED,
    SECOND,
    SETTLED,
    Accepted,
    Modified,
    Rejected,
    Released,
)
from penstock.wire.amqp10.values import UInt
from tests.protocols.amqp10.conftest import Connect
from tests.protocols.amqp10.peer import Peer


async def test_what_is_sent_to_a_queue_is_received_from_it(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    assert await peer.send(out, Amqp10Message(b"one")) == ACCEPTED
    assert await peer.send(out, Amqp10Message(b"two")) == ACCEPTED
    await peer.receiver("/queue/q", credit=10)
    assert [message.body for message in await peer.receive(2)] == [b"one", b"two"]


async def test_a_queue_that_is_only_named_is_declared(peer: Peer, broker: Broker) -> None:
    await peer.sender("plain")
    assert broker.vhosts["/"].queues["plain"].durable


async def test_rabbitmq_4_addresses_name_what_exists(peer: Peer, broker: Broker) -> None:
    broker.vhosts["/"].declare_queue("a/b")
    out = await peer.sender("/queues/a%2Fb")
    assert await peer.send(out, Amqp10Message(b"x")) == ACCEPTED
    await peer.receiver("/queues/a%2Fb", credit=1)
    assert (await peer.receive())[0].body == b"x"
    link = await peer.receiver("/queues/other")
    await peer.until(lambda: link in peer.detached)
    error = peer.detached[link]
    assert error is not None
    assert error.condition == NOT_FOUND


async def test_no_more_is_sent_than_there_is_credit_for(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    for number in range(5):
        await peer.send(out, Amqp10Message(str(number).encode()))
    link = await peer.receiver("/queue/q", credit=2)
    assert [message.body for message in await peer.receive(2)] == [b"0", b"1"]
    peer.grant(link, 10, drain=True)
    await peer.until(lambda: link.credit == 0)
    assert len(peer.received) == 3


async def test_a_drained_link_has_no_credit_left(peer: Peer) -> None:
    link = await peer.receiver("/queue/q", credit=7)
    peer.grant(link, 7, drain=True)
    await peer.until(lambda: link.credit == 0)
    assert link.delivery_count == 7


async def test_released_is_offered_again_as_if_it_had_never_left(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    await peer.send(out, Amqp10Message(b"x"))
    await peer.receiver("/queue/q", credit=2)
    [(delivery, _)] = await peer.take()
    peer.settle(delivery, RELEASED)
    [message] = await peer.receive()
    assert message.header is not None
    assert message.header.delivery_count == 0


async def test_modified_counts_as_an_attempt(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    await peer.send(out, Amqp10Message(b"x"))
    await peer.receiver("/queue/q", credit=2)
    [(delivery, _)] = await peer.take()
    peer.settle(delivery, Modified(delivery_failed=True))
    [message] = await peer.receive()
    assert message.header is not None
    assert message.header.delivery_count == 1
    assert message.header.first_acquirer is False


async def test_rejected_is_dead_lettered(peer: Peer, broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_queue("dead")
    vhost.declare_queue(
        "q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    )
    out = await peer.sender("/queues/q")
    await peer.send(out, Amqp10Message(b"bad"))
    await peer.send(out, Amqp10Message(b"not here"))
    await peer.receiver("/queues/q", credit=2)
    (first, _), (second, _) = await peer.take(2)
    peer.settle(first, Rejected())
    peer.settle(second, Modified(undeliverable_here=True))
    await peer.receiver("/queues/dead", credit=2)
    assert [message.body for message in await peer.receive(2)] == [b"bad", b"not here"]


async def test_what_was_not_answered_comes_back_when_the_link_ends(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    await peer.send(out, Amqp10Message(b"x"))
    link = await peer.receiver("/queue/q", credit=1)
    await peer.take()
    link.detach()
    peer.flush()
    await peer.receiver("/queue/q", credit=1)
    [message] = await peer.receive()
    assert message.header is not None
    assert message.header.delivery_count == 1


async def test_what_was_not_answered_comes_back_when_the_connection_is_lost(
    connect: Connect,
) -> None:
    first, second = await connect("one"), await connect("two")
    out = await first.sender("/queue/q")
    await first.send(out, Amqp10Message(b"x"))
    await first.receiver("/queue/q", credit=1)
    await first.take()
    await second.receiver("/queue/q", credit=1)
    await first.hang_up()
    assert (await second.receive())[0].body == b"x"


async def test_accepted_is_gone(connect: Connect) -> None:
    first, second = await connect("one"), await connect("two")
    out = await first.sender("/queue/q")
    await first.send(out, Amqp10Message(b"x"))
    await first.receiver("/queue/q", credit=1)
    await first.receive()
    await first.close()
    link = await second.receiver("/queue/q")
    second.grant(link, 1, drain=True)
    await second.until(lambda: link.credit == 0)
    assert not second.received


async def test_settled_deliveries_are_not_answered_either_way(peer: Peer) -> None:
    out = await peer.sender("/queue/q", snd=SETTLED)
    await peer.until(lambda: out.credit > 0)
    for number in range(3):
        peer.post(out, Amqp10Message(str(number).encode()), settled=True)
    link = await peer.receiver("/queue/q", credit=3, snd=SETTLED)
    taken = await peer.take(3)
    assert [message.body for _, message in taken] == [b"0", b"1", b"2"]
    assert all(delivery.settled for delivery, _ in taken)
    assert not link.session.incoming
    assert not peer.outcomes


async def test_a_receiver_of_the_second_mode_settles_after_the_broker(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    await peer.send(out, Amqp10Message(b"x"))
    link = await peer.receiver("/queue/q", credit=1, rcv=SECOND)
    [(delivery, _)] = await peer.take()
    peer.settle(delivery, ACCEPTED)
    await peer.until(lambda: delivery.settled)
    assert not link.session.incoming


async def test_a_sender_may_ask_for_the_second_mode(peer: Peer) -> None:
    out = await peer.sender("/queue/q", rcv=SECOND)
    assert await peer.send(out, Amqp10Message(b"x")) == Accepted()
    assert not out.session.outgoing


async def test_consumers_compete(connect: Connect) -> None:
    one, two = await connect("one"), await connect("two")
    await one.receiver("/queue/q", credit=10)
    await two.receiver("/queue/q", credit=10)
    out = await one.sender("/queue/q")
    for number in range(4):
        await one.send(out, Amqp10Message(str(number).encode()))
    assert len(await one.receive(2)) == 2
    assert len(await two.receive(2)) == 2


async def test_a_message_outlives_its_time_in_no_queue(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    await peer.send(out, Amqp10Message(b"brief", header=Amqp10Header(ttl=UInt(0))))
    await peer.send(out, Amqp10Message(b"lasting"))
    await peer.receiver("/queue/q", credit=2)
    assert (await peer.receive())[0].body == b"lasting"


async def test_a_message_nobody_wants_is_released(peer: Peer) -> None:
    out = await peer.sender("/exchange/amq.direct/nowhere")
    assert await peer.send(out, Amqp10Message(b"x")) == Released()


async def test_a_queue_that_is_full_rejects(peer: Peer, broker: Broker) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    broker.vhosts["/"].declare_queue("q", arguments=arguments)
    out = await peer.sender("/queues/q")
    assert await peer.send(out, Amqp10Message(b"x")) == ACCEPTED
    outcome = await peer.send(out, Amqp10Message(b"y"))
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:resource-limit-exceeded"


async def test_a_durable_message_survives_the_broker(peer: Peer, broker: Broker) -> None:
    out = await peer.sender("/queue/q")
    assert await peer.send(out, Amqp10Message(b"x", header=Amqp10Header(durable=True))) == ACCEPTED
    assert broker.vhosts["/"].queues["q"].message_count == 1
    assert (broker.data / "log" / "queues").exists()


async def test_a_deleted_queue_ends_its_links(peer: Peer, broker: Broker) -> None:
    link = await peer.receiver("/queue/q", credit=1)
    broker.vhosts["/"].delete_queue("q")
    broker.kernel.write_batch.flush()
    await peer.until(lambda: link in peer.detached)
    error = peer.detached[link]
    assert error is not None
    assert error.condition == "amqp:resource-deleted"


async def test_a_large_run_of_messages_arrives_in_order(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    bodies = [str(number).encode() for number in range(3000)]
    for body in bodies:
        await peer.until(lambda: out.credit > 0)
        peer.post(out, Amqp10Message(body))
    await peer.until(lambda: len(peer.outcomes) == len(bodies))
    link = await peer.receiver("/queue/q", credit=len(bodies))
    received = await peer.receive(len(bodies))
    assert [message.body for message in received] == bodies
    assert link.credit == 0
