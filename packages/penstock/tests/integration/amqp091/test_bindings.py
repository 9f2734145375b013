"""Binding queues to exchanges, exchanges to exchanges, and undoing it."""

from __future__ import annotations

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import channel_error, get_bodies, get_body


def test_a_bound_queue_gets_what_is_published(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    channel.queue_bind(queue, exchange)

    channel.basic_publish(exchange, "", b"hello")

    assert get_body(channel, queue) == b"hello"


def test_binding_twice_alike_delivers_once(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    channel.queue_bind(queue, exchange, "key")
    channel.queue_bind(queue, exchange, "key")

    channel.basic_publish(exchange, "key", b"hello")

    assert get_bodies(channel, queue) == [b"hello"]


def test_two_bindings_that_match_deliver_once(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    channel.queue_bind(queue, exchange, "one")
    channel.queue_bind(queue, exchange, "two")

    channel.basic_publish(exchange, "", b"hello")

    assert get_bodies(channel, queue) == [b"hello"]


def test_an_unbound_queue_gets_nothing_more(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    channel.queue_bind(queue, exchange, "key")

    channel.queue_unbind(queue, exchange, "key")
    channel.basic_publish(exchange, "key", b"hello")

    assert get_body(channel, queue) is None


def test_unbinding_needs_the_same_key_and_arguments(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    channel.queue_bind(queue, exchange, "key", {"x": 1})

    channel.queue_unbind(queue, exchange, "other", {"x": 1})
    channel.queue_unbind(queue, exchange, "key", {"x": 2})
    channel.basic_publish(exchange, "key", b"hello")

    assert get_body(channel, queue) == b"hello"


def test_unbinding_what_is_not_bound_is_fine(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    channel.queue_unbind(queue, exchange, "never")

    assert channel.is_open


@pytest.mark.parametrize("missing", ["queue", "exchange"])
def test_unbinding_from_or_to_what_is_missing_is_fine(
    channel: BlockingChannel, exchange: str, queue: str, name: str, missing: str
) -> None:
    ends = {"queue": queue, "exchange": exchange, missing: f"{name}.missing"}

    channel.queue_unbind(ends["queue"], ends["exchange"], "key")

    assert channel.is_open


def test_binding_to_a_missing_exchange_is_a_404(
    channel: BlockingChannel, queue: str, name: str
) -> None:
    with channel_error(404, f"NOT_FOUND - no exchange '{name}.missing' in vhost '/'"):
        channel.queue_bind(queue, f"{name}.missing", "key")


def test_binding_a_missing_queue_is_a_404(channel: BlockingChannel, name: str) -> None:
    with channel_error(404, f"NOT_FOUND - no queue '{name}' in vhost '/'"):
        channel.queue_bind(name, "amq.direct", "key")


def test_deleting_an_exchange_undoes_its_bindings(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    channel.queue_bind(queue, exchange)

    channel.exchange_delete(exchange)
    channel.exchange_declare(exchange, "fanout")
    channel.basic_publish(exchange, "", b"hello")

    assert get_body(channel, queue) is None


def test_the_default_exchange_takes_a_queue_by_its_name(
    channel: BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"hello")

    assert get_body(channel, queue) == b"hello"


def test_the_default_exchange_takes_no_bindings(channel: BlockingChannel, queue: str) -> None:
    with channel_error(403, "ACCESS_REFUSED - operation not permitted on the default exchange"):
        channel.queue_bind(queue, "", "key")


def test_the_default_exchange_gives_up_no_bindings(channel: BlockingChannel, queue: str) -> None:
    with channel_error(403, "ACCESS_REFUSED - operation not permitted on the default exchange"):
        channel.queue_unbind(queue, "", queue)


def test_an_exchange_bound_to_an_exchange_hands_on(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    source = f"{exchange}.source"
    channel.exchange_declare(source, "direct", auto_delete=True)
    channel.exchange_bind(exchange, source, "key")
    channel.queue_bind(queue, exchange)

    channel.basic_publish(source, "key", b"through")
    channel.basic_publish(source, "other", b"not through")

    assert get_bodies(channel, queue) == [b"through"]


def test_a_ring_of_exchanges_delivers_once(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    second = f"{exchange}.second"
    channel.exchange_declare(second, "fanout")
    channel.exchange_bind(exchange, second)
    channel.exchange_bind(second, exchange)
    channel.queue_bind(queue, exchange)

    channel.basic_publish(second, "", b"round")

    assert get_bodies(channel, queue) == [b"round"]
    channel.exchange_delete(second)


def test_unbinding_an_exchange_stops_the_handing_on(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    channel.exchange_bind(exchange, "amq.direct", queue)
    channel.queue_bind(queue, exchange)

    channel.exchange_unbind(exchange, "amq.direct", queue)
    channel.basic_publish("amq.direct", queue, b"hello")

    assert get_body(channel, queue) is None


def test_binding_exchanges_that_are_missing_is_a_404(channel: BlockingChannel, name: str) -> None:
    with channel_error(404, "NOT_FOUND - no exchange"):
        channel.exchange_bind(f"{name}.to", f"{name}.from", "key")


def test_exchanges_cannot_be_bound_to_the_default_exchange(
    channel: BlockingChannel, exchange: str
) -> None:
    with channel_error(403, "operation not permitted on the default exchange"):
        channel.exchange_bind(exchange, "", "key")
