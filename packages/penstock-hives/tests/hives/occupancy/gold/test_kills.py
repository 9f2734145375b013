"""The hives flow, killed at any moment any number of times: the tables of an undisturbed run.

Whatever stands around it goes as well: PostgreSQL, the broker. And nothing depends on one process.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock_hives.sensors import catalogue_writer
from penstock_hives.sensors.fleet import Fleet, Quirks
from penstock_spark.lake import Lake
from penstock_store import Database, EmbeddedServer
from tests.databases import copy_of, grounds_of_its_own, new_template
from tests.fixtures import NewPenstock, needed
from tests.hives.occupancy.gold.fleets import START, tables_of
from tests.hives.occupancy.gold.test_live import send
from tests.peers import Broker, Process
from tests.pipeline.flow.test_kills import HASTE, PROGRAM, ended
from tests.rabbitmq_cluster import NODES, RabbitMQCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.usefixtures("java")]

MASTER = "local[2]"
HOURS = 30.0
#: So small that there are batches enough for every kill to meet another one.
BATCH = 50


@dataclass
class Run:
    """A flow over a fleet's stream, as a process, started as often as it takes."""

    broker: Broker
    data: Path
    url: str  #: the database's
    flags: tuple[str, ...] = ()
    starts: int = field(default=0)

    def start(self, master: str = MASTER) -> Process:
        self.starts += 1
        arguments = [
            *("once", "--url", self.broker.url, "--data", str(self.data), "--database", self.url),
            *("--max-batch", str(BATCH), "--master", master, *self.flags),
            *(word for setting in HASTE for word in ("--spark", setting)),
        ]
        self.data.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        return Process([*PROGRAM, *arguments], self.data / f"{self.starts}.log", environment)

    def finish(self, master: str = MASTER) -> None:
        process = self.start(master)
        try:
            ended(process, 900)
            assert "Traceback" not in process.output(), process.output()[-4000:]
        finally:
            process.end_group(signal.SIGKILL)

    def batches(self) -> int:
        with Database(self.url) as database:
            return int(database.rows("SELECT count(*) AS count FROM pipeline_batch")[0]["count"])

    def more_batches(self, process: Process, count: int) -> None:
        """Returns when so many have been entered since, or it has nothing more to do."""
        wanted, deadline = self.batches() + count, time.monotonic() + 600
        while process.running() and self.batches() < wanted:
            assert time.monotonic() < deadline, process.output()[-4000:]
            time.sleep(0.02)

    def tables(self) -> dict[str, Any]:
        """All of gold that does not tell how often something was told."""
        with Database(self.url) as database:
            return tables_of(database)


def silver(spark: SparkSession, run: Run) -> list[Any]:
    """Every report, and what it adds."""
    frame = Lake(run.data / "lake", "hives").read(spark, "silver.reports")
    columns = ("stream", "offset", "sensor", "delta_in", "delta_out", "quality", "missed")
    return sorted(frame.select(*columns).collect())


def bronze(spark: SparkSession, run: Run) -> list[int]:
    frame = Lake(run.data / "lake", "hives").read(spark, "bronze.messages")
    return sorted(row.offset for row in frame.select("offset").collect())


@dataclass(frozen=True)
class World:
    broker: Broker
    fleet: Fleet
    folder: Path

    def run(self, name: str, database: str, *flags: str) -> Run:
        with Database(database) as opened:
            catalogue_writer.write_catalogue(opened, self.fleet.hives, self.fleet.sensors)
        return Run(self.broker, self.folder / name, database, flags)


@pytest.fixture
def broker(new_penstock: NewPenstock) -> Broker:
    return new_penstock()


@pytest.fixture
def world(broker: Broker, tmp_path: Path) -> World:
    """A fleet's day, with all its troubles, in a stream that has an end."""
    fleet = Fleet(start=START, seed=11, hives=4, quirks=Quirks(restarts=2.0, corrupt=0.01))
    asyncio.run(send(broker.url, fleet, HOURS))
    return World(broker, fleet, tmp_path)


@pytest.fixture
def databases(embedded_template: str) -> Iterator[tuple[str, str]]:
    with copy_of(embedded_template) as first, copy_of(embedded_template) as second:
        yield first, second


@pytest.fixture
def undisturbed(world: World, databases: tuple[str, str]) -> Run:
    run = world.run("undisturbed", databases[0])
    run.finish()
    return run


@pytest.mark.parametrize("kills", [3, 20])
def test_the_driver_is_killed_and_every_count_is_that_of_an_undisturbed_run(
    spark: SparkSession, world: World, databases: tuple[str, str], undisturbed: Run, kills: int
) -> None:
    run = world.run("killed", databases[1])
    for _ in range(kills):
        process = run.start()
        try:
            # While it starts, or anywhere in a batch.
            run.more_batches(process, random.randrange(0, 3))
            time.sleep(random.uniform(0.0, 0.8))
        finally:
            process.end_group(signal.SIGKILL)  # the driver, Java, Python's workers

    run.finish()

    assert run.tables() == undisturbed.tables()
    assert silver(spark, run) == silver(spark, undisturbed)
    assert bronze(spark, run) == list(range(len(bronze(spark, undisturbed))))


def test_the_database_is_killed(world: World, undisturbed: Run) -> None:
    with grounds_of_its_own() as folder, EmbeddedServer(folder / "pg") as server:
        database = new_template(server.url)
        run = world.run("stored", database)
        process = run.start()
        try:
            run.more_batches(process, 2)
            stop_at_once(server)
            with EmbeddedServer(folder / "pg"):
                ended(process, 900)
                tables = run.tables()
        finally:
            process.end_group(signal.SIGKILL)

    assert '"event": "waiting"' in process.output(), process.output()[-4000:]
    assert tables == undisturbed.tables()


def stop_at_once(server: EmbeddedServer) -> None:
    """Without a word to anybody, and without a checkpoint: the next one has to recover."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGQUIT)
    deadline = time.monotonic() + 60
    while server.pid is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_broker_is_killed(
    spark: SparkSession, world: World, databases: tuple[str, str], undisturbed: Run
) -> None:
    run = world.run("brokered", databases[1])
    process = run.start()
    try:
        run.more_batches(process, 2)
        world.broker.kill()
        world.broker.start()
        ended(process, 900)
    finally:
        process.end_group(signal.SIGKILL)

    run.finish()

    assert run.tables() == undisturbed.tables()
    assert silver(spark, run) == silver(spark, undisturbed)


class TestRabbitMQCluster:
    @pytest.fixture
    def broker(self, tmp_path: Path) -> Iterator[Broker]:
        plugins = ("rabbitmq_management",)  # the streams of hives are a pattern
        with needed(RabbitMQCluster, tmp_path / "broker", plugins) as cluster:
            yield cluster

    @pytest.mark.peer
    def test_nodes_are_killed_in_turn(
        self, spark: SparkSession, world: World, databases: tuple[str, str]
    ) -> None:
        assert isinstance(world.broker, RabbitMQCluster)
        api = ("--management-url", f"http://127.0.0.1:{world.broker.management.port}")
        undisturbed = world.run("undisturbed", databases[0], *api)
        undisturbed.finish()
        run = world.run("clustered", databases[1], *api)
        process = run.start()
        try:
            for _ in range(NODES):
                run.more_batches(process, 2)
                world.broker.kill()
                run.more_batches(process, 2)  # with two nodes
                world.broker.start()
            ended(process, 900)
        finally:
            process.end_group(signal.SIGKILL)

        run.finish()

        assert run.tables() == undisturbed.tables()
        assert silver(spark, run) == silver(spark, undisturbed)


@pytest.mark.parametrize("where", ["local-cluster[2,1,1024]", "connect"])
def test_nothing_depends_on_one_process(
    spark: SparkSession, world: World, databases: tuple[str, str], undisturbed: Run, where: str
) -> None:
    if where == "connect":
        pytest.importorskip("grpc", reason="Spark Connect is not installed")
        run = world.run("elsewhere", databases[1], "--remote", MASTER)
        run.finish()
    else:
        run = world.run("elsewhere", databases[1])
        run.finish(where)

    assert run.tables() == undisturbed.tables()
    assert silver(spark, run) == silver(spark, undisturbed)
