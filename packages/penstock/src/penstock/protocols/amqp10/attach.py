"""Attaching a link: its source or target is looked up, declared or refused.

AMQP 1.0 has no declarations, so a queue is declared where an address needs one. `/queue/NAME` is
declared if it does not exist, with arguments from the link's properties. An exchange as a source is
a subscription: a queue bound to it and deleted with the link. If the source is durable and never
expires, the queue is durable and named by the client and the link. A dynamic node is an exclusive
queue. All of this needs the same permissions as in AMQP 0-9-1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from penstock.core.basic_properties import encode_route
from penstock.core.errors import NotFound, PenstockError, PreconditionFailed, Unsupported
from penstock.protocols.amqp10.addresses import LinkAddress, parse_link_address, queue_address
from penstock.protocols.amqp10.filters import (
    FilterSet,
    StreamMessageFilter,
    parse_binding_filters,
    parse_filters,
    parse_stream_filters,
    queue_arguments,
)
from penstock.protocols.amqp10.incoming_link import LINK_CREDIT, IncomingLink
from penstock.protocols.amqp10.management_node import (
    MANAGEMENT_ADDRESS,
    ManagementRequests,
    ManagementResponses,
)
from penstock.protocols.amqp10.outgoing_link import OutgoingLink
from penstock.protocols.amqp10.recovery import (
    MAX_EXPIRY_SECONDS,
    resume_incoming_link,
    resume_outgoing_link,
)
from penstock.protocols.amqp10.transactions import COORDINATOR_CAPABILITIES, CoordinatorLink
from penstock.wire.amqp10.errors import INVALID_FIELD, LinkFault
from penstock.wire.amqp10.performatives import (
    COPY,
    EXPIRY_POLICIES,
    LIFETIME_POLICIES,
    LINK_DETACH,
    MOVE,
    NEVER,
    OUTCOME_NAMES,
    RELEASED,
    SETTLED,
    DeleteOnNoMessages,
    LinkSource,
    LinkTarget,
    TransactionCoordinator,
)
from penstock.wire.amqp10.values import Described

if TYPE_CHECKING:
    from penstock.broker.contract import Queue
    from penstock.protocols.amqp10.terminal import Amqp10Terminal
    from penstock.wire.amqp10.links import ReceiverLink, SenderLink

#: Prefix of the queues of durable subscriptions, before the container id and the link name.
SUBSCRIPTION_QUEUE_PREFIX: Final = "amqp10.subscription"

# Capabilities of a shared subscription, as in JMS.
SHARED_CAPABILITY: Final = "shared"
GLOBAL_CAPABILITY: Final = "global"

#: The capability of a source that asks for direct reply-to, and the prefix of its names.
VOLATILE_QUEUE_CAPABILITY: Final = "rabbitmq:volatile-queue"
DIRECT_REPLY_TO: Final = "amq.rabbitmq.reply-to"

#: The link property for consumer priority, as in RabbitMQ 4.
CONSUMER_PRIORITY: Final = "rabbitmq:priority"


def attach_outgoing_link(terminal: Amqp10Terminal, link: SenderLink) -> None:
    assert link.remote is not None
    source = link.remote.source
    if source is None:
        raise LinkFault(INVALID_FIELD, "a receiving link needs a source")
    if source.expiry_policy not in EXPIRY_POLICIES:
        raise LinkFault(INVALID_FIELD, f"unknown expiry policy '{source.expiry_policy}'")
    if source.address == MANAGEMENT_ADDRESS:
        link.context = ManagementResponses(link)
        link.accept(source, link.remote.target, properties=link.remote.properties)
        return
    if VOLATILE_QUEUE_CAPABILITY in source.capabilities:
        _attach_reply_link(terminal, link, source)
        return
    resolved = _resolve_source(terminal, link, source)
    queue = resolved.queue
    stream = queue.type == "stream"
    arguments: dict[str, Any] = {}
    selects: StreamMessageFilter | None = None
    if stream:
        stream_filters = parse_stream_filters(source.filter)
        resolved.filters = stream_filters.accepted or None
        selects = stream_filters.selects
        arguments = {"x-stream-offset": stream_filters.offset, "prefetch": LINK_CREDIT}
    elif source.distribution_mode == COPY:
        raise Unsupported("distribution mode copy is supported for streams only")
    priority = (link.remote.properties or {}).get(CONSUMER_PRIORITY)
    if isinstance(priority, int):
        arguments["x-priority"] = int(priority)
    outgoing_link = OutgoingLink(terminal.writer, link, queue, queue.name, stream)
    outgoing_link.arguments = arguments
    outgoing_link.ends = resolved.ends
    outgoing_link.selects = selects
    queue.channel_open(outgoing_link, arguments)
    terminal.host.kernel.inflight_pager.add(outgoing_link)
    unsettled = resume_outgoing_link(terminal, outgoing_link)
    link.context = outgoing_link
    terminal.writer.outgoing_links[outgoing_link] = None
    attached = replace(
        source,
        filter=resolved.filters,
        distribution_mode=COPY if stream else MOVE,
        default_outcome=RELEASED,
        outcomes=OUTCOME_NAMES,
        capabilities=tuple(
            one for one in source.capabilities if one in (SHARED_CAPABILITY, GLOBAL_CAPABILITY)
        ),
        timeout=min(source.timeout, MAX_EXPIRY_SECONDS),
    )
    if source.dynamic:
        attached.address = queue_address(queue.name)
    link.accept(attached, link.remote.target, unsettled=unsettled)


def _attach_reply_link(terminal: Amqp10Terminal, link: SenderLink, source: LinkSource) -> None:
    """Direct reply-to, as in RabbitMQ 4: replies reach the link without a queue, and are settled as
    they are sent."""
    assert link.remote is not None
    if not source.dynamic or source.durable or source.filter or source.address is not None:
        raise LinkFault(
            INVALID_FIELD,
            f"{VOLATILE_QUEUE_CAPABILITY} needs a dynamic source without address, durability and "
            "filters",
        )
    if link.remote.snd_settle_mode != SETTLED:
        raise LinkFault(INVALID_FIELD, f"{VOLATILE_QUEUE_CAPABILITY} needs settled deliveries")
    if source.expiry_policy != LINK_DETACH:
        raise LinkFault(
            INVALID_FIELD, f"{VOLATILE_QUEUE_CAPABILITY} needs the expiry policy {LINK_DETACH}"
        )
    name, driver = terminal.vhost.open_reply(DIRECT_REPLY_TO)
    outgoing_link = OutgoingLink(terminal.writer, link, driver, name, False)
    outgoing_link.ends = "reply"
    driver.channel_open(outgoing_link, {})
    link.context = outgoing_link
    terminal.writer.outgoing_links[outgoing_link] = None
    attached = replace(
        source,
        address=queue_address(name),
        capabilities=(VOLATILE_QUEUE_CAPABILITY,),
        distribution_mode=MOVE,
    )
    link.accept(attached, link.remote.target)


@dataclass(slots=True)
class _ResolvedSource:
    queue: Queue
    ends: str | None = None  #: when the queue is deleted with the link
    filters: FilterSet | None = None  #: those in force


def _resolve_source(
    terminal: Amqp10Terminal, link: SenderLink, source: LinkSource
) -> _ResolvedSource:
    if source.dynamic:
        parse_filters(source.filter, "a queue")
        return _ResolvedSource(
            _declare_dynamic_queue(terminal), _lifetime_policy(source.dynamic_node_properties)
        )
    address = parse_link_address(source.address)
    if address.kind == "exchange":
        return _declare_subscription_queue(terminal, link, source, address)
    vhost = terminal.vhost
    if address.kind == "queue" and address.declares and address.name not in vhost.queues:
        assert link.remote is not None
        if queue_arguments(link.remote.properties).get("x-queue-type") != "stream":
            parse_filters(source.filter, "a queue")  # before it is declared
        transient = not source.durable and source.expiry_policy == LINK_DETACH
        _declare_queue(terminal, link, address, transient=transient)
    terminal.access.check("read", "queue", address.name)
    queue = vhost.queue(address.name, terminal)
    if address.kind == "stream" and queue.type != "stream":
        raise PreconditionFailed(f"queue '{address.name}' in vhost '{vhost.name}' is not a stream")
    if queue.type != "stream":
        parse_filters(source.filter, "a queue")
    return _ResolvedSource(queue)


def _declare_queue(
    terminal: Amqp10Terminal,
    link: SenderLink | ReceiverLink,
    address: LinkAddress,
    *,
    transient: bool = False,
) -> None:
    """Declare a durable queue, or a transient one that is deleted with its last consumer."""
    assert link.remote is not None
    arguments = queue_arguments(link.remote.properties)
    if address.kind == "stream":
        arguments["x-queue-type"] = "stream"
    access = terminal.access
    access.check("configure", "queue", address.name)
    access.check_dead_letters(terminal.vhost, address.name, arguments)
    encode_route("", address.name)  # raises if no message could be sent to it
    terminal.vhost.declare_queue(
        address.name, durable=not transient, auto_delete=transient, arguments=arguments
    )


def _declare_subscription_queue(
    terminal: Amqp10Terminal, link: SenderLink, source: LinkSource, address: LinkAddress
) -> _ResolvedSource:
    """A queue for the link, bound to an exchange."""
    access, vhost = terminal.access, terminal.vhost
    exchange = vhost.exchange(address.name)
    filters = parse_binding_filters(source.filter)
    keys = filters.keys
    if not keys:
        default = "#" if exchange.type == "topic" else ""
        keys = [default if address.key is None else address.key]
    for key in keys:
        access.check_bind(exchange, key, filters.arguments)
    durable = source.durable and source.expiry_policy == NEVER
    queue = (
        _durable_subscription_queue(terminal, link, source)
        if durable
        else _declare_dynamic_queue(terminal)
    )
    try:
        for key in keys:
            vhost.bind(address.name, queue, key, filters.arguments)
    except PenstockError:
        if not durable:
            vhost.delete_queue(queue.name)
        raise
    for binding in vhost.bindings_of(queue):  # of an earlier attach
        if binding.source != address.name or binding.key not in keys:
            vhost.unbind(binding.source, queue, binding.key, binding.arguments)
    return _ResolvedSource(queue, "close" if durable else "detach", filters.accepted or None)


def _durable_subscription_queue(
    terminal: Amqp10Terminal, link: SenderLink, source: LinkSource
) -> Queue:
    """A queue of the client, or shared by all clients that use its name."""
    assert terminal.connection.remote is not None
    owner = f".{terminal.connection.remote.container_id}"
    if SHARED_CAPABILITY in source.capabilities and GLOBAL_CAPABILITY in source.capabilities:
        owner = ""
    name = f"{SUBSCRIPTION_QUEUE_PREFIX}{owner}.{link.name}"
    encode_route("", name)
    for kind in ("configure", "write", "read"):
        terminal.access.check(kind, "queue", name)
    return terminal.vhost.declare_queue(name, durable=True)


def _declare_dynamic_queue(terminal: Amqp10Terminal) -> Queue:
    terminal.access.check("configure", "queue", "amq.gen")
    return terminal.vhost.declare_queue(owner=terminal, exclusive=True)


def _lifetime_policy(properties: dict[Any, Any] | None) -> str:
    """When a dynamic node is deleted: with its link, or with its connection once it is empty."""
    policy = (properties or {}).get("lifetime-policy")
    if policy is None:
        return "detach"
    composite = LIFETIME_POLICIES.find(policy.descriptor) if isinstance(policy, Described) else None
    if composite is None:
        raise LinkFault(INVALID_FIELD, f"unknown lifetime policy {policy!r:.80}")
    return "empty" if composite.make is DeleteOnNoMessages else "detach"


def attach_incoming_link(terminal: Amqp10Terminal, link: ReceiverLink) -> None:
    assert link.remote is not None
    target = link.remote.target
    if isinstance(target, TransactionCoordinator):
        coordinator = link.context = CoordinatorLink(terminal, link)
        link.accept(link.remote.source, TransactionCoordinator(COORDINATOR_CAPABILITIES))
        coordinator.replenish_credit()
        return
    if target is None:
        raise LinkFault(INVALID_FIELD, "a sending link needs a target")
    if target.expiry_policy not in EXPIRY_POLICIES:
        raise LinkFault(INVALID_FIELD, f"unknown expiry policy '{target.expiry_policy}'")
    if target.address == MANAGEMENT_ADDRESS:
        requests = link.context = ManagementRequests(terminal, link)
        link.accept(link.remote.source or LinkSource(), target)
        requests.replenish_credit()
        return
    attached = replace(target, capabilities=(), timeout=min(target.timeout, MAX_EXPIRY_SECONDS))
    address: LinkAddress | None = None
    if target.dynamic:
        queue = _declare_dynamic_queue(terminal)
        address = LinkAddress("queue", queue.name)
        attached.address = queue_address(queue.name)
    elif target.address is not None:
        address = _resolve_target(terminal, link, target)
    incoming_link = IncomingLink(terminal, link, address)
    unsettled = resume_incoming_link(terminal, incoming_link)
    link.context = incoming_link
    link.accept(
        link.remote.source or LinkSource(),
        attached,
        unsettled=unsettled,
        max_message_size=terminal.host.kernel.settings.max_message_bytes,
    )
    link.grant(LINK_CREDIT)


def _resolve_target(
    terminal: Amqp10Terminal, link: ReceiverLink, target: LinkTarget
) -> LinkAddress:
    address = parse_link_address(target.address)
    vhost = terminal.vhost
    if address.kind == "exchange":
        vhost.exchange(address.name)
    elif address.name not in vhost.queues and address.name not in vhost.replies:
        if not address.declares:
            raise NotFound(f"no {address.kind} '{address.name}' in vhost '{vhost.name}'")
        _declare_queue(terminal, link, address)
    return address
