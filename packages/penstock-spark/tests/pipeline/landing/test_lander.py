"""Exactly once, whatever happens in between; growth; positions; columns; dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import ConfigurationError, NotFound, PreconditionFailed
from penstock_spark.errors import DataLost
from penstock_spark.lake.delta import LakeTable
from penstock_spark.landing.lander import TableLander
from penstock_spark.landing.runner import LandingRunner
from penstock_spark.landing.source import StreamSource
from tests.pipeline.landing.memory_streams import (
    MemoryStreams,
    Sent,
    dead,
    land_all,
    lander,
    rows,
)


class Killed(BaseException):
    """The end of a process, which no code survives."""


@contextmanager
def killed_at(step: int) -> Iterator[None]:
    """The process ends before or after one of its commits; every second step is after one."""
    steps = iter(range(10**6))
    mended: list[tuple[str, Callable[..., Any]]] = []

    def breaking(name: str) -> None:
        method = getattr(LakeTable, name)
        mended.append((name, method))

        def call(*args: Any, **options: Any) -> Any:
            if next(steps) == step:
                raise Killed
            done = method(*args, **options)
            if next(steps) == step:
                raise Killed
            return done

        setattr(LakeTable, name, call)

    for each in ("commit", "create", "add_columns"):
        breaking(each)
    try:
        yield
    except Killed:
        pass
    finally:
        for name, method in mended:
            setattr(LakeTable, name, method)


fields = st.sampled_from(["a", "b", "c", "d e", "A"])
scalars = st.none() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=3) | st.booleans()
some_records = st.dictionaries(fields, scalars | st.fixed_dictionaries({"x": scalars}), max_size=4)
some_bodies = some_records.map(lambda record: json.dumps(record).encode()) | st.sampled_from(
    [b"{", b"[]", b'{"a":NaN}', b'{"_offset":1}', b"\xff"]
)


@settings(max_examples=15)
@given(
    st.lists(st.lists(some_bodies, min_size=1, max_size=12), min_size=1, max_size=3),
    st.lists(st.integers(0, 14), max_size=6),
    st.integers(1, 20),
)
def test_every_message_is_in_one_table_once(
    arrivals: list[list[bytes]], kills: list[int], max_batch: int
) -> None:
    """However often the lander is killed, and however the messages are cut into batches."""
    with TemporaryDirectory() as folder:
        streams = MemoryStreams()
        pending = iter(kills)
        for number, bodies in enumerate(arrivals):
            streams.publish("orders", *bodies)
            streams.publish("returns", *bodies[: number + 1])
            for _ in range(2):
                with killed_at(next(pending, -1)):
                    opened = lander(streams, f"{folder}/t", max_batch, stream="orders,returns")
                    land_all(opened)
        opened = land_all(lander(streams, f"{folder}/t", max_batch, stream="orders,returns"))
        landed = rows(opened, "_stream", "_offset")
        letters = dead(opened, "_stream", "_offset", "body")
        published = {
            (stream, offset): each.body
            for stream, sent in streams.streams.items()
            for offset, each in enumerate(sent)
        }
        assert sorted([*landed, *((stream, offset) for stream, offset, _ in letters)]) == sorted(
            published
        )
        assert all(published[stream, offset] == body for stream, offset, body in letters)


def test_rows_are_what_was_published(tmp_path: Path) -> None:
    streams = MemoryStreams()
    streams.publish("orders", *(b'{"id":%d,"n":"%d"}' % (n, n) for n in range(250)))
    opened = land_all(lander(streams, tmp_path / "t"))
    assert rows(opened, "_stream", "_offset", "id", "n") == [
        ("orders", n, n, str(n)) for n in range(250)
    ]
    assert opened.totals.batches == 3
    assert not opened.dead_letters.exists()


def test_duckdb_and_polars_read_the_same_rows(tmp_path: Path) -> None:
    import duckdb
    import polars as pl
    from deltalake import DeltaTable

    streams = MemoryStreams()
    streams.publish("orders", b'{"a":1,"o":{"x":1}}', b'{"a":2,"o":{"y":[2]},"b":"c"}')
    land_all(lander(streams, tmp_path / "t", 1))
    in_polars = pl.read_delta(str(tmp_path / "t")).sort("_offset").to_dicts()
    dataset = DeltaTable(tmp_path / "t").to_pyarrow_dataset()
    relation = duckdb.from_arrow(dataset).order("_offset")
    in_duckdb = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    for each in (*in_polars, *in_duckdb):
        each["_timestamp"] = each["_timestamp"].timestamp()
    assert in_polars == in_duckdb
    assert [each["o"] for each in in_polars] == [{"x": 1, "y": None}, {"x": None, "y": [2]}]


def test_columns_are_added_and_keep_their_types(tmp_path: Path) -> None:
    streams = MemoryStreams()
    streams.publish("orders", b'{"a":1}')
    land_all(lander(streams, tmp_path / "t"))
    streams.publish("orders", b'{"a":2,"b":"x"}', b'{"a":"no","b":"y"}', b'{"b":{"c":1}}')
    opened = land_all(lander(streams, tmp_path / "t"))
    assert rows(opened, "a", "b") == [(1, None), (2, "x"), (None, '{"c": 1}')]
    assert dead(opened, "_offset", "reason", "detail") == [
        (2, "does_not_fit", "field 'a': \"no\" is not BIGINT")
    ]


def test_a_publisher_whose_keys_are_data_cannot_fill_the_table_with_columns(tmp_path: Path) -> None:
    streams = MemoryStreams()
    streams.publish("orders", b'{"a":1}')
    land_all(lander(streams, tmp_path / "t"))
    many = json.dumps({f"k{n}": n for n in range(2000)}).encode()
    streams.publish("orders", b'{"a":2}', many, b'{"a":3}')
    opened = land_all(lander(streams, tmp_path / "t"))
    assert rows(opened, "a") == [1, 2, 3]
    assert dead(opened, "_offset", "reason") == [(2, "unknown_field")]


def test_a_given_schema_is_the_table_and_can_grow(tmp_path: Path) -> None:
    streams = MemoryStreams()
    streams.publish("orders", b'{"id":1,"at":"2026-01-01T00:00:00Z","x":1}')
    first = lander(streams, tmp_path / "t", schema="id INT, at TIMESTAMP", new_columns="ignore")
    land_all(first)
    streams.publish("orders", b'{"id":2,"x":5}')
    second = lander(streams, tmp_path / "t", schema="id INT, x INT", new_columns="ignore")
    assert rows(land_all(second), "id", "at", "x") == [
        (1, datetime(2026, 1, 1, tzinfo=UTC), None),
        (2, None, 5),
    ]
    with pytest.raises(PreconditionFailed, match="column id is int32, not string"):
        lander(streams, tmp_path / "t", schema="id STRING").land_batch()


def test_columns_come_from_headers_and_keys(tmp_path: Path) -> None:
    streams = MemoryStreams()
    streams.publish(
        "orders",
        Sent(b'{"a":1}', "sensors.s1.report", {"tenant": "t1", "n": 7}),
        Sent(b'{"a":2}', "x", timestamp_ms=None),
        Sent(b'{"a":3,"tenant":"mine"}'),
    )
    columns = {
        "tenant": "header:tenant",
        "n": "header:n",
        "key": "key",
        "sensor": "key:2",
        "topic": "topic",
        "level": "topic:1",
    }
    opened = land_all(lander(streams, tmp_path / "t", columns=columns))
    assert rows(opened, "tenant", "n", "key", "sensor", "topic", "level", "a") == [
        ("t1", "7", "sensors.s1.report", "s1", "sensors/s1/report", "sensors", 1),
        (None, None, "x", None, "x", "x", 2),
    ]
    assert dead(opened, "_offset", "reason") == [(2, "reserved_name")]
    assert rows(opened, "_timestamp")[0] == datetime(2026, 1, 1, tzinfo=UTC)
    assert rows(opened, "_timestamp")[1].year >= 2026  # the broker did not say


def test_tables_are_partitioned_by_day_and_by_columns(tmp_path: Path) -> None:
    streams = MemoryStreams()
    day = 86_400_000
    odd = "ä/b=c d%41'\""
    streams.publish(
        "orders",
        *(
            Sent(
                json.dumps({"kind": kind, "n": n}).encode(),
                timestamp_ms=1_767_225_600_000 + n * day,
            )
            for n, kind in enumerate(["x", odd, None, "x"])
        ),
    )
    opened = land_all(lander(streams, tmp_path / "t", partition=["day", "kind"]))
    assert opened.table.partition_by == ("_day", "kind")
    assert rows(opened, "_day", "kind", "n") == [
        (date(2026, 1, 1), "x", 0),
        (date(2026, 1, 2), odd, 1),
        (date(2026, 1, 3), None, 2),
        (date(2026, 1, 4), "x", 3),
    ]
    with pytest.raises(PreconditionFailed, match="partitioned by _day, kind, not by nothing"):
        lander(streams, tmp_path / "t").land_batch()


def test_a_sample_without_a_usable_message_stops_nothing(tmp_path: Path) -> None:
    streams = MemoryStreams()
    streams.publish("orders", b"{", b"[]")
    opened = land_all(lander(streams, tmp_path / "t", partition="kind"))
    streams.publish("orders", b'{"kind":"x","n":1}')
    land_all(opened)
    assert rows(opened, "_offset", "kind", "n") == [(2, "x", 1)]
    assert dead(opened, "_offset") == [0, 1]


def test_latest_begins_after_what_is_there_and_stays(tmp_path: Path) -> None:
    streams = MemoryStreams()
    streams.publish("orders", b'{"a":1}', b'{"a":2}')
    assert not lander(streams, tmp_path / "t", start="latest").land_batch()
    streams.publish("orders", b'{"a":3}')
    assert rows(land_all(lander(streams, tmp_path / "t", start="latest")), "a") == [3]


def test_a_stream_that_appears_later_is_landed_from_its_beginning(tmp_path: Path) -> None:
    streams = MemoryStreams({"orders-1": []})
    streams.publish("orders-1", b'{"a":1}')
    opened = land_all(lander(streams, tmp_path / "t", stream="orders-*"))
    streams.publish("orders-2", b'{"a":2}')
    assert rows(land_all(opened), "_stream", "a") == [("orders-1", 1), ("orders-2", 2)]


def test_two_landers_of_a_stream_duplicate_nothing(tmp_path: Path) -> None:
    """The second commits between the decoding and the commit of the first."""
    streams = MemoryStreams()
    bodies = [b'{"a":%d}' % n if n % 3 else b"{" for n in range(20)]
    streams.publish("orders", *bodies)
    first, second = (lander(streams, tmp_path / "t", most) for most in (7, 3))
    decode, turns = first._decode, iter(range(3))

    def interrupted(*args: Any) -> Any:
        report = decode(*args)
        if next(turns, None) is not None:
            second.land_batch()
        return report

    first._decode = interrupted  # type: ignore[assignment,method-assign]
    land_all(first)
    assert rows(first, "_offset") == [n for n in range(20) if n % 3]
    assert dead(first, "_offset") == [n for n in range(20) if not n % 3]


def test_a_lander_that_never_wins_says_so(tmp_path: Path) -> None:
    streams = MemoryStreams()
    streams.publish("orders", *[b'{"a":1}'] * 50)
    first, second = (lander(streams, tmp_path / "t", 3) for _ in range(2))
    decode = first._decode

    def late(*args: Any) -> Any:
        report = decode(*args)
        second.land_batch()
        return report

    first._decode = late  # type: ignore[assignment,method-assign]
    with pytest.raises(PreconditionFailed, match="another process lands stream 'orders'"):
        land_all(first)


def test_lost_messages_are_reported(tmp_path: Path) -> None:
    streams = MemoryStreams()
    streams.publish("orders", *[b'{"a":1}'] * 5)
    opened = land_all(lander(streams, tmp_path / "t"))
    streams.publish("orders", *[b'{"a":1}'] * 5)
    streams.first = 7
    with pytest.raises(DataLost, match="offset 5 to 6"):
        opened.land_batch()
    del streams.streams["orders"][2:]
    with pytest.raises(DataLost, match="ends at offset 2"):
        opened.land_batch()


def test_a_missing_stream_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="'orders'"):
        lander(MemoryStreams(), tmp_path / "t").land_batch()


def test_restored_rows_are_not_landed_again(tmp_path: Path) -> None:
    streams = MemoryStreams()
    streams.publish("orders", b'{"a":1}')
    opened = land_all(lander(streams, tmp_path / "t"))
    version = opened.table.version
    streams.publish("orders", b'{"a":2}')
    land_all(opened)
    opened.table.restore(version)
    streams.publish("orders", b'{"a":3}')
    assert rows(land_all(lander(streams, tmp_path / "t")), "a") == [1, 3]


# Runs of several tables


def test_once_lands_what_there_was_at_the_beginning(tmp_path: Path) -> None:
    streams = MemoryStreams()
    streams.publish("orders", *[b'{"a":1}'] * 25)
    opened = lander(streams, tmp_path / "t", 10)
    land = opened.land_batch

    def busy(*args: Any) -> bool:
        streams.publish("orders", b'{"a":2}')
        return land(*args)

    opened.land_batch = busy  # type: ignore[assignment,method-assign]
    LandingRunner([opened], once=True).run()
    assert len(rows(opened, "a")) == 25


def test_a_table_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    streams = MemoryStreams()
    streams.publish("orders", b'{"a":1}')
    wrong = lander(streams, tmp_path / "wrong", schema="a INT", partition="b")
    right = lander(streams, tmp_path / "right")
    with pytest.raises(PreconditionFailed, match="no column 'b' to partition by"):
        LandingRunner([wrong, right], once=True).run()
    assert rows(right, "a") == [1]


def test_an_unavailable_broker_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = MemoryStreams()
    streams.publish("orders", b'{"a":1}')
    opened = lander(streams, tmp_path / "t")
    failures = iter([ConnectionRefusedError("down"), ConnectionResetError("down")])
    land = opened.land_batch

    def unreliable(*args: Any) -> bool:
        if (error := next(failures, None)) is not None:
            raise error
        return land(*args)

    opened.land_batch = unreliable  # type: ignore[assignment,method-assign]
    monkeypatch.setattr(StreamSource, "forget_endpoint", lambda source: None)
    now = iter(range(0, 10_000, 5))
    LandingRunner([opened], once=True, clock=lambda: next(now)).run()
    assert rows(opened, "a") == [1]


# Settings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"format": "xml"}, "format: should be 'json'"),
        ({"stream": ""}, "stream is missing"),
        ({"strem": "x"}, "strem: unknown setting"),
        ({"csv_header": True}, "for format csv"),
        ({"message": "a.B"}, "for format protobuf"),
        ({"format": "avro"}, "needs --schema FILE"),
        ({"format": "avro", "schema": "/no/such.avsc"}, "no such file"),
        ({"format": "text", "schema": "a INT"}, "has no schema"),
        ({"columns": {"a": "headers:x"}}, "should be header:NAME"),
        ({"columns": {"_offset": "key"}}, "reserved"),
        ({"start": "soon"}, "is not a position"),
        ({"to": "ftp://x/y"}, "should be a path"),
        ({"mqtt": "a/#/b", "stream": ""}, "mqtt 'a/#/b'"),
        ({"mqtt": "a", "stream": "x,y"}, "one stream"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        _opened(options)


def _opened(options: dict[str, Any]) -> TableLander:
    return lander(MemoryStreams(), options.pop("to", "/tmp/never-created"), **options)
