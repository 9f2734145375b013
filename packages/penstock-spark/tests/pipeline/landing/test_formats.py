"""Every format: bodies that fit, bodies that do not, and the reasons."""

from __future__ import annotations

import io
import json
import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigurationError
from penstock_spark.connector.columns import ARROW_TYPES
from penstock_spark.landing.formats.avro import AvroFormat
from penstock_spark.landing.formats.body_format import BodyFormat, BytesFormat, TextFormat
from penstock_spark.landing.formats.csv import CsvFormat
from penstock_spark.landing.formats.json import JsonFormat
from penstock_spark.landing.formats.protobuf import ProtobufFormat
from penstock_spark.landing.message_decoder import DecodedMessages, MessageDecoder, table_schema
from penstock_spark.landing.records import NewColumns
from penstock_spark.landing.types import parse_schema, sql_columns

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def decode(
    form: BodyFormat,
    *bodies: bytes,
    schema: str | None = None,
    new_columns: NewColumns = NewColumns.REJECT,
) -> DecodedMessages:
    body = parse_schema(schema, "") if schema is not None else form.schema or pa.schema([])
    decoder = MessageDecoder(
        pickle.loads(pickle.dumps(form)), table_schema(body, (), with_day=False), (), new_columns
    )
    columns = {name: pa.nulls(len(bodies), kind) for name, kind in ARROW_TYPES.items()}
    columns["stream"] = pa.array(["s"] * len(bodies))
    columns["offset"] = pa.array(range(len(bodies)), pa.int64())
    columns["body"] = pa.array(bodies, pa.binary())
    return decoder.decode(pa.RecordBatch.from_pydict(columns), NOW)


def values(decoded: DecodedMessages) -> list[dict[str, Any]]:
    found = decoded.rows.drop_columns(["_stream", "_offset", "_timestamp"])
    return list(found.to_pylist(maps_as_pydicts="strict"))


def reasons(decoded: DecodedMessages) -> dict[int, str]:
    found = decoded.dead.to_pylist()
    return {row["_offset"]: f"{row['reason']}: {row['detail']}" for row in found}


# JSON


TYPES = (
    "i BIGINT, n INT, d DOUBLE, f FLOAT, b BOOLEAN, s STRING, bin BINARY, day DATE, at TIMESTAMP, "
    "local TIMESTAMP_NTZ, price DECIMAL(10,2), l ARRAY<BIGINT>, m MAP<STRING, DOUBLE>, "
    "o STRUCT<x: BIGINT, y: STRUCT<z: STRING>>"
)


def test_json_fills_every_type() -> None:
    body = {
        "i": 2**63 - 1,
        "n": -(2**31),
        "d": 1,
        "f": 0.5,
        "b": True,
        "s": "ä",
        "bin": "AAE=",
        "day": "2026-01-31",
        "at": "2026-01-31T12:00:00+02:00",
        "local": "2026-01-31T12:00:00",
        "price": 10.25,
        "l": [1, None],
        "m": {"a": 1, "b": None},
        "o": {"x": 1, "y": {"z": "w"}},
    }
    found = decode(JsonFormat(), json.dumps(body).encode(), b"{}", schema=TYPES)
    assert reasons(found) == {}
    assert values(found)[0] == body | {
        "bin": b"\x00\x01",
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 10, tzinfo=UTC),
        "local": datetime.fromisoformat("2026-01-31T12:00:00"),
        "price": Decimal("10.25"),
    }
    assert set(values(found)[1].values()) == {None}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "invalid_json: Expecting value"),
        (b"{", "invalid_json"),
        (b'{"i":1}{"i":2}', "invalid_json: Extra data"),
        (b'{"i":1},"o":1', "invalid_json: Extra data"),
        (b"[1]", "an object expected, not an array"),
        (b"null", "not null"),
        (b'"x"', "not a string"),
        (b"7", "not a number"),
        (b'{"i":1,"i":2}', "key 'i' occurs twice"),
        (b'{"d":NaN}', "NaN is not JSON"),
        (b'{"d":-Infinity}', "-Infinity is not JSON"),
        (b'{"d":1e400}', "out of range"),
        (b'{"s":"\xff"}', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'{"s":"\\ud800"}', "surrogate"),
        (b'{"i":' + b"9" * 5000 + b"}", "invalid_json"),
        (b'{"i":9223372036854775808}', "'i': 9223372036854775808 is not BIGINT"),
        (b'{"i":1.5}', "'i': 1.5 is not BIGINT"),
        (b'{"i":true}', "'i': true is not BIGINT"),
        (b'{"i":"1"}', "'i': \"1\" is not BIGINT"),
        (b'{"i":[1]}', "'i': an array is not BIGINT"),
        (b'{"n":2147483648}', "is not INT"),
        (b'{"d":"1"}', "is not DOUBLE"),
        (b'{"f":1e39}', "is not FLOAT"),
        (b'{"b":1}', "is not BOOLEAN"),
        (b'{"bin":"*"}', "is not BINARY"),
        (b'{"day":"31.1.2026"}', "is not DATE"),
        (b'{"at":"yesterday"}', "is not TIMESTAMP"),
        (b'{"at":1767225600}', "is not TIMESTAMP"),
        (b'{"at":"0001-01-01T00:00:00+10:00"}', "is not TIMESTAMP"),
        (b'{"local":"2026-01-01T00:00:00Z"}', "has no zone"),
        (b'{"price":1.234}', "is not DECIMAL(10,2)"),
        (b'{"price":123456789.0}', "is not DECIMAL(10,2)"),
        (b'{"l":1}', "is not ARRAY<BIGINT>"),
        (b'{"l":["x"]}', "'l': \"x\" is not BIGINT"),
        (b'{"m":[]}', "is not MAP"),
        (b'{"o":1}', "is not STRUCT"),
        (b'{"o":{"y":{"z":1,"q":2}}}', "'o.y.q': the table has no such column"),
        (b'{"unknown":1}', "unknown_field"),
        (b'{"I":1}', "name_in_use: field 'I': differs from column 'i'"),
        (b'{"_offset":1}', "reserved_name: field '_offset'"),
        (b'{"_Stream":1}', "reserved_name"),
        (b'{"a":' * 100_000, "invalid_json: nested too deeply"),
    ],
)
def test_json_that_does_not_fit_is_a_dead_letter_and_harms_no_other(
    body: bytes, words: str
) -> None:
    around = [b'{"i":1}'] * 3
    found = decode(JsonFormat(), *around, body, *around, schema=TYPES)
    assert list(reasons(found)) == [3]
    assert words in reasons(found)[3]
    assert found.dead["body"].to_pylist() == [body]
    assert found.rows["_offset"].to_pylist() == [0, 1, 2, 4, 5, 6]


def test_a_string_column_takes_everything_as_json_text() -> None:
    bodies = [b'{"s":"x"}', b'{"s":1}', b'{"s":[1,{"a":null}]}', b'{"s":null}', b'{"s":1.50}']
    found = decode(JsonFormat(), *bodies, schema="s STRING")
    assert [row["s"] for row in values(found)] == ["x", "1", '[1, {"a": null}]', None, "1.5"]


def test_whole_doubles_are_integers() -> None:
    found = decode(JsonFormat(), b'{"i":2.0}', b'{"i":-1e3}', schema="i BIGINT")
    assert [row["i"] for row in values(found)] == [2, -1000]


def test_two_keys_of_one_column_do_not_fit() -> None:
    found = decode(JsonFormat(), b'{"a b":1}', b'{"a_b":2}', b'{"a b":1,"a_b":2}', schema="a_b INT")
    assert [row["a_b"] for row in values(found)] == [1, 2]
    assert "two keys" in reasons(found)[2]


@pytest.mark.parametrize("new_columns", list(NewColumns))
def test_what_new_fields_do(new_columns: NewColumns) -> None:
    bodies = [b'{"i":1}', b'{"i":2,"j":{"k":[1.5]}}', b'{"i":3,"j":null}', b'{"i":4,"e":[]}']
    found = decode(JsonFormat(), *bodies, schema="i BIGINT", new_columns=new_columns)
    offsets = found.rows["_offset"].to_pylist()
    if new_columns is NewColumns.REJECT:
        assert offsets == [0, 2]
    else:
        assert offsets == [0, 1, 2, 3]
    grown = "i BIGINT, j STRUCT<k: ARRAY<DOUBLE>>"
    expected = grown if new_columns is NewColumns.ADD else None
    assert (
        None if found.found == pa.null() else sql_columns(pa.schema(list(found.found)))
    ) == expected


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["2026-01-31T12:00:00Z", "2026-01-31", "2026-01-31 12:00:00.123456+01:00"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
records = st.fixed_dictionaries(
    {},
    optional={
        "i": st.integers() | json_values,
        "d": st.floats() | json_values,
        "b": st.booleans() | json_values,
        "s": st.text() | json_values,
        "at": json_values,
        "l": st.lists(st.integers()) | json_values,
        "o": st.fixed_dictionaries({}, optional={"x": json_values, "y": json_values}),
        "other": json_values,
    },
)
bodies = st.one_of(
    records.map(lambda record: json.dumps(record).encode()),
    records.map(lambda record: json.dumps(record, indent=1, ensure_ascii=True).encode()),
    st.binary(max_size=20),
    st.sampled_from(
        [b'{"i":1}{"i":2}', b'{"i":1},"o":0', b'{"i":1}\n', b'{"i":1', b"}", b"", b"null"]
    ),
)


@given(st.lists(bodies, max_size=40), st.sampled_from(NewColumns))
def test_bodies_are_the_same_together_and_alone(sent: list[bytes], new_columns: NewColumns) -> None:
    """The fast way and the exact one agree, whatever the others are."""
    schema = (
        "i BIGINT, d DOUBLE, b BOOLEAN, s STRING, at TIMESTAMP, l ARRAY<BIGINT>, "
        "o STRUCT<x: BIGINT>"
    )
    together = decode(JsonFormat(), *sent, schema=schema, new_columns=new_columns)
    alone = [decode(_OneByOne(), body, schema=schema, new_columns=new_columns) for body in sent]
    assert repr(values(together)) == repr([row for each in alone for row in values(each)])
    assert list(reasons(together).values()) == [
        words for each in alone for words in reasons(each).values()
    ]


class _OneByOne(JsonFormat):
    def read_columns(self, *args: Any) -> pa.StructArray | None:
        return None


# CSV


def test_csv_with_given_columns() -> None:
    form = CsvFormat(
        parse_schema("id BIGINT, name STRING, ok BOOLEAN, at TIMESTAMP, p DECIMAL(4,1)", "")
    )
    found = decode(
        form, b'7,"a ""b"", c",TRUE,2026-01-01T00:00:00Z,1.5\n', b"8,,,,", b"1,x,y,,", b"x,,,,"
    )
    assert values(found) == [
        {"id": 7, "name": 'a "b", c', "ok": True, "at": NOW, "p": Decimal("1.5")},
        {"id": 8, "name": None, "ok": None, "at": None, "p": None},
    ]
    assert "is not BOOLEAN" in reasons(found)[2]
    assert "is not BIGINT" in reasons(found)[3]


def test_a_csv_message_may_have_many_records_and_a_header() -> None:
    form = CsvFormat(header=True, delimiter=";")
    first = decode(form, b"id;zip;x\r\n1;01234;2.5\r\n2;99999;3\r\n", new_columns=NewColumns.ADD)
    assert sql_columns(pa.schema(list(first.found))) == "id BIGINT, zip STRING, x DOUBLE"
    wrong = [b"id;id\n1;1", b"id\n1;2", b"", b"id\n", b'id\n"1', b"\xff"]
    found = decode(form, b"x;id\n1;2\n3;4", *wrong, schema="id BIGINT, x DOUBLE")
    assert values(found) == [{"id": 2, "x": 1.0}, {"id": 4, "x": 3.0}]
    assert found.rows["_offset"].to_pylist() == [0, 0]
    assert list(reasons(found)) == [1, 2, 3, 4, 5, 6]


def test_csv_without_names_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--csv-header"):
        CsvFormat()
    with pytest.raises(ConfigurationError, match="delimiter"):
        CsvFormat(header=True, delimiter=";;")


# Avro

AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {
            "type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
        {"name": "either", "type": ["int", "string"]},
        {"name": "again", "type": ["null", "Line"]},
    ],
}  # fmt: skip
ORDER = {
    "id": 7,
    "note": None,
    "at": NOW,
    "price": Decimal("9.99"),
    "kind": "NEW",
    "tags": {"a": 1},
    "lines": [{"sku": "x"}],
    "either": 5,
    "again": {"sku": "y"},
}


def datum(record: dict[str, Any], schema: dict[str, Any] = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def test_avro_in_all_its_envelopes() -> None:
    form = AvroFormat(json.dumps(AVRO))
    assert sql_columns(form.schema) == (
        "id BIGINT, note STRING, at TIMESTAMP, price DECIMAL(8,2), kind STRING, "
        "tags MAP<STRING, INT>, lines ARRAY<STRUCT<sku: STRING>>, either STRING, "
        "again STRUCT<sku: STRING>"
    )
    plain = datum(ORDER)
    canonical = fastavro.schema.to_parsing_canonical_form(AVRO)
    fingerprint = bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
    container = io.BytesIO()
    fastavro.writer(container, fastavro.parse_schema(AVRO), [ORDER, ORDER])
    single = b"\xc3\x01" + fingerprint + plain
    other = b"\xc3\x01" + b"12345678" + plain
    found = decode(
        form, plain, single, container.getvalue(), plain[:-1], plain + b"x", b"", b"\xff" * 50,
        other, container.getvalue()[:-5],
    )  # fmt: skip
    assert values(found) == [ORDER | {"either": "5"}] * 4
    assert found.rows["_offset"].to_pylist() == [0, 1, 2, 2]
    assert sorted(reasons(found)) == [3, 4, 5, 6, 7, 8]
    assert "bytes after the datum" in reasons(found)[4]
    assert "another one (3132333435363738)" in reasons(found)[7]


@given(st.binary(max_size=60))
def test_avro_survives_any_bytes(body: bytes) -> None:
    found = decode(AvroFormat(json.dumps(AVRO)), body)
    assert len(reasons(found)) == 1 or len(found.rows) >= 0


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "not valid"),
        ('"string"', "should be a record"),
        (
            '{"type":"record","name":"T","fields":[{"name":"next","type":["null","T"]}]}',
            "contains itself",
        ),
    ],
)  # fmt: skip
def test_an_avro_schema_that_is_no_table_is_refused(schema: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        AvroFormat(schema)


# Protobuf


def descriptors() -> bytes:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=kinds.TYPE_STRING, label=1)
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(
        [
            ("id", kinds.TYPE_INT64),
            ("big", kinds.TYPE_UINT64),
            ("price", kinds.TYPE_DOUBLE),
            ("raw", kinds.TYPE_BYTES),
            ("ok", kinds.TYPE_BOOL),
        ],
        1,
    ):
        order.field.add(name=name, number=number, type=kind, label=1)
    order.field.add(
        name="colour", number=10, type=kinds.TYPE_ENUM, type_name=".shop.Colour", label=1
    )
    order.field.add(
        name="lines", number=11, type=kinds.TYPE_MESSAGE, type_name=".shop.Line", label=3
    )
    order.field.add(
        name="at",
        number=12,
        type=kinds.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=1,
    )
    order.oneof_decl.add(name="_note")
    order.field.add(
        name="note", number=13, type=kinds.TYPE_STRING, label=1, oneof_index=0, proto3_optional=True
    )
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_INT32, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_STRING, label=1)
    order.field.add(
        name="tags", number=14, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.TagsEntry", label=3
    )
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=kinds.TYPE_MESSAGE, type_name=".shop.Node", label=1)
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return bytes(files.SerializeToString())


def test_protobuf_messages_are_rows() -> None:
    form = ProtobufFormat(descriptors(), "shop.Order")
    assert sql_columns(form.schema) == (
        "id BIGINT, big DECIMAL(20,0), price DOUBLE, raw BINARY, ok BOOLEAN, colour STRING, "
        "lines ARRAY<STRUCT<sku: STRING>>, at TIMESTAMP, note STRING, tags MAP<STRING, STRING>"
    )
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    full = order(
        id=-7, big=2**64 - 1, price=math.nan, raw=b"\xff", ok=True, colour=1, note="", tags={3: "x"}
    )
    full.lines.add(sku="s")
    full.at.FromDatetime(NOW)
    late = order()
    late.at.seconds = 2**60
    found = decode(
        form, full.SerializeToString(), b"", order(colour=9).SerializeToString(), b"\xff\xff",
        late.SerializeToString(), full.SerializeToString()[:-2],
    )  # fmt: skip
    first, empty, odd = values(found)
    assert math.isnan(first.pop("price"))
    assert first == {
        "id": -7, "big": Decimal(2**64 - 1), "raw": b"\xff", "ok": True, "colour": "BLUE",
        "lines": [{"sku": "s"}], "at": NOW, "note": "", "tags": {"3": "x"},
    }  # fmt: skip
    assert (empty["id"], empty["note"], empty["at"]) == (0, None, None)
    assert odd["colour"] == "9"
    assert sorted(reasons(found)) == [3, 4, 5]


@given(st.binary(max_size=60))
def test_protobuf_survives_any_bytes(body: bytes) -> None:
    found = decode(ProtobufFormat(descriptors(), "shop.Order"), body)
    assert len(reasons(found)) + len(found.rows) == 1


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"\xff\xff", "shop.Order", "descriptor set is not valid"),
        (descriptors(), "shop.Oder", "shop.Line, shop.Node, shop.Order"),
        (descriptors(), "shop.Node", "contains itself"),
        (b"", "", "no messages"),
    ],
)
def test_descriptors_that_do_not_do_are_refused(content: bytes, name: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        ProtobufFormat(content, name)


# Text and bytes


def test_text_is_utf8_and_bytes_are_anything() -> None:
    sent = ["ä\n".encode(), b"", b"\xff", b"x"]
    text = decode(TextFormat(), *sent)
    assert [row["text"] for row in values(text)] == ["ä\n", "", "x"]
    assert "not UTF-8" in reasons(text)[2]
    assert [row["body"] for row in values(decode(BytesFormat(), *sent))] == sent
