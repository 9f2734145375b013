"""Schemas at publish: each protocol gets the reason, or the message is dead-lettered."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import aio_pika
import fastavro
import httpx
import pytest
from aio_pika.exceptions import ChannelPreconditionFailed, DeliveryError
from google.protobuf import descriptor_pb2

from penstock.broker.contract import Message
from penstock.client import connect
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.config import BrokerSettings
from penstock.core.errors import PenstockError, PreconditionFailed, SchemaViolation
from penstock.destinations.schemas import MessageSchema
from penstock.server import Broker
from tests.server.management.test_delayed import LISTEN, api_of, url_of

NESTED = {"type": "array", "items": {"$ref": "#"}}
ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


def protobuf_schema() -> str:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    field = file.message_type.add(name="Order").field.add(name="id", number=1)
    field.type = descriptor_pb2.FieldDescriptorProto.TYPE_INT64
    field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    return base64.b64encode(files.SerializeToString()).decode()


def avro_body(value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), value)
    return stream.getvalue()


def message(body: bytes, key: str = "orders.new") -> Message:
    header = encode_header(BasicProperties(), len(body))
    return Message(encode_route("shop", key), header, body)


@pytest.mark.parametrize(
    ("definition", "good", "bad", "reason"),
    [
        ({"type": "json", "schema": ORDER}, b'{"id": 1}', b'{"id": "x"}', r"\$.id: 'x'"),
        ({"type": "json", "schema": json.dumps(ORDER)}, b'{"id": 1}', b"{", "Expecting property"),
        ({"type": "json", "schema": ORDER}, b'{"id": 1}', b"[" * 100_000, "Expecting|deep"),
        ({"type": "json", "schema": NESTED}, b"[[]]", b"[" * 900 + b"]" * 900, "too deeply"),
        ({"type": "avro", "schema": AVRO}, avro_body({"id": 7}), b"", "not a value of the Avro"),
        ({"type": "avro", "schema": AVRO}, avro_body({"id": 7}), b"\x02\x02", "1 bytes after"),
        (
            {"type": "protobuf", "schema": protobuf_schema(), "message": "shop.Order"},
            b"\x08\x01", b"\x08", "not a shop.Order",
        ),
        (
            {"type": "protobuf", "schema": protobuf_schema(), "message": "shop.Order"},
            b"", b"\x10\x01", "unknown field 2",
        ),
    ],
)  # fmt: skip
def test_bodies_are_checked(definition: Any, good: bytes, bad: bytes, reason: str) -> None:
    schema = MessageSchema("orders", {**definition, "keys": ["orders.#"]})
    schema.check(message(good))
    schema.check(message(bad, "other.key"))
    with pytest.raises(SchemaViolation, match=reason):
        schema.check(message(bad))


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ({"type": "xml", "schema": ""}, "type should be one of"),
        ({"type": "json"}, "schema is missing"),
        ({"type": "json", "schema": {"type": "nothing"}}, "SchemaError"),
        ({"type": "avro", "schema": {"type": "nothing"}}, "UnknownType"),
        ({"type": "protobuf", "schema": "", "message": 3}, "message"),
        ({"type": "protobuf", "schema": "%", "message": "x"}, "FileDescriptorSet"),
        ({"type": "json", "schema": {}, "on-invalid": "ignore"}, "on-invalid"),
        ({"type": "json", "schema": {}, "on-invalid": "dead-letter"}, "dead-letter-exchange"),
        ({"type": "json", "schema": {}, "colour": 1}, "unrecognised term 'colour'"),
    ],
)
def test_invalid_schemas_are_refused(definition: Any, reason: str) -> None:
    with pytest.raises(PreconditionFailed, match=reason):
        MessageSchema("orders", definition)


async def declare(api: httpx.AsyncClient, **settings: str) -> None:
    value = {"type": "json", "schema": ORDER}
    value |= {key.replace("_", "-"): each for key, each in settings.items()}
    answer = await api.put("/parameters/schema/%2F/orders", json={"value": value})
    assert answer.is_success, answer.text
    policy = {"pattern": "^amq.topic$", "apply-to": "exchanges", "definition": {"schema": "orders"}}
    assert (await api.put("/policies/%2F/orders", json=policy)).is_success


async def test_every_protocol_gets_the_reason(tmp_path: Path) -> None:
    async with (
        Broker(BrokerSettings(listen=LISTEN), data=tmp_path) as broker,
        api_of(broker) as api,
    ):
        await api.put("/queues/%2F/work", json={"durable": True})
        await api.post("/bindings/%2F/e/amq.topic/q/work", json={"routing_key": "#"})
        for scheme in ("amqp", "amqp+1.0", "mqtt"):
            async with connect(url_of(broker, scheme)) as fabric:
                await fabric.publish("before", "anything")
        await declare(api)
        refusals = {}
        for scheme in ("amqp", "amqp+1.0", "mqtt"):
            async with connect(url_of(broker, scheme)) as fabric:
                await fabric.publish("orders", {"id": 1})
                with pytest.raises(PenstockError) as refused:
                    await fabric.publish("orders", {"id": "x"})
                refusals[scheme] = str(refused.value)
        assert "$.id: 'x' is not of type 'integer'" in refusals["amqp+1.0"]
        assert "payload format invalid" in refusals["mqtt"]
        connection = await aio_pika.connect(url_of(broker, "amqp"))
        async with connection, await connection.channel(publisher_confirms=True) as channel:
            exchange = await channel.get_exchange("amq.topic")
            with pytest.raises(DeliveryError):
                await exchange.publish(aio_pika.Message(b"{}"), "orders")
            plain = await connection.channel(publisher_confirms=False)
            exchange = await plain.get_exchange("amq.topic")
            await exchange.publish(aio_pika.Message(b"{}"), "orders")
            with pytest.raises(ChannelPreconditionFailed, match="'id' is a required property"):
                await plain.declare_queue("work", passive=True)
        assert broker.vhosts["/"].queues["work"].message_count == 6

        assert (await api.delete("/parameters/schema/%2F/orders")).status_code == 204
        body = {"properties": {}, "routing_key": "k", "payload": "{}", "payload_encoding": "string"}
        answer = await api.post("/exchanges/%2F/amq.topic/publish", json=body)
        assert "no schema 'orders'" in answer.text


async def test_invalid_messages_are_dead_lettered(tmp_path: Path) -> None:
    async with (
        Broker(BrokerSettings(listen=LISTEN), data=tmp_path) as broker,
        api_of(broker) as api,
    ):
        await api.put("/queues/%2F/invalid", json={"durable": True})
        await api.post("/bindings/%2F/e/amq.fanout/q/invalid", json={})
        await declare(api, on_invalid="dead-letter", dead_letter_exchange="amq.fanout")
        async with connect(url_of(broker, "mqtt")) as fabric:
            await fabric.publish("orders/1", "not JSON")
        take = {"count": 5, "ackmode": "ack_requeue_false", "encoding": "auto"}
        [row] = (await api.post("/queues/%2F/invalid/get", json=take)).json()
        assert (row["payload"], row["routing_key"]) == ("not JSON", "orders.1")
        assert "schema 'orders'" in row["properties"]["headers"]["x-schema-error"]
