"""Senders, receivers and services that record spans, for programs that use OpenTelemetry.

The span of a message that a loop receives is the current span until the loop requests the next one,
so what the program sends meanwhile belongs to the same trace.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any
from uuid import uuid4

from opentelemetry import context as span_context
from opentelemetry import trace
from opentelemetry.trace import Span

from penstock.client.errors import FabricClosed
from penstock.client.message import Body, DeliveryHandle, Headers, ReceivedMessage
from penstock.client.receiver import MessageReceiver, RecoveringConsumer
from penstock.client.sender import MessageSender, PublishFunction
from penstock.client.service import RequestService, ServiceHandler
from penstock.core.message_spans import MessageSpans, context_of, end_span, set_error


def traced_sender(
    spans: MessageSpans,
    sender: MessageSender,
    destination: str,
    *,
    has_headers: bool,
    has_ids: bool,
) -> MessageSender:
    """`has_headers`: the protocol has them; `has_ids`: each message has an id."""
    post: PublishFunction = sender._post

    async def traced(
        body: Body, headers: Headers | None, ttl: float | None, message_id: str | None
    ) -> asyncio.Future[None]:
        message_id = message_id or (uuid4().hex if has_ids else None)
        span, carried = spans.publish(destination, headers, message_id=message_id)
        try:
            confirmed = await post(body, carried if has_headers else headers, ttl, message_id)
        except BaseException as error:
            end_span(span, error)
            raise
        confirmed.add_done_callback(partial(_end_at_confirm, span))
        return confirmed

    return MessageSender(traced)


def _end_at_confirm(span: Span, confirmed: asyncio.Future[None]) -> None:
    end_span(span, None if confirmed.cancelled() else confirmed.exception())


class TracedDelivery:
    """Implements `DeliveryHandle`: a reply belongs to the trace of its request."""

    __slots__ = ("_address", "_headers", "_inner", "_spans")

    def __init__(self, inner: DeliveryHandle, message: ReceivedMessage, spans: MessageSpans):
        self._inner = inner
        self._headers = message.headers
        self._address = message.reply_to or ""
        self._spans = spans

    async def ack(self) -> None:
        await self._inner.ack()

    async def reject(self, requeue: bool) -> None:
        await self._inner.reject(requeue)

    async def reply(self, body: Body, headers: Mapping[str, Any] | None) -> None:
        span, carried = self._spans.publish(
            self._address,
            headers,
            operation="reply",
            request=self._headers,
            attributes={"messaging.destination.temporary": True},
        )
        try:
            await self._inner.reply(body, carried)
        except BaseException as error:
            end_span(span, error)
            raise
        end_span(span)

    async def fail(self, error: BaseException) -> None:
        await self._inner.fail(error)


class TracedReceiver(MessageReceiver):
    def __init__(
        self,
        consumer: RecoveringConsumer,
        spans: MessageSpans,
        source: str,
        *,
        replies: bool = False,
    ) -> None:
        super().__init__(consumer, replies=replies)
        self.spans = spans
        self.source = source
        self.is_service = False  #: the service records the span of processing
        self._span: Span | None = None

    async def receive(self) -> ReceivedMessage:
        message = await self._take()
        if not self.is_service:
            self.spans.receive(self.source, message.headers, message.body, message.message_id)
        return message

    async def __aiter__(self) -> AsyncGenerator[ReceivedMessage, None]:
        outer = span_context.get_current()
        try:
            while True:
                try:
                    message = self._current = await self._take()
                except FabricClosed:
                    return
                self._span = self._start(message)
                self.attach()
                yield message
                self._current = None
                await message.ack()
                self._end()
                span_context.attach(outer)
        finally:
            span_context.attach(outer)
            if not self._in_block:
                self._end()
                await self.close()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            self._end(error)

    def attach(self) -> None:
        """Make the span of the current message the current span of this thread or task."""
        if self._span is not None:
            span_context.attach(trace.set_span_in_context(self._span))

    def _end(self, error: BaseException | None = None) -> None:
        span, self._span = self._span, None
        if span is not None:
            end_span(span, error)

    async def _take(self) -> ReceivedMessage:
        message = await self._consumer.receive()
        return replace(message, delivery=TracedDelivery(message.delivery, message, self.spans))

    def _start(self, message: ReceivedMessage) -> Span:
        return self.spans.start(
            "process",
            "process",
            self.source,
            context_of(message.headers),
            message_id=message.message_id,
            attributes={"messaging.message.body.size": len(message.body)},
        )


class TracedService(RequestService):
    def __init__(self, name: str, requests: TracedReceiver, handler: ServiceHandler) -> None:
        super().__init__(name, requests, self._handle)
        requests.is_service = True
        self._spans = requests.spans
        self._traced_handler = handler

    async def _handle(self, message: ReceivedMessage) -> Body:
        try:
            result = self._traced_handler(message)
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            set_error(trace.get_current_span(), error)
            raise

    async def _process(self, message: ReceivedMessage) -> None:
        with self._spans.processing(self._name, message.headers, message_id=message.message_id):
            await super()._process(message)


async def traced_request(
    spans: MessageSpans,
    request: Callable[[Headers], Awaitable[ReceivedMessage]],
    service: str,
    headers: Headers | None,
) -> ReceivedMessage:
    """The span lasts until the reply, and has a link to it."""
    span, carried = spans.publish(service, headers, operation="request")
    try:
        reply = await request(carried)
    except BaseException as error:
        end_span(span, error)
        raise
    replied = trace.get_current_span(context_of(reply.headers)).get_span_context()
    if replied.is_valid:
        span.add_link(replied)
    end_span(span)
    return reply
