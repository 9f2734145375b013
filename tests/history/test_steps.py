"""The past on Spark: the same answers as everywhere, from a table that has each once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path

import pika
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from penstock.content import Publication, parse_subscription, satisfies
from penstock.history.questions import Question
from penstock.history.steps import answer, bring_up, table_of
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

ASKED = (
    "[class,eq,stock]",
    "[class,eq,stock],[price,<,50]",
    "[class,eq,stock],[symbol,eq,'7']",
    "[class,eq,stock],[symbol,isPresent,''],[price,=,7]",
    "[class,eq,stock],[note,str-contains,'quoted']",
    "[class,eq,weather]",
)


def say(url: str, name: str, said: list[dict[str, str | int]], first: int = 0) -> None:
    with channel(url) as opened:
        for number, attributes in enumerate(said, first):
            properties = pika.BasicProperties(
                headers={"class": "stock", **attributes},
                message_id=f"B1-M{number}",
                timestamp=int((DAWN + timedelta(days=number)).timestamp()),
            )
            opened.basic_publish("", name, b"payload %d" % number, properties)


def test_questions_are_answered_from_the_table(
    spark: SparkSession, penstock: Penstock, tmp_path: Path, name: str
) -> None:
    declare(penstock.url, name)
    say(penstock.url, name, SAID[:2])
    bring_up(spark, penstock.url, tmp_path, name)
    say(penstock.url, name, SAID[2:], 2)
    with channel(penstock.url) as opened:
        answered = {"class": "stock", "price": 1, "_query_id": "q"}
        opened.basic_publish("", name, b"", pika.BasicProperties(headers=answered))
        opened.basic_publish("", name, b"says nothing of its class")
    bring_up(spark, penstock.url, tmp_path, name)
    table = spark.read.parquet(str(table_of(tmp_path)))
    wanted = [parse_subscription(text) for text in ASKED]
    bounded = Question(wanted[0], DAWN, DAWN + timedelta(days=3))
    questions = [*map(Question, wanted), bounded]

    # All in one go: it is starting that takes Spark long.
    answers = [
        answer(table, question).select("offset", "payload", lit(number).alias("question"))
        for number, question in enumerate(questions)
    ]
    rows = reduce(DataFrame.unionByName, answers).collect()

    assert all(row.payload == b"payload %d" % row.offset for row in rows)
    found = [sorted(row.offset for row in rows if row.question == n) for n in range(len(questions))]
    assert found.pop() == [1, 2]
    assert dict(zip(ASKED, found, strict=True)) == {
        text: [
            number
            for number, attributes in enumerate(SAID)
            if satisfies(Publication("stock", attributes), subscription)
        ]
        for text, subscription in zip(ASKED, wanted, strict=True)
    }
