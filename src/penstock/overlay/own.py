"""The broker as a hop of its own router: what it says of itself, and what it is told.

It subscribes to what is addressed to it and hands each publication to whoever cares for its class.
That happens when the router is done with what brought it: what one part does may not get in the way
of another that is half through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from penstock.broker.destinations import TAKEN
from penstock.content.fast import parse_publication
from penstock.content.messages import Publication
from penstock.content.printing import print_publication
from penstock.content.values import Value, Variable
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.overlay.router import Router
from penstock.wire.padres.envelope import Envelope, Kind

#: What somebody was told: the attributes, and what came beside them.
Attributes = Mapping[str, Value | Variable]
Handler = Callable[[Attributes, bytes], None]

_log = get_logger("penstock.overlay")


class Own:
    lasting = False
    checked = False

    def __init__(self, router: Router) -> None:
        self.router = router
        self.name = router.exits.own
        self._handlers: dict[str, Handler] = {}
        router.attach(self)

    @property
    def broker_id(self) -> str:
        return self.router.broker_id

    def deliver(self, envelope: Envelope) -> int:
        self.router.later(partial(self._handle, envelope))
        return TAKEN

    def _handle(self, envelope: Envelope) -> None:
        said = parse_publication(envelope.text)
        handler = self._handlers.get(said.class_name)
        if handler is None:
            return
        try:
            handler(said.attributes, envelope.payload)
        except PenstockError as error:
            _log.warning("could not do as told", told=envelope.text, reason=str(error))

    # What it asks for.

    def hear(self, class_name: str, predicates: str, handler: Handler) -> None:
        """Care for the publications of a class that satisfy the predicates."""
        self._handlers[class_name] = handler
        self.say(Kind.SUBSCRIBE, f"[class,eq,{class_name}]{predicates}")

    def advertise(self, class_name: str, predicates: str) -> None:
        self.say(Kind.ADVERTISE, f"[class,eq,{class_name}]{predicates}")

    # What it says.

    def say(self, kind: Kind, text: str, payload: bytes = b"", trace: str = "") -> str:
        envelope = Envelope(kind, text, payload=payload, trace=trace, durable=False)
        return self.router.receive(self, envelope).id

    def publish(self, class_name: str, said: Mapping[str, Value], payload: bytes = b"") -> None:
        self.say(Kind.PUBLISH, print_publication(Publication(class_name, said)), payload)

    def tell(self, neighbour: str, class_name: str, said: Mapping[str, Value]) -> None:
        """Something between two neighbours."""
        text = print_publication(Publication(class_name, said))
        envelope = Envelope(Kind.PUBLISH, text, ttl=0, durable=False, source=self.name)
        self.router.exits.put(neighbour, envelope)
