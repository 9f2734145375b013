"""Tokens as credentials in every protocol: login, permissions, expiry and renewal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker

from penstock.client.padres import PadresClient
from penstock.core.config import BrokerSettings, OAuth2Settings
from penstock.server.broker import Broker
from penstock.wire.amqp10.message import Amqp10Message, Amqp10Properties, AmqpValue
from penstock.wire.amqp10.performatives import ACCEPTED
from tests.broker.auth.issuer import RESOURCE, Issuer, serve
from tests.protocols.amqp10.peer import Peer

LISTEN = ["amqp", "mqtt", "http", "padres"]


class TokenBroker:
    def __init__(self, broker: Broker, issuer: Issuer) -> None:
        self.broker = broker
        self.issuer = issuer

    def port(self, scheme: str) -> int:
        port = urlsplit(self.broker.addresses[LISTEN.index(scheme)]).port
        assert port is not None
        return port

    def pika(self, token: str) -> pika.BlockingConnection:
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                self.port("amqp"),
                credentials=pika.PlainCredentials("", token),
                blocked_connection_timeout=10,
            )
        )

    def user(self) -> str:
        [terminal] = self.broker.clients
        return str(terminal.describe()["user"])

    async def until_alone(self) -> None:
        async with asyncio.timeout(20):
            while self.broker.clients:  # noqa: ASYNC110 - sockets close in their own time
                await asyncio.sleep(0.01)


@pytest.fixture
async def fabric(tmp_path: Path) -> AsyncIterator[TokenBroker]:
    issuer = Issuer()
    with serve(issuer) as url:
        settings = BrokerSettings(
            listen=[f"{scheme}://127.0.0.1:0" for scheme in LISTEN],
            auth_backends=["oauth2", "internal"],
            oauth2=OAuth2Settings(resource_server_id=RESOURCE, issuer=url, clock_skew=0),
            drain_seconds=0.1,
        )
        async with Broker(settings, data=tmp_path) as broker:
            yield TokenBroker(broker, issuer)


def amqp091(fabric: TokenBroker, token: str) -> str:
    connection = fabric.pika(token)
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"x")
    user = fabric.user()
    connection.close()
    return user


class Subscriber:
    """An MQTT client that notes what it is told."""

    def __init__(self, fabric: TokenBroker, token: str, version: int = 5) -> None:
        client = paho.Client(CallbackAPIVersion.VERSION2, "c", protocol=version)  # type: ignore[arg-type]
        client.username_pw_set("", token)
        self.answers: list[Any] = []
        self.ends: list[Any] = []
        client.on_connect = lambda *args: self.answers.append(args[3])
        client.on_disconnect = lambda *args: self.ends.append(args[3])
        client.connect("127.0.0.1", fabric.port("mqtt"))
        self.client = client
        self.run(lambda: bool(self.answers))
        if self.answers[0].is_failure:
            raise ConnectionRefusedError(str(self.answers[0]))

    def run(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not until():
            assert time.monotonic() < deadline
            self.client.loop(0.05)


def mqtt(fabric: TokenBroker, token: str) -> str:
    subscriber = Subscriber(fabric, token)
    user = fabric.user()
    subscriber.client.disconnect()
    return user


def management(fabric: TokenBroker, token: str) -> str:
    url = f"http://127.0.0.1:{fabric.port('http')}/api/whoami"
    answer = httpx.get(url, headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == httpx.get(url, auth=("", token)).status_code
    answer.raise_for_status()
    return str(answer.json()["name"])


@pytest.mark.parametrize("login", [amqp091, mqtt, management])
async def test_a_token_is_a_password(
    fabric: TokenBroker, login: Callable[[TokenBroker, str], str]
) -> None:
    scope = "penstock.configure:*/* penstock.write:*/* penstock.read:*/* penstock.tag:management"
    token = fabric.issuer.token(scope=scope)
    assert await asyncio.to_thread(login, fabric, token) == "ada"
    await fabric.until_alone()
    with pytest.raises((AMQPError, ConnectionRefusedError, httpx.HTTPStatusError)):
        await asyncio.to_thread(login, fabric, fabric.issuer.token(aud="other"))


async def test_amqp_1_and_padres_clients_have_tokens(fabric: TokenBroker) -> None:
    token = fabric.issuer.token()
    peer = await Peer().connect(fabric.port("amqp"), user="", password=token)
    assert await peer.send(await peer.sender("/queue/q"), Amqp10Message(b"x")) == ACCEPTED
    assert fabric.user() == "ada"
    await peer.close()
    await fabric.until_alone()
    client = await PadresClient(f"padres://x:{token}@127.0.0.1:{fabric.port('padres')}").open()
    assert fabric.user() == "ada"
    await client.close()


async def test_users_of_the_broker_can_still_log_in(fabric: TokenBroker) -> None:
    url = f"http://127.0.0.1:{fabric.port('http')}/api/whoami"
    answer = await asyncio.to_thread(partial(httpx.get, url, auth=("guest", "guest")))
    assert answer.json()["name"] == "guest"


async def test_scopes_are_permissions(fabric: TokenBroker) -> None:
    scope = (
        "penstock.configure:%2F/mine-* penstock.write:%2F/amq.topic/a.* penstock.read:%2F/mine-*"
    )

    def work() -> list[int]:
        codes = []
        acts: list[Callable[[Any], Any]] = [
            lambda channel: channel.queue_declare("yours"),
            lambda channel: channel.basic_get("mine-1"),
            lambda channel: channel.basic_publish("", "mine-1", b"x"),
            lambda channel: channel.basic_publish("amq.topic", "a.b", b"x"),
            lambda channel: channel.basic_publish("amq.topic", "b", b"x"),
        ]
        connection = fabric.pika(fabric.issuer.token(scope=scope))
        connection.channel().queue_declare("mine-1")
        for act in acts:
            channel = connection.channel()
            channel.confirm_delivery()
            try:
                act(channel)
                codes.append(0)
            except ChannelClosedByBroker as error:
                codes.append(error.reply_code)
        connection.close()
        return codes

    assert await asyncio.to_thread(work) == [403, 0, 403, 0, 403]


async def test_a_token_without_access_to_the_virtual_host_is_not_admitted(
    fabric: TokenBroker,
) -> None:
    token = fabric.issuer.token(scope="penstock.read:other/*")
    with pytest.raises(AMQPError, match="access to vhost '/' refused"):
        await asyncio.to_thread(fabric.pika, token)


async def test_tags_of_a_token_decide_about_management(fabric: TokenBroker) -> None:
    url = f"http://127.0.0.1:{fabric.port('http')}"
    token = fabric.issuer.token(scope="penstock.tag:administrator penstock.read:*/*")
    headers = {"authorization": f"Bearer {token}"}

    def work() -> list[int]:
        with httpx.Client(base_url=url, headers=headers) as client:
            put = client.put("/api/vhosts/new")
            listed = client.get("/api/users")
            nothing = {"authorization": f"Bearer {fabric.issuer.token(scope='')}"}
            return [
                put.status_code,
                listed.status_code,
                client.get("/api/overview", headers=nothing).status_code,
                client.get("/api/overview", headers={"authorization": "Bearer x"}).status_code,
            ]

    assert await asyncio.to_thread(work) == [201, 200, 401, 401]


def soon() -> float:
    return time.time() + 5


async def test_an_amqp_connection_ends_with_its_token(fabric: TokenBroker) -> None:
    def work() -> ConnectionClosedByBroker:
        connection = fabric.pika(fabric.issuer.token(exp=soon()))
        with pytest.raises(ConnectionClosedByBroker) as closed:
            connection.sleep(20)
        return closed.value

    closed = await asyncio.to_thread(work)
    assert (closed.reply_code, "credential expired" in closed.reply_text) == (320, True)


async def test_an_amqp_1_connection_ends_with_its_token(fabric: TokenBroker) -> None:
    token = fabric.issuer.token(exp=soon())
    peer = await Peer().connect(fabric.port("amqp"), user="", password=token)
    error = await peer.until_gone()
    assert error is not None
    assert error.condition == "amqp:unauthorized-access"
    assert error.description == "credential expired"


async def test_an_mqtt_connection_ends_with_its_token(fabric: TokenBroker) -> None:
    def work() -> Any:
        subscriber = Subscriber(fabric, fabric.issuer.token(exp=soon()))
        subscriber.run(lambda: bool(subscriber.ends))
        return subscriber.ends[0]

    assert "Maximum connect time" in str(await asyncio.to_thread(work))


async def test_a_new_token_extends_an_amqp_connection(fabric: TokenBroker) -> None:
    issuer = fabric.issuer

    def work() -> tuple[int, int]:
        ends = soon()
        read_only = "penstock.read:*/* penstock.configure:*/*"
        connection = fabric.pika(issuer.token(exp=ends))
        channel = connection.channel()
        channel.queue_declare("q")
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"x")
        connection.update_secret(issuer.token(scope=read_only, exp=ends + 60), "renewed")
        connection.sleep(max(0.0, ends - time.time()) + 0.2)
        with pytest.raises(ChannelClosedByBroker) as closed:
            channel.basic_publish("", "q", b"x")
        with pytest.raises(ConnectionClosedByBroker) as refused:
            connection.update_secret(issuer.token(sub="eve"), "another user's")
        return closed.value.reply_code, refused.value.reply_code

    assert await asyncio.to_thread(work) == (403, 530)


async def test_a_new_token_extends_an_amqp_1_connection(fabric: TokenBroker) -> None:
    issuer = fabric.issuer
    ends = soon()
    peer = await Peer().connect(fabric.port("amqp"), user="", password=issuer.token(exp=ends))
    requests = await peer.sender("/management", name="pair")
    await peer.receiver("/management", name="pair", credit=10)

    async def renew(body: Any) -> str | None:
        await peer.until(lambda: requests.credit > 0)
        properties = Amqp10Properties(message_id="1", to="/auth/tokens", subject="PUT")
        peer.post(requests, Amqp10Message(AmqpValue(body), properties=properties))
        [response] = await peer.receive()
        assert response.properties is not None
        return response.properties.subject

    assert await renew(issuer.token(sub="eve").encode()) == "403"
    assert await renew("text") == "409"
    assert await renew(b"not a token") == "403"
    assert await renew(issuer.token().encode()) == "204"
    await asyncio.sleep(max(0.0, ends - time.time()) + 0.2)
    assert await peer.send(await peer.sender("/queue/q"), Amqp10Message(b"x")) == ACCEPTED
    await peer.close()
