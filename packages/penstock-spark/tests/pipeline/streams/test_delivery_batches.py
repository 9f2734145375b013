"""Deliveries as record batches: what is wanted of them, column by column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.basic_properties import BasicProperties, encode_header
from penstock.wire.amqp091.frames import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEADER_STRUCT,
)
from penstock.wire.amqp091.methods import BASIC_DELIVER, encode_method_frame
from penstock_spark.streams.backend import RECORD_SCHEMA, StreamRange
from penstock_spark.streams.deliveries import DeliveryBatchBuilder, DeliveryParser

Sent = tuple[str, str, dict[str, Any], bytes]


def frame(kind: int, payload: bytes) -> bytes:
    return FRAME_HEADER_STRUCT.pack(kind, 1, len(payload)) + payload + b"\xce"


def delivery(offset: int, sent: Sent) -> bytes:
    exchange, key, headers, body = sent
    told = BasicProperties(
        message_id=f"m{offset}", headers={**headers, "x-stream-offset": 2**40 + offset}
    )
    deliver = encode_method_frame(
        1,
        BASIC_DELIVER,
        consumer_tag="spark",
        delivery_tag=offset + 1,
        exchange=exchange,
        routing_key=key,
    )
    parts = [deliver, frame(FRAME_HEADER, encode_header(told, len(body)))]
    return b"".join([*parts, frame(FRAME_BODY, body)] if body else parts)


def gathered(
    wanted: StreamRange, messages: list[Sent]
) -> tuple[DeliveryBatchBuilder, list[dict[str, Any]]]:
    data = b"".join(delivery(offset, each) for offset, each in enumerate(messages))
    gathering = DeliveryBatchBuilder(wanted)
    found, _ = DeliveryParser(1, b"spark").feed(data)
    batches = [batch for each in found if (batch := gathering.batch(each)) is not None]
    return gathering, pa.Table.from_batches(batches, RECORD_SCHEMA).to_pylist()


def numbered(count: int) -> list[Sent]:
    return [("logs", f"key.{number % 3}", {}, b"%d" % number) for number in range(count)]


def wanted(start: int, stop: int) -> StreamRange:
    return StreamRange("s", 2**40 + start, 2**40 + stop)


sent = st.lists(
    st.tuples(
        st.text("ab.", max_size=9),
        st.text(max_size=9),
        st.dictionaries(st.text("ay", max_size=3), st.integers(0, 9) | st.text(max_size=9)),
        st.binary(max_size=30),
    ),
    max_size=12,
)


@given(sent)
def test_every_column_is_as_it_was_published(messages: list[Sent]) -> None:
    _, rows = gathered(wanted(0, 100), messages)

    assert [row["offset"] - 2**40 for row in rows] == list(range(len(messages)))
    for number, (row, message) in enumerate(zip(rows, messages, strict=True)):
        exchange, key, headers, body = message
        assert (row["exchange"], row["routing_key"], row["body"]) == (exchange, key, body)
        as_published = BasicProperties(message_id=f"m{number}", headers=headers or None)
        assert row["properties"] == encode_header(as_published, len(body))
        assert row["timestamp"] is None


def test_only_the_range_is_taken() -> None:
    gathering, rows = gathered(wanted(3, 7), numbered(10))

    assert [row["body"] for row in rows] == [b"3", b"4", b"5", b"6"]
    assert (gathering.early, gathering.complete) == (3, True)


def test_the_last_of_the_range_completes_it() -> None:
    assert gathered(wanted(0, 10), numbered(10))[0].complete
    assert not gathered(wanted(0, 11), numbered(10))[0].complete


def test_what_is_all_before_the_range_gives_nothing() -> None:
    gathering, rows = gathered(wanted(20, 30), numbered(10))

    assert rows == []
    assert (gathering.early, gathering.complete) == (10, False)


def test_a_header_with_the_offset_in_a_value_is_read_by_itself() -> None:
    forged = "\x0fx-stream-offsetl12345678"
    messages = [*numbered(3), ("", "key", {"a": forged}, b"forged"), *numbered(2)]

    _, rows = gathered(wanted(0, 100), messages)

    assert [row["offset"] - 2**40 for row in rows] == list(range(6))
    expected = BasicProperties(message_id="m3", headers={"a": forged})
    assert rows[3]["properties"] == encode_header(expected, 6)
