"""Virtual hosts: the registry of destinations, and changes of topology.

Terminals call these methods for declare, bind and delete, and check permissions before. Drivers
call them only for deletions that they cause themselves (auto-delete, expiry). Durable changes go to
the topology journal.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import quote, unquote

from penstock.broker import declarations
from penstock.broker.contract import (
    Binding,
    Channel,
    DelayedStore,
    Driver,
    Exchange,
    Message,
    Queue,
    RetainedMessages,
    Sink,
)
from penstock.broker.kernel import Kernel
from penstock.broker.parameters import RuntimeParameters
from penstock.broker.policies import Policies, Policy
from penstock.broker.topology import Topology, pack_arguments, unpack_arguments
from penstock.core.errors import (
    AccessRefused,
    CommandInvalid,
    NotFound,
    PreconditionFailed,
    ResourceExhausted,
    ResourceLocked,
)
from penstock.core.resources import descriptor_limit, has_descriptors

ExchangeFactory = Callable[..., Exchange]
QueueFactory = Callable[..., Queue]
ReplyFactory = Callable[[Kernel, str], Any]
RetainedFactory = Callable[[Kernel, Path], RetainedMessages]
DelayedFactory = Callable[["VirtualHost"], DelayedStore]

#: Copies of messages while the virtual host is traced; internal, so that no client publishes to it.
TRACE_EXCHANGE = "amq.rabbitmq.trace"

PREDECLARED_EXCHANGES = {
    "": "direct",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
    TRACE_EXCHANGE: "topic",
}


class VirtualHostTracer(Protocol):
    """What a traced virtual host reports to."""

    def watch(self, queue: Queue) -> None:
        """A queue was declared."""

    def published(
        self,
        exchange: Exchange,
        channel: Channel | None,
        message: Message,
        sinks: Sequence[Sink],
    ) -> None:
        """A message was routed; `channel` is None if the broker publishes it again."""


class VirtualHost:
    def __init__(
        self,
        name: str,
        kernel: Kernel,
        topology: Topology,
        exchange_types: dict[str, ExchangeFactory],
        queue_types: dict[str, QueueFactory],
        reply_type: ReplyFactory,
        retained_type: RetainedFactory,
        delayed_type: DelayedFactory,
        *,
        recover: bool = True,
    ) -> None:
        """Without `recover`, the caller must run `recovery` to its end."""
        self.name = name
        self.kernel = kernel
        self.topology = topology
        self.exchange_types = exchange_types
        self.queue_types = queue_types
        self.reply_type = reply_type
        self._retained_type = retained_type
        self._retained: RetainedMessages | None = None
        self._delayed_type = delayed_type
        self._delayed: DelayedStore | None = None
        self.policies = Policies(name, topology)
        self.parameters = RuntimeParameters(name, topology)
        self.schemas: dict[str, Any] = {}  #: compiled, of exchanges that have one
        self.tracer: VirtualHostTracer | None = None  #: set while it is traced
        #: Called after each change of exchanges, queues, bindings, policies and parameters.
        self.on_changed: Callable[[], None] | None = None
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        #: Direct reply-to channels by routing key.
        self.replies: dict[str, Sink] = {}
        self._bound: dict[tuple[str, str], dict[tuple[str, str, str], Binding]] = {}
        self._owned: dict[object, set[str]] = {}
        for exchange, kind in PREDECLARED_EXCHANGES.items():
            self._make_exchange(exchange, kind, True, False, exchange == TRACE_EXCHANGE, {})
        if recover:
            for _ in self.recovery():
                pass

    def lookup(self, path: str) -> Driver:
        where = parse_destination(path)
        return self.queue(where.name) if where.kind == "queue" else self.exchange(where.name)

    def exchange(self, name: str) -> Exchange:
        try:
            return self.exchanges[name]
        except KeyError:
            raise NotFound(f"no exchange '{name}' in vhost '{self.name}'") from None

    def queue(self, name: str, owner: object | None = None) -> Queue:
        """Raises `ResourceLocked` if the queue is exclusive to another connection."""
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound(f"no queue '{name}' in vhost '{self.name}'")
        if queue.owner is not None and owner is not None and queue.owner is not owner:
            raise self._locked(name)
        return queue

    def _locked(self, name: str) -> ResourceLocked:
        return ResourceLocked(
            f"cannot obtain exclusive access to locked queue '{name}' in vhost "
            f"'{self.name}'. It could be originally declared on another connection or the "
            "exclusive property value does not match that of the original declaration."
        )

    def existing_exchange(self, name: str) -> Exchange:
        """For a passive declare."""
        self._refuse_default(name)
        return self.exchange(name)

    def open_reply(self, prefix: str) -> tuple[str, Driver]:
        """A direct reply-to destination for one client, and its routing key."""
        name = f"{prefix}.{secrets.token_urlsafe(16)}"
        self.replies[name] = driver = self.reply_type(self.kernel, name)
        return name, driver

    @property
    def retained(self) -> RetainedMessages:
        """Opened at the first use."""
        if self._retained is None:
            where = self.kernel.directory / "retained" / directory_name(self.name)
            self._retained = self._retained_type(self.kernel, where)
        return self._retained

    @property
    def delayed(self) -> DelayedStore:
        """Messages that AMQP 1.0 and MQTT clients delay; opened at the first use."""
        if self._delayed is None:
            self._delayed = self._delayed_type(self)
        return self._delayed

    @property
    def has_delayed(self) -> bool:
        return self._delayed is not None

    # Exchanges.

    def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> Exchange:
        arguments = arguments or {}
        self._refuse_default(name)
        if kind not in self.exchange_types:
            raise CommandInvalid(f"unknown exchange type '{kind}'")
        existing = self.exchanges.get(name)
        if existing is not None:
            declarations.check_exchange_equivalence(
                self.name, existing, kind, durable, auto_delete, internal, arguments
            )
            return existing
        if name.startswith("amq."):
            raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        exchange = self._make_exchange(name, kind, durable, auto_delete, internal, arguments)
        if durable:
            self.topology.put(
                ("exchange", self.name, name),
                {
                    "type": kind,
                    "auto_delete": auto_delete,
                    "internal": internal,
                    "arguments": pack_arguments(arguments),
                },
            )
        self.changed()
        return exchange

    def _make_exchange(
        self,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, Any],
    ) -> Exchange:
        exchange = self.exchange_types[kind](
            self,
            name,
            type=kind,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )
        self.exchanges[name] = exchange
        return exchange

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        self._refuse_default(name)
        if name in PREDECLARED_EXCHANGES:
            raise AccessRefused(
                f"deletion of system exchange '{name}' in vhost '{self.name}' not allowed"
            )
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise PreconditionFailed(f"exchange '{name}' in vhost '{self.name}' in use")
        del self.exchanges[name]
        for binding in list(exchange.bindings):
            self._drop_binding(binding)
        self._unbind_all(exchange)
        exchange.delete()
        self.topology.drop(("exchange", self.name, name))
        self.changed()

    # Queues.

    def declare_queue(
        self,
        name: str = "",
        *,
        durable: bool = False,
        owner: object | None = None,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> Queue:
        arguments = arguments or {}
        if name:
            existing = self.queues.get(name)
            if existing is not None:
                existing = self.queue(name, owner)
                if exclusive != (existing.owner is not None):
                    raise self._locked(name)
                declarations.check_queue_equivalence(
                    self.name, existing, durable, auto_delete, arguments
                )
                return existing
            if name.startswith("amq."):
                raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        else:
            kind = arguments.get("x-queue-type", "classic")
            if kind in ("stream", "quorum"):
                raise PreconditionFailed(f"Cannot declare a server-named queue for type {kind}")
            name = "amq.gen-" + base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        kind = declarations.queue_type(self.name, name, durable, exclusive, auto_delete, arguments)
        self._check_tiered(arguments)
        limit = self.policies.limits.get("max-queues")
        if limit is not None and len(self.queues) >= limit:
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' ({limit}) is "
                "reached"
            )
        if durable and not has_descriptors():  # else the files of all queues would fail
            raise ResourceExhausted(
                f"cannot declare queue '{name}': {descriptor_limit()} descriptors are too few for "
                "the files of another queue; raise the limit of open files (ulimit -n)"
            )
        queue = self.queue_types[kind](
            self,
            name,
            type=kind,
            durable=durable,
            auto_delete=auto_delete,
            owner=owner if exclusive else None,
            arguments=arguments,
        )
        self.queues[name] = queue
        if self.tracer is not None:
            self.tracer.watch(queue)
        if exclusive:
            self._owned.setdefault(owner, set()).add(name)
        elif durable:
            self.topology.put(
                ("queue", self.name, name),
                {"auto_delete": auto_delete, "arguments": pack_arguments(arguments)},
            )
        self.exchanges[""].forget_routes()  # no other exchange routes to it yet
        if self.on_changed is not None:
            self.on_changed()
        return queue

    def delete_queue(
        self,
        name: str,
        *,
        owner: object | None = None,
        if_unused: bool = False,
        if_empty: bool = False,
    ) -> int:
        """Delete a queue, if it exists; returns the number of its messages."""
        if name not in self.queues:
            return 0
        queue = self.queue(name, owner)
        if if_unused and queue.consumer_count:
            raise PreconditionFailed(f"queue '{name}' in vhost '{self.name}' in use")
        if if_empty and queue.message_count:
            raise PreconditionFailed(f"queue '{name}' in vhost '{self.name}' not empty")
        count = queue.message_count
        del self.queues[name]
        if queue.owner is not None:
            self._owned.get(queue.owner, set()).discard(name)
        self._unbind_all(queue)
        self.topology.drop(("queue", self.name, name))
        self.changed()
        queue.delete()
        return count

    def release(self, owner: object) -> None:
        """Delete the exclusive queues of a closed connection."""
        for name in list(self._owned.pop(owner, ())):
            self.delete_queue(name)

    # Policies.

    def _check_tiered(self, arguments: dict[str, Any]) -> None:
        local = [name for name in arguments if name.removeprefix("x-").startswith("local-max-")]
        if local and self.kernel.tiered_storage is None:
            raise PreconditionFailed(
                f"{local[0]} needs tiered storage: set broker.tiered_storage to a directory or "
                "bucket"
            )

    def set_policy(self, policy: Policy, *, operator: bool = False) -> None:
        self._check_tiered(policy.definition)
        self.policies.set(policy, operator=operator)
        self._apply_policies()

    def remove_policy(self, name: str, *, operator: bool = False) -> None:
        if not self.policies.remove(name, operator=operator):
            kind = "operator policy" if operator else "policy"
            raise NotFound(f"no {kind} '{name}' in vhost '{self.name}'")
        self._apply_policies()

    def _apply_policies(self) -> None:
        for exchange in self.exchanges.values():
            exchange.apply_policy(self.policies.of_exchange(exchange.name))
        for queue in list(self.queues.values()):
            queue.apply_policy(self.policies.of_queue(queue.name, queue.arguments))
        self.changed()

    def set_parameter(self, component: str, name: str, value: Any | None) -> None:
        """None removes it."""
        if value is None:
            self.parameters.remove(component, name)
        else:
            self.parameters.set(component, name, value)
        self.schemas.clear()
        if self.on_changed is not None:
            self.on_changed()

    # Bindings.

    def bind(
        self,
        source: str,
        destination: Queue | Exchange,
        key: str = "",
        arguments: dict[str, Any] | None = None,
    ) -> None:
        arguments = arguments or {}
        exchange = self.exchange(source)
        self._refuse_default(source)
        if destination.kind == "exchange":
            self._refuse_default(destination.name)
        packed = pack_arguments(arguments)
        bound = self._bound.setdefault((destination.kind, destination.name), {})
        if (source, key, packed) in bound:
            return
        binding = Binding(source, destination, key, arguments)
        binding.properties_key = declarations.properties_key(key, arguments)
        exchange.add(binding)
        bound[source, key, packed] = binding
        if destination.kind == "queue":
            cast(Queue, destination).bound(binding)
        if exchange.durable and destination.durable and getattr(destination, "owner", None) is None:
            self.topology.put(self._binding_key(binding, packed), {})
        self.changed()

    def unbind(
        self,
        source: str,
        destination: Queue | Exchange,
        key: str = "",
        arguments: dict[str, Any] | None = None,
    ) -> None:
        self._refuse_default(source)
        bound = self._bound.get((destination.kind, destination.name), {})
        binding = bound.get((source, key, pack_arguments(arguments or {})))
        if binding is not None:
            self._remove(binding)
            self.changed()

    def bindings(self) -> Iterator[Binding]:
        """All bindings except those of the default exchange."""
        for bound in list(self._bound.values()):
            yield from list(bound.values())

    def bindings_of(self, destination: Queue | Exchange) -> list[Binding]:
        return list(self._bound.get((destination.kind, destination.name), {}).values())

    def _binding_key(self, binding: Binding, packed: str) -> tuple[str, ...]:
        destination = binding.destination
        return (
            "binding",
            self.name,
            binding.source,
            destination.kind,
            destination.name,
            binding.key,
            packed,
        )

    def _drop_binding(self, binding: Binding) -> None:
        destination = binding.destination
        packed = pack_arguments(binding.arguments)
        bound = self._bound.get((destination.kind, destination.name), {})
        bound.pop((binding.source, binding.key, packed), None)
        self.topology.drop(self._binding_key(binding, packed))

    def _remove(self, binding: Binding) -> None:
        self._drop_binding(binding)
        if binding.destination_kind == "queue":
            cast(Queue, binding.destination).unbound(binding)
        exchange = self.exchanges.get(binding.source)
        if exchange is None:
            return
        exchange.remove(binding)
        if exchange.auto_delete and not exchange.bindings:
            self.delete_exchange(exchange.name)

    def _unbind_all(self, destination: Queue | Exchange) -> None:
        for binding in self.bindings_of(destination):
            self._remove(binding)
        self._bound.pop((destination.kind, destination.name), None)

    @staticmethod
    def _refuse_default(exchange: str) -> None:
        if exchange == "":
            raise AccessRefused("operation not permitted on the default exchange")

    def changed(self) -> None:
        for exchange in self.exchanges.values():
            exchange.forget_routes()
        if self.on_changed is not None:
            self.on_changed()

    def recovery(self) -> Iterator[None]:
        """Restore durable destinations and bindings step by step; the caller may do other work
        between."""
        for (_, vhost, name), value in self.topology.all("exchange"):
            if vhost == self.name and value["type"] in self.exchange_types:
                self._make_exchange(
                    name,
                    value["type"],
                    True,
                    value["auto_delete"],
                    value["internal"],
                    unpack_arguments(value["arguments"]),
                )
                yield
        for (_, vhost, name), value in self.topology.all("queue"):
            if vhost == self.name:
                arguments = unpack_arguments(value["arguments"])
                auto_delete = value["auto_delete"]
                kind = declarations.queue_type(vhost, name, True, False, auto_delete, arguments)
                self.queues[name] = self.queue_types[kind](
                    self,
                    name,
                    type=kind,
                    durable=True,
                    auto_delete=auto_delete,
                    owner=None,
                    arguments=arguments,
                )
                yield
        for key, _ in self.topology.all("binding"):
            _, vhost, source, kind, name, routing_key, packed = key
            registry: dict[str, Any] = self.queues if kind == "queue" else self.exchanges
            if vhost == self.name and name in registry and source in self.exchanges:
                self.bind(source, registry[name], routing_key, unpack_arguments(packed))
                yield
        if (self.kernel.directory / "delayed" / directory_name(f"{self.name}\0")).exists():
            self._delayed = self._delayed_type(self)

    def close(self, failed: Callable[[str, OSError], None]) -> None:
        """Close every destination, also after disk errors."""
        for destination in (*self.exchanges.values(), *self.queues.values()):
            try:
                destination.close()
            except OSError as error:
                failed(destination.name, error)
        for name, store in (("retained", self._retained), ("delayed", self._delayed)):
            try:
                if store is not None:
                    store.close()
            except OSError as error:
                failed(name, error)

    def delete(self) -> None:
        """Delete the virtual host with its content."""
        self.retained.delete()
        if self._delayed is not None:
            self._delayed.delete()
        for name in list(self.queues):
            self.delete_queue(name)
        for name in list(self.exchanges):
            if name not in PREDECLARED_EXCHANGES:
                self.delete_exchange(name)
        for key, _ in self.topology.all("session"):
            if key[1] == self.name:
                self.topology.drop(key)
        self.policies.drop()
        self.parameters.drop()
        self.topology.drop(("vhost", self.name))


#: The exchange of `/topic/KEY`.
TOPIC_EXCHANGE = "amq.topic"


@dataclass(frozen=True, slots=True)
class DestinationPath:
    """`/queue/NAME`, `/exchange/NAME[/KEY]`, `/stream/NAME` or `/topic/KEY`, percent-encoded.

    Also an AMQP 1.0 address.
    """

    kind: str  #: "queue" (streams are queues too) or "exchange"
    name: str
    key: str = ""

    def __str__(self) -> str:
        path = f"/{self.kind}/{quote(self.name, safe='')}"
        return f"{path}/{quote(self.key, safe='')}" if self.key else path


def parse_destination(path: str) -> DestinationPath:
    match path.split("/"):
        case ["", "queue" | "stream", name] if name:
            return DestinationPath("queue", unquote(name))
        case ["", "exchange", name]:
            return DestinationPath("exchange", unquote(name))
        case ["", "exchange", name, key]:
            return DestinationPath("exchange", unquote(name), unquote(key))
        case ["", "topic", *words] if words and words[0]:
            return DestinationPath("exchange", TOPIC_EXCHANGE, unquote("/".join(words)))
    raise NotFound(
        f"'{path}' is not a destination: use /queue/NAME, /exchange/NAME[/KEY], /stream/NAME "
        "or /topic/KEY"
    )


def directory_name(name: str) -> str:
    """The directory of a destination; long names are hashed."""
    content = name.encode("utf-8", "surrogateescape")
    if len(content) > 180:  # file systems stop at 255, and base64 makes four bytes of three
        return "~" + hashlib.sha256(content).hexdigest()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
