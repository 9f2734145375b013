"""Tracing of a virtual host: RabbitMQ's firehose, and the path of selected messages.

The *firehose* publishes a copy of each message to the exchange `amq.rabbitmq.trace`, with the
routing key `publish.EXCHANGE` when it is published and `deliver.QUEUE` when it is delivered.

A *timeline* is the path of one message through this broker: published, routed, stored, delivered,
acknowledged, dead-lettered, republished. Messages are selected by patterns of the routing key, or
sampled. A selected message without one gets a W3C `traceparent` header, by which it is recognised
later: in its queue, as a dead letter, and by OpenTelemetry.

With OpenTelemetry, messages that carry a trace context get spans of routing, storing and
delivering (`broker_spans.py`).

A virtual host that is not traced does not pay: while one is, its routes are not cached, so that
each message takes the slow path through its exchange; its queues have traced classes, and the
channels of its consumers traced terminals.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.content_header import message_flags
from penstock.broker.contract import (
    LOGGED,
    REJECTED,
    Channel,
    Delivery,
    Exchange,
    Fragment,
    Message,
    Queue,
    Sink,
    Terminal,
)
from penstock.broker.message_run import MessageRun
from penstock.broker.vhost import TRACE_EXCHANGE, VirtualHost
from penstock.core.basic_properties import (
    BasicProperties,
    decode_header,
    encode_header,
    encode_route,
)
from penstock.core.errors import PreconditionFailed, WireSyntaxError
from penstock.core.trace_context import TRACEPARENT, new_traceparent, trace_id_of
from penstock.destinations.queue import ClassicQueue
from penstock.destinations.session import MqttSessionQueue
from penstock.destinations.stream import Stream
from penstock.destinations.topic_trie import TopicTrie

if TYPE_CHECKING:
    from penstock.core.message_spans import MessageSpans
    from penstock.destinations.broker_spans import BrokerSpans

#: Timelines that are kept, and events of one.
MAX_TIMELINES: Final = 10_000
MAX_EVENTS: Final = 200
DEFAULT_TIMELINES: Final = 1000

_HEADER_BYTES: Final = TRACEPARENT.encode()


@dataclass(frozen=True, slots=True)
class TraceRules:
    """Which messages get a timeline: those with a matching routing key, or a share of them."""

    keys: tuple[str, ...] = ()  #: patterns as of topic exchanges; none: all
    sample: float = 1.0  #: the share that is traced
    limit: int = DEFAULT_TIMELINES  #: timelines that are kept, the latest

    @classmethod
    def parse(cls, body: dict[str, Any]) -> TraceRules:
        keys = body.get("keys", [])
        sample, limit = body.get("sample", 1.0), body.get("limit", DEFAULT_TIMELINES)
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise PreconditionFailed("keys: a list of routing key patterns is expected")
        if type(sample) not in (int, float) or not 0 < sample <= 1:
            raise PreconditionFailed("sample: a share above 0 and up to 1 is expected")
        if type(limit) is not int or not 0 < limit <= MAX_TIMELINES:
            raise PreconditionFailed(f"limit: a number from 1 to {MAX_TIMELINES} is expected")
        if unknown := body.keys() - {"keys", "sample", "limit"}:
            raise PreconditionFailed(f"unknown field {min(unknown)!r}: use keys, sample, limit")
        return cls(tuple(keys), float(sample), limit)

    def to_json(self) -> dict[str, Any]:
        return {"keys": list(self.keys), "sample": self.sample, "limit": self.limit}


@dataclass(slots=True)
class Timeline:
    trace_id: str
    routing_key: str
    exchange: str
    events: list[dict[str, Any]] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        return {
            "trace_id": self.trace_id,
            "exchange": self.exchange,
            "routing_key": self.routing_key,
            "started": self.events[0]["time"] if self.events else None,
            "last_time": self.events[-1]["time"] if self.events else None,
            "last_event": self.events[-1]["event"] if self.events else None,
            "events": len(self.events),
        }

    def describe(self) -> dict[str, Any]:
        return {**self.summary(), "events": self.events}


class MessageTracer:
    """Implements `penstock.broker.vhost.VirtualHostTracer`."""

    def __init__(self, vhost: VirtualHost, node: str) -> None:
        self.vhost = vhost
        self.firehose = False
        self.rules: TraceRules | None = None
        self.spans: BrokerSpans | None = None
        self.timelines: OrderedDict[str, Timeline] = OrderedDict()
        self._node = node
        self._patterns: TopicTrie[bool] = TopicTrie()

    # Switching it on and off.

    def set_firehose(self, on: bool) -> None:
        self.firehose = on
        self._switch()

    def set_rules(self, rules: TraceRules | None) -> None:
        """None ends the recording; timelines stay until it begins again."""
        if rules is not None:
            self.timelines.clear()
        self.rules = rules
        self._patterns = TopicTrie()
        for key in rules.keys if rules is not None else ():
            self._patterns.add(key.encode(), True)
        self._switch()

    def set_spans(self, spans: MessageSpans) -> None:
        """Record spans for OpenTelemetry."""
        from penstock.destinations.broker_spans import BrokerSpans

        self.spans = BrokerSpans(spans)
        self._switch()

    @property
    def is_active(self) -> bool:
        return self.firehose or self.rules is not None or self.spans is not None

    def _switch(self) -> None:
        self.vhost.tracer = self if self.is_active else None
        self.vhost.changed()  # clears the caches of routes
        for queue in self.vhost.queues.values():
            self.watch(queue)

    def watch(self, queue: Queue) -> None:
        """Give a queue the class, and its consumers the terminals, that tracing needs now."""
        plain = getattr(type(queue), "plain", type(queue))
        cast(Any, queue).__class__ = _TRACED.get(plain, plain) if self.is_active else plain
        for channel in _channels(queue):
            self.watch_channel(queue.name, channel)

    def watch_channel(self, queue: str, channel: Channel) -> None:
        terminal = channel.terminal
        if isinstance(terminal, TracedTerminal):
            if not self.is_active:
                channel.terminal = terminal.inner
                channel.forward_run = terminal.forward_run
        elif self.is_active:
            channel.terminal = TracedTerminal(terminal, queue, self, channel.forward_run)
            channel.forward_run = None  # each message is reported

    # Events.

    def published(
        self,
        exchange: Exchange,
        channel: Channel | None,
        message: Message,
        sinks: Sequence[Sink],
    ) -> None:
        """`channel` is None for a message that the broker itself publishes again."""
        if exchange.name == TRACE_EXCHANGE:
            return
        queues = [sink.name for sink in sinks if sink.name]
        if self.rules is not None:
            timeline = self._select(message)
            if timeline is not None:
                origin = _origin(channel)
                event = "republished" if channel is None else "published"
                facts = {"exchange": exchange.name, "routing_key": message.routing_key}
                self._record(timeline, event, {**facts, **origin})
                self._record(timeline, "routed" if queues else "unroutable", {"queues": queues})
        if self.spans is not None and _HEADER_BYTES in message.header:
            self.spans.routed(message, exchange.name, queues)
        if self.firehose:
            self._copy(f"publish.{exchange.name}", message, channel, {"routed_queues": queues})

    def delivered(
        self, queue: str, channel: Channel, message: Message, delivery: Delivery | None
    ) -> None:
        if message.exchange == TRACE_EXCHANGE:
            return
        redelivered = delivery is not None and delivery.count > 0
        facts = {"queue": queue, "redelivered": redelivered, **_origin(channel)}
        if channel.settled or delivery is None:
            facts["settled"] = True
        self.event(message, "delivered", **facts)
        if self.spans is not None and _HEADER_BYTES in message.header:
            self.spans.delivered(message, queue, redelivered)
        if self.firehose:
            self._copy(f"deliver.{queue}", message, channel, {"redelivered": int(redelivered)})

    def event(self, message: Message, event: str, **facts: Any) -> None:
        """Record an event of a message that has a timeline."""
        timeline = self.timeline_of(message)
        if timeline is not None:
            self._record(timeline, event, facts)

    def timeline_of(self, message: Message) -> Timeline | None:
        if self.rules is None or _HEADER_BYTES not in message.header:
            return None
        return self.timelines.get(_trace_id(message) or "")

    def _record(self, timeline: Timeline, event: str, facts: dict[str, Any]) -> None:
        if len(timeline.events) < MAX_EVENTS:
            timeline.events.append({"time": round(time.time(), 6), "event": event, **facts})

    def _select(self, message: Message) -> Timeline | None:
        rules = self.rules
        assert rules is not None
        known = self.timeline_of(message)
        if known is not None:
            return known
        key = message.route[message.route[0] + 2 :]
        if rules.keys and not self._patterns.match(key):
            return None
        if rules.sample < 1 and random.random() >= rules.sample:
            return None
        trace_id = _trace_id(message) or _add_traceparent(message)
        if trace_id is None:
            return None
        timeline = Timeline(trace_id, message.routing_key, message.exchange)
        self.timelines[trace_id] = timeline
        while len(self.timelines) > rules.limit:
            self.timelines.popitem(last=False)
        return timeline

    def _copy(
        self, key: str, message: Message, channel: Channel | None, facts: dict[str, Any]
    ) -> None:
        """Publish a copy to the exchange of the firehose."""
        try:
            properties = decode_header(message.header)
        except WireSyntaxError:
            return
        given = {
            name: value
            for name in BasicProperties.__slots__
            if (value := getattr(properties, name)) is not None
        }
        origin = _origin(channel)
        headers = {
            "exchange_name": message.exchange,
            "routing_keys": [message.routing_key, *((properties.headers or {}).get("CC") or [])],
            "properties": given,
            "node": self._node,
            "vhost": self.vhost.name,
            "connection": origin.get("connection", "unknown"),
            "channel": origin.get("channel", 0),
            "user": origin.get("user", "none"),
            **facts,
        }
        route = encode_route(TRACE_EXCHANGE, key[:255])
        header = encode_header(BasicProperties(headers=headers), message.size)
        copy = Message(route, header, message.body, message_flags(header))
        if message.spool is not None:
            copy.spool = self.vhost.kernel.spools.relink(message.spool)
        self.vhost.exchanges[TRACE_EXCHANGE].accept(copy)


def _trace_id(message: Message) -> str | None:
    if _HEADER_BYTES not in message.header:
        return None
    try:
        return trace_id_of((decode_header(message.header).headers or {}).get(TRACEPARENT))
    except WireSyntaxError:
        return None


def _add_traceparent(message: Message) -> str | None:
    try:
        properties = decode_header(message.header)
    except WireSyntaxError:
        return None
    trace_id = secrets.token_hex(16)
    headers = dict(properties.headers or {})
    headers[TRACEPARENT] = new_traceparent(trace_id)
    properties.headers = headers
    message.header = encode_header(properties, message.size)
    return trace_id


def _channels(queue: Queue) -> list[Channel]:
    """The channels of a queue's consumers."""
    if isinstance(queue, ClassicQueue):
        return list(queue.consumers)
    if isinstance(queue, Stream):
        return list(queue._readers)
    channel = getattr(queue, "_channel", None)
    return [] if channel is None else [channel]


def _origin(channel: Channel | None) -> dict[str, Any]:
    """The connection of a channel, as far as its protocol tells."""
    if channel is None:
        return {}
    amqp_channel = getattr(channel, "channel", None)
    if amqp_channel is not None:
        described = amqp_channel.connection.describe()
        found = {"channel": amqp_channel.number}
    else:
        terminal: Any = channel.terminal
        writer = terminal.inner if isinstance(terminal, TracedTerminal) else terminal
        owner = getattr(writer, "_terminal", writer)
        described = owner.describe() if hasattr(owner, "describe") else {}
        found = {}
    return {**found, "connection": described.get("name"), "user": described.get("user")}


class TracedTerminal:
    """The terminal of a consumer, which reports what is delivered."""

    def __init__(
        self,
        inner: Terminal,
        queue: str,
        tracer: MessageTracer,
        forward_run: Callable[[Channel, MessageRun, list[Delivery] | None, int], bool] | None,
    ) -> None:
        self.inner = inner
        self.forward_run = forward_run  #: of the channel while it is not traced
        self._queue = queue
        self._tracer = tracer

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        self.inner.channel_forward(channel, fragment, delivery)
        if isinstance(fragment, Message):
            self._tracer.delivered(self._queue, channel, fragment, delivery)

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        self.inner.channel_confirm(channel, receipt)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        self.inner.channel_failure(channel, receipt, error)


def _push(queue: Any, push: Any, message: Message) -> int:
    """Push a message; a message is stored before it is delivered."""
    tracer: MessageTracer = queue.vhost.tracer
    if tracer.spans is not None and _HEADER_BYTES in message.header:
        push = partial(tracer.spans.push, queue.name, push)
    timeline = tracer.timeline_of(message)
    if timeline is None:
        outcome: int = push(message)
        return outcome
    before, now = len(timeline.events), round(time.time(), 6)
    outcome = push(message)
    event = ""
    if outcome & REJECTED:
        event = "refused"
    elif outcome & LOGGED:
        event = "stored"
    elif len(timeline.events) == before:
        event = "queued"
    if event and before < MAX_EVENTS:
        timeline.events.insert(before, {"time": now, "event": event, "queue": queue.name})
    return outcome


class TracedQueue(ClassicQueue):
    plain = ClassicQueue

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        super().channel_open(channel, arguments)
        if not arguments.get("post"):
            cast(MessageTracer, self.vhost.tracer).watch_channel(self.name, channel)

    def push(self, message: Message) -> int:
        return _push(self, super().push, message)

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        self._trace(delivery, "acknowledged")
        super().channel_confirm(channel, delivery)

    def channel_confirm_run(self, channel: Channel, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self._trace(delivery, "acknowledged")
        super().channel_confirm_run(channel, deliveries)

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        self._trace(delivery, "requeued" if requeue else "rejected")
        super().channel_failure(channel, delivery, requeue)

    def _dead_letter(self, delivery: Delivery, reason: str) -> None:
        target = self.limits.dead_letter_exchange
        event = "dropped" if target is None else "dead-lettered"
        self._trace(delivery, event, reason=reason, exchange=target)
        spans = cast(MessageTracer, self.vhost.tracer).spans
        if spans is not None and _HEADER_BYTES in delivery.message.header:
            spans.dead_lettered(delivery.message, self.name, reason, target)
        super()._dead_letter(delivery, reason)

    def _trace(self, delivery: Delivery, event: str, **facts: Any) -> None:
        tracer = cast(MessageTracer, self.vhost.tracer)
        with contextlib.suppress(OSError):
            self._messages.load(delivery)
        tracer.event(delivery.message, event, queue=self.name, **facts)


class TracedStream(Stream):
    plain = Stream

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        super().channel_open(channel, arguments)
        if not arguments.get("post"):
            cast(MessageTracer, self.vhost.tracer).watch_channel(self.name, channel)

    def push(self, message: Message) -> int:
        return _push(self, super().push, message)


class TracedSession(MqttSessionQueue):
    __slots__ = ()

    plain = MqttSessionQueue

    def attach(self, channel: Channel, window: int) -> None:
        cast(MessageTracer, self.vhost.tracer).watch_channel(self.name, channel)
        super().attach(channel, window)

    def push(self, message: Message) -> int:
        return _push(self, super().push, message)

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        tracer = cast(MessageTracer, self.vhost.tracer)
        tracer.event(delivery.message, "acknowledged", queue=self.name)
        super().channel_confirm(channel, delivery)


_TRACED: Final[dict[type, type]] = {
    ClassicQueue: TracedQueue,
    Stream: TracedStream,
    MqttSessionQueue: TracedSession,
}
