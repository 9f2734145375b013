"""The broker as a whole: started, ended and started again, alone or beside another."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import ssl
import stat
import sys
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractConnection
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.broker.permissions import Permission
from penstock.core.config import BrokerSettings, TlsSettings
from penstock.core.errors import ConfigurationError, NotFound, PreconditionFailed, ResourceLocked
from penstock.server import Broker
from penstock.server.management import http as http_connection
from tests.peers import Process, free_port

AMQP = "amqp://127.0.0.1:0"


def settings(*listen: str, **more: Any) -> BrokerSettings:
    return BrokerSettings(listen=list(listen or (AMQP,)), **more)


async def connect(broker: Broker, vhost: str = "/", **options: Any) -> AbstractConnection:
    url = broker.addresses[0].replace("://", "://guest:guest@")
    where = f"{url}/{vhost.replace('/', '%2F')}"
    connection: AbstractConnection = await aio_pika.connect(where, **options)
    return connection


async def test_a_port_of_zero_is_a_free_one_and_the_address_says_which(tmp_path: Path) -> None:
    async with Broker(settings(AMQP, AMQP), data=tmp_path) as broker:
        assert len(set(broker.addresses)) == 2
        assert not [address for address in broker.addresses if address.endswith(":0")]


async def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    async with Broker(settings(), data=tmp_path) as first:
        with pytest.raises(ResourceLocked, match=rf"in use by process {os.getpid()}: .*--data"):
            await Broker(settings(), data=tmp_path).start()
        connection = await connect(first)
        channel = await connection.channel()
        await channel.declare_queue("q", durable=True)
        await connection.close()
    async with Broker(settings(), data=tmp_path) as next_one:
        assert "q" in next_one.vhosts["/"].queues


async def test_a_broker_that_cannot_start_leaves_its_data_to_others(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text("nonsense")
    with pytest.raises(ConfigurationError):
        await Broker(settings(), data=tmp_path).start()
    (tmp_path / "users.json").unlink()
    async with Broker(settings(), data=tmp_path):
        pass


async def test_nobody_else_may_read_the_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    async with Broker(settings("mqtt://127.0.0.1:0", AMQP), data=data) as broker:
        url = broker.addresses[1].replace("://", "://guest:guest@")
        connection = await aio_pika.connect(url)
        channel = await connection.channel()
        await channel.declare_queue("q", durable=True)
        stored = aio_pika.Message(b"x", delivery_mode=2)
        large = aio_pika.Message(bytes(1 << 20), delivery_mode=2)
        for message in (stored, large):
            await channel.default_exchange.publish(message, "q")
        await connection.close()
        found = [data, *data.rglob("*")]
        assert len([path for path in found if path.suffix in (".seg", ".body")]) >= 2
    found += data.rglob("*")
    readable = [str(path) for path in found if path.exists() and path.stat().st_mode & 0o066]
    open_folders = [path for path in readable if Path(path).is_dir()]
    assert [path for path in readable if path not in open_folders] == []
    assert stat.S_IMODE(data.stat().st_mode) & 0o066 == 0
    assert stat.S_IMODE((data / "log").stat().st_mode) == 0o700


async def test_two_brokers_live_in_one_process(tmp_path: Path) -> None:
    async with (
        Broker(settings(), data=tmp_path / "one") as one,
        Broker(settings(), data=tmp_path / "other") as other,
    ):
        here, there = await connect(one), await connect(other)
        channel = await here.channel()
        await channel.declare_queue("q")
        await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")
        assert one.vhosts["/"].queues["q"].message_count == 1
        assert not other.vhosts["/"].queues
        with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
            await (await there.channel()).declare_queue("q", passive=True)
        await here.close()
        await there.close()


async def test_a_second_start_finds_what_was_durable(tmp_path: Path) -> None:
    async with Broker(settings(), data=tmp_path) as broker:
        connection = await connect(broker)
        channel = await connection.channel()
        queue = await channel.declare_queue("q", durable=True)
        exchange = await channel.declare_exchange("x", "topic", durable=True)
        await queue.bind(exchange, "a.#")
        persistent = aio_pika.Message(b"kept", delivery_mode=2)
        await exchange.publish(persistent, "a.b")
        await connection.close()
        broker.add_vhost("second").declare_queue("q2", durable=True)
    async with Broker(settings(), data=tmp_path) as broker:
        connection = await connect(broker)
        channel = await connection.channel()
        got = await (await channel.get_queue("q")).get()
        assert (got.body, got.exchange, got.redelivered) == (b"kept", "x", True)
        await connection.close()
        assert list(broker.vhosts["second"].queues) == ["q2"]
        assert broker.damage == []


async def test_closing_tells_the_clients_and_waits_for_them(tmp_path: Path) -> None:
    broker = Broker(settings(), data=tmp_path)
    await broker.start()
    connection = await connect(broker)
    channel = await connection.channel()
    queue = await channel.declare_queue("q", durable=True)
    await channel.default_exchange.publish(aio_pika.Message(b"x", delivery_mode=2), "q")
    await queue.get()  # and never answered
    told: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    connection.close_callbacks.add(lambda _, reason: told.set_result(reason))
    await broker.close()
    assert "CONNECTION_FORCED" in str(await told)
    assert not broker.clients
    with pytest.raises(OSError):
        await connect(broker)
    async with Broker(settings(), data=tmp_path) as again:
        assert again.vhosts["/"].queues["q"].message_count == 1


async def test_a_client_that_does_not_listen_does_not_hold_it_up(tmp_path: Path) -> None:
    async with Broker(settings(drain_seconds=0.05), data=tmp_path) as broker:
        port = int(broker.addresses[0].rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"AMQP\x00\x00\x09\x01")
        await reader.readexactly(8)  # the broker has begun, and hears nothing more from here
        assert len(broker.clients) == 1
    assert not broker.clients
    writer.close()


async def test_closing_gives_all_memory_back(tmp_path: Path) -> None:
    async with Broker(settings(), data=tmp_path) as broker:
        connection = await connect(broker)
        channel = await connection.channel()
        await channel.declare_queue("q")
        for size in (10, 300_000, 1_000_000):
            await channel.default_exchange.publish(aio_pika.Message(b"x" * size), "q")
        assert broker.kernel.pool.used > 0
        await connection.close()
    gc.collect()
    assert broker.kernel.pool.used == 0


async def test_a_scheme_nobody_speaks_is_named_with_those_somebody_does(tmp_path: Path) -> None:
    with pytest.raises((ConfigurationError, ValueError), match="amqp"):
        await Broker(settings("gopher://127.0.0.1:70"), data=tmp_path).start()


async def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    async with Broker(settings(), data=tmp_path / "one") as broker:
        with pytest.raises(ConfigurationError, match="cannot listen on"):
            await Broker(settings(broker.addresses[0]), data=tmp_path / "other").start()


async def test_virtual_hosts_come_and_go_with_their_clients(tmp_path: Path) -> None:
    async with Broker(settings(), data=tmp_path) as broker:
        vhost = broker.add_vhost("shop")
        assert broker.add_vhost("shop") is vhost
        vhost.declare_queue("q", durable=True)
        broker.users.set_permissions("guest", "shop", Permission(".*", ".*", ".*"))
        connection = await connect(broker, "shop")
        closed = asyncio.Event()
        connection.close_callbacks.add(lambda *_: closed.set())
        broker.delete_vhost("shop")
        await closed.wait()
        with pytest.raises(NotFound):
            broker.delete_vhost("shop")
        with pytest.raises(PreconditionFailed):
            broker.delete_vhost("/")
    async with Broker(settings(), data=tmp_path) as broker:
        assert list(broker.vhosts) == ["/"]


# TLS.


def certificate(folder: Path) -> TlsSettings:
    """A key and a certificate that signs itself, for the loopback."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "penstock test")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return TlsSettings(certificate=folder / "cert.pem", key=folder / "key.pem")


async def test_a_lost_amqp_connection_can_be_described(tmp_path: Path) -> None:
    async with Broker(settings(), data=tmp_path) as broker:
        connection = await connect(broker, heartbeat=7)
        await connection.channel()
        [client] = broker.clients
        assert client.describe()["state"] == "running"
        await connection.close()
        await broker._wait_for_clients(30.0)
        described = client.describe()
        assert (described["state"], described["timeout"]) == ("closing", 7)
        assert client.describe_channels() == client.describe_consumers() == []


async def test_amqps_is_amqp_over_tls(tmp_path: Path) -> None:
    tls = certificate(tmp_path / "tls")
    context = ssl.create_default_context(cafile=str(tls.certificate))
    async with Broker(settings("amqps://127.0.0.1:0", tls=tls), data=tmp_path / "data") as broker:
        connection = await connect(broker, ssl_context=context)
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        await channel.default_exchange.publish(aio_pika.Message(b"secret" * 100_000), "q")
        assert (await queue.get()).body == b"secret" * 100_000
        assert [client.describe()["ssl"] for client in broker.clients] == [True]
        await connection.close()


async def test_a_client_that_does_not_trust_the_certificate_stays_out(tmp_path: Path) -> None:
    tls = certificate(tmp_path / "tls")
    async with Broker(settings("amqps://127.0.0.1:0", tls=tls), data=tmp_path / "data") as broker:
        with pytest.raises((aio_pika.exceptions.AMQPConnectionError, ssl.SSLError)):
            await connect(broker, ssl_context=ssl.create_default_context())


async def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    (tmp_path / "cert.pem").write_text("nonsense")
    with pytest.raises(ConfigurationError, match=r"cert\.pem"):
        await Broker(settings(f"amqps://127.0.0.1:{free_port()}", tls=tls), data=tmp_path).start()


def test_a_tls_listener_needs_a_certificate() -> None:
    with pytest.raises(ValueError, match=r"tls\.certificate"):
        settings("amqps://127.0.0.1:0")


# Connections nobody has logged in on.

#: Few of them, and time alone sends nobody away.
PATIENT: dict[str, Any] = {"max_unauthenticated": 5, "handshake_timeout": 600.0}


@pytest.mark.parametrize("scheme", ["amqp", "mqtt", "ws", "padres", "http"])
async def test_those_who_have_not_logged_in_make_room_for_those_who_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setattr(http_connection, "FIRST_REQUEST_SECONDS", PATIENT["handshake_timeout"])
    listen = (AMQP, f"{scheme}://127.0.0.1:0")
    async with Broker(settings(*listen, **PATIENT), data=tmp_path) as broker:
        known = await connect(broker)
        port = int(broker.addresses[1].rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for reader, _ in idle[:15]:
            assert await asyncio.wait_for(reader.read(), 60) == b""

        later = await connect(broker)

        await (await known.channel()).declare_queue("q")
        for _, writer in idle:
            writer.close()
        await known.close()
        await later.close()


async def test_a_tls_handshake_that_does_not_begin_makes_room_too(
    tmp_path: Path,
) -> None:
    tls = certificate(tmp_path / "tls")
    secure = settings(AMQP, "amqps://127.0.0.1:0", tls=tls, **PATIENT)
    async with Broker(secure, data=tmp_path / "data") as broker:
        port = int(broker.addresses[1].rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for reader, _ in idle[:15]:
            assert await asyncio.wait_for(reader.read(), 60) == b""
        for _, writer in idle:
            writer.close()


async def test_connections_leave_descriptors_to_the_log(tmp_path: Path) -> None:
    """With few descriptors and many idle connections, a message still reaches the disk."""
    port = free_port()
    limited = 'ulimit -Sn 128; ulimit -Hn 128; exec "$@"'
    command = [*("-m", "penstock", "broker", "--data", str(tmp_path / "data"))]
    command += ["--listen", f"amqp://127.0.0.1:{port}"]
    broker = Process(
        ["sh", "-c", limited, "sh", sys.executable, *command],
        tmp_path / "broker.log",
        dict(os.environ),
    )
    idle: list[asyncio.StreamWriter] = []
    try:
        broker.wait_for_line("penstock broker ready")
        publisher = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")
        for _ in range(300):
            idle.append((await asyncio.open_connection("127.0.0.1", port))[1])
        channel = await publisher.channel()
        for number in range(8):
            await channel.declare_queue(f"q{number}", durable=True)
            message = aio_pika.Message(b"x", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, f"q{number}", timeout=60)
        await publisher.close()
    finally:
        for writer in idle:
            writer.close()
        broker.end(signal.SIGTERM)
