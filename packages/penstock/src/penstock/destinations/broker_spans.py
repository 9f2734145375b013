"""Spans of the broker, for messages whose publisher or trace rule has set a trace context.

`route EXCHANGE` is a child of the span that published the message. Its children are `store QUEUE`,
`deliver QUEUE` (which begins when the message was queued, so its length is the time in the queue)
and `dead-letter QUEUE`. The message itself is not changed: consumers see the publisher's context.
The broker starts no traces: a message without a context, or with a malformed one, has no spans.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import StatusCode

from penstock.broker.contract import LOGGED, REJECTED, Message
from penstock.core.basic_properties import BasicProperties, decode_header
from penstock.core.errors import WireSyntaxError
from penstock.core.message_spans import MessageSpans, context_of
from penstock.core.trace_context import TRACEPARENT

#: Messages whose spans may get children, the latest; others get the publisher's span as parent.
MAX_ROUTED: Final = 10_000
#: Queues of a message in the attributes of a span.
MAX_QUEUES: Final = 20


class RoutedMessage:
    """The context of its span, and when it was given to each queue."""

    __slots__ = ("context", "queued")

    def __init__(self, context: Context) -> None:
        self.context = context
        self.queued: dict[str, int] = {}


class BrokerSpans:
    def __init__(self, spans: MessageSpans) -> None:
        self._spans = spans
        self._routed: OrderedDict[str, RoutedMessage] = OrderedDict()

    def routed(self, message: Message, exchange: str, queues: Sequence[str]) -> None:
        properties = _properties(message)
        headers = properties.headers or {}
        parent = context_of(headers)
        if not trace.get_current_span(parent).get_span_context().is_valid:
            return
        span = self._spans.start(
            "route",
            "",
            f"{exchange or 'amq.default'}:{message.routing_key}",
            parent,
            message_id=properties.message_id,
            attributes={
                "messaging.message.body.size": message.size,
                "penstock.queues": list(queues[:MAX_QUEUES]),
                "penstock.queue_count": len(queues),
            },
        )
        span.end()
        if span.get_span_context().trace_flags.sampled:
            routed = RoutedMessage(trace.set_span_in_context(span, parent))
            self._routed[headers[TRACEPARENT]] = routed
            if len(self._routed) > MAX_ROUTED:
                self._routed.popitem(last=False)

    def push(self, queue: str, push: Callable[[Message], int], message: Message) -> int:
        """Push a message to a queue; one that is delivered at once and not stored has no span."""
        routed = self._routed_message(_properties(message).headers)
        if routed is None:
            return push(message)
        begin = routed.queued[queue] = time.time_ns()
        outcome = push(message)
        if outcome & (LOGGED | REJECTED) or queue in routed.queued:
            stored = {"penstock.storage": "log" if outcome & LOGGED else "memory"}
            span = self._spans.start(
                "store", "", queue, routed.context, attributes=stored, start_time=begin
            )
            if outcome & REJECTED:
                span.set_status(StatusCode.ERROR, "the queue refused the message")
            span.end()
        return outcome

    def delivered(self, message: Message, queue: str, redelivered: bool) -> None:
        context, begin = self._position(message, queue)
        if context is not None:
            attributes = {"penstock.redelivered": redelivered}
            self._spans.start(
                "deliver", "", queue, context, attributes=attributes, start_time=begin
            ).end()

    def dead_lettered(
        self, message: Message, queue: str, reason: str, exchange: str | None
    ) -> None:
        """`exchange` is None if the message is dropped."""
        context, _ = self._position(message, queue)
        if context is not None:
            attributes: dict[str, Any] = {"penstock.reason": reason}
            if exchange is not None:
                attributes["penstock.dead_letter_exchange"] = exchange
            self._spans.start("dead-letter", "", queue, context, attributes=attributes).end()

    def _position(self, message: Message, queue: str) -> tuple[Context | None, int | None]:
        """The context of a message in a queue, and when it got there; it may be a redelivery, or
        have been published before a restart."""
        headers = _properties(message).headers
        routed = self._routed_message(headers)
        if routed is not None:
            return routed.context, routed.queued.pop(queue, None)
        context = context_of(headers)
        published = trace.get_current_span(context).get_span_context()
        return (context if published.is_valid else None), None

    def _routed_message(self, headers: dict[str, Any] | None) -> RoutedMessage | None:
        traceparent = (headers or {}).get(TRACEPARENT)
        return self._routed.get(traceparent) if isinstance(traceparent, str) else None


def _properties(message: Message) -> BasicProperties:
    try:
        return decode_header(message.header)
    except WireSyntaxError:  # an invalid table
        return BasicProperties()
