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

from penstock.core.errors import NotFound, PenstockError, PreconditionFailed, Unsupported
from penstock.core.properties import encode_route
from penstock.terminals.amqp10.addresses import Place, parse_address, queue_address
from penstock.terminals.amqp10.filters import (
    Filters,
    arguments_of,
    bindings,
    known_filters,
    stream_filters,
)
from penstock.terminals.amqp10.inlet import CREDIT, Inlet
from penstock.terminals.amqp10.interruption import resume_inlet, resume_outlet
from penstock.terminals.amqp10.outlet import Outlet
from penstock.terminals.amqp10.recovery import LONGEST
from penstock.terminals.amqp10.selection import Selection
from penstock.wire.amqp10.conditions import INVALID_FIELD, NOT_IMPLEMENTED, LinkFault
from penstock.wire.amqp10.states import OUTCOME_NAMES, RELEASED
from penstock.wire.amqp10.termini import (
    COPY,
    EXPIRY_POLICIES,
    LIFETIMES,
    LINK_DETACH,
    MOVE,
    NEVER,
    Coordinator,
    DeleteOnNoMessages,
    Source,
    Target,
)
from penstock.wire.amqp10.values import Described

if TYPE_CHECKING:
    from penstock.broker.destinations import Queue
    from penstock.terminals.amqp10.terminal import Amqp10Terminal
    from penstock.wire.amqp10.links import Receiver, Sender

#: Queues of durable subscriptions are named by this, the container and the link.
SUBSCRIPTION: Final = "amqp10.subscription"

# What a subscriber says of a subscription that it is not alone on: JMS's words.
SHARED: Final = "shared"
GLOBAL: Final = "global"

#: A consumer's rank among others, as RabbitMQ 4 takes it.
PRIORITY: Final = "rabbitmq:priority"


def attach_outlet(terminal: Amqp10Terminal, link: Sender) -> None:
    """The client wants to receive."""
    assert link.remote is not None
    source = link.remote.source
    if source is None:
        raise LinkFault(INVALID_FIELD, "a link to receive on needs a source")
    if source.expiry_policy not in EXPIRY_POLICIES:
        raise LinkFault(INVALID_FIELD, f"no expiry policy is '{source.expiry_policy}'")
    found = _found_source(terminal, link, source)
    queue = found.queue
    stream = queue.type == "stream"
    arguments: dict[str, Any] = {}
    selects: Selection | None = None
    if stream:
        wanted = stream_filters(source.filter)
        found.filters = wanted.accepted or None
        selects = wanted.selects
        arguments = {"x-stream-offset": wanted.offset, "prefetch": CREDIT}
    elif source.distribution_mode == COPY:
        raise Unsupported("messages of a queue are moved: only a stream can be copied from")
    priority = (link.remote.properties or {}).get(PRIORITY)
    if isinstance(priority, int):
        arguments["x-priority"] = int(priority)
    outlet = Outlet(terminal.outflow, link, queue, queue.name, stream)
    outlet.arguments = arguments
    outlet.ends = found.ends
    outlet.selects = selects
    queue.channel_open(outlet, arguments)
    unsettled = resume_outlet(terminal, outlet)
    link.context = outlet
    terminal.outflow.outlets[outlet] = None
    answer = replace(
        source,
        filter=found.filters,
        distribution_mode=COPY if stream else MOVE,
        default_outcome=RELEASED,
        outcomes=OUTCOME_NAMES,
        capabilities=tuple(one for one in source.capabilities if one in (SHARED, GLOBAL)),
        timeout=min(source.timeout, LONGEST),
    )
    if source.dynamic:
        answer.address = queue_address(queue.name)
    link.accept(answer, link.remote.target, unsettled=unsettled)


@dataclass(slots=True)
class _Found:
    """The queue behind a source."""

    queue: Queue
    ends: str | None = None  #: when it goes with its link
    filters: Filters | None = None  #: what of the filters holds


def _found_source(terminal: Amqp10Terminal, link: Sender, source: Source) -> _Found:
    if source.dynamic:
        known_filters(source.filter, "a queue")
        return _Found(_temporary(terminal), _lifetime(source.dynamic_node_properties))
    place = parse_address(source.address)
    if place.kind == "exchange":
        return _subscription(terminal, link, source, place)
    vhost = terminal.vhost
    if place.kind == "queue" and place.declares and place.name not in vhost.queues:
        assert link.remote is not None
        if arguments_of(link.remote.properties).get("x-queue-type") != "stream":
            known_filters(source.filter, "a queue")  # before there is one
        passing = not source.durable and source.expiry_policy == LINK_DETACH
        _declare(terminal, link, place, passing=passing)
    terminal.access.check("read", "queue", place.name)
    queue = vhost.queue(place.name, terminal)
    if place.kind == "stream" and queue.type != "stream":
        raise PreconditionFailed(f"queue '{place.name}' in vhost '{vhost.name}' is no stream")
    if queue.type != "stream":
        known_filters(source.filter, "a queue")
    return _Found(queue)


def _declare(
    terminal: Amqp10Terminal, link: Sender | Receiver, place: Place, *, passing: bool = False
) -> None:
    """A queue that is not there: durable, or passing with the last who receives from it."""
    assert link.remote is not None
    arguments = arguments_of(link.remote.properties)
    if place.kind == "stream":
        arguments["x-queue-type"] = "stream"
    access = terminal.access
    access.check("configure", "queue", place.name)
    access.check_dead_letters(terminal.vhost, place.name, arguments)
    encode_route("", place.name)  # or nothing could be sent to it
    terminal.vhost.declare_queue(
        place.name, durable=not passing, auto_delete=passing, arguments=arguments
    )


def _subscription(terminal: Amqp10Terminal, link: Sender, source: Source, place: Place) -> _Found:
    """A queue of the link's own, bound to an exchange."""
    access, vhost = terminal.access, terminal.vhost
    exchange = vhost.exchange(place.name)
    wanted = bindings(source.filter)
    keys = wanted.keys
    if not keys:
        default = "#" if exchange.type == "topic" else ""
        keys = [default if place.key is None else place.key]
    for key in keys:
        access.check_bind(exchange, key, wanted.arguments)
    lasting = source.durable and source.expiry_policy == NEVER
    queue = _lasting(terminal, link, source) if lasting else _temporary(terminal)
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
    return _Found(queue, "close" if lasting else "detach", wanted.accepted or None)


def _lasting(terminal: Amqp10Terminal, link: Sender, source: Source) -> Queue:
    """The queue of a durable subscription: its client's, or shared by all who know its name."""
    assert terminal.connection.remote is not None
    owner = f".{terminal.connection.remote.container_id}"
    if SHARED in source.capabilities and GLOBAL in source.capabilities:
        owner = ""
    name = f"{SUBSCRIPTION}{owner}.{link.name}"
    encode_route("", name)
    for kind in ("configure", "write", "read"):
        terminal.access.check(kind, "queue", name)
    return terminal.vhost.declare_queue(name, durable=True)


def _temporary(terminal: Amqp10Terminal) -> Queue:
    """A queue that belongs to the connection."""
    terminal.access.check("configure", "queue", "amq.gen")
    return terminal.vhost.declare_queue(owner=terminal, exclusive=True)


def _lifetime(properties: dict[Any, Any] | None) -> str:
    """When a dynamic node goes: with its link, or, once it is empty, with its connection."""
    wanted = (properties or {}).get("lifetime-policy")
    if wanted is None:
        return "detach"
    composite = LIFETIMES.find(wanted.descriptor) if isinstance(wanted, Described) else None
    if composite is None:
        raise LinkFault(INVALID_FIELD, "a lifetime policy that is none")
    return "empty" if composite.make is DeleteOnNoMessages else "detach"


def attach_inlet(terminal: Amqp10Terminal, link: Receiver) -> None:
    """The client wants to send."""
    assert link.remote is not None
    target = link.remote.target
    if isinstance(target, Coordinator):
        raise LinkFault(NOT_IMPLEMENTED, "there are no transactions over AMQP 1.0")
    if target is None:
        raise LinkFault(INVALID_FIELD, "a link to send on needs a target")
    if target.expiry_policy not in EXPIRY_POLICIES:
        raise LinkFault(INVALID_FIELD, f"no expiry policy is '{target.expiry_policy}'")
    answer = replace(target, capabilities=(), timeout=min(target.timeout, LONGEST))
    place: Place | None = None
    if target.dynamic:
        queue = _temporary(terminal)
        place = Place("queue", queue.name)
        answer.address = queue_address(queue.name)
    elif target.address is not None:
        place = _target_place(terminal, link, target)
    inlet = Inlet(terminal, link, place)
    unsettled = resume_inlet(terminal, inlet)
    link.context = inlet
    link.accept(
        link.remote.source or Source(),
        answer,
        unsettled=unsettled,
        max_message_size=terminal.host.kernel.settings.max_message_bytes,
    )
    link.grant(CREDIT)


def _target_place(terminal: Amqp10Terminal, link: Receiver, target: Target) -> Place:
    place = parse_address(target.address)
    vhost = terminal.vhost
    if place.kind == "exchange":
        vhost.exchange(place.name)
    elif place.name not in vhost.queues and place.name not in vhost.replies:
        if not place.declares:
            raise NotFound(f"no {place.kind} '{place.name}' in vhost '{vhost.name}'")
        _declare(terminal, link, place)
    return place
