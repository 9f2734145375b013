"""`df.write` and `df.writeStream`, on Penstock and on RabbitMQ."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame

from tests.pipeline.conftest import Reader, ended
from tests.pipeline.given import channel, declare, stream, taken


def write(frame: DataFrame, reader: Reader, **options: Any) -> None:
    given: dict[str, Any] = {"url": reader.broker.url, "retrySeconds": 30, **options}
    frame.write.format("penstock").options(**given).mode("append").save()


def queue(reader: Reader, name: str, **arguments: Any) -> str:
    with channel(reader.broker.url) as opened:
        opened.queue_declare(name, durable=True, arguments=arguments)
        opened.queue_bind(name, "amq.topic", f"{name}.#")
    return name


def test_a_row_is_a_message(reader: Reader, name: str) -> None:
    queue(reader, name)
    row = ("amq.topic", f"{name}.a", "text/plain", "m-1", {"k": "v"}, bytearray(b"\x00body"))
    schema = (
        "exchange STRING, routing_key STRING, content_type STRING, message_id STRING, "
        "headers MAP<STRING, STRING>, body BINARY"
    )

    write(reader.spark.createDataFrame([row], schema), reader)

    [(method, properties, body)] = taken(reader.broker.url, name)
    assert (method.exchange, method.routing_key, body) == ("amq.topic", f"{name}.a", b"\x00body")
    assert (properties.content_type, properties.message_id) == ("text/plain", "m-1")
    assert properties.headers == {"k": "v"}
    assert properties.delivery_mode == 2


def test_what_is_missing_has_a_default(reader: Reader, name: str) -> None:
    queue(reader, name)

    write(reader.spark.sql("SELECT 'žluť' AS body, 7 AS unused"), reader, routingKey=name)

    [(method, properties, body)] = taken(reader.broker.url, name)
    assert (method.exchange, body) == ("", "žluť".encode())
    assert properties.headers is None


def test_every_row_has_an_id_of_its_own(reader: Reader, name: str) -> None:
    queue(reader, name)
    rows = reader.spark.range(1000).repartition(3).selectExpr("CAST(id AS STRING) AS body")

    write(rows, reader, routingKey=name)

    found = taken(reader.broker.url, name)
    assert sorted(int(body) for _, _, body in found) == list(range(1000))
    assert len({properties.message_id for _, properties, _ in found}) == 1000


def test_the_exchange_given_wins_over_the_column(reader: Reader, name: str) -> None:
    queue(reader, name)
    rows = reader.spark.sql(f"SELECT 'nowhere' AS exchange, '{name}.x' AS routing_key, 'b' AS body")

    write(rows, reader, exchange="amq.topic")

    assert len(taken(reader.broker.url, name)) == 1


def test_what_no_queue_takes_is_an_error(reader: Reader, name: str) -> None:
    rows = reader.spark.sql("SELECT 'b' AS body")

    with pytest.raises(PythonException, match=f"unroutable message: .*{name}"):
        write(rows, reader, routingKey=name)


def test_what_nobody_has_to_take_is_none(reader: Reader, name: str) -> None:
    write(reader.spark.sql("SELECT 'b' AS body"), reader, routingKey=name, mandatory=False)


def test_an_exchange_that_is_not_there_is_named(reader: Reader, name: str) -> None:
    rows = reader.spark.sql("SELECT 'b' AS body")

    with pytest.raises(PythonException, match=f"no exchange '{name}'"):
        write(rows, reader, routingKey="k", exchange=name)


def test_a_full_queue_is_an_error(reader: Reader, name: str) -> None:
    queue(reader, name, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    rows = reader.spark.sql("SELECT explode(sequence(1, 100)) AS n").selectExpr("'b' AS body")

    with pytest.raises(PythonException, match="refused a message"):
        write(rows, reader, routingKey=name)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT 'k' AS routing_key", "'body' is missing"),
        ("SELECT 'b' AS body", "'routing_key' and option"),
        ("SELECT 'k' AS routing_key, 7 AS body", "'body' is int"),
    ],
)
def test_rows_that_are_no_messages_are_refused(
    penstock_reader: Reader, query: str, words: str
) -> None:
    with pytest.raises(AnalysisException, match=words):
        write(penstock_reader.spark.sql(query), penstock_reader)


def test_a_stream_is_carried_over(reader: Reader, name: str) -> None:
    queue(reader, name)
    stream(reader.broker.url, f"source-{name}", 50)
    frame = reader.stream(f"source-{name}", startingOffsets="earliest", maxOffsetsPerTrigger=30)

    writing = (
        frame.drop("message_id")
        .writeStream.format("penstock")
        .options(url=reader.broker.url, exchange="", routingKey=name)
        .option("checkpointLocation", str(reader.folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    query = ended(writing.start)

    found = taken(reader.broker.url, name)
    assert [body for _, _, body in found] == [b"message %d" % number for number in range(50)]
    assert [properties.message_id for _, properties, _ in found] == [
        f"{query.id}-{number // 30}-0-{number % 30}" for number in range(50)
    ]


def test_a_write_that_fails_fails_the_query(penstock_reader: Reader, name: str) -> None:
    reader = penstock_reader
    declare(reader.broker.url, name)
    stream(reader.broker.url, f"source-{name}", 5)
    frame = reader.stream(f"source-{name}", startingOffsets="earliest")

    writing = (
        frame.writeStream.format("penstock")
        .options(url=reader.broker.url, exchange="amq.topic", routingKey=f"nobody.{name}")
        .option("checkpointLocation", str(reader.folder / "checkpoint"))
        .trigger(availableNow=True)
    )

    with pytest.raises(StreamingQueryException, match="unroutable message"):
        ended(writing.start)
