"""RabbitMQ's list of queues, from a management API that has its moods."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from penstock.core.errors import ConfigurationError
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp091.errors import is_transient_amqp_error
from penstock_spark.errors import StreamListUnavailable
from penstock_spark.streams.amqp import AmqpStreamBackend
from tests.peers import free_port


@contextmanager
def answering(status: int, body: object) -> Iterator[AmqpStreamBackend]:
    """The streams of a broker whose management API always answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield AmqpStreamBackend(
                parse_amqp_url("amqp://h"), f"http://127.0.0.1:{server.server_port}/api"
            )
        finally:
            server.shutdown()
            thread.join()


def test_streams_are_the_queues_of_that_type() -> None:
    rows = [{"name": "a", "type": "stream"}, {"name": "b", "type": "classic"}]

    with answering(200, rows) as streams:
        assert streams.names() == {"a"}


def test_a_fault_of_the_moment_passes() -> None:
    with (
        answering(500, {"error": "internal"}) as streams,
        pytest.raises(StreamListUnavailable) as told,
    ):
        streams.names()

    assert is_transient_amqp_error(told.value)


def test_nobody_listening_passes_and_says_what_is_needed() -> None:
    streams = AmqpStreamBackend(parse_amqp_url("amqp://h"), f"http://127.0.0.1:{free_port()}/api")

    with pytest.raises(StreamListUnavailable, match="write the names out"):
        streams.names()


@pytest.mark.parametrize("status", [401, 404])
def test_a_refusal_does_not_pass(status: int) -> None:
    with answering(status, {}) as streams, pytest.raises(ConfigurationError, match="tag"):
        streams.names()
