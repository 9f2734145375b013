"""Topic permissions over AMQP 0-9-1: classes of content, CC and BCC, and ways round them.

Ada may publish and read what begins with `open` in the exchanges `content` and `amq.topic`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aio_pika
import httpx
import pytest
from aio_pika.abc import AbstractChannel
from aio_pika.exceptions import DeliveryError
from aiormq.exceptions import ChannelAccessRefused

from penstock.broker.permissions import Permission, TopicPermission
from penstock.core.config import BrokerSettings
from penstock.server import Broker

PADRES = "application/x-padres"
LARGE = 600 * 1024


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0", "http://127.0.0.1:0"])
    async with Broker(settings, data=tmp_path) as broker:
        vhost, users = broker.vhosts["/"], broker.users
        vhost.declare_exchange("content", "x-content", durable=True)
        delayed = {"x-delayed-type": "topic"}
        vhost.declare_exchange("later", "x-delayed-message", durable=True, arguments=delayed)
        all_of_it = vhost.declare_queue("all", durable=True)
        vhost.bind("content", all_of_it, "", {"x-all": True})
        for exchange in ("amq.topic", "later"):
            vhost.bind(exchange, all_of_it, "#")
        users.add("ada", "ada", ("management",))
        users.set_permissions("ada", "/", Permission(".*", ".*", ".*"))
        for exchange in ("content", "amq.topic", "later"):
            users.set_topic_permissions("ada", "/", exchange, TopicPermission("^open", "^open"))
        yield broker


@pytest.fixture
async def ada(broker: Broker) -> AsyncIterator[AbstractChannel]:
    url = broker.addresses[0].replace("://", "://ada:ada@") + "/"
    async with await aio_pika.connect(url) as connection:
        yield await connection.channel()


@pytest.fixture
async def api(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    url = f"{broker.addresses[1]}/api"
    async with httpx.AsyncClient(base_url=url, auth=("ada", "ada"), timeout=60) as api:
        yield api


def arrived(broker: Broker) -> int:
    return broker.vhosts["/"].queues["all"].message_count


async def publish(
    channel: AbstractChannel, exchange: str, key: str, body: bytes = b"", **properties: Any
) -> None:
    found = await channel.get_exchange(exchange, ensure=False)
    await found.publish(aio_pika.Message(body, **properties), key)


# Classes.


@pytest.mark.parametrize(
    "said",
    [
        {"headers": {"class": "{}"}},
        {"body": b"[class,{}],[price,1]", "content_type": PADRES},
        {"headers": {"class": "openly"}, "body": b"[class,{}]", "content_type": PADRES},
    ],
)
async def test_a_class_that_may_not_be_written_is_refused(
    broker: Broker, ada: AbstractChannel, said: dict[str, Any]
) -> None:
    def of(name: str) -> dict[str, Any]:
        made = dict(said)
        if "body" in made:
            made["body"] = made["body"].replace(b"{}", name.encode())
        else:
            made["headers"] = {"class": name}
        return made

    await publish(ada, "content", "openly", **of("openly"))
    assert arrived(broker) == 1
    with pytest.raises(ChannelAccessRefused, match="topic 'secret' in exchange 'content'"):
        await publish(ada, "content", "openly", **of("secret"))
    assert arrived(broker) == 1


async def test_so_is_that_of_a_large_message(broker: Broker, ada: AbstractChannel) -> None:
    await publish(ada, "content", "", bytes(LARGE), headers={"class": "openly"})
    with pytest.raises(DeliveryError):
        await publish(ada, "content", "", bytes(LARGE), headers={"class": "secret"})
    assert arrived(broker) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-subscription": "[class,eq,secret]"},
        {"x-subscription": "{{[class,eq,openly]}&{[class,eq,secret]}}"},
        {"x-all": True},
    ],
)
async def test_a_class_that_may_not_be_read_is_not_bound(
    broker: Broker, ada: AbstractChannel, api: httpx.AsyncClient, arguments: dict[str, Any]
) -> None:
    queue = await ada.declare_queue("mine")
    await queue.bind("content", "openly", arguments={"x-subscription": "[class,eq,openly]"})
    body = {"routing_key": "openly", "arguments": arguments}
    assert (await api.post("/bindings/%2F/e/content/q/mine", json=body)).status_code == 401
    with pytest.raises(ChannelAccessRefused, match=r"topic '(secret|#)' in exchange 'content'"):
        await queue.bind("content", "openly", arguments=arguments)


async def test_classes_count_over_http_as_well(broker: Broker, api: httpx.AsyncClient) -> None:
    for name, status in (("openly", 200), ("secret", 401)):
        body = {
            "properties": {"headers": {"class": name}},
            "routing_key": "openly",
            "payload": "",
            "payload_encoding": "string",
        }
        answer = await api.post("/exchanges/%2F/content/publish", json=body)
        assert answer.status_code == status, answer.text
    assert arrived(broker) == 1


async def test_a_right_that_is_taken_away_is_gone_at_once(
    broker: Broker, ada: AbstractChannel
) -> None:
    await publish(ada, "content", "", headers={"class": "openly"})
    broker.users.set_topic_permissions("ada", "/", "content", TopicPermission("^other$", ""))
    with pytest.raises(ChannelAccessRefused):
        await publish(ada, "content", "", headers={"class": "openly"})


# CC and BCC.


@pytest.mark.parametrize("exchange", ["amq.topic", "later"])
@pytest.mark.parametrize("header", ["CC", "BCC"])
async def test_keys_that_a_header_adds_have_to_be_allowed(
    broker: Broker, ada: AbstractChannel, exchange: str, header: str
) -> None:
    await publish(ada, exchange, "open.a", headers={header: ["open.b"]})
    assert arrived(broker) == 1
    with pytest.raises(ChannelAccessRefused, match=r"topic 'secret\.b'"):
        await publish(ada, exchange, "open.a", headers={header: ["open.b", "secret.b"]})
    assert arrived(broker) == 1


async def test_a_topic_exchange_that_delays_knows_topics(
    broker: Broker, ada: AbstractChannel
) -> None:
    with pytest.raises(ChannelAccessRefused, match=r"topic 'secret\.b'"):
        await publish(ada, "later", "secret.b")


async def test_headers_that_select_keys_count_over_http(
    broker: Broker, api: httpx.AsyncClient
) -> None:
    for key, status in (("open.b", 200), ("secret.b", 401)):
        body = {
            "properties": {"headers": {"CC": [key]}},
            "routing_key": "open.a",
            "payload": "",
            "payload_encoding": "string",
        }
        answer = await api.post("/exchanges/%2F/amq.topic/publish", json=body)
        assert answer.status_code == status, answer.text


# Ways round.


@pytest.mark.parametrize("exchange", ["amq.topic", "content"])
async def test_others_messages_are_not_led_into_an_exchange_one_may_not_write_all_of(
    broker: Broker, ada: AbstractChannel, api: httpx.AsyncClient, exchange: str
) -> None:
    assert (
        await api.put("/exchanges/%2F/other", json={"arguments": {"alternate-exchange": exchange}})
    ).status_code == 401
    arguments: dict[str, Any] = {"x-dead-letter-exchange": exchange}
    assert (await api.put("/queues/%2F/dead", json={"arguments": arguments})).status_code == 401
    target = f"/bindings/%2F/e/amq.fanout/e/{exchange}"
    assert (await api.post(target, json={})).status_code == 401
    broker.users.set_topic_permissions("ada", "/", exchange, TopicPermission(".*", ".*"))
    await ada.declare_queue("dead", arguments=arguments)
    source = await ada.declare_exchange("mine", "fanout")
    await (await ada.get_exchange(exchange)).bind(source)


async def test_it_is_so_over_amqp(broker: Broker, ada: AbstractChannel) -> None:
    source = await ada.declare_exchange("mine", "fanout")
    target = await ada.get_exchange("amq.topic")
    with pytest.raises(ChannelAccessRefused, match="topic '#'"):
        await target.bind(source)


async def test_dead_letters_with_a_key_that_is_allowed_are(
    broker: Broker, ada: AbstractChannel
) -> None:
    arguments: dict[str, Any] = {
        "x-dead-letter-exchange": "amq.topic",
        "x-dead-letter-routing-key": "open.dead",
    }
    await ada.declare_queue("one", arguments=arguments)
    with pytest.raises(ChannelAccessRefused, match=r"topic 'secret\.dead'"):
        await ada.declare_queue(
            "two", arguments={**arguments, "x-dead-letter-routing-key": "secret.dead"}
        )
