"""Replay: the same tables from bronze, whatever the batches, and the flow goes on meanwhile."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from penstock.client.errors import BrokerUnreachable
from penstock.core.errors import NotFound
from penstock.pipeline.compaction import compact
from penstock.pipeline.flow import Batch
from penstock.pipeline.place import Place
from penstock.pipeline.replay import Replay
from tests.pipeline.engine.conftest import Live, in_lake
from tests.pipeline.engine.tally import SILVER, Tally


def test_a_replay_gives_what_live_batches_gave(
    spark: SparkSession, live: Live, tally: Tally, place: Place
) -> None:
    live.apply(250)
    compact(spark, place.lake)
    before = tally.counts()

    done = Replay(spark, tally, place, batch_rows=120).run()

    assert tally.counts() == before == live.sent
    assert in_lake(place, SILVER) == live.sent
    assert done.rows == 250
    assert place.lake.generation == done.generation == 1


def test_batches_after_a_replay_go_to_the_new_tables(
    spark: SparkSession, live: Live, tally: Tally, place: Place
) -> None:
    live.apply(90)
    Replay(spark, tally, place).run()
    live.apply(90)

    assert tally.counts() == live.sent
    assert in_lake(place, SILVER) == live.sent


def test_batches_during_a_replay_are_in_it(
    spark: SparkSession, live: Live, tally: Tally, place: Place
) -> None:
    live.apply(90)
    overtaken = threading.Event()

    class Overtaken(Tally):
        """Live batches are applied while the first replayed one is."""

        def apply(self, batch: Batch) -> None:
            if not overtaken.is_set():
                overtaken.set()
                live.apply(90)
            super().apply(batch)

    Replay(spark, Overtaken(tally.folder, tally.streams), place).run()

    assert tally.counts() == live.sent
    assert in_lake(place, SILVER) == live.sent


def test_a_replay_that_fails_changes_nothing_and_leaves_nothing(
    spark: SparkSession, live: Live, tally: Tally, place: Place
) -> None:
    live.apply(90)

    class Failing(Tally):
        def apply(self, batch: Batch) -> None:
            super().apply(batch)
            raise RuntimeError("the power went")

    with pytest.raises(RuntimeError, match="the power went"):
        Replay(spark, Failing(tally.folder, tally.streams), place).run()

    assert place.lake.generation == 0
    assert tally.counts() == live.sent
    assert Replay(spark, tally, place).run().generation == 2
    assert place.lake.generations() == {0, 2}  # 0 is bronze's
    assert sorted(path.name for path in tally.folder.glob("gold*")) == ["gold.json"]


@pytest.mark.parametrize("adopted", [False, True])
def test_an_adoption_cut_short_is_finished_before_the_next_batch(
    spark: SparkSession, live: Live, tally: Tally, place: Place, adopted: bool
) -> None:
    live.apply(90)

    class CutShort(Tally):
        def adopt(self, generation: int) -> None:
            if adopted:
                super().adopt(generation)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Replay(spark, CutShort(tally.folder, tally.streams), place).run()
    assert place.lake.generation == 0
    live.apply(30)

    assert place.lake.generation == 1
    assert tally.counts() == live.sent
    assert in_lake(place, SILVER) == live.sent


def test_up_to_a_moment_it_is_left_aside(
    spark: SparkSession, live: Live, tally: Tally, place: Place
) -> None:
    live.apply(90)

    done = Replay(spark, tally, place).run(until=datetime.now(UTC) + timedelta(days=1))

    assert not done.adopted
    assert place.lake.generation == 0
    aside = replace(place).lake.at(done.generation).read(spark, SILVER)
    assert sum(row["count"] for row in aside.collect()) == 90


def test_from_a_moment_what_was_before_is_kept(
    spark: SparkSession, live: Live, tally: Tally, place: Place
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
    done = Replay(spark, flow, place).run(since=datetime.now(UTC) + timedelta(days=2))

    assert done.rows == 0
    assert began[-1] > 0
    assert tally.counts() == live.sent
    assert in_lake(place, SILVER) == live.sent


def test_a_replay_of_a_replay_can_part_it_only_where_its_batches_were(
    spark: SparkSession, live: Live, tally: Tally, place: Place
) -> None:
    live.apply(250)

    Replay(spark, tally, place).run()

    assert place.lake.boundary(1) == 0


def test_what_a_change_of_generations_needs_is_looked_for_first(
    spark: SparkSession, tally: Tally, place: Place, live: Live
) -> None:
    live.apply(60)
    away = replace(tally, adoption=BrokerUnreachable("127.0.0.1", 1, "refused"))

    with pytest.raises(BrokerUnreachable, match="refused"):
        Replay(spark, away, place).run()

    assert place.lake.generations() <= {0}
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert not Replay(spark, away, place).run(until=tomorrow).adopted


def test_nothing_to_replay_is_told(spark: SparkSession, tally: Tally, place: Place) -> None:
    with pytest.raises(NotFound, match="no messages in bronze"):
        Replay(spark, tally, place).run()
