"""The errors of the Ichnaea thesis, chapter 4: a script that fails, a declaration that is refused.

Each test has the only worker there is. Another one, of the same type and with nothing wrong with
it, would come back as soon as its queues were deleted, and take the request.
"""

from __future__ import annotations

from pathlib import Path

import pika

from penstock_jobs.formats import read_response
from tests.integration.jobs.running import PATIENCE, WorkerProcess, clean
from tests.peers import Broker


def test_a_script_that_cannot_be_run_is_told_in_the_response(
    broker: Broker, tmp_path: Path
) -> None:
    clean(broker.url)
    arguments = ("fake:process", "-i", "/no/such/ichnaea.sh")
    worker = WorkerProcess(broker.url, tmp_path, *arguments).ready()
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    said = pika.BasicProperties(content_type="text/xml", reply_to="r")
    channel.basic_publish("ichnaea.fake.request", "", b'<request id="1" type="fake"/>', said)

    for method, _, body in channel.consume(
        "ichnaea.fake.response", auto_ack=True, inactivity_timeout=PATIENCE
    ):
        assert method is not None, "no response came"
        response = read_response(body)[0]
        if response.final:
            break

    connection.close()
    assert response.error is not None
    assert response.error.startswith("failed command result: cannot run '/no/such/ichnaea.sh'")
    assert (response.progress, worker.stop()) == (1.0, 0)
    clean(broker.url)


def test_an_exchange_declared_otherwise_ends_the_worker_with_the_reason(
    broker: Broker, tmp_path: Path
) -> None:
    clean(broker.url)
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel().exchange_declare("ichnaea.fake.response", "direct", durable=True)

    worker = WorkerProcess(broker.url, tmp_path, "fake:process")

    assert worker.wait() == 5
    assert "PRECONDITION_FAILED" in worker.log
    connection.close()
    clean(broker.url)
