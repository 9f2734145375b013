"""Whether a process records spans for OpenTelemetry. Nothing of OpenTelemetry is imported if not.

A program that uses the client sets a tracer provider as any program does, before it connects. A
`penstock` command sets the one that the environment describes (`OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_TRACES_EXPORTER`) when it first needs it. Spans are sent by a thread of the SDK, which drops
them while the collector is slow or unreachable: messages never wait for it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from penstock.core.logs import get_logger

if TYPE_CHECKING:
    from penstock.core.message_spans import MessageSpans

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

_log = get_logger("penstock.telemetry")
_service = ""  # the name of the command's service until its provider is set


def use_environment(service: str) -> None:
    """This process is a command: if the environment asks for spans, they are those of `service`."""
    global _service
    _service = service if _exporter() else ""


def message_spans() -> MessageSpans | None:
    """None if this process records no spans."""
    global _service
    service, _service = _service, ""
    if service:
        _set_provider(service)
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None  # some libraries import the API, which records nothing
    from penstock.core.message_spans import MessageSpans

    return MessageSpans()


def _exporter() -> str:
    """`otlp`, `console` or another name; empty if the environment asks for none."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    name = os.environ.get("OTEL_TRACES_EXPORTER", "")
    if not name and any(os.environ.get(each) for each in _ENDPOINTS):
        return "otlp"
    return "" if name == "none" else name


def _set_provider(service: str) -> None:
    name = _exporter()
    protocol = next((found for each in _PROTOCOLS if (found := os.environ.get(each))), "")
    if name not in ("otlp", "console"):
        problem = f"OTEL_TRACES_EXPORTER={name}: otlp, console and none are supported"
    elif name == "otlp" and protocol not in ("", "http/protobuf"):
        problem = f"the protocol {protocol} is not supported: use http/protobuf"
    else:
        try:
            from penstock.core.tracer_provider import set_tracer_provider

            set_tracer_provider(service, name)
            return
        except ImportError as error:
            problem = f"{error}: install penstock[opentelemetry]"
        except ValueError as error:  # a number or a sampler of the environment
            problem = str(error)
    _log.warning("no spans are recorded", problem=problem)
