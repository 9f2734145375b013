"""Streams whose old segments are in an object store: every reader gets every message."""

from __future__ import annotations

import asyncio
import io
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest

from penstock.client.management import ManagementClient, ManagementServerError
from penstock.core.config import BrokerSettings
from penstock.core.errors import ConfigurationError, ObjectStoreError
from penstock.core.object_store import DirectoryStore
from penstock.destinations import stream_tier
from penstock.destinations.stream import Stream
from penstock.server import Broker
from tests.cluster.members import contents, pair, until

SEGMENT_BYTES = 64 * 1024
LOCAL_BYTES = 2 * SEGMENT_BYTES
ARGUMENTS: dict[str, Any] = {
    "x-queue-type": "stream",
    "x-stream-max-segment-size-bytes": SEGMENT_BYTES,
    "x-local-max-length-bytes": LOCAL_BYTES,
}
#: Enough for a dozen segments; every tenth has its body in a file.
BODIES = [
    f"{number} ".encode() + b"x" * (9000 if number % 10 == 0 else 3000) for number in range(200)
]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_tier, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(stream_tier, "FETCHED_SECONDS", 0.0)


@asynccontextmanager
async def running(data: Path, store: str) -> AsyncIterator[Broker]:
    settings = BrokerSettings(
        listen=["amqp://127.0.0.1:0", "http://127.0.0.1:0"],
        tiered_storage=store,
        spool_threshold=8000,
    )
    async with Broker(settings, data=data) as broker:
        yield broker


def port(broker: Broker) -> int:
    return int(broker.addresses[0].rpartition(":")[2])


def stream_of(broker: Broker, name: str = "s") -> Stream:
    found = broker.vhosts["/"].queue(name)
    assert isinstance(found, Stream)
    return found


def publish(port: int, bodies: list[bytes], arguments: dict[str, Any], name: str = "s") -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.queue_declare(name, durable=True, arguments=arguments)
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", name, body)
    connection.close()


def consume(port: int, count: int, name: str = "s") -> list[bytes]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=50)
    first = {"x-stream-offset": "first"}
    found: list[bytes] = []
    for method, _, body in channel.consume(name, arguments=first, inactivity_timeout=5):
        if method is None:
            break
        channel.basic_ack(method.delivery_tag)
        found.append(body)
        if len(found) == count:
            break
    connection.close()
    return found


def consume_amqp10(port: int, count: int) -> list[bytes]:
    from proton import symbol
    from proton.reactor import Filter
    from proton.utils import BlockingConnection as ProtonConnection

    url = f"amqp://guest:guest@127.0.0.1:{port}"
    connection = ProtonConnection(url, timeout=10, allowed_mechs="PLAIN")
    filters: dict[Any, Any] = {symbol("rabbitmq:stream-offset-spec"): "first"}
    first = Filter(filters)
    receiver = connection.create_receiver("/queues/s", credit=20, options=first)
    found = []
    for _ in range(count):
        message: Any = receiver.receive(timeout=10)  # owns the memory of its body
        found.append(bytes(message.body))
        receiver.accept()
    connection.close()
    return found


def arrow(broker: Broker, query: str) -> list[bytes]:
    url = next(one for one in broker.addresses if one.startswith("http"))
    request = urllib.request.Request(
        f"{url}/api/streams/s?{query}", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        table = pa.ipc.open_stream(io.BytesIO(answer.read())).read_all()
    return list(table.column("body").to_pylist())


def files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.rglob(f"*{suffix}"))


async def move(stream: Stream) -> None:
    """Until everything is uploaded, and local retention has done its work."""
    sealed = [one for one, _ in stream.log.segments.sealed()]

    def is_moved() -> bool:
        stream.tier.tick()
        state = stream.tier.describe()["tiered_storage"]
        assert not state["error"]
        return (
            all(one.remote is not None for one in sealed)
            and state["local_bytes"] <= LOCAL_BYTES + SEGMENT_BYTES
        )

    await until(is_moved)


@pytest.fixture(params=["directory", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "store")
    return f"s3://{request.getfixturevalue('object_store_bucket')}/{tmp_path.name}"


@pytest.mark.peer
async def test_readers_from_the_beginning_get_everything(store: str, tmp_path: Path) -> None:
    pytest.importorskip("proton", reason="missing: python-qpid-proton")
    async with running(tmp_path / "data", store) as broker:
        await asyncio.to_thread(publish, port(broker), BODIES, ARGUMENTS)
        stream = stream_of(broker)
        before = len(files(tmp_path / "data", ".seg"))
        await move(stream)
        assert before > 8
        assert len(files(tmp_path / "data", ".seg")) <= 4
        assert len(files(tmp_path / "data", ".body")) < 10
        assert await asyncio.to_thread(consume, port(broker), len(BODIES)) == BODIES
        assert await asyncio.to_thread(arrow, broker, "from=0") == BODIES
        # No more than a few segments came back.
        assert len(files(tmp_path / "data", ".seg")) <= 4 + stream_tier.MAX_FETCHED
        await move(stream)
    async with running(tmp_path / "data", store) as broker:  # after a restart
        assert await asyncio.to_thread(consume_amqp10, port(broker), len(BODIES)) == BODIES
        assert await asyncio.to_thread(arrow, broker, "from=7&to=90") == BODIES[7:90]
        assert await asyncio.to_thread(arrow, broker, "from=0&max_bytes=20000") == BODIES[:4]


async def test_messages_in_the_store_can_be_browsed(tmp_path: Path) -> None:
    def browse(url: str) -> list[str]:
        client = ManagementClient(url, "guest", "guest")
        found: list[str] = []
        following: int | None = 0
        while following is not None:
            page = client.get_json("/api/queues/%2F/s/messages", {"offset": following, "count": 50})
            found += [one["id"] for one in page["messages"]]
            following = page["next"]
        return found

    async with running(tmp_path / "data", str(tmp_path / "store")) as broker:
        await asyncio.to_thread(publish, port(broker), BODIES, ARGUMENTS)
        await move(stream_of(broker))
        url = next(one for one in broker.addresses if one.startswith("http"))
        found = await asyncio.to_thread(browse, url)
        assert found == [str(number) for number in range(len(BODIES))]


class FaultyStore(DirectoryStore):
    fault: Callable[[], None] | None = None
    spoils = False

    def put_file(self, name: str, path: Path) -> None:
        if self.fault is not None:
            self.fault()
        if self.spoils:
            self.put(name, path.read_bytes()[:-1] + b"?")
        else:
            super().put_file(name, path)

    def pieces(self, name: str) -> Iterator[bytes]:
        if self.fault is not None:
            self.fault()
        return super().pieces(name)


def fail() -> None:
    raise ObjectStoreError("s3://bucket/x: 503 Slow Down")


async def test_nothing_is_deleted_here_before_the_upload_is_verified(tmp_path: Path) -> None:
    async with running(tmp_path / "data", str(tmp_path / "store")) as broker:
        faulty = FaultyStore(tmp_path / "store")
        assert broker.kernel.tiered_storage is not None
        broker.kernel.tiered_storage._store = faulty
        await asyncio.to_thread(publish, port(broker), BODIES, ARGUMENTS)
        stream = stream_of(broker)
        before = files(tmp_path / "data", ".seg")

        def error() -> str:
            stream.tier.tick()
            return str(stream.tier.describe()["tiered_storage"]["error"])

        faulty.fault = fail
        await until(lambda: "503 Slow Down" in error())
        faulty.fault, faulty.spoils = None, True
        await until(lambda: "does not have the content" in error())
        assert files(tmp_path / "data", ".seg") == before
        assert not files(tmp_path / "data", ".remote")
        faulty.spoils = False
        await until(lambda: error() == "")
        await move(stream)
        assert await asyncio.to_thread(consume, port(broker), len(BODIES)) == BODIES


async def test_readers_wait_for_a_store_that_does_not_answer(tmp_path: Path) -> None:
    async with running(tmp_path / "data", str(tmp_path / "store")) as broker:
        faulty = FaultyStore(tmp_path / "store")
        assert broker.kernel.tiered_storage is not None
        broker.kernel.tiered_storage._store = faulty
        await asyncio.to_thread(publish, port(broker), BODIES, ARGUMENTS)
        stream = stream_of(broker)
        await move(stream)
        faulty.fault = fail
        with pytest.raises(urllib.error.HTTPError) as refused:
            await asyncio.to_thread(arrow, broker, "from=0")
        assert refused.value.code == 503
        assert b"503 Slow Down" in refused.value.read()
        waiting = asyncio.create_task(asyncio.to_thread(consume, port(broker), len(BODIES)))
        await until(lambda: stream.consumer_count == 1)
        await asyncio.sleep(0.2)
        assert not waiting.done()
        faulty.fault = None
        assert await waiting == BODIES

        victim = files(tmp_path / "store", ".seg")[0]
        await move(stream)
        victim.unlink()
        with pytest.raises(urllib.error.HTTPError) as refused:
            await asyncio.to_thread(arrow, broker, "from=0")
        assert b"is missing" in refused.value.read()


async def test_retention_and_deletion_reach_the_store(tmp_path: Path) -> None:
    async with running(tmp_path / "data", str(tmp_path / "store")) as broker:
        await asyncio.to_thread(publish, port(broker), BODIES, ARGUMENTS)
        stream = stream_of(broker)
        await move(stream)
        objects = len(files(tmp_path / "store", ""))
        stream.log.retain(None, 5 * SEGMENT_BYTES)
        broker.kernel.write_batch.flush()
        await until(lambda: len(files(tmp_path / "store", "")) < objects)
        assert stream.log.first_offset > 0
        await move(stream)
        rest = BODIES[stream.log.first_offset :]
        assert await asyncio.to_thread(arrow, broker, "from=first") == rest
        broker.vhosts["/"].delete_queue("s")
        broker.kernel.write_batch.flush()
        await until(lambda: not [one for one in files(tmp_path / "store", "") if one.is_file()])


async def test_a_policy_moves_segments_and_needs_a_store(tmp_path: Path) -> None:
    def put(url: str) -> None:
        client = ManagementClient(url, "guest", "guest")
        body = {"pattern": "^s$", "definition": {"local-max-length-bytes": LOCAL_BYTES}}
        with client.request("/api/policies/%2F/tier", method="PUT", body=body) as answer:
            client.check(answer)

    plain = {key: value for key, value in ARGUMENTS.items() if not key.startswith("x-local")}
    async with running(tmp_path / "data", str(tmp_path / "store")) as broker:
        url = next(one for one in broker.addresses if one.startswith("http"))
        await asyncio.to_thread(publish, port(broker), BODIES, plain)
        assert stream_of(broker).tier.describe() == {}
        await asyncio.to_thread(put, url)
        await move(stream_of(broker))
        assert await asyncio.to_thread(consume, port(broker), len(BODIES)) == BODIES
    async with running(tmp_path / "other", "") as broker:
        url = next(one for one in broker.addresses if one.startswith("http"))
        with pytest.raises(Exception, match=r"needs tiered storage: set broker.tiered_storage"):
            await asyncio.to_thread(put, url)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="needs tiered storage"):
            await asyncio.to_thread(publish, port(broker), [], ARGUMENTS)
    with pytest.raises(ConfigurationError, match="unsupported scheme"):
        await Broker(
            BrokerSettings(listen=[], tiered_storage="ftp://x"), data=tmp_path / "x"
        ).start()


async def test_without_the_setting_the_error_says_what_is_missing(tmp_path: Path) -> None:
    async with running(tmp_path / "data", str(tmp_path / "store")) as broker:
        await asyncio.to_thread(publish, port(broker), BODIES, ARGUMENTS)
        await move(stream_of(broker))
    async with running(tmp_path / "data", "") as broker:
        client = ManagementClient(
            next(one for one in broker.addresses if one.startswith("http")), "guest", "guest"
        )
        with pytest.raises(ManagementServerError, match="tiered_storage is not set"):
            await asyncio.to_thread(client.get_json, "/api/queues/%2F/s/messages", {"offset": 0})


async def test_a_follower_has_the_same_and_reads_the_store_when_it_leads(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    async with pair(tmp_path, settings={"tiered_storage": store}) as (leader, follower):
        assert leader.broker is not None
        await asyncio.to_thread(publish, port(leader.broker), BODIES, ARGUMENTS)
        await move(stream_of(leader.broker))
        replication = leader.replication
        await until(
            lambda: all(link.acked >= replication.seal() for link in replication.links.values())
        )
        assert contents(follower.data) == contents(leader.data)
        await leader.close()
        follower.promote()
        await until(lambda: follower.leads)
        assert follower.broker is not None
        assert await asyncio.to_thread(consume, port(follower.broker), len(BODIES)) == BODIES


def test_an_environment_without_obstore_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import builtins

    genuine = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("obstore"):
            raise ImportError(name)
        return genuine(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    from penstock.core.object_store import open_object_store

    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[s3\]'"):
        open_object_store("s3://bucket")
