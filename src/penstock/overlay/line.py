"""The way to a neighbour: a durable queue for publications, and the link while there is one.

What is published waits in the queue until the neighbour has confirmed it; what the neighbour is
otherwise told goes straight to the link, and is told anew when there is another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.contract import PERSISTENT, Message
from penstock.broker.destinations import TAKEN
from penstock.core.properties import Properties, encode_header, encode_route
from penstock.wire.padres.envelope import Envelope, Kind
from penstock.wire.padres.envelopes import encode_envelope

if TYPE_CHECKING:
    from penstock.broker.destinations import Queue
    from penstock.broker.vhost import VirtualHost
    from penstock.overlay.link import Link

#: What the queues of neighbours are called, before the id.
PREFIX: Final = "overlay."

_CONTENT_TYPE: Final = "application/x-padres-envelope"


class QueuedLine:
    def __init__(self, vhost: VirtualHost, neighbour: str) -> None:
        self._vhost = vhost
        self._name = PREFIX + neighbour
        self._route = encode_route("", self._name)
        self.link: Link | None = None  #: once both have agreed to be neighbours

    @property
    def queue(self) -> Queue:
        """Made when it is first needed, and again if somebody has deleted it."""
        queue = self._vhost.queues.get(self._name)
        return queue or self._vhost.declare_queue(self._name, durable=True)

    def send(self, envelope: Envelope) -> int:
        if envelope.kind is Kind.PUBLISH:
            return self.queue.push(self._message(envelope))
        if self.link is not None:
            self.link.note(envelope)
        return TAKEN

    def put(self, envelope: Envelope) -> None:
        if self.link is not None:
            self.link.note(envelope)

    def forget(self) -> None:
        self._vhost.delete_queue(self._name)

    def _message(self, envelope: Envelope) -> Message:
        body = encode_envelope(envelope)
        mode = 2 if envelope.durable else 1
        properties = Properties(content_type=_CONTENT_TYPE, delivery_mode=mode)
        flags = PERSISTENT if envelope.durable else 0
        return Message(self._route, encode_header(properties, len(body)), body, flags)
