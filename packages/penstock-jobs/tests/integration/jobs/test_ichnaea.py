"""The Ichnaea commands with programs of that time: a worker, clients, and the history beside them.

Programs of that time are pika and know nothing of us. Each test has the only worker there is.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from typer.testing import CliRunner

import penstock_jobs.commands.submit
from penstock_jobs.commands.job import app
from penstock_jobs.formats import read_request, read_response, write_response
from penstock_jobs.formats.message import MessageFormat
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.model import JobResponse, JobState
from penstock_store import Database
from tests.databases import copy_of
from tests.integration.jobs.running import PATIENCE, WorkerProcess, clean
from tests.integration.jobs.test_chapter4 import Ichnaea, new_id
from tests.peers import Broker, Penstock


@contextmanager
def processing(url: str, kind: str) -> Iterator[list[str]]:
    """The worker of that time: it declares its queues, takes requests without acknowledgements, and
    publishes responses with the reply-to as their key. The content types it has seen."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    requests, responses = f"ichnaea.{kind}.request", f"ichnaea.{kind}.response"
    channel.exchange_declare(responses, "fanout", durable=True)
    channel.queue_declare(responses)
    channel.queue_bind(responses, responses, "")
    channel.queue_declare(requests)
    seen: list[str] = []

    def work(_: Any, method: Any, properties: Any, body: bytes) -> None:
        request, _ = read_request(body)
        seen.append(properties.content_type)
        for progress in (0.5, 1.0):
            response = JobResponse(request.id, request.type, progress)
            said = pika.BasicProperties(content_type="text/xml")
            answer = write_response(response, MessageFormat.XML).body
            channel.basic_publish(responses, properties.reply_to, answer, said)

    channel.basic_consume(requests, work, auto_ack=True)
    thread = threading.Thread(target=channel.start_consuming)
    thread.start()
    try:
        yield seen
    finally:
        connection.add_callback_threadsafe(channel.stop_consuming)
        thread.join()
        connection.close()


def test_a_worker_of_that_time_answers_our_requests(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(penstock_jobs.commands.submit, "log_warnings_plainly", lambda: None)
    clean(broker.url)
    for kind, words in (
        ("fake", ("--duration", "1", "--interval", "1")),
        ("build-models", ("--fake", "1:1")),
        ("predict-models", ("--fake", "1:1")),
    ):
        with processing(broker.url, kind) as seen:
            told = CliRunner().invoke(
                app, [f"{kind}:request", *words, "--id", kind, "--uri", broker.url]
            )
        assert (told.exit_code, told.stdout) == (0, f"{kind}: done\n"), told.output
        assert len(seen) == 1
    clean(broker.url)


@pytest.mark.parametrize("connection_type", ["RabbitMQ", "Qpid"])
def test_responses_to_an_exchange_and_queues_of_a_site_are_in_the_history(
    penstock: Penstock, embedded_template: str, tmp_path: Path, connection_type: str
) -> None:
    """And the queues are those of the clients: a broker refuses other arguments."""
    clean(penstock.url)
    name = new_id("site")
    with copy_of(embedded_template) as url, Database(url) as database:
        worker = WorkerProcess(
            penstock.url,
            tmp_path,
            *("fake:process", "--connection-type", connection_type, "--database", url),
            *("--response-exchange", "site.responses", "--response-queue", "site.a,site.b"),
        ).ready()
        client = Ichnaea(penstock.url, "fake")
        client.ask(f'<request duration="0.2" id="{name}" interval="0.1" type="fake"/>'.encode())
        assert read_response(client.answers()[-1][2])[0].id == name
        client.close()
        wait_for(JobRepository(database), name)
        events = [event.state for event in JobRepository(database).events(name)]
        assert worker.stop() == 0
    connection = pika.BlockingConnection(pika.URLParameters(penstock.url))
    channel = connection.channel()
    for queue in ("site.a", "site.b"):
        assert channel.queue_declare(queue).method.message_count > 1  # as theirs are, transient
        channel.queue_delete(queue)
    channel.exchange_delete("site.responses")
    connection.close()
    clean(penstock.url)
    assert events == [JobState.WAITING, JobState.RUNNING, JobState.DONE]


def test_a_verbose_process_logs_what_its_script_prints(penstock: Penstock, tmp_path: Path) -> None:
    clean(penstock.url)
    script = tmp_path / "ichnaea.sh"
    script.write_text("#!/bin/sh\necho 'percent: 50%'\necho \"working on $2\"\n")
    script.chmod(0o755)
    arguments = ("fake:process", "-i", str(script), "--verbose")
    worker = WorkerProcess(penstock.url, tmp_path, *arguments).ready()
    client = Ichnaea(penstock.url, "fake")
    client.ask(b'<request duration="3" id="loud" interval="1" type="fake"/>')
    responses = [read_response(body)[0] for _, _, body in client.answers()]
    client.close()
    assert worker.stop() == 0
    clean(penstock.url)
    assert "working on 3:1" in worker.log
    assert [each.progress for each in responses][-2:] == [0.5, 1.0]  # 0 before them if it is slow


def wait_for(repository: JobRepository, name: str) -> None:
    """The history is told at the same time as the client."""
    deadline = time.monotonic() + PATIENCE
    while repository.known([name]).get(name, (0, None))[1] is not JobState.DONE:
        assert time.monotonic() < deadline, json.dumps(str(repository.known([name])))
        time.sleep(0.05)
