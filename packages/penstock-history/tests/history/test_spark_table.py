"""The past on Spark: the same answers as everywhere, from a table that has each once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pika
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.content import Publication, format_message, parse_subscription, satisfies
from penstock.core.basic_properties import BasicProperties, encode_header
from penstock_history.query import HistoryQuery
from penstock_history.spark_table import (
    decode_messages,
    filter_publications,
    query_filter,
    table_path,
    update_table,
)
from tests.peers import Penstock
from tests.pipeline.given import channel, declare

pytestmark = pytest.mark.timeout(600)
DAWN = datetime(2026, 1, 1, tzinfo=UTC)
SAID: list[dict[str, str | int]] = [
    {"symbol": "IBM", "price": 40},
    {"symbol": "7", "price": 60},
    {"symbol": "HP", "price": 7, "volume": 3},
    {"symbol": "IBM", "price": 45, "note": 'it\'s "quoted"'},
]


def messages(*said: tuple[BasicProperties, bytes]) -> pa.RecordBatch:
    """Messages as the connector has them."""
    rows = [
        {
            "offset": offset,
            "timestamp": DAWN,
            "properties": encode_header(properties, len(body)),
            "body": body,
        }
        for offset, (properties, body) in enumerate(said)
    ]
    return pa.RecordBatch.from_pylist(rows)


def test_messages_of_the_stream_are_rows_of_the_table() -> None:
    language, later = "application/x-padres", DAWN + timedelta(days=1)
    table = decode_messages(
        messages(
            (
                BasicProperties(
                    headers={"class": "stock", "price": 7}, timestamp=int(later.timestamp())
                ),
                b"payload",
            ),
            (BasicProperties(content_type=language), b"[class,stock],[price,8]"),
            (
                BasicProperties(content_type=language),
                b"[class,stock],[price,9];Thu Jun 19 17:14:58 GMT 2008;",
            ),
            (BasicProperties(headers={"class": "stock", "_query_id": "q"}), b"an answer"),
            (BasicProperties(content_type=language), b"[class,"),
            (BasicProperties(headers={"class": "stock"}, timestamp=2**64 - 1), b"no such time"),
            (BasicProperties(), b"says nothing of its class"),
            (BasicProperties(headers={"class": 5}), b"nor does this"),
        )
    )

    assert [
        (row["offset"], row["text"], row["at"], row["payload"]) for row in table.to_pylist()
    ] == [
        (0, "[class,stock],[price,7]", later, b"payload"),
        (1, "[class,stock],[price,8]", DAWN, b""),
        (2, "[class,stock],[price,9]", datetime(2008, 6, 19, 17, 14, 58, tzinfo=UTC), b""),
        (5, "[class,stock]", DAWN, b"no such time"),
    ]


def test_an_id_that_is_not_text_is_kept_as_far_as_it_is() -> None:
    said = BasicProperties(headers={"class": "stock"}, message_id="7-\udcff")
    [row] = decode_messages(messages((said, b""))).to_pylist()
    assert row["id"] == "7-\ufffd"


@pytest.mark.parametrize(
    "text",
    [
        "[class,eq,stock],[price,<,50]",
        "[class,eq,stock],[symbol,eq,'7']",
        "[class,eq,stock],[symbol,isPresent,''],[price,=,7]",
        "[class,eq,stock],[note,str-contains,'quoted']",
    ],
)
def test_rows_are_chosen_as_subscriptions_choose_publications(text: str) -> None:
    publications = [Publication("stock", attributes) for attributes in SAID]
    rows = pa.RecordBatch.from_pydict({"text": [format_message(one) for one in publications]})
    wanted = parse_subscription(text)

    (chosen,) = query_filter(HistoryQuery(wanted))(iter([rows]))
    expected = [format_message(one) for one in publications if satisfies(one, wanted)]
    assert chosen.column("text").to_pylist() == expected


@pytest.mark.parametrize(
    "portions",
    [
        pytest.param([[0, 1, 2, 3]], id="at once"),
        pytest.param([[0, 1], [2, 3]], id="in two goes", marks=pytest.mark.slow),
    ],
)
def test_the_table_has_each_once_and_answers_questions(
    spark: SparkSession, penstock: Penstock, tmp_path: Path, name: str, portions: list[list[int]]
) -> None:
    declare(penstock.url, name)
    for portion in portions:
        with channel(penstock.url) as opened:
            for number in portion:
                moment = DAWN + timedelta(hours=number)
                properties = pika.BasicProperties(
                    headers={"class": "stock", **SAID[number]}, timestamp=int(moment.timestamp())
                )
                opened.basic_publish("", name, b"payload %d" % number, properties)
            other = pika.BasicProperties(headers={"class": "weather", "price": 45})
            opened.basic_publish("", name, b"", other)
        update_table(spark, penstock.url, tmp_path, name)
    table = spark.read.parquet(str(table_path(tmp_path)))
    cheap = parse_subscription("[class,eq,stock],[price,<,50]")
    found = filter_publications(
        table, HistoryQuery(cheap, DAWN, DAWN + timedelta(hours=4))
    ).collect()

    assert sorted(bytes(row["payload"]) for row in found) == [b"payload 2", b"payload 3"]
