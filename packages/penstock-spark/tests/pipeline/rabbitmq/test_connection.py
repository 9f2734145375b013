"""RabbitMQ's stream plugin: found where it is, refused where it refuses, done without elsewhere."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace

import pytest

from penstock.core.errors import AuthenticationFailed, FrameError, NotFound
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.rabbitmq.backend import RabbitmqStreamBackend
from penstock_spark.rabbitmq.connection import StreamConnection, is_stream_plugin_available
from penstock_spark.streams.amqp import AmqpStreamBackend
from penstock_spark.streams.endpoint import find_endpoint
from tests.peers import Penstock, RabbitMQ, free_port

pytestmark = pytest.mark.peer


def test_who_is_not_let_in_is_told(plugged_rabbitmq: RabbitMQ) -> None:
    address = replace(parse_amqp_url(plugged_rabbitmq.url), password="wrong")

    with pytest.raises(AuthenticationFailed, match="authentication failed"):
        StreamConnection(address, plugged_rabbitmq.stream_port)


def test_a_virtual_host_or_stream_that_is_not_there(plugged_rabbitmq: RabbitMQ) -> None:
    address = parse_amqp_url(plugged_rabbitmq.url)

    with pytest.raises(NotFound, match="virtual host"):
        StreamConnection(replace(address, vhost="nowhere"), plugged_rabbitmq.stream_port)
    with (
        StreamConnection(address, plugged_rabbitmq.stream_port) as connection,
        pytest.raises(NotFound, match="no such stream"),
    ):
        connection.subscribe("nowhere", 0, 1)


def test_the_door_is_the_plugins_if_it_answers(plugged_rabbitmq: RabbitMQ) -> None:
    address = parse_amqp_url(plugged_rabbitmq.url)

    assert isinstance(
        find_endpoint(address, None, plugged_rabbitmq.stream_port).open(), RabbitmqStreamBackend
    )
    for port in (0, free_port(), plugged_rabbitmq.port):
        assert isinstance(find_endpoint(address, None, port).open(), AmqpStreamBackend)


def test_another_protocol_is_no_stream_plugin(penstock: Penstock) -> None:
    address = parse_amqp_url(penstock.url)

    assert not is_stream_plugin_available(address, address.port)


def test_a_frame_that_cannot_be_one_ends_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        port = server.getsockname()[1]
        with pytest.raises(FrameError, match="invalid frame size"):
            StreamConnection(parse_amqp_url(f"amqp://127.0.0.1:{port}"), port)
        thread.join()
