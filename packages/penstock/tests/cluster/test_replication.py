"""A follower has the leader's files at any time, and can lead with them."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aio_pika
import paho.mqtt.client as paho
import pytest
from aio_pika import DeliveryMode, Message
from aio_pika.exceptions import DeliveryError
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from typer.testing import CliRunner

from penstock.broker.user import User
from penstock.cli.cluster import app
from penstock.client import connect
from penstock.client.management import call_management_api
from penstock.cluster.member import Member
from penstock.core.config import BrokerSettings
from penstock.core.errors import ConfigurationError, PenstockError, ResourceLocked
from penstock.server import Broker
from penstock.server.cluster_member import ClusterMember
from tests.peers import free_port
from tests.server.test_broker import certificate

from .members import AMQP, HTTP, new_member, pair, same_files, until, url

QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}
STREAM: dict[str, Any] = {"x-queue-type": "stream"}


def message(body: bytes) -> Message:
    return Message(body, delivery_mode=DeliveryMode.PERSISTENT)


@asynccontextmanager
async def publisher_of_one(member: ClusterMember) -> AsyncIterator[None]:
    """A client of this member, which has published to the queue `q`."""
    async with await aio_pika.connect(url(member)) as connection:
        channel = await connection.channel()
        await channel.declare_queue("q", durable=True, arguments=QUORUM)
        await channel.default_exchange.publish(message(b"x"), "q")
        yield


async def bodies(member: ClusterMember, queue: str) -> list[bytes]:
    found = []
    async with await aio_pika.connect(url(member)) as connection:
        channel = await connection.channel()
        declared = await channel.get_queue(queue)
        while (got := await declared.get(fail=False, no_ack=True)) is not None:
            found.append(got.body)
    return found


async def test_everything_is_copied_and_a_promoted_follower_has_it(tmp_path: Path) -> None:
    async with pair(tmp_path) as (leader, follower):
        async with await aio_pika.connect(url(leader)) as connection:
            channel = await connection.channel()
            quorum = await channel.declare_queue("q", durable=True, arguments=QUORUM)
            await channel.declare_queue("s", durable=True, arguments=STREAM)
            gone = await channel.declare_queue("gone", durable=True)
            for number in range(20):
                await channel.default_exchange.publish(message(b"%d" % number), "q")
                await channel.default_exchange.publish(message(b"%d" % number), "s")
                await channel.default_exchange.publish(message(b"%d" % number), "gone")
            fanout = await channel.declare_exchange("f", aio_pika.ExchangeType.FANOUT, durable=True)
            await quorum.bind(fanout)
            await gone.bind(fanout)
            large = bytes(range(256)) * 4096  # a megabyte, in a file that both queues link
            await fanout.publish(message(large), "")
            for _ in range(5):
                got = await quorum.get()
                await got.ack()
            await gone.delete(if_empty=False, if_unused=False)
        broker = leader.broker
        assert broker is not None
        broker.users.add("ann", "secret")
        broker.replicate_users()
        await broker.replicated()
        await same_files(leader, follower)
        await leader.close()
        await until(lambda: not follower.follows())
        address = follower.addresses[1].replace("://", "://guest:guest@")
        promote = ["promote", "--url", address]
        result = await asyncio.to_thread(CliRunner().invoke, app, promote)
        assert result.output == f"{follower.member.node} will lead\n"
        await until(lambda: follower.leads)
        assert follower.member.epoch == leader.member.epoch + 1
        assert follower.broker is not None
        assert isinstance(follower.broker.users.get("ann"), User)
        assert follower.broker.vhosts["/"].queues["s"].message_count == 20
        found = await bodies(follower, "q")
        assert found == [*(b"%d" % number for number in range(5, 20)), large]


async def test_a_follower_forwards_clients_to_the_leader(tmp_path: Path) -> None:
    async with pair(tmp_path) as (leader, follower):
        async with publisher_of_one(follower):
            pass
        assert await bodies(leader, "q") == [b"x"]


async def connection_from(member: ClusterMember, client: str, header: bytes = b"") -> bytes:
    """The answer of its management API to a client with this address."""
    host, _, port = member.addresses[1].rpartition("//")[2].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(client, 0))
    login = "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q="
    writer.write(header + f"GET /api/whoami HTTP/1.1\r\nHost: {host}\r\n{login}\r\n\r\n".encode())
    answer = await reader.read(4096)
    writer.close()
    return answer


async def test_the_leader_learns_the_address_of_forwarded_clients(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"proxy_protocol_from": ["127.0.0.1"]}
    async with pair(tmp_path, settings=settings) as (leader, follower):
        assert leader.broker is not None
        amqp = follower.addresses[0]
        host, _, port = amqp.rpartition("//")[2].partition(":")
        _, writer = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.9", 0))
        writer.write(b"AMQP\x00\x00\x09\x01")
        broker = leader.broker
        await until(lambda: "127.0.0.9" in [one.peer[0] for one in cast(Any, broker.clients)])
        writer.close()
        # `guest` may log in from this machine only, and a header tells where a client is.
        assert b"200 OK" in await connection_from(leader, "127.0.0.1")
        spoofed = b"PROXY TCP4 203.0.113.7 127.0.0.1 1 2\r\n"
        assert b" 401 " in await connection_from(leader, "127.0.0.1", spoofed)
        # Nobody else may say so.
        assert b" 400 " in await connection_from(leader, "127.0.0.9", spoofed)


async def test_a_proxy_header_comes_before_tls(tmp_path: Path) -> None:
    def whoami(port: int, header: bytes) -> bytes:
        context = ssl.create_default_context(cafile=str(tmp_path / "tls" / "cert.pem"))
        with socket.create_connection(("127.0.0.1", port), 10) as plain:
            plain.sendall(header)
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted:
                login = b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n"
                encrypted.sendall(b"GET /api/whoami HTTP/1.1\r\nHost: 127.0.0.1\r\n" + login)
                return encrypted.recv(4096)

    settings = BrokerSettings(
        listen=["https://127.0.0.1:0"],
        tls=certificate(tmp_path / "tls"),
        proxy_protocol_from=["127.0.0.0/30"],
    )
    async with Broker(settings, data=tmp_path / "data") as broker:
        port = int(broker.addresses[0].rpartition(":")[2])
        assert b"200 OK" in await asyncio.to_thread(whoami, port, b"")
        header = b"PROXY TCP4 203.0.113.7 127.0.0.1 1 2\r\n"
        assert b" 401 " in await asyncio.to_thread(whoami, port, header)


async def test_mqtt_5_clients_are_sent_to_the_leader_if_wanted(tmp_path: Path) -> None:
    connect5 = bytes.fromhex("10 10 0004 4d515454 05 02 003c 00 0003 616263")
    connect3 = bytes.fromhex("10 0f 0004 4d515454 04 02 003c 0003 616263")

    async def answer(member: ClusterMember, packet: bytes) -> bytes:
        host, _, port = member.addresses[2].rpartition("//")[2].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(packet)
        received = await reader.read(256)
        writer.close()
        return received

    listen = [AMQP, "http://127.0.0.1:0", "mqtt://127.0.0.1:0"]
    for name, code in (("server-moved", 0x9D), ("use-another-server", 0x9C)):
        more: dict[str, Any] = {"settings": {"listen": listen}, "mqtt_redirection": name}
        async with pair(tmp_path / name, **more) as (leader, follower):
            address = leader.addresses[2].removeprefix("mqtt://").encode()
            found = await answer(follower, connect5)
            assert found[0] == 0x20
            assert found[3] == code
            assert found.endswith(b"\x1c\x00" + bytes((len(address),)) + address)
            assert await answer(follower, connect3) == b"\x20\x02\x00\x00"  # forwarded
            assert (await answer(leader, connect5))[3] == 0


async def test_a_break_is_mended_by_comparison_and_a_former_leader_drops_its_tail(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as (leader, follower):
        async with await aio_pika.connect(url(leader)) as connection:
            channel = await connection.channel()
            await channel.declare_queue("q", durable=True, arguments=QUORUM)
            await channel.default_exchange.publish(message(b"both"), "q")
        await follower.close()
        log = next((follower.data / "log" / "queues").glob("*/*/*.seg"))
        log.write_bytes(log.read_bytes() + b"a tail that nobody else has")
        async with await aio_pika.connect(url(leader)) as connection:
            channel = await connection.channel()
            await channel.default_exchange.publish(message(b"meanwhile"), "q")
        async with new_member(follower.data, leader.address) as back:
            await until(lambda: back.member.node in leader.replication.in_sync.members)
            assert back.member.node == follower.member.node
            await same_files(leader, back)


async def test_confirms_wait_for_the_follower(tmp_path: Path) -> None:
    async with (
        pair(tmp_path) as (leader, _),
        await aio_pika.connect(url(leader)) as connection,
    ):
        channel = await connection.channel()
        await channel.declare_queue("q", durable=True, arguments=QUORUM)
        await channel.declare_queue("local", durable=True)
        replication = leader.replication
        acknowledged = replication.in_sync.acknowledged
        replication.in_sync.acknowledged = lambda node, sequence: None  # type: ignore[method-assign]
        await channel.default_exchange.publish(message(b"x"), "local")
        publishing = asyncio.ensure_future(channel.default_exchange.publish(message(b"x"), "q"))
        declaring = asyncio.ensure_future(channel.declare_queue("late", durable=True))
        await until(lambda: min(link.acked for link in replication.links.values()) > 0)
        await asyncio.sleep(0.1)
        assert not publishing.done()
        assert not declaring.done()
        replication.in_sync.acknowledged = acknowledged  # type: ignore[method-assign]
        await asyncio.wait_for(asyncio.gather(publishing, declaring), 10)


async def test_an_exchange_of_qos_2_ends_when_the_follower_knows(tmp_path: Path) -> None:
    """A client may use a packet id again after PUBCOMP: to a member that knows the former use, its
    next message would be a duplicate."""
    settings: dict[str, Any] = {"listen": [AMQP, "http://127.0.0.1:0", "mqtt://127.0.0.1:0"]}
    async with pair(tmp_path, settings=settings, follower_timeout=5.0) as (leader, _):
        host, _, port = leader.addresses[2].rpartition("//")[2].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        async def answer() -> bytes:
            return await asyncio.wait_for(reader.readexactly(4), 10)

        writer.write(bytes.fromhex("10 0f 0004 4d515454 04 00 003c 0003 616263"))  # keeps a session
        assert await answer() == bytes.fromhex("20 02 00 00")
        writer.write(bytes.fromhex("82 06 0009 0001 74 02"))  # subscribes to t
        assert await asyncio.wait_for(reader.readexactly(5), 10) == bytes.fromhex("90 03 0009 02")
        writer.write(bytes.fromhex("34 06 0001 74 0001 78"))  # PUBLISH
        sent = await asyncio.wait_for(reader.readexactly(12), 10)  # PUBREC, and the PUBLISH for it
        packet_id = sent[sent.index(b"\x00\x01t") + 3 :][:2]
        in_sync = leader.replication.in_sync
        acknowledged = in_sync.acknowledged
        in_sync.acknowledged = lambda node, sequence: None  # type: ignore[method-assign]
        writer.write(bytes.fromhex("62 02 0001"))  # PUBREL
        answering = asyncio.ensure_future(answer())
        await asyncio.sleep(0.2)
        assert not answering.done()
        in_sync.acknowledged = acknowledged  # type: ignore[method-assign]
        assert await answering == bytes.fromhex("70 02 0001")  # PUBCOMP
        in_sync.acknowledged = lambda node, sequence: None  # type: ignore[method-assign]
        writer.write(b"\x50\x02" + packet_id)  # PUBREC
        await asyncio.sleep(0.2)
        writer.close()
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(bytes.fromhex("10 0f 0004 4d515454 04 00 003c 0003 616263"))
        assert await answer() == bytes.fromhex("20 02 01 00")  # the session continues
        answering = asyncio.ensure_future(answer())
        await asyncio.sleep(0.2)
        assert not answering.done()
        in_sync.acknowledged = acknowledged  # type: ignore[method-assign]
        assert await answering == b"\x62\x02" + packet_id  # PUBREL
        writer.close()


async def test_a_queue_or_a_policy_chooses_what_confirms_wait_for(tmp_path: Path) -> None:
    policy = {"pattern": "^by-policy$", "definition": {"confirm-policy": "in-sync"}}
    async with (
        pair(tmp_path, follower_timeout=30.0) as (leader, _),
        await aio_pika.connect(url(leader)) as connection,
    ):
        http = leader.addresses[1].replace("://", "://guest:guest@")
        await asyncio.to_thread(
            call_management_api, http, "/api/policies/%2F/p", policy, method="PUT"
        )
        channel = await connection.channel()
        kinds: dict[str, dict[str, Any]] = {
            "waits": {"x-confirm-policy": "in-sync"},
            "by-policy": {},
            "does-not": QUORUM | {"x-confirm-policy": "local"},
        }
        for queue, arguments in kinds.items():
            await channel.declare_queue(queue, durable=True, arguments=arguments)
        in_sync = leader.replication.in_sync
        acknowledged = in_sync.acknowledged
        in_sync.acknowledged = lambda node, sequence: None  # type: ignore[method-assign]
        other = await connection.channel()  # receipts of one channel are confirmed in order
        await other.default_exchange.publish(message(b"x"), "does-not")
        publishing = [
            asyncio.ensure_future(channel.default_exchange.publish(message(b"x"), queue))
            for queue in ("waits", "by-policy")
        ]
        await asyncio.sleep(0.1)
        assert not any(one.done() for one in publishing)
        in_sync.acknowledged = acknowledged  # type: ignore[method-assign]
        await asyncio.wait_for(asyncio.gather(*publishing), 20)


async def test_too_few_members_refuse_publishes(tmp_path: Path) -> None:
    async with pair(tmp_path, min_in_sync=2, follower_timeout=0.5) as (leader, follower):
        async with await aio_pika.connect(url(leader)) as connection:
            channel = await connection.channel()
            await channel.declare_queue("q", durable=True, arguments=QUORUM)
            await channel.declare_queue("local", durable=True)
            await channel.default_exchange.publish(message(b"x"), "q")
            await follower.close()
            await until(lambda: leader.replication.refuses)
            with pytest.raises(DeliveryError):
                await channel.default_exchange.publish(message(b"x"), "q")
            await channel.default_exchange.publish(message(b"x"), "local")


async def test_every_protocol_refuses_what_too_few_members_would_have(tmp_path: Path) -> None:
    listen = [AMQP, HTTP, "mqtt://127.0.0.1:0"]
    few: dict[str, Any] = {"min_in_sync": 2, "follower_timeout": 0.5, "confirm_policy": "in-sync"}
    async with pair(tmp_path, settings={"listen": listen}, **few) as (leader, follower):
        host, port = leader.addresses[2].rpartition("//")[2].split(":")
        reasons: list[int] = []
        client = paho.Client(CallbackAPIVersion.VERSION2, "session", protocol=paho.MQTTv5)
        client.username_pw_set("guest", "guest")
        client.on_publish = lambda _client, _data, _id, reason, _: reasons.append(reason.value)
        loop, subscribed = asyncio.get_running_loop(), asyncio.Event()
        client.on_subscribe = lambda *_: loop.call_soon_threadsafe(subscribed.set)  # type: ignore[assignment]
        expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        expiry.SessionExpiryInterval = 60
        client.connect(host, int(port), clean_start=False, properties=expiry)
        client.loop_start()
        client.subscribe("t", 1)
        await asyncio.wait_for(subscribed.wait(), 20)
        async with connect(url(leader).replace("amqp", "amqp+1.0", 1)) as fabric:
            sender = fabric.push("q")
            await sender.send(b"x")
            client.publish("t", b"x", 1)
            await until(lambda: reasons == [0])
            await follower.close()
            await until(lambda: leader.replication.refuses)
            with pytest.raises(PenstockError):
                await sender.send(b"x")
            client.publish("t", b"x", 1)
            await until(lambda: len(reasons) == 2)
            assert reasons == [0, 0x97]  # quota exceeded
        client.disconnect()
        client.loop_stop()


async def test_a_follower_that_lags_starts_again(tmp_path: Path) -> None:
    async with pair(tmp_path, max_lag=1 << 20) as (leader, follower):
        async with await aio_pika.connect(url(leader)) as connection:
            channel = await connection.channel(publisher_confirms=False)
            await channel.declare_queue("q", durable=True)
            for _ in range(60):
                await channel.default_exchange.publish(message(bytes(100_000)), "q")
        await until(lambda: follower.member.node in leader.replication.in_sync.members)
        await until(lambda: leader.replication.links)
        await same_files(leader, follower)


async def test_changes_of_an_older_epoch_are_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as (leader, follower):
        link = follower._link
        assert link is not None
        follower.member.saw(leader.replication.epoch + 1, "another")
        old = leader.replication.links[follower.member.node].acked
        leader.replication._ship()
        await until(lambda: follower._link is not link or follower._following.done())  # type: ignore[union-attr]
        assert leader.replication.in_sync._acked[follower.member.node] <= old + 1
        # The leader learns that it is deposed, and stops.
        await until(lambda: leader._failure is not None)
        assert not leader.leads
        with pytest.raises(ConfigurationError, match="another member was promoted"):
            await leader.__aexit__()
        leader._failure = None


async def test_the_status_is_shown_and_double_promotion_is_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as (leader, follower):

        def promote(member: ClusterMember) -> None:
            address = member.addresses[1].replace("://", "://guest:guest@")
            call_management_api(address, "/api/cluster/promote", {"force": False})

        def status(member: ClusterMember) -> str:
            address = member.addresses[1].replace("://", "://guest:guest@")
            return CliRunner().invoke(app, ["status", "--url", address]).output

        for member in (leader, follower):
            shown = await asyncio.to_thread(status, member)
            assert f"leader  {leader.member.node}" in shown
            assert follower.member.node in shown
        assert leader.broker is not None
        metrics = leader.broker.kernel.metrics.exposition().decode()
        assert f"penstock_cluster_epoch {leader.replication.epoch}.0\n" in metrics
        assert "penstock_cluster_in_sync_members 2.0\n" in metrics
        for name in ("bytes", "seconds"):
            assert f"\npenstock_cluster_lag_{name} " in metrics
        with pytest.raises(PenstockError, match="stop it first"):
            await asyncio.to_thread(promote, follower)
        with pytest.raises(PenstockError, match="leads already"):
            await asyncio.to_thread(promote, leader)


async def test_a_member_that_will_not_return_leaves(tmp_path: Path) -> None:
    async with pair(tmp_path, follower_timeout=600.0) as (leader, follower):

        async def leave(node: str) -> str:
            address = leader.addresses[1].replace("://", "://guest:guest@")
            result = await asyncio.to_thread(
                CliRunner().invoke, app, ["leave", node, "--url", address]
            )
            return result.output or str(result.exception)

        name = follower.member.node
        assert "promote another member first" in await leave(leader.member.node)
        assert "no member 'nobody'" in await leave("nobody")
        assert "is connected: stop it first" in await leave(name)
        await follower.close()
        await until(lambda: name not in leader.replication.links)
        assert name in leader.replication.in_sync.members
        assert await leave(name) == f"{name} left\n"
        await until(lambda: leader.replication.in_sync.members == {leader.member.node})


async def test_a_second_leader_of_an_epoch_is_refused(tmp_path: Path) -> None:
    """By hand nobody keeps two followers from being promoted, one beside the other."""
    async with new_member(tmp_path / "leader") as leader:
        await until(lambda: leader.leads)
        first = new_member(tmp_path / "first", leader.address)
        second = new_member(tmp_path / "second", leader.address)
        async with first, second:
            await until(lambda: len(leader.replication.in_sync.members) == 3)
            await leader.close()
            for one in (first, second):
                one.promote()
                await until(lambda one=one: one.leads)  # type: ignore[misc]
            assert first.replication.epoch == second.replication.epoch
            third = tmp_path / "third"
            async with new_member(third, first.address) as follower:
                await until(lambda: follower.is_in_sync)
            async with new_member(third, second.address) as follower:
                await until(lambda: "both lead in epoch 2" in follower._last_error)
                assert not follower.is_in_sync


async def test_a_wrong_secret_is_refused(tmp_path: Path) -> None:
    async with new_member(tmp_path / "leader") as leader:
        await until(lambda: leader.leads)
        async with new_member(tmp_path / "other", leader.address, secret="wrong") as other:
            await until(lambda: "secret" in other._last_error)
            assert not (other.data / "log").exists()


async def test_data_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async with new_member(tmp_path / "leader") as leader:
        await until(lambda: leader.leads)
        async with new_member(tmp_path / "other") as other:
            await until(lambda: other.leads)
        member = Member.load(other.data)
        member.set_leader(False)
        other = new_member(other.data, leader.address)
        await other.start()
        await until(lambda: other._failure is not None)
        with pytest.raises(ConfigurationError, match=r"data of cluster .* empty directory"):
            await other.__aexit__()


async def test_data_of_a_broker_in_no_cluster_is_not_overwritten(tmp_path: Path) -> None:
    async with Broker(BrokerSettings(listen=[AMQP]), data=tmp_path / "other"):
        pass
    async with new_member(tmp_path / "leader") as leader:
        await until(lambda: leader.leads)
        other = new_member(tmp_path / "other", leader.address)
        await other.start()
        await until(lambda: other._failure is not None)
        with pytest.raises(ConfigurationError, match="empty directory"):
            await other.__aexit__()
        assert (tmp_path / "other" / "log" / "topology.jsonl").exists()


async def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    async with new_member(tmp_path / "leader") as leader:
        await until(lambda: leader.leads)
        with pytest.raises(ResourceLocked, match="--data"):
            await new_member(tmp_path / "leader").start()


async def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"version": 99}')
    with pytest.raises(ConfigurationError, match="start the version"):
        await new_member(tmp_path).start()


async def test_without_a_secret_nothing_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="SECRET"):
        await new_member(tmp_path, secret="").start()


async def test_another_replication_protocol_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_member(tmp_path / "leader") as leader:
        await until(lambda: leader.leads)
        monkeypatch.setattr("penstock.cluster.follower.PROTOCOL_VERSION", 0)
        async with new_member(tmp_path / "other", leader.address) as other:
            await until(lambda: "install the same version of Penstock" in other._last_error)
            assert not (other.data / "log").exists()


async def test_a_copied_directory_of_the_leader_is_refused(tmp_path: Path) -> None:
    async with new_member(tmp_path / "leader") as leader:
        await until(lambda: leader.leads)
        shutil.copytree(tmp_path / "leader", tmp_path / "copy")
        Member.load(tmp_path / "copy").set_leader(False)
        async with new_member(tmp_path / "copy", leader.address) as copy:
            await until(lambda: "start with an empty one" in copy._last_error)


async def test_links_with_tls_check_the_certificate_if_an_authority_is_set(tmp_path: Path) -> None:
    own, other = certificate(tmp_path / "own"), certificate(tmp_path / "other")
    encrypted: dict[str, Any] = {
        "listen": f"penstocks://127.0.0.1:{free_port()}",
        "settings": {"tls": dataclasses.replace(own, authority=own.certificate)},
    }
    async with new_member(tmp_path / "leader", **encrypted) as leader:
        await until(lambda: leader.leads)
        assert leader.address.startswith("penstocks://")
        trusting = {"tls": dataclasses.replace(own, authority=own.certificate)}
        async with new_member(tmp_path / "a", leader.address, settings=trusting):
            await until(lambda: len(leader.replication.in_sync.members) == 2)
        strange = {"tls": dataclasses.replace(other, authority=other.certificate)}
        async with new_member(tmp_path / "b", leader.address, settings=strange) as refused:
            await until(lambda: "CERTIFICATE_VERIFY_FAILED" in refused._last_error)
        plain = leader.address.replace("penstocks", "penstock")
        async with new_member(tmp_path / "c", plain) as refused:
            await until(lambda: refused._last_error)
            assert refused.member.is_new
