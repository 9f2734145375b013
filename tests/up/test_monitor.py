"""What is seen of the parts: what answers is shown, what does not leaves its place empty."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.up.extension import UpOptions
from penstock.cli.up.monitor import Monitor, View
from penstock_hives.up import FLOW, HivesFigures, HivesProbe
from penstock_spark.bronze import BronzeBatch
from penstock_spark.progress import FlowProgress, RunState
from penstock_store import Database
from tests.databases import copy_of
from tests.peers import Penstock, free_port
from tests.pipeline.given import stream

NOWHERE = f"http://127.0.0.1:{free_port()}"


def view(**addresses: Sequence[str]) -> View:
    runners = [
        SimpleNamespace(part=SimpleNamespace(name=name), addresses=urls, pid=None)
        for name, urls in addresses.items()
    ]
    supervisor: Any = SimpleNamespace(runners=runners)
    return Monitor(supervisor, (), lambda view: None).read()


def look(data: Path, database: str | None = None, **addresses: Sequence[str]) -> HivesFigures:
    probe = HivesProbe(UpOptions(data_dir=data, database=database))
    try:
        return probe.read(addresses)
    finally:
        probe.close()


@pytest.fixture
def database(embedded_template: str) -> Iterator[Database]:
    """Two hives, one of which has just been heard of."""
    with copy_of(embedded_template) as url, Database(url) as opened:
        opened.execute("INSERT INTO account (id, name) VALUES (1, 'one')")
        opened.execute("INSERT INTO address (id, city) VALUES (1, 'Lisbon'), (2, 'Porto')")
        opened.execute("INSERT INTO hive_type (id, code, name) VALUES (91, 'inn', 'Inn')")
        for hive, name in ((1, "Full Inn"), (2, "Old Inn")):
            opened.execute(
                "INSERT INTO hive (id, account_id, address_id, hive_type_id, name, time_zone) "
                "VALUES (%(id)s, 1, %(id)s, 91, %(name)s, 'Europe/Lisbon')",
                {"id": hive, "name": name},
            )
        yield opened


def status(database: Database, hive: int, percent: float, as_of: datetime) -> None:
    database.execute(
        "INSERT INTO hive_status (hive_id, occupancy, raw_occupancy, percent, level, trend, "
        "quality, as_of, version) VALUES (%s, %s, 0, %s, 'busy', 'rising', 'good', %s, 1)",
        (hive, int(percent), percent, as_of),
    )


def test_nothing_that_answers_is_nothing_seen(tmp_path: Path) -> None:
    assert look(tmp_path, broker=[NOWHERE], pipeline=["hives"]) == HivesFigures()
    assert view(broker=[NOWHERE]) == View()


def test_lag_is_what_streams_have_beyond_the_last_batch(
    tmp_path: Path, penstock: Penstock, name: str
) -> None:
    stream(penstock.url, name, 5)
    progress = FlowProgress(tmp_path / "progress", FLOW)
    batch = BronzeBatch(41, 2, (), {name: 2}, datetime.now(UTC))
    progress.record_batch(batch, 0.25, 0.5, time.time())
    seen = look(tmp_path, broker=[penstock.http_url], pipeline=["hives"])
    assert seen.lag == 3
    assert view(broker=[penstock.http_url]).rate is not None
    assert seen.batch is not None
    assert (seen.batch.rows, seen.batch.seconds) == (2, 0.75)


def test_what_the_pipeline_waits_for_is_told(tmp_path: Path) -> None:
    progress = FlowProgress(tmp_path / "progress", FLOW)
    progress.set_state(RunState.WAITING, time.time(), "the broker is away")
    assert look(tmp_path, broker=[], pipeline=["hives"]).waiting == "the broker is away"


def test_the_fullest_hives_come_first(tmp_path: Path, database: Database) -> None:
    status(database, 2, 20.0, datetime(2026, 3, 2, tzinfo=UTC))
    status(database, 1, 80.0, datetime(2026, 3, 2, tzinfo=UTC))
    seen = look(tmp_path, database.url, broker=[], pipeline=[])
    assert [each.hive for each in seen.venues] == ["Full Inn", "Old Inn"]
    assert (seen.hives, seen.people, seen.venues[0].city) == (2, 100, "Lisbon")


def test_a_figure_is_live_when_its_sensor_reported_after_the_start(
    tmp_path: Path, database: Database
) -> None:
    status(database, 1, 80.0, datetime(2026, 3, 2, tzinfo=UTC))
    assert look(tmp_path, database.url, broker=[], pipeline=[]).first is None
    status(database, 2, 20.0, datetime(2100, 1, 1, tzinfo=UTC))
    first = look(tmp_path, database.url, broker=[], pipeline=[]).first
    assert first is not None
    assert first.hive == "Old Inn"
