"""The conversations of an AMQP job system: requests to a worker, progress and results back.

A requester and a worker, each declaring what it needs; exchanges `ichnaea.<job>.request` (direct)
and `.response` (fanout) with queues of the same names; XML in the bodies; and what happens when
one of them declares something differently, fails, or takes long.
"""

from __future__ import annotations

import threading
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

PATIENCE = 60


class Job:
    """The names of one kind of job."""

    def __init__(self, kind: str) -> None:
        self.request = f"ichnaea.{kind}.request"
        self.response = f"ichnaea.{kind}.response"


@pytest.fixture
def job(broker_url: str) -> Iterator[Job]:
    job = Job(f"fake-{uuid.uuid4().hex}")
    yield job
    connection = pika.BlockingConnection(pika.URLParameters(broker_url))
    channel = connection.channel()
    for name in (job.request, job.response):
        channel.queue_delete(name)
        channel.exchange_delete(name)
    connection.close()


class Worker(threading.Thread):
    """Declares the response side, takes requests without acknowledging, reports progress."""

    def __init__(self, url: str, job: Job, steps: int = 5, work: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.ready = threading.Event()
        self._url = f"{url}?heartbeat=1"
        self._job = job
        self._steps = steps
        self._work = work

    def run(self) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        channel = connection.channel()
        channel.exchange_declare(self._job.response, "fanout", durable=True)
        channel.queue_declare(self._job.response)
        channel.queue_bind(self._job.response, self._job.response, "")
        channel.queue_declare(self._job.request)
        channel.basic_consume(self._job.request, self._serve, auto_ack=True)
        self.ready.set()
        channel.start_consuming()
        connection.close()

    def _serve(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        request = ET.fromstring(body)
        if request.get("type") != "fake":
            self._respond(channel, properties, request, progress="1.0", error="no such job")
        else:
            for step in range(self._steps + 1):
                channel.connection.sleep(self._work / max(self._steps, 1))
                self._respond(channel, properties, request, progress=f"{step / self._steps:.1f}")
        channel.stop_consuming()

    def _respond(self, channel: Any, asked: Any, request: Any, **attributes: str) -> None:
        response = ET.Element("response", {"id": request.get("id"), **attributes})
        properties = pika.BasicProperties(
            content_type="text/xml", correlation_id=asked.correlation_id
        )
        channel.basic_publish(self._job.response, asked.reply_to, ET.tostring(response), properties)


def ask(url: str, job: Job, request: str) -> list[dict[str, str]]:
    """The requester: declare, publish, and read responses until the work is done."""
    connection = pika.BlockingConnection(pika.URLParameters(f"{url}?heartbeat=1"))
    channel = connection.channel()
    channel.exchange_declare(job.request, "direct", durable=True)
    channel.queue_declare(job.request)
    channel.queue_bind(job.request, job.request, "")
    channel.queue_declare(job.response)
    properties = pika.BasicProperties(
        content_type="text/xml", reply_to=uuid.uuid4().hex, correlation_id="42"
    )
    channel.basic_publish(job.request, "", request.encode(), properties)
    responses: list[dict[str, str]] = []
    for method, answered, body in channel.consume(
        job.response, auto_ack=True, inactivity_timeout=PATIENCE
    ):
        assert method is not None, "no response came"
        assert (method.exchange, answered.content_type) == (job.response, "text/xml")
        assert (method.routing_key, answered.correlation_id) == (properties.reply_to, "42")
        responses.append(dict(ET.fromstring(body).attrib))
        if responses[-1]["progress"] == "1.0":
            break
    channel.cancel()
    connection.close()
    return responses


def test_a_request_is_answered_with_progress(broker_url: str, job: Job) -> None:
    worker = Worker(broker_url, job)
    worker.start()
    assert worker.ready.wait(PATIENCE)

    responses = ask(broker_url, job, '<request type="fake" id="java.7" interval="1.0"/>')

    assert [response["progress"] for response in responses] == [
        "0.0",
        "0.2",
        "0.4",
        "0.6",
        "0.8",
        "1.0",
    ]
    assert {response["id"] for response in responses} == {"java.7"}
    worker.join(PATIENCE)


def test_a_request_waits_until_a_worker_comes(broker_url: str, job: Job) -> None:
    answers: list[list[dict[str, str]]] = []
    request = '<request type="fake" id="java.8"/>'
    asker = threading.Thread(target=lambda: answers.append(ask(broker_url, job, request)))
    asker.start()
    _wait_for_message(broker_url, job.request)

    worker = Worker(broker_url, job, steps=1)
    worker.start()
    asker.join(PATIENCE)

    assert answers[0][-1] == {"id": "java.8", "progress": "1.0"}
    worker.join(PATIENCE)


def test_a_failing_job_is_answered_with_the_error(broker_url: str, job: Job) -> None:
    worker = Worker(broker_url, job)
    worker.start()
    assert worker.ready.wait(PATIENCE)

    responses = ask(broker_url, job, '<request type="unknown" id="java.9"/>')

    assert responses == [{"id": "java.9", "progress": "1.0", "error": "no such job"}]
    worker.join(PATIENCE)


def test_heartbeats_carry_both_through_a_long_job(broker_url: str, job: Job) -> None:
    """Nothing is sent for longer than a silent peer is tolerated."""
    worker = Worker(broker_url, job, steps=1, work=3.5)
    worker.start()
    assert worker.ready.wait(PATIENCE)
    began = time.monotonic()

    responses = ask(broker_url, job, '<request type="fake" id="java.10"/>')

    assert responses[-1]["progress"] == "1.0"
    assert time.monotonic() - began > 3
    worker.join(PATIENCE)


def test_declaring_the_exchange_with_another_type_is_a_406(broker_url: str, job: Job) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker_url))
    connection.channel().exchange_declare(job.response, "fanout", durable=True)

    with pytest.raises(ChannelClosedByBroker) as caught:
        connection.channel().exchange_declare(job.response, "direct", durable=True)

    assert caught.value.reply_code == 406
    assert caught.value.reply_text.startswith("PRECONDITION_FAILED")
    connection.close()


def _wait_for_message(url: str, queue: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        channel = connection.channel()
        try:
            if channel.queue_declare(queue, passive=True).method.message_count:
                connection.close()
                return
        except ChannelClosedByBroker:
            pass
        connection.process_data_events(0.05)
    raise AssertionError("the request did not come")
