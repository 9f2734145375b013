"""The PADRES terminal in a broker: who may do what, what management sees, how connections end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from penstock.broker.permissions import Permission, TopicPermission
from penstock.client.padres import PadresClient
from penstock.core.config import BrokerSettings, OverlaySettings, PadresSettings, TlsSettings
from penstock.core.errors import (
    AccessRefused,
    NotAllowed,
    PreconditionFailed,
    ResourceExhausted,
)
from penstock.protocols.padres.terminal import PadresTerminal
from penstock.protocols.padres.writer import PadresWriter
from penstock.protocols.socket_writer import WRITE_HIGH_WATER_BYTES
from penstock.server import Broker
from penstock.wire.padres.frames import (
    PROTOCOL_HEADER,
    CloseFrame,
    OpenFrame,
    PadresFrameReader,
    PeerRole,
    encode_frame,
)
from tests.client.test_tls import write_certificate
from tests.padres import SECONDS, Watcher

PADRES = "padres://127.0.0.1:0"


@asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[Broker]:
    settings = {"listen": [PADRES], **settings}
    async with Broker(BrokerSettings(**settings), data=folder) as broker:
        yield broker


def url(broker: Broker, user: str = "guest") -> str:
    return broker.addresses[0].replace("://", f"://{user}:{user}@")


def allow(broker: Broker, name: str, **permission: str) -> None:
    broker.users.add(name, name)
    broker.users.set_permissions(name, "/", Permission(**permission))


# Permissions.


async def test_publishing_needs_write_permission_and_subscribing_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        allow(broker, "reader", read="content")
        allow(broker, "writer", write="content")
        async with (
            PadresClient(url(broker, "reader")) as reader,
            PadresClient(url(broker, "writer")) as writer,
        ):
            await writer.advertise("[class,eq,k]")
            await reader.subscribe("[class,eq,k]")
            await writer.publish("[class,k]")
            assert (await asyncio.wait_for(reader.receive(), SECONDS)).class_name == "k"

            for refused in (
                reader.advertise("[class,eq,k]"),
                reader.publish("[class,k]"),
                writer.subscribe("[class,eq,k]"),
                writer.subscribe("{{[class,eq,k]}&{[class,eq,k]}}"),
            ):
                with pytest.raises(AccessRefused, match="access to exchange 'content'"):
                    await refused


@pytest.mark.parametrize("named", ["secret", "'secret'"])
async def test_a_class_is_a_topic(tmp_path: Path, named: str) -> None:
    async with serving(tmp_path) as broker:
        allow(broker, "ada", read="content", write="content")
        topics = TopicPermission(read="^open", write="^open")
        broker.users.set_topic_permissions("ada", "/", "content", topics)
        async with PadresClient(url(broker, "ada")) as ada:
            await ada.subscribe("[class,eq,open-air]")
            for refused in (
                ada.subscribe(f"[class,eq,{named}]"),
                ada.advertise(f"[class,eq,{named}]"),
                ada.publish(f"[class,{named}]"),
                ada.subscribe(f"{{{{[class,eq,open]}}||{{[class,eq,{named}]}}}}"),
            ):
                with pytest.raises(AccessRefused, match="topic 'secret'"):
                    await refused


async def test_a_permission_that_is_taken_away_is_gone_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        allow(broker, "ada", write=".*")
        async with PadresClient(url(broker, "ada")) as ada:
            await ada.advertise("[class,eq,k]")
            await ada.publish("[class,k]")
            broker.users.set_permissions("ada", "/", Permission(write="other"))
            with pytest.raises(AccessRefused):
                await ada.publish("[class,k]")


async def test_brokers_are_controlled_by_administrators_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        allow(broker, "ada", write=".*", read=".*")
        shutdown = "[class,BROKER_CONTROL],[brokerID,'Broker1'],[command,'LIFECYCLE-SHUTDOWN']"
        async with PadresClient(url(broker, "ada")) as ada, PadresClient(url(broker)) as guest:
            for refused in (ada.advertise("[class,eq,BROKER_CONTROL]"), ada.publish(shutdown)):
                with pytest.raises(AccessRefused, match="may not control brokers"):
                    await refused
            await guest.advertise("[class,eq,BROKER_CONTROL]")


async def test_a_virtual_host_one_may_not_enter_is_closed(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        broker.users.add("ada", "ada")
        with pytest.raises(NotAllowed, match="vhost '/' refused"):
            await PadresClient(url(broker, "ada")).open()


@pytest.mark.parametrize("name", ["broker", "console", "monitor", "exchange-content"])
async def test_nobody_takes_the_place_of_what_is_the_broker_s_own(
    tmp_path: Path, name: str
) -> None:
    async with serving(tmp_path) as broker:
        with pytest.raises(PreconditionFailed, match="reserved for the broker"):
            async with PadresClient(url(broker), id=name):
                pass


async def test_virtual_hosts_have_content_spaces_of_their_own(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        broker.add_vhost("blue")
        broker.users.set_permissions("guest", "blue", Permission(".*", ".*", ".*"))
        async with (
            PadresClient(url(broker)) as here,
            PadresClient(url(broker) + "?vhost=blue") as there,
        ):
            watcher = await Watcher.of(there)
            await there.subscribe("[class,eq,k]")
            await here.advertise("[class,eq,k]")
            await here.publish("[class,k]")

            assert await watcher.got() == []


# Settings.


async def test_conformance_can_be_switched_off(tmp_path: Path) -> None:
    async with serving(tmp_path, padres=PadresSettings(conformance=False)) as broker:
        async with PadresClient(url(broker)) as client:
            await client.subscribe("[class,eq,k]")
            await client.publish("[class,k],[never,'advertised']")
            assert (await asyncio.wait_for(client.receive(), SECONDS)).class_name == "k"


async def test_no_stream_is_kept_where_none_is_named(tmp_path: Path) -> None:
    settings = PadresSettings(stream="", exchange="events")
    async with serving(tmp_path, padres=settings) as broker, PadresClient(url(broker)) as client:
        await client.advertise("[class,eq,k]")
        await client.publish("[class,k]")

        vhost = broker.vhosts["/"]
        assert [name for name in vhost.queues if not name.startswith("padres.")] == []
        assert vhost.exchanges["events"].type == "x-content"


async def test_a_flood_of_advertisements_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, overlay=OverlaySettings(max_asked=20)) as broker:
        async with PadresClient(url(broker)) as client:
            asked = [await client.advertise(f"[class,eq,k{number}]") for number in range(20)]
            with pytest.raises(ResourceExhausted, match="20"):
                await client.subscribe("[class,eq,k]")
            await client.publish("[class,k1]")
            await client.withdraw(asked[0])
            await client.subscribe("[class,eq,k]")


async def test_what_a_queue_is_bound_to_by_content_is_counted_too(tmp_path: Path) -> None:
    settings = {"listen": [PADRES, "amqp://127.0.0.1:0"], "overlay": OverlaySettings(max_asked=3)}
    async with serving(tmp_path, **settings) as broker, PadresClient(url(broker)):
        vhost = broker.vhosts["/"]
        one, other = (vhost.declare_queue(name, durable=False) for name in ("one", "other"))
        wanted = [{"x-subscription": f"[class,eq,k{number}]"} for number in range(4)]
        for arguments in wanted[:3]:
            vhost.bind("content", one, "", arguments)
        with pytest.raises(ResourceExhausted, match="'one' has 3 of 3"):
            vhost.bind("content", one, "", wanted[3])
        vhost.bind("content", other, "", wanted[3])
        vhost.unbind("content", one, "", wanted[0])
        vhost.bind("content", one, "", wanted[3])


async def test_a_filter_too_many_of_an_mqtt_client_exceeds_its_quota(tmp_path: Path) -> None:
    settings = {"listen": [PADRES, "mqtt://127.0.0.1:0"], "overlay": OverlaySettings(max_asked=2)}
    async with serving(tmp_path, **settings) as broker, PadresClient(url(broker)):
        port = int(broker.addresses[1].rpartition(":")[2])
        async with aiomqtt.Client(
            "127.0.0.1",
            port,
            username="guest",
            password="guest",
            protocol=aiomqtt.ProtocolVersion.V5,
        ) as client:
            filters = [(f"$content/[class,eq,k{number}]", 1) for number in range(3)]
            granted = await client.subscribe(filters, timeout=SECONDS)
        assert [getattr(code, "value", code) for code in granted] == [1, 1, 0x97]


# Whose a mailbox is.


async def leave_something(broker: Broker, user: str) -> None:
    """In the mailbox of a durable client `box`, which is away."""
    async with PadresClient(url(broker, user), id="box", lasting=True) as client:
        await client.subscribe("[class,eq,k]")
    async with PadresClient(url(broker)) as publisher:
        await publisher.advertise("[class,eq,k]")
        await publisher.publish("[class,k]")


@pytest.mark.parametrize("durable", [True, False])
async def test_a_lasting_mailbox_is_for_the_user_who_made_it(tmp_path: Path, durable: bool) -> None:
    async with serving(tmp_path) as broker:
        allow(broker, "ada", read="content")
        allow(broker, "eve", configure=".*", write=".*", read=".*")
        await leave_something(broker, "ada")
        with pytest.raises(AccessRefused, match="belongs to another user"):
            await PadresClient(url(broker, "eve"), id="box", lasting=durable).open()
    async with serving(tmp_path) as broker:  # it is the same after a restart
        with pytest.raises(AccessRefused, match="belongs to another user"):
            await PadresClient(url(broker, "eve"), id="box", lasting=durable).open()
        async with PadresClient(url(broker, "ada"), id="box", lasting=True) as ada:
            assert (await asyncio.wait_for(ada.receive(), SECONDS)).class_name == "k"


async def test_a_mailbox_that_is_given_up_may_be_anybody_s(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        allow(broker, "ada", read="content")
        allow(broker, "eve", read="content")
        await leave_something(broker, "ada")
        async with PadresClient(url(broker, "ada"), id="box"):
            pass
        async with PadresClient(url(broker, "eve"), id="box", lasting=True) as eve:
            await eve.subscribe("[class,eq,k]")


async def test_a_mailbox_whose_user_is_gone_is_for_who_may_read_the_queue(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        allow(broker, "ada", read="content")
        allow(broker, "eve", read="content")
        await leave_something(broker, "ada")
        broker.users.delete("ada")
        with pytest.raises(AccessRefused, match=r"read access to queue 'padres\.Broker1-box'"):
            await PadresClient(url(broker, "eve"), id="box", lasting=True).open()
        broker.users.set_permissions("eve", "/", Permission(read=r"^padres\.Broker1-box$"))
        async with PadresClient(url(broker, "eve"), id="box", lasting=True) as eve:
            assert (await asyncio.wait_for(eve.receive(), SECONDS)).class_name == "k"


async def test_a_client_that_takes_small_frames_gets_no_large_payload(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as broker,
        PadresClient(url(broker)) as ada,
        PadresClient(url(broker)) as bob,
    ):
        await ada.advertise("[class,eq,k]")
        await bob.subscribe("[class,eq,k]")
        for terminal in broker.clients:
            assert isinstance(terminal, PadresTerminal)
            terminal.writer.largest = 1000  # as a client may say in its first frame
        await ada.publish("[class,k]", bytes(2000))
        await ada.publish("[class,k]", bytes(500))
        sizes = [len((await asyncio.wait_for(bob.receive(), SECONDS)).payload) for _ in range(2)]
        assert sizes == [0, 500]


async def test_what_one_client_may_send_another_takes(tmp_path: Path) -> None:
    settings = PadresSettings(max_frame_bytes=8 << 20)
    async with serving(tmp_path, padres=settings) as broker:
        async with PadresClient(url(broker)) as ada, PadresClient(url(broker)) as bob:
            await ada.advertise("[class,eq,k]")
            await bob.subscribe("[class,eq,k]")
            payload = bytes(7 << 20)
            await ada.publish("[class,k]", payload)
            assert (await asyncio.wait_for(bob.receive(), SECONDS)).payload == payload


async def test_what_waits_for_a_client_does_not_all_come_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    flush = PadresWriter.flush

    def weigh(writer: PadresWriter) -> None:
        written.append(sum(map(len, writer.output.out)))
        flush(writer)

    async with serving(tmp_path) as broker, PadresClient(url(broker)) as ada:
        await ada.advertise("[class,eq,k]")
        async with PadresClient(url(broker), id="bob", lasting=True) as bob:
            await bob.subscribe("[class,eq,k]")
        for _ in range(50):
            await ada.publish("[class,k]", bytes(50_000))
        monkeypatch.setattr(PadresWriter, "flush", weigh)
        async with (
            asyncio.timeout(SECONDS),
            PadresClient(url(broker), id="bob", lasting=True) as bob,
        ):
            assert [len((await bob.receive()).payload) for _ in range(50)] == [50_000] * 50
    assert max(written) < WRITE_HIGH_WATER_BYTES + 100_000


async def test_connections_are_limited(tmp_path: Path) -> None:
    async with serving(tmp_path, max_connections=1) as broker, PadresClient(url(broker)):
        with pytest.raises((ResourceExhausted, ConnectionError), match="limit of 1 connections"):
            await PadresClient(url(broker)).open()


async def test_over_tls_the_certificate_is_checked(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    tls = TlsSettings(certificate=certificate, key=key)
    async with serving(tmp_path / "data", listen=["padress://127.0.0.1:0"], tls=tls) as broker:
        async with PadresClient(f"{url(broker)}?cafile={certificate}") as client:
            await client.advertise("[class,eq,k]")
            (connection,) = broker.clients
            assert connection.describe()["ssl"]
        with pytest.raises(ConnectionError, match="certificate not trusted"):
            await PadresClient(url(broker)).open()
        trusting = ssl.create_default_context(cafile=certificate)
        async with PadresClient(url(broker), tls=trusting):
            pass


# Management.


async def test_management_sees_a_client(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, PadresClient(url(broker), id="ada") as client:
        await client.subscribe("[class,eq,k]")
        (connection,) = broker.clients
        told = connection.describe()
        assert told["protocol"] == "PADRES"
        assert (told["user"], told["vhost"], told["state"]) == ("guest", "/", "running")
        assert told["client_properties"]["client_id"] == "ada"
        (consumer,) = connection.describe_consumers()
        assert consumer["queue"]["name"] == "padres.Broker1-ada"
        assert broker.vhosts["/"].queues["padres.Broker1-ada"].describe()["consumers"] == 1


async def test_a_mailbox_that_is_deleted_is_made_anew(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, PadresClient(url(broker), id="ada") as client:
        await client.advertise("[class,eq,k]")
        await client.subscribe("[class,eq,k]")
        broker.vhosts["/"].delete_queue("padres.Broker1-ada")
        await client.publish("[class,k]")
        assert (await asyncio.wait_for(client.receive(), SECONDS)).class_name == "k"


async def test_nothing_is_left_of_a_client_that_went(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        async with PadresClient(url(broker), id="ada") as client:
            await client.subscribe("[class,eq,k]")
            await client.advertise("[class,eq,k]")
        routing = broker.overlay.routing("/")
        assert "Broker1-ada" not in routing.hops
        assert not [
            one for one in routing.tables.subscriptions.values() if one.hop == "Broker1-ada"
        ]
        assert "padres.Broker1-ada" not in broker.vhosts["/"].queues


# Ends.


async def heard(
    broker: Broker, *said: bytes, answered: asyncio.Event | None = None
) -> tuple[list[object], bool]:
    """What a broker answers to bytes, until it hangs up."""
    _, _, port = broker.addresses[0].rpartition(":")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    frames = PadresFrameReader(1 << 20)
    found: list[object] = []
    try:
        for data in said:
            writer.write(data)
        async with asyncio.timeout(SECONDS):
            while data := await reader.read(65536):
                found += frames.feed(data)
                if answered is not None:
                    answered.set()
    finally:
        writer.close()
    return found, True


async def test_a_client_that_never_says_who_it_is_is_sent_away(tmp_path: Path) -> None:
    async with serving(tmp_path, handshake_timeout=0.05) as broker:
        assert await heard(broker, PROTOCOL_HEADER) == ([], True)


async def test_a_client_that_falls_silent_is_given_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        hello = OpenFrame(PeerRole.CLIENT, "ada", user="guest", password="guest", heartbeat=1)
        found, ended = await heard(broker, PROTOCOL_HEADER + encode_frame(hello))
        assert ended
        assert len(found) > 1  # and was spoken to meanwhile


async def test_a_broker_that_ends_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        hello = OpenFrame(PeerRole.CLIENT, "ada", user="guest", password="guest")
        answered = asyncio.Event()
        hearing = asyncio.create_task(
            heard(broker, PROTOCOL_HEADER + encode_frame(hello), answered=answered)
        )
        await asyncio.wait_for(answered.wait(), SECONDS)
    found, _ = await hearing

    assert isinstance(found[-1], CloseFrame)
    assert found[-1].code == 320
