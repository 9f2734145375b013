"""Exchanges: where a message goes, and what its publisher hears."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.contract import MANDATORY, Message
from penstock.core.basic_properties import decode_header
from penstock.core.errors import AccessRefused, NoRoute, NotFound, PreconditionFailed, Unsupported
from tests.doubles import Client, Stand, message, persistent


def bind_queues(stand: Stand, exchange: str, **keys: str) -> dict[str, Any]:
    """A queue for each name, bound by its key."""
    queues = {name: stand.queue(name) for name in keys}
    for name, key in keys.items():
        stand.vhost.bind(exchange, queues[name], key)
    return queues


def counts(queues: dict[str, Any]) -> dict[str, int]:
    return {name: queue.ready for name, queue in queues.items() if queue.ready}


async def test_the_default_exchange_knows_every_queue_by_name(stand: Stand) -> None:
    queue = stand.queue("jobs")
    stand.publisher().post(message(key="jobs"))
    assert queue.ready == 1


async def test_direct_wants_the_very_key(stand: Stand) -> None:
    queues = bind_queues(stand, "amq.direct", a="k", b="k", c="other")
    stand.publisher("amq.direct").post(message(key="k", exchange="amq.direct"))
    assert counts(queues) == {"a": 1, "b": 1}


async def test_fanout_wants_nothing(stand: Stand) -> None:
    queues = bind_queues(stand, "amq.fanout", a="x", b="", c="z")
    stand.publisher("amq.fanout").post(message(key="k", exchange="amq.fanout"))
    assert counts(queues) == {"a": 1, "b": 1, "c": 1}


async def test_topic_wants_a_pattern(stand: Stand) -> None:
    queues = bind_queues(stand, "amq.topic", a="sensors.*.report", b="#", c="sensors.*")
    stand.publisher("amq.topic").post(message(key="sensors.7.report", exchange="amq.topic"))
    assert counts(queues) == {"a": 1, "b": 1}


async def test_a_queue_bound_many_times_gets_one_copy(stand: Stand) -> None:
    queue = stand.queue()
    for key in ("a.*", "*.b", "#", "a.b"):
        stand.vhost.bind("amq.topic", queue, key)
    stand.publisher("amq.topic").post(message(key="a.b", exchange="amq.topic"))
    assert queue.ready == 1


async def test_what_a_key_leads_to_is_forgotten_when_topology_changes(stand: Stand) -> None:
    queues = bind_queues(stand, "amq.direct", a="k")
    publisher = stand.publisher("amq.direct")
    publisher.post(message(key="k", exchange="amq.direct"))
    queues |= bind_queues(stand, "amq.direct", b="k")
    publisher.post(message(key="k", exchange="amq.direct"))
    stand.vhost.unbind("amq.direct", queues["a"], "k")
    publisher.post(message(key="k", exchange="amq.direct"))
    stand.vhost.delete_queue("b")
    publisher.post(message(key="k", exchange="amq.direct"))
    assert counts(queues)["a"] == 2


async def test_exchanges_lead_to_exchanges_and_circles_end(stand: Stand) -> None:
    one, other = stand.exchange("one", "fanout"), stand.exchange("other", "topic")
    stand.vhost.bind("one", other, "")
    stand.vhost.bind("other", one, "#")
    queue = stand.queue()
    stand.vhost.bind("other", queue, "a.*")
    for _ in range(2):
        stand.publisher("one").post(message(key="a.b", exchange="one"))
    assert queue.ready == 2


async def test_what_nobody_wants_goes_to_the_alternate(stand: Stand) -> None:
    stand.exchange("rest", "fanout")
    stand.exchange("main", "direct", arguments={"alternate-exchange": "rest"})
    queues = bind_queues(stand, "main", a="k") | bind_queues(stand, "rest", other="")
    publisher = stand.publisher("main")
    publisher.post(message(key="k", exchange="main"))
    publisher.post(message(key="unknown", exchange="main"))
    assert counts(queues) == {"a": 1, "other": 1}


async def test_a_copy_that_found_its_way_needs_no_alternate(stand: Stand) -> None:
    """CC names more keys of the one message; only a message that no key leads on is left over."""
    stand.exchange("rest", "fanout")
    stand.exchange("main", "direct", arguments={"alternate-exchange": "rest"})
    queues = bind_queues(stand, "main", a="k") | bind_queues(stand, "rest", other="")
    stand.publisher("main").post(message(key="unknown", exchange="main", headers={"CC": ["k"]}))
    assert counts(queues) == {"a": 1}


async def test_the_sender_may_name_more_keys_and_hide_some(stand: Stand) -> None:
    queues = {name: stand.queue(name) for name in "abc"}
    stand.publisher().post(message(key="a", headers={"CC": ["b"], "BCC": ["c", "a"]}))
    assert counts(queues) == {"a": 1, "b": 1, "c": 1}
    seen = Client(queues["c"], settled=True).request().ear.forwarded[0][0]
    assert isinstance(seen, Message)
    assert decode_header(seen.header).headers == {"CC": ["b"]}


@pytest.mark.parametrize("wrong", ["text", 7, [1], {"a": "b"}])
async def test_more_keys_are_a_list_of_text(stand: Stand, wrong: Any) -> None:
    stand.queue("a")
    with pytest.raises(PreconditionFailed, match="CC"):
        stand.publisher().post(message(key="a", headers={"CC": wrong}))


async def test_a_key_that_is_not_text_is_a_key_all_the_same(stand: Stand) -> None:
    queues = bind_queues(stand, "amq.topic", all="#", some="a.*")
    route = b"\x09amq.topic\x04a.\xff\xfe"
    post = Message(route, message().header, b"hello")
    stand.publisher("amq.topic").post(post)
    stand.publisher().post(Message(b"\x00\x02\xff\xfe", message().header, b"hello"), 1)
    assert counts(queues) == {"all": 1, "some": 1}


# What the publisher hears.


async def test_a_receipt_is_confirmed_at_once_for_what_need_not_be_stored(stand: Stand) -> None:
    stand.queue("a")
    publisher = stand.publisher()
    publisher.post(message(key="a"), 5)
    publisher.post(message(key="nobody"), 6)
    assert publisher.ear.confirmed == [5, 6]


async def test_a_receipt_is_confirmed_when_the_message_is_on_disk(stand: Stand) -> None:
    stand.queue("a", durable=True)
    publisher = stand.publisher()
    publisher.post(persistent(key="a"), 5)
    stand.kernel.write_batch.flush()
    assert publisher.ear.confirmed == []
    await publisher.ear.until(lambda: publisher.ear.confirmed == [5])


async def test_no_receipt_no_answer(stand: Stand) -> None:
    stand.queue("a", durable=True)
    publisher = stand.publisher()
    publisher.post(persistent(key="a"))
    publisher.post(message(key="nobody"))
    await stand.synced()
    assert (publisher.ear.confirmed, publisher.ear.failed) == ([], [])


@pytest.mark.parametrize("receipt", [0, 3])
async def test_a_mandatory_message_nobody_wants_comes_back(stand: Stand, receipt: int) -> None:
    publisher = stand.publisher()
    unwanted = message(key="nobody")
    unwanted.flags |= MANDATORY
    publisher.post(unwanted, receipt)
    ((answered, error),) = publisher.ear.failed
    assert (answered, type(error), error.args) == (receipt, NoRoute, (unwanted,))


async def test_a_publisher_hears_that_its_exchange_is_gone(stand: Stand) -> None:
    stand.exchange("x")
    publisher = stand.publisher("x")
    stand.vhost.delete_exchange("x")
    ((receipt, error),) = publisher.ear.failed
    assert (receipt, type(error)) == (0, NotFound)


async def test_an_exchange_has_nothing_to_give(stand: Stand) -> None:
    publisher = stand.publisher()
    with pytest.raises(Unsupported, match="bind a queue"):
        publisher.request(1)


async def test_the_default_exchange_cannot_be_bound(stand: Stand) -> None:
    with pytest.raises(AccessRefused):
        stand.vhost.bind("", stand.queue(), "key")
