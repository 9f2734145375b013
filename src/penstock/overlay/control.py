"""What a broker does when it is told to: publications of class BROKER_CONTROL addressed to it.

A command has its family before the `-`: `OVERLAY-` is about neighbours, `LIFECYCLE-` about the
broker itself, `INJECTION-` makes it say something in its own name; what was injected can be undone
by the name it was injected under. What is not known is a warning in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from penstock.core.errors import NotFound, PreconditionFailed, Unsupported
from penstock.overlay.own import Attributes, Own
from penstock.wire.padres.envelope import Kind

CLASS: Final = "BROKER_CONTROL"


class Operations(Protocol):
    """What the broker around the router can do."""

    def connect(self, uri: str) -> None: ...

    def disconnect(self, name: str) -> None: ...

    def shutdown(self) -> None: ...


class Control:
    def __init__(self, own: Own, operations: Operations) -> None:
        self._own = own
        self._operations = operations
        self._injected: dict[str, str] = {}  #: ids of messages by the names they were given
        exits = own.router.exits
        self._commands: dict[str, Callable[[Attributes, bytes], None]] = {
            "OVERLAY-CONNECT": lambda said, _: operations.connect(_text(said, "broker")),
            "OVERLAY-DISCONNECT": lambda said, _: operations.disconnect(_text(said, "broker")),
            "OVERLAY-SHUTDOWN_REMOTEBROKER": self._gone,
            "INJECTION-INJECT_PUB": self._injects(Kind.PUBLISH),
            "INJECTION-INJECT_SUB": self._injects(Kind.SUBSCRIBE),
            "INJECTION-INJECT_ADV": self._injects(Kind.ADVERTISE),
            "INJECTION-INJECT_UNSUB": self._undoes(Kind.UNSUBSCRIBE),
            "INJECTION-INJECT_UNADV": self._undoes(Kind.UNADVERTISE),
            "INJECTION-FLUSH_PUB": lambda _said, _: own.router.together.flush(),
        }
        for family in ("OVERLAY-", "LIFECYCLE-"):
            self._commands[family + "STOP"] = lambda _said, _: exits.stop()
            self._commands[family + "RESUME"] = lambda _said, _: exits.resume()
            self._commands[family + "SHUTDOWN"] = self._shut_down
        own.hear(CLASS, f',[brokerID,eq,"{own.broker_id}"]', self._told)

    def _told(self, said: Attributes, payload: bytes) -> None:
        command = _text(said, "command")
        action = self._commands.get(command)
        if action is None:
            families = sorted({one.partition("-")[0] for one in self._commands})
            if command.partition("-")[0] not in families:
                known = ", ".join(families)
                raise Unsupported(f"there is no command {command!r}: commands begin with {known}")
            raise Unsupported(f"there is no command {command!r}")
        action(said, payload)

    def _shut_down(self, said: Attributes, payload: bytes) -> None:
        self._own.router.exits.say_last("SHUTDOWN")
        self._operations.shutdown()

    def _gone(self, said: Attributes, payload: bytes) -> None:
        """A neighbour was shut down on purpose: nobody need wait for its heartbeats to say so."""
        name = _text(said, "broker")
        neighbour = self._own.router.neighbours.get(name)
        if neighbour is None:
            raise NotFound(f"{name} is no neighbour")
        neighbour.failed = True

    def _injects(self, kind: Kind) -> Callable[[Attributes, bytes], None]:
        def inject(said: Attributes, payload: bytes) -> None:
            identity = self._own.say(
                kind, _message(payload), trace=str(said.get("TRACEROUTE_ID", ""))
            )
            name = said.get("INJECTION_ID")
            if name is not None and kind is not Kind.PUBLISH:
                self._injected[str(name)] = identity

        return inject

    def _undoes(self, kind: Kind) -> Callable[[Attributes, bytes], None]:
        def undo(said: Attributes, payload: bytes) -> None:
            name = _text(said, "INJECTION_ID")
            identity = self._injected.pop(name, None)
            if identity is None:
                raise NotFound(f"nothing was injected as {name}")
            self._own.say(kind, identity)

        return undo


def _text(said: Attributes, name: str) -> str:
    value = said.get(name)
    if not isinstance(value, str):
        raise PreconditionFailed(f"the command has no {name}")
    return value


def _message(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise PreconditionFailed("the payload is no message of the language") from None
