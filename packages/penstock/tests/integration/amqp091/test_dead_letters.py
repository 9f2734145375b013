"""Dead letters: which messages go to the dead-letter exchange, and what is written on them."""

from __future__ import annotations

import calendar
import time
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError

from tests.integration.amqp091.dialogue import Arrival, Inbox


@pytest.fixture
def graveyard(channel: BlockingChannel, exchange: str, name: str) -> Inbox:
    """A consumer of all that is dead-lettered to `exchange`."""
    channel.queue_declare(f"{name}.dead", exclusive=True)
    channel.queue_bind(f"{name}.dead", exchange)
    return Inbox(channel, f"{name}.dead", auto_ack=True)


def declare(channel: BlockingChannel, queue: str, exchange: str, **arguments: Any) -> None:
    wanted = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    channel.queue_declare(
        queue, exclusive=True, arguments={"x-dead-letter-exchange": exchange, **wanted}
    )


def test_a_rejected_message_is_dead_lettered(
    channel: BlockingChannel, name: str, exchange: str, graveyard: Inbox
) -> None:
    declare(channel, name, exchange)
    channel.basic_publish("", name, b"bad", pika.BasicProperties(message_id="m"))

    channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)

    (letter,) = graveyard.take(1)
    assert (letter.body, letter.properties.message_id) == (b"bad", "m")
    assert (letter.method.exchange, letter.method.routing_key) == (exchange, name)


def test_the_death_is_written_on_it(
    channel: BlockingChannel, name: str, exchange: str, graveyard: Inbox
) -> None:
    declare(channel, name, exchange)
    before = int(time.time())
    channel.basic_publish("", name, b"bad", pika.BasicProperties(headers={"mine": 1}))
    channel.basic_nack(channel.basic_get(name)[0].delivery_tag, requeue=False)

    (letter,) = graveyard.take(1)
    headers = dict(letter.headers)
    (death,) = headers.pop("x-death")
    died = death.pop("time")
    assert death == {
        "reason": "rejected",
        "queue": name,
        "exchange": "",
        "routing-keys": [name],
        "count": 1,
    }
    assert before <= calendar.timegm(died.utctimetuple()) <= time.time()
    assert headers == {
        "mine": 1,
        "x-first-death-exchange": "",
        "x-first-death-queue": name,
        "x-first-death-reason": "rejected",
    }


def test_an_expired_message_is_dead_lettered(
    channel: BlockingChannel, name: str, exchange: str, graveyard: Inbox
) -> None:
    declare(channel, name, exchange, message_ttl=10)

    channel.basic_publish("", name, b"late")

    (letter,) = graveyard.take(1)
    assert death_of(letter)["reason"] == "expired"


def test_an_expiration_is_taken_off_and_noted(
    channel: BlockingChannel, name: str, exchange: str, graveyard: Inbox
) -> None:
    declare(channel, name, exchange)

    channel.basic_publish("", name, b"late", pika.BasicProperties(expiration="10"))

    (letter,) = graveyard.take(1)
    assert letter.properties.expiration is None
    assert death_of(letter)["original-expiration"] == "10"


def test_a_message_pushed_out_is_dead_lettered(
    channel: BlockingChannel, name: str, exchange: str, graveyard: Inbox
) -> None:
    declare(channel, name, exchange, max_length=1)

    channel.basic_publish("", name, b"old")
    channel.basic_publish("", name, b"new")

    (letter,) = graveyard.take(1)
    assert (letter.body, death_of(letter)["reason"]) == (b"old", "maxlen")


def test_reject_publish_dlx_dead_letters_what_it_rejects(
    channel: BlockingChannel, name: str, exchange: str, graveyard: Inbox
) -> None:
    declare(channel, name, exchange, max_length=1, overflow="reject-publish-dlx")
    channel.basic_publish("", name, b"first")

    with pytest.raises(NackError):
        channel.basic_publish("", name, b"second")

    (letter,) = graveyard.take(1)
    assert (letter.body, death_of(letter)["reason"]) == (b"second", "maxlen")


def test_reject_publish_does_not_dead_letter(
    channel: BlockingChannel, name: str, exchange: str, graveyard: Inbox
) -> None:
    declare(channel, name, exchange, max_length=1, overflow="reject-publish")
    channel.basic_publish("", name, b"first")

    with pytest.raises(NackError):
        channel.basic_publish("", name, b"second")

    assert graveyard.settle() == []


def test_a_dead_letter_routing_key_replaces_the_key(
    channel: BlockingChannel, name: str, exchange: str, graveyard: Inbox
) -> None:
    declare(channel, name, exchange, message_ttl=0, dead_letter_routing_key="lost")

    channel.basic_publish("", name, b"late")

    (letter,) = graveyard.take(1)
    assert letter.method.routing_key == "lost"
    assert death_of(letter)["routing-keys"] == [name]


def test_copies_are_kept_with_the_key_and_dropped_without(
    channel: BlockingChannel, name: str, exchange: str, graveyard: Inbox
) -> None:
    declare(channel, name, exchange, message_ttl=0)
    declare(channel, f"{name}.keyed", exchange, message_ttl=0, dead_letter_routing_key="lost")

    for queue in (name, f"{name}.keyed"):
        properties = pika.BasicProperties(headers={"CC": ["copy"]})
        channel.basic_publish("", queue, b"late", properties)

    plain, keyed = graveyard.take(2)
    assert (plain.headers.get("CC"), keyed.headers.get("CC")) == (["copy"], None)
    assert death_of(plain)["routing-keys"] == [name, "copy"]


def test_a_missing_dead_letter_exchange_drops_them(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, f"{name}.missing")
    channel.basic_publish("", name, b"bad")

    channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)

    assert channel.basic_get(name)[0] is None


def test_dying_again_in_the_same_queue_counts(
    channel: BlockingChannel, name: str, exchange: str
) -> None:
    declare(channel, name, exchange)
    channel.queue_bind(name, exchange)
    inbox = Inbox(channel, name)
    channel.basic_publish("", name, b"again")
    for _ in range(3):
        (arrival,) = inbox.take(1)
        channel.basic_reject(arrival.tag, requeue=False)

    (arrival,) = inbox.take(1)

    (death,) = arrival.headers["x-death"]
    assert (death["queue"], death["exchange"], death["count"]) == (name, "", 3)


def test_deaths_are_listed_latest_first(
    channel: BlockingChannel, name: str, exchange: str, graveyard: Inbox
) -> None:
    channel.exchange_declare(f"{name}.middle", "fanout", auto_delete=True)
    declare(channel, f"{name}.two", exchange, message_ttl=0)
    channel.queue_bind(f"{name}.two", f"{name}.middle")
    declare(channel, f"{name}.one", f"{name}.middle", max_length=0)

    channel.basic_publish("", f"{name}.one", b"unlucky")

    (letter,) = graveyard.take(1)
    story = [(death["queue"], death["reason"]) for death in letter.headers["x-death"]]
    assert story == [(f"{name}.two", "expired"), (f"{name}.one", "maxlen")]
    assert letter.headers["x-first-death-queue"] == f"{name}.one"
    assert letter.headers["x-first-death-reason"] == "maxlen"


def test_a_ring_without_a_rejection_is_cut(channel: BlockingChannel, name: str) -> None:
    first, second = f"{name}.first", f"{name}.second"
    declare(channel, first, "", message_ttl=0, dead_letter_routing_key=second)
    declare(channel, second, "", message_ttl=0, dead_letter_routing_key=first)

    channel.basic_publish("", first, b"round")

    for queue in (first, second):
        assert channel.basic_get(queue, auto_ack=True)[2] is None


def test_a_retry_queue_brings_a_rejected_message_back(channel: BlockingChannel, name: str) -> None:
    work, retry = f"{name}.work", f"{name}.retry"
    declare(channel, work, "", dead_letter_routing_key=retry)
    declare(channel, retry, "", message_ttl=20, dead_letter_routing_key=work)
    inbox = Inbox(channel, work)
    channel.basic_publish("", work, b"job")

    for _ in range(3):
        (job,) = inbox.take(1)
        channel.basic_reject(job.tag, requeue=False)

    (job,) = inbox.take(1)
    counts = {death["queue"]: death["count"] for death in job.headers["x-death"]}
    assert counts == {work: 3, retry: 3}


def death_of(letter: Arrival) -> dict[str, Any]:
    """The latest death."""
    death: dict[str, Any] = letter.headers["x-death"][0]
    return death
