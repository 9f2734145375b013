"""Figures over HTTP, for who asks; who does not ask is not waited for."""

from __future__ import annotations

import socket
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Counter

from penstock.cli.metrics_server import serve_metrics


@pytest.fixture
def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    Counter("bees", "Seen.", registry=made).inc(3)
    return made


def test_figures_are_served(registry: CollectorRegistry) -> None:
    port, close = serve_metrics(0, registry)
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"bees_total 3.0" in answer.read()
    finally:
        close()


@pytest.mark.parametrize("begun", [b"", b"GET /metrics HTTP/1.1\r\nX-Slow: "])
def test_who_sends_no_request_is_cut_off(registry: CollectorRegistry, begun: bytes) -> None:
    port, close = serve_metrics(0, registry, seconds=0.05)
    try:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(60)
            client.sendall(begun)
            assert b"bees" not in client.recv(65536)
    finally:
        close()
