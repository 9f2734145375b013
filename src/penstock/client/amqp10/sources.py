"""Where messages come from: the terminus that each pattern attaches to.

A source is asked for its terminus on every new connection, so it knows where to go on. Whether it
`redelivers` decides how it is received: from one that does, a message is settled when the program
is done with it; from one that does not, messages come settled, and credit alone holds them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol
from urllib.parse import quote
from uuid import uuid4

from penstock.client.amqp10.contents import OFFSET
from penstock.client.fabric import Start
from penstock.wire.amqp10 import termini
from penstock.wire.amqp10.message import Message
from penstock.wire.amqp10.values import Described, Symbol, Timestamp, ULong

STREAM_OFFSET: Final = Symbol("rabbitmq:stream-offset-spec")
#: The keys of a subscription to a topic exchange, as Qpid's brokers take them.
BINDING: Final = Symbol("apache.org:legacy-amqp-topic-binding:string")


class Source(Protocol):
    """What an inlet draws from."""

    name: str  #: of the link
    prefetch: int
    redelivers: bool
    lasts: bool  #: the broker keeps it when we leave

    def terminus(self) -> termini.Source: ...

    def admit(self, message: Message) -> bool:
        """Whether the program should see this message."""


def queue_address(name: str) -> str:
    return f"/queue/{quote(name, safe='')}"


class Work:
    """Push/pull: items of a queue, each to one of those who pull."""

    redelivers = True
    lasts = False

    def __init__(self, queue: str, prefetch: int) -> None:
        self.name = f"{queue}-{uuid4().hex[:8]}"
        self.prefetch = prefetch
        self._queue = queue

    def terminus(self) -> termini.Source:
        return termini.Source(queue_address(self._queue))

    def admit(self, message: Message) -> bool:
        return True


class Calls:
    """Request/reply: the requests to a service. The queue goes with the last who serves it."""

    redelivers = True
    lasts = False

    def __init__(self, service: str, prefetch: int) -> None:
        self.name = f"{service}-{uuid4().hex[:8]}"
        self.prefetch = prefetch
        self._service = service

    def terminus(self) -> termini.Source:
        return termini.Source(queue_address(self._service), expiry_policy=termini.LINK_DETACH)

    def admit(self, message: Message) -> bool:
        return True


class Answers:
    """Request/reply: a node of our own that answers come to."""

    redelivers = False
    lasts = False

    def __init__(self, prefetch: int) -> None:
        self.name = f"answers-{uuid4().hex[:8]}"
        self.prefetch = prefetch

    def terminus(self) -> termini.Source:
        return termini.Source(None, dynamic=True)

    def admit(self, message: Message) -> bool:
        return True


class Subscription:
    """Publish/subscribe: copies of what matches, from now on; or, with a name, since it was made.

    Those who use the same name share the messages, as JMS has it.
    """

    def __init__(
        self, patterns: Sequence[str], exchange: str, name: str | None, prefetch: int
    ) -> None:
        self.prefetch = prefetch
        self.redelivers = self.lasts = name is not None
        self.name = name or f"subscription-{uuid4().hex[:8]}"
        self._patterns = patterns
        self._exchange = exchange

    def terminus(self) -> termini.Source:
        address = f"/exchange/{quote(self._exchange, safe='')}"
        source = termini.Source(address)
        if len(self._patterns) == 1:
            source.address += f"/{quote(self._patterns[0], safe='#*')}"
        else:
            keys = list(self._patterns)
            source.filter = {BINDING: Described(BINDING, keys)}
        if self.lasts:
            source.durable = termini.UNSETTLED_STATE
            source.expiry_policy = termini.NEVER
            source.capabilities = ("shared", "global")
        return source

    def admit(self, message: Message) -> bool:
        return True


class Replay:
    """A stream from a point on; after a break, from the message after the last one seen."""

    redelivers = False
    lasts = False

    def __init__(self, stream: str, start: Start, prefetch: int) -> None:
        self.name = f"{stream}-{uuid4().hex[:8]}"
        self.prefetch = prefetch
        self._stream = stream
        self._start = _offset(start)
        self._last = -1

    def terminus(self) -> termini.Source:
        begin = self._start if self._last < 0 else ULong(self._last + 1)
        if self._start == "next":
            # Should the connection break before the first message, "next" would then mean later.
            self._start = _offset(datetime.now(UTC))
        return termini.Source(
            f"/stream/{quote(self._stream, safe='')}",
            filter={STREAM_OFFSET: Described(STREAM_OFFSET, begin)},
        )

    def admit(self, message: Message) -> bool:
        offset = (message.message_annotations or {}).get(OFFSET)
        if not isinstance(offset, int) or offset <= self._last:
            return False
        self._last = int(offset)
        return True


def _offset(start: Start) -> Any:
    match start:
        case timedelta():
            return f"{round(start.total_seconds())}s"
        case datetime():
            return Timestamp(int(start.timestamp() * 1000))
        case int():
            return ULong(start)
    return start
