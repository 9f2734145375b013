"""The broker's own hop: its publications, and the commands it receives.

It subscribes to messages for this broker and dispatches them by class, after the router is done
with the current message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from penstock.broker.contract import ACCEPTED
from penstock.content.formatter import format_publication
from penstock.content.messages import Publication, Value, Variable
from penstock.content.parser import parse_publication
from penstock.core.errors import NotFound, PenstockError, PreconditionFailed, Unsupported
from penstock.core.logs import get_logger
from penstock.overlay.router import OverlayRouter
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

#: Attributes and payload of a publication.
Attributes = Mapping[str, Value | Variable]
PublicationHandler = Callable[[Attributes, bytes], None]

_log = get_logger("penstock.overlay")


class SelfHop:
    durable = False
    checked = False

    def __init__(self, router: OverlayRouter) -> None:
        self.router = router
        self.name = router.next_hops.self_name
        self._handlers: dict[str, PublicationHandler] = {}
        router.attach(self)

    @property
    def broker_id(self) -> str:
        return self.router.broker_id

    def deliver(self, envelope: PadresEnvelope) -> int:
        self.router.defer(partial(self._handle, envelope))
        return ACCEPTED

    def _handle(self, envelope: PadresEnvelope) -> None:
        publication = parse_publication(envelope.text)
        handler = self._handlers.get(publication.class_name)
        if handler is None:
            return
        try:
            handler(publication.attributes, envelope.payload)
        except PenstockError as error:
            _log.warning("command failed", command=envelope.text, reason=str(error))

    def subscribe(self, class_name: str, predicates: str, handler: PublicationHandler) -> None:
        """Handle publications of a class that satisfy the predicates."""
        self._handlers[class_name] = handler
        self.send(EnvelopeKind.SUBSCRIBE, f"[class,eq,{class_name}]{predicates}")

    def advertise(self, class_name: str, predicates: str) -> None:
        self.send(EnvelopeKind.ADVERTISE, f"[class,eq,{class_name}]{predicates}")

    def send(self, kind: EnvelopeKind, text: str, payload: bytes = b"", trace: str = "") -> str:
        envelope = PadresEnvelope(kind, text, payload=payload, trace=trace, durable=False)
        return self.router.receive(self, envelope).id

    def publish(
        self, class_name: str, attributes: Mapping[str, Value], payload: bytes = b""
    ) -> None:
        self.send(
            EnvelopeKind.PUBLISH, format_publication(Publication(class_name, attributes)), payload
        )

    def send_to_neighbour(
        self, neighbour: str, class_name: str, attributes: Mapping[str, Value]
    ) -> None:
        text = format_publication(Publication(class_name, attributes))
        envelope = PadresEnvelope(
            EnvelopeKind.PUBLISH, text, ttl=0, durable=False, source=self.name
        )
        self.router.next_hops.put(neighbour, envelope)


CONTROL_CLASS: Final = "BROKER_CONTROL"


class BrokerOperations(Protocol):
    """The broker around the router."""

    def connect(self, uri: str) -> None: ...

    def disconnect(self, name: str) -> None: ...

    def shutdown(self) -> None: ...


class ControlHandler:
    """Commands of class BROKER_CONTROL.

    `OVERLAY-` commands are about neighbours, `LIFECYCLE-` about the broker; `INJECTION-` sends a
    message as the broker, which can be withdrawn by its injection id. Unknown ones are logged.
    """

    def __init__(self, self_hop: SelfHop, operations: BrokerOperations) -> None:
        self._self_hop = self_hop
        self._operations = operations
        self._injected: dict[str, str] = {}  #: message ids by injection id
        next_hops = self_hop.router.next_hops
        self._commands: dict[str, Callable[[Attributes, bytes], None]] = {
            "OVERLAY-CONNECT": lambda attributes, _: operations.connect(
                _text(attributes, "broker")
            ),
            "OVERLAY-DISCONNECT": lambda attributes, _: operations.disconnect(
                _text(attributes, "broker")
            ),
            "OVERLAY-SHUTDOWN_REMOTEBROKER": self._on_neighbour_shutdown,
            "INJECTION-INJECT_PUB": self._inject_command(EnvelopeKind.PUBLISH),
            "INJECTION-INJECT_SUB": self._inject_command(EnvelopeKind.SUBSCRIBE),
            "INJECTION-INJECT_ADV": self._inject_command(EnvelopeKind.ADVERTISE),
            "INJECTION-INJECT_UNSUB": self._withdraw_command(EnvelopeKind.UNSUBSCRIBE),
            "INJECTION-INJECT_UNADV": self._withdraw_command(EnvelopeKind.UNADVERTISE),
            "INJECTION-FLUSH_PUB": lambda _attributes, _: self_hop.router.composite_router.flush(),
        }
        for family in ("OVERLAY-", "LIFECYCLE-"):
            self._commands[family + "STOP"] = lambda _attributes, _: next_hops.stop()
            self._commands[family + "RESUME"] = lambda _attributes, _: next_hops.resume()
            self._commands[family + "SHUTDOWN"] = self._shut_down
        self_hop.subscribe(
            CONTROL_CLASS, f',[brokerID,eq,"{self_hop.broker_id}"]', self._on_command
        )

    def _on_command(self, attributes: Attributes, payload: bytes) -> None:
        command = _text(attributes, "command")
        action = self._commands.get(command)
        if action is None:
            families = sorted({one.partition("-")[0] for one in self._commands})
            if command.partition("-")[0] not in families:
                known = ", ".join(families)
                raise Unsupported(f"unknown command {command!r}: commands begin with {known}")
            raise Unsupported(f"unknown command {command!r}")
        action(attributes, payload)

    def _shut_down(self, attributes: Attributes, payload: bytes) -> None:
        self._self_hop.router.next_hops.publish_final_status("SHUTDOWN")
        self._operations.shutdown()

    def _on_neighbour_shutdown(self, attributes: Attributes, payload: bytes) -> None:
        """A neighbour was shut down deliberately: do not wait for missed heartbeats."""
        name = _text(attributes, "broker")
        neighbour = self._self_hop.router.neighbours.get(name)
        if neighbour is None:
            raise NotFound(f"{name} is not a neighbour")
        neighbour.failed = True

    def _inject_command(self, kind: EnvelopeKind) -> Callable[[Attributes, bytes], None]:
        def inject(attributes: Attributes, payload: bytes) -> None:
            identity = self._self_hop.send(
                kind, _message(payload), trace=str(attributes.get("TRACEROUTE_ID", ""))
            )
            name = attributes.get("INJECTION_ID")
            if name is not None and kind is not EnvelopeKind.PUBLISH:
                self._injected[str(name)] = identity

        return inject

    def _withdraw_command(self, kind: EnvelopeKind) -> Callable[[Attributes, bytes], None]:
        def undo(attributes: Attributes, payload: bytes) -> None:
            name = _text(attributes, "INJECTION_ID")
            identity = self._injected.pop(name, None)
            if identity is None:
                raise NotFound(f"unknown INJECTION_ID {name}")
            self._self_hop.send(kind, identity)

        return undo


def _text(attributes: Attributes, name: str) -> str:
    value = attributes.get(name)
    if not isinstance(value, str):
        raise PreconditionFailed(f"the command lacks {name}")
    return value


def _message(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise PreconditionFailed("the payload is not UTF-8") from None
