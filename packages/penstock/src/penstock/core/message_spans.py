"""Spans of messages, as the semantic conventions of OpenTelemetry for messaging name them.

A message carries the context of the span that published it in its headers (`traceparent`,
`tracestate`, and what else `OTEL_PROPAGATORS` lists). Import this through
`telemetry.message_spans`: it needs the extra `opentelemetry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import context as span_context
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from penstock import __version__

SYSTEM: Final = "penstock"

#: Links of a batch to its messages.
MAX_LINKS: Final = 32

#: The operation types of the conventions, and the kinds of their spans.
_KINDS: Final = {
    "send": SpanKind.PRODUCER,
    "receive": SpanKind.CONSUMER,
    "process": SpanKind.CONSUMER,
    "settle": SpanKind.CLIENT,
}


class _HeaderGetter:
    """Implements `Getter`. Headers are of any type; only strings can be a context."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        value = carrier.get(key)
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        return list(carrier)


_GETTER: Final[Any] = _HeaderGetter()


class MessageSpans:
    """Starts spans. `headers` are those of the message: its sender's context is the parent."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("penstock", __version__)

    def publish(
        self,
        destination: str,
        headers: Mapping[str, Any] | None = None,
        *,
        operation: str = "publish",
        message_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        request: Mapping[str, Any] | None = None,
    ) -> tuple[Span, dict[str, Any]]:
        """The span, and the headers to send. The parent is the current span; if there is none, the
        context in the headers of the message to send (it is forwarded), or of its request."""
        parent = None
        if (headers or request) and not trace.get_current_span().get_span_context().is_valid:
            parent = context_of({**(request or {}), **(headers or {})})
        span = self.start(
            operation, "send", destination, parent, message_id=message_id, attributes=attributes
        )
        sent = dict(headers or {})
        propagate.inject(sent, trace.set_span_in_context(span, parent))
        return span, sent

    def receive(
        self,
        source: str,
        headers: Mapping[str, Any] | None,
        body: bytes,
        message_id: str | None = None,
    ) -> None:
        """Record that a message was received; when its processing ends is not known."""
        attributes = {"messaging.message.body.size": len(body)}
        self.start(
            "receive",
            "receive",
            source,
            context_of(headers),
            message_id=message_id,
            attributes=attributes,
        ).end()

    @contextmanager
    def publishing(
        self, destination: str, headers: Mapping[str, Any] | None, message_id: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """A span of the block, in which a message is sent with these headers."""
        span, carried = self.publish(destination, headers, message_id=message_id)
        error: BaseException | None = None
        try:
            yield carried
        except BaseException as failure:
            error = failure
            raise
        finally:
            end_span(span, error)

    @contextmanager
    def batch(
        self,
        source: str,
        count: int,
        messages: Iterable[Mapping[str, Any] | None],
        attributes: Mapping[str, Any],
    ) -> Iterator[Span]:
        """A span of the block, in which so many messages are processed together. It has links to
        some of them: to those of the given headers."""
        span = self.start(
            "process",
            "process",
            source,
            None,
            attributes={"messaging.batch.message_count": count, **attributes},
            links=links_to(messages, MAX_LINKS),
        )
        with trace.use_span(span, end_on_exit=True, record_exception=False):
            yield span

    @contextmanager
    def step(self, name: str, attributes: Mapping[str, Any]) -> Iterator[Span]:
        """A span of the block, within the current one: a call of another server."""
        with self._tracer.start_as_current_span(
            name, kind=SpanKind.CLIENT, attributes=attributes, record_exception=False
        ) as span:
            yield span

    @contextmanager
    def processing(
        self,
        destination: str,
        headers: Mapping[str, Any] | None,
        *,
        operation: str = "process",
        message_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Iterator[Span]:
        """The span is the current one within the block; an exception is recorded."""
        parent = context_of(headers)
        span = self.start(
            operation, "process", destination, parent, message_id=message_id, attributes=attributes
        )
        token = span_context.attach(trace.set_span_in_context(span, parent))
        error: BaseException | None = None
        try:
            yield span
        except BaseException as failure:
            error = failure
            raise
        finally:
            span_context.detach(token)
            end_span(span, error)

    def start(
        self,
        operation: str,
        kind: str,
        destination: str,
        parent: Context | None,
        *,
        message_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[Link] = (),
        start_time: int | None = None,
    ) -> Span:
        """`kind` is the operation type, or empty for a step within the broker."""
        found: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.destination.name": destination,
            "messaging.operation.name": operation,
            **(attributes or {}),
        }
        if kind:
            found["messaging.operation.type"] = kind
        if message_id:
            found["messaging.message.id"] = message_id
        # The name of a span has no ids: not the routing key, not the name of a reply queue.
        if "messaging.destination.temporary" in found:
            name = "(temporary)"
        else:
            name = destination.partition(":")[0]
        return self._tracer.start_span(
            f"{operation} {name}",
            parent,
            _KINDS.get(kind, SpanKind.SERVER),
            found,
            links=links,
            start_time=start_time,
        )


def context_of(headers: Mapping[str, Any] | None) -> Context:
    """The context in the headers of a message; empty if there is none, or it is malformed."""
    if not headers:
        return Context()
    return propagate.extract(headers, Context(), _GETTER)


def links_to(messages: Iterable[Mapping[str, Any] | None], limit: int) -> list[Link]:
    """Links to the contexts of the first messages that have one."""
    links: dict[tuple[int, int], Link] = {}
    for headers in messages:
        if len(links) >= limit:
            break
        found = trace.get_current_span(context_of(headers)).get_span_context()
        if found.is_valid:
            links[found.trace_id, found.span_id] = Link(found)
    return list(links.values())


def set_error(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def end_span(span: Span, error: BaseException | None = None) -> None:
    if error is not None and not isinstance(error, GeneratorExit):
        set_error(span, error)
    span.end()
