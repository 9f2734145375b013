"""A collector of OpenTelemetry: receives spans over OTLP/HTTP, and a fixture that sends them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass(frozen=True)
class CollectedSpan:
    name: str
    trace: str
    id: str
    parent: str
    kind: str
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]  #: trace and span
    error: str
    service: str
    start: int
    end: int


class SpanCollector:
    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        self.stalled = threading.Event()  #: set: requests are not answered
        self.go_on = threading.Event()
        self._received = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.stalled.is_set():
                    collector.go_on.wait()
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.receive(body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Not on standard error."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def receive(self, body: bytes) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        request = ExportTraceServiceRequest.FromString(body)
        with self._received:
            for resource in request.resource_spans:
                service = _attributes(resource.resource.attributes).get("service.name", "")
                for scope in resource.scope_spans:
                    self.spans += (_span(span, service) for span in scope.spans)
            self._received.notify_all()

    def wait_for(self, *names: str, seconds: float = 60) -> list[CollectedSpan]:
        """The first span of each name, when all have arrived."""

        def found() -> bool:
            return {span.name for span in self.spans}.issuperset(names)

        with self._received:
            arrived = self._received.wait_for(found, seconds)
            assert arrived, f"{names} not in {[span.name for span in self.spans]}"
            return [next(span for span in self.spans if span.name == name) for name in names]

    def flush(self) -> None:
        """Returns when all spans of this process that have ended are here."""
        from opentelemetry import trace

        provider: Any = trace.get_tracer_provider()
        assert provider.force_flush(60_000)

    def close(self) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()


def _span(span: Any, service: str) -> CollectedSpan:
    kinds = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
    return CollectedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        kinds[span.kind],
        _attributes(span.attributes),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        span.status.message or ("error" if span.status.code == 2 else ""),
        service,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


@pytest.fixture
def collector() -> Iterator[SpanCollector]:
    collector = SpanCollector()
    yield collector
    collector.close()


@pytest.fixture
def telemetry(collector: SpanCollector, monkeypatch: pytest.MonkeyPatch) -> Iterator[SpanCollector]:
    """This process sends its spans to the collector until the test ends."""
    from opentelemetry import trace

    from penstock.core.telemetry import message_spans, use_environment

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    use_environment("penstock-test")
    assert message_spans() is not None
    yield collector
    collector.go_on.set()
    provider: Any = trace.get_tracer_provider()
    provider.shutdown()
    trace._TRACER_PROVIDER = None
    trace._TRACER_PROVIDER_SET_ONCE._done = False
