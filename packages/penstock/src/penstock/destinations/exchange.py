"""Exchanges: drivers that route messages and store none.

`ExchangeDriver` is the driver; its `ExchangeRouter` implements the exchange type. Routes of a
routing key are cached until topology changes, if the key alone decides them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol, cast, runtime_checkable

from penstock.broker.contract import (
    IN_SYNC,
    LOGGED,
    MANDATORY,
    REJECTED,
    SENDER_SELECTED,
    Binding,
    Channel,
    Delivery,
    Fragment,
    Message,
    Sink,
)
from penstock.broker.contract import Exchange as AnyExchange
from penstock.broker.delay import delay_of
from penstock.broker.fragments import FragmentAssembler
from penstock.broker.log.observer import confirm_all
from penstock.broker.message_run import MAX_RUN_MESSAGES, MessageRun, RunSink
from penstock.broker.parameters import SCHEMA
from penstock.broker.policies import EffectivePolicy
from penstock.broker.vhost import VirtualHost
from penstock.broker.write_batch import DeferrableInput, WriteBatch
from penstock.core.basic_properties import decode_header, encode_header, encode_route
from penstock.core.errors import (
    NoRoute,
    NotFound,
    PenstockError,
    PreconditionFailed,
    QueueFull,
    SchemaViolation,
    Unsupported,
)
from penstock.core.logs import get_logger
from penstock.destinations.schemas import MessageSchema

#: Cached routes per exchange.
ROUTE_CACHE_SIZE: Final = 4096
#: A routing key is cheap to route, so that the clock is checked after so many of them.
CHEAP_ROUTES: Final = 8
#: Beyond this many queues, a push checks the clock.
FEW_SINKS: Final = 8
#: Beyond this many, a run takes too long for one write batch.
MAX_RUN_SINKS: Final = 128

_log = get_logger("penstock.exchange")


class ExchangeRouter(Protocol):
    """An exchange type."""

    #: Whether the routing key alone decides, so that routes can be cached.
    keyed: bool

    def check(self, binding: Binding) -> None:
        """Raises `PreconditionFailed` for an invalid binding."""

    def add(self, binding: Binding) -> None: ...

    def remove(self, binding: Binding) -> None: ...

    def match(self, key: bytes, message: Message) -> Iterable[Sink | AnyExchange]: ...


@runtime_checkable
class TopicPermissionRouter(ExchangeRouter, Protocol):
    uses_topic_permissions: bool  #: to the routing key

    def topics(self, keys: list[bytes], message: Message) -> Iterable[str]:
        """The topics of a message besides the routing key, which is the first of the keys."""

    def topics_of(self, key: str, arguments: dict[str, Any]) -> Iterable[str]: ...


class ExchangeStorage(Protocol):
    """Durable data of an exchange."""

    def close(self) -> None: ...

    def delete(self) -> None: ...


class ExchangeDriver:
    kind = "exchange"

    def __init__(
        self,
        vhost: VirtualHost,
        name: str,
        router: ExchangeRouter,
        *,
        type: str,  # noqa: A002 - the protocol's word
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, Any],
        storage: ExchangeStorage | None = None,
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.router = router
        self.type = type
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        if not isinstance(arguments.get("alternate-exchange", ""), str):
            raise PreconditionFailed(
                f"invalid arg 'alternate-exchange' for exchange '{name}' in vhost "
                f"'{vhost.name}': expected a string"
            )
        self.apply_policy(vhost.policies.of_exchange(name))
        self.bindings: dict[Binding, None] = {}
        self._topics = router if isinstance(router, TopicPermissionRouter) else None
        self._storage = storage
        self._write_batch = vhost.kernel.write_batch
        self._committer = vhost.kernel.committer
        self._channels: set[Channel] = set()
        self._routes: dict[bytes, tuple[Sink, ...]] = {}
        self._run_routes: dict[bytes, tuple[RunSink, ...]] = {}  # those whose sinks take runs
        self._posted = 0  # messages of runs
        self._uncached = 0  # messages whose route was not cached

    # The contract.

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        channel.state = None
        self._channels.add(channel)

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        if channel.state is not None or fragment.more:
            self._assemble(channel, fragment, receipt)
        else:
            self._post(channel, fragment, receipt)  # type: ignore[arg-type]

    def _post(self, channel: Channel, message: Message, receipt: int) -> None:
        sinks = self._routes.get(message.route)
        if sinks is None or message.flags & SENDER_SELECTED:
            sinks = self._route(message, channel.check_topic)
            if self.schema is not None and not self._conforms(channel, message, receipt):
                return
            if self.vhost.tracer is not None:
                self.vhost.tracer.published(self, channel, message, sinks)
            self._uncached += 1
            if not self.router.keyed or not self._uncached % CHEAP_ROUTES:
                self._write_batch.check_time()
        outcome = 0
        if len(sinks) > FEW_SINKS:
            reader = self._write_batch.reader
            if reader is not None and len(sinks) > SINKS_PER_SLICE:
                fan_out = FanOut(
                    self._write_batch,
                    reader,
                    message,
                    sinks,
                    partial(self._finish, channel, receipt),
                )
                if not fan_out.run():
                    channel.state = fan_out
                    fan_out.defer()
                    return
                outcome = fan_out.outcome
            else:
                for sink in sinks:
                    outcome |= sink.push(message)
            self._write_batch.check_time()
        else:
            for sink in sinks:
                outcome |= sink.push(message)
        if not sinks and self._unroutable(channel, message, receipt):
            return
        if receipt:
            self._answer(channel, receipt, outcome)

    def channel_post_run(
        self, channel: Channel, run: MessageRun, receipts: Sequence[int] = ()
    ) -> bool:
        sinks = self._run_routes.get(run.route) or self._find_run_sinks(run.route)
        if (
            not sinks
            or channel.state is not None
            or run.flags & SENDER_SELECTED
            or (len(sinks) > FEW_SINKS and len(run) > MAX_RUN_MESSAGES)
            or not all(sink.takes_runs for sink in sinks)
        ):
            return False
        run.number(self._posted)
        self._posted += len(run)
        outcome = 0
        for sink in sinks:
            outcome |= sink.push_run(run)
        if len(sinks) > FEW_SINKS:
            self._write_batch.check_time()
        if receipts and outcome & LOGGED:
            self._committer.wait(channel, receipts, outcome & IN_SYNC)
        elif receipts:
            confirm_all(channel, receipts)
        return True

    def _find_run_sinks(self, route: bytes) -> tuple[RunSink, ...]:
        """The sinks of a cached route, if they are not too many and all take runs."""
        sinks = self._routes.get(route, ())
        found = tuple(sink for sink in sinks if isinstance(sink, RunSink))
        if len(found) < len(sinks) or len(found) > MAX_RUN_SINKS:
            return ()
        if found:
            self._run_routes[route] = found
        return found

    def _finish(
        self,
        channel: Channel,
        receipt: int,
        outcome: int,
        behind: list[tuple[Message | Fragment, int]],
    ) -> None:
        """A message has reached the last of many queues."""
        if isinstance(channel.state, FanOut):  # else its sender is gone
            channel.state = None
        if receipt:
            self._answer(channel, receipt, outcome)
        for fragment, next_receipt in behind:
            self.channel_post(channel, fragment, next_receipt)

    def _answer(self, channel: Channel, receipt: int, outcome: int) -> None:
        if outcome & REJECTED:
            channel.terminal.channel_failure(channel, receipt, QueueFull(self.name))
        elif outcome & LOGGED:
            self._committer.wait(channel, receipt, outcome & IN_SYNC)
        else:
            channel.terminal.channel_confirm(channel, receipt)

    def _conforms(self, channel: Channel, message: Message, receipt: int) -> bool:
        """Whether a message conforms to the schema; else it is refused or dead-lettered."""
        assert self.schema is not None
        try:
            schema = self.vhost.schemas.get(self.schema) or self._compile(self.schema)
            schema.check(message)
        except SchemaViolation as error:
            self.vhost.kernel.metrics.unroutable += 1
            schema = self.vhost.schemas.get(self.schema)
            name = None if schema is None else schema.dead_letter_exchange
            target = None if name is None else self.vhost.exchanges.get(name)
            if target is not None:
                outcome = target.accept(invalid_message(message, target.name, str(error)))
                if receipt:
                    self._answer(channel, receipt, outcome)
            elif receipt:
                channel.terminal.channel_failure(channel, receipt, error)
            else:
                raise
            return False
        return True

    def _compile(self, name: str) -> MessageSchema:
        value = self.vhost.parameters.of(SCHEMA).get(name)
        if value is None:
            raise SchemaViolation(f"no schema '{name}' in vhost '{self.vhost.name}'")
        self.vhost.schemas[name] = schema = MessageSchema(name, value)
        return schema

    def _unroutable(self, channel: Channel, message: Message, receipt: int) -> bool:
        """Return a mandatory message; count any other."""
        if not message.flags & MANDATORY:
            self.vhost.kernel.metrics.unroutable += 1
            return False
        channel.terminal.channel_failure(channel, receipt, NoRoute(message))
        return True

    def channel_request(self, channel: Channel, credit: int) -> None:
        raise Unsupported(f"exchange '{self.name}' stores no messages: bind a queue to it")

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        raise Unsupported(f"exchange '{self.name}' delivers nothing")

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        raise Unsupported(f"exchange '{self.name}' delivers nothing")

    def channel_close(self, channel: Channel) -> None:
        self._channels.discard(channel)
        if channel.state is not None:
            channel.state.cancel()
            channel.state = None

    def _assemble(self, channel: Channel, fragment: Message | Fragment, receipt: int) -> None:
        """A large message, or a post behind one."""
        if channel.state is not None:
            channel.state.add(fragment, receipt)
            return
        assert isinstance(fragment, Message), "fragments follow the message they belong to"

        def post(message: Message, receipt: int) -> None:
            behind = channel.state.take_behind()
            channel.state = None
            assert message.spool is not None
            self._committer.also_sync(message.spool)
            try:
                self._post(channel, message, receipt)
            except PenstockError as error:  # there is no caller to raise it to
                channel.terminal.channel_failure(channel, receipt, error)
            except OSError as error:  # the body cannot be linked
                _log.error("large message not stored", exchange=self.name, error=str(error))
                channel.terminal.channel_failure(channel, receipt, QueueFull(str(error)))
            for next_fragment, next_receipt in behind:
                self.channel_post(channel, next_fragment, next_receipt)
            self.vhost.kernel.write_batch.flush()

        channel.state = FragmentAssembler(fragment, self.vhost.kernel.spools, post)

    # Routing.

    def accept(self, message: Message, avoid: frozenset[str] = frozenset()) -> int:
        outcome = 0
        sinks = self._route(message)
        if self.vhost.tracer is not None:
            self.vhost.tracer.published(self, None, message, sinks)
        for sink in sinks:
            if sink.name not in avoid:
                outcome |= sink.push(message)
        return outcome

    def _route(
        self, message: Message, check_topic: Callable[[str], None] | None = None
    ) -> tuple[Sink, ...]:
        route = message.route
        key = route[route[0] + 2 :]
        if self.router.keyed and not message.flags & SENDER_SELECTED:
            sinks = self._match_queues(key, message)
            if sinks:
                if self.schema is None and self.vhost.tracer is None:
                    self._cache_route(route, sinks)
                return sinks
        found: dict[Sink, None] = {}
        keys = [key]
        if message.flags & SENDER_SELECTED:
            keys += sender_selected_keys(message)
        has_topics = len(keys) > 1 or not self.router.keyed  # besides the routing key
        if has_topics and check_topic is not None and self._topics is not None:
            for topic in self._topics.topics(keys, message):
                check_topic(topic)
        if message.flags & SENDER_SELECTED and delay_of(message, time.time()) > 0:
            return (self.vhost.delayed,)
        keyed = self._collect(keys, message, found, set())
        sinks = tuple(found)
        caches = self.schema is None and self.vhost.tracer is None
        if keyed and len(keys) == 1 and sinks and caches:
            self._cache_route(route, sinks)
        return sinks

    def _cache_route(self, route: bytes, sinks: tuple[Sink, ...]) -> None:
        if len(self._routes) >= ROUTE_CACHE_SIZE:
            self.forget_routes()
        self._routes[route] = sinks

    def _match_queues(self, key: bytes, message: Message) -> tuple[Sink, ...]:
        """The sinks of a routing key that leads to no other exchange; none if it leads to one, or
        nowhere."""
        matched = self.router.match(key, message)
        sinks = tuple(cast("Iterable[Sink]", matched))
        for destination in sinks:
            if isinstance(destination, ExchangeDriver):
                return ()
        return sinks if len(sinks) < 2 else tuple(dict.fromkeys(sinks))

    def _collect(
        self, keys: list[bytes], message: Message, found: dict[Sink, None], visited: set[str]
    ) -> bool:
        """Collect the sinks of the keys; returns whether the keys alone decided."""
        visited.add(self.name)
        keyed = self.router.keyed
        matched = False
        for key in keys:
            for destination in self.router.match(key, message):
                matched = True
                if isinstance(destination, ExchangeDriver):
                    if destination.name not in visited:
                        keyed &= destination._collect(keys, message, found, visited)
                else:
                    found[cast(Sink, destination)] = None
        if not matched and self.alternate and self.alternate not in visited:
            alternate = self.vhost.exchanges.get(self.alternate)
            if isinstance(alternate, ExchangeDriver):
                keyed &= alternate._collect(keys, message, found, visited)
        return keyed

    def forget_routes(self) -> None:
        self._routes.clear()
        self._run_routes.clear()

    # Topology.

    @property
    def storage(self) -> ExchangeStorage | None:
        return self._storage

    @property
    def uses_topic_permissions(self) -> bool:
        return self._topics is not None and self._topics.uses_topic_permissions

    def topics_of(self, key: str, arguments: dict[str, Any]) -> Iterable[str]:
        return () if self._topics is None else self._topics.topics_of(key, arguments)

    def add(self, binding: Binding) -> None:
        self.router.check(binding)
        self.router.add(binding)
        self.bindings[binding] = None

    def remove(self, binding: Binding) -> None:
        if self.bindings.pop(binding, 0) is None:
            self.router.remove(binding)

    def close(self) -> None:
        if self._storage is not None:
            self._storage.close()

    def apply_policy(self, policy: EffectivePolicy) -> None:
        self.policy = policy
        arguments = policy.merged(self.arguments)
        self.alternate: str | None = arguments.get("alternate-exchange")
        self.schema: str | None = arguments.get("x-schema")  #: the name of its messages' schema

    def delete(self) -> None:
        why = NotFound(f"no exchange '{self.name}' in vhost '{self.vhost.name}'")
        for channel in list(self._channels):
            channel.terminal.channel_failure(channel, 0, why)
        if self._storage is not None:
            self._storage.delete()

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "vhost": self.vhost.name,
            "type": self.type,
            "durable": self.durable,
            "auto_delete": self.auto_delete,
            "internal": self.internal,
            "arguments": self.arguments,
            **({"policy": self.policy.policy} if self.policy.policy else {}),
        }


def invalid_message(message: Message, exchange: str, reason: str) -> Message:
    """A message that violates a schema, for its dead-letter exchange."""
    properties = decode_header(message.header)
    headers = dict(properties.headers or {})
    headers |= {"x-schema-error": reason, "x-first-death-exchange": message.exchange}
    properties.headers = headers
    route = encode_route(exchange, message.routing_key)
    dead = Message(route, encode_header(properties, message.size), message.body, message.flags)
    dead.spool = message.spool
    return dead


def sender_selected_keys(message: Message) -> list[bytes]:
    """The routing keys of CC and BCC; BCC is removed from the message."""
    properties = decode_header(message.header)
    headers = properties.headers or {}
    keys: list[bytes] = []
    for name in ("CC", "BCC"):
        value = headers.get(name, [])
        if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
            raise PreconditionFailed(f"invalid message: header '{name}' is not an array of strings")
        keys += [key.encode("utf-8", "surrogateescape") for key in value]
    if "BCC" in headers:
        del headers["BCC"]
        message.header = encode_header(properties, message.size)
    return keys


#: Queues between two checks of the clock.
SINKS_PER_SLICE: Final = 64

#: Called with the result of the push, and the posts that waited behind it.
FanOutCallback = Callable[[int, list[tuple[Message | Fragment, int]]], None]


class FanOut:
    """A message to many queues, a slice of them per write batch.

    Until all have it, its sender is not read, and later posts of the sender wait.
    """

    def __init__(
        self,
        write_batch: WriteBatch,
        reader: DeferrableInput,
        message: Message,
        sinks: tuple[Sink, ...],
        finish: FanOutCallback,
    ) -> None:
        self._write_batch = write_batch
        self._reader = reader
        self._message = message
        self._sinks = sinks
        self._finish = finish
        self._at = 0
        self._outcome = 0
        self._behind: list[tuple[Message | Fragment, int]] = []

    def run(self) -> bool:
        """Push until the batch is over; returns whether all queues have the message."""
        sinks, message = self._sinks, self._message
        while self._at < len(sinks):
            for sink in sinks[self._at : self._at + SINKS_PER_SLICE]:
                if not getattr(sink, "deleted", False):  # since the last batch
                    self._outcome |= sink.push(message)
            self._at += SINKS_PER_SLICE
            if self._write_batch.is_over():
                break
        return self._at >= len(sinks)

    @property
    def outcome(self) -> int:
        return self._outcome

    def defer(self) -> None:
        """Continue in a later batch, and hold the sender until then."""
        self._reader.hold()
        self._write_batch.reader = None
        self._write_batch.defer(self._continue)

    def _continue(self) -> None:
        if not self.run():
            self._write_batch.defer(self._continue)
            return
        behind, self._behind = self._behind, []
        self._finish(self._outcome, behind)
        self._write_batch.defer(self._reader.resume)

    # The interface of `Channel.state`, as `FragmentAssembler`.

    def add(self, fragment: Message | Fragment, receipt: int) -> None:
        self._behind.append((fragment, receipt))

    def cancel(self) -> None:
        """The sender is gone. The message was accepted and reaches all queues."""
        for fragment, _ in self._behind:
            if isinstance(fragment, Fragment):
                fragment.bucket.release()
        self._behind.clear()
