"""Replay: the same tables from bronze, whatever the batches, and the flow goes on meanwhile."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from penstock.client.errors import BrokerUnreachable
from penstock.core.errors import NotFound
from penstock_spark.compaction import compact
from penstock_spark.directory import FlowDirectory
from penstock_spark.flow import FlowBatch
from penstock_spark.replay import FlowReplay
from tests.pipeline.flow.conftest import Live, in_lake
from tests.pipeline.flow.tally import SILVER, Tally


def test_a_replay_gives_what_live_batches_gave(
    spark: SparkSession, live: Live, tally: Tally, directory: FlowDirectory
) -> None:
    live.apply(250)
    compact(directory.lake)
    before = tally.counts()

    done = FlowReplay(spark, tally, directory, batch_rows=120).run()

    assert tally.counts() == before == live.sent
    assert in_lake(directory, SILVER) == live.sent
    assert done.rows == 250
    assert directory.lake.generation == done.generation == 1


def test_batches_after_a_replay_go_to_the_new_tables(
    spark: SparkSession, live: Live, tally: Tally, directory: FlowDirectory
) -> None:
    live.apply(90)
    FlowReplay(spark, tally, directory).run()
    live.apply(90)

    assert tally.counts() == live.sent
    assert in_lake(directory, SILVER) == live.sent


def test_batches_during_a_replay_are_in_it(
    spark: SparkSession, live: Live, tally: Tally, directory: FlowDirectory
) -> None:
    live.apply(90)
    overtaken = threading.Event()

    class Overtaken(Tally):
        """Live batches are applied while the first replayed one is."""

        def apply(self, batch: FlowBatch) -> None:
            if not overtaken.is_set():
                overtaken.set()
                live.apply(90)
            super().apply(batch)

    FlowReplay(spark, Overtaken(tally.folder, tally.streams), directory).run()

    assert tally.counts() == live.sent
    assert in_lake(directory, SILVER) == live.sent


def test_a_replay_that_fails_changes_nothing_and_leaves_nothing(
    spark: SparkSession, live: Live, tally: Tally, directory: FlowDirectory
) -> None:
    live.apply(90)

    class Failing(Tally):
        def apply(self, batch: FlowBatch) -> None:
            super().apply(batch)
            raise RuntimeError("the power went")

    with pytest.raises(RuntimeError, match="the power went"):
        FlowReplay(spark, Failing(tally.folder, tally.streams), directory).run()

    assert directory.lake.generation == 0
    assert tally.counts() == live.sent
    assert FlowReplay(spark, tally, directory).run().generation == 2
    assert directory.lake.generations() == {0, 2}  # the one before stays for its readers
    compact(directory.lake, grace=timedelta())
    assert directory.lake.generations() == {2}
    assert sorted(path.name for path in tally.folder.glob("gold*")) == ["gold.json"]


@pytest.mark.parametrize("adopted", [False, True])
def test_an_adoption_cut_short_is_finished_before_the_next_batch(
    spark: SparkSession, live: Live, tally: Tally, directory: FlowDirectory, adopted: bool
) -> None:
    live.apply(90)

    class CutShort(Tally):
        def adopt(self, generation: int) -> None:
            if adopted:
                super().adopt(generation)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FlowReplay(spark, CutShort(tally.folder, tally.streams), directory).run()
    assert directory.lake.generation == 0
    live.apply(30)

    assert directory.lake.generation == 1
    assert tally.counts() == live.sent
    assert in_lake(directory, SILVER) == live.sent


def test_up_to_a_moment_it_is_left_aside(
    spark: SparkSession, live: Live, tally: Tally, directory: FlowDirectory
) -> None:
    live.apply(90)

    done = FlowReplay(spark, tally, directory).run(until=datetime.now(UTC) + timedelta(days=1))

    assert not done.adopted
    assert directory.lake.generation == 0
    aside = replace(directory).lake.at(done.generation).read(spark, SILVER)
    assert sum(row["count"] for row in aside.collect()) == 90


def test_from_a_moment_what_was_before_is_kept(
    spark: SparkSession, live: Live, tally: Tally, directory: FlowDirectory
) -> None:
    live.apply(90)
    began = []

    class Remembering(Tally):
        """Can have its tables as they were before any batch."""

        def begin_rebuild(self, generation: int, since: int) -> int:
            began.append(since)
            (self.folder / f"gold-{generation}.json").write_bytes(
                (self.folder / "gold.json").read_bytes()
            )
            return since

    flow = Remembering(tally.folder, tally.streams)
    later = datetime.now(UTC) + timedelta(days=2)
    done = FlowReplay(spark, flow, directory).run(since=later)

    assert done.rows == 0
    assert began[-1] > 0
    assert tally.counts() == live.sent
    assert in_lake(directory, SILVER) == live.sent
    # What a replay has combined cannot be divided by the next.
    FlowReplay(spark, tally, directory).run()
    began.clear()
    FlowReplay(spark, flow, directory).run(since=datetime.now(UTC) - timedelta(days=2))
    assert began == [0]


def test_what_a_change_of_generations_needs_is_looked_for_first(
    spark: SparkSession, tally: Tally, directory: FlowDirectory, live: Live
) -> None:
    live.apply(60)
    away = replace(tally, adoption=BrokerUnreachable("127.0.0.1", 1, "refused"))

    with pytest.raises(BrokerUnreachable, match="refused"):
        FlowReplay(spark, away, directory).run()

    assert directory.lake.generations() <= {0}
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert not FlowReplay(spark, away, directory).run(until=tomorrow).adopted


def test_nothing_to_replay_is_told(
    spark: SparkSession, tally: Tally, directory: FlowDirectory
) -> None:
    with pytest.raises(NotFound, match="no messages in bronze"):
        FlowReplay(spark, tally, directory).run()
