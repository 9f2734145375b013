"""The contract, played through with a double on either side."""

from __future__ import annotations

from penstock.broker.contract import Channel, Driver, Message, Terminal
from tests.doubles import Client, Listener, Recorder, Stand, message, push_all


def test_a_double_of_either_side_is_a_few_lines() -> None:
    terminal: Terminal = Listener()
    driver: Driver = Recorder()
    channel = Channel(terminal, driver)
    channel.driver.channel_open(channel, {"exclusive": True})
    channel.driver.channel_request(channel, 3)
    channel.driver.channel_close(channel)
    assert isinstance(driver, Recorder)
    assert driver.asked == [("open", {"exclusive": True}), ("request", 3), ("close",)]


def test_a_message_knows_its_route_and_its_size() -> None:
    one = message(b"12345", "key.ü", exchange="ex")
    assert (one.exchange, one.routing_key, one.size) == ("ex", "key.ü", 5)


def test_a_route_that_is_not_text_can_still_be_asked_for() -> None:
    one = Message(b"\x01\xff\x02\xfea", message().header, b"")
    assert one.exchange.encode("utf-8", "surrogateescape") == b"\xff"
    assert one.routing_key.encode("utf-8", "surrogateescape") == b"\xfea"


async def test_every_verb_returns_at_once(stand: Stand) -> None:
    """A whole conversation, without the loop having run once."""
    queue = stand.queue()
    publisher = stand.publisher()
    consumer = Client(queue).request(1)
    publisher.post(message(b"1", "q"), 1)
    consumer.confirm(consumer.ear.deliveries[0])
    consumer.request(1)
    publisher.post(message(b"2", "q"), 2)
    consumer.fail(consumer.ear.deliveries[1], requeue=False)
    consumer.close()
    publisher.close()
    assert publisher.ear.confirmed == [1, 2]
    assert consumer.ear.bodies == [b"1", b"2"]


async def test_a_forwarded_small_message_is_shared_not_copied(stand: Stand) -> None:
    consumers = [Client(stand.queue(name)).request() for name in "ab"]
    for name in "ab":
        stand.vhost.bind("amq.fanout", stand.vhost.queues[name])
    one = message(b"shared", exchange="amq.fanout")
    stand.publisher("amq.fanout").post(one)
    assert all(consumer.ear.forwarded[0][0] is one for consumer in consumers)


async def test_credit_is_set_not_added(stand: Stand) -> None:
    queue = stand.queue()
    consumer = Client(queue)
    for _ in range(3):
        consumer.request(1)
    push_all(queue, b"1", b"2")
    assert consumer.ear.bodies == [b"1"]
