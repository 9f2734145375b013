"""Spans of batches, with links to the messages in them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.core.message_spans import MAX_LINKS
from penstock_spark.batch_spans import batch_span
from penstock_spark.connector.columns import HEADERS_TYPE
from penstock_spark.directory import FlowDirectory
from tests.collector import SpanCollector
from tests.peers import Penstock
from tests.pipeline.flow.conftest import Live
from tests.pipeline.flow.tally import Tally
from tests.pipeline.given import channel, declare
from tests.pipeline.landing.test_land_command import land


def traceparent(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


def messages(*headers: list[tuple[str, str]] | None) -> pa.Table:
    return pa.table({"headers": pa.array(headers, HEADERS_TYPE)})


def test_links_are_bounded_distinct_and_of_valid_contexts(telemetry: SpanCollector) -> None:
    table = messages(
        None,
        [("color", "red")],
        [("traceparent", "00-malformed")],
        *([("traceparent", traceparent(number // 2))] for number in range(2, 200)),
    )
    with batch_span("s", 200, lambda: [table], flow="f"):
        pass
    [span] = telemetry.wait_for("process s")
    assert span.links == tuple(
        (f"{number:032x}", f"{number:016x}") for number in range(1, MAX_LINKS + 1)
    )
    assert span.attributes["messaging.batch.message_count"] == 200
    assert span.kind == "CONSUMER"


def test_a_batch_does_not_fail_for_want_of_links(telemetry: SpanCollector) -> None:
    def sample() -> list[pa.Table]:
        raise OSError("no such file")

    with pytest.raises(ValueError, match="of the flow"), batch_span("s", 1, sample):
        raise ValueError("of the flow")
    [span] = telemetry.wait_for("process s")
    assert "of the flow" in span.error


def test_nothing_is_read_while_it_is_off() -> None:
    with batch_span("s", 1, lambda: pytest.fail("read")):
        pass


def test_a_landed_batch(
    telemetry: SpanCollector, penstock: Penstock, name: str, tmp_path: Path
) -> None:
    import pika

    declare(penstock.url, name)
    with channel(penstock.url) as opened:
        for number in range(1, 4):
            properties = pika.BasicProperties(headers={"traceparent": traceparent(number)})
            opened.basic_publish("", name, json.dumps({"n": number}).encode(), properties)
    assert ": 3 rows" in land(penstock.url, "--stream", name, "--to", tmp_path / "table")
    [span] = telemetry.wait_for(f"process {name}")
    assert [link[0] for link in span.links] == [f"{number:032x}" for number in range(1, 4)]
    assert span.attributes["penstock.table"] == "table"


def test_a_batch_of_a_flow(
    telemetry: SpanCollector, spark: SparkSession, name: str, tmp_path: Path
) -> None:
    tally = Tally(tmp_path, f"{name}-*")
    live = Live(spark, tally, FlowDirectory(tmp_path, tally.name))
    live.apply(10)
    [span] = telemetry.wait_for("process colours")
    assert span.attributes["messaging.batch.message_count"] == 10
    assert span.attributes["penstock.flow"] == live.tally.name
