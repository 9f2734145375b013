"""Messages that arrive in one read are posted as runs: in order, each with its own outcome."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.server.broker import Broker
from penstock.wire.amqp10.links import OutgoingDelivery, SenderLink
from penstock.wire.amqp10.message import Amqp10Message, Amqp10Properties, encode_message
from penstock.wire.amqp10.performatives import ACCEPTED, RELEASED
from tests.protocols.amqp10.conftest import Connect
from tests.protocols.amqp10.peer import Peer

COUNT = 200  # more than a run


def write(
    peer: Peer, messages: Iterable[tuple[SenderLink, Amqp10Message]]
) -> list[OutgoingDelivery]:
    """Send them in one write."""
    deliveries = []
    for link, message in messages:
        deliveries.append(link.new(False))
        link.send(deliveries[-1], encode_message(message))
    peer.flush()
    return deliveries


async def assert_in_order(peer: Peer) -> None:
    await peer.receiver("/queue/q", credit=COUNT)
    received = await peer.receive(COUNT)
    assert [message.body for message in received] == [b"%d" % number for number in range(COUNT)]


async def test_messages_with_and_without_properties_keep_their_order(connect: Connect) -> None:
    peer = await connect()
    out = await peer.sender("/queue/q")
    properties = [{"n": number} if number % 10 == 0 else None for number in range(COUNT)]
    messages = [
        Amqp10Message(b"%d" % number, application_properties=one)
        for number, one in enumerate(properties)
    ]
    write(peer, [(out, message) for message in messages])
    await peer.until(lambda: len(peer.outcomes) == COUNT)
    assert set(peer.outcomes.values()) == {ACCEPTED}
    await peer.receiver("/queue/q", credit=COUNT)
    received = await peer.receive(COUNT)
    assert [message.body for message in received] == [message.body for message in messages]
    assert [message.application_properties for message in received] == properties


async def test_links_that_alternate_keep_the_order_of_transfers(connect: Connect) -> None:
    peer = await connect()
    first, second = await peer.sender("/queue/q"), await peer.sender("/queue/q")
    links = [second if number % 3 == 0 else first for number in range(COUNT)]
    write(peer, [(link, Amqp10Message(b"%d" % number)) for number, link in enumerate(links)])
    await assert_in_order(peer)


async def test_what_precedes_a_detach_is_stored(connect: Connect) -> None:
    peer = await connect()
    out = await peer.sender("/queue/q")
    for number in range(COUNT):
        out.send(out.new(True), encode_message(Amqp10Message(b"%d" % number)))
    out.detach()
    peer.flush()
    await assert_in_order(peer)


async def test_each_message_of_a_read_has_its_own_outcome(connect: Connect, broker: Broker) -> None:
    peer = await connect()
    await peer.receiver("/queue/q")
    anonymous = await peer.sender(None)
    addresses = ["/queue/q" if number % 7 else "/queue/missing" for number in range(COUNT)]
    deliveries = write(
        peer,
        [(anonymous, Amqp10Message(b"x", properties=Amqp10Properties(to=to))) for to in addresses],
    )
    await peer.until(lambda: len(peer.outcomes) == COUNT)
    expected = [ACCEPTED if to == "/queue/q" else RELEASED for to in addresses]
    assert [peer.outcomes[delivery] for delivery in deliveries] == expected
    assert broker.vhosts["/"].queues["q"].message_count == expected.count(ACCEPTED)
