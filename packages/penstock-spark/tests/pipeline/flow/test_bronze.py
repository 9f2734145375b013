"""Bronze as workers write it, and the stock of a batch as workers read it. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from penstock_spark.bronze import (
    MESSAGES_SCHEMA,
    MESSAGES_TABLE,
    BronzeFiles,
    StreamPositions,
    complete_messages,
)
from penstock_spark.connector.columns import ARROW_TYPES, pack_messages, unpack_messages
from penstock_spark.connector.source import PACKED_SCHEMA, select_columns
from penstock_spark.lake import Lake, StagedBatch
from penstock_spark.sharding import ShardKey

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
COLUMNS = pa.schema(list(ARROW_TYPES.items()))


def arrived(times: Sequence[datetime | None], first: int = 0) -> pa.RecordBatch:
    """Messages as the connector has them."""
    count = len(times)
    columns = {name: pa.nulls(count, kind) for name, kind in ARROW_TYPES.items()}
    columns |= {
        "stream": pa.repeat("s", count),
        "offset": pa.array(range(first, first + count), pa.int64()),
        "timestamp": pa.array(times, ARROW_TYPES["timestamp"]),
        "routing_key": pa.array([f"key.{place % 2}" for place in range(count)]),
        "body": pa.array([b"body"] * count),
    }
    return pa.RecordBatch.from_pydict(columns, COLUMNS)


def kept(times: Sequence[datetime | None], batch: int = 0, first: int = 0) -> pa.Table:
    now = pa.scalar(NOON, ARROW_TYPES["timestamp"])
    return complete_messages(arrived(times, first), now, batch, ShardKey())


def test_days_are_of_utc() -> None:
    evening = datetime.fromisoformat("2026-11-15T23:30:00-05:00")

    assert kept([evening])["day"].to_pylist() == [date(2026, 11, 16)]


def test_a_message_without_a_time_has_that_of_its_batch() -> None:
    early = NOON - timedelta(days=1)

    assert kept([early, None])["timestamp"].to_pylist() == [early, NOON]


def test_a_time_that_no_calendar_has_is_that_of_the_batch() -> None:
    moments = pa.array([-5, 10**18, 0], pa.int64()).cast(ARROW_TYPES["timestamp"])
    batch = arrived([None] * 3).set_column(2, "timestamp", moments)

    now = pa.scalar(NOON, ARROW_TYPES["timestamp"])
    found = complete_messages(batch, now, 0, ShardKey())

    assert found["timestamp"].to_pylist() == [NOON, NOON, datetime(1970, 1, 1, tzinfo=UTC)]


def test_the_ends_of_streams_are_behind_the_last_message() -> None:
    seen = StreamPositions({"other": 3, "s": 1})

    seen.add(kept([NOON, NOON - timedelta(hours=1)], first=4))

    assert seen.ends == {"other": 3, "s": 6}
    assert seen.newest == NOON


def test_what_is_packed_is_what_is_unpacked() -> None:
    batch = arrived([NOON, None])

    packed = pack_messages(batch)

    assert len(packed) == 1
    assert list(unpack_messages(packed["packed"][0])) == [batch]


def test_a_query_that_asks_for_packed_messages_gets_all_their_columns() -> None:
    wanted = select_columns(PACKED_SCHEMA)

    assert wanted.packed
    assert wanted.names == tuple(ARROW_TYPES)


def bronze_files(folder: Path, since: int = 0, until: datetime | None = None) -> BronzeFiles:
    """Two batches, an hour apart, a file each."""
    table = Lake(folder, "tally").table(MESSAGES_TABLE)
    files = []
    for batch in range(2):
        writing = StagedBatch(table.location, "shard").open_writer(MESSAGES_SCHEMA)
        writing.add(kept([NOON + timedelta(hours=batch)] * 2, batch, 2 * batch))
        files += writing.close()
    return BronzeFiles(table.location, tuple(files), since, until=until)


def offsets(found: BronzeFiles) -> list[int]:
    return [row for table in found.read(["offset"]) for row in table["offset"].to_pylist()]


def test_a_stock_is_all_messages_of_its_files(tmp_path: Path) -> None:
    found = bronze_files(tmp_path)

    assert found.whole
    assert offsets(found) == [0, 1, 2, 3]


def test_a_stock_may_be_of_later_batches_or_of_earlier_times_only(tmp_path: Path) -> None:
    assert offsets(bronze_files(tmp_path, since=1)) == [2, 3]
    assert offsets(bronze_files(tmp_path, until=NOON + timedelta(minutes=1))) == [0, 1]
    assert not bronze_files(tmp_path, since=1).whole


def test_columns_that_have_nothing_are_not_read(tmp_path: Path) -> None:
    (first, _) = bronze_files(tmp_path).read(["offset", "routing_key", "headers", "message_id"])

    assert first.schema.names == ["offset", "routing_key"]
    assert first["routing_key"].to_pylist() == ["key.0", "key.1"]


def test_a_worker_reads_the_row_groups_of_its_shards(tmp_path: Path) -> None:
    table = Lake(tmp_path, "tally").table(MESSAGES_TABLE)
    count = 100_000
    batch = arrived([NOON] * count).set_column(
        COLUMNS.get_field_index("routing_key"),
        "routing_key",
        pa.array([f"sensors.s{number % 500}.report" for number in range(count)]),
    )
    key = ShardKey(8, 2)
    now = pa.scalar(NOON, ARROW_TYPES["timestamp"])
    writing = StagedBatch(table.location, "shard").open_writer(MESSAGES_SCHEMA)
    writing.add(complete_messages(batch, now, 0, key))
    (file,) = writing.close()
    found = BronzeFiles(table.location, (file,))

    parts = [list(found.read(["offset", "routing_key"], shards={shard})) for shard in range(8)]

    metadata = pq.read_metadata(tmp_path / "bronze" / "tally" / "messages" / file.path)
    assert metadata.num_row_groups >= 4
    for shard, (rows,) in enumerate(parts):
        keys = rows["routing_key"].unique().to_pylist()
        assert {key.shard_of(name) for name in keys} == {shard}
        assert rows["offset"].to_pylist() == sorted(rows["offset"].to_pylist())
    assert sum(len(rows) for (rows,) in parts) == count


@given(
    keys=st.lists(st.text(st.characters(codec="utf-8"), max_size=12) | st.none(), max_size=30),
    words=st.none() | st.integers(1, 3),
    shards=st.integers(1, 50),
)
def test_a_shard_depends_on_the_key_alone(
    keys: list[str | None], words: int | None, shards: int
) -> None:
    key = ShardKey(shards, words)

    found = key.shards_of(pa.array(keys, pa.string())).tolist()

    assert found == [key.shard_of(each or "") for each in keys]
    assert all(0 <= shard < shards for shard in found)
    if words is not None:
        for each in keys:
            head = ".".join((each or "").replace("/", ".").split(".")[:words])
            assert key.shard_of(each or "") == key.shard_of(head)
