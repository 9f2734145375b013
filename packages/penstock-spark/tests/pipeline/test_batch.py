"""`spark.read`, on Penstock and on RabbitMQ."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pika
import pytest
from pyspark.errors import AnalysisException, PythonException

from tests.pipeline.conftest import Reader
from tests.pipeline.given import channel, declare, numbered, publish, stream


def offsets(reader: Reader, streams: str, **options: object) -> list[int]:
    frame = reader.batch(streams, **options).select("offset")
    return [row.offset for row in frame.collect()]


def test_a_message_is_a_row(reader: Reader, name: str) -> None:
    declare(reader.broker.url, name)
    with channel(reader.broker.url) as opened:
        opened.queue_bind(name, "amq.topic", f"{name}.#")
        full = pika.BasicProperties(
            content_type="text/plain",
            message_id="m-1",
            timestamp=1_700_000_000,
            headers={"text": "a", "number": 7, "flag": True},
        )
        opened.basic_publish("amq.topic", f"{name}.report", b"\x00body", full)
        opened.basic_publish("", name, b"")

    first, second = reader.batch(name).orderBy("offset").collect()

    assert (first.stream, first.offset) == (name, 0)
    assert (first.exchange, first.routing_key) == ("amq.topic", f"{name}.report")
    assert (first.content_type, first.message_id) == ("text/plain", "m-1")
    assert first.headers == {"text": "a", "number": "7", "flag": "true"}
    assert first.body == b"\x00body"
    assert first.timestamp is not None
    assert second.asDict() | {"timestamp": None} == {
        "stream": name,
        "offset": 1,
        "timestamp": None,
        "exchange": "",
        "routing_key": name,
        "content_type": None,
        "message_id": None,
        "headers": None,
        "body": b"",
    }


def test_a_batch_is_all_there_is(reader: Reader, name: str) -> None:
    stream(reader.broker.url, name, 100)

    rows = reader.batch(name).collect()

    assert [row.offset for row in rows] == list(range(100))
    assert [bytes(row.body) for row in rows] == numbered(100)


def test_a_range_between_two_offsets(reader: Reader, name: str) -> None:
    stream(reader.broker.url, name, 30)
    options = {"startingOffsets": json.dumps({name: 7}), "endingOffsets": json.dumps({name: 19})}

    assert offsets(reader, name, **options) == list(range(7, 19))


def test_a_moment_begins_with_what_came_then_or_later(reader: Reader, name: str) -> None:
    stream(reader.broker.url, name, 5)
    # RabbitMQ counts in seconds, so a whole one has to lie between.
    time.sleep(2.1)
    between = datetime.fromtimestamp(int(time.time()), UTC)
    publish(reader.broker.url, name, numbered(5, 5))

    assert offsets(reader, name, startingOffsets=between.isoformat()) == list(range(5, 10))
    assert offsets(reader, name, startingOffsets="2000-01-01") == list(range(10))
    assert offsets(reader, name, startingOffsets="2100-01-01") == []


def test_several_streams(reader: Reader, name: str) -> None:
    for part in range(3):
        stream(reader.broker.url, f"{name}-{part}", 10 + part)

    counts = reader.batch(",".join(f"{name}-{part}" for part in range(3))).groupBy("stream").count()

    assert {row.stream: row["count"] for row in counts.collect()} == {
        f"{name}-{part}": 10 + part for part in range(3)
    }


def test_an_empty_stream_has_no_rows(reader: Reader, name: str) -> None:
    declare(reader.broker.url, name)

    assert offsets(reader, name) == []


def test_a_range_is_divided_among_tasks(reader: Reader, name: str) -> None:
    stream(reader.broker.url, name, 50)

    frame = reader.batch(name, minPartitions=4)

    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in frame.collect()) == list(range(50))


def test_large_messages_come_whole(reader: Reader, name: str) -> None:
    bodies = [b"small", bytes(range(256)) * 4000, b"small again", b"x" * 300_000]
    declare(reader.broker.url, name)
    publish(reader.broker.url, name, bodies)

    assert [bytes(row.body) for row in reader.batch(name).collect()] == bodies


def test_fewer_columns_may_be_asked_for(reader: Reader, name: str) -> None:
    stream(reader.broker.url, name, 3)
    url = reader.broker.url

    frame = (
        reader.spark.read.format("penstock")
        .schema("body BINARY, offset BIGINT")
        .options(url=url, streams=name)
        .load()
    )

    assert [(bytes(row[0]), row[1]) for row in frame.collect()] == list(
        zip(numbered(3), range(3), strict=True)
    )


def test_a_stream_that_is_not_there_is_named(reader: Reader, name: str) -> None:
    with pytest.raises(AnalysisException, match=f"no stream '{name}'"):
        reader.batch(name).collect()


def test_a_queue_is_no_stream(reader: Reader, name: str) -> None:
    with channel(reader.broker.url) as opened:
        opened.queue_declare(name, durable=True)
        opened.basic_publish("", name, b"precious", pika.BasicProperties(delivery_mode=2))

    with pytest.raises(AnalysisException, match=r"no stream|not a stream"):
        reader.batch(name).collect()

    with channel(reader.broker.url) as opened:
        assert opened.basic_get(name, auto_ack=True)[2] == b"precious"


def test_an_offset_that_is_not_there_yet_is_refused(reader: Reader, name: str) -> None:
    stream(reader.broker.url, name, 3)

    with pytest.raises(AnalysisException, match="the next is 3"):
        reader.batch(name, startingOffsets=json.dumps({name: 4})).collect()


def test_a_wrong_password_is_told_and_not_shown(reader: Reader, name: str) -> None:
    url = reader.broker.url.replace("guest:guest", "guest:pa55word")

    with pytest.raises((AnalysisException, PythonException)) as refused:
        reader.batch(name, url=url).collect()

    assert "authentication failed for user 'guest'" in str(refused.value)
    assert "pa55word" not in str(refused.value)
