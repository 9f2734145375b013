"""What a run stands on: a broker, a database with the fleet in it, a folder for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.pipeline.backlog import broker_with, url_of
from benchmarks.pipeline.parts import Spent, spent
from benchmarks.spark.peers import Peer
from penstock_hives.sensors import catalogue_writer
from penstock_hives.sensors.fleet import Fleet, SimulatedHive, SimulatedSensor
from penstock_store import Database, EmbeddedServer, migrate

#: Below the folder of a run.
DATA: Final = "pipeline"


@dataclass(frozen=True, slots=True)
class Ground:
    data: Path
    broker: Peer
    server: EmbeddedServer
    database: Database

    @property
    def url(self) -> str:
        return url_of(self.broker)

    def spent(self) -> Spent:
        """Processor time so far; the driver is this process."""
        pid = self.server.pid
        assert pid is not None
        return spent([process.pid for process in self.broker.processes], pid)


@contextmanager
def ground(
    folder: Path,
    hives: Sequence[SimulatedHive],
    sensors: Sequence[SimulatedSensor],
    backlog: Fleet | None = None,
    reports: int = 0,
) -> Iterator[Ground]:
    """With so many reports of the fleet waiting in the stream `sensors`."""
    with (
        broker_with(backlog, folder, reports) as broker,
        EmbeddedServer(folder / DATA / "pg") as server,
        Database(server.url) as database,
    ):
        migrate(server.url)
        catalogue_writer.write_catalogue(database, hives, sensors)
        yield Ground(folder / DATA, broker, server, database)
