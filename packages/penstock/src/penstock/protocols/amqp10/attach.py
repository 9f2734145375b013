"""What a client gets when it attaches a link: its source or target found, made, or refused.

Nothing is declared in AMQP 1.0, so an address that needs a queue gets one. `/queue/NAME` is made
if it is not there, with the arguments that the link's properties have for it. An exchange as a
source is a subscription: a queue of its own bound to it, that goes with the link; unless its
source is durable and never expires, when the queue is named by the client and the link and waits
for it to come back. A dynamic node is a queue of the connection's. Whatever is declared and bound
here needs the permissions that it needs in AMQP 0-9-1.
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
from penstock.protocols.amqp10.outgoing_link import OutgoingLink
from penstock.protocols.amqp10.recovery import (
    MAX_EXPIRY_SECONDS,
    resume_incoming_link,
    resume_outgoing_link,
)
from penstock.wire.amqp10.errors import INVALID_FIELD, NOT_IMPLEMENTED, LinkFault
from penstock.wire.amqp10.performatives import (
    COPY,
    EXPIRY_POLICIES,
    LIFETIME_POLICIES,
    LINK_DETACH,
    MOVE,
    NEVER,
    OUTCOME_NAMES,
    RELEASED,
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

#: Queues of durable subscriptions are named by this, the container and the link.
SUBSCRIPTION_QUEUE_PREFIX: Final = "amqp10.subscription"

# What a subscriber says of a subscription that it is not alone on: JMS's words.
SHARED_CAPABILITY: Final = "shared"
GLOBAL_CAPABILITY: Final = "global"

#: A consumer's rank among others, as RabbitMQ 4 takes it.
CONSUMER_PRIORITY: Final = "rabbitmq:priority"


def attach_outgoing_link(terminal: Amqp10Terminal, link: SenderLink) -> None:
    """The client wants to receive."""
    assert link.remote is not None
    source = link.remote.source
    if source is None:
        raise LinkFault(INVALID_FIELD, "a link to receive on needs a source")
    if source.expiry_policy not in EXPIRY_POLICIES:
        raise LinkFault(INVALID_FIELD, f"no expiry policy is '{source.expiry_policy}'")
    found = _resolve_source(terminal, link, source)
    queue = found.queue
    stream = queue.type == "stream"
    arguments: dict[str, Any] = {}
    selects: StreamMessageFilter | None = None
    if stream:
        wanted = parse_stream_filters(source.filter)
        found.filters = wanted.accepted or None
        selects = wanted.selects
        arguments = {"x-stream-offset": wanted.offset, "prefetch": LINK_CREDIT}
    elif source.distribution_mode == COPY:
        raise Unsupported("messages of a queue are moved: only a stream can be copied from")
    priority = (link.remote.properties or {}).get(CONSUMER_PRIORITY)
    if isinstance(priority, int):
        arguments["x-priority"] = int(priority)
    outgoing_link = OutgoingLink(terminal.writer, link, queue, queue.name, stream)
    outgoing_link.arguments = arguments
    outgoing_link.ends = found.ends
    outgoing_link.selects = selects
    queue.channel_open(outgoing_link, arguments)
    unsettled = resume_outgoing_link(terminal, outgoing_link)
    link.context = outgoing_link
    terminal.writer.outgoing_links[outgoing_link] = None
    answer = replace(
        source,
        filter=found.filters,
        distribution_mode=COPY if stream else MOVE,
        default_outcome=RELEASED,
        outcomes=OUTCOME_NAMES,
        capabilities=tuple(
            one for one in source.capabilities if one in (SHARED_CAPABILITY, GLOBAL_CAPABILITY)
        ),
        timeout=min(source.timeout, MAX_EXPIRY_SECONDS),
    )
    if source.dynamic:
        answer.address = queue_address(queue.name)
    link.accept(answer, link.remote.target, unsettled=unsettled)


@dataclass(slots=True)
class _ResolvedSource:
    """The queue behind a source."""

    queue: Queue
    ends: str | None = None  #: when it goes with its link
    filters: FilterSet | None = None  #: what of the filters holds


def _resolve_source(
    terminal: Amqp10Terminal, link: SenderLink, source: LinkSource
) -> _ResolvedSource:
    if source.dynamic:
        parse_filters(source.filter, "a queue")
        return _ResolvedSource(
            _declare_dynamic_queue(terminal), _lifetime_policy(source.dynamic_node_properties)
        )
    place = parse_link_address(source.address)
    if place.kind == "exchange":
        return _declare_subscription_queue(terminal, link, source, place)
    vhost = terminal.vhost
    if place.kind == "queue" and place.declares and place.name not in vhost.queues:
        assert link.remote is not None
        if queue_arguments(link.remote.properties).get("x-queue-type") != "stream":
            parse_filters(source.filter, "a queue")  # before there is one
        passing = not source.durable and source.expiry_policy == LINK_DETACH
        _declare_queue(terminal, link, place, passing=passing)
    terminal.access.check("read", "queue", place.name)
    queue = vhost.queue(place.name, terminal)
    if place.kind == "stream" and queue.type != "stream":
        raise PreconditionFailed(f"queue '{place.name}' in vhost '{vhost.name}' is no stream")
    if queue.type != "stream":
        parse_filters(source.filter, "a queue")
    return _ResolvedSource(queue)


def _declare_queue(
    terminal: Amqp10Terminal,
    link: SenderLink | ReceiverLink,
    place: LinkAddress,
    *,
    passing: bool = False,
) -> None:
    """A queue that is not there: durable, or passing with the last who receives from it."""
    assert link.remote is not None
    arguments = queue_arguments(link.remote.properties)
    if place.kind == "stream":
        arguments["x-queue-type"] = "stream"
    access = terminal.access
    access.check("configure", "queue", place.name)
    access.check_dead_letters(terminal.vhost, place.name, arguments)
    encode_route("", place.name)  # or nothing could be sent to it
    terminal.vhost.declare_queue(
        place.name, durable=not passing, auto_delete=passing, arguments=arguments
    )


def _declare_subscription_queue(
    terminal: Amqp10Terminal, link: SenderLink, source: LinkSource, place: LinkAddress
) -> _ResolvedSource:
    """A queue of the link's own, bound to an exchange."""
    access, vhost = terminal.access, terminal.vhost
    exchange = vhost.exchange(place.name)
    wanted = parse_binding_filters(source.filter)
    keys = wanted.keys
    if not keys:
        default = "#" if exchange.type == "topic" else ""
        keys = [default if place.key is None else place.key]
    for key in keys:
        access.check_bind(exchange, key, wanted.arguments)
    lasting = source.durable and source.expiry_policy == NEVER
    queue = (
        _durable_subscription_queue(terminal, link, source)
        if lasting
        else _declare_dynamic_queue(terminal)
    )
    try:
        for key in keys:
            vhost.bind(place.name, queue, key, wanted.arguments)
    except PenstockError:
        if not lasting:
            vhost.delete_queue(queue.name)
        raise
    for binding in vhost.bindings_of(queue):  # the client may have changed its mind
        if binding.source != place.name or binding.key not in keys:
            vhost.unbind(binding.source, queue, binding.key, binding.arguments)
    return _ResolvedSource(queue, "close" if lasting else "detach", wanted.accepted or None)


def _durable_subscription_queue(
    terminal: Amqp10Terminal, link: SenderLink, source: LinkSource
) -> Queue:
    """The queue of a durable subscription: its client's, or shared by all who know its name."""
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
    """A queue that belongs to the connection."""
    terminal.access.check("configure", "queue", "amq.gen")
    return terminal.vhost.declare_queue(owner=terminal, exclusive=True)


def _lifetime_policy(properties: dict[Any, Any] | None) -> str:
    """When a dynamic node goes: with its link, or, once it is empty, with its connection."""
    wanted = (properties or {}).get("lifetime-policy")
    if wanted is None:
        return "detach"
    composite = LIFETIME_POLICIES.find(wanted.descriptor) if isinstance(wanted, Described) else None
    if composite is None:
        raise LinkFault(INVALID_FIELD, "a lifetime policy that is none")
    return "empty" if composite.make is DeleteOnNoMessages else "detach"


def attach_incoming_link(terminal: Amqp10Terminal, link: ReceiverLink) -> None:
    """The client wants to send."""
    assert link.remote is not None
    target = link.remote.target
    if isinstance(target, TransactionCoordinator):
        raise LinkFault(NOT_IMPLEMENTED, "there are no transactions over AMQP 1.0")
    if target is None:
        raise LinkFault(INVALID_FIELD, "a link to send on needs a target")
    if target.expiry_policy not in EXPIRY_POLICIES:
        raise LinkFault(INVALID_FIELD, f"no expiry policy is '{target.expiry_policy}'")
    answer = replace(target, capabilities=(), timeout=min(target.timeout, MAX_EXPIRY_SECONDS))
    place: LinkAddress | None = None
    if target.dynamic:
        queue = _declare_dynamic_queue(terminal)
        place = LinkAddress("queue", queue.name)
        answer.address = queue_address(queue.name)
    elif target.address is not None:
        place = _resolve_target(terminal, link, target)
    incoming_link = IncomingLink(terminal, link, place)
    unsettled = resume_incoming_link(terminal, incoming_link)
    link.context = incoming_link
    link.accept(
        link.remote.source or LinkSource(),
        answer,
        unsettled=unsettled,
        max_message_size=terminal.host.kernel.settings.max_message_bytes,
    )
    link.grant(LINK_CREDIT)


def _resolve_target(
    terminal: Amqp10Terminal, link: ReceiverLink, target: LinkTarget
) -> LinkAddress:
    place = parse_link_address(target.address)
    vhost = terminal.vhost
    if place.kind == "exchange":
        vhost.exchange(place.name)
    elif place.name not in vhost.queues and place.name not in vhost.replies:
        if not place.declares:
            raise NotFound(f"no {place.kind} '{place.name}' in vhost '{vhost.name}'")
        _declare_queue(terminal, link, place)
    return place
