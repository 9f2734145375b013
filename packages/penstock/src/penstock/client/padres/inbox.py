"""Where received publications wait to be read; and how many have been.

A broker sends so many and waits to hear that they were read, so nothing piles up in a program that
is slow: what it does not read waits at the broker. A publication was read when its reader asks for
the next one, or leaves; one that went to several inboxes, when each of their readers has.
`ReadProgress` counts for one connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from penstock.client.errors import FabricClosed
from penstock.content import Publication, Variable, parse_publication
from penstock.content.messages import Value
from penstock.core.errors import PenstockError
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

T = TypeVar("T")

#: The broker is told at the latest after so many; and when nothing is left to read.
CONFIRM_INTERVAL: Final = 100


class ReadProgress:
    """What one connection brought and how far it has been read."""

    __slots__ = ("_confirm", "_done", "_entries", "_told")

    def __init__(self, confirm: Callable[[int], None]) -> None:
        self._confirm = confirm
        self._entries: deque[InboxEntry] = deque()
        self._done = 0  # read, and all before it
        self._told = 0

    def begin(self, receipt: int, readers: int) -> InboxEntry:
        entry = InboxEntry(self, receipt, readers)
        self._entries.append(entry)
        return entry

    def advance(self) -> None:
        entries = self._entries
        while entries and not entries[0].left:
            self._done = entries.popleft().receipt
        if not entries or self._done - self._told >= CONFIRM_INTERVAL:
            self.tell()

    def tell(self) -> None:
        if self._done > self._told:
            self._told = self._done
            self._confirm(self._done)


class InboxEntry:
    __slots__ = ("_reading", "left", "receipt")

    def __init__(self, reading: ReadProgress, receipt: int, readers: int) -> None:
        self._reading = reading
        self.receipt = receipt
        self.left = readers  #: inboxes that still hold it

    def read(self) -> None:
        self.left -= 1
        if not self.left:
            self._reading.advance()


class PublicationInbox(Generic[T]):
    """Loop over it, or `receive()` one at a time."""

    def __init__(self, left: Callable[[PublicationInbox[T]], None] | None = None) -> None:
        self._left = left
        self._waiting: deque[tuple[T, InboxEntry]] = deque()
        self._in_hand: InboxEntry | None = None
        self._news = asyncio.Event()
        self._failure: PenstockError | None = None

    def put(self, received: T, entry: InboxEntry) -> None:
        self._waiting.append((received, entry))
        self._news.set()

    def fail(self, error: PenstockError) -> None:
        """There will be no more; what waits can still be read."""
        self._failure = error
        self._news.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def drop(self) -> None:
        """What was given out last has not been read."""
        self._in_hand = None

    def finish(self) -> None:
        """What was given out last has been read."""
        entry, self._in_hand = self._in_hand, None
        if entry is not None:
            entry.read()

    async def receive(self) -> T:
        self.finish()
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()
        received, self._in_hand = self._waiting.popleft()
        return received

    def close(self) -> None:
        """What it would have got goes where it went before; what waits here is let go."""
        self.finish()
        if self._left is not None:
            self._left(self)
        while self._waiting:
            self._waiting.popleft()[1].read()
        self.fail(FabricClosed("the inbox is closed"))

    def __aiter__(self) -> PublicationInbox[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except FabricClosed:
            raise StopAsyncIteration from None


# What a program receives: publications, and subscriptions of others where it asked for those.


@dataclass(frozen=True, slots=True)
class ReceivedPublication:
    """What was published, and what is known of its way here."""

    publication: Publication
    broker: str  #: who brought it
    envelope: PadresEnvelope = field(repr=False)

    @classmethod
    def of(cls, envelope: PadresEnvelope, broker: str) -> ReceivedPublication:
        return cls(parse_publication(envelope.text), broker, envelope)

    @property
    def class_name(self) -> str:
        return self.publication.class_name

    @property
    def attributes(self) -> Mapping[str, Value | Variable]:
        return self.publication.attributes

    def __getitem__(self, attribute: str) -> Value | Variable:
        return self.publication.attributes[attribute]

    @property
    def text(self) -> str:
        """As it was said, in the language."""
        return self.envelope.text

    @property
    def id(self) -> str:
        """Given by the broker it was sent to."""
        return self.envelope.id

    @property
    def payload(self) -> bytes:
        return self.envelope.payload

    @property
    def source(self) -> str:
        """Who published it, by the broker that took it: `B1-ada`."""
        return self.envelope.source

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self.envelope.time, UTC)


@dataclass(frozen=True, slots=True)
class SubscriptionNotice:
    """Somebody wants what this client has advertised; or does not want it any more."""

    id: str  #: of the subscription
    text: str  #: the subscription; empty when it was withdrawn
    broker: str  #: who told us
    envelope: PadresEnvelope = field(repr=False)

    @classmethod
    def of(cls, envelope: PadresEnvelope, broker: str) -> SubscriptionNotice:
        if envelope.kind is EnvelopeKind.SUBSCRIBE:
            return cls(envelope.id, envelope.text, broker, envelope)
        return cls(envelope.text, "", broker, envelope)

    @property
    def withdrawn(self) -> bool:
        return not self.text
