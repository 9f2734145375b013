"""A range comes whole and once, also over a connection that breaks within a record batch."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.connector import range_reader
from penstock_spark.connector.columns import MessageColumns
from penstock_spark.connector.range_reader import RangeReader
from penstock_spark.streams.backend import StreamRange
from penstock_spark.streams.endpoint import StreamEndpoint, find_endpoint
from tests.peers import Penstock
from tests.pipeline.given import declare, publish

COUNT = 500


class BreakingProxy:
    """Passes bytes on to a port; the first connections break after so many bytes of answers."""

    def __init__(self, port: int, breaks: list[int]) -> None:
        self._target = port
        self.breaks = breaks
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                most = self.breaks.pop(0) if self.breaks else None
                pump = threading.Thread(target=self._pump, args=(client, server, None), daemon=True)
                pump.start()
                threading.Thread(
                    target=self._pump, args=(server, client, most), daemon=True
                ).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, most: int | None) -> None:
        with suppress(OSError):
            while data := source.recv(4096 if most is None else min(most, 4096)):
                sink.sendall(data)
                if most is not None and (most := most - len(data)) <= 0:
                    break
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def bodies(penstock: Penstock, name: str) -> list[bytes]:
    found = [b"%d" % number * 100 for number in range(COUNT)]
    declare(penstock.url, name)
    publish(penstock.url, name, found)
    return found


@pytest.fixture(params=["arrow", "amqp"])
def endpoint(request: pytest.FixtureRequest, penstock: Penstock) -> Iterator[StreamEndpoint]:
    direct = find_endpoint(parse_amqp_url(penstock.url))
    assert direct.ranges is not None
    # Within the first answer and, after another attempt, within the next.
    breaks = [3_000, 70_000]
    arrow = request.param == "arrow"
    port = urlsplit(direct.ranges).port if arrow else direct.address.port
    assert port is not None
    with closing(BreakingProxy(port, breaks)) as proxy:
        if arrow:
            broken = replace(direct, ranges=direct.ranges.replace(str(port), str(proxy.port)))
        else:
            broken = StreamEndpoint(replace(direct.address, port=proxy.port), None)
        yield broken
        assert len(breaks) < 2, "nothing was broken"


def test_a_connection_that_breaks_loses_and_repeats_nothing(
    endpoint: StreamEndpoint, bodies: list[bytes], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(StreamEndpoint, "rediscover", lambda self: self)
    reader = RangeReader(MessageColumns(("offset", "body")), fail_on_loss=True, retry_seconds=30.0)

    rows = [
        (row["offset"], row["body"])
        for batch in reader.rows(endpoint, StreamRange(name, 0, COUNT))
        for row in batch.to_pylist()
    ]

    assert rows == list(enumerate(bodies))
