"""What only AMQP 0-9-1 has: exchanges of one's own, a broker that asks senders to wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pamqp import commands
from pamqp.frame import marshal

from penstock.broker.permissions import Permission
from penstock.client import BrokerUnreachable, Fabric, UnknownScheme, connect
from penstock.core.config import BrokerSettings
from penstock.core.errors import AuthenticationFailed, NotAllowed, PenstockError
from penstock.server import Broker as Server
from penstock.wire.amqp091 import methods
from tests.client.line import Line
from tests.peers import Broker, free_port

SECONDS = 60


async def test_exchange_and_queue_declared_otherwise_are_taken_as_they_are(
    fabric: Fabric, name: str
) -> None:
    async with await fabric.amqp.channel() as channel:
        await channel.declare_exchange(name, "topic", durable=False)
        arguments = {"x-expires": 60_000}
        await channel.declare_queue(name, durable=True, arguments=arguments)
    async with fabric.subscribe(name, name=name, exchange=name) as messages:
        await fabric.publish(name, b"as it is", exchange=name)
        assert (await messages.receive()).body == b"as it is"


async def test_an_exchange_of_ones_own(fabric: Fabric, name: str) -> None:
    async with fabric.subscribe("#", exchange=name) as figures:
        await fabric.publish("hive.1", {"bees": 3}, exchange=name)
        assert (await figures.receive()).json() == {"bees": 3}


async def test_senders_wait_while_the_broker_asks_them_to(line: Line, name: str) -> None:
    async with connect(line.url) as fabric:
        work = fabric.push(name)
        await work.send(b"flows")
        await block(line, fabric)
        sending = asyncio.create_task(work.send(b"waits"))
        done, _ = await asyncio.wait((sending,), timeout=0.1)
        assert not done
        line.tell(marshal(commands.Connection.Unblocked(), 0))
        await sending
        assert not fabric.blocked


async def test_senders_that_wait_survive_a_break(line: Line, name: str) -> None:
    async with connect(line.url) as fabric:
        work = fabric.push(name)
        await work.send(b"flows")
        await block(line, fabric)
        sending = asyncio.create_task(work.send(b"waits"))
        line.cut()
        await sending
        async with fabric.pull(name) as items:
            assert [(await items.receive()).body for _ in range(2)] == [b"flows", b"waits"]


async def test_a_connection_closed_because_of_a_message_fails_what_is_unconfirmed(
    line: Line, name: str
) -> None:
    async with connect(line.url) as fabric, asyncio.timeout(SECONDS):
        work = fabric.push(name)
        await work.send(b"first")
        line.hold()
        sending = asyncio.create_task(work.send(b"x" * 1000))
        await line.wait_for_bytes(1000)
        close = methods.encode_method_frame(
            0, methods.CONNECTION_CLOSE, reply_code=530, reply_text="NOT_ALLOWED - no more"
        )
        line.tell(close)
        with pytest.raises(NotAllowed, match="no more"):
            await sending
        line.cut()
        await work.send(b"last")  # on the next connection


async def test_a_reconnect_that_is_refused_ends_the_fabric(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0"], drain_seconds=1)
    async with asyncio.timeout(SECONDS), Server(settings, data=tmp_path) as server:
        server.users.add("ada", "secret")
        server.users.set_permissions("ada", "/", Permission(".*", ".*", ".*"))
        async with Line(int(server.addresses[0].rpartition(":")[2])) as line:
            url = line.url.replace("guest:guest", "ada:secret")
            async with connect(url) as fabric, fabric.pull("work") as items:
                await fabric.push("work").send(b"")
                await (await items.receive()).ack()
                server.users.set_password("ada", "other")
                line.cut()
                with pytest.raises(AuthenticationFailed):
                    await items.receive()
                with pytest.raises(AuthenticationFailed):
                    await fabric.push("work").send(b"")


async def test_the_url_may_name_the_connection() -> None:
    login: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = {"version_minor": 9, "mechanisms": "PLAIN", "locales": "en_US"}
        await reader.readexactly(8)
        writer.write(methods.encode_method_frame(0, methods.CONNECTION_START, **start))
        login.set_result(await reader.read(4096))
        writer.close()

    async with asyncio.timeout(SECONDS), await asyncio.start_server(greet, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PenstockError):
            await connect(f"amqp://127.0.0.1:{port}?name=loader").open()
        assert b"loader" in await login


@pytest.mark.slow
async def test_a_restarted_broker_still_has_what_it_confirmed(broker: Broker, name: str) -> None:
    async with connect(broker.url) as fabric, fabric.pull(name) as items:
        await fabric.push(name).send(b"kept")
        await items.receive()
        await asyncio.to_thread(broker.stop)
        sending = asyncio.create_task(fabric.push(name).send(b"waited"))
        await asyncio.to_thread(broker.start)
        await sending
        assert [(await items.receive()).body for _ in range(2)] == [b"kept", b"waited"]


async def test_the_former_name_of_retry_seconds_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="retry_seconds"):
        fabric = connect(f"amqp://127.0.0.1:{free_port()}", patience=0.0)
    with pytest.raises(BrokerUnreachable):
        await fabric.open()


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(UnknownScheme, match="amqp://, amqps://"):
        connect("gopher://localhost")


async def block(line: Line, fabric: Fabric) -> None:
    line.tell(marshal(commands.Connection.Blocked("low on disk"), 0))
    while not fabric.blocked:  # noqa: ASYNC110 (whoever is not blocked has nothing to wait for)
        await asyncio.sleep(0)
