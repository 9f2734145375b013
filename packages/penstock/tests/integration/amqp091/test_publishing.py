"""What becomes of a publish: confirmed, returned, refused, or taken by an alternate exchange."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError, UnroutableError

from tests.integration.amqp091.dialogue import (
    channel_error,
    connection_error,
    get_bodies,
    get_body,
    round_trip,
    wait_on,
)


def test_a_mandatory_message_nobody_wants_is_returned_with_312(
    plain_channel: BlockingChannel, name: str
) -> None:
    returned: list[Any] = []
    plain_channel.add_on_return_callback(lambda _, *message: returned.append(message))
    properties = pika.BasicProperties(message_id="m", headers={"a": 1})

    plain_channel.basic_publish("amq.direct", name, b"body", properties, mandatory=True)
    wait_on(plain_channel, lambda: bool(returned))

    ((method, back, body),) = returned
    assert (method.reply_code, method.reply_text) == (312, "NO_ROUTE")
    assert (method.exchange, method.routing_key) == ("amq.direct", name)
    assert (back.message_id, back.headers, body) == ("m", {"a": 1}, b"body")


def test_a_mandatory_message_that_is_wanted_is_not_returned(
    channel: BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"body", mandatory=True)

    assert get_body(channel, queue) == b"body"


def test_a_return_comes_before_its_confirm(channel: BlockingChannel, name: str) -> None:
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish("", name, b"body", mandatory=True)

    assert [message.body for message in caught.value.messages] == [b"body"]


def test_what_nobody_wants_is_confirmed(channel: BlockingChannel, name: str) -> None:
    channel.basic_publish("amq.direct", name, b"nobody's")


def test_a_full_queue_that_rejects_is_a_nack(channel: BlockingChannel, name: str) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    channel.basic_publish("", name, b"first")

    with pytest.raises(NackError):
        channel.basic_publish("", name, b"second")

    assert get_bodies(channel, name) == [b"first"]


def test_an_alternate_exchange_takes_what_nobody_wants(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    channel.queue_bind(queue, exchange)
    main = f"{exchange}.main"
    channel.exchange_declare(
        main, "direct", auto_delete=True, arguments={"alternate-exchange": exchange}
    )

    channel.basic_publish(main, "unknown", b"stray", mandatory=True)

    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.exchange, method.routing_key, body) == (main, "unknown", b"stray")
    channel.exchange_delete(main)


def test_an_alternate_exchange_leaves_what_is_wanted(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    wanted = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, exchange)
    main = f"{exchange}.main"
    channel.exchange_declare(main, "direct", arguments={"alternate-exchange": exchange})
    channel.queue_bind(wanted, main, "key")

    channel.basic_publish(main, "key", b"wanted")

    assert (get_body(channel, wanted), get_body(channel, queue)) == (b"wanted", None)
    channel.exchange_delete(main)


def test_a_missing_alternate_exchange_means_unroutable(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(
        name, "direct", auto_delete=True, arguments={"alternate-exchange": f"{name}.missing"}
    )

    with pytest.raises(UnroutableError):
        channel.basic_publish(name, "key", b"stray", mandatory=True)


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        (
            {"user_id": "somebody"},
            "user_id property set to 'somebody' but authenticated user was 'guest'",
        ),
        ({"expiration": "soon"}, "invalid expiration 'soon': "),
        ({"expiration": ""}, "invalid expiration '': "),
        ({"expiration": "-1"}, "invalid expiration '-1': "),
        ({"expiration": "1.5"}, "invalid expiration '1.5': "),
        ({"headers": {"CC": "not a list"}}, "invalid message: "),
    ],
)
def test_a_property_that_cannot_be_is_a_406(
    plain_channel: BlockingChannel, queue: str, properties: dict[str, Any], complaint: str
) -> None:
    with channel_error(406, f"PRECONDITION_FAILED - {complaint}"):
        plain_channel.basic_publish("", queue, b"", pika.BasicProperties(**properties))
        round_trip(plain_channel)


def test_the_users_own_user_id_is_accepted(channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, b"mine", pika.BasicProperties(user_id="guest"))

    assert channel.basic_get(queue, auto_ack=True)[1].user_id == "guest"


def test_immediate_is_not_implemented(plain_channel: BlockingChannel, queue: str) -> None:
    publish = pika.spec.Basic.Publish(routing_key=queue, immediate=True)

    with connection_error(540, "NOT_IMPLEMENTED - immediate=true"):
        plain_channel._impl._send_method(publish, (pika.BasicProperties(), b""))
        round_trip(plain_channel)
