"""Retention that took what was not read yet, and streams that come and go; on both brokers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from penstock.pipeline.amqp.address import parse_url
from penstock.pipeline.brokers.opening import find_door
from tests.pipeline.conftest import Reader
from tests.pipeline.given import declare, delete, publish, stream

SMALL = {"x_stream_max_segment_size_bytes": 2000, "x_max_length_bytes": 4000}


def first_offset(reader: Reader, name: str) -> int:
    streams = find_door(parse_url(reader.broker.url), None).open()
    try:
        return streams.firsts([name])[name] or 0
    finally:
        streams.close()


def overflow(reader: Reader, name: str, beyond: int) -> None:
    """Publish until retention has taken everything up to an offset."""
    for _ in range(50):
        publish(reader.broker.url, name, [b"x" * 500] * 100)
        if first_offset(reader, name) > beyond:
            publish(reader.broker.url, name, [b"left"])
            return
    raise AssertionError("retention takes nothing")


def test_what_retention_took_before_it_was_read_ends_the_query(reader: Reader, name: str) -> None:
    declare(reader.broker.url, name, **SMALL)
    publish(reader.broker.url, name, [b"read"] * 10)
    reader.run(name, startingOffsets="earliest")
    overflow(reader, name, beyond=10)

    words = r"from offset 10 to \d+ are no longer there: retention.*failOnDataLoss=false"
    with pytest.raises(StreamingQueryException, match=words):
        reader.run(name)


def test_or_is_passed_over_when_told_so(reader: Reader, name: str) -> None:
    declare(reader.broker.url, name, **SMALL)
    publish(reader.broker.url, name, [b"read"] * 10)
    reader.run(name, startingOffsets="earliest")
    overflow(reader, name, beyond=10)

    reader.run(name, failOnDataLoss=False)

    offsets = [offset for _, offset in reader.offsets()]
    assert offsets[:10] == list(range(10))
    assert offsets[10] > 10
    assert len(set(offsets)) == len(offsets)


@pytest.mark.slow
def test_a_batch_that_asks_for_what_is_gone_is_refused(reader: Reader, name: str) -> None:
    declare(reader.broker.url, name, **SMALL)
    overflow(reader, name, beyond=0)

    with pytest.raises(AnalysisException, match="no longer there"):
        reader.batch(name, startingOffsets=json.dumps({name: 0})).collect()


@pytest.mark.slow
def test_earliest_is_what_there_is(reader: Reader, name: str) -> None:
    declare(reader.broker.url, name, **SMALL)
    overflow(reader, name, beyond=0)

    offsets: list[Any] = [row.offset for row in reader.batch(name).select("offset").collect()]

    assert offsets[0] > 0
    assert offsets == sorted(offsets)


@pytest.mark.slow
def test_a_deleted_stream_is_left_behind_when_told_so(reader: Reader, name: str) -> None:
    both = f"{name}-a,{name}-b"
    stream(reader.broker.url, f"{name}-a", 3)
    stream(reader.broker.url, f"{name}-b", 3)
    reader.run(both, startingOffsets="earliest")
    delete(reader.broker.url, f"{name}-b")
    publish(reader.broker.url, f"{name}-a", [b"more"] * 2)

    reader.run(both, failOnDataLoss=False)

    assert [offset for each, offset in reader.offsets() if each == f"{name}-a"] == list(range(5))
