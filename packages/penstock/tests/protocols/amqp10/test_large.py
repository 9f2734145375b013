"""Messages of many transfers: gathered if they are small, passed on as they come if not."""

from __future__ import annotations

import os

from penstock.server.broker import Broker
from penstock.wire.amqp10.codec import encode
from penstock.wire.amqp10.errors import DECODE_ERROR, MESSAGE_TOO_LARGE
from penstock.wire.amqp10.links import SenderLink
from penstock.wire.amqp10.message import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    Amqp10Header,
    Amqp10Message,
    Amqp10Properties,
    AmqpValue,
    encode_message,
    section_prefix,
)
from penstock.wire.amqp10.performatives import ACCEPTED, RELEASED, Rejected, Released
from penstock.wire.amqp10.values import Symbol
from tests.protocols.amqp10.conftest import Connect
from tests.protocols.amqp10.peer import Peer

LARGE = os.urandom(300_000)


async def test_a_large_message_passes_whole(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    properties = Amqp10Properties(subject="large", message_id="1")
    sent = Amqp10Message(LARGE, properties=properties, application_properties={"a": "b"})
    assert await peer.send(out, sent) == ACCEPTED
    await peer.receiver("/queue/q", credit=1)
    [message] = await peer.receive()
    assert message.body == LARGE
    assert message.properties == properties
    assert message.application_properties == {"a": "b"}


async def test_frames_are_as_small_as_a_client_wants_them(connect: Connect) -> None:
    peer = await connect(frame_max=512)
    out = await peer.sender("/queue/q")
    assert await peer.send(out, Amqp10Message(LARGE[:100_000])) == ACCEPTED
    assert await peer.send(out, Amqp10Message(LARGE[:5_000])) == ACCEPTED
    await peer.receiver("/queue/q", credit=2)
    large, small = await peer.receive(2)
    assert large.body == LARGE[:100_000]
    assert small.body == LARGE[:5_000]
    assert peer.transfers > 200


async def test_data_in_many_sections_with_a_footer(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    pieces = [LARGE[at : at + 70_000] for at in range(0, len(LARGE), 70_000)]
    footer = {Symbol("x-sum"): "abc"}
    payload = b"".join(
        section_prefix(DATA) + encode(piece) for piece in [*pieces[:2], b"", *pieces[2:]]
    )
    payload += section_prefix(FOOTER) + encode(footer)
    assert await peer.send(out, payload) == ACCEPTED
    await peer.receiver("/queue/q", credit=1)
    [message] = await peer.receive()
    assert message.body == LARGE
    assert message.footer == footer


async def test_a_large_value_comes_back_as_it_was(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    value = AmqpValue([LARGE, "text", {"a": 1}])
    assert await peer.send(out, Amqp10Message(value)) == ACCEPTED
    await peer.receiver("/queue/q", credit=1)
    assert (await peer.receive())[0].body == value


async def test_a_large_message_is_durable_and_dead_lettered_like_any_other(
    peer: Peer, broker: Broker
) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_queue("dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    vhost.declare_queue("q", durable=True, arguments=arguments)
    out = await peer.sender("/queues/q")
    assert await peer.send(out, Amqp10Message(LARGE, header=Amqp10Header(durable=True))) == ACCEPTED
    await peer.receiver("/queues/q", credit=2)
    [(delivery, _)] = await peer.take()
    peer.settle(delivery, RELEASED)
    [(delivery, _)] = await peer.take()
    peer.settle(delivery, Rejected())
    await peer.receiver("/queues/dead", credit=1)
    assert (await peer.receive())[0].body == LARGE


async def test_a_large_message_nobody_wants_is_released(peer: Peer) -> None:
    out = await peer.sender("/exchange/amq.direct/nowhere")
    assert await peer.send(out, Amqp10Message(LARGE)) == Released()


async def test_large_messages_of_two_links_do_not_mix(peer: Peer) -> None:
    one, two = await peer.sender("/queue/one"), await peer.sender("/queue/two")
    await peer.until(lambda: one.credit and two.credit)
    sent = {
        link: (link.new(False), encode_message(Amqp10Message(LARGE[n:])))
        for link, n in ((one, 0), (two, 9))
    }
    for at in range(0, len(LARGE), 10_000):
        for link, (delivery, payload) in sent.items():
            link.send(delivery, payload[at : at + 10_000], more=True)
        peer.flush()
    for link, (delivery, payload) in sent.items():
        link.send(delivery, payload[len(LARGE) :])
    peer.flush()
    await peer.until(lambda: len(peer.outcomes) == 2)
    await peer.receiver("/queue/two", credit=1)
    assert (await peer.receive())[0].body == LARGE[9:]
    await peer.receiver("/queue/one", credit=1)
    assert (await peer.receive())[0].body == LARGE


async def test_an_aborted_delivery_is_forgotten(peer: Peer, broker: Broker) -> None:
    out = await peer.sender("/queue/q")
    await peer.until(lambda: out.credit > 0)
    for size in (5_000, 100_000):
        delivery = out.new(False)
        out.send(delivery, encode_message(Amqp10Message(LARGE))[:size], more=True)
        peer.flush()
        out.abort(delivery)
        peer.flush()
    assert await peer.send(out, Amqp10Message(b"whole")) == ACCEPTED
    assert await peer.send(out, Amqp10Message(LARGE)) == ACCEPTED
    await peer.receiver("/queue/q", credit=2)
    assert [message.body for message in await peer.receive(2)] == [b"whole", LARGE]
    assert broker.kernel.pool.used < len(LARGE) * 3


async def test_half_a_message_is_forgotten_with_its_connection(
    connect: Connect, broker: Broker
) -> None:
    first = await connect("one")
    out = await first.sender("/queue/q")
    await first.until(lambda: out.credit > 0)
    delivery = out.new(False)
    out.send(delivery, encode_message(Amqp10Message(LARGE))[:200_000], more=True)
    first.flush()
    await first.session()  # answered when what came before has been read
    await first.hang_up()
    second = await connect("two")
    link = await second.receiver("/queue/q")
    second.grant(link, 1, drain=True)
    await second.until(lambda: link.credit == 0)
    assert not second.received


async def test_a_consumer_that_leaves_in_the_middle_gives_the_message_back(
    connect: Connect,
) -> None:
    first, second = await connect("one", frame_max=512), await connect("two")
    out = await second.sender("/queue/q")
    await second.send(out, Amqp10Message(LARGE))
    await first.receiver("/queue/q", credit=1)
    await first.until(lambda: first.transfers > 3)
    await first.hang_up()
    await second.receiver("/queue/q", credit=1)
    assert (await second.receive())[0].body == LARGE


async def test_what_comes_before_the_body_has_to_be_small(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    head = section_prefix(APPLICATION_PROPERTIES) + encode({"a": LARGE})
    await refused(peer, out, head + section_prefix(DATA) + encode(b"x"), MESSAGE_TOO_LARGE)


async def test_a_message_that_ends_within_a_section_ends_the_link(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    await refused(peer, out, encode_message(Amqp10Message(LARGE))[:-1], DECODE_ERROR)


async def test_what_is_no_message_ends_the_link(peer: Peer) -> None:
    for payload in (b"\xff" * 50_000, b"nonsense", LARGE):
        await refused(peer, await peer.sender("/queue/q"), payload, DECODE_ERROR)


async def test_what_is_no_message_is_rejected_by_the_relay_which_stays(peer: Peer) -> None:
    await peer.receiver("/queue/q", credit=2)
    out = await peer.sender(None)
    good = encode_message(Amqp10Message(LARGE, properties=Amqp10Properties(to="/queue/q")))
    for payload in (LARGE, good[:-1], good + section_prefix(FOOTER) + b"\xc1\x02\x01\x40"):
        outcome = await peer.send(out, payload)
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == DECODE_ERROR
    assert await peer.send(out, good) == ACCEPTED
    assert (await peer.receive())[0].body == LARGE


async def test_a_footer_has_to_be_small(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    footer = section_prefix(FOOTER) + encode({Symbol("x"): LARGE})
    await refused(peer, out, encode_message(Amqp10Message(LARGE)) + footer, MESSAGE_TOO_LARGE)


async def refused(peer: Peer, out: SenderLink, payload: bytes, condition: str) -> None:
    await peer.until(lambda: out.credit > 0)
    peer.post(out, payload)
    await peer.until(lambda: out in peer.detached)
    error = peer.detached[out]
    assert error is not None
    assert error.condition == condition
