"""What messages of other clients of AMQP 1.0 are to a program."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from penstock.client.amqp10.message import body_of, headers_of, id_text
from penstock.wire.amqp10.message import Amqp10Message, AmqpSequences, AmqpValue
from penstock.wire.amqp10.values import Array, Described, Symbol, Timestamp, UInt, ULong


@pytest.mark.parametrize(
    ("body", "raw", "content_type"),
    [
        (b"\xff", b"\xff", None),
        (AmqpValue("käse"), "käse".encode(), None),
        (AmqpValue(b"\xff"), b"\xff", None),
        (AmqpValue(None), b"", None),
        (AmqpValue({"a": UInt(1)}), b'{"a":1}', "application/json"),
        (AmqpValue(UUID(int=1)), b'"00000000-0000-0000-0000-000000000001"', "application/json"),
        (AmqpSequences([[1], ["b"]]), b'[1,"b"]', "application/json"),
        (AmqpValue(Described(Symbol("d"), [1])), b"[1]", "application/json"),
    ],
)
def test_any_body_is_bytes(body: Any, raw: bytes, content_type: str | None) -> None:
    assert body_of(Amqp10Message(body)) == (raw, content_type)


def test_properties_and_annotations_are_headers() -> None:
    message = Amqp10Message(
        application_properties={"at": Timestamp(1000), "n": UInt(3), "s": Symbol("x")},
        message_annotations={
            Symbol("x-death"): [{"queue": "q"}],
            Symbol("x-header-list"): Array(0xB1, ["a"]),
            Symbol("x-routing-key"): "key",
            ULong(5): "reserved",
        },
    )
    headers = headers_of(message)
    assert headers == {
        "at": datetime.fromtimestamp(1, UTC),
        "n": 3,
        "s": "x",
        "x-death": [{"queue": "q"}],
        "list": ["a"],
    }
    assert type(headers["n"]) is int
    assert type(headers["s"]) is str


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("a", "a"),
        (b"a", "a"),
        (b"\xff", "ff"),
        (ULong(7), "7"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_an_id_of_any_type_is_a_text(value: Any, text: str | None) -> None:
    assert id_text(value) == text
