"""The conversations of the Ichnaea thesis, chapter 4: a client of that time, and our worker.

The client is pika and knows nothing of us: it declares what theirs declares, sends XML and MIME,
and reads what comes.
"""

from __future__ import annotations

import threading
import uuid
import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pika
import pytest

from penstock_jobs.formats import MessageFormat, read_response, write_request
from penstock_jobs.model import BuildModels, PredictModels
from penstock_jobs.science import synthetic
from tests.integration.jobs.running import PATIENCE, WorkerProcess, clean
from tests.peers import Broker


class Ichnaea:
    """A request client as theirs is: queues that are not durable, consumers that acknowledge
    by being sent to."""

    def __init__(self, url: str, kind: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._request = f"ichnaea.{kind}.request"
        self._response = f"ichnaea.{kind}.response"
        self._channel.exchange_declare(self._request, "direct", durable=True)
        self._channel.queue_declare(self._request)
        self._channel.queue_bind(self._request, self._request, "")
        self._channel.queue_declare(self._response)

    def ask(self, body: bytes, content_type: str = "text/xml") -> str:
        reply_to = uuid.uuid4().hex
        properties = pika.BasicProperties(content_type=content_type, reply_to=reply_to)
        self._channel.basic_publish(self._request, "", body, properties)
        return reply_to

    def answers(self, count: int = 1) -> list[tuple[str, Any, bytes]]:
        """Routing key, properties, body; to the last of so many requests."""
        found: list[tuple[str, Any, bytes]] = []
        for method, properties, body in self._channel.consume(
            self._response, auto_ack=True, inactivity_timeout=PATIENCE
        ):
            assert method is not None, "no response came"
            found.append((method.routing_key, properties, body))
            count -= read_response(body)[0].final
            if not count:
                break
        self._channel.cancel()
        return found

    def close(self) -> None:
        self._connection.close()


def new_id(stem: str) -> str:
    """A worker remembers what it has answered: one that is used again is not answered again."""
    return f"{stem}.{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    clean(broker.url)
    options = ("--compatible", "--fork", "3", "--methods", "lda,bayes", "--attempts", "1")
    process = WorkerProcess(broker.url, tmp_path_factory.mktemp("worker"), "worker", *options)
    yield process.ready()
    process.stop()
    clean(broker.url)


@pytest.fixture
def ichnaea(worker: WorkerProcess, broker: Broker, request: Any) -> Iterator[Ichnaea]:
    client = Ichnaea(broker.url, getattr(request, "param", "fake"))
    yield client
    client.close()


@pytest.mark.parametrize(
    "seconds", [1.0, pytest.param(10.0, marks=pytest.mark.slow)], ids=["quick", "as printed"]
)
def test_a_fake_request_is_answered_in_steps(ichnaea: Ichnaea, seconds: float) -> None:
    name, interval = new_id("java.FakeRequestApp"), seconds / 10
    reply_to = ichnaea.ask(
        f'<request duration="{seconds}" id="{name}" interval="{interval}" type="fake"/>'.encode()
    )

    answers = ichnaea.answers()

    assert {key for key, _, _ in answers} == {reply_to}
    assert {properties.content_type for _, properties, _ in answers} == {"text/xml"}
    responses = [read_response(body)[0] for _, _, body in answers]
    assert [round(each.progress, 1) for each in responses] == [n / 10 for n in range(11)]
    first = responses[0]
    assert first.id == name
    assert first.start is not None
    assert first.end is not None
    assert round((first.end - first.start).total_seconds(), 1) == seconds


@pytest.mark.parametrize("ichnaea", ["build-models"], indirect=True)
def test_models_are_built_and_predict(ichnaea: Ichnaea, broker: Broker) -> None:
    request = BuildModels(new_id("java.Build"), synthetic.reference_columns(1), synthetic.agings(1))
    ichnaea.ask(write_request(request, MessageFormat.XML).body)

    _, properties, body = ichnaea.answers()[-1]

    assert properties.content_type == "multipart/mixed"
    assert body.startswith(b"--")
    built = read_response(body)[0]
    assert built.error is None
    assert "manifest.json" in zipfile.ZipFile(BytesIO(built.models)).namelist()

    asker = Ichnaea(broker.url, "predict-models")
    samples = PredictModels(new_id("java.Predict"), synthetic.test_columns(1), built.models)
    asker.ask(write_request(samples, MessageFormat.MIME).body, "multipart/mixed")
    _, properties, body = asker.answers()[-1]
    asker.close()

    assert properties.content_type == "multipart/mixed"
    assert body.startswith(b"<response")
    predicted = read_response(body)[0]
    assert [each.name for each in predicted.results] == ["MAJORITY_VOTE", "ERROR", "ERROR2"]
    assert {each.total_samples for each in predicted.results} == {15}


def test_several_requests_at_once_are_each_answered(ichnaea: Ichnaea) -> None:
    keys = {
        ichnaea.ask(f'<request duration="0.4" id="{name}" interval="0.2" type="fake"/>'.encode())
        for name in (new_id("m") for _ in range(6))
    }

    answers = ichnaea.answers(len(keys))

    finals = [key for key, _, body in answers if read_response(body)[0].final]
    assert sorted(finals) == sorted(keys)


def test_requests_of_several_clients_are_shared_out(ichnaea: Ichnaea, broker: Broker) -> None:
    """Those of one type read one queue, as theirs do; none is answered twice."""
    names = [new_id("s") for _ in range(4)]

    def ask(name: str) -> None:
        client = Ichnaea(broker.url, "fake")
        client.ask(f'<request duration="0" id="{name}" type="fake"/>'.encode())
        client.close()

    askers = [threading.Thread(target=ask, args=(name,)) for name in names]
    for each in askers:
        each.start()
    for each in askers:
        each.join()
    found = [read_response(body)[0] for _, _, body in ichnaea.answers(4)]

    assert sorted(each.id for each in found if each.final) == sorted(names)
