"""Being let in, or not: errors that say what to do next."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from penstock.client import BrokerUnreachable, connect
from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    ContentTooLarge,
    PenstockError,
    ProtocolError,
    Unsupported,
)
from tests.client.test_tls import write_certificate
from tests.fixtures import NewMosquitto
from tests.peers import Mosquitto, Penstock, RabbitMQ, free_port


@pytest.fixture
def guarded(new_mosquitto: NewMosquitto, tmp_path: Path) -> Mosquitto:
    """A mosquitto that knows one user, who may use topics under `mine`."""
    passwords, rules = tmp_path / "passwords", tmp_path / "rules"
    program = shutil.which("mosquitto_passwd")
    assert program is not None
    subprocess.run([program, "-c", "-b", passwords, "ann", "secret"], check=True)
    rules.write_text("user ann\ntopic readwrite mine/#\n")
    return new_mosquitto("allow_anonymous false", f"password_file {passwords}", f"acl_file {rules}")


@pytest.mark.peer
class TestMosquitto:
    async def test_who_has_the_password_is_let_in(self, guarded: Mosquitto) -> None:
        async with (
            connect(f"mqtt://ann:secret@127.0.0.1:{guarded.port}") as fabric,
            fabric.subscribe("mine/a") as messages,
        ):
            await fabric.publish("mine/a", b"in")
            assert (await messages.receive()).body == b"in"

    @pytest.mark.parametrize("version", ["5", "3.1.1"])
    @pytest.mark.parametrize(("who", "told"), [("ann:wrong@", "'ann'"), ("", "anonymous")])
    async def test_who_has_not_is_told_so(
        self, guarded: Mosquitto, version: str, who: str, told: str
    ) -> None:
        url = f"mqtt://{who}127.0.0.1:{guarded.port}?version={version}"
        with pytest.raises(AuthenticationFailed, match=told):
            await connect(url).open()

    @pytest.mark.parametrize("qos", [1, 2])
    async def test_a_topic_one_may_not_publish_to(self, guarded: Mosquitto, qos: int) -> None:
        async with connect(f"mqtt://ann:secret@127.0.0.1:{guarded.port}") as fabric:
            with pytest.raises(AccessRefused, match="yours/a"):
                await fabric.mqtt.publish("yours/a", b"", qos=qos)
            await fabric.mqtt.publish("mine/a", b"", qos=qos)

    async def test_a_message_larger_than_the_broker_takes(
        self, new_mosquitto: NewMosquitto
    ) -> None:
        server = new_mosquitto("max_packet_size 1000")
        async with connect(server.url) as fabric:
            with pytest.raises(ContentTooLarge, match="the broker accepts 1,000"):
                await fabric.publish("a", b"x" * 2000)
            await fabric.publish("a", b"x" * 100)

    async def test_a_certificate_is_checked(
        self, new_mosquitto: NewMosquitto, tmp_path: Path
    ) -> None:
        certificate, key = write_certificate(tmp_path)
        port, websocket_port = free_port(), free_port()
        secured = (f"certfile {certificate}", f"keyfile {key}")
        new_mosquitto(
            *(f"listener {port} 127.0.0.1", *secured),
            *(f"listener {websocket_port} 127.0.0.1", "protocol websockets", *secured),
        )
        with pytest.raises(BrokerUnreachable, match="certificate not trusted"):
            await connect(f"mqtts://127.0.0.1:{port}").open()
        context = ssl.create_default_context(cafile=str(certificate))
        async with (
            connect(f"mqtts://127.0.0.1:{port}?cafile={certificate}") as by_url,
            connect(f"wss://127.0.0.1:{websocket_port}", tls=context) as by_context,
            by_context.subscribe("a") as messages,
        ):
            for number in range(100):
                await by_url.publish("a", number)
            assert [(await messages.receive()).json() for _ in range(100)] == list(range(100))


@pytest.mark.peer
async def test_a_broker_that_speaks_only_the_older_version(plugged_rabbitmq: RabbitMQ) -> None:
    with pytest.raises(BrokerUnreachable, match=r"add \?version=3\.1\.1"):
        await connect(plugged_rabbitmq.mqtt_url).open()
    async with (
        connect(f"{plugged_rabbitmq.mqtt_url}?version=3.1.1") as fabric,
        fabric.subscribe("a/+") as messages,
    ):
        await fabric.publish("a/b", b"61")
        assert (await messages.receive()).address == "a/b"


async def test_a_wrong_password_at_penstock(mqtt_penstock: Penstock) -> None:
    with pytest.raises(AuthenticationFailed, match="guest"):
        await connect(mqtt_penstock.mqtt_url.replace("guest:guest", "guest:wrong")).open()


async def test_no_broker_says_what_to_try() -> None:
    port = free_port()
    for scheme in ("mqtt", "ws"):
        with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}: connection refused"):
            await connect(f"{scheme}://127.0.0.1:{port}").open()


@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
@pytest.mark.parametrize(
    "words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\x00\x00\x09\x01"]
)
async def test_what_is_no_broker_is_said_to_be_none(scheme: str, words: bytes) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}"):
            await connect(f"{scheme}://127.0.0.1:{port}").open()


@pytest.mark.parametrize(
    ("reason", "error", "words"),
    [
        ("84", Unsupported, r"add \?version=3\.1\.1"),
        ("85", AccessRefused, r"set another with \?client_id="),
        ("87", AuthenticationFailed, "authentication failed"),
        ("89", BrokerUnreachable, "server busy"),
        ("82", ProtocolError, "refused the connection: protocol error"),
    ],
)
async def test_why_one_is_refused_is_said(
    reason: str, error: type[PenstockError], words: str
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(bytes.fromhex(f"200300{reason}00"))
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(error, match=words):
            await connect(f"mqtt://127.0.0.1:{port}").open()


async def test_patience_waits_for_a_broker_to_appear(
    new_mosquitto: NewMosquitto,
) -> None:
    server = new_mosquitto()
    server.stop()
    connecting = asyncio.create_task(connect(server.url, retry_seconds=60).open())
    await asyncio.to_thread(server.start)
    fabric = await connecting
    async with fabric.subscribe("a") as messages:
        await fabric.publish("a", b"at last")
        assert (await messages.receive()).body == b"at last"
    await fabric.close()
