"""Spans of messages through the broker and the client, received by a collector."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pika
import pytest

from penstock.client import Fabric, RemoteError, blocking_client, connect
from penstock.core import telemetry as process_telemetry
from penstock.core.config import BrokerSettings
from penstock.server import Broker
from tests.collector import SpanCollector
from tests.peers import free_port

PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"

LISTEN = ["amqp://127.0.0.1:0", "mqtt://127.0.0.1:0"]


@pytest.fixture
async def traced(telemetry: SpanCollector, tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(BrokerSettings(listen=LISTEN), data=tmp_path / "data") as broker:
        yield broker


def url_of(broker: Broker, scheme: str = "amqp") -> str:
    address = broker.addresses[scheme.startswith("mqtt")]
    return f"{scheme}://guest:guest@{address.partition('://')[2]}"


@pytest.mark.parametrize("scheme", ["amqp", "amqp+1.0", "mqtt"])
async def test_one_trace_from_publish_to_what_the_subscriber_publishes(
    scheme: str, traced: Broker, telemetry: SpanCollector
) -> None:
    address, answer = ("a/b", "c/d") if scheme == "mqtt" else ("a.b", "c.d")
    async with connect(url_of(traced, scheme)) as fabric:
        async with fabric.subscribe(address) as first, fabric.subscribe(answer) as second:
            await fabric.publish(address, "hello", headers={"color": "red"}, message_id="m1")
            async for message in first:
                assert message.headers["color"] == "red"
                await fabric.publish(answer, "answer")
                break
            await second.receive()
    exchange = "amq.topic"
    sent, replied = (address, answer) if scheme == "mqtt" else (exchange, exchange)
    source = address if scheme == "mqtt" else exchange
    publish, route, process, _ = telemetry.wait_for(
        f"publish {sent}", f"route {exchange}", f"process {source}", f"publish {replied}"
    )
    publishes = [each for each in telemetry.spans if each.name == f"publish {replied}"]
    assert (publish.kind, route.kind, process.kind) == ("PRODUCER", "SERVER", "CONSUMER")
    assert route.parent == process.parent == publish.id
    assert publish.parent == ""
    assert publishes[-1].parent == process.id
    assert {each.trace for each in telemetry.spans} == {publish.trace}
    assert publish.service == "penstock-test"
    name = address if scheme == "mqtt" else f"amq.topic:{address}"
    assert publish.attributes == {
        "messaging.system": "penstock",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": name,
        "messaging.message.id": "m1",
    }
    assert process.attributes["messaging.operation.type"] == "process"
    assert process.attributes["messaging.message.id"] == "m1"
    assert process.attributes["messaging.message.body.size"] == 5
    assert route.attributes["messaging.destination.name"] == "amq.topic:a.b"


@pytest.mark.parametrize("scheme", ["amqp", "amqp+1.0", "mqtt"])
async def test_a_request_its_service_and_its_reply(
    scheme: str, traced: Broker, telemetry: SpanCollector
) -> None:
    async with connect(url_of(traced, scheme)) as fabric:

        async def square(request: Any) -> Any:
            if request.json() < 0:
                raise ValueError("negative")
            return request.json() ** 2

        async with fabric.serve("square", square):
            assert (await fabric.request("square", 7)).json() == 49
            with pytest.raises(RemoteError):
                await fabric.request("square", -1)
    failed = await asyncio.to_thread(_wait_for_error, telemetry, "process square")
    request, process, reply = telemetry.wait_for(
        "request square", "process square", "reply (temporary)"
    )
    assert process.parent == request.id
    assert reply.parent == process.id
    assert (reply.trace, reply.id) in request.links
    assert request.end >= reply.start
    assert failed.error == "negative"
    assert failed.attributes["error.type"] == "ValueError"


def _wait_for_error(collector: SpanCollector, name: str) -> Any:
    with collector._received:
        assert collector._received.wait_for(lambda: _errors(collector, name), 60)
        return _errors(collector, name)[0]


def _errors(collector: SpanCollector, name: str) -> list[Any]:
    return [span for span in collector.spans if span.name == name and span.error]


async def test_the_time_in_the_queue_and_the_path_of_a_dead_letter(
    traced: Broker, telemetry: SpanCollector
) -> None:
    async with connect(url_of(traced)) as fabric:
        channel = await (await fabric.amqp.connection()).channel()
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        await channel.declare_queue("orders", arguments=dead)
        await channel.declare_queue("dead")
        for _ in range(3):  # a backlog of like messages, which is delivered as a run
            await fabric.push("orders").send(b"x")
        async with fabric.pull("orders") as orders:
            for _ in range(3):
                await (await orders.receive()).reject()
        async with fabric.pull("dead") as letters:
            for _ in range(3):
                await (await letters.receive()).ack()
    route, store, deliver, dead_letter, _, _ = telemetry.wait_for(
        *("route amq.default", "store orders", "deliver orders", "dead-letter orders"),
        *("store dead", "receive dead"),
    )
    assert store.parent == deliver.parent == dead_letter.parent == route.id
    assert store.attributes["penstock.storage"] == "log"
    assert deliver.start == store.start
    assert deliver.end >= store.end
    assert dead_letter.attributes["penstock.reason"] == "rejected"
    await asyncio.to_thread(_wait_for_count, telemetry, "deliver dead", 3)
    names = [span.name for span in telemetry.spans]
    assert names.count("deliver orders") == 3
    assert names.count("route amq.default") == 6


def _wait_for_count(collector: SpanCollector, name: str, count: int) -> None:
    def arrived() -> bool:
        return sum(span.name == name for span in collector.spans) >= count

    with collector._received:
        assert collector._received.wait_for(arrived, 60)


async def test_a_pika_publisher_with_its_own_instrumentation(
    traced: Broker, telemetry: SpanCollector
) -> None:
    from opentelemetry.instrumentation.pika import PikaInstrumentor

    def publish() -> None:
        with pika.BlockingConnection(pika.URLParameters(url_of(traced))) as connection:
            channel = connection.channel()
            PikaInstrumentor.instrument_channel(channel)
            channel.basic_publish("", "work", b"from pika")

    async with connect(url_of(traced)) as fabric, fabric.pull("work") as work:
        await asyncio.to_thread(publish)
        async for message in work:
            assert message.body == b"from pika"
            await fabric.publish("done", "response")
            break
    published, process, response = telemetry.wait_for(
        "work send", "process work", "publish amq.topic"
    )
    assert published.attributes["messaging.system"] == "rabbitmq"
    assert process.parent == published.id
    assert response.parent == process.id
    assert len({span.trace for span in telemetry.spans}) == 1


async def test_a_blocking_program(traced: Broker, telemetry: SpanCollector) -> None:
    def work() -> None:
        with blocking_client.connect(url_of(traced)) as fabric:
            fabric.push("jobs").send("x")
            for _ in fabric.pull("jobs"):
                fabric.publish("done", "y")
                break

    await asyncio.to_thread(work)
    push, process, done = telemetry.wait_for("publish jobs", "process jobs", "publish amq.topic")
    assert process.parent == push.id
    assert done.parent == process.id


@pytest.mark.parametrize(
    "header", ["00-nothex", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", 7, ["x"], "ff" * 5000]
)
async def test_a_malformed_context_is_ignored(
    header: Any, traced: Broker, telemetry: SpanCollector
) -> None:
    async with connect(url_of(traced)) as fabric, fabric.pull("work") as work:
        await publish_as_is(fabric, "work", {"traceparent": header})
        async for message in work:
            assert message.headers["traceparent"] == header
            break
    [process] = telemetry.wait_for("process work")
    assert process.parent == ""
    assert process.trace
    assert [span.name for span in telemetry.spans if span.name != "process work"] == []


async def test_a_context_that_is_not_sampled_has_no_spans(
    traced: Broker, telemetry: SpanCollector
) -> None:
    async with connect(url_of(traced)) as fabric, fabric.pull("work") as work:
        for headers in ({"traceparent": PARENT[:-1] + "0"}, {"traceparent": PARENT}):
            await publish_as_is(fabric, "work", headers)
            await (await work.receive()).ack()
    telemetry.wait_for("deliver work", "receive work")
    assert {span.trace for span in telemetry.spans} == {"ab" * 16}
    assert [span.name for span in telemetry.spans].count("deliver work") == 1


async def publish_as_is(fabric: Fabric, queue: str, headers: dict[str, Any]) -> None:
    from penstock.core.basic_properties import BasicProperties

    channel = await (await fabric.amqp.connection()).channel()
    await channel.declare_queue(queue)
    channel.publish("", queue, b"x", BasicProperties(headers=headers))


async def test_a_trace_rule_selects_messages_of_publishers_without_opentelemetry(
    traced: Broker, telemetry: SpanCollector
) -> None:
    from penstock.destinations.tracing import TraceRules

    traced.tracer(traced.vhosts["/"]).set_rules(TraceRules(keys=("wanted",)))
    async with connect(url_of(traced)) as fabric:
        for queue in ("other", "wanted"):
            async with fabric.pull(queue) as messages:
                await publish_as_is(fabric, queue, {})
                await (await messages.receive()).ack()
    route, receive = telemetry.wait_for("route amq.default", "receive wanted")
    assert route.attributes["penstock.queues"] == ["wanted"]
    assert receive.trace == route.trace
    [other] = telemetry.wait_for("receive other")
    assert other.parent == ""


async def test_a_stalled_collector_delays_no_message(
    traced: Broker, telemetry: SpanCollector
) -> None:
    telemetry.stalled.set()
    async with connect(url_of(traced)) as fabric, fabric.pull("work") as work:
        async with fabric.push("work") as sender:
            for number in range(1500):  # more spans than the exporter queues
                await sender.post(str(number))
        for number in range(1500):
            message = await work.receive()
            assert message.text == str(number)
            await message.ack()
    assert telemetry.spans == []
    telemetry.stalled.clear()
    telemetry.go_on.set()
    telemetry.wait_for("receive work")


IDLE = """
import asyncio, sys
import penstock.cli
from penstock.client import connect
from penstock.core.config import BrokerSettings
from penstock.server import Broker

async def main():
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0"])
    async with Broker(settings, data=__import__("pathlib").Path(sys.argv[1])) as broker:
        url = broker.addresses[0].replace("://", "://guest:guest@")
        async with connect(url) as fabric, fabric.pull("work") as work:
            await fabric.push("work").send("x")
            message = await work.receive()
            assert message.headers == {}, message.headers
            assert type(broker.vhosts["/"].queues["work"]).__name__ == "ClassicQueue"

asyncio.run(main())
loaded = [name for name in sys.modules if name.startswith("opentelemetry")]
assert not loaded, loaded
"""


def test_nothing_is_loaded_while_it_is_off(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if "OTEL" not in name}
    subprocess.run(
        [sys.executable, "-c", IDLE, str(tmp_path / "data")], env=environment, check=True
    )


def test_the_api_alone_records_nothing() -> None:
    """Libraries such as FastAPI import it."""
    import opentelemetry.trace  # noqa: F401

    assert process_telemetry.message_spans() is None


async def test_a_command_sends_spans_as_the_environment_says(
    collector: SpanCollector, tmp_path: Path
) -> None:
    async with Broker(BrokerSettings(listen=LISTEN), data=tmp_path / "data") as broker:
        async with connect(url_of(broker)) as fabric, fabric.subscribe("a.*") as messages:
            for endpoint in (collector.url, f"http://127.0.0.1:{free_port()}"):
                environment = {
                    **os.environ,
                    "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                    "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
                }
                command = ["pub", "--url", url_of(broker), "a.b", "hello"]
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "penstock", *command, env=environment
                )
                message = await messages.receive()
                assert message.text == "hello"
                assert message.headers["traceparent"]
                assert await process.wait() == 0, "with and without a collector"
    [publish] = collector.wait_for("publish amq.topic")
    assert publish.service == "penstock-pub"


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "otlp, console and none are supported"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "use http/protobuf",
        ),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, "max_queue_size"),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, ""),
        ({}, ""),
    ],
)
def test_an_unusable_environment_is_a_warning(
    variables: dict[str, str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    process_telemetry.use_environment("penstock-test")
    assert process_telemetry.message_spans() is None
    assert problem in caplog.text
    assert bool(problem) == bool(caplog.records)
