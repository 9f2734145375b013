"""The tracer provider of a command, from the variables `OTEL_*` (extra `opentelemetry`)."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SpanExporter,
)

from penstock import __version__


def set_tracer_provider(service: str, exporter: str) -> None:
    """The exporter is `otlp` or `console`; `OTEL_SERVICE_NAME` takes precedence over `service`."""
    named = Resource.create().attributes  # of the environment
    attributes = {SERVICE_VERSION: __version__, **named}
    if str(named.get(SERVICE_NAME, "")).startswith("unknown_service"):
        attributes[SERVICE_NAME] = service
    provider = TracerProvider(resource=Resource(attributes))
    provider.add_span_processor(BatchSpanProcessor(_exporter(exporter)))
    trace.set_tracer_provider(provider)


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
