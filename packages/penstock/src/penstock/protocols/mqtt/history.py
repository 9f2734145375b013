"""History: a subscriber requests past messages of a topic that a stream stores.

A SUBSCRIBE with the user property `x-stream-offset` gets the messages of the stream from there on,
and then what is published: the end of the history and the subscription are of one moment, so none
is missing and none comes twice. `x-stream` names the stream; without it, one is found whose binding
covers the topic filter.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.contract import Message, MessageHistory, Queue, TopicSubscription
from penstock.core.errors import AccessRefused, NotFound, PreconditionFailed

if TYPE_CHECKING:
    from penstock.protocols.mqtt.terminal import MqttTerminal

OFFSET_PROPERTY: Final = "x-stream-offset"
STREAM_PROPERTY: Final = "x-stream"


class HistoryRequest:
    """The request of one SUBSCRIBE."""

    def __init__(self, terminal: MqttTerminal, start: str, stream: str | None) -> None:
        self._terminal = terminal
        self._start = start
        self._stream = stream
        self.found: list[tuple[Iterator[Message | None], TopicSubscription]] = []

    @classmethod
    def of(cls, terminal: MqttTerminal, properties: dict[str, str]) -> HistoryRequest | None:
        start = properties.get(OFFSET_PROPERTY)
        return None if start is None else cls(terminal, start, properties.get(STREAM_PROPERTY))

    def find(self, key: str) -> Iterator[Message | None]:
        """The past messages that match a binding key."""
        stream = self._find_stream(key)
        users, access = self._terminal.host.users, self._terminal.access
        if not users.is_allowed(access.user, self._terminal.vhost.name, "read", stream.name):
            raise AccessRefused(f"access to queue '{stream.name}' refused for user")
        assert isinstance(stream, MessageHistory)
        return stream.history(_parse_start(self._start), key.encode())

    def _find_stream(self, key: str) -> Queue:
        vhost = self._terminal.vhost
        if self._stream is not None:
            stream = vhost.queue(self._stream)
            if not isinstance(stream, MessageHistory):
                raise PreconditionFailed(f"'{self._stream}' is not a stream")
            return stream
        exchange = vhost.exchange(self._terminal.host.kernel.settings.mqtt.exchange)
        for binding in exchange.bindings:
            bound: Any = binding.destination
            if isinstance(bound, MessageHistory) and covers(binding.key, key):
                return cast(Queue, bound)
        raise NotFound(f"no stream is bound to exchange '{exchange.name}' with a key like '{key}'")


def covers(wide: str, narrow: str) -> bool:
    """Whether all routing keys that match the narrow pattern match the wide one."""
    return _covers(wide.split("."), narrow.split("."))


def _covers(wide: list[str], narrow: list[str]) -> bool:
    if not wide:
        return not narrow
    if wide[0] == "#":
        return any(_covers(wide[1:], narrow[at:]) for at in range(len(narrow) + 1))
    if not narrow or narrow[0] == "#" or (wide[0] != narrow[0] and wide[0] != "*"):
        return False
    return _covers(wide[1:], narrow[1:])


def _parse_start(text: str) -> Any:
    """As the argument `x-stream-offset` of AMQP; a time is ISO 8601."""
    if text.isdecimal() and len(text) < 19:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text  # a name or an interval; the stream refuses others
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
