"""The mailbox of a PADRES client: the router's hop for the client, and a queue behind it.

Publications of the router are encoded as frames and put into the queue; the terminal consumes from
it. The mailbox of a durable client survives its connection and the broker, and only the user who
created it may use it. Others are deleted with their connection. Urgent publications overtake others
in the queue.
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

#: Prefix of the queues of mailboxes, before the hop name.
MAILBOX_QUEUE_PREFIX: Final = "padres."
#: The kind of topology record for the user of a durable mailbox.
MAILBOX_RECORD: Final = "mailbox"
CONTENT_TYPE: Final = "application/x-padres-envelope"
#: The highest priority of a queue; in the content language a lower value is more urgent.
MAX_PRIORITY: Final = 9

_ROUTE: Final = encode_route("", "padres")


class EncodedEnvelopeCache:
    """Caches the last encoded envelope: a publication is encoded once for all mailboxes."""

    def __init__(self) -> None:
        self._envelope: PadresEnvelope | None = None
        self._message = Message(_ROUTE, b"", b"")
        self._headers: dict[tuple[bool, int], bytes] = {}  # of empty bodies

    def message(self, envelope: PadresEnvelope) -> Message:
        if envelope is not self._envelope:
            self._message = self._encode(envelope)
            self._envelope = envelope
        return self._message

    def _encode(self, envelope: PadresEnvelope) -> Message:
        durable = envelope.durable
        urgency = max(0, min(MAX_PRIORITY, MAX_PRIORITY - envelope.priority))
        if envelope.tree or envelope.target_brokers or envelope.tree_changes:  # between brokers
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
        """The owner is a connection; without one the mailbox is durable."""
        self.name = name
        self.durable = owner is None
        self.checked = checked
        self._vhost = vhost
        self._envelope_cache = envelope_cache
        self._owner = owner
        self._most = most

    @property
    def queue(self) -> Queue:
        """Declared when it is first needed, and again after it was deleted."""
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
        """The owner of a durable mailbox; empty if there is no record."""
        found = self._vhost.topology.get((MAILBOX_RECORD, self._vhost.name, self.name))
        return "" if found is None else str(found["user"])

    def set_owner(self, user: str) -> None:
        self._vhost.topology.put((MAILBOX_RECORD, self._vhost.name, self.name), {"user": user})

    def delete(self) -> None:
        self._vhost.delete_queue(MAILBOX_QUEUE_PREFIX + self.name)
        self._vhost.topology.drop((MAILBOX_RECORD, self._vhost.name, self.name))


def durable_mailbox(host: Host, vhost: VirtualHost, name: str) -> PadresMailbox:
    """The mailbox of a durable client that is not connected."""
    settings = host.kernel.settings.padres
    return PadresMailbox(
        vhost,
        name,
        EncodedEnvelopeCache(),
        owner=None,
        checked=settings.conformance,
        most=settings.max_queued,
    )
