"""A client's mailbox: the hop of the router that stands for a client, and a queue behind it.

What the router gives it lies in a queue of the client's own, as the frame it will be; a client that
is here and not behind gets it at once. The mailbox of a durable client is durable and outlives its
connection and the broker; any other goes with its client. A durable one belongs to the user who
made it, and nobody else is let in under its name. Urgent publications overtake others where there
is something to overtake.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import PERSISTENT, PRIORITY, Message
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.wire.padres.envelope import PadresEnvelope, encode_envelope

if TYPE_CHECKING:
    from penstock.broker.contract import Queue
    from penstock.broker.host import Host
    from penstock.broker.vhost import VirtualHost

#: What the queues of clients are called, before the name of the hop.
MAILBOX_QUEUE_PREFIX: Final = "padres."
#: How the topology's journal calls records of whose a mailbox is.
MAILBOX_RECORD: Final = "mailbox"
CONTENT_TYPE: Final = "application/x-padres-envelope"
#: In the queue more is more urgent; in the language less is. As many steps as queues usually have.
MAX_PRIORITY: Final = 9

_ROUTE: Final = encode_route("", "padres")


class EncodedEnvelopeCache:
    """Messages for mailboxes: a publication is encoded once for all who get it."""

    __slots__ = ("_envelope", "_headers", "_message")

    def __init__(self) -> None:
        self._envelope: PadresEnvelope | None = None
        self._message = Message(_ROUTE, b"", b"")
        self._headers: dict[tuple[bool, int], bytes] = {}  # of empty bodies

    def message(self, envelope: PadresEnvelope) -> Message:
        if envelope is not self._envelope:
            self._message = self._made(envelope)
            self._envelope = envelope
        return self._message

    def _made(self, envelope: PadresEnvelope) -> Message:
        durable = envelope.durable
        urgency = max(0, min(MAX_PRIORITY, MAX_PRIORITY - envelope.priority))
        if (
            envelope.tree or envelope.target_brokers or envelope.tree_changes
        ):  # between brokers alone
            envelope = replace(envelope, tree="", target_brokers=(), tree_changes=0)
        body = encode_envelope(envelope)
        header = self._headers.get((durable, urgency)) or self._header(durable, urgency)
        flags = (PERSISTENT if durable else 0) | (PRIORITY if urgency else 0)
        size = len(body).to_bytes(8, "big")
        return Message(_ROUTE, header[:4] + size + header[12:], body, flags)

    def _header(self, durable: bool, urgency: int) -> bytes:
        mode = 2 if durable else 1
        properties = BasicProperties(
            content_type=CONTENT_TYPE, delivery_mode=mode, priority=urgency
        )
        header = self._headers[durable, urgency] = encode_header(properties, 0)
        return header


class PadresMailbox:
    __slots__ = ("_envelope_cache", "_most", "_owner", "_vhost", "checked", "durable", "name")

    def __init__(
        self,
        vhost: VirtualHost,
        name: str,
        envelope_cache: EncodedEnvelopeCache,
        *,
        owner: object | None,
        checked: bool,
        most: int,
    ) -> None:
        """Without an owner, a connection, it is durable."""
        self.name = name
        self.durable = owner is None
        self.checked = checked
        self._vhost = vhost
        self._envelope_cache = envelope_cache
        self._owner = owner
        self._most = most

    @property
    def queue(self) -> Queue:
        """Made when it is first needed, and again if somebody has deleted it."""
        name = MAILBOX_QUEUE_PREFIX + self.name
        queue = self._vhost.queues.get(name)
        if queue is not None:
            return queue
        arguments: dict[str, Any] = {"x-max-priority": MAX_PRIORITY}
        if self._most:
            arguments["x-max-length"] = self._most
        return self._vhost.declare_queue(
            name,
            durable=self.durable,
            owner=self._owner,
            exclusive=not self.durable,
            arguments=arguments,
        )

    def deliver(self, envelope: PadresEnvelope) -> int:
        return self.queue.push(self._envelope_cache.message(envelope))

    @property
    def user(self) -> str:
        """Who made it, if it is there and that was written down."""
        found = self._vhost.topology.get((MAILBOX_RECORD, self._vhost.name, self.name))
        return "" if found is None else str(found["user"])

    def set_owner(self, user: str) -> None:
        """It is durable, and that user's from now on."""
        self._vhost.topology.put((MAILBOX_RECORD, self._vhost.name, self.name), {"user": user})

    def forget(self) -> None:
        """The client will not come back for it."""
        self._vhost.delete_queue(MAILBOX_QUEUE_PREFIX + self.name)
        self._vhost.topology.drop((MAILBOX_RECORD, self._vhost.name, self.name))


def durable_mailbox(host: Host, vhost: VirtualHost, name: str) -> PadresMailbox:
    """The mailbox of a durable client that is not here; what was in it is still in it."""
    settings = host.kernel.settings.padres
    return PadresMailbox(
        vhost,
        name,
        EncodedEnvelopeCache(),
        owner=None,
        checked=settings.conformance,
        most=settings.max_queued,
    )
