"""Where the topics of one client lead: short names, permissions, and routes that are remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.core.properties import shortstr
from penstock.terminals.mqtt.properties import Properties, Property
from penstock.terminals.mqtt.reasons import MqttError, Reason
from penstock.terminals.mqtt.topics import to_key
from penstock.terminals.mqtt.translation import SHORT

if TYPE_CHECKING:
    from penstock.terminals.mqtt.terminal import MqttTerminal

#: Topics whose routes are remembered.
ROUTES: Final = 1024


class Routes:
    __slots__ = ("_aliases", "_terminal", "exchange", "known")

    def __init__(self, terminal: MqttTerminal) -> None:
        self._terminal = terminal
        self._aliases: dict[int, bytes] = {}
        self.exchange = ""  #: they all begin with its name
        self.known: dict[bytes, bytes] = {}  #: by topic: allowed, and asked for before

    def named(self, topic: bytes, told: Properties) -> bytes:
        """The topic, which may have a short name, or get one."""
        alias = told.get(Property.TOPIC_ALIAS)
        if alias is None:
            if not topic:
                raise MqttError(Reason.PROTOCOL_ERROR, "a publication without a topic or an alias")
            return topic
        most = self._terminal.host.kernel.settings.mqtt.topic_alias_maximum
        if not 0 < alias <= most:
            raise MqttError(Reason.TOPIC_ALIAS_INVALID, f"topic alias {alias}: 1 to {most} may be")
        if topic:
            self._aliases[alias] = topic
            return topic
        known = self._aliases.get(alias)
        if known is None:
            raise MqttError(Reason.PROTOCOL_ERROR, f"topic alias {alias} names nothing")
        return known

    def of(self, topic: bytes) -> bytes | None:
        """Where a topic leads; None when this client may not publish there."""
        return self.known.get(topic) or self.find(topic)

    def find(self, topic: bytes) -> bytes | None:
        """`of` one that is not known."""
        terminal = self._terminal
        if not terminal.opened:
            raise MqttError(Reason.PROTOCOL_ERROR, "a packet before CONNECT was accepted")
        key = to_key(topic)
        if len(key) > SHORT:
            raise MqttError(
                Reason.TOPIC_NAME_INVALID, f"a topic of {len(key)} bytes: {SHORT} may be"
            )
        if topic.startswith(b"$SYS") or not terminal.access.may_publish(key.decode()):
            return None
        if len(self.known) >= ROUTES:
            self.known.clear()
        route = shortstr(self.exchange) + bytes((len(key),)) + key
        self.known[topic] = route
        return route
