"""Messages between AMQP 1.0 and the canonical form, which is AMQP 0-9-1's."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal as Number
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.content_header import message_flags
from penstock.broker.contract import EXPIRES, PERSISTENT, PRIORITY, SENDER_SELECTED, Message
from penstock.core.basic_properties import (
    BasicProperties,
    decode_header,
    encode_header,
    encode_route,
)
from penstock.destinations.stream import add_offset_header
from penstock.protocols.amqp10.conversion.decoder import convert_incoming
from penstock.protocols.amqp10.conversion.encoder import convert_outgoing
from penstock.wire.amqp10 import message as wire
from penstock.wire.amqp10.codec import encode
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.message import (
    Amqp10Header,
    AmqpValue,
    decode_message,
    encode_message,
)
from penstock.wire.amqp10.values import (
    Array,
    Byte,
    Char,
    Decimal,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.wire.amqp10.generated import same

NOW = 1_700_000_000.0
ROUTE = encode_route("orders", "eu.new")


def taken(message: wire.Amqp10Message) -> Message:
    found = convert_incoming(encode_message(message), NOW)
    assert (found.flags ^ message_flags(found.header)) & ~SENDER_SELECTED == 0
    return Message(ROUTE, found.header, found.body, found.flags)


def given(message: Message, **facts: Any) -> wire.Amqp10Message:
    before, after = convert_outgoing(message, **facts)
    return decode_message(before + message.body + after)


def told(message: wire.Amqp10Message) -> BasicProperties:
    """What a reader of AMQP 0-9-1 is told."""
    return decode_header(taken(message).header)


def published(properties: BasicProperties, body: bytes = b"hi") -> wire.Amqp10Message:
    """What a reader of AMQP 1.0 gets of a message from 0-9-1."""
    header = encode_header(properties, len(body))
    return given(Message(ROUTE, header, body, message_flags(header)))


# The thesis' two failures.


@pytest.mark.parametrize("kind", [str, Symbol])
def test_a_content_type_may_come_as_a_symbol_or_as_a_string(kind: Any) -> None:
    payload = b"\x00\x53\x73" + encode([None] * 6 + [kind("text/xml")]) + b"\x00\x53\x75\xa0\x00"
    found = convert_incoming(payload, NOW)
    assert decode_header(found.header).content_type == "text/xml"


def test_a_message_from_0_9_1_can_be_read_by_1_0() -> None:
    got = published(
        BasicProperties(
            content_type="application/xml",
            content_encoding="gzip",
            headers={"station": "north", "depth": 3, "raw": b"\xff"},
            delivery_mode=2,
            priority=5,
            correlation_id="c-1",
            reply_to="answers",
            expiration="60000",
            message_id="m-1",
            timestamp=1_600_000_000,
            type="build-models",
            user_id="guest",
            app_id="ichnaea",
            cluster_id="c",
        ),
        b"<request/>",
    )
    assert got.body == b"<request/>"
    assert got.header == Amqp10Header(True, UByte(5), UInt(60000), True, UInt(0))
    assert got.properties == wire.Amqp10Properties(
        message_id="m-1",
        user_id=b"guest",
        reply_to="/queues/answers",
        correlation_id="c-1",
        content_type=Symbol("application/xml"),
        content_encoding=Symbol("gzip"),
        creation_time=Timestamp(1_600_000_000_000),
        group_id="ichnaea",
    )
    assert got.application_properties == {"station": "north", "depth": Int(3), "raw": b"\xff"}
    assert got.message_annotations == {
        Symbol("x-exchange"): "orders",
        Symbol("x-routing-key"): "eu.new",
        Symbol("x-basic-type"): "build-models",
        Symbol("x-basic-cluster-id"): "c",
    }


# Sections and properties.


def test_a_header_becomes_delivery_mode_priority_and_expiration() -> None:
    message = taken(wire.Amqp10Message(b"", header=Amqp10Header(True, UByte(7), UInt(5000))))
    found = decode_header(message.header)
    assert (found.delivery_mode, found.priority, found.expiration) == (2, 7, "5000")
    assert message.flags == PERSISTENT | PRIORITY | EXPIRES


def test_a_message_without_a_header_is_transient() -> None:
    message = taken(wire.Amqp10Message(b"hi"))
    assert message.body == b"hi"
    assert message.size == 2
    assert decode_header(message.header) == BasicProperties(delivery_mode=1)
    assert message.flags == 0


def test_a_moment_of_expiry_is_what_is_left_of_it() -> None:
    expiry = wire.Amqp10Properties(absolute_expiry_time=Timestamp(int(NOW * 1000) + 1500))
    message = wire.Amqp10Message(b"", properties=expiry)
    assert told(message).expiration == "1500"
    assert given(taken(message)).properties == expiry
    past = wire.Amqp10Properties(absolute_expiry_time=Timestamp(5))
    assert told(wire.Amqp10Message(b"", properties=past)).expiration == "0"


def test_a_delivery_tells_how_often_it_was_tried() -> None:
    got = given(taken(wire.Amqp10Message(b"")), count=2)
    assert got.header == Amqp10Header(False, None, None, False, UInt(2))


def test_a_message_of_a_stream_tells_where_it_lies_there() -> None:
    table = b"\x0fx-stream-offsetl" + (77).to_bytes(8, "big")
    header = encode_header(BasicProperties(), 0)[:12] + b"\x20\x00\x00\x00\x00\x19" + table
    noted = given(Message(ROUTE, header, b"")).message_annotations or {}
    assert same(noted[Symbol("x-stream-offset")], ULong(77))


@pytest.mark.parametrize(
    ("message_id", "short", "header"),
    [
        ("m-1", "m-1", None),
        (UUID(int=5), "urn:uuid:00000000-0000-0000-0000-000000000005", None),
        (ULong(1 << 63), str(1 << 63), None),
        (b"abc", "abc", None),
        (b"\x00\xff", None, b"\x00\xff"),
        ("m" * 300, None, "m" * 300),
        ("urn:uuid:00000000-0000-0000-0000-000000000005",) * 2 + (None,),
        ("urn:uuid:rubbish",) * 2 + (None,),
    ],
)
def test_an_id_of_any_type_crosses_and_comes_back(
    message_id: Any, short: str | None, header: Any
) -> None:
    message = wire.Amqp10Message(
        b"", properties=wire.Amqp10Properties(message_id=message_id, correlation_id=message_id)
    )
    found = told(message)
    assert (found.message_id, found.correlation_id) == (short, short)
    headers = found.headers or {}
    assert (headers.get("x-message-id"), headers.get("x-correlation-id")) == (header, header)
    again = given(taken(message)).properties
    assert again is not None
    assert same(again.message_id, message_id)
    assert same(again.correlation_id, message_id)


def test_properties_that_only_1_0_has_survive() -> None:
    properties = wire.Amqp10Properties(
        to="/queue/a",
        subject="news",
        creation_time=Timestamp(1_600_000_000_123),
        group_id="g",
        group_sequence=UInt(4),
        reply_to_group_id="r",
    )
    message = taken(wire.Amqp10Message(b"", properties=properties))
    assert decode_header(message.header).timestamp == 1_600_000_000
    assert given(message).properties == properties


def test_where_a_message_wants_to_go_is_read_on_the_way() -> None:
    properties = wire.Amqp10Properties(user_id=b"guest", to="/queue/a", subject="news")
    found = convert_incoming(encode_message(wire.Amqp10Message(b"", properties=properties)), NOW)
    assert (found.user_id, found.to, found.subject) == (b"guest", "/queue/a", "news")


@pytest.mark.parametrize(
    ("address", "reply_to", "topic"),
    [
        ("/queues/answers", "answers", None),
        ("/queue/answers", "answers", None),
        ("answers", "answers", None),
        ("/queues/a%2Fb", "a/b", None),
        ("/topic/a.b", None, "a.b"),
        ("/exchange/amq.topic/a.b", None, "a.b"),
        ("/exchange/other/a.b", "/exchange/other/a.b", None),
        ("/nowhere", "/nowhere", None),
        ("/queues/" + "a" * 300, None, None),
    ],
)
def test_an_address_for_answers_is_one_that_the_others_can_use(
    address: str, reply_to: str | None, topic: str | None
) -> None:
    message = wire.Amqp10Message(b"", properties=wire.Amqp10Properties(reply_to=address))
    found = told(message)
    assert found.reply_to == reply_to
    assert (found.headers or {}).get("x-reply-to-topic") == topic
    assert given(taken(message)).properties == message.properties


# Application properties and annotations.

SIMPLE = [
    (None, None),
    (True, True),
    (UByte(5), 5),
    (UShort(5), 5),
    (UInt(1 << 31), 1 << 31),
    (ULong(5), 5),
    (ULong((1 << 64) - 1), str((1 << 64) - 1)),
    (Byte(-5), -5),
    (Short(-5), -5),
    (Int(-5), -5),
    (5, 5),
    (1 << 40, 1 << 40),
    (Float(1.5), 1.5),
    (1.5, 1.5),
    (Decimal(bytes.fromhex("31a000000000007b")), Number("12.3")),
    (Decimal(bytes.fromhex("3200007b")), Number("12.3")),
    (Decimal(b"\x78" + bytes(15)), "Infinity"),
    (Decimal(b"\xff" * 4), "NaN"),
    (Char("é"), "é"),
    (Timestamp(1_600_000_000_000), datetime.fromtimestamp(1_600_000_000, UTC)),
    (Timestamp(1_600_000_000_123), datetime.fromtimestamp(1_600_000_000, UTC)),
    (UUID(int=5), "urn:uuid:00000000-0000-0000-0000-000000000005"),
    (b"\x00\xff", b"\x00\xff"),
    ("é", "é"),
    (Symbol("s"), "s"),
]


@pytest.mark.parametrize(("value", "header"), SIMPLE, ids=[repr(one) for one, _ in SIMPLE])
def test_a_property_of_every_type_is_a_header_and_comes_back(value: Any, header: Any) -> None:
    message = wire.Amqp10Message(b"", application_properties={"k": value})
    found = told(message).headers
    assert found is not None
    assert found["k"] == header
    again = given(taken(message)).application_properties
    assert again is not None
    assert same(again, {"k": value})


def test_a_property_keeps_its_type_when_the_message_was_dead_lettered() -> None:
    message = taken(
        wire.Amqp10Message(
            b"",
            properties=wire.Amqp10Properties(message_id=ULong(3)),
            application_properties={"k": UByte(5), "n": 7},
        )
    )
    header = decode_header(message.header)
    assert header.headers is not None
    header.headers["x-death"] = [{"queue": "q", "count": 1}]
    dead = given(Message(ROUTE, encode_header(header, 0), b""))
    assert same(dead.application_properties, {"k": UByte(5), "n": 7})
    assert dead.properties == wire.Amqp10Properties(message_id=ULong(3))
    assert dead.message_annotations is not None
    assert dead.message_annotations[Symbol("x-death")] == [{"queue": "q", "count": 1}]


def test_what_a_relay_changed_is_what_counts() -> None:
    message = taken(
        wire.Amqp10Message(
            b"",
            properties=wire.Amqp10Properties(message_id=ULong(3), subject="old"),
            application_properties={"k": UByte(5)},
            message_annotations={Symbol("x-a"): UByte(1), Symbol("x-b"): UByte(1)},
        )
    )
    header = decode_header(message.header)
    assert header.headers is not None
    header.message_id = "mine"
    header.headers["k"] = 6
    header.headers["x-a"] = 2
    got = given(Message(ROUTE, encode_header(header, 0), b""))
    assert got.properties == wire.Amqp10Properties(message_id="mine")
    assert same(got.application_properties, {"k": Int(6)})
    assert got.message_annotations is not None
    assert same(got.message_annotations[Symbol("x-a")], Int(2))
    assert same(got.message_annotations[Symbol("x-b")], UByte(1))


def test_annotations_are_the_headers_that_begin_with_x() -> None:
    message = wire.Amqp10Message(
        b"", message_annotations={Symbol("x-a"): "1", Symbol("x-opt-b"): True}
    )
    assert told(message).headers == {"x-a": "1", "x-opt-b": True}
    noted = given(taken(message)).message_annotations
    assert noted is not None
    assert noted[Symbol("x-a")] == "1"
    assert noted[Symbol("x-opt-b")] is True


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (Symbol("other"), "1"),
        (ULong(7), "1"),
        (Symbol("x-list"), ["a", Int(1)]),
        (Symbol("x-map"), {"a": UByte(1)}),
        (Symbol("x-odd-map"), {UByte(1): "a"}),
        (Symbol("x-array"), Array(0xB3, [Symbol("a")])),
        (Symbol("x-header-list"), ["a"]),
        (Symbol("x-header-simple"), UInt(1)),
        (Symbol("x-header-CC"), ["a"]),
        (Symbol("x-mqtt-properties"), b"\x00"),
        (Symbol("x-" + "a" * 300), True),
    ],
)
def test_an_annotation_of_any_kind_survives(key: Any, value: Any) -> None:
    message = taken(wire.Amqp10Message(b"", message_annotations={key: value}))
    assert not message.flags & SENDER_SELECTED
    got = given(message)
    assert got.application_properties is None
    assert got.message_annotations is not None
    assert same(got.message_annotations[key], value)


def test_nobody_speaks_for_the_broker() -> None:
    names = ("x-exchange", "x-routing-key", "x-stream-offset")
    message = wire.Amqp10Message(b"", message_annotations={Symbol(name): "mine" for name in names})
    assert given(taken(message)).message_annotations == {
        Symbol("x-exchange"): "orders",
        Symbol("x-routing-key"): "eu.new",
    }


def test_more_routing_keys_are_an_annotation() -> None:
    message = taken(wire.Amqp10Message(b"", message_annotations={Symbol("x-cc"): ["a", "b"]}))
    assert message.flags == SENDER_SELECTED
    assert decode_header(message.header).headers == {"CC": ["a", "b"]}
    noted = given(message).message_annotations
    assert noted is not None
    assert noted[Symbol("x-cc")] == ["a", "b"]


@pytest.mark.parametrize("name", ["CC", "BCC", "x-mqtt-properties", "x-amqp-1.0-footer", "n" * 300])
def test_a_property_whose_name_would_mean_something_is_no_header(name: str) -> None:
    message = taken(wire.Amqp10Message(b"", application_properties={name: "a", "k": "v"}))
    headers = decode_header(message.header).headers
    assert headers is not None
    assert headers.keys() == {"k", "x-amqp-1.0-app-properties", "x-amqp-1.0-seal"}
    assert given(message).application_properties == {name: "a", "k": "v"}


def test_a_property_that_begins_with_x_is_a_property_again() -> None:
    message = wire.Amqp10Message(b"", application_properties={"x-a": "1"})
    assert (told(message).headers or {})["x-a"] == "1"
    got = given(taken(message))
    assert got.application_properties == {"x-a": "1"}
    assert Symbol("x-a") not in (got.message_annotations or {})


def test_headers_that_are_tables_or_arrays_are_annotations() -> None:
    got = published(BasicProperties(headers={"shape": {"w": 1}, "points": [1, "a"], "k": "v"}))
    assert got.application_properties == {"k": "v"}
    noted = got.message_annotations or {}
    assert noted[Symbol("x-header-shape")] == {"w": Int(1)}
    assert noted[Symbol("x-header-points")] == [Int(1), "a"]
    again = told(wire.Amqp10Message(b"", message_annotations=noted))
    assert again.headers is not None
    assert again.headers["shape"] == {"w": 1}
    assert again.headers["points"] == [1, "a"]


def test_in_a_stream_the_offset_goes_before_the_seal() -> None:
    properties = wire.Amqp10Properties(message_id=ULong(3), subject="news")
    message = taken(
        wire.Amqp10Message(b"hi", properties=properties, application_properties={"u": UInt(3)})
    )
    got = given(add_offset_header(message, 77))
    assert (got.properties, got.body) == (properties, b"hi")
    assert same(got.application_properties, {"u": UInt(3)})
    noted = got.message_annotations or {}
    assert same(noted[Symbol("x-stream-offset")], ULong(77))


def test_a_seal_that_somebody_else_has_set_is_none() -> None:
    message = taken(wire.Amqp10Message(b"hi", properties=wire.Amqp10Properties(subject="news")))
    forged = message.header.replace(b"news", b"\x00\x00\x00\x00")
    got = given(Message(ROUTE, forged, b"hi"))
    assert (got.properties, got.body) == (wire.Amqp10Properties(subject="\0\0\0\0"), b"hi")
    forged = message.header.replace(b"\xa1\x04news", b"\xa1\xffnews")
    assert given(Message(ROUTE, forged, b"hi")).properties is None


def test_a_footer_survives() -> None:
    message = wire.Amqp10Message(b"hi", footer={Symbol("x-sum"): UInt(5)})
    got = given(taken(message))
    assert (got.body, got.footer) == (b"hi", message.footer)


def test_delivery_annotations_end_here() -> None:
    message = wire.Amqp10Message(b"hi", delivery_annotations={Symbol("x-hop"): 1})
    assert given(taken(message)).delivery_annotations is None


# Bodies.


@pytest.mark.parametrize(
    ("value", "body"), [("grüße", "grüße".encode()), (b"\xff", b"\xff"), (None, b"")]
)
@pytest.mark.parametrize("longer", [1, 300])
def test_a_text_or_a_binary_is_the_body_itself(value: Any, body: bytes, longer: int) -> None:
    content = value * longer if value else value
    message = taken(wire.Amqp10Message(AmqpValue(content)))
    assert message.body == body * longer
    assert message.size == len(message.body)
    assert given(message).body == AmqpValue(content)


@pytest.mark.parametrize(
    "body",
    [
        AmqpValue({"a": [1, 2]}),
        AmqpValue(UInt(7)),
        AmqpValue(Symbol("s")),
        wire.AmqpSequences([[1], ["a", None]]),
    ],
)
def test_other_values_are_bytes_that_say_what_they_are(body: Any) -> None:
    message = taken(wire.Amqp10Message(body))
    assert decode_header(message.header).type == "amqp-1.0"
    assert decode_message(message.body).body == body
    assert given(message).body == body


def test_a_body_that_is_not_what_its_type_says_is_data() -> None:
    assert published(BasicProperties(type="amqp-1.0"), b"rubbish").body == b"rubbish"
    lie = BasicProperties(headers={"x-amqp-1.0-value": "string"})
    assert published(lie, b"\xff").body == b"\xff"


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DecodeError):
        convert_incoming(b"\x00\x53\x77\xa1\x01\xff", NOW)


@pytest.mark.parametrize("size", [0, 255, 256, 70_000])
def test_data_of_any_size_is_the_body(size: int) -> None:
    message = taken(wire.Amqp10Message(b"d" * size))
    assert message.size == size
    assert given(message).body == b"d" * size


@pytest.mark.parametrize("application", [None, {"color": "red"}, {"traceparent": "00-other"}])
@pytest.mark.parametrize("signed", [True, False])
def test_a_trace_context_in_an_annotation(application: dict[str, Any] | None, signed: bool) -> None:
    """It is a header for other protocols, and stays an annotation for AMQP 1.0."""
    traceparent = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    message = taken(
        wire.Amqp10Message(
            b"x",
            message_annotations={Symbol("traceparent"): traceparent, Symbol("tracestate"): "a=1"},
            application_properties=application,
        )
    )
    headers = decode_header(message.header).headers or {}
    assert headers["traceparent"] == (application or {}).get("traceparent", traceparent)
    assert headers["tracestate"] == "a=1"
    if not signed:  # by another process
        message.header = message.header.replace(b"x-amqp-1.0-seal", b"y-amqp-1.0-seal")
    sent = given(message)
    assert (sent.message_annotations or {})[Symbol("traceparent")] == traceparent
    assert {
        name: value
        for name, value in (sent.application_properties or {}).items()
        if name != "y-amqp-1.0-seal"
    } == (application or {})
