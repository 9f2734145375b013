"""Back-pressure: who does not read, or has no room, holds up nobody and fills no memory."""

from __future__ import annotations

from typing import Any, cast

from penstock.protocols.amqp10.terminal import Amqp10Terminal
from penstock.server.broker import Broker
from penstock.wire.amqp10.message import Amqp10Message
from penstock.wire.amqp10.performatives import ACCEPTED
from penstock.wire.amqp10.transfers import encode_link_flow, encode_session_flow
from tests.protocols.amqp10.conftest import Connect
from tests.protocols.amqp10.peer import Peer

BODY = b"x" * 8192


def terminal_of(broker: Broker, container: str) -> Amqp10Terminal:
    clients: list[Any] = list(broker.clients)
    [found] = [one for one in clients if one.describe()["container_id"] == container]
    return cast(Amqp10Terminal, found)


async def test_a_receiver_that_does_not_read_gets_no_more_than_its_socket_holds(
    connect: Connect, broker: Broker
) -> None:
    slow, quick = await connect("slow"), await connect("quick")
    await slow.receiver("/queue/slow", credit=100_000)
    slow.pause()
    out = await quick.sender("/queue/slow")
    for _ in range(3000):
        await quick.until(lambda: out.credit > 0)
        quick.post(out, Amqp10Message(BODY))
    await quick.until(lambda: len(quick.outcomes) == 3000)
    terminal = terminal_of(broker, "slow")
    assert terminal.output.write_blocked
    assert terminal.transport.get_write_buffer_size() < 1 << 20
    assert broker.vhosts["/"].queues["slow"].message_count > 500
    # Others go on, and the slow one once it reads again.
    assert await quick.send(await quick.sender("/queue/other"), Amqp10Message(b"x")) == ACCEPTED
    slow.resume()
    await slow.until(lambda: len(slow.received) == 3000)


async def test_a_session_without_room_is_sent_nothing(connect: Connect, broker: Broker) -> None:
    peer = await connect("peer")
    out = await peer.sender("/queue/q")
    for number in range(6):
        assert await peer.send(out, Amqp10Message(str(number).encode())) == ACCEPTED
    link = await peer.receiver("/queue/q", session=await peer.session())
    link.credit = 10
    channel = link.session.channel
    peer.write(encode_link_flow(channel, 0, 2, 0, 9, link.handle, 0, 10))
    await peer.until(lambda: len(peer.received) == 2)
    other = await peer.receiver("/queue/q", session=await peer.session(), credit=1)
    await peer.until(lambda: other.credit == 0)  # another session is not held up
    assert len(peer.received) == 3
    peer.write(encode_session_flow(channel, 2, 100, 0, 9))
    await peer.until(lambda: len(peer.received) == 6)
    assert broker.vhosts["/"].queues["q"].message_count == 0


async def test_a_large_message_waits_for_room_in_the_window(peer: Peer) -> None:
    body = b"0123456789abcdef" * 20_000
    assert await peer.send(await peer.sender("/queue/q"), Amqp10Message(body)) == ACCEPTED
    link = await peer.receiver("/queue/q")
    link.credit = 1
    channel = link.session.channel
    peer.write(encode_link_flow(channel, 0, 1, 1, 9, link.handle, 0, 1))
    rooms = 0
    while not peer.received:
        await peer.until(lambda: peer.transfers > rooms)  # noqa: B023 - it is awaited at once
        rooms += 1
        peer.write(encode_session_flow(channel, rooms, 1, 1, 9))
    [(_, message)] = await peer.take()
    assert message.body == body
    assert rooms > 10


async def test_while_an_alarm_sounds_senders_wait_and_receivers_do_not(
    connect: Connect, broker: Broker
) -> None:
    sender, receiver = await connect("sender"), await connect("receiver")
    out = await sender.sender("/queue/q")
    assert await sender.send(out, Amqp10Message(b"before")) == ACCEPTED
    broker.alarms.set("test", "no room")
    delivery = sender.post(out, Amqp10Message(b"meanwhile"))
    await receiver.receiver("/queue/q", credit=2)
    assert (await receiver.receive())[0].body == b"before"
    assert delivery not in sender.outcomes
    broker.alarms.clear("test")
    await sender.until(lambda: delivery in sender.outcomes)
    assert (await receiver.receive())[0].body == b"meanwhile"
