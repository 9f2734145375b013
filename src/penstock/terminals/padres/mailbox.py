"""A client's mailbox: the hop of the router that stands for a client, and a queue behind it.

What the router gives it lies in a queue of the client's own, as the frame it will be; a client that
is here and not behind gets it at once. The mailbox of a lasting client is durable and outlives its
connection and the broker; any other goes with its client. A lasting one belongs to the user who
made it, and nobody else is let in under its name. Urgent publications overtake others where there
is something to overtake.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import PERSISTENT, PRIORITY, Message
from penstock.core.properties import Properties, encode_header, encode_route
from penstock.wire.padres.envelope import Envelope
from penstock.wire.padres.envelopes import encode_envelope

if TYPE_CHECKING:
    from penstock.broker.destinations import Queue
    from penstock.broker.host import Host
    from penstock.broker.vhost import VirtualHost

#: What the queues of clients are called, before the name of the hop.
PREFIX: Final = "padres."
#: How the topology's journal calls records of whose a mailbox is.
MAILBOX: Final = "mailbox"
CONTENT_TYPE: Final = "application/x-padres-envelope"
#: In the queue more is more urgent; in the language less is. As many steps as queues usually have.
STEPS: Final = 9

_ROUTE: Final = encode_route("", "padres")


class Press:
    """Messages for mailboxes: a publication is encoded once for all who get it."""

    __slots__ = ("_envelope", "_headers", "_message")

    def __init__(self) -> None:
        self._envelope: Envelope | None = None
        self._message = Message(_ROUTE, b"", b"")
        self._headers: dict[tuple[bool, int], bytes] = {}  # of empty bodies

    def message(self, envelope: Envelope) -> Message:
        if envelope is not self._envelope:
            self._message = self._made(envelope)
            self._envelope = envelope
        return self._message

    def _made(self, envelope: Envelope) -> Message:
        durable = envelope.durable
        urgency = max(0, min(STEPS, STEPS - envelope.priority))
        if envelope.tree or envelope.only or envelope.turns:  # between brokers alone
            envelope = replace(envelope, tree="", only=(), turns=0)
        body = encode_envelope(envelope)
        header = self._headers.get((durable, urgency)) or self._header(durable, urgency)
        flags = (PERSISTENT if durable else 0) | (PRIORITY if urgency else 0)
        size = len(body).to_bytes(8, "big")
        return Message(_ROUTE, header[:4] + size + header[12:], body, flags)

    def _header(self, durable: bool, urgency: int) -> bytes:
        mode = 2 if durable else 1
        properties = Properties(content_type=CONTENT_TYPE, delivery_mode=mode, priority=urgency)
        header = self._headers[durable, urgency] = encode_header(properties, 0)
        return header


class Mailbox:
    __slots__ = ("_most", "_owner", "_press", "_vhost", "checked", "lasting", "name")

    def __init__(
        self,
        vhost: VirtualHost,
        name: str,
        press: Press,
        *,
        owner: object | None,
        checked: bool,
        most: int,
    ) -> None:
        """Without an owner, a connection, it is lasting."""
        self.name = name
        self.lasting = owner is None
        self.checked = checked
        self._vhost = vhost
        self._press = press
        self._owner = owner
        self._most = most

    @property
    def queue(self) -> Queue:
        """Made when it is first needed, and again if somebody has deleted it."""
        name = PREFIX + self.name
        queue = self._vhost.queues.get(name)
        if queue is not None:
            return queue
        arguments: dict[str, Any] = {"x-max-priority": STEPS}
        if self._most:
            arguments["x-max-length"] = self._most
        return self._vhost.declare_queue(
            name,
            durable=self.lasting,
            owner=self._owner,
            exclusive=not self.lasting,
            arguments=arguments,
        )

    def deliver(self, envelope: Envelope) -> int:
        return self.queue.push(self._press.message(envelope))

    @property
    def user(self) -> str:
        """Who made it, if it is there and that was written down."""
        found = self._vhost.topology.get((MAILBOX, self._vhost.name, self.name))
        return "" if found is None else str(found["user"])

    def belong_to(self, user: str) -> None:
        """It is lasting, and that user's from now on."""
        self._vhost.topology.put((MAILBOX, self._vhost.name, self.name), {"user": user})

    def forget(self) -> None:
        """The client will not come back for it."""
        self._vhost.delete_queue(PREFIX + self.name)
        self._vhost.topology.drop((MAILBOX, self._vhost.name, self.name))


def lasting_hop(host: Host, vhost: VirtualHost, name: str) -> Mailbox:
    """The mailbox of a lasting client that is not here; what was in it is still in it."""
    settings = host.kernel.settings.padres
    return Mailbox(
        vhost,
        name,
        Press(),
        owner=None,
        checked=settings.conformance,
        most=settings.max_queued,
    )
