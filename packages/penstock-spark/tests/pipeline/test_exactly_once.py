"""What is in the stream is in the table, once, whoever is killed: driver, worker or broker."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client.amqp091.bulk_publisher import BulkPublisher
from penstock.core.basic_properties import (
    PERSISTENT,
    BasicProperties,
    encode_header,
    encode_shortstr,
)
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.streams.backend import StreamRange
from penstock_spark.streams.endpoint import find_endpoint
from tests.fixtures import missing, needed
from tests.peers import Broker, PeerMissing, Penstock, Process, RabbitMQ
from tests.pipeline.conftest import Reader, ended
from tests.pipeline.given import declare, numbered
from tests.pipeline.processes import until
from tests.rabbitmq_cluster import RabbitMQCluster

pytestmark = pytest.mark.usefixtures("java")

MASTER = "local[2,4]"
STREAMS = 2
slow = pytest.mark.slow


#: RabbitMQ over AMQP, and with its stream plugin.
_RABBITMQ: dict[str, tuple[str, ...]] = {"rabbitmq": (), "chunks": ("rabbitmq_stream",)}


@pytest.fixture(
    params=[
        "penstock",
        *(pytest.param(kind, marks=[pytest.mark.peer, slow]) for kind in (*_RABBITMQ, "cluster")),
    ]
)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker for this test alone, which may be killed; of a cluster, one node after another."""
    if request.param == "cluster":
        with needed(RabbitMQCluster, tmp_path / "broker") as cluster:
            yield cluster
        return
    try:
        server: Broker
        if request.param in _RABBITMQ:
            server = RabbitMQ(tmp_path / "broker", _RABBITMQ[request.param])
        else:
            server = Penstock(tmp_path / "broker")
    except PeerMissing as peer:
        missing(peer)
        raise
    server.start()
    yield server
    server.kill()


class Flow:
    """Messages that keep coming, into several streams, until told to stop."""

    def __init__(self, url: str, name: str) -> None:
        self.names = [f"{name}-{part}" for part in range(STREAMS)]
        self._url = url
        self._end = threading.Event()
        self._failure: Exception | None = None
        for each in self.names:
            declare(url, each)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._publish()
        except Exception as error:
            self._failure = error

    def _publish(self) -> None:
        routes = [b"\x00" + encode_shortstr(each, "routing_key") for each in self.names]
        count = 0
        while not self._end.is_set():
            # What RabbitMQ takes in while its streams are starting it may never confirm: a
            # publisher that waited in vain is followed by another.
            with (
                suppress(TimeoutError),
                BulkPublisher(
                    parse_amqp_url(self._url), mandatory=True, retry_seconds=60.0
                ) as publisher,
            ):
                while not self._end.wait(0.05):
                    for body in numbered(random.randrange(1, 60), count):
                        said = BasicProperties(message_id=body.decode(), delivery_mode=PERSISTENT)
                        header = encode_header(said, len(body))
                        publisher.publish(random.choice(routes), header, body)
                        count += 1
                    publisher.flush()

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._end.set()
            self._thread.join()
        assert self._failure is None, self._failure

    def content(self) -> Counter[tuple[str, int, bytes]]:
        """What the streams hold, read without Spark."""
        streams = find_endpoint(parse_amqp_url(self._url), None).open()
        ends = streams.next_offsets(self.names, dict.fromkeys(self.names, 1))
        return Counter(
            (name, offset, body)
            for name in self.names
            for batch in streams.read(StreamRange(name, 0, ends[name] or 0))
            for offset, body in zip(
                batch.column("offset").to_pylist(), batch.column("body").to_pylist(), strict=True
            )
        )


def _port(broker: Broker) -> int:
    """Of the stream plugin; where a broker has none, nothing answers there."""
    return broker.stream_port if isinstance(broker, RabbitMQ) else 0


class Driver:
    """The program `driver.py`, started as often as it takes."""

    def __init__(self, folder: Path, broker: Broker, names: list[str]) -> None:
        self._folder = folder
        self._starts = 0
        self._options = [
            f"url={broker.url}",
            f"streamPort={_port(broker)}",
            f"streams={','.join(names)}",
            "startingOffsets=earliest",
            "minPartitions=4",
        ]

    def start(self, how: str = "follow") -> Process:
        self._starts += 1
        log = self._folder / f"driver-{self._starts}.log"
        program = [sys.executable, "-m", "tests.pipeline.driver", str(self._folder), MASTER, how]
        limit = [] if how == "once" else ["maxOffsetsPerTrigger=300"]
        return Process([*program, *self._options, *limit], log, dict(os.environ))


def written(spark: SparkSession, folder: Path) -> Counter[tuple[str, int, bytes]]:
    table = spark.read.parquet(str(folder / "out")).select("stream", "offset", "body")
    return Counter((row.stream, row.offset, bytes(row.body)) for row in table.collect())


def batches(output: str) -> int:
    return output.count("\nbatch ")


def last_batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def after_batches(process: Process, count: int) -> None:
    """Returns when the driver has done so many more batches."""
    wanted = batches(process.output()) + count
    until(process, lambda output: batches(output) >= wanted)


def workers(process: Process) -> list[int]:
    """The Python workers below a driver: what Spark's daemon has forked."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                stat = (entry / "stat").read_text()
                parents[int(entry.name)] = int(stat[stat.rindex(")") + 2 :].split()[1])
                commands[int(entry.name)] = (entry / "cmdline").read_text()
    below = {process.pid}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    daemons = {pid for pid in below if "pyspark.daemon" in commands.get(pid, "")}
    return [pid for pid in daemons if parents[pid] in daemons]


def finish(driver: Driver) -> None:
    process = driver.start("once")
    until(process, lambda output: "\ndone" in output)
    process.end(signal.SIGTERM)


@slow
@pytest.mark.timeout(900)
def test_the_driver_is_killed(
    broker: Broker, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    flow = Flow(broker.url, name)
    driver = Driver(tmp_path, broker, flow.names)
    with flow.running():
        for _ in range(4):
            process = driver.start()
            after_batches(process, random.randrange(1, 4))
            time.sleep(random.uniform(0, 0.5))  # anywhere in a batch
            process.end_group(signal.SIGKILL)

    finish(driver)

    assert written(spark, tmp_path) == flow.content()


@slow
@pytest.mark.timeout(900)
def test_a_worker_is_killed(broker: Broker, spark: SparkSession, tmp_path: Path, name: str) -> None:
    flow = Flow(broker.url, name)
    driver = Driver(tmp_path, broker, flow.names)
    killed = 0
    process = driver.start()
    with flow.running():
        for _ in range(5):
            after_batches(process, 1)
            for pid in workers(process):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        after_batches(process, 1)
    process.end_group(signal.SIGKILL)

    finish(driver)

    assert killed > 0
    assert written(spark, tmp_path) == flow.content()


@pytest.mark.timeout(900)
def test_the_broker_is_killed(own: Broker, spark: SparkSession, tmp_path: Path, name: str) -> None:
    flow = Flow(own.url, name)
    reader = Reader(spark, own, tmp_path)
    options = {"startingOffsets": "earliest", "retrySeconds": 60, "streamPort": _port(own)}
    frame = reader.stream(",".join(flow.names), **options)
    query = reader.start(frame)
    with flow.running():
        for _ in range(3):
            wanted = last_batch(query) + 3
            while last_batch(query) < wanted:
                assert query.isActive, query.exception()
                time.sleep(0.02)
            own.kill()
            own.start()
    query.stop()

    ended(lambda: reader.start(frame, trigger={"availableNow": True}))

    assert written(spark, tmp_path) == flow.content()
