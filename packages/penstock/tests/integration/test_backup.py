"""Backups of a running broker: nothing that was confirmed before is missing in what is restored."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from penstock.client import backup as format_module
from penstock.client.backup import BackupRepository, BackupResult
from penstock.client.management import ManagementClient
from penstock.core.config import BrokerSettings
from penstock.core.errors import (
    ConfigurationError,
    DamagedBackup,
    NotFound,
    ObjectStoreError,
    PreconditionFailed,
)
from penstock.core.object_store import BucketStore, DirectoryStore, ObjectStore, open_object_store
from penstock.server import Broker, snapshot
from tests.cluster.members import pair, same_files
from tests.fixtures import NewPenstock
from tests.integration import killed_backups
from tests.peers import Penstock, free_port

PERSISTENT = pika.BasicProperties(delivery_mode=2)
QUEUES: dict[str, dict[str, Any]] = {
    "classic": {},
    "quorum": {"x-queue-type": "quorum"},
    "stream": {"x-queue-type": "stream"},
}


def settings() -> BrokerSettings:
    return BrokerSettings(listen=["amqp://127.0.0.1:0", "http://127.0.0.1:0"])


def management(broker: Broker) -> ManagementClient:
    url = next(one for one in broker.addresses if one.startswith("http"))
    return ManagementClient(url, "guest", "guest")


def call(client: ManagementClient, path: str, body: Any = None, method: str = "POST") -> Any:
    with client.request(path, method=method, body=body) as answer:
        client.check(answer)
        return answer.read()


def publish(client: ManagementClient, queue: str, *bodies: str) -> None:
    for body in bodies:
        call(
            client,
            "/api/exchanges/%2F/amq.default/publish",
            {
                "routing_key": queue,
                "payload": body,
                "payload_encoding": "string",
                "properties": {"delivery_mode": 2},
            },
        )


def bodies(port: int, queue: str) -> set[str]:
    """All messages of a queue, or of a stream from its beginning."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=500)
    arguments = {"x-stream-offset": "first"} if queue == "stream" else None
    found = set()
    for method, _, body in channel.consume(queue, arguments=arguments, inactivity_timeout=0.5):
        if method is None:
            break
        channel.basic_ack(method.delivery_tag)
        found.add(body.decode())
    connection.close()
    return found


@pytest.fixture(params=["directory", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "directory":
        return open_object_store(str(tmp_path / "backups"))
    return open_object_store(
        f"s3://{request.getfixturevalue('object_store_bucket')}/{tmp_path.name}"
    )


@asynccontextmanager
async def running(data: Path) -> AsyncIterator[Broker]:
    async with Broker(settings(), data=data) as broker:
        yield broker


async def test_later_backups_write_what_is_new_and_each_can_be_restored(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(format_module, "PART_BYTES", 10_000)

    def take_two(client: ManagementClient) -> list[BackupResult]:
        call(client, "/api/queues/%2F/q", {"durable": True}, "PUT")
        call(client, "/api/users/ann", {"password": "x", "tags": "monitoring"}, "PUT")
        publish(client, "q", "one", os.urandom(25_000).hex())
        first = repository.take(client)
        publish(client, "q", "two")
        second = repository.take(client)
        unchanged = repository.take(client)
        return [first, second, unchanged]

    repository = BackupRepository(store)
    async with running(tmp_path / "data") as broker:
        first, second, unchanged = await asyncio.to_thread(take_two, management(broker))
        assert not (tmp_path / "data" / "snapshots").exists()
    assert first.new_bytes == first.snapshot.size > 50_000
    assert 0 < second.new_bytes < 20_000
    assert unchanged.new_bytes == 0
    assert repository.times() == [one.snapshot.time for one in (first, second, unchanged)]

    for at, messages in ((first.snapshot.time, 2), (None, 3)):
        target = tmp_path / f"restored-{messages}"
        repository.restore(repository.find(at), target)
        async with running(target) as restored:
            queue = restored.vhosts["/"].queue("q")
            assert queue.describe()["messages"] == messages
            assert restored.users.find("ann") is not None


async def test_damage_is_found_before_a_broker_can_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(client: ManagementClient) -> None:
        call(client, "/api/queues/%2F/q", {"durable": True}, "PUT")
        publish(client, "q", "one" * 1000)
        repository.take(client)

    folder, target = tmp_path / "backups", tmp_path / "restored"
    repository = BackupRepository(DirectoryStore(folder))
    async with running(tmp_path / "data") as broker:
        await asyncio.to_thread(prepare, management(broker))
    snapshot = repository.find(None)
    largest = max(snapshot.files, key=lambda file: file.size)
    part = folder / "parts" / largest.parts[0][:2] / largest.parts[0]
    content = part.read_bytes()

    part.write_bytes(content[:-1] + b"?")
    with pytest.raises(DamagedBackup, match=r"does not match its checksum.*--at"):
        repository.restore(snapshot, target)
    with pytest.raises(PreconditionFailed, match="run `penstock restore` again"):
        await Broker(settings(), data=target).start()

    part.unlink()
    with pytest.raises(DamagedBackup, match=f"is missing, {largest.path}"):
        repository.restore(snapshot, target)

    part.write_bytes(content)
    repository.restore(snapshot, target)  # after an interrupted one
    async with running(target) as broker:
        assert broker.vhosts["/"].queue("q").describe()["messages"] == 1

    listing = folder / snapshot.name
    listing.write_bytes(listing.read_bytes().replace(b'"size":', b'"size": ', 1))
    with pytest.raises(DamagedBackup, match="checksum"):
        repository.find(None)
    with pytest.raises(NotFound, match="the oldest is of"):
        repository.find(datetime.now(UTC) - timedelta(days=1))


async def test_a_backup_that_is_killed_at_any_point_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "BUSY_SECONDS", 0.0)  # the next need not wait
    folder = tmp_path / "backups"
    repository = BackupRepository(DirectoryStore(folder))

    def restore_newest() -> None:
        shutil.rmtree(tmp_path / "restored", ignore_errors=True)
        repository.restore(repository.find(None), tmp_path / "restored")

    def take_all(client: ManagementClient, killed: subprocess.Popen[str], first: bool) -> int:
        """One that is killed at each point, until one is complete; each is followed by another.
        For the `first` backup of a directory, every third point."""
        assert killed.stdin is not None
        assert killed.stdout is not None
        for point in itertools.count(1, 3 if first else 1):
            if first:
                shutil.rmtree(folder, ignore_errors=True)
            publish(client, "q", "something new")
            killed.stdin.write(f"{point}\n")
            killed.stdin.flush()
            ended = killed.stdout.readline().strip()
            if not first:
                restore_newest()
            repository.take(client, keep=2)
            restore_newest()
            if ended == "complete":
                return point
            assert ended == "killed"
        raise AssertionError

    async with running(tmp_path / "data") as broker:
        client = management(broker)
        await asyncio.to_thread(call, client, "/api/queues/%2F/q", {"durable": True}, "PUT")
        command = [sys.executable, killed_backups.__file__, str(client), str(folder), "2"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as killed:
            for first, least in ((True, 20), (False, 12)):
                assert await asyncio.to_thread(take_all, client, killed, first) > least
            assert killed.stdin is not None
            killed.stdin.close()
        await asyncio.to_thread(repository.take, client, 1)
        messages = broker.vhosts["/"].queue("q").describe()["messages"]
    assert len(repository.times()) == 1
    named = {part for file in repository.find(None).files for part in file.parts}
    assert {path.name for path in folder.rglob("parts/*/*")} == named, "nothing is left over"
    restore_newest()
    async with running(tmp_path / "restored") as broker:
        assert broker.vhosts["/"].queue("q").describe()["messages"] == messages


async def test_old_backups_are_removed_and_the_others_stay_whole(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(format_module, "PART_BYTES", 10_000)
    repository = BackupRepository(store)

    def take(client: ManagementClient) -> list[BackupResult]:
        call(client, "/api/queues/%2F/q", {"durable": True}, "PUT")
        done = []
        for _ in range(4):  # all have the parts of the first in common
            publish(client, "q", os.urandom(25_000).hex())
            done.append(repository.take(client))
        done.append(repository.take(client, keep=3))
        return done

    async with running(tmp_path / "data") as broker:
        done = await asyncio.to_thread(take, management(broker))
        assert done[-1].removed == 2
        assert done[-1].removed_bytes > 0
        times = [one.snapshot.time for one in done[2:]]
        assert repository.times() == times
        for number, at in enumerate(times):
            repository.restore(repository.find(at), tmp_path / str(number))
        # A list that cannot be read may name any part.
        damaged = done[-1].snapshot.name
        store.put(damaged, store.get(damaged)[:-1])
        parts = store.sizes("parts/")
        with pytest.raises(DamagedBackup, match=f"is complete, but.*{damaged}.*delete that file"):
            await asyncio.to_thread(repository.take, management(broker), 2)
        assert parts.keys() <= store.sizes("parts/").keys()
        store.delete(damaged)
        last = await asyncio.to_thread(repository.take, management(broker), 1)
        assert repository.times() == [last.snapshot.time]
        repository.restore(last.snapshot, tmp_path / "last")


async def test_a_backup_that_was_replaced_by_another_writes_and_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "BUSY_SECONDS", 0.0)
    folder = tmp_path / "backups"

    class SlowStore(DirectoryStore):
        """While this one writes, another backup begins and ends, and removes what is not named."""

        def sizes(self, prefix: str) -> dict[str, int]:
            if prefix == "parts/" and super().sizes(prefix):
                BackupRepository(DirectoryStore(folder)).take(client, keep=1)
            return super().sizes(prefix)

    async with running(tmp_path / "data") as broker:
        client = management(broker)
        with pytest.raises(NotFound, match="no snapshot"):
            await asyncio.to_thread(BackupRepository(SlowStore(folder)).take, client, 1)
    repository = BackupRepository(DirectoryStore(folder))
    assert len(repository.times()) == 1
    repository.restore(repository.find(None), tmp_path / "restored")


async def test_wrong_places_are_refused(tmp_path: Path) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "thesis.tex").write_text("")
    backups = BackupRepository(DirectoryStore(tmp_path / "backups"))

    def take(client: ManagementClient) -> None:
        with pytest.raises(PreconditionFailed, match=r"not a backup.*thesis.tex.*another"):
            BackupRepository(DirectoryStore(used)).take(client)
        backups.take(client)

    def take_other(client: ManagementClient) -> None:
        with pytest.raises(PreconditionFailed, match="backup of another broker"):
            backups.take(client)

    async with running(tmp_path / "one") as broker:
        await asyncio.to_thread(take, management(broker))
    async with running(tmp_path / "two") as broker:
        await asyncio.to_thread(take_other, management(broker))
        with pytest.raises(PreconditionFailed, match="is not empty"):
            backups.restore(backups.find(None), tmp_path / "two")
    with pytest.raises(NotFound, match="not a backup of Penstock"):
        BackupRepository(DirectoryStore(used)).find(None)
    with pytest.raises(ConfigurationError, match="unsupported scheme ftp"):
        open_object_store("ftp://host/")
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(ObjectStoreError, match="Permission denied"):
            DirectoryStore(tmp_path / "closed").put("x", b"")


def test_a_bucket_that_is_missing_or_unreachable_is_named(
    object_store_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises((ObjectStoreError, FileNotFoundError), match="s3://nowhere/x/part"):
        BucketStore("s3://nowhere/x").put("part", b"1")
    monkeypatch.setattr("penstock.core.object_store.RETRY_SECONDS", 0.2)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ObjectStoreError, match="s3://backups/x/part"):
        BucketStore("s3://backups/x").get("part")


class Load:
    """Clients that publish without end, and what was confirmed to them."""

    def __init__(self, broker: Penstock) -> None:
        self._broker = broker
        self.confirmed: dict[str, list[str]] = defaultdict(list)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True)
            for run in (self._amqp091, self._move, self._mqtt, self._amqp10)
        ]

    def declare(self) -> None:
        connection = self._connect()
        channel = connection.channel()
        for name, arguments in {**QUEUES, "moved": {}, "retained": {}, "amqp10": {}}.items():
            channel.queue_declare(name, durable=True, arguments=arguments)
        to_moved = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "moved"}
        channel.queue_declare("work", durable=True, arguments=to_moved)
        connection.close()
        session = self._paho("session")
        session.subscribe("t/#", qos=1)
        time.sleep(0.2)
        session.loop_stop()
        session.disconnect()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()

    def so_far(self) -> dict[str, set[str]]:
        return {queue: set(messages) for queue, messages in self.confirmed.items()}

    def _connect(self) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self._broker.port))

    def _until_stopped(self, send: Callable[[str], None]) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            send(str(number))

    def _amqp091(self) -> None:
        connection = self._connect()
        channel = connection.channel()
        channel.confirm_delivery()

        def send(number: str) -> None:
            for queue in (*QUEUES, "work"):
                # Now and then one that is stored in a file of its own.
                body = f"{queue}-{number}" + ("." * 300_000 if number.endswith("50") else "")
                channel.basic_publish("", queue, body.encode(), PERSISTENT)
                self.confirmed["moved" if queue == "work" else queue].append(body)

        self._until_stopped(send)
        connection.close()

    def _move(self) -> None:
        """Rejected messages move from one queue to another."""
        connection = self._connect()
        channel = connection.channel()
        for method, _, _ in channel.consume("work", inactivity_timeout=0.1):
            if method is not None:
                channel.basic_reject(method.delivery_tag, requeue=False)
            if self._stop.is_set():
                break
        connection.close()

    def _paho(self, name: str) -> paho.Client:
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
        client.username_pw_set("guest", "guest")
        client.connect("127.0.0.1", self._broker.mqtt_port)
        client.loop_start()
        return client

    def _mqtt(self) -> None:
        client = self._paho("publisher")

        def send(number: str) -> None:
            client.publish(f"t/{number}", f"mqtt-{number}", qos=1, retain=True).wait_for_publish(10)
            self.confirmed["mqtt"].append(f"mqtt-{number}")

        self._until_stopped(send)
        client.loop_stop()
        client.disconnect()

    def _amqp10(self) -> None:
        from proton import Message as ProtonMessage
        from proton.utils import BlockingConnection as ProtonConnection

        url = f"amqp://guest:guest@127.0.0.1:{self._broker.port}"
        connection = ProtonConnection(url, timeout=10, allowed_mechs="PLAIN")
        sender = connection.create_sender("/queues/amqp10")

        def send(number: str) -> None:
            sender.send(ProtonMessage(body=f"amqp10-{number}".encode(), durable=True))
            self.confirmed["amqp10"].append(f"amqp10-{number}")

        self._until_stopped(send)
        connection.close()


def received_by_mqtt(port: int, name: str, subscribe: bool) -> set[str]:
    """Of a session that was away, or what is retained."""
    found: set[str] = set()
    last = [time.monotonic()]

    def on_message(client: paho.Client, _: object, message: paho.MQTTMessage) -> None:
        found.add(message.payload.decode())
        last[0] = time.monotonic()

    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=subscribe)
    client.username_pw_set("guest", "guest")
    client.on_message = on_message
    client.connect("127.0.0.1", port)
    if subscribe:
        client.subscribe("t/#", qos=1)
    client.loop_start()
    while time.monotonic() - last[0] < 0.7:
        time.sleep(0.05)
    client.loop_stop()
    client.disconnect()
    return found


@pytest.mark.peer
def test_nothing_confirmed_before_a_backup_is_missing(
    tmp_path: Path, new_penstock: NewPenstock
) -> None:
    pytest.importorskip("proton", reason="missing: python-qpid-proton")
    broker = new_penstock(mqtt=True)
    load = Load(broker)
    load.declare()
    command = [sys.executable, "-m", "penstock"]
    url = broker.http_url.replace("://", "://guest:guest@")
    confirmed = {}
    with load:
        for _ in range(3):
            time.sleep(0.7)
            confirmed = load.so_far()
            done = subprocess.run(
                [*command, "backup", "--to", str(tmp_path / "backups"), "--url", url],
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            assert "are new" in done.stdout
    broker.kill()
    assert min(len(messages) for messages in confirmed.values()) > 20

    restored = tmp_path / "elsewhere"
    done = subprocess.run(
        [*command, "restore", "--from", str(tmp_path / "backups"), "--data", str(restored)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    other = new_penstock("--set", "broker.server_name=other", data=restored, mqtt=True)
    for queue in (*QUEUES, "amqp10"):
        assert confirmed[queue] <= bodies(other.port, queue), queue
    # A message that moves is in one of the queues.
    moved = bodies(other.port, "moved") | bodies(other.port, "work")
    assert confirmed["moved"] <= moved
    assert confirmed["mqtt"] <= received_by_mqtt(other.mqtt_port, "session", subscribe=False)
    assert confirmed["mqtt"] <= received_by_mqtt(other.mqtt_port, "reader", subscribe=True)


async def test_a_snapshot_has_nothing_from_after_its_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files grow, are replaced and deleted while links are made, and after the snapshot."""
    link_all = snapshot._link_all

    def publish_some(client: ManagementClient, *queues: str) -> None:
        for queue in queues:
            call(client, f"/api/queues/%2F/{queue}", {"durable": True}, "PUT")
            publish(client, queue, "before")

    async with running(tmp_path / "data") as broker:
        client = management(broker)
        await asyncio.to_thread(publish_some, client, "old", "grows", "again", "still")

        def meanwhile(data: Path, target: Path) -> dict[str, snapshot.SnapshotFile]:
            files = link_all(data, target)  # in a thread: the broker works on
            publish_some(client, "new", "grows")
            for queue in ("old", "again"):
                call(client, f"/api/queues/%2F/{queue}", method="DELETE")
            publish_some(client, "again")
            return files

        monkeypatch.setattr(snapshot, "_link_all", meanwhile)
        taking = asyncio.create_task(broker.snapshots.take())
        await asyncio.sleep(0)
        with pytest.raises(PreconditionFailed, match="another backup is running"):
            await broker.snapshots.take()
        taken = await taking
        await asyncio.to_thread(publish_some, client, "still", "after")
        with pytest.raises(PreconditionFailed, match="another backup is running"):
            await broker.snapshots.take()
        restored = tmp_path / "restored"
        for file in taken.files:
            source = tmp_path / "data" / "snapshots" / taken.id / file.path
            target = restored / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes()[: file.size])
    async with running(restored) as broker:
        counts = {
            name: queue.describe()["messages"] for name, queue in broker.vhosts["/"].queues.items()
        }
        assert counts == {"grows": 2, "again": 1, "still": 1, "new": 1}


async def test_a_follower_forwards_the_backup_to_the_leader(tmp_path: Path) -> None:
    def take(client: ManagementClient) -> None:
        call(client, "/api/queues/%2F/q", {"durable": True}, "PUT")
        publish(client, "q", "one")
        repository.take(client)
        publish(client, "q", "two")

    repository = BackupRepository(DirectoryStore(tmp_path / "backups"))
    async with pair(tmp_path) as (leader, follower):
        await asyncio.to_thread(take, ManagementClient(follower.addresses[1], "guest", "guest"))
        await same_files(leader, follower)  # the snapshot has not interrupted replication
    repository.restore(repository.find(None), tmp_path / "restored")
    assert not (tmp_path / "restored" / "cluster.json").exists()
    async with running(tmp_path / "restored") as broker:
        assert broker.vhosts["/"].queue("q").describe()["messages"] == 1
